"""The protocol's steps, task by task: start, commit, decide what to restore from.

=====================  ==============================================================
`task_start`           from the last checkpoint to running stores
`task_commit`          one commit in two phases
`decisions`            whether to commit, wait or fail; what to restore from
`settings`             a task's configuration
=====================  ==============================================================

A new step is a call in `task_commit` or `task_start`, and a row of the table in
`tests/support/jobs/commit_steps.py`, by which tests stop at each.
"""
