"""Conversion of values of Flink 1's Kryo to Flink 2's, which Flink itself can't do.

Objects are read with their references and written again, so that shared objects stay shared.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TypeVar

import pyarrow as pa

from statelake.state_core.errors import StateError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.operator_state.operator_states import ElementRows
from statelake.state_core.formats.rewriting.value_migration import (
    TTL_BYTES,
    rewrite_entry,
    rewritten_rows,
)
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.serializers.framework.decoders import undecoded
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer
from statelake.state_core.serializers.kryo.snapshot import KryoSerializerSnapshot
from statelake.state_core.serializers.kryo.wire import KryoVersion

Rows = TypeVar("Rows", StateRows, ElementRows)


def upgrade_rows(rows: Rows, before: KryoSerializerSnapshot) -> Rows:
    """Rewrite the values of a state for Flink 2; keys and times stay.

    Args:
        rows: The rows, whose values (elements, a map's values) Flink 1 wrote.
        before: The serializer of these values.

    Raises:
        StateError: A value can't be parsed, or Flink 2 has no form for it.
    """
    older, newer = before.values(KryoVersion.FLINK_1), before.values(KryoVersion.FLINK_2)

    with_ttl = isinstance(rows, StateRows) and rows.layout.with_ttl

    def upgraded(source: DataInput) -> bytes:
        time = source.read_bytes(TTL_BYTES * with_ttl)
        item = older.read_next(source, KryoVersion.FLINK_1)
        return time + newer.write(item, KryoVersion.FLINK_2)

    stored = rows.layout.value_writer(rows.batch).to_binary()
    values = []
    for row, data in enumerate(stored.to_pylist()):
        source = DataInput(data, f"state {rows.name!r}, row {row}")
        try:
            values.append(rewrite_entry(source, rows.layout.kind, upgraded))
        except StateError as error:
            raise error.within(f"state {rows.name!r}, row {row}") from error
    plain = isinstance(rows.layout.value, OpaqueSerializer)
    with undecoded() if plain else nullcontext():
        serializer = before.for_flink_2().restore_serializer()
    return rewritten_rows(rows, serializer, pa.array(values, pa.large_binary()))
