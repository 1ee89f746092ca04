"""What of a snapshot has no tables: kept as it is, so that nothing is lost on the way.

Raw state, coordinator state, master states and in-flight buffers are opaque. Their handles stay in
a `_metadata` without the rest, which lies in the catalog; their files are kept in the lake once
each, under a name that is their digest.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from pipelines.lake.records import CarriedFile
from state_core.filesystem import ByteSource, Directory
from state_core.formats.metadata import (
    CheckpointMetadata,
    OperatorState,
    write_metadata,
)
from state_core.formats.state_files import StateFiles
from state_core.formats.stream_map import map_streams
from state_core.handles import (
    EmptySegmentHandle,
    InlineHandle,
    NestedKeyGroupsHandle,
    RelativeHandle,
    StreamHandle,
)

__all__ = ["CARRIED_DIRECTORY", "carry_state", "without_tables"]

CARRIED_DIRECTORY = "_statelake/carried"
FIRST_WRITABLE_VERSION = 3
BLOCK_BYTES = 8 << 20


def carry_state(
    metadata: CheckpointMetadata, files: StateFiles, lake: Directory
) -> tuple[bytes, list[CarriedFile]]:
    """Keep in the lake what has no tables.

    Returns:
        A `_metadata` without the rest whose handles name the kept files, and those files.
    """
    carried: dict[str, CarriedFile] = {}
    kept_as: dict[tuple[str, int, int], str] = {}

    def keep(handle: StreamHandle) -> StreamHandle:
        if isinstance(handle, InlineHandle | EmptySegmentHandle | NestedKeyGroupsHandle):
            return handle
        source = files.open(handle, shared=True)
        piece = source.name, getattr(source, "start", 0), source.size
        if piece not in kept_as:
            kept_as[piece] = _keep(source, lake)
        blob = kept_as[piece]
        carried[blob] = CarriedFile(source.name, blob, source.size)
        return RelativeHandle(blob, source.size)

    kept = map_streams(without_tables(metadata), keep)
    kept = replace(kept, version=max(kept.version, FIRST_WRITABLE_VERSION))
    return write_metadata(kept), list(carried.values())


def without_tables(metadata: CheckpointMetadata) -> CheckpointMetadata:
    """The same `_metadata` with every managed handle left out: that state has tables."""

    def strip(operator: OperatorState) -> OperatorState:
        if operator.subtasks is None:
            return operator
        subtasks = {
            index: replace(subtask, managed_keyed=None, managed_operator=None)
            for index, subtask in operator.subtasks.items()
        }
        return replace(operator, subtasks=subtasks)

    return replace(metadata, operators=[strip(one) for one in metadata.operators])


def _keep(source: ByteSource, lake: Directory) -> str:
    """Copy a file into the lake under its digest, if it is not there yet."""
    digest = hashlib.sha256()
    block = np.empty(min(BLOCK_BYTES, max(1, source.size)), np.uint8)
    pieces = [
        (at, block[: min(len(block), source.size - at)]) for at in range(0, source.size, len(block))
    ]
    for at, piece in pieces:
        source.read_into(at, piece)
        digest.update(piece.data)
    blob = digest.hexdigest()
    path = f"{CARRIED_DIRECTORY}/{blob}"
    if not lake.is_file(path):
        with lake.open_output(path) as file:
            for at, piece in pieces:
                source.read_into(at, piece)
                file.write(piece.data)
    return blob
