"""The demo: `run` its steps, `spark_step` the one on Spark; the savepoints that it runs on."""
