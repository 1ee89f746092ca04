"""Records of commits: checkpoints, their markers, indexes of blobs, and the JSON of each.

=====================  ==============================================================
`records`              the records as values
`serdes`               their bytes, in Samza's form (versions 1 and 2)
`snapshot_index`       the blobs of a task's store
`checkpoint_log`       the log of checkpoints; files by default
`checkpoint_reading`   the checkpoint for a start
`clocks`               time in milliseconds
=====================  ==============================================================

A new version of a record is a class in `records` and a codec in `serdes`.
"""
