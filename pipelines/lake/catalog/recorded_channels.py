"""Channels with in-flight records of a snapshot in a lake, from its unmanaged state."""

from __future__ import annotations

from statelake.pipelines.lake.catalog.unmanaged_state import unmanaged_metadata, unmanaged_source
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.state_core.errors import NotFoundError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.channels import channels_among
from statelake.state_core.formats.layout.keyed_states import parse_keyed_state
from statelake.state_core.formats.operator_state.operator_reader import parse_operator_state
from statelake.state_core.model.channels import Channel
from statelake.state_core.serializers.framework.base import TypeSerializer


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


def recorded_value(record: SnapshotRecord, operator: str, state: str) -> TypeSerializer:
    """Return the serializer of a state's values, or of a list's elements.

    Raises:
        NotFoundError: There is no such operator or state, or it has no values.
    """
    for owner in record.operators:
        if operator not in (*owner.labels, owner.name):
            continue
        for other in owner.operator_states:
            if other.name == state:
                return parse_operator_state(other.meta_info)[1].value
        for keyed in owner.states:
            value = parse_keyed_state(keyed.meta_info, owner.key_serializer)[1].value
            if keyed.name == state and value is not None:
                return value
    raise NotFoundError(f"no state {state!r} with values in operator {operator!r}")
