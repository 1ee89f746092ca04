"""Keyed state of the changelog backend.

==================  ==========================================================
`changelog_file`    a materialized snapshot with the changes since
`change_log`        the changes of one subtask
`change_files`      the files of changes
`change_replay`     changes applied to the entries of a key group
`change_tables`     the entries that changes are about, in tables
==================  ==========================================================
"""
