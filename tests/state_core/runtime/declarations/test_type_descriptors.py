"""Types from Python's hints: each stands for one serializer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, NamedTuple, NewType, Optional, Union

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import DeclarationError
from statelake.state_core.files.wire import DataOutput
from statelake.state_core.runtime.declarations import TypeDescriptor
from statelake.state_core.serializers.composite.pojo_snapshot import PojoSerializerSnapshot
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.registry import write_serializer_snapshot
from statelake.state_core.serializers.type_spec import simple_types


class Tier(Enum):
    """An enum that Java does not know."""

    GOLD = 1
    SILVER = 2


class JavaTier(Enum):
    """One that it does."""

    __java_class__ = "com.acme.Tier"
    GOLD = 1
    SILVER = 2


class Pair(NamedTuple):
    """A pair with names."""

    name: str
    count: int


@dataclass
class Plain:
    """A row."""

    name: Optional[str]  # noqa: UP045
    pair: Pair
    tags: list[str]


@dataclass
class Customer:
    """A POJO."""

    __java_class__ = "com.acme.Customer"
    id: int
    score: float | None
    level: Annotated[int, "Integer"]
    tier: JavaTier


@dataclass
class Within:
    """A class of itself."""

    inner: list[Within]


@dataclass
class Unreadable:
    """A class whose hints name nothing."""

    inner: NoSuchName  # type: ignore[name-defined]  # noqa: F821


UserId = NewType("UserId", int)

HINTS: list[tuple[Any, str]] = [
    (str, "String"),
    (bool, "Boolean"),
    (int, "Long"),
    (float, "Double"),
    (bytes, "byte[]"),
    (Decimal, "BigDecimal"),
    (datetime, "Instant"),
    (date, "LocalDate"),
    (time, "LocalTime"),
    (None, "Void"),
    (np.int8, "Byte"),
    (np.int16, "Short"),
    (np.int32, "Integer"),
    (np.float32, "Float"),
    (UserId, "Long"),
    (Annotated[datetime, "LocalDateTime"], "LocalDateTime"),
    (Annotated[int, 5], "Long"),
    (list[int], "List<Long>"),
    (tuple[int, ...], "List<Long>"),
    (set[str], "Set<String>"),
    (frozenset[str], "Set<String>"),
    (dict[str, int | None], "Map<String, Long>"),
    (tuple[str, int], "Tuple2<String, Long>"),
    (Pair, "Tuple2<String, Long>"),
    (int | None, "Nullable<Long>"),
    (Optional[str], "Nullable<String>"),  # noqa: UP045
    (Tier, "String"),
    (list[tuple[str, Decimal | None]], "List<Tuple2<String, Nullable<BigDecimal>>>"),
    (Plain, "Row<String, Tuple2<String, Long>, List<String>>"),
    ("int", "Integer"),
    ("Tuple<Long,int>", "Tuple2<Long, Integer>"),
]


def written(snapshot: TypeSerializerSnapshot) -> bytes:
    """As it stands in a savepoint."""
    out = DataOutput()
    write_serializer_snapshot(snapshot, out)
    return out.to_bytes()


@pytest.mark.parametrize(("hint", "name"), HINTS, ids=[hint[1] for hint in HINTS])
def test_a_hint_stands_for_a_type(hint: Any, name: str) -> None:
    """The same descriptor comes of the hint, of the text, and of what either gives."""
    made = TypeDescriptor.of(hint)
    assert made.name == name == str(made)
    assert made == TypeDescriptor.of(name) == TypeDescriptor.of(made.spec)
    assert hash(made) == hash(TypeDescriptor.of(name))
    assert written(made.snapshot()) == written(TypeDescriptor.of(name).snapshot())


@pytest.mark.parametrize(
    "name", sorted(simple_type for simple_type in simple_types() if "(" not in simple_type)
)
def test_every_simple_type_has_its_descriptor(name: str) -> None:
    """One to one: each name that can be written gives the serializer of that name."""
    assert type(TypeDescriptor.of(name).snapshot()) is simple_types()[name]


def test_a_dataclass_of_javas_is_its_pojo() -> None:
    """A field that may be null is boxed, an annotated one is what it says."""
    made = TypeDescriptor.of(Customer)
    snapshot = made.snapshot()
    assert isinstance(snapshot, PojoSerializerSnapshot)
    assert made.spec == {
        "pojo": "com.acme.Customer",
        "fields": {
            "id": "long",
            "score": "Double",
            "level": "Integer",
            "tier": {"enum": "com.acme.Tier", "constants": ["GOLD", "SILVER"]},
        },
    }
    assert TypeDescriptor.of(list[Customer]).spec == {"list": made.spec}
    assert TypeDescriptor.of(dict[str, Customer | None]).spec == {"map": ["String", made.spec]}
    assert TypeDescriptor.of(Customer | None).spec == {"nullable": made.spec}
    assert TypeDescriptor.of(tuple[Customer, int]).spec == {"tuple": [made.spec, "Long"]}


def test_the_order_of_a_mappings_names_does_not_matter() -> None:
    """Flink sorts the fields of a POJO, too."""
    a = TypeDescriptor.of({"pojo": "P", "fields": {"a": "Long", "b": "int"}})
    b = TypeDescriptor.of({"fields": {"b": "int", "a": "Long"}, "pojo": "P"})
    assert a == b


def test_where_a_type_came_from_is_no_part_of_it() -> None:
    """The hint is kept for whoever makes values, and not compared."""
    assert TypeDescriptor.of(Plain).python_type is Plain
    assert TypeDescriptor.of(Plain) == TypeDescriptor.of(TypeDescriptor.of(Plain).name)


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (object, "known are str"),
        (Any, "no type of a state"),
        (3, "no type of a state"),
        (list, "no type of a state"),
        (Union[int, str, None], "more than one type"),  # noqa: UP007
        (int | str, "more than one type"),
        (type[int], "no type of a state"),
        (Within, "contains itself"),
        (Unreadable, "can't be read"),
        ("Strin", "Strin is no known type"),
        ("", "a type is missing"),
        ({"pojo": "P", "fields": []}, "is no type|must be a mapping"),
        ({"pojo": "P"}, "must be a mapping"),
        ({"avro": "no schema"}, "is no type"),
        ({"avro": {"type": "record"}}, "is no type"),
        ({"tuple": 5}, "5 is no known type"),
        ({}, r"\[\] must name one kind of type"),
    ],
)
def test_what_is_no_type_is_refused(hint: Any, words: str) -> None:
    """The message has the place, and what is known."""
    with pytest.raises(DeclarationError, match=words) as caught:
        TypeDescriptor.of(hint, "state 's'")
    assert str(caught.value).startswith("state 's': ")


SPEC_WORDS = st.sampled_from([
    "Long", "Tuple2<Long, Long>", "Tuple²<Long>", "List<", "", "BIGINT", "DECIMAL(99, 3)", "record",
    "pojo", "fields", "registered", "avro", "class", "enum", "constants", "array", "of", "row_data",
    "list", "map", "tuple", "row", "set", "nullable", "either",
])  # fmt: skip
JUNK = st.recursive(
    SPEC_WORDS | st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SPEC_WORDS, inner, max_size=3),
    max_leaves=8,
)


@given(SPEC_WORDS | st.dictionaries(SPEC_WORDS, JUNK, max_size=3))
def test_whatever_is_written_is_a_type_or_none(spec: Any) -> None:
    """A type has a serializer and comes back by its spec; all else is a `DeclarationError`."""
    try:
        made = TypeDescriptor.of(spec)
    except DeclarationError:
        return
    assert made.serializer() is not None
    assert TypeDescriptor.of(made.spec) == made
