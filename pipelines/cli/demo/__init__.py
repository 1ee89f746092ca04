"""The demo: `run` has its steps, `steps` prints them; `dagster_step`, `spark_step` need extras."""
