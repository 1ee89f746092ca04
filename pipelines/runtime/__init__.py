"""Run jobs of process functions over the input that their sources have got since the last run.

==================  ================================================================
`sources`           Delta tables and files: their new input, in splits
`exchange`          records of a split, sent to the subtasks of their keys
`subtasks`          one subtask of an operator: restored, run, and its state written
`sinks`             output, committed to Delta tables exactly once
`attempt`           an attempt at a run: operator after operator
`subtask_store`     a subtask's state as a store: files, and keys with values
`commits`           commits of that store to a blob store and a changelog, in two phases
`commit_measures`   the costs of commits, a table of each job
`metrics`           the figures of the last run, for Prometheus
`running`           `run_job`: all of it, from offsets to the next snapshot in the lake
==================  ================================================================
"""

from statelake.pipelines.runtime.running import STEPS, RunOptions, RunResult, run_job

__all__ = ["STEPS", "RunOptions", "RunResult", "run_job"]
