"""Operate live Flink clusters by their REST API (Flink 1.18 to 2.3), and change their jobs.

::

    from statelake.pipelines.live.cluster import FlinkCluster
    from statelake.pipelines.live.connection import ConnectionSettings

    cluster = FlinkCluster(ConnectionSettings.from_environment("https://flink.example:8081"))
    job = cluster.find_job("orders")
    location = cluster.take_savepoint(job.id, "s3://bucket/savepoints")

=================  =================================================================
`connection`       HTTP calls: credentials, retries, and errors
`answers`          responses of the cluster, as records
`cluster_view`     `ClusterView`: jobs and their checkpoints, read only
`cluster`          `FlinkCluster`: the same, and savepoints, JARs, runs
`jars`             programs, and their JARs on a cluster
`root_causes`      the root cause of a failure, in one sentence
`requests`         requests for a rescale, a canary, a drill
`canary`           a JAR run from a snapshot and cancelled: before a deployment, or as a drill
`live_rescaling`   a job rescaled, migrated or upgraded, with a way back
`rescale_steps`    its steps and the way back, as two tables
`rescale_journal`  the completed steps, kept in the lake
=================  =================================================================

Passwords, tokens, headers and arguments of jobs are in no message, no
`repr` and no log.
"""
