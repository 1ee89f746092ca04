"""Jobs of process functions, run over what their sources got since the last run.

==============  ====================================================================
`sources`       Delta tables and files: what is new, in splits
`exchange`      records of a split to the subtasks that their keys belong to
`subtasks`      one subtask of an operator: restored, run, and its state written
`sinks`         what was given, committed to Delta tables once
`attempt`       an attempt at a run: operator after operator
`backups`       a subtask's state in a blob store too, in two phases
`running`       `run_job`: all of it, from offsets to the next snapshot in the lake
==============  ====================================================================
"""

from statelake.pipelines.runtime.running import STEPS, RunOptions, RunResult, run_job

__all__ = ["STEPS", "RunOptions", "RunResult", "run_job"]
