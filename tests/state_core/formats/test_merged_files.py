"""Checkpoints whose files were merged (FLIP-306): what lies between segments is not theirs.

Golden checkpoints, put into as few files as Flink might have. What it really writes is looked at
in `tests/integration/test_changelog_and_merging.py`.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from statelake import open_snapshot
from statelake.state_core.errors import CorruptSnapshotError, MissingFileError
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    SubtaskState,
    read_metadata,
    write_metadata,
)
from statelake.state_core.model.handles import (
    EmptySegmentHandle,
    FileHandle,
    IncrementalHandle,
    KeyedHandle,
    KeyGroupsHandle,
    OperatorHandle,
    RelativeHandle,
    SegmentHandle,
    StreamHandle,
)
from tests.support.savepoints.expected_contents import assert_contents, tables_of
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

CHURN = golden_cases("churn", form="checkpoint")
every_checkpoint = pytest.mark.parametrize("golden", CHURN, ids=lambda case: case.name)
SHARED, OWNED = "shared/job_1_op_2_0_2", "taskowned/job_1_tm_3"
GAP = b"of somebody else"


@dataclass
class Merger:
    """Puts files of a checkpoint into two: one of shared, one of exclusive state."""

    checkpoint: Path
    merged: dict[str, bytearray] = field(default_factory=dict)

    def segment(self, stream: StreamHandle | None, scope: int) -> StreamHandle | None:
        """A handle's file as a segment, which it is from now on."""
        if not isinstance(stream, FileHandle | RelativeHandle):
            return stream
        name = Path(stream.uri if isinstance(stream, FileHandle) else stream.path).name
        (path,) = self.checkpoint.parent.rglob(name)
        place = (OWNED, SHARED)[scope]
        held = self.merged.setdefault(place, bytearray())
        held += GAP
        start = len(held)
        held += path.read_bytes()
        uri = f"file:/gone/checkpoints/{place}/merged"
        return SegmentHandle(start, stream.size, scope, uri, name)

    def keyed(self, handle: KeyedHandle) -> KeyedHandle:
        """A keyed handle, all in segments."""
        if isinstance(handle, KeyGroupsHandle):
            return replace(handle, stream=self.segment(handle.stream, 0))
        assert isinstance(handle, IncrementalHandle)
        return replace(
            handle,
            meta=self.segment(handle.meta, 0),
            shared=tuple((name, self.segment(stream, 1)) for name, stream in handle.shared),
            private=tuple((name, self.segment(stream, 0)) for name, stream in handle.private),
        )

    def subtask(self, state: SubtaskState) -> None:
        """All state of a subtask."""
        dirs = (f"file:/gone/checkpoints/{OWNED}", f"file:/gone/checkpoints/{SHARED}")
        held = state.managed_operator
        if held is None:
            state.managed_operator = OperatorHandle({}, EmptySegmentHandle(), dirs, True)
        else:
            stream = self.segment(held.stream, 0)
            state.managed_operator = replace(held, stream=stream, merged_dirs=dirs)
        if state.managed_keyed is not None:
            state.managed_keyed = self.keyed(state.managed_keyed)


def merged(golden: GoldenCase, to: Path) -> Path:
    """The checkpoint with its files merged; those of before are gone."""
    shutil.copytree(golden.folder / "checkpoints", to)
    checkpoint = to / Path(golden.facts["checkpoint"]).name
    metadata = read_metadata((checkpoint / "_metadata").read_bytes())
    merger = Merger(checkpoint)
    for operator in metadata.operators:
        for subtask in (operator.subtasks or {}).values():
            merger.subtask(subtask)
    for path in to.rglob("*"):
        if path.is_file():
            path.unlink()
    for place, data in merger.merged.items():
        (to / place).mkdir(parents=True)
        (to / place / "merged").write_bytes(data + GAP)
    (checkpoint / "_metadata").write_bytes(write_metadata(metadata))
    return checkpoint


@every_checkpoint
def test_merged_files_are_read(golden: GoldenCase, tmp_path: Path) -> None:
    """Everything that Flink sees, from segments between other bytes, in a place of their own."""
    checkpoint = merged(golden, tmp_path / "moved")
    files = [path for path in (tmp_path / "moved").rglob("*") if path.is_file()]
    assert len(files) <= 3
    assert_contents(golden, tables_of(open_snapshot(checkpoint)))


@every_checkpoint
def test_merged_files_that_are_not_there(golden: GoldenCase, tmp_path: Path) -> None:
    """What is missing, or cut off, is said before anything is read."""
    checkpoint = merged(golden, tmp_path / "moved")
    (file, *_) = sorted((tmp_path / "moved").rglob("merged"), reverse=True)
    file.write_bytes(file.read_bytes()[: -len(GAP) - 1])
    with pytest.raises(CorruptSnapshotError, match="bytes, and `_metadata` says"):
        tables_of(open_snapshot(checkpoint))
    file.unlink()
    with pytest.raises(MissingFileError, match="copy the whole checkpoint"):
        tables_of(open_snapshot(checkpoint))
