"""Export of tables to a savepoint, at any parallelism.

====================  ===============================================================
`exporting`           plans, and writes `_metadata` last
`export_slice`        one slice's work
`cutting`             key groups into slices, and into chunks that fit into memory
`large_groups`        a key group that is too large for one slice
`redistributing`      operator state, redistributed as in Flink
`rescaling`           the plan of a rescale, without reading data
====================  ===============================================================

The bytes of a savepoint's files are in `state_core/formats/writing`.
"""
