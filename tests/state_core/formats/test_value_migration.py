"""Rows under a new type: exact bytes beside values go along, and an edit is not undone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake import NewOperatorState
from statelake.state_core.errors import EncodeError
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.operator_state.operator_reader import parse_operator_state
from statelake.state_core.formats.operator_state.operator_states import ElementRows, OperatorLayout
from statelake.state_core.formats.rewriting.value_migration import (
    exact_values,
    migrate_rows,
    resolve_element,
    validate_rows,
)
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.model.handles import DistributionMode
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers import Decoder, register_decoder
from statelake.state_core.serializers.basic.numbers import LongSerializer
from statelake.state_core.serializers.basic.text import StringSerializer
from statelake.state_core.serializers.composite.evolution import migrate_value, resolve_decoded
from statelake.state_core.serializers.composite.pojo import PojoSerializer
from statelake.state_core.serializers.composite.wrappers import VoidNamespaceSerializer
from statelake.state_core.serializers.framework import opaque_values
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import Cursor
from statelake.state_core.serializers.type_spec import parse_type
from tests.support.savepoints.held_by_snapshots import encoded
from tests.support.savepoints.kryo_savepoint import CAR, kryo_snapshot
from tests.support.serializers.serializer_columns import write

LONG, TEXT = LongSerializer(), StringSerializer()
OLD = PojoSerializer("acme.P", [("gone", LONG), ("name", TEXT)])
NEW = PojoSerializer("acme.P", [("more", LONG), ("name", TEXT)])
ODD = "x\ud800yy"
MODES = (DistributionMode.SPLIT_DISTRIBUTE, DistributionMode.UNION, DistributionMode.BROADCAST)

every_mode = pytest.mark.parametrize("mode", MODES, ids=lambda case: case.name)
values = st.fixed_dictionaries(
    {
        "gone": st.integers(-(2**63), 2**63 - 1),
        "name": st.none() | st.text(st.characters(exclude_categories=()), max_size=4),
    }
)


def value(name: str | None, gone: int = 3) -> dict[str, Any]:
    """A value of the old type."""
    return {"gone": gone, "name": name}


def layout_of(mode: DistributionMode, serializer: TypeSerializer) -> OperatorLayout:
    """A list, or a broadcast state by text."""
    return OperatorLayout(mode, serializer, TEXT if mode is DistributionMode.BROADCAST else None)


def columns(serializer: TypeSerializer, encoded: list[bytes]) -> tuple[pa.Array, pa.Array]:
    """Typed values, and the exact bytes of those that need them."""
    bounds = np.cumsum([0, *map(len, encoded)]).astype(np.int64)
    data = np.frombuffer(b"".join(encoded), np.uint8)
    cursor = Cursor(data, bounds[:-1].copy(), bounds[1:].copy(), lambda at: f"byte {at}")
    typed = serializer.decode(cursor)
    again = [write(serializer, value) for value in typed.to_pylist()]
    raw = [before if before != back else None for before, back in zip(encoded, again, strict=True)]
    return typed, pa.array(raw, pa.binary())


def rows_of(layout: OperatorLayout, held: list[dict[str, Any]]) -> pa.RecordBatch:
    """The rows of some values, and keys that only their bytes hold."""
    count = len(held)
    typed, raw = columns(layout.value, [write(layout.value, value) for value in held])
    if layout.key is None:
        places = [pa.array([0] * count, pa.int32()), pa.array(range(count), pa.int64())]
        return pa.RecordBatch.from_arrays([*places, typed, raw], schema=layout.schema)
    keys, raw_keys = columns(TEXT, [write(TEXT, f"{index}\udc00") for index in range(count)])
    return pa.RecordBatch.from_arrays([keys, typed, raw_keys, raw], schema=layout.schema)


def migrated(rows: pa.RecordBatch, layout: OperatorLayout) -> pa.RecordBatch:
    """Rows of a state with values of the new type."""
    return migrate_rows(ElementRows("s", layout, rows), NEW).batch


@every_mode
@given(held=st.lists(values, max_size=5))
def test_every_element_becomes_what_flink_makes_of_it(
    mode: DistributionMode, held: list[dict[str, Any]]
) -> None:
    """Read with the old serializer and written with the new one, whatever its column can hold."""
    old, new = layout_of(mode, OLD), layout_of(mode, NEW)
    rows = rows_of(old, held)
    moved = migrated(rows, old)
    validate_rows(ElementRows("s", new, moved))
    expected = [write(NEW, migrate_value(OLD, NEW, value)) for value in held]
    assert [data for _, data in new.pairs(moved)] == expected
    assert [key for key, _ in new.pairs(moved)] == [key for key, _ in old.pairs(rows)]


@every_mode
def test_an_edited_element_is_migrated_as_it_is_now(mode: DistributionMode) -> None:
    """The bytes beside it say what it was, and no more."""
    old, new = layout_of(mode, OLD), layout_of(mode, NEW)
    rows = rows_of(old, [value(ODD), value(ODD)])
    typed = rows.column("value").to_pylist()
    edited = pa.array([value("new"), typed[1]], OLD.arrow_type)
    rows = rows.set_column(rows.schema.get_field_index("value"), "value", edited)
    assert exact_values(ElementRows("s", old, rows)).to_pylist() == [False, True]
    moved = migrated(rows, old)
    kept = [{"more": 0, "name": name} for name in ("new", ODD)]
    assert [data for _, data in new.pairs(moved)] == [write(NEW, value) for value in kept]


def test_an_edited_keyed_value_is_migrated_as_it_is_now() -> None:
    """The same of keyed state."""
    old, new = (
        KeyedLayout(StateKind.VALUE, LONG, VoidNamespaceSerializer(), serializer)
        for serializer in (OLD, NEW)
    )
    typed, raw = columns(OLD, [write(OLD, value(ODD))] * 2)
    held = {
        "key_group": pa.array([0, 0], pa.int32()),
        "key": pa.array([1, 2], pa.int64()),
        "namespace": pa.nulls(2, old.schema.field("namespace").type),
        "value": pa.array([value("new"), typed[1].as_py()], OLD.arrow_type),
        "raw_key": pa.nulls(2, pa.binary()),
        "raw_value": raw,
    }
    arrays = [held[name] for name in old.schema.names]
    batch = pa.RecordBatch.from_arrays(arrays, schema=old.schema)
    moved = migrate_rows(StateRows(0, "s", old, batch), NEW)
    kept = [{"more": 0, "name": name} for name in ("new", ODD)]
    assert new.value_writer(moved.batch).to_binary().to_pylist() == [
        write(NEW, value) for value in kept
    ]


@pytest.mark.parametrize("mode", MODES[:2], ids=lambda case: case.name)
def test_a_list_holds_no_null(mode: DistributionMode) -> None:
    """Flink would refuse it at the restore, though a POJO's serializer could write it."""
    layout = layout_of(mode, NEW)
    row = {"subtask": 0, "position": 0, "value": None, "raw_value": None}
    batch = pa.RecordBatch.from_pylist([row], layout.schema)
    with pytest.raises(EncodeError, match="row 0 has no element"):
        layout.encode(batch)


