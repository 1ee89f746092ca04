"""Check of records in flight: every buffer exists, and its elements can be separated.

Damage in one channel breaks a stream of records that other channels continue, so channel state is
kept as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping

from statelake.state_core.checks.integrity.findings import FaultKind, Findings, Place
from statelake.state_core.errors import CorruptSnapshotError, StateError
from statelake.state_core.formats.channels import channels_among, read_channels
from statelake.state_core.formats.metadata.checkpoint_metadata import CheckpointMetadata
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.model.channels import Channel


def examine_channels(
    metadata: CheckpointMetadata, labels: Mapping[str, str], files: StateFiles, found: Findings
) -> bool:
    """Note the faults of channel state; return whether it has no fault.

    Args:
        metadata: The snapshot's `_metadata`.
        labels: The labels of operators, by their ids.
        files: The snapshot's files.
        found: Collects the findings.
    """
    channels = channels_among(metadata.operators, files.open, labels)
    noted: set[str] = set()
    places: set[tuple[str, str]] = set()
    for channel in channels:
        found.checked.size += channel.size
        where = Place(channel.operator, channel.subtask)
        try:
            _refuse_twice(channel, places)
            channel.buffers()
        except StateError as error:
            if str(error) not in noted:
                noted.add(str(error))
                found.fault(FaultKind.FILE, where, error)
    found.checked.handles += len({channel.file for channel in channels})
    if noted:
        for channel in channels:
            where = Place(channel.operator, channel.subtask)
            found.lose(where, "records in flight: some are damaged", size=channel.size)
        return False
    for elements in read_channels(channels):
        where = Place(elements.channel.operator)
        if elements.whole:
            found.skip(where, "values of records in flight, whose type no snapshot says")
        else:
            found.skip(where, "records in flight that can't be told apart")
    return True


def _refuse_twice(channel: Channel, places: set[tuple[str, str]]) -> None:
    """Refuse a duplicate channel, as Flink does, since the order of its buffers is unknown."""
    place = channel.operator_id, channel.place
    if place in places:
        raise CorruptSnapshotError(
            "a channel that is named twice",
            place=channel.place,
            remedy="Flink does not restore it: take another checkpoint, or salvage this one",
        )
    places.add(place)
