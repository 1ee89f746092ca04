"""Tables into a savepoint, at any parallelism.

====================  ===============================================================
`exporting`           plans, and writes `_metadata` last
`export_slice`        one slice's work
`cutting`             key groups into slices, and into what is held in memory
`large_groups`        a key group that is too large for one slice
`redistributing`      operator state, as Flink would redistribute it
`channel_state`       records in flight: carried as they were, or left out
`rescaling`           the plan of a rescale, without touching data
====================  ===============================================================

What a savepoint's file holds is `state_core/formats/writing`.
"""
