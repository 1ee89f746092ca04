"""Writing savepoints: entries encoded, sorted by key group, put into files.

========================  ===========================================================
`unified_encode`          rows to entries of the unified format, or to their keys alone
`rehash`                  new key groups for keys
`spills`                  entries sorted on disk
`writer`                  the files of a savepoint, and its `_metadata`
`new_snapshot`            a savepoint created from rows; `new_states`, `new_rows`,
                          `new_operator_states`
========================  ===========================================================

The states of a new savepoint are declared in `new_states`.
"""
