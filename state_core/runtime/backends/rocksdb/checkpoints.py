"""Incremental checkpoints of RocksDB: its files, most of which were copied earlier.

In the synchronous part RocksDB writes its buffers and links all its files into a directory. An SST
file never changes, so an SST file of the last complete checkpoint is referred to again; new ones
are copied to the directory that checkpoints share, all other files to the checkpoint's own
directory. A meta file has the header.

Source: `RocksIncrementalSnapshotStrategy`, `RocksDBStateUploader` in
`org.apache.flink.state.rocksdb`.
"""

from __future__ import annotations

import posixpath
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from rocksdict import Checkpoint

from statelake.state_core.files.filesystem import ByteSource, Directory, FileSource
from statelake.state_core.files.wire import DataOutput
from statelake.state_core.formats.layout.meta_info import KeyedHeader, write_keyed_header
from statelake.state_core.model.handles import (
    FileHandle,
    IncrementalHandle,
    KeyGroupRange,
    RelativeHandle,
    StreamHandle,
)
from statelake.state_core.runtime.backends.rocksdb.tables import Database
from statelake.state_core.runtime.backends.states.registry import StateRegistry
from statelake.state_core.runtime.backends.states.snapshots import SnapshotTarget

SHARED_SUFFIX = ".sst"
OWN_FILE = "rocksdict-config.json"
BLOCK_BYTES = 8 << 20


class _Storage(Protocol):
    """The part of the storage that a strategy needs."""

    directory: Path
    database: Database
    backend_id: str
    restored: IncrementalHandle | None

    def flush(self) -> None:
        """Write all buffered data."""


@dataclass
class _LinkedFiles:
    """Links to the files of a snapshot, in their own directory."""

    header: KeyedHeader
    directory: Path
    base: dict[str, str]

    def release(self) -> None:
        """Remove the links."""
        shutil.rmtree(self.directory, ignore_errors=True)


class IncrementalStrategy:
    """Writes incremental checkpoints: only the files that the last complete one lacks.

    Args:
        storage: The RocksDB instance.
        registry: The states.
        key_groups: The key groups of this subtask.
    """

    def __init__(
        self, storage: _Storage, registry: StateRegistry, key_groups: KeyGroupRange
    ) -> None:
        self.storage = storage
        self.registry = registry
        self.key_groups = key_groups
        # per checkpoint, the places of its SST files: local name to shared name
        self._taken: dict[int, dict[str, str]] = {}
        self._complete = -1

    def sync_prepare_resources(self, checkpoint_id: int) -> _LinkedFiles:
        """Link all files."""
        self.storage.flush()
        directory = self.storage.directory / f"chk-{checkpoint_id}-{uuid.uuid4().hex[:8]}"
        Checkpoint(self.storage.database.database).create_checkpoint(str(directory))
        return _LinkedFiles(self.registry.header, directory, self._base())

    def _base(self) -> dict[str, str]:
        """Return the SST files to which the next checkpoint can refer."""
        if self._complete < 0 and self.storage.restored is not None:
            return {
                name: posixpath.basename(stream.uri)
                for name, stream in self.storage.restored.shared
                if isinstance(stream, FileHandle)
            }
        return self._taken.get(self._complete, {})

    def async_snapshot(
        self, resources: _LinkedFiles, target: SnapshotTarget
    ) -> IncrementalHandle | None:
        """Copy files, and return their handle."""
        header = resources.header
        if not header.states:
            return None
        copied = 0
        uploaded: dict[str, str] = {}
        shared: list[tuple[str, StreamHandle | None]] = []
        private: list[tuple[str, StreamHandle | None]] = []
        for path in sorted(resources.directory.iterdir()):
            size = path.stat().st_size
            if path.name == OWN_FILE:
                continue
            if path.suffix != SHARED_SUFFIX or target.shared is None:
                name = _upload(path, target.directory)
                private.append((path.name, RelativeHandle(name, size)))
                copied += size
                continue
            known = resources.base.get(path.name)
            if known is None or not target.shared.confined().is_file(known):
                known = _upload(path, target.shared)
                copied += size
            uploaded[path.name] = known
            shared.append((path.name, FileHandle(_uri(target.shared, known), size)))
        out = DataOutput()
        write_keyed_header(header, out)
        meta = str(uuid.uuid4())
        with target.directory.open_output(meta) as file:
            file.write(out.to_bytes())
        self._taken[target.checkpoint_id] = uploaded
        return IncrementalHandle(
            target.checkpoint_id,
            self.storage.backend_id,
            self.key_groups.first,
            len(self.key_groups),
            RelativeHandle(meta, len(out)),
            tuple(shared),
            tuple(private),
            copied + len(out),
            str(uuid.uuid4()),
        )

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Allow later checkpoints to refer to this one."""
        if checkpoint_id in self._taken and checkpoint_id > self._complete:
            self._complete = checkpoint_id
            self._taken = {
                checkpoint: files
                for checkpoint, files in self._taken.items()
                if checkpoint >= checkpoint_id
            }

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Prevent later checkpoints from referring to this one."""
        self._taken.pop(checkpoint_id, None)


def _uri(directory: Directory, name: str) -> str:
    return f"file:{directory.full(name)}" if directory.local else f"{directory.uri}/{name}"


def _upload(path: Path, directory: Directory) -> str:
    """Link or copy a file of RocksDB to a checkpoint, and return its name there."""
    name, target = str(uuid.uuid4()), directory.confined()
    working = Directory(path.parent).confined()
    if path.suffix == SHARED_SUFFIX and target.link(working, path.name, name):
        return name
    with path.open("rb") as source, target.open_output(name) as file:
        shutil.copyfileobj(source, file, BLOCK_BYTES)
    return name


def copy_into(target: Path, source: ByteSource) -> None:
    """Link a checkpoint's file into RocksDB's directory if it never changes, or copy it."""
    working = Directory(target.parent).confined()
    if isinstance(source, FileSource) and source.start == 0 and target.suffix == SHARED_SUFFIX:
        whole = source.directory.size(source.path) == source.size
        if whole and working.link(source.directory, source.path, target.name):
            return
    with working.open_output(target.name) as file:
        for at in range(0, source.size, BLOCK_BYTES):
            block: Any = np.empty(min(BLOCK_BYTES, source.size - at), np.uint8)
            source.read_into(at, block)
            file.write(block.data)
