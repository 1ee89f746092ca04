"""Checks before a job is deployed, and after a snapshot was copied.

====================  ===============================================================
`legality`            the legal accesses to declared state, as tables
`held_states`         the content of a snapshot that declarations are compared with
`restore_checks`      whether a declared job would restore from a snapshot
`integrity/`          whether every byte of a snapshot is sound, and the salvage of one
====================  ===============================================================

A new rule is a row of a table in `legality` or a check in `restore_checks`.
"""
