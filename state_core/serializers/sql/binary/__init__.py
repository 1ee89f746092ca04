"""The binary format of Flink SQL's rows: fixed slots, and sections behind references.

====================  ===============================================================
`slots`               each type's eight bytes in a row
`sections`            rows, arrays and maps as sections
`formats`             the slot or section of each logical type
`columns`             whole rows as Arrow columns and back
`projected`           rows as generated code writes them, such as keys
====================  ===============================================================

A new type's bytes go into `slots`, and the line that chooses them into `formats`.
"""