def test_a_broadcast_state_may() -> None:
    """Its map takes a null as a value."""
    layout = layout_of(DistributionMode.BROADCAST, NEW)
    row = {"key": "k", "value": None, "raw_key": None, "raw_value": None}
    batch = pa.RecordBatch.from_pylist([row], layout.schema)
    validate_rows(ElementRows("s", layout, batch))
    assert layout.pairs(batch) == [(write(TEXT, "k"), b"\x01")]


def test_what_only_exact_bytes_hold_must_come_back() -> None:
    """Bytes that are not what the old serializer would write are named, not guessed."""
    old = layout_of(DistributionMode.UNION, OLD)
    rows = rows_of(old, [value(ODD)])
    longer = rows.column("raw_value")[0].as_py() + b"\0"
    rows = rows.set_column(3, "raw_value", pa.array([longer], pa.binary()))
    typed = pa.RecordBatch.from_arrays(rows.columns, schema=old.schema)
    with pytest.raises(EncodeError, match="only its exact bytes hold"):
        migrated(typed, old)


class Ids(Decoder):
    """Of each value, its number."""

    arrow_type = pa.struct({"id": pa.int64()})

    def decode(self, data: bytes) -> Any:
        """The first eight bytes."""
        return {"id": int.from_bytes(data[:8], "big")}


def test_decoders_are_not_asked_for_operator_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Kryo wrote stays bytes there, whoever could read it: no way leads to another type."""
    monkeypatch.setattr(opaque_values, "_decoders", {})
    register_decoder(CAR, Ids())
    info = encoded(NewOperatorState("s", (), "union", kryo_snapshot()).meta_info())
    wanted = parse_type({"pojo": "P", "fields": {"id": "long"}})
    assert resolve_decoded(wanted, kryo_snapshot()).usable
    assert not resolve_element(info, wanted).usable
    assert parse_operator_state(info)[1].value.arrow_type == pa.binary()
