"""A subtask's state as a store of SEP-28: its files are those of a savepoint, its keys the entries.

====================  ==========================================================================
key                   value
====================  ==========================================================================
`metadata`            a `_metadata` with this subtask alone, and the time of the commit as its id
`operator`            the file of operator state
`header`              the header of the file of keyed state
`count`               the number of entries, in eight bytes
`e`, then an entry    the value of the entry, as in the unified format; the key has the length of
                      the state's name in two bytes, the name, two bytes of the key group, and the
                      entry's key
====================  ==========================================================================

A blob store commits the files, a changelog the keys. The changelog gets only the differences from
the previous state, which are computed key group by key group.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.errors import CommitError, CorruptSnapshotError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.keyed.headed_file import HeadedFile
from statelake.state_core.formats.keyed.keyed_files import open_keyed
from statelake.state_core.formats.layout.keys import pieces_of
from statelake.state_core.formats.layout.meta_info import KeyedHeader, parse_keyed_header
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
    SubtaskState,
    read_metadata,
    write_metadata,
)
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.formats.metadata.stream_map import named_files
from statelake.state_core.kernels.encode import copy_pieces
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.handles import (
    KeyGroupRange,
    KeyGroupsHandle,
    RelativeHandle,
    StreamHandle,
)
from statelake.state_core.model.key_groups import key_groups_of, prefix_bytes
from statelake.state_core.runtime.backends.states.snapshots import write_tables
from statelake.state_core.runtime.backends.states.tables import SnapshotRun, entries_of_pairs
from statelake.state_core.runtime.commit import PersistentStore, PosixDisk

METADATA_FILE = "_metadata"
METADATA_VERSION = 6
METADATA, OPERATOR, HEADER, ENTRY = b"metadata", b"operator", b"header", b"e"
COUNT, COUNT_BYTES = b"count", 8
PIECE_BYTES = 8 << 20
GROUP_BYTES = 2
COMPARED_BYTES = 64 << 20  # of key groups that are compared together
PAIRS = pa.schema([("key", pa.large_binary()), ("value", pa.large_binary())])


@dataclass(frozen=True)
class SubtaskFiles:
    """The written state of a subtask.

    Attributes:
        directory: The directory of its files, confined.
        operator: Its operator, with this subtask alone.
        checkpoint: The time of the commit's id, in milliseconds; 0 before there is one.
    """

    directory: Directory
    operator: OperatorMetadata
    checkpoint: int = 0

    @property
    def metadata(self) -> CheckpointMetadata:
        """A `_metadata` of this subtask alone."""
        return CheckpointMetadata(METADATA_VERSION, self.checkpoint, [self.operator])

    @property
    def subtask(self) -> SubtaskState:
        """The handles of the subtask."""
        (state,) = (self.operator.subtasks or {}).values()
        return state

    @property
    def names(self) -> list[str]:
        """The files that the handles name."""
        return sorted(named_files(self.metadata))

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield the content of a file."""
        with self.directory.open_input(name) as file:
            while piece := file.read(PIECE_BYTES):
                yield bytes(piece)

    def keyed(self) -> HeadedFile | None:
        """Open the keyed state; None without keyed state."""
        handle = self.subtask.managed_keyed
        if handle is None:
            return None
        if not isinstance(handle, KeyGroupsHandle):
            raise CommitError("keyed state that is not in the unified format")
        return open_keyed(handle, StateFiles(self.directory), self.operator.max_parallelism)

    def described(self) -> dict[bytes, bytes]:
        """Return the pairs of all keys that are not entries."""
        pairs = {METADATA: write_metadata(self.metadata)}
        operator = self.subtask.managed_operator
        if operator is not None and isinstance(operator.stream, RelativeHandle):
            pairs[OPERATOR] = b"".join(self.pieces(operator.stream.path))
        keyed, handle = self.keyed(), self.subtask.managed_keyed
        if keyed is not None and isinstance(handle, KeyGroupsHandle):
            assert isinstance(handle.stream, RelativeHandle)  # noqa: S101 - as `run` writes it
            with self.directory.open_input(handle.stream.path) as file:
                pairs[HEADER] = file.read(keyed.header.size)
        return pairs


