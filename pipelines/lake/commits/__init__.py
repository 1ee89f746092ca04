"""Commits of running tasks: the logs of their checkpoints, runs in a lake, and their costs.

========================  ===========================================================
`checkpoint_records`      the records of a checkpoint log, decoded
`checkpoint_verifying`    check that checkpoints can be restored
`checkpoint_dropping`     drop old checkpoints
`checkpoint_migrating`    migrate records from one version to the other
`commit_measures`         the costs of commits
`run_log`                 runs of process functions: their plans and prepared results
========================  ===========================================================

Another backend of the commit protocol goes into `state_core/commit/backends`.
"""
