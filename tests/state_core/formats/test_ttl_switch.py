"""Time to live switched: the bytes that Flink's own TTL states have, of every kind of state."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake import open_snapshot
from statelake.state_core.errors import EncodeError, IncompatibleError
from statelake.state_core.files.wire import DataOutput
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.layout.keyed_states import has_ttl, with_ttl_bytes
from statelake.state_core.formats.layout.meta_info import parse_state_meta_info
from statelake.state_core.formats.rewriting.ttl_switch import switch_off, switch_on
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.basic.numbers import LongSerializer
from statelake.state_core.serializers.basic.text import StringSerializer
from statelake.state_core.serializers.basic.times import InstantSerializer
from statelake.state_core.serializers.composite.pojo import PojoSerializer
from statelake.state_core.serializers.composite.wrappers import VoidNamespaceSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer
from tests.support.savepoints.golden_cases import GOLDEN
from tests.support.serializers.serializer_columns import write

LONG, TEXT = LongSerializer(), StringSerializer()
SEEN = PojoSerializer("acme.P", [("at", LONG), ("name", TEXT), ("when", InstantSerializer())])
NOW = 1_700_000_000_123
SAVEPOINTS = [
    found.parent
    for place in ("flink", "old", "forst", "kryo")
    for found in sorted((GOLDEN / place).rglob("_metadata"))
]
VALUES, LISTS, MAPS = StateKind.VALUE, StateKind.LIST, StateKind.MAP

texts = st.text(st.characters(exclude_categories=()), max_size=4)  # lone surrogates too
entries = st.lists(st.lists(texts, min_size=1, max_size=3), min_size=1, max_size=5)


def rows_of(kind: StateKind, value: TypeSerializer, stored: list[bytes]) -> StateRows:
    """Rows of a state whose entries have these value bytes; the keys are 0, 1, and so on."""
    user_key = TEXT if kind is MAPS else None
    layout = KeyedLayout(kind, LONG, VoidNamespaceSerializer(), value, user_key)
    keys = [
        write(LONG, index) + b"\0" + (write(TEXT, "u") if user_key else b"")
        for index in range(len(stored))
    ]
    parts = [part for pair in zip(keys, stored, strict=True) for part in pair]
    ends = np.cumsum([0, *map(len, parts)]).astype(np.int64)
    found = Entries(
        data=np.frombuffer(b"".join(parts), np.uint8),
        state_of=np.zeros(len(stored), np.int16),
        group_of=np.zeros(len(stored), np.int64),
        key_start=ends[:-1:2].copy(),
        key_end=ends[1::2].copy(),
        value_start=ends[1::2].copy(),
        value_end=ends[2::2].copy(),
        place=lambda at: f"byte {at}",
    )
    return StateRows(0, "s", layout, layout.decode(found))


def stored_by(rows: StateRows) -> list[bytes]:
    """The value bytes of each row."""
    found: list[bytes] = rows.layout.value_writer(rows.batch).to_binary().to_pylist()
    return found


def stored_form(kind: StateKind, values: list[str], time: int | None) -> bytes:
    """The bytes that Flink stores for an entry; a value, and a map's, is the first."""
    out = DataOutput()
    for index, value in enumerate(values if kind is LISTS else values[:1]):
        out.write_bytes(b"," if index else b"\0" if kind is MAPS else b"")
        if time is not None:
            out.write_long(time)
        out.write_bytes(write(TEXT, value))
    return out.to_bytes()


@pytest.mark.parametrize("kind", [VALUES, LISTS, MAPS], ids=lambda kind: kind.name)
@given(held=entries)
def test_each_value_gets_the_time_of_its_last_access_and_loses_it(
    kind: StateKind, held: list[list[str]]
) -> None:
    """Bit by bit, whether columns or exact bytes hold it; a list's elements have one each."""
    bare = [stored_form(kind, values, None) for values in held]
    switched = switch_on(rows_of(kind, TEXT, bare), NOW)
    assert stored_by(switched) == [stored_form(kind, values, NOW) for values in held]
    assert stored_by(switch_off(switched)) == bare


