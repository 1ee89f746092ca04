"""Operate live Flink clusters by their REST API (Flink 1.18 to 2.3).

::

    from statelake.pipelines.flink.cluster import FlinkCluster
    from statelake.pipelines.flink.connection import ConnectionSettings

    cluster = FlinkCluster(ConnectionSettings.from_environment("https://flink.example:8081"))
    job = cluster.find_job("orders")
    location = cluster.take_savepoint(job.id, "s3://bucket/savepoints")

==============  ====================================================================
`connection`    HTTP calls: credentials, retries, and errors
`answers`       responses of the cluster, as records
`cluster_view`  `ClusterView`: jobs and their checkpoints, read only
`cluster`       `FlinkCluster`: the same, and savepoints, JARs, runs
`jars`          programs, and their JARs on a cluster
`root_causes` the root cause of a failure, in one sentence
`path_map`      paths of the cluster as paths of this machine, and back
==============  ====================================================================

No module here uses a lake. Passwords, tokens, headers and arguments of jobs are in no message, no
`repr` and no log.
"""
