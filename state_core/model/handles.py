"""The handles in `_metadata`, which lead to state, as plain values.

A *stream handle* is a piece of bytes: inlined, in a file named relative to the snapshot, in a
file named absolutely, or a segment of a merged file. A *keyed handle* adds key groups to it, an
*operator handle* adds named states with the offsets of their elements.

Source: `org.apache.flink.runtime.state` (the `*StateHandle` classes), as written by
`org.apache.flink.runtime.checkpoint.metadata.MetadataV2V3SerializerBase`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from statelake.state_core.printable import without_keys


@dataclass(frozen=True, slots=True)
class KeyGroupRange:
    """Key groups `first` to `last`, both included; empty when `last < first`."""

    first: int
    last: int

    def __len__(self) -> int:
        return max(0, self.last - self.first + 1)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __contains__(self, key_group: object) -> bool:
        return isinstance(key_group, int) and self.first <= key_group <= self.last

    def intersection(self, other: KeyGroupRange) -> KeyGroupRange:
        """Return the key groups that both have."""
        return KeyGroupRange(max(self.first, other.first), min(self.last, other.last))

    def __str__(self) -> str:
        return f"{self.first}-{self.last}" if len(self) else "none"


KeyGroups: TypeAlias = "KeyGroupRange | int | Iterable[int]"


def ranges_of(key_groups: KeyGroups) -> list[KeyGroupRange]:
    """Return one key group, a range, or any number in any order, as ascending ranges."""
    if isinstance(key_groups, KeyGroupRange):
        return [key_groups]
    if isinstance(key_groups, int):
        return [KeyGroupRange(key_groups, key_groups)]
    ranges: list[KeyGroupRange] = []
    for key_group in sorted(set(key_groups)):
        if ranges and ranges[-1].last == key_group - 1:
            ranges[-1] = KeyGroupRange(ranges[-1].first, key_group)
        else:
            ranges.append(KeyGroupRange(key_group, key_group))
    return ranges


# --------------------------------------------------------------------------- streams of bytes


@dataclass(frozen=True, slots=True)
class InlineHandle:
    """`ByteStreamStateHandle`: the bytes themselves lie in `_metadata`."""

    name: str
    data: bytes

    @property
    def size(self) -> int:
        """The size of the state in bytes."""
        return len(self.data)


@dataclass(frozen=True, slots=True)
class RelativeHandle:
    """`RelativeFileStateHandle`: a file beside `_metadata`. Savepoints use it."""

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class FileHandle:
    """`FileStateHandle`: a file by its absolute URI. Checkpoints use it."""

    uri: str
    size: int


@dataclass(frozen=True, slots=True)
class SegmentHandle:
    """`SegmentFileStateHandle`: `size` bytes from `start` on of a merged file (FLIP-306)."""

    start: int
    size: int
    scope: int
    uri: str
    logical_id: str


@dataclass(frozen=True, slots=True)
class EmptySegmentHandle:
    """`EmptySegmentFileStateHandle`: a merged file in which this subtask has no segment."""

    size: int = 0


@dataclass(frozen=True, slots=True)
class NestedKeyGroupsHandle:
    """A keyed handle used as a stream handle, as old versions did."""

    first: int
    offsets: tuple[int, ...]
    stream: StreamHandle | None

    @property
    def size(self) -> int:
        """The size of the state in bytes."""
        return 0 if self.stream is None else self.stream.size


StreamHandle: TypeAlias = (
    "InlineHandle | RelativeHandle | FileHandle | SegmentHandle | EmptySegmentHandle"
    " | NestedKeyGroupsHandle"
)


# --------------------------------------------------------------------------- keyed state


class KeyGroupsKind(Enum):
    """The tag of a key-groups handle, which decides how its bytes are read."""

    LEGACY = 3
    SAVEPOINT = 7
    NATIVE = 12


@dataclass(frozen=True, slots=True)
class KeyGroupsHandle:
    """`KeyGroupsStateHandle` and `KeyGroupsSavepointStateHandle`.

    Attributes:
        kind: `SAVEPOINT` is always the unified format; that of the others depends on the backend.
        first: The first key group.
        offsets: The start of each key group in the stream; in the unified format 0 means empty.
        stream: The bytes.
        handle_id: The id of the handle, for kind `NATIVE`.
    """

    kind: KeyGroupsKind
    first: int
    offsets: tuple[int, ...]
    stream: StreamHandle | None
    handle_id: str = ""

    @property
    def key_groups(self) -> KeyGroupRange:
        """The key groups in it."""
        return KeyGroupRange(self.first, self.first + len(self.offsets) - 1)


class _OfKeyGroups:
    """A handle that gives its key groups by the first and their number."""

    __slots__ = ()
    first: int
    count: int

    @property
    def key_groups(self) -> KeyGroupRange:
        """The key groups in it; others in its files do not count."""
        return KeyGroupRange(self.first, self.first + self.count - 1)


@dataclass(frozen=True, slots=True)
class IncrementalHandle(_OfKeyGroups):
    """`IncrementalRemoteKeyedStateHandle`: the files of a RocksDB instance."""

    checkpoint_id: int
    backend_id: str
    first: int
    count: int
    meta: StreamHandle | None
    shared: tuple[tuple[str, StreamHandle | None], ...]
    private: tuple[tuple[str, StreamHandle | None], ...]
    checkpointed_size: int = -1
    handle_id: str = ""


@dataclass(frozen=True, slots=True)
class ChangelogHandle(_OfKeyGroups):
    """`ChangelogStateBackendHandle`: a materialized snapshot, and the changes since then."""

    first: int
    count: int
    checkpointed_size: int
    materialized: tuple[KeyedHandle | None, ...]
    changes: tuple[KeyedHandle | None, ...]
    materialization_id: int
    checkpoint_id: int
    handle_id: str


@dataclass(frozen=True, slots=True)
class ChangelogByteHandle(_OfKeyGroups):
    """`InMemoryChangelogStateHandle`: changes as `(key group, bytes)`; -1 is a metadata change."""

    first: int
    count: int
    start: int
    end: int
    changes: tuple[tuple[int, bytes], ...]
    handle_id: str


@dataclass(frozen=True, slots=True)
class ChangelogFileHandle(_OfKeyGroups):
    """`ChangelogStateHandleStreamImpl`: changes in files, as `(offset, file)`."""

    first: int
    count: int
    streams: tuple[tuple[int, StreamHandle | None], ...]
    size: int
    checkpointed_size: int
    handle_id: str
    storage: str = "filesystem"


KeyedHandle: TypeAlias = (
    "KeyGroupsHandle | IncrementalHandle | ChangelogHandle | ChangelogByteHandle"
    " | ChangelogFileHandle"
)


def keyed_bytes(handle: KeyedHandle) -> int:
    """Return the size of the state behind a keyed handle."""
    if isinstance(handle, KeyGroupsHandle):
        return 0 if handle.stream is None else handle.stream.size
    if isinstance(handle, IncrementalHandle):
        streams = [handle.meta, *(stream for _, stream in (*handle.shared, *handle.private))]
        return sum(stream.size for stream in streams if stream is not None)
    if isinstance(handle, ChangelogHandle):
        nested = (*handle.materialized, *handle.changes)
        return sum(keyed_bytes(serializer) for serializer in nested if serializer is not None)
    if isinstance(handle, ChangelogByteHandle):
        return sum(len(change) for _, change in handle.changes)
    return handle.size


def keyed_streams(handle: KeyedHandle) -> list[StreamHandle | None]:
    """Return the streams behind a keyed handle."""
    if isinstance(handle, KeyGroupsHandle):
        return [handle.stream]
    if isinstance(handle, IncrementalHandle):
        return [handle.meta, *(stream for _, stream in (*handle.shared, *handle.private))]
    if isinstance(handle, ChangelogHandle):
        nested = (*handle.materialized, *handle.changes)
        return [stream for inner in nested if inner is not None for stream in keyed_streams(inner)]
    if isinstance(handle, ChangelogFileHandle):
        return [stream for _, stream in handle.streams]
    return []


# --------------------------------------------------------------------------- operator state


class DistributionMode(Enum):
    """`OperatorStateHandle.Mode`, by its ordinal."""

    SPLIT_DISTRIBUTE = 0
    UNION = 1
    BROADCAST = 2


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """One named state of an operator handle: its mode, and the start of each element."""

    mode: DistributionMode
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OperatorHandle:
    """`OperatorStreamStateHandle`, or its file-merging form where `merged_dirs` is set."""

    states: dict[str, PartitionOffsets] = field(default_factory=dict)
    stream: StreamHandle | None = None
    merged_dirs: tuple[str, str] | None = None
    merged_empty: bool = False


def handle_text(handle: KeyedHandle | OperatorHandle) -> str:
    """Return what kind of handle it is, in words."""
    if isinstance(handle, KeyGroupsHandle):
        return "canonical" if handle.kind is KeyGroupsKind.SAVEPOINT else "key groups"
    if isinstance(handle, IncrementalHandle):
        return "RocksDB"
    return "operator state" if isinstance(handle, OperatorHandle) else "changelog"


def handle_files(handle: KeyedHandle | OperatorHandle) -> dict[str, int]:
    """Return the files that a handle names, by their URIs or relative paths, with its bytes there.

    What lies in `_metadata` itself is no file.
    """
    streams = [handle.stream] if isinstance(handle, OperatorHandle) else keyed_streams(handle)
    files: dict[str, int] = {}
    for stream in streams:
        inner = stream.stream if isinstance(stream, NestedKeyGroupsHandle) else stream
        if isinstance(inner, RelativeHandle):
            files[inner.path] = files.get(inner.path, 0) + inner.size
        elif isinstance(inner, FileHandle | SegmentHandle):
            name = without_keys(inner.uri)
            files[name] = files.get(name, 0) + inner.size
    return files


# --------------------------------------------------------------------------- in-flight buffers


@dataclass(frozen=True, slots=True)
class MergedChannelPart:
    """One channel inside a merged channel handle."""

    gate: int
    channel: int
    size: int
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChannelHandle:
    """In-flight network buffers of an unaligned checkpoint: kept as bytes.

    Attributes:
        kind: 1 input channel, 2 result subpartition, 3 and 4 their merged forms.
        subtask: The subtask of the buffers.
        parts: One part for the simple forms, any number for the merged ones.
        size: The stream's size, as the handle gives it.
        stream: The bytes.
    """

    kind: int
    subtask: int
    parts: tuple[MergedChannelPart, ...]
    size: int
    stream: StreamHandle | None
