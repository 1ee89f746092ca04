"""The demo: `run` its steps as `steps` tells them, `spark_step` the one on Spark; its savepoints."""
