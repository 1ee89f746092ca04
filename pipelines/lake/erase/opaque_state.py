"""Opaque state, which has no tables: only the job knows whether a key is in it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from statelake.pipelines.lake.catalog.unmanaged_state import unmanaged_metadata
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    write_metadata,
)

KINDS = "raw, channel, coordinator or master state, or keyed state kept as bytes"


def has_opaque_state(record: SnapshotRecord) -> bool:
    """Return whether a snapshot carries raw, channel, coordinator, master state, or keyed as bytes.

    Raises:
        DamagedLakeError: Its carried `_metadata` is not valid.
    """
    metadata = unmanaged_metadata(record)
    return bool(record.carried) or _bare(metadata) != metadata


def without_opaque_state(record: SnapshotRecord) -> SnapshotRecord:
    """Return the snapshot without opaque state: the job begins without it."""
    bare = _bare(unmanaged_metadata(record))
    return replace(record, metadata=write_metadata(bare), carried=[])


def _bare(metadata: CheckpointMetadata) -> CheckpointMetadata:
    """Return a `_metadata` of unmanaged state without any."""
    bare = partial(
        replace, raw_operator=None, raw_keyed=None, managed_keyed=None, inputs=(), outputs=()
    )
    operators = [
        replace(operator.with_subtasks(bare), coordinator=None) for operator in metadata.operators
    ]
    return replace(metadata, operators=operators, masters=[])
