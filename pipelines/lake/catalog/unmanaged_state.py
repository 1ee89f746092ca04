"""Unmanaged state: the parts of a snapshot without tables, kept as bytes so that nothing is lost.

Raw state, coordinator state, master states and in-flight buffers are opaque, and so is keyed state
of the heap backend if not all of its entries can be located. The catalog keeps a `_metadata` with
only their handles. The lake keeps each file once, named by its digest, which distinguishes it from
all other files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from statelake.pipelines.lake.tables.names import digest_in, unmanaged_name
from statelake.pipelines.lake.tables.records import SnapshotRecord, UnmanagedFile
from statelake.state_core.errors import DamagedLakeError, UnsupportedFormatError
from statelake.state_core.files.filesystem import ByteSource, Directory, InlineSource
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
    SubtaskState,
    in_flight_bytes,
    raw_bytes,
    read_metadata,
    write_metadata,
)
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.formats.metadata.stream_map import map_streams, named_files
from statelake.state_core.model.handles import (
    EmptySegmentHandle,
    InlineHandle,
    KeyGroupsHandle,
    NestedKeyGroupsHandle,
    RelativeHandle,
    StreamHandle,
    keyed_bytes,
)

UNMANAGED_DIRECTORY = "_statelake/carried"
FIRST_WRITABLE_VERSION = 3
KEYED = "keyed state kept as bytes"
BLOCK_BYTES = 8 << 20


def store_unmanaged(
    metadata: CheckpointMetadata,
    files: StateFiles,
    lake: Directory,
    token: str,
    previous: SnapshotRecord | None = None,
    keyed: Collection[str] = (),
) -> tuple[bytes, list[UnmanagedFile]]:
    """Keep unmanaged state in the lake.

    Args:
        metadata: The `_metadata`.
        files: Its files.
        lake: The lake.
        token: The token of the attempt, which is in the names of new files.
        previous: The snapshot that the attempt builds on, whose files need not be written again.
        keyed: The ids of operators whose keyed state is kept as bytes.

    Returns:
        A `_metadata` of unmanaged state only, whose handles name the kept files, and those files.
    """
    carried: dict[str, UnmanagedFile] = {}
    kept_as: dict[tuple[str, int, int], str] = {}
    known = {digest_in(file.blob): file.blob for file in previous.carried} if previous else {}

    def keep(handle: StreamHandle) -> StreamHandle:
        if isinstance(handle, InlineHandle | EmptySegmentHandle | NestedKeyGroupsHandle):
            return handle
        source = files.open(handle, shared=True)
        piece = source.name, getattr(source, "start", 0), source.size
        if piece not in kept_as:
            kept_as[piece] = _keep(source, lake, token, known)
        blob = kept_as[piece]
        carried[blob] = UnmanagedFile(source.name, blob, source.size)
        return RelativeHandle(blob, source.size)

    kept = map_streams(only_unmanaged(metadata, keyed), keep, keyed=True)
    lake.sync_files(f"{UNMANAGED_DIRECTORY}/{blob}" for blob in carried)
    kept = replace(kept, version=max(kept.version, FIRST_WRITABLE_VERSION))
    return write_metadata(kept), list(carried.values())


def only_unmanaged(metadata: CheckpointMetadata, keyed: Collection[str] = ()) -> CheckpointMetadata:
    """Return the same `_metadata` without the handles of managed state, which has tables.

    Args:
        metadata: The `_metadata`.
        keyed: The ids of operators whose keyed state is kept as bytes, if it is one file.
    """

    def strip(subtask: SubtaskState, *, kept: bool) -> SubtaskState:
        stays = subtask.managed_keyed if kept and keyed_as_bytes(subtask) else None
        return replace(subtask, managed_keyed=stays, managed_operator=None)

    operators = [
        operator.with_subtasks(partial(strip, kept=operator.operator_id in keyed))
        for operator in metadata.operators
    ]
    return replace(metadata, operators=operators)


def keyed_as_bytes(subtask: SubtaskState) -> bool:
    """Return whether a subtask's keyed state is one file, which may be kept as it is."""
    keyed = subtask.managed_keyed
    nested = isinstance(keyed, KeyGroupsHandle) and isinstance(keyed.stream, NestedKeyGroupsHandle)
    return isinstance(keyed, KeyGroupsHandle) and not nested


def unmanaged_metadata(record: SnapshotRecord) -> CheckpointMetadata:
    """Return the `_metadata` of a snapshot's unmanaged state, from its row.

    Raises:
        DamagedLakeError: It has managed state, files that are not carried, or operators other than
            those of the row.
        SnapshotError: The bytes are not a `_metadata`.
    """
    metadata = read_metadata(record.metadata, "carried _metadata")
    problem = _contradiction(metadata, record)
    if problem:
        raise DamagedLakeError(
            problem,
            place=f"the carried _metadata of job {record.job!r}, snapshot {record.snapshot_id!r}",
        )
    return metadata


