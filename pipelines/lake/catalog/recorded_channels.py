"""Channels with in-flight records of a snapshot in a lake, from its unmanaged state."""

from __future__ import annotations

from statelake.pipelines.lake.catalog.unmanaged_state import unmanaged_metadata, unmanaged_source
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.channels import channels_among
from statelake.state_core.model.channels import Channel


def recorded_channels(lake: Directory, record: SnapshotRecord) -> list[Channel]:
    """Return the channels of a snapshot that have in-flight records.

    Args:
        lake: The lake's directory.
        record: The snapshot.

    Raises:
        LakeError: The carried `_metadata` can't be read.
    """
    operators = unmanaged_metadata(record).operators
    labels = {operator.operator_id: operator.label for operator in record.operators}
    return channels_among(operators, lambda handle: unmanaged_source(handle, lake), labels)
