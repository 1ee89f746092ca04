"""Operator state under a new type: of a list's elements, or of a broadcast state's values.

Flink reads operator state into memory with the old serializer, and its next snapshot is written
with the new one. Subtasks, positions and a broadcast state's keys stay as they are. What comes out
is encoded, decoded and encoded again, and must be the same. As everywhere in operator state, no
decoders of users are asked.

Source: `DefaultOperatorStateBackend`, `OperatorStateRestoreOperation` and
`DefaultOperatorStateBackendSnapshotStrategy` in `org.apache.flink.runtime.state`.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from state_core.errors import EncodeError
from state_core.files.wire import DataOutput
from state_core.formats.layout.meta_info import (
    VALUE_SERIALIZER,
    StateMetaInfo,
    parse_state_meta_info,
    serializer_entry,
    write_state_meta_info,
)
from state_core.formats.operator_state.operator_states import (
    RAW_VALUE,
    VALUE,
    OperatorLayout,
    operator_layout,
)
from state_core.formats.rewriting.value_migration import (
    binary_cursor,
    current_exact,
    migrate_bytes,
    migrate_exact,
)
from state_core.serializers.composite.evolution import migrate_column
from state_core.serializers.framework.base import TypeSerializerSnapshot
from state_core.serializers.framework.compatibility import Compatibility
from state_core.serializers.opaque.decoders import undecoded
from state_core.serializers.type_spec import TypeSpec, parse_type

__all__ = [
    "element_layout",
    "exact_elements",
    "migrate_elements",
    "resolve_element",
    "validate_elements",
    "with_element",
    "with_element_bytes",
]


def resolve_element(meta_info: bytes, value: TypeSerializerSnapshot) -> Compatibility:
    """Whether the elements of a list, or the values of a broadcast state, can follow.

    Args:
        meta_info: As in `NonKeyedState.meta_info`.
        value: Their new type.
    """
    before = parse_state_meta_info(meta_info).serializers[VALUE_SERIALIZER].snapshot
    with undecoded():
        return value.resolve_schema_compatibility(before)


def with_element(state: StateMetaInfo, value: TypeSerializerSnapshot) -> StateMetaInfo:
    """The same list with other elements, or the same broadcast state with other values."""
    entries = {**state.serializers, VALUE_SERIALIZER: serializer_entry(value)}
    return replace(state, serializers=entries)


def with_element_bytes(meta_info: bytes, value: TypeSerializerSnapshot) -> bytes:
    """The same for meta info as it stands in a file."""
    out = DataOutput()
    write_state_meta_info(with_element(parse_state_meta_info(meta_info), value), out)
    return out.to_bytes()


def element_layout(meta_info: bytes, spec: TypeSpec | None = None) -> OperatorLayout:
    """The layout of a state's rows, which a spec may say more of than the snapshot.

    Args:
        meta_info: As in `NonKeyedState.meta_info`.
        spec: How the type of its elements or values was written down.
    """
    with undecoded():
        layout = operator_layout(parse_state_meta_info(meta_info))
        if spec is None:
            return layout
        return replace(layout, value=parse_type(spec).restore_serializer())


def exact_elements(batch: pa.RecordBatch, layout: OperatorLayout) -> int:
    """How many values only their exact bytes hold."""
    raw = current_exact(batch.column(RAW_VALUE), layout.value_writer(batch).exact)
    return len(raw) - int(raw.null_count)


def migrate_elements(
    batch: pa.RecordBatch, old: OperatorLayout, new: OperatorLayout, state: str
) -> pa.RecordBatch:
    """The same rows in another layout, which differs in the value's serializer only.

    Args:
        batch: The rows as they were.
        old: Their layout.
        new: What it is to be.
        state: The state's name, for messages.

    Raises:
        EncodeError: A value that only exact bytes hold can't be carried over.
    """
    column = migrate_column(old.value, new.value, batch.column(VALUE))
    raw = current_exact(batch.column(RAW_VALUE), old.value_writer(batch).exact)
    if raw.null_count < len(raw):
        column, raw = migrate_exact(
            column,
            raw,
            lambda data: migrate_bytes(old.value, new.value, data, state),
            new.value.decode,
        )
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns |= {VALUE: column, RAW_VALUE: raw}
    arrays = [columns[name] for name in new.schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=new.schema)


def validate_elements(batch: pa.RecordBatch, layout: OperatorLayout, state: str) -> None:
    """Read every element back from the bytes that it becomes, and write it again.

    Raises:
        EncodeError: An element can't be written, or comes back as another.
    """
    first = layout.value_writer(batch).to_binary()
    cursor = binary_cursor(first)
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns[VALUE] = layout.value.decode(cursor)
    cursor.check_at_end()
    read = pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)
    again = layout.value_writer(read).to_binary()
    if not again.equals(first):
        row = next(i for i in range(len(again)) if again[i] != first[i])
        raise EncodeError(
            f"the migrated value of row {row} does not come back as it was written",
            place=f"operator state {state!r}",
        )