def changes_between(
    before: SubtaskFiles | None, after: SubtaskFiles
) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the changes between two states of a subtask: keys with values, None if removed."""
    old, new = {} if before is None else before.described(), after.described()
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            yield key, new.get(key)
    files = (None if before is None else before.keyed(), after.keyed())
    old_count = new_count = 0
    for key_groups in _ranges_to_compare(files):
        old_pairs, new_pairs = (_pairs(file, key_groups) for file in files)
        old_count, new_count = old_count + len(old_pairs), new_count + len(new_pairs)
        yield from _changes(old_pairs, new_pairs)
    if before is None or old_count != new_count:
        yield COUNT, new_count.to_bytes(COUNT_BYTES, "big")


def _ranges_to_compare(files: Iterable[HeadedFile | None]) -> Iterator[KeyGroupRange]:
    """Yield ranges of key groups to compare together, by their bytes in all files."""
    sizes: dict[int, int] = {}
    for file in files:
        for group, size in [] if file is None else file.group_bytes():
            sizes[group] = sizes.get(group, 0) + size
    first, total = None, 0
    for group in sorted(sizes):
        first = group if first is None else first
        total += sizes[group]
        if total >= COMPARED_BYTES:
            yield KeyGroupRange(first, group)
            first, total = None, 0
    if first is not None:
        yield KeyGroupRange(first, max(sizes))


def _pairs(file: HeadedFile | None, key_groups: KeyGroupRange | None = None) -> pa.Table:
    """Return the entries of some key groups as pairs."""
    batches = []
    if file is not None:
        for entries in file.entries(key_groups):
            for state in np.unique(entries.state_of).tolist():
                of_state = entries.of_state(state)
                keys = _keys(file.header.states[state].name.encode(), of_state)
                values = pieces_of(of_state, of_state.value_start, of_state.value_end)
                batches.append(pa.RecordBatch.from_arrays([keys, values], schema=PAIRS))
    return pa.Table.from_batches(batches, PAIRS)


def _keys(name: bytes, entries: Entries) -> pa.Array:
    """Return the keys of a state's entries in the store."""
    head = ENTRY + len(name).to_bytes(2, "big") + name
    size = len(head) + GROUP_BYTES
    ends = np.cumsum(entries.key_end - entries.key_start + size)
    offsets = np.concatenate((np.zeros(1, np.int64), ends))
    out = np.empty(int(offsets[-1]), np.uint8)
    starts = offsets[:-1]
    out[starts[:, None] + np.arange(len(head))] = np.frombuffer(head, np.uint8)
    out[starts + len(head)] = entries.group_of >> 8
    out[starts + len(head) + 1] = entries.group_of & 0xFF
    pieces = np.ascontiguousarray(entries.key_start), np.ascontiguousarray(entries.key_end)
    copy_pieces(entries.data, *pieces, out, starts + size)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.large_binary(), len(starts), buffers)


