"""Content that others wrote: what a type says of it, and how a fault is told."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import msgspec
import pytest

from statelake.state_core.errors import DamagedLakeError
from statelake.state_core.files.outside import Count, checked, decoded, matching, one_of


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    """A part."""

    word: Annotated[str, one_of(("a.b", "c"))]


@dataclass
class Outer:
    """All of it."""

    count: Count
    inner: list[Inner]
    by_name: dict[str, Count]
    mark: Annotated[str, matching(r"\d+|x")] = "x"


refused = partial(DamagedLakeError, place="here", remedy="mend it")
DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]
SOUND: dict[str, Any] = {"count": 1, "inner": [{"word": "c"}], "by_name": {"\ud800": 2}}


def test_a_sound_value_has_its_type() -> None:
    """With its defaults, whatever unknown fields there are, and names with lone surrogates."""
    wanted = Outer(1, [Inner("c")], {"\ud800": 2})
    assert checked(SOUND | {"later": 1}, Outer, refused) == wanted
    assert decoded(b'{"\\ud800": 2}', dict[str, Count], refused, 99) == {"\ud800": 2}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"count": -1}, "count: -1, and `int` >= 0 is wanted"),
        ({"count": True}, "count: True, and `int` is wanted"),
        ({"count": 1.0}, "count: 1.0, and `int` is wanted"),
        ({"inner": [{"word": "c"}, 5]}, "inner[1]: 5, and `object` is wanted"),
        ({"inner": [{"word": "aXb"}]}, "inner[0].word: 'aXb', and `str` matching regex"),
        ({"inner": [{"word": "c", "x": 1}]}, "inner[0]: Object contains unknown field `x`"),
        ({"inner": [{"word": "c", "` - at `$.z": 1}]}, "contains unknown field"),
        ({"count": DEEP}, "count: [[[[[[[...]]]]]]], and `int` is wanted"),
        ({"inner": [{}]}, "inner[0]: Object missing required field `word`"),
        ({"by_name": {"n": -1}}, "by_name[...]: `int` >= 0 is wanted"),
        ({"mark": "12\n"}, r"mark: '12\n', and `str` matching regex"),
        ({"mark": "\u0661"}, "mark: '\u0661', and `str` matching regex"),
        ({"mark": "\ud800"}, r"mark: '\ud800', and `str` matching regex"),
        ({"\ud800": 1}, "surrogates not allowed"),
    ],
    ids=reprlib.repr,
)
def test_a_fault_names_its_place_and_what_is_wanted(fields: dict[str, Any], told: str) -> None:
    """And what is there, unless it is below a name that anyone chose."""
    with pytest.raises(DamagedLakeError) as caught:
        checked(SOUND | fields, Outer, refused)
    assert told in caught.value.problem
    assert (caught.value.place, caught.value.remedy) == ("here", "mend it")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"[", "malformed JSON (Expecting value"),
        (b"[" * 100_000, "malformed JSON (maximum recursion depth"),
        (b"\xff", "malformed JSON ('utf-8' codec"),
        (b"9" * 5000, "malformed JSON (Exceeds the limit"),
        (b"[]", "`object` is wanted"),
        (b" " * 100_001, "it is longer than 100000 bytes"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_bytes_that_are_no_such_value(data: bytes, told: str) -> None:
    """Are refused, however deep or long."""
    with pytest.raises(DamagedLakeError) as caught:
        decoded(data, Outer, refused, 100_000)
    assert caught.value.problem.startswith(told)
