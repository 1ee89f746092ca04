"""State as a process function sees it, and what every backend keeps in the same way.

=====================  ==============================================================
`descriptors`          what a function declares
`states`               value, list, map, reducing and aggregating state
`tables`               the table behind a state, whatever holds it
`keys`                 keys as bytes, hashes and key groups
`ttl`                  values that expire
`timers`               timers; `timer_queues` orders them
`operator_state`       state without a key
`registry`             the states that are registered, and their serializers
`configuration`        which backend, and its settings
`snapshots`            what a snapshot of a backend is; `savepoints` writes canonical ones
=====================  ==============================================================

A new kind of state is a class in `states`.
"""
