"""The demo: `run` its steps, `steps` tells them, `spark_step` the one on Spark; its savepoints."""