def _contradiction(metadata: CheckpointMetadata, record: SnapshotRecord) -> str:
    """Return a contradiction between a carried `_metadata` and its row; empty if there is none."""
    sizes = {carried.blob: carried.size for carried in record.carried}
    foreign: list[StreamHandle] = []

    def look(handle: StreamHandle) -> StreamHandle:
        if isinstance(handle, RelativeHandle):
            known = sizes.get(handle.path) == handle.size
        else:
            known = isinstance(handle, InlineHandle | EmptySegmentHandle | NestedKeyGroupsHandle)
        if not known:
            foreign.append(handle)
        return handle

    with_tables = {operator.operator_id for operator in record.operators if operator.states}
    without = {operator.operator_id for operator in metadata.operators} - with_tables
    if only_unmanaged(metadata, without) != metadata:
        return "it has handles of managed state"
    map_streams(metadata, look, keyed=True)
    if foreign:
        return f"{foreign[0]!r:.200} is no file that is carried"
    shapes = {
        operator.operator_id: (operator.parallelism, operator.max_parallelism)
        for operator in metadata.operators
    }
    for operator in record.operators:
        if shapes.get(operator.operator_id) != (operator.parallelism, operator.max_parallelism):
            return f"operator {operator.label!r} is not as the row has it"
    return ""


def without_unused_files(record: SnapshotRecord) -> SnapshotRecord:
    """Return a snapshot without the carried files that only dropped operators had."""
    if not record.carried:
        return record
    named = named_files(read_metadata(record.metadata, "carried _metadata"))
    return replace(record, carried=[file for file in record.carried if file.blob in named])


def unmanaged_parts(record: SnapshotRecord) -> dict[tuple[str, str], tuple[int, str]]:
    """Return the size and the digest of each part of a snapshot's unmanaged state.

    The keys are an operator's id and `coordinator`, `raw`, `in flight` or `KEYED`; for `master` the
    id is empty. Digests are of the bytes and their subtasks, not of file names.

    Raises:
        DamagedLakeError: The snapshot's row contradicts itself.
        SnapshotError: The bytes are not a `_metadata`.
    """

    def content(handle: StreamHandle) -> StreamHandle:
        if isinstance(handle, InlineHandle):
            return RelativeHandle(hashlib.sha256(handle.data).hexdigest(), handle.size)
        if isinstance(handle, RelativeHandle):
            return replace(handle, path=digest_in(handle.path))
        return handle

    metadata = map_streams(unmanaged_metadata(record), content, keyed=True)
    parts: dict[tuple[str, str], tuple[int, str]] = {}

    def note(operator: str, what: str, size: int, value: object) -> None:
        if size:
            digest = hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).hexdigest()
            parts[operator, what] = size, digest

    note("", "master", sum(len(each.data) for each in metadata.masters), metadata.masters)
    for operator in metadata.operators:
        subtasks = sorted((operator.subtasks or {}).items())
        coordinator = operator.coordinator
        if coordinator is not None:
            note(operator.operator_id, "coordinator", coordinator.size, coordinator.data)
        raw = [
            (index, part.raw_operator, part.raw_keyed and replace(part.raw_keyed, handle_id=""))
            for index, part in subtasks
            if part.raw_operator or part.raw_keyed
        ]
        keyed = [
            (index, replace(part.managed_keyed, handle_id=""))
            for index, part in subtasks
            if part.managed_keyed is not None
        ]
        size = sum(keyed_bytes(handle) for _, handle in keyed)
        note(operator.operator_id, KEYED, size, keyed)
        note(operator.operator_id, "raw", sum(raw_bytes(part) for _, part in subtasks), raw)
        buffers = [
            (index, part.inputs, part.outputs)
            for index, part in subtasks
            if part.inputs or part.outputs
        ]
        size = sum(in_flight_bytes(part) for _, part in subtasks)
        note(operator.operator_id, "in flight", size, buffers)
    return parts


def differing_parts(one: SnapshotRecord, other: SnapshotRecord) -> list[str]:
    """Return the parts of two snapshots' unmanaged state that are not the same, in words."""
    parts, others = unmanaged_parts(one), unmanaged_parts(other)
    return [
        f"operator {operator} ({what})" if operator else f"({what})"
        for operator, what in sorted(parts.keys() | others.keys())
        if parts.get((operator, what)) != others.get((operator, what))
    ]


def unmanaged_keyed_ids(record: SnapshotRecord) -> set[str]:
    """Return the ids of the operators whose keyed state is kept as bytes.

    Raises:
        DamagedLakeError: The snapshot's row contradicts itself.
    """
    return {
        operator.operator_id
        for operator in unmanaged_metadata(record).operators
        if any(part.managed_keyed is not None for part in (operator.subtasks or {}).values())
    }


