"""Erasure of keys and rows from every snapshot, and the proof of it.

===========  =====================================================================
`erase`      `statelake erase`
`audit`      `statelake audit erase` and `audit records`
===========  =====================================================================
"""
