"""The `_metadata` file, versions 2 to 6, and the files that it names.

========================  ===========================================================
`checkpoint_metadata`     the file as a whole
`handle_codec`            the handles of state in it
`stream_codec`            the streams that handles name
`stream_map`              a change of all streams of a file
`checkpoint_properties`   the checkpoint's properties
`state_files`             the files of handles, wherever the snapshot is now
========================  ===========================================================

A new version of the file is a row in `checkpoint_metadata`; a new handle goes into `handle_codec`.
"""
