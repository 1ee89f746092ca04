"""Writing savepoints: entries encoded, sorted by key group, put into files.

========================  ===========================================================
`unified_encode`          rows as entries of the unified format
`rehash`                  new key groups for keys
`spills`                  entries sorted on disk
`writer`                  the files of a savepoint, and its `_metadata`
`new_snapshot`            a savepoint of nothing but rows; `new_states`, `new_rows`,
                          `new_operator_states`
========================  ===========================================================

What a savepoint can be made of is declared in `new_states`.
"""
