"""`statelake flink`: live clusters.

=============  ==================================================================
`group`        the group: which commands it has
`connecting`   the options that they share, and the cluster that these lead to
`jobs`         `jobs`, `checkpoints`, `cancel`
`savepoints`   `savepoint`, `stop`, `dispose`
`runs`         `run`
`canary`       `canary`
`rescale`      `rescale`
=============  ==================================================================
"""
