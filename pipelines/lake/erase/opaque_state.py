"""Opaque state, which has no tables: only the job knows whether a key is in it."""

from __future__ import annotations

from dataclasses import replace

from statelake.pipelines.lake.catalog.unmanaged_state import unmanaged_metadata
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    OperatorMetadata,
    SubtaskState,
    write_metadata,
)

KINDS = "raw, channel, coordinator or master state, or keyed state kept as bytes"


def has_opaque_state(record: SnapshotRecord) -> bool:
    """Return whether a snapshot carries raw, channel, coordinator, master state, or keyed as bytes.

    Raises:
        DamagedLakeError: Its carried `_metadata` is not valid.
    """
    metadata = unmanaged_metadata(record)
    return bool(record.carried or metadata.masters) or any(map(_is_opaque, metadata.operators))


def without_opaque_state(record: SnapshotRecord) -> SnapshotRecord:
    """Return the snapshot without opaque state: the job begins without it."""
    metadata = unmanaged_metadata(record)
    operators = [_stripped(operator) for operator in metadata.operators]
    bare = replace(metadata, operators=operators, masters=[])
    return replace(record, metadata=write_metadata(bare), carried=[])


def _subtasks(operator: OperatorMetadata) -> list[SubtaskState]:
    return list((operator.subtasks or {}).values())


def _is_opaque(operator: OperatorMetadata) -> bool:
    return operator.coordinator is not None or any(
        subtask.raw_operator
        or subtask.raw_keyed
        or subtask.managed_keyed
        or subtask.inputs
        or subtask.outputs
        for subtask in _subtasks(operator)
    )


def _stripped(operator: OperatorMetadata) -> OperatorMetadata:
    if operator.subtasks is None:
        return replace(operator, coordinator=None)
    subtasks = {
        index: replace(
            subtask, raw_operator=None, raw_keyed=None, managed_keyed=None, inputs=(), outputs=()
        )
        for index, subtask in operator.subtasks.items()
    }
    return replace(operator, coordinator=None, subtasks=subtasks)
