"""The unified format of keyed state (FLIP-41), which all backends restore.

`unified_file` reads its files, and cuts them into pieces; `formats/writing` writes them.
"""
