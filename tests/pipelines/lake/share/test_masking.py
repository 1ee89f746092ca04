"""Masked columns: whatever is nested, wherever they begin, nulls and shapes stay as they are."""

from __future__ import annotations

import pickle
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.pipelines.lake.share.ciphers import Cipher
from statelake.pipelines.lake.share.masking import MaskRule, check_rule, masked
from statelake.pipelines.lake.share.sharing import SampleAndMasks
from statelake.state_core.errors import EncodeError

CIPHER = Cipher(b"0123456789abcdef")
PERSON = pa.struct([
    ("name", pa.string()), ("age", pa.int32()), ("vip", pa.bool_()),
    ("tags", pa.list_(pa.string())),
    ("prices", pa.map_(pa.string(), pa.struct([("net", pa.decimal128(12, 2))]))),
])  # fmt: skip
names = st.none() | st.text(max_size=6)
people = st.none() | st.fixed_dictionaries({
    "name": names,
    "age": st.none() | st.integers(0, 120),
    "vip": st.booleans(),
    "tags": st.none() | st.lists(names, max_size=3),
    "prices": st.none() | st.lists(
        st.tuples(
            st.text(max_size=4),
            st.none() | st.fixed_dictionaries({"net": st.none() | st.decimals(0, 10**9, places=2)}),
        ),
        max_size=3, unique_by=lambda pair: pair[0],
    ),
})  # fmt: skip


def rule(path: str, how: str = "format", constant: Any = None) -> MaskRule:
    """A rule of a part: `tags []`."""
    return MaskRule("value", tuple(path.split()), how, constant)


@given(st.lists(people, max_size=12), st.integers(0, 3), st.integers(0, 3))
def test_a_part_is_masked_and_nothing_else(rows: list[Any], head: int, tail: int) -> None:
    """Each name by itself gives the same as in a column, also one that is a slice of another."""
    column = pa.array(rows, PERSON).slice(head, max(0, len(rows) - head - tail))
    rows = column.to_pylist()
    for path, change in (
        ("name", lambda row: {"name": text(row["name"])}),
        ("tags []", lambda row: {"tags": row["tags"] and [text(tag) for tag in row["tags"]]}),
        (
            "prices [] key",
            lambda row: {"prices": row["prices"] and [(text(k), v) for k, v in row["prices"]]},
        ),
        (
            "prices [] value net",
            lambda row: {"prices": row["prices"] and [(k, net(v)) for k, v in row["prices"]]},
        ),
    ):
        check_rule(rule(path), PERSON)
        made = masked(column, rule(path), CIPHER)
        made.validate(full=True)
        assert made.type == PERSON
        assert made.to_pylist() == [row and row | change(row) for row in rows]


def text(value: str | None) -> str | None:
    """A masked text."""
    return None if value is None else CIPHER.text(value)


def net(value: Any) -> Any:
    """A masked price."""
    if value is None or value["net"] is None:
        return value
    return {"net": Decimal(CIPHER.unscaled(int(value["net"] * 100))) / 100}


@given(st.lists(people, max_size=12))
def test_null_and_constants(rows: list[Any]) -> None:
    """What is not there stays so; all else says the same."""
    column = pa.array(rows, PERSON)
    gone = masked(column, rule("name", "null"), CIPHER)
    assert gone.to_pylist() == [row and row | {"name": None} for row in rows]
    same = masked(column, rule("tags []", "constant", "x"), CIPHER)
    assert same.to_pylist() == [
        row
        and row | {"tags": row["tags"] and [None if tag is None else "x" for tag in row["tags"]]}
        for row in rows
    ]
    assert masked(column, rule("", "null"), CIPHER).null_count == len(rows)


VALUES = {
    "format": [
        (pa.string(), "alice"), (pa.int8(), 17), (pa.int64(), 10**12), (pa.float32(), 1.5),
        (pa.float64(), -2.25), (pa.decimal128(20, 3), Decimal("123.456")), (pa.binary(), b"abcdef"),
        (pa.binary(4), b"abcd"), (pa.date32(), date(2026, 2, 28)),
        (pa.timestamp("us"), datetime(2026, 2, 28, 1, 2, 3)),  # noqa: DTZ001 - without a zone
        (pa.timestamp("ms", "UTC"), datetime(2026, 2, 28, 1, 2, 3, 5000, timezone.utc)),
        (pa.timestamp("ns"), datetime(2026, 2, 28, 1, 2, 3, 5)),  # noqa: DTZ001 - without a zone
        (pa.time64("us"), datetime(2026, 2, 28, 1, 2, 3, 5).time()),  # noqa: DTZ001
        (pa.list_(pa.int16()), [300, None]),
    ],
    "hash": [(pa.string(), "alice"), (pa.int32(), 17), (pa.binary(), b"abcdef")],
}  # fmt: skip


@pytest.mark.parametrize(
    ("how", "kind", "value"), [(how, *case) for how, cases in VALUES.items() for case in cases]
)
def test_values_of_each_type(how: str, kind: pa.DataType, value: Any) -> None:
    """Of that type, another, the same one each time; null stays null."""
    check_rule(rule("", how), kind)
    made = masked(pa.array([value, None, value], kind), rule("", how), CIPHER)
    made.validate(full=True)
    first, nothing, again = made.to_pylist()
    assert nothing is None
    assert first == again != value


@pytest.mark.parametrize(
    ("said", "kind", "problem"),
    [
        (rule(""), pa.bool_(), "a boolean can't be masked by format"),
        (rule(""), PERSON, "a boolean can't be masked by format"),
        (rule("", "hash"), pa.date32(), "date32.* can't be masked by hash"),
        (rule("", "hash"), pa.float64(), "double can't be masked by hash"),
        (rule("nam"), PERSON, "there is no 'nam'"),
        (rule("name []"), PERSON, r"there is no '\[\]' in a value of type string"),
        (rule("prices [] key", "null"), PERSON, "masked keys must stay different"),
        (rule("prices []", "null"), PERSON, "masked keys must stay different"),
        (rule("age", "constant", "x"), PERSON, "'x' is not a valid int32"),
        (rule("age", "constant", 1 << 40), PERSON, "is not a valid int32"),
    ],
)
def test_what_can_not_be_done(said: MaskRule, kind: pa.DataType, problem: str) -> None:
    """It is refused when the rule is looked at."""
    with pytest.raises(EncodeError, match=problem):
        check_rule(said, kind)


def test_what_tasks_take_with_them_can_be_sent_elsewhere() -> None:
    """And shows no secret."""
    rows = SampleAndMasks(None, {"name": (rule(""),)}, {}, b"a secret", leave_out=False)
    assert pickle.loads(pickle.dumps(rows)) == rows  # noqa: S301 - our own
    assert "a secret" not in repr(rows)
