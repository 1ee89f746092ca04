"""Hostile checkpoint logs and blob stores: records, indexes and links, put into honest ones."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from statelake.state_core.files.filesystem import Directory
from statelake.state_core.runtime.commit import FileCheckpointLog
from statelake.state_core.runtime.commit.records.records import (
    BLOB_STORE_FACTORY,
    CHANGELOG_FACTORY,
)
from tests.adversary.makers.lake import filled
from tests.adversary.makers.scene import Maker, Scene

__all__ = [
    "blob_marker",
    "changelog_marker",
    "committed",
    "committed_file",
    "committed_link",
    "index",
    "last_index",
    "marked",
    "raw_record",
    "record",
    "torn_record",
]

TASK = "Partition 0"


def committed(scene: Scene) -> Path:
    """The job that committed, made if it is not there."""
    return scene.committed if scene.committed.exists() else scene.with_committed()


def last_index(root: Path) -> Path:
    """The newest snapshot index of the task, below what holds `blobs`."""
    return max(root.glob("blobs/blobs/job=*/task=*200/store=*/*/*-snapshot-index"))


def victims_index(scene: Scene) -> Path:
    """The same index at the victim's: whoever follows a path there finds what is sound."""
    return last_index(scene.victim / "committed")


def blob_places(scene: Scene) -> dict[str, str]:
    """What ids of blobs may name: the victim's copy of the index, and the honest one."""
    below = victims_index(scene).relative_to(scene.victim / "committed/blobs/blobs")
    return {"index": str(below), "victim": str(scene.victim), "root": str(scene.root)}


def record(
    change: Callable[[dict[str, Any], dict[str, Any], Scene], Any], *, forget: bool = False
) -> Maker:
    """A log whose last record of the task is another.

    Args:
        change: Changes its key and its message.
        forget: Whether the honest index is gone, so that only the victim's is left to be read.
    """

    def make(scene: Scene) -> None:
        root = committed(scene)
        log = FileCheckpointLog(Directory(root / "log"))
        last = [record for record in log.read() if json.loads(record.key)["taskName"] == TASK][-1]
        key, message = json.loads(last.key), json.loads(last.message)
        change(key, message, scene)
        log.append(json.dumps(key).encode(), json.dumps(message).encode())
        if forget:
            last_index(root).unlink()

    return make


def marked(markers: dict[str, dict[str, str]]) -> Maker:
    """A record with these markers."""

    def change(_: dict[str, Any], message: dict[str, Any], scene: Scene) -> None:
        places = blob_places(scene)
        message["state-checkpoint-markers"] = {
            factory: {store: marker.format(**places) for store, marker in stores.items()}
            for factory, stores in markers.items()
        }

    return record(change, forget=BLOB_STORE_FACTORY in markers)


def blob_marker(marker: str, store: str = "counts") -> Maker:
    """A record whose snapshot index is elsewhere."""
    return marked({BLOB_STORE_FACTORY: {store: marker}})


def changelog_marker(**said: Any) -> Maker:
    """A record whose marker of the changelog has other values."""

    def change(_: dict[str, Any], message: dict[str, Any], scene: Scene) -> None:
        stores = message["state-checkpoint-markers"][CHANGELOG_FACTORY]
        marker = json.loads(stores["counts"])
        for name, value in said.items():
            text = value.format(victim=scene.victim) if isinstance(value, str) else value
            of = marker if name == "offset" else marker["changelog-ssp"]
            of["changelog-offset" if name == "offset" else name] = text
        message["state-checkpoint-markers"] = {CHANGELOG_FACTORY: {"counts": json.dumps(marker)}}

    return record(change)


def raw_record(key: bytes, message: bytes) -> Maker:
    """A record of any bytes."""

    def make(scene: Scene) -> None:
        FileCheckpointLog(Directory(committed(scene) / "log")).append(key, message)

    return make


def torn_record(change: Callable[[bytes], bytes]) -> Maker:
    """A log whose last record's file has other bytes."""

    def make(scene: Scene) -> None:
        path = max((committed(scene) / "log").glob("*.record"))
        path.write_bytes(change(path.read_bytes()))

    return make


def index(change: Callable[[dict[str, Any], Scene], Any]) -> Maker:
    """A snapshot index, changed; the first file that it names is the first of the store."""

    def make(scene: Scene) -> None:
        path = last_index(committed(scene))
        content = json.loads(path.read_bytes())
        changed = change(content, scene)
        path.write_text(json.dumps(content if changed is None else changed), "utf-8")

    return make


def committed_link(path: str, to: str) -> Maker:
    """A link below the committed job, in place of what is there; `*` stands for any name."""

    def make(scene: Scene) -> None:
        root = committed(scene)
        target = max(root.glob(path)) if "*" in path else root / path
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        elif os.path.lexists(target):
            target.unlink()
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(filled(to, scene))

    return make


def committed_file(path: str, data: str) -> Maker:
    """A file below the committed job."""

    def make(scene: Scene) -> None:
        target = committed(scene) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(filled(data, scene), "utf-8")

    return make
