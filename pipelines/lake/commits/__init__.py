"""What running tasks keep in a lake: checkpoints, changelogs, state, and what commits cost.

========================  ===========================================================
`state_backend`           stores of tasks as tables
`changelog`               streams of changes as tables
`partition_files`         commits to one partition of a table
`checkpoint_log`          checkpoints as a table; `checkpoint_records` are its rows
`checkpoint_verifying`    are all files of a checkpoint there
`checkpoint_dropping`     old checkpoints go
`checkpoint_migrating`    from one log to another
`commit_measures`         what commits cost
`run_log`                 runs of process functions: what was planned and prepared
========================  ===========================================================

Another backend of the commit protocol goes into `state_core/commit/backends`.
"""
