"""Whether declared state is legal, and whether it would restore.

====================  ===============================================================
`rules`               the legal accesses to declared state, as tables
`stored_states`       the content of a snapshot that declarations are compared with
`restore_checks`      whether a declared job would restore from a snapshot
====================  ===============================================================

A new rule is a row of a table in `rules` or a check in `restore_checks`.
"""
