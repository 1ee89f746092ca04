"""The protocol's steps for each task: start, commit, and their decisions.

=====================  ==============================================================
`task_start`           from the last checkpoint to running stores
`task_commit`          one commit in two phases
`decisions`            the choice between commit, wait and failure; the source of a restore
`settings`             a task's configuration
=====================  ==============================================================

A new step is a call in `task_commit` or `task_start`, and a row of the table in
`tests/support/jobs/commit_steps.py`, by which tests stop at each.
"""
