"""The stream handles of `_metadata`, and the numbers that all handles contain.

Source: `MetadataV2V3SerializerBase.serializeStreamStateHandle`. A handle begins with a tag byte and
has no length, so an unknown tag ends the reading.
"""

from __future__ import annotations

from statelake.state_core.bounds import HANDLE_NESTING, KEY_GROUPS
from statelake.state_core.errors import UnsupportedFormatError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.model.handles import (
    EmptySegmentHandle,
    FileHandle,
    InlineHandle,
    NestedKeyGroupsHandle,
    RelativeHandle,
    SegmentHandle,
    StreamHandle,
)

NULL = 0
INLINE = 1
FILE = 2
NESTED_KEY_GROUPS = 3
RELATIVE = 6
SEGMENT = 15
EMPTY_SEGMENT = 16

NOT_WRITTEN = -1


def read_stream_handle(source: DataInput, depth: int = 0) -> StreamHandle | None:
    """Read a stream handle, or None for the null tag."""
    tag = source.read_unsigned_byte()
    if tag == NULL:
        return None
    if tag == INLINE:
        name = source.read_utf()
        return InlineHandle(name, source.read_bytes(source.read_length("bytes of inlined state")))
    if tag == FILE:
        size = read_size(source)
        return FileHandle(source.read_utf(), size)
    if tag == RELATIVE:
        path = source.read_utf()
        return RelativeHandle(path, read_size(source))
    if tag == SEGMENT:
        start, size = read_size(source), read_size(source)
        scope = source.read_int()
        return SegmentHandle(start, size, scope, source.read_utf(), source.read_utf())
    if tag == EMPTY_SEGMENT:
        return EmptySegmentHandle()
    if tag == NESTED_KEY_GROUPS and depth < HANDLE_NESTING.most:
        first, offsets = read_offsets(source)
        return NestedKeyGroupsHandle(first, offsets, read_stream_handle(source, depth + 1))
    raise unknown_handle(source, "stream", tag)


def write_stream_handle(handle: StreamHandle | None, out: DataOutput) -> None:
    """Write a stream handle."""
    if handle is None:
        out.write_byte(NULL)
    elif isinstance(handle, InlineHandle):
        out.write_byte(INLINE)
        out.write_utf(handle.name)
        out.write_int(len(handle.data))
        out.write_bytes(handle.data)
    elif isinstance(handle, FileHandle):
        out.write_byte(FILE)
        out.write_long(handle.size)
        out.write_utf(handle.uri)
    elif isinstance(handle, RelativeHandle):
        out.write_byte(RELATIVE)
        out.write_utf(handle.path)
        out.write_long(handle.size)
    elif isinstance(handle, SegmentHandle):
        out.write_byte(SEGMENT)
        out.write_long(handle.start)
        out.write_long(handle.size)
        out.write_int(handle.scope)
        out.write_utf(handle.uri)
        out.write_utf(handle.logical_id)
    elif isinstance(handle, EmptySegmentHandle):
        out.write_byte(EMPTY_SEGMENT)
    else:
        out.write_byte(NESTED_KEY_GROUPS)
        write_offsets(handle.first, handle.offsets, out)
        write_stream_handle(handle.stream, out)


def unknown_handle(source: DataInput, what: str, tag: int) -> UnsupportedFormatError:
    """Return the error for a tag that no Flink up to 2.3 writes."""
    return UnsupportedFormatError(
        f"unknown {what} handle, tag {tag}",
        place=source.place,
        remedy="the file is damaged, or written by a Flink newer than 2.3",
    )


def read_size(source: DataInput) -> int:
    """Read a number of bytes."""
    size = source.read_long()
    if size < 0:
        raise source.fault(f"a state of {size} bytes")
    return size


def read_longs(source: DataInput) -> tuple[int, ...]:
    """Read a count, and as many numbers."""
    return source.read_longs(source.read_length("offsets", 8))


def write_longs(values: tuple[int, ...], out: DataOutput) -> None:
    """Write a count, and the numbers."""
    out.write_int(len(values))
    for value in values:
        out.write_long(value)


def read_range(source: DataInput) -> tuple[int, int]:
    """Read the first of some key groups, and their number."""
    first, count = source.read_int(), source.read_int()
    if first < 0 or count < 0 or first + count > KEY_GROUPS.most:
        raise source.fault(f"{count} key groups from {first} on, and there are at most 32768")
    return first, count


def read_offsets(source: DataInput) -> tuple[int, tuple[int, ...]]:
    """Read the first key group, and the offset of each; -1 for one that raw state does not have."""
    first, count = read_range(source)
    offsets = source.read_longs(count)
    if offsets and min(offsets) < NOT_WRITTEN:
        raise source.fault(f"a key group at offset {min(offsets)}")
    return first, offsets


def write_offsets(first: int, offsets: tuple[int, ...], out: DataOutput) -> None:
    """Write the first key group, and the offset of each."""
    out.write_int(first)
    out.write_int(len(offsets))
    for offset in offsets:
        out.write_long(offset)
