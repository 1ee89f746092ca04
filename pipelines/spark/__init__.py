"""The only place with PySpark: the session, the engine, the data source, SQL."""
