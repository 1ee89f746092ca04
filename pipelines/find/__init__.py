"""Snapshots below a directory or bucket, their growth, and files that no snapshot needs.

===========  ==========================================================================
`scanning`   all snapshots below a directory, and which of them can be restored
`orphans`    files there that no snapshot needs, and their deletion
`copying`    snapshots copied to another place, complete
`growth`     the growth of a job's state: how much, in which state, and why
`path_map`   paths of a cluster as paths of this machine, and back
===========  ==========================================================================
"""
