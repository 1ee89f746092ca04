"""The protocol's steps for each task: start, commit, and their decisions.

=====================  ==============================================================
`task_start`           from the last checkpoint to running stores
`task_commit`          one commit in two phases
`decisions`            the choice between commit, wait and failure; the source of a restore
`settings`             a task's configuration
`steps`                the names of all steps, in order, for tests that stop at each
=====================  ==============================================================

A new step is a name in `steps` and a call in `task_commit` or `task_start`.
"""
