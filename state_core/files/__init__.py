"""Bytes and files: the base of every reader and writer of a format.

==================  ==================================================================
`filesystem`        directories, local or remote, and pieces of files
`object_stores`     file systems by URI: S3 with its options, and how often requests are tried
`hdfs`              HDFS as a file system of Arrow
`file_sources`      bytes with random access, in memory or pieces of files, and threads that read
                    or copy, for which an interrupted command does not wait; files of object
                    stores are read with few requests
`confinement`       where paths out of data may lead; they are followed without any symbolic link
`held_directories`  directories of this process, told apart from those of dead ones
`moves`             bytes that several tasks move into one file
`wire`              Java's `DataInput` and `DataOutput`, every length checked
`java_stream`       Java object streams, read without loading a class
`storage_options`   options of remote file systems, in a URI and by name
`compression`       Snappy blocks, and Flink's stream decorators
`store_requests`    requests that Arrow lacks: writes that only one of several writers wins, reads
                    of objects whose size is known
`outside`           JSON and rows that anyone may have written, checked by types
`toml`              TOML of files that may be somebody else's
`copies`            copies, in a temporary file, of streams without random access
==================  ==================================================================

Another compression goes into `compression`; another kind of storage into `filesystem`.
"""
