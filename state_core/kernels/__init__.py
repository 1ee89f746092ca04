"""Numba kernels over whole buffers: the only loops over entries in statelake.

Every kernel works on bytes in place and on arrays of positions into them; they release the GIL, so
slices decode in parallel threads. They trust no input: a length is checked against the end of its
entry before a byte behind it is read, and the first row that does not fit is returned.

=============  ====================================================================
`compiler`     interpret small arrays, or compile; `machine_code` keeps that on disk and calls it
`scan`         walk the unified keyed format: bytes to positions of keys and values
`skip`         find the ends of values of any type, by a small program per type
`decode`       fixed-width numbers, strings, byte arrays, masks, into Arrow buffers
`encode`       the reverse, into a buffer at given positions; pieces of one buffer into another
`binary_rows`  Flink SQL's rows, with `binary_values`; `binary_rows_encode` is the reverse
`pojo`         POJOs, field by field
`frames`       Snappy-framed streams, without decompressing them
`sst`          blocks of RocksDB's tables; `sst_merge` merges entries; `bytes_at` is inlined
`changes`      changes of the changelog backend, and the changed entries
`kryo`         objects that Kryo wrote, as a table of their parts, and as either Kryo writes them;
               `kryo_json` makes JSON of the table, and the reverse
`elements`     elements of a stream between two operators
`search`       search of many short pieces of bytes at once
`hashing`      Java hash codes, murmur key groups, order-free content fingerprints
=============  ====================================================================

Positions are cast to `uintp` before they index: Numba then drops its check for negative indexes,
and LLVM merges byte loads into one big-endian load.
"""
