"""Values as JSON: what scripts read has one shape for each type."""

from __future__ import annotations

import json
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.pipelines.shown import bytes_text, from_plain, plain
from statelake.state_core.printable import age_text

ENTRIES = [("a", 1), ("b", None)]


@pytest.mark.parametrize(
    ("value", "kind", "shown"),
    [
        (None, pa.int64(), None),
        (2**63 - 1, pa.int64(), 2**63 - 1),
        (True, pa.bool_(), True),
        ("ü", pa.string(), "ü"),
        (b"\x00\xff", pa.binary(), "AP8="),
        (float("nan"), pa.float64(), "nan"),
        (float("-inf"), pa.float64(), "-inf"),
        (0.5, pa.float32(), 0.5),
        (Decimal("1.50"), pa.decimal128(5, 2), "1.50"),
        (date(2026, 11, 21), pa.date32(), "2026-11-21"),
        (time(3, 4, 5), pa.time64("us"), "03:04:05"),
        (
            datetime(2026, 11, 21, tzinfo=timezone.utc),
            pa.timestamp("us", "UTC"),
            "2026-11-21T00:00:00+00:00",
        ),
        ([], pa.list_(pa.int32()), []),
        ([1, None], pa.list_(pa.int32()), [1, None]),
        ([], pa.map_(pa.string(), pa.int32()), {}),
        (ENTRIES, pa.map_(pa.string(), pa.int32()), {"a": 1, "b": None}),
        ([], pa.map_(pa.int32(), pa.string()), []),
        ([(1, "x")], pa.map_(pa.int32(), pa.string()), [[1, "x"]]),
        (None, pa.map_(pa.string(), pa.int32()), None),
        (
            [{"m": [], "b": b"x"}],
            pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.int8())), ("b", pa.binary())])),
            [{"m": {}, "b": "eA=="}],
        ),
        (
            [("k", [[]])],
            pa.map_(pa.string(), pa.list_(pa.map_(pa.string(), pa.int8()))),
            {"k": [{}]},
        ),
    ],
)
def test_shapes(value: Any, kind: pa.DataType, shown: Any) -> None:
    """By its type; as Arrow gives a value of that type to Python."""
    held = pa.array([value], kind).to_pylist()[0]
    assert plain(held, kind) == shown
    said = json.loads(json.dumps(plain(held, kind), allow_nan=False))
    assert plain(from_plain(said, kind), kind) == shown


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("5", pa.int64()),
        (1.5, pa.int32()),
        (True, pa.int64()),
        (300, pa.int8()),
        (2**70, pa.int64()),
        (5, pa.string()),
        ("\ud800", pa.string()),
        ("1.5", pa.float64()),
        ("eA", pa.binary()),
        (1, pa.binary()),
        ("1.239", pa.decimal128(5, 2)),
        ("x", pa.decimal128(5, 2)),
        ("yesterday", pa.timestamp("us")),
        (5, pa.date32()),
        ({"a": 1}, pa.struct([("a", pa.int8()), ("b", pa.int8())])),
        ({"a": 1, "b": 2}, pa.struct([("a", pa.int8())])),
        ([1], pa.struct([("a", pa.int8())])),
        (5, pa.list_(pa.int8())),
        ([5], pa.map_(pa.int8(), pa.int8())),
    ],
)
def test_what_is_not_of_a_type(value: Any, kind: pa.DataType) -> None:
    """JSON that `plain` would not have written of any value of the type is refused."""
    with pytest.raises(ValueError, match=r"."):
        from_plain(value, kind)


def test_without_a_type() -> None:
    """A map that has entries is told from a list by them."""
    assert plain({"a": [("k", b"x")], 1: [(1, 2)], "l": [1.5]}) == {
        "a": {"k": "eA=="},
        "1": [[1, 2]],
        "l": [1.5],
    }


@given(st.integers(0, 2**80))
def test_bytes_for_people(count: int) -> None:
    """A short number with its unit, never four digits before the point below the largest unit."""
    number, unit = bytes_text(count).split()
    assert unit in {"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
    assert float(number) <= 1024 or unit == "PiB"


@pytest.mark.parametrize(
    ("millis", "text"),
    [(-5, "0 s"), (119_999, "119 s"), (120_000, "2 min"), (7_200_000, "2 h"), (2e8, "2 d")],
)
def test_ages(millis: int, text: str) -> None:
    """In the largest unit of which there are two."""
    assert age_text(int(millis)) == text
