"""The states of process functions, and the parts that all backends share.

=====================  ==============================================================
`descriptors`          descriptors of the states that a function uses
`states`               value, list, map, reducing and aggregating state
`tables`               the interface of the table behind a state, and lists over it
`keys`                 keys as bytes, hashes and key groups
`ttl`                  values that expire
`timers`               timers; `timer_queues` orders them
`operator_state`       operator state
`registry`             the registered states, and their serializers
`configuration`        the configuration of a backend
`snapshots`            snapshots in the unified format
=====================  ==============================================================

A new kind of state is a class in `states`.
"""
