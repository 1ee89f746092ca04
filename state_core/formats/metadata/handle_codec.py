"""The handles of state in `_metadata`, and of the streams in them, byte for byte both ways.

Source: `MetadataV2V3SerializerBase`, `ChannelStateHandleSerializerV1` and `V2` in
`org.apache.flink.runtime.checkpoint.metadata`. A handle begins with a tag byte and has no length,
so an unknown tag ends the reading.
"""

from __future__ import annotations

from dataclasses import replace

from statelake.state_core import bounds
from statelake.state_core.errors import UnsupportedFormatError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.model.handles import (
    ChangelogByteHandle,
    ChangelogFileHandle,
    ChangelogHandle,
    ChannelHandle,
    DistributionMode,
    EmptySegmentHandle,
    FileHandle,
    IncrementalHandle,
    InlineHandle,
    KeyedHandle,
    KeyGroupsHandle,
    KeyGroupsKind,
    MergedChannelPart,
    NestedKeyGroupsHandle,
    OperatorHandle,
    PartitionOffsets,
    RelativeHandle,
    SegmentHandle,
    StreamHandle,
)

NULL = 0
# of streams
INLINE = 1
FILE = 2
NESTED_KEY_GROUPS = 3
RELATIVE = 6
SEGMENT = 15
EMPTY_SEGMENT = 16
# of state
KEY_GROUPS = 3
OPERATOR = 4
INCREMENTAL = 5
SAVEPOINT_KEY_GROUPS = 7
CHANGELOG = 8
CHANGELOG_BYTES = 9
CHANGELOG_FILES = 10
INCREMENTAL_V2 = 11
KEY_GROUPS_V2 = 12
CHANGELOG_FILES_V2 = 13
CHANGELOG_V2 = 14
SEGMENT_OPERATOR = 17

MERGED_CHANNEL_KINDS = (3, 4)
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
    if tag == NESTED_KEY_GROUPS and depth < bounds.HANDLE_NESTING.most:
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
    if first < 0 or count < 0 or first + count > bounds.KEY_GROUPS.most:
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


def read_keyed_handle(source: DataInput, depth: int = 0) -> KeyedHandle | None:
    """Read a keyed state handle, or None for the null tag."""
    tag = source.read_unsigned_byte()
    if tag == NULL:
        return None
    if tag in (KEY_GROUPS, SAVEPOINT_KEY_GROUPS, KEY_GROUPS_V2):
        first, offsets = read_offsets(source)
        stream = read_stream_handle(source)
        handle_id = source.read_utf() if tag == KEY_GROUPS_V2 else ""
        return KeyGroupsHandle(KeyGroupsKind(tag), first, offsets, stream, handle_id)
    if tag in (INCREMENTAL, INCREMENTAL_V2):
        return _read_incremental(source, tag == INCREMENTAL_V2)
    if tag in (CHANGELOG, CHANGELOG_V2) and depth < bounds.HANDLE_NESTING.most:
        return _read_changelog(source, tag == CHANGELOG_V2, depth)
    if tag == CHANGELOG_BYTES:
        return _read_changelog_bytes(source)
    if tag in (CHANGELOG_FILES, CHANGELOG_FILES_V2):
        return _read_changelog_files(source, tag == CHANGELOG_FILES_V2)
    raise unknown_handle(source, "keyed state", tag)


def write_keyed_handle(handle: KeyedHandle | None, out: DataOutput) -> None:
    """Write a keyed state handle, with the tags of Flink 2.3."""
    if handle is None:
        out.write_byte(NULL)
    elif isinstance(handle, KeyGroupsHandle):
        out.write_byte(handle.kind.value)
        write_offsets(handle.first, handle.offsets, out)
        write_stream_handle(handle.stream, out)
        if handle.kind is KeyGroupsKind.NATIVE:
            out.write_utf(handle.handle_id)
    elif isinstance(handle, IncrementalHandle):
        _write_incremental(handle, out)
    elif isinstance(handle, ChangelogHandle):
        _write_changelog(handle, out)
    elif isinstance(handle, ChangelogByteHandle):
        _write_changelog_bytes(handle, out)
    else:
        _write_changelog_files(handle, out)