def _changes(old: pa.Table, new: pa.Table) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the differences of two tables of pairs.

    Most keys have the same row in both, as backends keep their order; only the others are searched.
    """
    both = min(len(old), len(new))
    first, second = old.slice(0, both), new.slice(0, both)
    stayed = pc.equal(first["key"], second["key"])
    changed = pc.and_(stayed, pc.not_equal(first["value"], second["value"]))
    yield from _listed(second.filter(changed))
    moved = pc.invert(stayed)
    rest = [
        pa.concat_tables([pairs.slice(0, both).filter(moved), pairs.slice(both)])
        for pairs in (old, new)
    ]
    numbered = [
        pa.table({"key": pairs["key"], row: pa.array(np.arange(len(pairs)))})
        for pairs, row in zip(rest, ("old", "new"), strict=True)
    ]
    rows = numbered[0].join(numbered[1], "key", join_type="full outer")
    gone = rows.filter(pc.is_null(rows["new"]))
    yield from ((key, None) for key in gone["key"].to_pylist())
    left = rows.filter(pc.is_valid(rows["new"]))
    before, after = rest[0]["value"].take(left["old"]), rest[1]["value"].take(left["new"])
    differs = pc.fill_null(pc.not_equal(before, after), True)
    yield from _listed(pa.table({"key": left["key"], "value": after}).filter(differs))


def _listed(pairs: pa.Table) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows of a table of pairs."""
    for batch in pairs.to_batches(max_chunksize=1 << 16):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class SubtaskStore(PersistentStore):
    """A subtask's state as a store.

    Args:
        disk: The disk.
        path: The directory of its files, which may not exist.
    """

    def __init__(self, disk: PosixDisk, path: str) -> None:
        super().__init__()
        self._disk = disk
        self._directory = Directory(str(disk.path(path))).confined()
        self._applied: dict[bytes, bytes] = {}
        self._files: SubtaskFiles | None = None
        if self._directory.is_file(METADATA_FILE):
            self._files = _described(self._directory, self._directory.read(METADATA_FILE))

    @property
    def files(self) -> SubtaskFiles | None:
        """The state as files; None without state."""
        return self._files

    def hold(self, files: SubtaskFiles | None) -> None:
        """Set the content, without calling subscribers."""
        self._files = files

    def become(self, files: SubtaskFiles) -> None:
        """Set the content, and call subscribers with the differences."""
        if self._listeners:
            for key, value in changes_between(self._files, files):
                for listener in self._listeners:
                    listener(key, value)
        self._files = files

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Set or remove a key while the store is restored pair by pair."""
        if value is None:
            self._applied.pop(key, None)
        else:
            self._applied[key] = value

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None if it has none. This reads all of the state."""
        return dict(self.items()).get(key)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every key with its value."""
        if self._files is not None:
            yield from self._files.described().items()
            entries = _pairs(self._files.keyed())
            yield COUNT, len(entries).to_bytes(COUNT_BYTES, "big")
            yield from _listed(entries)

    def flush(self) -> None:
        """Write the applied pairs as files."""
        if self._applied:
            self._files = _written(self._directory, self._applied)
            self._applied = {}

    def checkpoint(self, target: str) -> None:
        """Copy the files to a new directory of the disk."""
        if self._files is None:
            raise CommitError("a subtask without a written state", place=target)
        for name in self._files.names:
            self._disk.create(f"{target}/{name}", self._files.pieces(name))
        self._disk.create(f"{target}/{METADATA_FILE}", [write_metadata(self._files.metadata)])


def _described(directory: Directory, metadata: bytes) -> SubtaskFiles:
    """Return the state that a `_metadata` describes.

    Raises:
        SnapshotError: It is damaged, or does not have exactly one subtask.
    """
    described = read_metadata(metadata, directory.full(METADATA_FILE))
    operators = described.operators
    if len(operators) != 1 or len(operators[0].subtasks or {}) != 1:
        problem = "the state of a subtask does not have exactly one"
    elif not _is_written_here(operators[0]):
        problem = "the state of a subtask has handles that `statelake run` does not write"
    else:
        return SubtaskFiles(directory, operators[0], described.checkpoint_id)
    raise CorruptSnapshotError(
        problem,
        place=directory.full(METADATA_FILE),
        remedy="someone else changed it: restore from another backend",
    )


def _is_written_here(operator: OperatorMetadata) -> bool:
    """Return whether the handles of an operator's only subtask are as `run` writes them."""
    ((index, state),) = (operator.subtasks or {}).items()
    of_operator, keyed = state.managed_operator, state.managed_keyed
    streams: list[StreamHandle | None] = []
    if of_operator is not None and of_operator.stream is not None:
        streams.append(of_operator.stream)
    if keyed is not None:
        if not isinstance(keyed, KeyGroupsHandle):
            return False
        if keyed.key_groups != key_groups_of(index, operator.max_parallelism, operator.parallelism):
            return False
        streams.append(keyed.stream)
    of_run = SubtaskState(managed_operator=of_operator, managed_keyed=keyed)
    return state == of_run and all(isinstance(stream, RelativeHandle) for stream in streams)


