"""Golden snapshots that are damaged on purpose, in a place that is known."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
    SubtaskState,
    read_metadata,
    write_metadata,
)
from statelake.state_core.model.handles import (
    IncrementalHandle,
    KeyedHandle,
    KeyGroupsHandle,
    OperatorHandle,
    RelativeHandle,
)
from tests.support.savepoints.golden_cases import GoldenCase

__all__ = ["Damaged", "damaged"]

Change = Callable[[bytearray], bytes | bytearray | None]


@dataclass(frozen=True)
class Damaged:
    """A copy of a snapshot, to be damaged.

    Attributes:
        origin: The snapshot that is copied.
        path: The copy's directory.
        uid: The operator that is damaged.
    """

    origin: Path
    path: Path
    uid: str

    @property
    def metadata(self) -> CheckpointMetadata:
        """Its `_metadata`."""
        return read_metadata((self.path / "_metadata").read_bytes())

    @property
    def operator(self) -> OperatorMetadata:
        """The operator, in the metadata of this moment."""
        return self._operator(self.metadata)

    def _operator(self, metadata: CheckpointMetadata) -> OperatorMetadata:
        return next(
            operator
            for operator in metadata.operators
            if self.uid in (operator.uid, operator.operator_id)
        )

    def subtask(self, index: int) -> SubtaskState:
        """What a subtask left."""
        subtasks = self.operator.subtasks
        assert subtasks is not None
        return subtasks[index]

    def keyed(self, index: int) -> KeyGroupsHandle:
        """A subtask's keyed handle."""
        handle = self.subtask(index).managed_keyed
        assert isinstance(handle, KeyGroupsHandle)
        return handle

    def rocksdb(self, index: int) -> IncrementalHandle:
        """A subtask's RocksDB files."""
        handle = self.subtask(index).managed_keyed
        assert isinstance(handle, IncrementalHandle)
        return handle

    def operator_handle(self, index: int) -> OperatorHandle:
        """A subtask's operator state."""
        handle = self.subtask(index).managed_operator
        assert handle is not None
        return handle

    def file(self, index: int) -> Path:
        """The file of a subtask's keyed state."""
        return self._path(self.keyed(index))

    def operator_file(self, index: int) -> Path:
        """The file of a subtask's operator state."""
        return self._path(self.operator_handle(index))

    def _path(self, handle: KeyGroupsHandle | OperatorHandle) -> Path:
        assert isinstance(handle.stream, RelativeHandle)
        return self.path / handle.stream.path

    def span(self, index: int, group: int) -> tuple[int, int]:
        """Where a key group begins and ends in its file."""
        handle = self.keyed(index)
        begin = handle.offsets[group - handle.first]
        assert begin
        behind = [at for at in handle.offsets if at > begin]
        return begin, min(behind, default=self.file(index).stat().st_size)

    def groups(self, index: int) -> list[int]:
        """The key groups of a subtask that have data."""
        handle = self.keyed(index)
        return [handle.first + i for i, at in enumerate(handle.offsets) if at]

    def change(self, path: Path, change: Change) -> None:
        """Change a file's bytes."""
        data = bytearray(path.read_bytes())
        made = change(data)
        path.write_bytes(data if made is None else made)

    def change_group(self, index: int, group: int, change: Change) -> None:
        """Change a key group's bytes; what follows moves, and the handle tells where to."""
        begin, end = self.span(index, group)
        data = self.file(index).read_bytes()
        piece = bytearray(data[begin:end])
        made = change(piece)
        new = bytes(piece if made is None else made)
        self.file(index).write_bytes(data[:begin] + new + data[end:])
        handle = self.keyed(index)
        moved = len(new) - (end - begin)
        offsets = tuple(at + moved if at > begin else at for at in handle.offsets)
        assert isinstance(handle.stream, RelativeHandle)
        stream = replace(handle.stream, size=handle.stream.size + moved)
        self.set_keyed(index, replace(handle, offsets=offsets, stream=stream))

    def edit(self, change: Callable[[CheckpointMetadata, OperatorMetadata], None]) -> None:
        """Change `_metadata`."""
        metadata = self.metadata
        change(metadata, self._operator(metadata))
        (self.path / "_metadata").write_bytes(write_metadata(metadata))

    def set_keyed(self, index: int, handle: KeyedHandle | None) -> None:
        """Give a subtask another keyed handle."""

        def change(_: CheckpointMetadata, operator: OperatorMetadata) -> None:
            assert operator.subtasks is not None
            operator.subtasks[index].managed_keyed = handle

        self.edit(change)

    def set_operator_state(self, index: int, handle: OperatorHandle) -> None:
        """Give a subtask another handle of operator state."""

        def change(_: CheckpointMetadata, operator: OperatorMetadata) -> None:
            assert operator.subtasks is not None
            operator.subtasks[index].managed_operator = handle

        self.edit(change)


def damaged(golden: GoldenCase, to: Path, uid: str = "") -> Damaged:
    """A copy of a golden snapshot; of its first operator with state, unless another is named."""
    shutil.copytree(golden.snapshot, to)
    one = Damaged(golden.snapshot, to, uid)
    if uid:
        return one
    metadata = one.metadata
    found = next(
        operator
        for operator in metadata.operators
        if any(s.managed_keyed or s.managed_operator for s in (operator.subtasks or {}).values())
    )
    return replace(one, uid=found.uid or found.operator_id)
