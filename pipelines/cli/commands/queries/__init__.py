"""Commands that run SQL over a lake.

==============  =====================================================================
`sql`           a query, or an edit of a snapshot
`shell`         a prompt for both
`query_output`  the rows of a query, printed or written to a file
==============  =====================================================================
"""
