"""What a state backend of the commit protocol promises: the interfaces that all implement.

=====================  ==============================================================
`interfaces`           the backend's factory, its admin, backup and restore managers
`futures`              work beside processing, and how it is cancelled
`measures`             what a commit cost
=====================  ==============================================================

A backend implements `interfaces` in `commit/backends`.
"""
