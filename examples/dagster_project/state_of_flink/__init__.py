"""A Dagster project that keeps the state of two Flink jobs: see `defs/lake/defs.yaml`."""
