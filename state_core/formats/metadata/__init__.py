"""The `_metadata` file, versions 2 to 6, and the files that it names.

========================  ===========================================================
`checkpoint_metadata`     the file as a whole, with the checkpoint's properties
`handle_codec`            the handles of state in it, and of streams in these
`stream_map`              a change of all streams of a file
`state_files`             the files of handles, wherever the snapshot is now, and their heads
========================  ===========================================================

A new version of the file is a row in `checkpoint_metadata`; a new handle goes into `handle_codec`.
"""
