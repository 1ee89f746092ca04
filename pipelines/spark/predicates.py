"""Which rows of a table stay when those of a predicate go: chosen by Spark SQL."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.edit.purging import Staging
from statelake.pipelines.lake.edit.rewriting import STAGED
from statelake.pipelines.lake.tables.operator_tables import NO_PARTITION
from statelake.pipelines.lake.tables.records import TableRecord
from statelake.pipelines.lake.tables.tables import DATA_DIRECTORY
from statelake.pipelines.spark.object_stores import spark_path
from statelake.state_core.errors import EncodeError

__all__ = ["predicate_staging"]

WHOLE = "whole"


def predicate_staging(session: SparkSession, lake: Catalog) -> Staging:
    """What writes the rows that a predicate leaves, by partition."""

    def stage(table: TableRecord, predicate: str, token: str) -> Mapping[int, str]:
        opened = lake.table(table.path)
        path = f"{DATA_DIRECTORY}/{token}/{STAGED}"
        opened.directory.checked_path(path)  # as Spark writes there by its path
        target = spark_path(session, opened.directory.child(path))
        table_path = spark_path(session, opened.checked_directory(table))
        source = f"delta.`{table_path}` VERSION AS OF {table.version}"
        try:
            rows = session.sql(f"SELECT * FROM {source}")  # noqa: S608 - our own table
            left = rows.where(f"NOT coalesce(({predicate}), false)")
        except (AnalysisException, ParseException) as error:
            raise EncodeError(
                f"the predicate can't be understood: {str(error).splitlines()[0]}",
                place=table.path,
                remedy="give Spark SQL over the table's columns",
            ) from error
        if not table.partition_by:
            left.write.parquet(f"{target}/{WHOLE}")
            return {NO_PARTITION: f"{path}/{WHOLE}"}
        left.write.partitionBy(table.partition_by).parquet(target)
        return {
            int(name.rpartition("=")[2]): f"{path}/{name}"
            for name in opened.directory.names(path)
            if "=" in name
        }

    return stage
