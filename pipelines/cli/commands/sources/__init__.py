"""Offsets of sources, and records in flight.

===========  =====================================================================
`channels`   `statelake channels`: records in flight of an unaligned checkpoint
`offsets`    `statelake offsets`, and the option of `edit` that sets them
===========  =====================================================================
"""
