"""Serializers of users' own, whose snapshots have payloads of unknown length: they stay bytes."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from statelake import open_snapshot
from statelake.state_core.errors import UnwalkableError
from statelake.state_core.files.wire import DataOutput
from statelake.state_core.formats.layout.keyed_states import parse_keyed_state
from statelake.state_core.formats.layout.meta_info import (
    parse_state_meta_info,
    write_state_meta_info,
)
from statelake.state_core.integrity import check_snapshot
from statelake.state_core.model.snapshot import Operator
from tests.support.savepoints.own_savepoint import FORMS, OWN_CLASSES, own_lines, own_savepoint


def own_operator(form: str, work: Path) -> Operator:
    """The operator whose types are its own."""
    return open_snapshot(own_savepoint(form, work / "sp")).operator("own")


def money(text: str) -> bytes:
    """`MoneySerializer`: cents, currency."""
    cents, currency = text.split(" ")
    raw = currency.encode()
    return struct.pack(">qH", int(cents), len(raw)) + raw


def ranges(values: list[list[int]]) -> bytes:
    """`RangeSerializer`, for each element of a list state, with its delimiters."""
    each = (struct.pack(f">B{len(value)}q", len(value), *value) for value in values)
    return b",".join(each)


def rows(operator: Operator, state: str) -> dict[Any, Any]:
    """The values of a state by key, and by user key if it is a map."""
    found = operator.state(state).to_arrow().to_pylist()
    return {(row["key"], row.get("user_key")): row["value"] for row in found}


@pytest.mark.parametrize("form", FORMS)
def test_every_place_that_a_class_of_ones_own_can_have(form: str, tmp_path: Path) -> None:
    """Values are exact bytes under the class's name; what is known beside them stays typed."""
    operator = own_operator(form, tmp_path)
    types = {keyed_state.name: keyed_state.value_type for keyed_state in operator.keyed_states}
    assert types["count"] == "Long"
    for state, java_class in OWN_CLASSES.items():
        assert types[state] == f"binary ({java_class})"
    for line in own_lines():
        key = line["key"]
        assert rows(operator, "count")[key, None] == line["count"]
        assert rows(operator, "money")[key, None] == money(line["money"])
        held = rows(operator, "ranges").get((key, None), b"")
        assert held == ranges(line["ranges"])
        name, _, price = line["named"][1:-1].partition(",")
        written = struct.pack(">H", len(name)) + name.encode() + money(price)
        assert rows(operator, "named")[key, None] == written
    ledger = rows(operator, "ledger")
    assert ledger == {
        (line["key"], name): money(text)
        for line in own_lines()
        for name, text in line["ledger"].items()
    }


@pytest.mark.parametrize("form", FORMS)
def test_operator_state(form: str, tmp_path: Path) -> None:
    """Elements of a list state, compressed or not; each is a piece of bytes of its own."""
    (seen,) = own_operator(form, tmp_path).operator_states
    assert seen.value_type == "binary (OwnTypeJobs$RangeSnapshot)"
    elements = [bytes(piece) for part in seen.parts for piece in part.encoded()]
    expected = {struct.pack(">B2q", 2, index, index + 1) for index in range(0, 40, 10)}
    assert set(elements) == expected
    assert len(elements) == len(expected)


@pytest.mark.parametrize("form", FORMS)
def test_integrity_is_checked_to_the_last_byte(form: str, tmp_path: Path) -> None:
    """Entries have lengths of their own, so that no class needs to be known."""
    report = check_snapshot(str(own_savepoint(form, tmp_path / "sp")))
    assert report.faults == ()


def test_meta_infos_are_written_back_as_they_were(tmp_path: Path) -> None:
    """And read again from their bytes alone, as a lake has them."""
    operator = own_operator("canonical", tmp_path)
    key = operator.keyed_files[0].key_serializer
    for state in operator.keyed_states:
        out = DataOutput()
        write_state_meta_info(parse_state_meta_info(state.meta_info), out)
        assert out.to_bytes() == state.meta_info
        assert parse_keyed_state(state.meta_info, key)[0].value_type == state.value_type


def test_the_heap_format_needs_to_know_where_a_value_ends(tmp_path: Path) -> None:
    """Of lists with several elements nothing says it: the error names them, and what to do."""
    operator = own_operator("native", tmp_path)
    lost = set()
    for file in operator.keyed_files:
        with pytest.raises(UnwalkableError, match="only their class knows") as found:
            list(file.entries())
        assert "OwnTypeJobs$" in str(found.value)
        assert "canonical" in found.value.remedy
        lost |= found.value.states
    assert "count" not in lost
    for name in lost:
        with pytest.raises(UnwalkableError, match="not all entries are found of state"):
            operator.state(name).to_arrow()
    assert len(rows(operator, "count")) == 40
