"""Commands that ask SQL of a lake.

==============  =====================================================================
`sql`           one query, or an edit of a snapshot
`shell`         a prompt for both
`query_output`  rows as a table, JSON, CSV, or a file of them
==============  =====================================================================
"""
