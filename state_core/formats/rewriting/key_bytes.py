"""Keys of rows as bytes, without namespaces and user keys, to select rows."""

from __future__ import annotations

import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.layout.keyed_layout import (
    KEY,
    RAW_KEY,
    KeyedLayout,
    RowPart,
    RowWriter,
)
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.framework.columns import ALL_PRESENT


def key_bytes(rows: StateRows) -> pa.LargeBinaryArray:
    """Return each row's key, as from `encode_keys`.

    Raises:
        EncodeError: The key's end can't be found.
    """
    layout, raw = rows.layout, rows.batch.column(RAW_KEY)
    if layout.opaque_key:
        raise EncodeError(
            f"keys of type {layout.key.name}, whose end only the job knows",
            place=f"state {rows.name!r}",
            remedy="choose rows by a predicate on the exact bytes instead",
        )
    part = RowPart(layout.key, rows.batch.column(KEY))
    if raw.null_count == len(raw):
        return RowWriter([part], len(raw), ALL_PRESENT, None).to_binary()
    exact = layout.key_writer(rows.batch).exact
    keys = [_key_in(layout, key.as_py()) if key.is_valid else None for key in raw]
    return RowWriter([part], len(raw), exact, pa.array(keys, pa.binary())).to_binary()


def _key_in(layout: KeyedLayout, data: bytes) -> bytes:
    """Return the key within the exact bytes of a key, its namespace and the rest."""
    source = DataInput(data, RAW_KEY)
    if layout.kind is StateKind.TIMERS:
        source.read_long()
    start = source.position
    if not layout.key.self_delimiting:
        return data[start : len(data) - layout.namespace.wire_length]
    layout.key.skip(source)
    return data[start : source.position]
