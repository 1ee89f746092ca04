"""Found by Spark by its name: makes `spark.read.format("flink_savepoint")` work unregistered."""

from statelake.pipelines.spark.flink_savepoint import FlinkSavepointDataSource as DefaultSource

__all__ = ["DefaultSource"]
