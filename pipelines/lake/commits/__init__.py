"""State of running tasks in a lake: checkpoints, changelogs, stores, and the costs of commits.

========================  ===========================================================
`state_backend`           stores of tasks as tables
`changelog`               streams of changes as tables
`partition_files`         commits to one partition of a table
`checkpoint_log`          checkpoints as a table; `checkpoint_records` are its rows
`checkpoint_verifying`    check that checkpoints can be restored
`checkpoint_dropping`     drop old checkpoints
`checkpoint_migrating`    migrate records from one version to the other
`commit_measures`         the costs of commits
`run_log`                 runs of process functions: their plans and prepared results
========================  ===========================================================

Another backend of the commit protocol goes into `state_core/commit/backends`.
"""
