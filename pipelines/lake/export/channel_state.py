"""In-flight records in an export: carried if nothing is rescaled, or left out.

The records are stored by channel, from subtask to subtask. Flink itself redistributes them when it
restores at another parallelism, since it knows how the job partitions them; no snapshot says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.recorded_channels import recorded_channels
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.state_core.errors import SnapshotError, UnsupportedFormatError
from statelake.state_core.formats.channels import records_in_flight
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
)


def without_channel_state(metadata: CheckpointMetadata) -> CheckpointMetadata:
    """Return the same `_metadata`, as of an aligned checkpoint."""

    def strip(operator: OperatorMetadata) -> OperatorMetadata:
        subtasks = operator.subtasks
        if subtasks is not None:
            subtasks = {
                index: replace(subtask, inputs=(), outputs=())
                for index, subtask in subtasks.items()
            }
        return replace(operator, subtasks=subtasks)

    return replace(metadata, operators=[strip(operator) for operator in metadata.operators])


def dropped_records(lake: Catalog, record: SnapshotRecord) -> list[str]:
    """Return what a job loses without channel state, in words, operator by operator."""
    try:
        records = records_in_flight(recorded_channels(lake.directory, record))
    except SnapshotError as error:
        return [f"all records in flight, which can't be counted: {error.problem} ({error.place})"]
    return [
        f"{operator.text} in flight at operator {operator.operator}: the job never sees them"
        for operator in records
    ]


def refuse_moved_channels(
    before: Iterable[OperatorMetadata], after: Iterable[tuple[int, int]]
) -> None:
    """Refuse another parallelism or max parallelism of any operator if there is channel state.

    Args:
        before: The operators.
        after: The parallelism and max parallelism that each is to have.

    Raises:
        UnsupportedFormatError: An operator has channel state, and an operator is to be rescaled.
    """
    before = list(before)
    moved = any(
        (operator.parallelism, operator.max_parallelism) != shape
        for operator, shape in zip(before, after, strict=True)
    )
    for operator in before if moved else ():
        for index, subtask in (operator.subtasks or {}).items():
            if subtask.inputs or subtask.outputs:
                raise UnsupportedFormatError(
                    "records in flight, which only Flink can move to another parallelism",
                    place=f"operator {operator.uid or operator.operator_id}, subtask {index}",
                    remedy="keep parallelism and max parallelism, and let Flink rescale it;"
                    " or lose them: --drop-channel-state",
                )