def test_a_null_of_a_map_has_a_time_too() -> None:
    """It is a value without a flag then; back it is a flag again."""
    switched = switch_on(rows_of(MAPS, TEXT, [b"\1", b"\1\0"]), 5)
    assert stored_by(switched) == [b"\0" + (5).to_bytes(8, "big") + b"\0"] * 2
    assert stored_by(switch_off(switched)) == [b"\1", b"\1"]


def test_a_null_that_its_serializer_can_not_write_is_refused() -> None:
    """It is not made invisible."""
    with pytest.raises(EncodeError):
        stored_by(switch_on(rows_of(MAPS, LONG, [b"\1"]), NOW))


def seen(at: int | None, name: str, when: datetime | None = None) -> bytes:
    """A POJO's bytes."""
    return write(SEEN, {"at": at, "name": name, "when": when})


@pytest.mark.parametrize("kind", [VALUES, LISTS], ids=lambda kind: kind.name)
def test_a_field_of_the_values_has_the_times(kind: StateKind) -> None:
    """Milliseconds; of a list each element's own, odd ones among them."""
    rows = rows_of(kind, SEEN, [seen(7, "a"), seen(-9, "x\ud800")])
    switched = switch_on(rows, "at")
    times = [row[0] if isinstance(row, list) else row for row in times_of(switched)]
    assert times == [7, -9]
    assert stored_by(switched) == [
        time.to_bytes(8, "big", signed=True) + value
        for time, value in zip([7, -9], stored_by(rows), strict=True)
    ]


def test_a_field_of_a_type_of_dates_has_the_times() -> None:
    """In milliseconds, what is finer being cut off."""
    moment = datetime(2023, 11, 14, 22, 13, 20, 123_456, timezone.utc)
    rows = rows_of(VALUES, SEEN, [seen(7, "a", moment)])
    assert times_of(switch_on(rows, "when")) == [NOW]


def times_of(rows: StateRows) -> list[Any]:
    """The column of times."""
    found: list[Any] = rows.batch.column("ttl").to_pylist()
    return found


@pytest.mark.parametrize(
    ("name", "said"),
    [("on", "no field 'on'"), ("at.x", "no field 'at.x'"), ("name", "'name' is string")],
)
def test_a_field_without_times_is_refused(name: str, said: str) -> None:
    """By its name, before anything is written."""
    with pytest.raises(IncompatibleError, match=said):
        switch_on(rows_of(VALUES, SEEN, [seen(7, "a")]), name)


def test_a_value_whose_time_is_null_is_refused() -> None:
    """There is no time that nobody chose."""
    with pytest.raises(EncodeError, match="1 values whose at is null"):
        switch_on(rows_of(VALUES, SEEN, [seen(7, "a"), seen(None, "b")]), "at")


def test_elements_of_unknown_size_are_refused() -> None:
    """There is no telling where the next one's time would be."""
    with pytest.raises(IncompatibleError, match="end of a list's elements"):
        switch_on(rows_of(LISTS, OpaqueSerializer("acme.Odd"), [b"abc"]), NOW)


@pytest.mark.parametrize("savepoint", SAVEPOINTS, ids=lambda path: str(path.relative_to(GOLDEN)))
def test_the_type_of_a_state_is_what_flink_registers(savepoint: Path) -> None:
    """Off and on again, and on and off: each byte is Flink's, from 1.8 to 2.3."""
    for operator in open_snapshot(str(savepoint)).operators:
        for state in operator.keyed_states:
            if state.kind is StateKind.TIMERS:
                continue
            is_on = has_ttl(parse_state_meta_info(state.meta_info))
            assert is_on == state.with_ttl
            switched = with_ttl_bytes(state.meta_info, on=not is_on)
            assert has_ttl(parse_state_meta_info(switched)) != is_on
            assert with_ttl_bytes(switched, on=is_on) == state.meta_info
