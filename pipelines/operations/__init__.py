"""Whole operations that the command and Dagster both run.

`bootstrap` makes the first state of a new job, `migrations` migrates one snapshot and says how it
went, `sql_upgrades` upgrades a Flink SQL job whose query changed, `sql_scripts` has real Flink
compile and start the SQL of a job, `job_types` says which states a job registers that has never
run; both by `java_programs`. `growth` says which state of a job grows, `retention` drops
snapshots that need not stay, `scanning` finds the snapshots below a directory and says which are
sound, `orphans` the files there that no snapshot needs, `copying` copies snapshots to another
place, `verified_savepoints` exports a savepoint and proves that it can be restored.
`live_rescaling` rescales or upgrades a job on a live cluster, with a way back, by the tables of
`rescale_steps`; `rescale_journal` keeps how far that came. `canary` proves that a new JAR
restores, or rehearses a disaster.
"""
