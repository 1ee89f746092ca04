"""statelake on Spark, Delta and Dagster: the lake, its jobs, its assets and its command."""
