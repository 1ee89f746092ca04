"""What is held against rules before a job is deployed, or after a snapshot was copied.

====================  ===============================================================
`legality`            which accesses to declared state are legal, as tables
`held_states`         what a snapshot holds, as far as a declaration can be compared
`restore_checks`      would a declared job restore from a snapshot
`integrity/`          is every byte of a snapshot what it should be, and what can be saved
====================  ===============================================================

A new rule is a row of a table in `legality` or a check in `restore_checks`.
"""
