"""Logs of checkpoints, whichever backends wrote them: read, verified, migrated, shortened.

=======================  ==============================================================
`checkpoint_records`     the records of a log, decoded, and where a log is
`checkpoint_verifying`   the restore of each task from each backend, as a test
`checkpoint_migrating`   records of version 1 become records of version 2, and back
`checkpoint_dropping`    old records, and the blobs that only they needed
=======================  ==============================================================
"""
