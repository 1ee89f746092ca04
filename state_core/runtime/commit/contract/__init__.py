"""The contract of a state backend of the commit protocol: the interfaces to implement.

=====================  ==============================================================
`interfaces`           the backend's factory, its admin, backup and restore managers;
                       counters of a commit's cost
`futures`              asynchronous work, and its cancellation
=====================  ==============================================================

A backend implements `interfaces` in `commit/backends`.
"""
