"""The contract of a state backend of the commit protocol: the interfaces to implement.

=====================  ==============================================================
`interfaces`           the backend's factory, its admin, backup and restore managers
`futures`              asynchronous work, and its cancellation
`measures`             counters of a commit's cost
=====================  ==============================================================

A backend implements `interfaces` in `commit/backends`.
"""