def read_operator_handle(source: DataInput) -> OperatorHandle | None:
    """Read an operator state handle, or None for the null tag."""
    tag = source.read_unsigned_byte()
    if tag == NULL:
        return None
    if tag not in (OPERATOR, SEGMENT_OPERATOR):
        raise unknown_handle(source, "operator state", tag)
    states: dict[str, PartitionOffsets] = {}
    for _ in range(source.read_count("operator states", 7)):
        name = source.read_utf()
        ordinal = source.read_unsigned_byte()
        if ordinal >= len(DistributionMode):
            raise source.fault(f"operator state {name!r} with distribution mode {ordinal}")
        if name in states:
            raise source.fault(f"operator state {name!r} a second time in one handle")
        states[name] = PartitionOffsets(DistributionMode(ordinal), read_longs(source))
    if tag == OPERATOR:
        return OperatorHandle(states, read_stream_handle(source))
    dirs = (source.read_utf(), source.read_utf())
    empty = source.read_boolean()
    return OperatorHandle(states, read_stream_handle(source), dirs, empty)


def write_operator_handle(handle: OperatorHandle | None, out: DataOutput) -> None:
    """Write an operator state handle."""
    if handle is None:
        out.write_byte(NULL)
        return
    out.write_byte(OPERATOR if handle.merged_dirs is None else SEGMENT_OPERATOR)
    out.write_int(len(handle.states))
    for name, part in handle.states.items():
        out.write_utf(name)
        out.write_byte(part.mode.value)
        write_longs(part.offsets, out)
    if handle.merged_dirs is not None:
        out.write_utf(handle.merged_dirs[0])
        out.write_utf(handle.merged_dirs[1])
        out.write_boolean(handle.merged_empty)
    write_stream_handle(handle.stream, out)


def read_channel_handle(source: DataInput, typed: bool, kind: int) -> ChannelHandle:
    """Read a handle of in-flight buffers.

    Args:
        source: The bytes, at the handle.
        typed: Whether a type byte comes first (`_metadata` 6).
        kind: Its kind if it has no type byte: 1 for inputs, 2 for outputs.
    """
    if typed:
        actual = source.read_unsigned_byte()
        if actual not in (kind, kind + 2):
            raise unknown_handle(source, "channel state", actual)
        kind = actual
    subtask = source.read_int()
    if kind not in MERGED_CHANNEL_KINDS:
        gate, channel = source.read_int(), source.read_int()
        offsets = read_longs(source)
        size = read_size(source)
        part = MergedChannelPart(gate, channel, size, offsets)
        return ChannelHandle(kind, subtask, (part,), size, read_stream_handle(source))
    size = read_size(source)
    stream = read_stream_handle(source)
    length = source.read_length("bytes of merged channel offsets")
    at = source.base + source.position
    inner = DataInput(source.read_bytes(length), source.source, at)
    parts = tuple(_read_channel_part(inner) for _ in range(inner.read_count("channels", 20)))
    return ChannelHandle(kind, subtask, parts, size, stream)


def unmerged(handle: ChannelHandle) -> tuple[ChannelHandle, ...]:
    """Return a handle for each channel, as before `_metadata` version 6."""
    if handle.kind not in MERGED_CHANNEL_KINDS:
        return (handle,)
    kind = handle.kind - 2
    return tuple(replace(handle, kind=kind, parts=(part,), size=part.size) for part in handle.parts)


def write_channel_handle(handle: ChannelHandle, out: DataOutput, typed: bool) -> None:
    """Write a handle of in-flight buffers; merged handles exist only in the typed form."""
    merged = handle.kind in MERGED_CHANNEL_KINDS
    if typed:
        out.write_byte(handle.kind)
    out.write_int(handle.subtask)
    if not merged:
        part = handle.parts[0]
        out.write_int(part.gate)
        out.write_int(part.channel)
        write_longs(part.offsets, out)
        out.write_long(handle.size)
        write_stream_handle(handle.stream, out)
        return
    out.write_long(handle.size)
    write_stream_handle(handle.stream, out)
    inner = DataOutput()
    inner.write_int(len(handle.parts))
    for part in handle.parts:
        inner.write_int(part.gate)
        inner.write_int(part.channel)
        inner.write_long(part.size)
        write_longs(part.offsets, inner)
    out.write_int(len(inner))
    out.write_bytes(inner.to_bytes())


# --------------------------------------------------------------------------- the parts


def _read_files(source: DataInput) -> tuple[tuple[str, StreamHandle | None], ...]:
    count = source.read_count("files", 3)
    return tuple((source.read_utf(), read_stream_handle(source)) for _ in range(count))


def _write_files(files: tuple[tuple[str, StreamHandle | None], ...], out: DataOutput) -> None:
    out.write_int(len(files))
    for name, stream in files:
        out.write_utf(name)
        write_stream_handle(stream, out)


