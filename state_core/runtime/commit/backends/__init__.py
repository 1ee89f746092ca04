"""State backends of the commit protocol (SEP-28).

=====================  ==============================================================
`blob_backend`         new files to a blob store
`blob_store`           a blob store in a directory, local or remote
`changelog_backend`    changes to a stream
`changelog`            streams of changes; `kafka` has those of a broker
=====================  ==============================================================

A new backend is a module here, named by its factory in a job's settings.
"""
