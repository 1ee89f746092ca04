"""The `_metadata` file, versions 2 to 6, and the files that it names.

========================  ===========================================================
`checkpoint_metadata`     the file as a whole
`handle_codec`            the handles of state in it
`stream_codec`            the streams that handles name
`stream_map`              all streams of a file changed at once
`checkpoint_properties`   how Flink was told to treat the checkpoint
`state_files`             from handles to files, wherever the snapshot is now
========================  ===========================================================

A new version of the file is a row in `checkpoint_metadata`; a new handle goes into `handle_codec`.
"""
