"""Checkpoints in RocksDB's own files, of what savepoints of ours hold."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata
from statelake.state_core.model.key_groups import key_group_ranges
from statelake.state_core.runtime.backends import (
    BackendConfiguration,
    restore_backend,
    rocksdb,
    rocksdb_backend,
)
from tests.support.jobs.backend_cases import MEMORY, write_savepoint
from tests.support.rocksdb_databases import Settings

__all__ = ["rocksdb_checkpoint"]

FLINKS = Settings()


def rocksdb_checkpoint(
    savepoints: Sequence[Path], to: Path, settings: Settings = FLINKS, key: str = "Long"
) -> Path:
    """A checkpoint of the only operator of savepoints, one written over the other.

    What each of them has is in tables of its own, of the format that Flink's RocksDB writes.
    """
    read = [read_metadata((savepoint / "_metadata").read_bytes()) for savepoint in savepoints]
    (operator,) = read[0].operators
    with ExitStack() as opened, patch.object(rocksdb, "_options", lambda _: settings.options):
        backends: list[Any] = []
        for key_groups in key_group_ranges(operator.max_parallelism, operator.parallelism):
            configuration = BackendConfiguration(key, key_groups, operator.max_parallelism)
            backend = rocksdb_backend(configuration, MEMORY if MEMORY.is_dir() else None)
            backends.append(opened.enter_context(backend))
            for savepoint, metadata in zip(savepoints, read, strict=True):
                subtasks = (metadata.operators[0].subtasks or {}).values()
                handles = [subtask.managed_keyed for subtask in subtasks]
                restore_backend(backend, handles, Directory(savepoint))
                for table in backend.storage.tables.values():
                    table.family.flush()
        return write_savepoint(backends, to, operator.uid, canonical=False)
