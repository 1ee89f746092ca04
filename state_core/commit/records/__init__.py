"""Records of commits: checkpoints, their markers, indexes of blobs, and the JSON of each.

=====================  ==============================================================
`records`              the records as values
`serdes`               their bytes, as Samza writes them (versions 1 and 2)
`snapshot_index`       which blobs a task's store consists of
`checkpoint_log`       the log that checkpoints are appended to; files by default
`checkpoint_reading`   the checkpoint to start from
`clocks`               time in milliseconds
=====================  ==============================================================

A new version of a record is a class in `records` and a codec in `serdes`.
"""
