"""What goes out of every snapshot, and proof of it.

===========  =====================================================================
`erase`      `statelake erase`
`audit`      `statelake audit erase` and `audit records`
===========  =====================================================================
"""
