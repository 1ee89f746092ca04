"""Where sources go on, and which records are in flight.

===========  =====================================================================
`channels`   `statelake channels`: records in flight of an unaligned checkpoint
`offsets`    `statelake offsets`, and the option of `edit` that sets them
===========  =====================================================================
"""
