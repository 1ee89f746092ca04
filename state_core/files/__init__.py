"""Bytes and files: what every reader and writer of a format stands on.

==================  ==================================================================
`filesystem`        directories, local or remote, and pieces of files
`object_stores`     file systems by URI: S3 with its options, and how often requests are tried
`hdfs`              HDFS as a file system of Arrow
`file_sources`      pieces of files; those of object stores are read with few requests
`paths`             paths out of data: where they may lead
`confinement`       no link is followed on their way
`held_directories`  directories of this process, told from what dead ones left
`moves`             bytes that several tasks move into one file
`byte_sources`      bytes that can be read from anywhere in them
`wire`              Java's `DataInput` and `DataOutput`, with every length checked
`java_stream`       what a Java object stream holds, without loading a class
`storage_options`   options of remote file systems, in a URI and by name
`compression`       Snappy blocks, and Flink's stream decorators
`conditional_puts`  objects of a store that only one of several writers can write
`copies`            copies, in a temporary file, of what can be read only from front to back
==================  ==================================================================

Another compression goes into `compression`; another kind of storage into `filesystem`.
"""
