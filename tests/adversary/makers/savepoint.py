"""Hostile savepoints and checkpoints: handles, links and files that are none, put into honest ones.

What an honest one holds is as long as what the victim holds, so that a handle that leads there is
read to its end by whoever follows it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    SubtaskState,
)
from statelake.state_core.model.handles import (
    ChannelHandle,
    FileHandle,
    KeyGroupsHandle,
    KeyGroupsKind,
    MergedChannelPart,
    NestedKeyGroupsHandle,
    OperatorHandle,
    RelativeHandle,
    SegmentHandle,
    StreamHandle,
)
from tests.adversary.makers.lake import filled
from tests.adversary.makers.scene import Maker, Scene
from tests.adversary.makers.seed import edit_metadata

__all__ = [
    "STREAMS",
    "absolute",
    "checkpoint_link",
    "edited",
    "handle",
    "merged",
    "nested",
    "relative",
    "replaced",
    "savepoint_link",
]

Stream = Callable[[str, int], StreamHandle]
ROLES = {"keyed": "keyed-0", "operator": "operator-0", "raw": "opaque"}


def relative(path: str, size: int) -> StreamHandle:
    """A file beside `_metadata`."""
    return RelativeHandle(path, size)


def absolute(path: str, size: int) -> StreamHandle:
    """A file by its URI."""
    return FileHandle(path, size)


def merged(path: str, size: int) -> StreamHandle:
    """A segment of a file by its URI."""
    return SegmentHandle(0, size, 0, path, "logical")


def nested(path: str, size: int) -> StreamHandle:
    """A handle of key groups where only bytes should be."""
    return NestedKeyGroupsHandle(0, (0,), FileHandle(path, size))


STREAMS: dict[str, Stream] = {"relative": relative, "absolute": absolute, "merged": merged}


def handle(path: str, role: str = "keyed", stream: Stream = relative) -> Maker:
    """A savepoint whose first subtask has its state elsewhere; the honest file is gone.

    Args:
        path: Where, with places of the scene in it.
        role: Which state: `keyed`, `operator`, `raw`, `raw-keyed`, `input`.
        stream: How it is named.
    """

    def make(scene: Scene) -> None:
        savepoint = scene.with_savepoint() if not scene.savepoint.exists() else scene.savepoint
        own = savepoint / ROLES.get(role, "opaque")
        handle = stream(filled(path, scene), own.stat().st_size)
        edit_metadata(savepoint, lambda metadata: _give(metadata, role, handle))
        own.unlink(missing_ok=True)  # else a moved file would be found beside `_metadata`

    return make


def _give(metadata: CheckpointMetadata, role: str, stream: StreamHandle) -> None:
    subtasks = metadata.operators[0].subtasks
    assert subtasks is not None
    first: Any = subtasks[0]
    if role == "raw-keyed":
        first.raw_keyed = KeyGroupsHandle(KeyGroupsKind.LEGACY, 0, (0, -1), stream)
    elif role == "input":
        part = MergedChannelPart(0, 0, stream.size, (0,))
        first.inputs = (ChannelHandle(1, 0, (part,), stream.size, stream),)
    elif role == "raw":
        for subtask in subtasks.values():
            subtask.raw_operator = OperatorHandle({}, stream)
    else:
        first_handle = getattr(first, f"managed_{role}")
        setattr(first, f"managed_{role}", replace(first_handle, stream=stream))


def edited(change: Callable[[CheckpointMetadata, SubtaskState], Any]) -> Maker:
    """A savepoint with another `_metadata`; the change is given its first subtask, too."""

    def make(scene: Scene) -> None:
        def of_first(metadata: CheckpointMetadata) -> Any:
            subtasks = metadata.operators[0].subtasks
            assert subtasks is not None
            return change(metadata, subtasks[0])

        edit_metadata(scene.with_savepoint(), of_first)

    return make


def savepoint_link(path: str, to: str) -> Maker:
    """A savepoint with a link in place of a file or directory."""

    def make(scene: Scene) -> None:
        if not scene.savepoint.exists():
            scene.with_savepoint()
        _link(scene.savepoint / path, filled(to, scene))

    return make


def checkpoint_link(path: str, to: str) -> Maker:
    """A checkpoint with a link in place of a file or directory, below what holds `chk-7`."""

    def make(scene: Scene) -> None:
        scene.with_checkpoint()
        _link(scene.checkpoint.parent / path, filled(to, scene))

    return make


def replaced(path: str, by: Callable[[Path], Any]) -> Maker:
    """A savepoint in which something stands where a file was."""

    def make(scene: Scene) -> None:
        target = scene.with_savepoint() / path
        target.unlink(missing_ok=True)
        by(target)

    return make


def _link(path: Path, to: str) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(to)