def _written(directory: Directory, pairs: dict[bytes, bytes]) -> SubtaskFiles:
    """Write pairs as files.

    Raises:
        CorruptSnapshotError: The pairs are not those of a subtask.
    """
    if METADATA not in pairs:
        raise CorruptSnapshotError(
            "pairs without a description of the subtask",
            place=directory.full(),
            remedy="the changelog is not one of `statelake run`: restore from another backend",
        )
    files = _described(directory, pairs[METADATA])
    count = sum(key[:1] == ENTRY for key in pairs)
    if int.from_bytes(_pair(pairs, COUNT, directory), "big") != count:
        raise CorruptSnapshotError(
            f"{count} entries, which are not as many as were committed",
            place=directory.full(),
            remedy="the changelog is not complete: restore from another backend",
        )
    state = files.subtask
    operator, keyed = state.managed_operator, state.managed_keyed
    if operator is not None and operator.stream is not None:
        data = _pair(pairs, OPERATOR, directory)
        stream = RelativeHandle(str(uuid.uuid4()), len(data))
        directory.write(stream.path, data)
        operator = replace(operator, stream=stream)
    if isinstance(keyed, KeyGroupsHandle):
        header = parse_keyed_header(_pair(pairs, HEADER, directory))
        prefix = prefix_bytes(files.operator.max_parallelism)
        key_groups = KeyGroupRange(keyed.first, keyed.first + len(keyed.offsets) - 1)
        runs = _runs(pairs, header, key_groups, directory)
        keyed = write_tables(
            directory, header, [runs], key_groups, prefix, compressed=header.compressed
        )
    (index,) = files.operator.subtasks or {}
    subtasks = {index: replace(state, managed_operator=operator, managed_keyed=keyed)}
    written = replace(files, operator=replace(files.operator, subtasks=subtasks))
    directory.write(METADATA_FILE, write_metadata(written.metadata))
    return written


def _pair(pairs: dict[bytes, bytes], key: bytes, directory: Directory) -> bytes:
    if key not in pairs:
        raise CorruptSnapshotError(
            f"the pair {key.decode()!r} is missing, though the description of the subtask has it",
            place=directory.full(),
            remedy="the changelog is not complete: restore from another backend",
        )
    return pairs[key]


def _runs(
    pairs: dict[bytes, bytes], header: KeyedHeader, key_groups: KeyGroupRange, directory: Directory
) -> Iterator[SnapshotRun]:
    """Return the entries of pairs, sorted by key group, state and key."""
    states = {state.name.encode(): number for number, state in enumerate(header.states)}
    entries: dict[tuple[int, int], list[tuple[bytes, bytes]]] = defaultdict(list)
    for key, value in pairs.items():
        if key[:1] == ENTRY:
            end = 3 + int.from_bytes(key[1:3], "big")
            state, group = states.get(key[3:end]), key[end : end + GROUP_BYTES]
            number = int.from_bytes(group, "big")
            if state is None or len(group) < GROUP_BYTES or number not in key_groups:
                raise CorruptSnapshotError(
                    f"an entry of a state or key group that is not described: {key[:80]!r}",
                    place=directory.full(),
                    remedy="the changelog is damaged: restore from another backend",
                )
            entries[number, state].append((key[end + GROUP_BYTES :], value))
    return (
        SnapshotRun(*at, entries_of_pairs(at[1], at[0], sorted(entries[at])))
        for at in sorted(entries)
    )
