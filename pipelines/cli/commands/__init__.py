"""The commands of `statelake`, one file for those that belong together.

===================  ================================================================
`inspect`, `dump`    what a snapshot holds
`scanning`           `scan`: which snapshots are sound; `copy`: move one
`orphans`            files of checkpoints that no snapshot needs
`types`              the types of its states, as text
`keys/`              one key (`get`, `history`), the heavy ones (`top`), any value (`find`)
`sources/`           `offsets`: where sources go on; `channels`: records in flight
`report`             a snapshot as a page of HTML
`ui`                 pages in the browser, and the same answers for assistants (`mcp`)
`checks/`            `check compatibility`, `check integrity`, `check legality`
`lake`               `import`, `snapshots`, `drop`, `commit`
`cleaning`           `lake clean`: what killed commands left
`retention`          `hold`, `release`, `retain`
`erasure/`           `erase`, `audit`: what goes out of every snapshot and file, and proof
`compare`            `diff`, `rescale`
`queries`            `sql` and `shell`
`export`             savepoints made of a lake's tables
`edit`, `migrate`    a snapshot made of another
`upgrade`            a snapshot of Flink 1, for Flink 2
`sql_upgrade`        a Flink SQL job whose query changed; `check sql`
`bootstrap`          a savepoint made of tables
`compress`           a savepoint with another compression
`run`                jobs of process functions
`checkpoints`        checkpoints of tasks: list, verify, drop, migrate
`flink/`             live clusters: jobs, savepoints, runs
`spark`              what a cluster of Spark's needs of statelake
`warm`               kernels compiled ahead
`demo`               the guided tour
`terminal`           their output; `plugins`, the option that several share
===================  ================================================================

Each reads options, calls the library, and prints. A new command is a module here and a line in
`cli/main`.
"""