def unmanaged_keyed_sizes(record: SnapshotRecord, wanted: str | None = None) -> dict[str, int]:
    """Return the operators whose keyed state is kept as bytes, by uid or id, with its size.

    Args:
        record: The snapshot.
        wanted: Only operators with that uid, name, node or id; the id may be abbreviated.

    Raises:
        DamagedLakeError: The snapshot's row contradicts itself.
    """
    sizes: dict[str, int] = {}
    for operator, label, names in _all_names(record):
        if not (wanted is None or wanted in names or operator.operator_id.startswith(wanted)):
            continue
        for subtask in (operator.subtasks or {}).values():
            if subtask.managed_keyed is not None:
                sizes[label] = sizes.get(label, 0) + keyed_bytes(subtask.managed_keyed)
    return sizes


def unmanaged_keyed_messages(record: SnapshotRecord, wanted: str | None = None) -> list[str]:
    """Return a message for each operator of `unmanaged_keyed_sizes`; arguments as there."""
    return [
        f"operator {label}: {KEYED}, which are not read; see `import` for the reason"
        for label in unmanaged_keyed_sizes(record, wanted)
    ]


def refuse_unmanaged_keyed(record: SnapshotRecord, wanted: str) -> None:
    """Refuse a change of keyed state that is kept as bytes, and so has no table.

    Args:
        record: The snapshot.
        wanted: An operator, or a state as `operator/state`.

    Raises:
        UnsupportedFormatError: An operator of that name has such state.
        DamagedLakeError: The snapshot's row contradicts itself.
    """
    as_bytes = unmanaged_keyed_ids(record)
    for operator, label, names in _all_names(record):
        if operator.operator_id in as_bytes and any(
            f"{wanted}/".startswith(f"{name}/") for name in names
        ):
            raise UnsupportedFormatError(
                f"{KEYED}, since only a class of the job knows where values end: its states"
                " can't be changed separately",
                place=f"operator {label}",
                remedy="import a canonical savepoint of the job, which tells where values end, and"
                " change that; or drop all of it: `edit --drop-operator`, `erase --carried drop`",
            )


def _all_names(record: SnapshotRecord) -> Iterator[tuple[OperatorMetadata, str, set[str]]]:
    """Yield the operators with unmanaged state, each with its label and all of its names."""
    recorded = {operator.operator_id: operator for operator in record.operators}
    for operator in unmanaged_metadata(record).operators:
        known = recorded.get(operator.operator_id)
        label = (known and known.label) or operator.uid or operator.operator_id
        names = {label, operator.uid or label, operator.operator_id}
        yield operator, label, names | ({known.name, known.node} - {""} if known else set())


def unmanaged_source(handle: StreamHandle, lake: Directory) -> ByteSource:
    """Return the bytes of a handle in a carried `_metadata`.

    Args:
        handle: A handle that `unmanaged_metadata` has accepted.
        lake: The lake's directory.

    Raises:
        MissingFileError: The file does not exist.
    """
    if isinstance(handle, RelativeHandle):
        return lake.source(f"{UNMANAGED_DIRECTORY}/{handle.path}")
    return InlineSource("carried _metadata", getattr(handle, "data", b""))


def blocks_of(carried: str, lake: Directory) -> Iterator[bytes]:
    """Yield the bytes of a carried file.

    Args:
        carried: Its name in the lake.
        lake: The lake's directory.

    Raises:
        MissingFileError: The file does not exist.
        DamagedLakeError: The bytes do not have the digest in the name; raised after the last block.
    """
    path, digest = f"{UNMANAGED_DIRECTORY}/{carried}", hashlib.sha256()
    for block in _blocks(lake.source(path)):
        digest.update(block.data)
        yield block.tobytes()
    if digest.hexdigest() != digest_in(carried):
        raise DamagedLakeError(
            "its bytes do not have the digest in its name",
            place=lake.full(path),
        )


def _keep(source: ByteSource, lake: Directory, token: str, known: dict[str, str]) -> str:
    """Return the name of a file with these bytes in the lake: a known one, or a new copy."""
    digest = digest_of(source)
    if digest not in known or not _is_undamaged(known[digest], lake):
        name = known[digest] = unmanaged_name(digest, token)
        with lake.open_output(f"{UNMANAGED_DIRECTORY}/{name}") as file:
            for block in _blocks(source):
                file.write(block.data)
    return known[digest]


def _is_undamaged(name: str, lake: Directory) -> bool:
    """Return whether a carried file exists, and its bytes have the digest in its name."""
    path = f"{UNMANAGED_DIRECTORY}/{name}"
    return lake.is_file(path) and digest_of(lake.source(path)) == digest_in(name)


def digest_of(source: ByteSource) -> str:
    """Return the SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    for block in _blocks(source):
        digest.update(block.data)
    return digest.hexdigest()


def _blocks(source: ByteSource) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield a file's bytes in pieces, each of which is valid until the next."""
    block = np.empty(min(BLOCK_BYTES, max(1, source.size)), np.uint8)
    for at in range(0, source.size, len(block)):
        piece = block[: min(len(block), source.size - at)]
        source.read_into(at, piece)
        yield piece
