"""The protocol's steps, task by task: start, commit, decide what to restore from.

=====================  ==============================================================
`task_start`           from the last checkpoint to running stores
`task_commit`          one commit in two phases
`decisions`            whether to commit, wait or fail; what to restore from
`settings`             a task's configuration
`steps`                the names of all steps, in order, for tests that stop at each
=====================  ==============================================================

A new step is a name in `steps` and a call in `task_commit` or `task_start`.
"""