def _read_incremental(source: DataInput, second: bool) -> IncrementalHandle:
    checkpoint_id, backend_id = source.read_long(), source.read_utf()
    first, count = read_range(source)
    size = source.read_long() if second else -1
    meta = read_stream_handle(source)
    shared, private = _read_files(source), _read_files(source)
    handle_id = source.read_utf() if second else ""
    return IncrementalHandle(
        checkpoint_id, backend_id, first, count, meta, shared, private, size, handle_id
    )


def _write_incremental(handle: IncrementalHandle, out: DataOutput) -> None:
    out.write_byte(INCREMENTAL_V2)
    out.write_long(handle.checkpoint_id)
    out.write_utf(handle.backend_id)
    out.write_int(handle.first)
    out.write_int(handle.count)
    out.write_long(handle.checkpointed_size)
    write_stream_handle(handle.meta, out)
    _write_files(handle.shared, out)
    _write_files(handle.private, out)
    out.write_utf(handle.handle_id)


def _read_changelog(source: DataInput, second: bool, depth: int) -> ChangelogHandle:
    first, count = read_range(source)
    size = source.read_long()
    materialized = _read_nested(source, "materialized handles", depth)
    changes = _read_nested(source, "changelog handles", depth)
    materialization_id = source.read_long()
    checkpoint_id = source.read_long() if second else materialization_id
    return ChangelogHandle(
        first,
        count,
        size,
        materialized,
        changes,
        materialization_id,
        checkpoint_id,
        source.read_utf(),
    )


def _read_nested(source: DataInput, what: str, depth: int) -> tuple[KeyedHandle | None, ...]:
    return tuple(read_keyed_handle(source, depth + 1) for _ in range(source.read_count(what)))


def _write_changelog(handle: ChangelogHandle, out: DataOutput) -> None:
    out.write_byte(CHANGELOG_V2)
    out.write_int(handle.first)
    out.write_int(handle.count)
    out.write_long(handle.checkpointed_size)
    for group in (handle.materialized, handle.changes):
        out.write_int(len(group))
        for nested in group:
            write_keyed_handle(nested, out)
    out.write_long(handle.materialization_id)
    out.write_long(handle.checkpoint_id)
    out.write_utf(handle.handle_id)


def _read_changelog_bytes(source: DataInput) -> ChangelogByteHandle:
    first, count = read_range(source)
    start, end = source.read_long(), source.read_long()
    changes = []
    for _ in range(source.read_count("changes", 8)):
        key_group = source.read_int()
        changes.append((key_group, source.read_bytes(source.read_length("bytes of a change"))))
    return ChangelogByteHandle(first, count, start, end, tuple(changes), source.read_utf())


def _write_changelog_bytes(handle: ChangelogByteHandle, out: DataOutput) -> None:
    out.write_byte(CHANGELOG_BYTES)
    out.write_int(handle.first)
    out.write_int(handle.count)
    out.write_long(handle.start)
    out.write_long(handle.end)
    out.write_int(len(handle.changes))
    for key_group, change in handle.changes:
        out.write_int(key_group)
        out.write_int(len(change))
        out.write_bytes(change)
    out.write_utf(handle.handle_id)


def _read_changelog_files(source: DataInput, second: bool) -> ChangelogFileHandle:
    first, count = read_range(source)
    streams = tuple(
        (source.read_long(), read_stream_handle(source))
        for _ in range(source.read_count("changelog files", 9))
    )
    size, checkpointed_size = source.read_long(), source.read_long()
    handle_id = source.read_utf()
    storage = source.read_utf() if second else "filesystem"
    return ChangelogFileHandle(first, count, streams, size, checkpointed_size, handle_id, storage)


def _write_changelog_files(handle: ChangelogFileHandle, out: DataOutput) -> None:
    out.write_byte(CHANGELOG_FILES_V2)
    out.write_int(handle.first)
    out.write_int(handle.count)
    out.write_int(len(handle.streams))
    for offset, stream in handle.streams:
        out.write_long(offset)
        write_stream_handle(stream, out)
    out.write_long(handle.size)
    out.write_long(handle.checkpointed_size)
    out.write_utf(handle.handle_id)
    out.write_utf(handle.storage)


def _read_channel_part(source: DataInput) -> MergedChannelPart:
    gate, channel, size = source.read_int(), source.read_int(), source.read_long()
    return MergedChannelPart(gate, channel, size, read_longs(source))
