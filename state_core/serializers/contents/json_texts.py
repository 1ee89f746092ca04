"""JSON in texts, typed by a shape.

A shape is JSON itself: an object of the fields' shapes is a struct, an array of one shape a list,
an object of the one name `*` a map, and a text a type: `string`, `long`, `double`, `boolean`, or
`json` for what stays JSON. Values are written without spaces, in the order of the shape, and
without fields that are null, as most programs do.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from statelake.state_core.bounds import COLUMN_NESTING, COLUMNS, EMPTY_ELEMENTS
from statelake.state_core.errors import EncodeError
from statelake.state_core.nested import plain_names
from statelake.state_core.printable import is_text
from statelake.state_core.serializers.contents.content import Content, UnfitError

Shape: TypeAlias = "str | list[Any] | dict[str, Any]"

JSON, ANY_NAME = "json", "*"
LEAVES = {
    "string": pa.string(), "long": pa.int64(), "double": pa.float64(), "boolean": pa.bool_(),
    JSON: pa.string(),
}  # fmt: skip
MAP_FROM = 64  # so many names of one shape are keys, and no fields
FIELDS_OF_A_BYTE = 16
MOST_LEVELS = 100  # of a text: Python's own limit depends on who calls
_LONG = 1 << 63
_REMEDY = 'such as {"id": "long", "tags": ["string"], "scores": {"*": "double"}, "rest": "json"}'
_UNFIT = (OverflowError, ValueError, RecursionError, UnicodeError)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _parsed(text: str | bytes) -> Any:
    return json.loads(text, parse_constant=_refuse_constant)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


# --------------------------------------------------------------------------- values of a shape


class Leaf:
    """A value without others within it, or one that stays JSON."""

    fields: int = 0
    arrow_type: pa.DataType

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.arrow_type = LEAVES[kind]

    def read(self, value: Any) -> Any:
        """Return a value of JSON in Arrow's form."""
        kind = self.kind
        if kind == JSON:
            return _text(value)
        if kind == "string":
            fits = type(value) is str
        elif kind == "long":
            fits = type(value) is int and -_LONG <= value < _LONG
        elif kind == "double":
            fits = type(value) is float or type(value) is int
            value = float(value) if fits else value
            fits = fits and math.isfinite(value)
        else:
            fits = type(value) is bool
        if not fits:
            raise UnfitError(kind)
        return value

    def write(self, value: Any) -> Any:
        """Return a value of the column as JSON."""
        return _parsed(value) if self.kind == JSON else value


class _ListText:
    fields: int
    arrow_type: pa.DataType

    def __init__(self, item: _Typed) -> None:
        self.item = item
        self.fields = item.fields
        self.arrow_type = pa.list_(item.arrow_type)

    def read(self, value: Any) -> Any:
        """Return a value of JSON in Arrow's form."""
        if type(value) is not list:
            raise UnfitError("list")
        read = self.item.read
        return [None if each is None else read(each) for each in value]

    def write(self, value: Any) -> Any:
        """Return a value of the column as JSON."""
        write = self.item.write
        return [None if each is None else write(each) for each in value]


class _MapText:
    fields: int
    arrow_type: pa.DataType

    def __init__(self, item: _Typed) -> None:
        self.item = item
        self.fields = item.fields
        self.arrow_type = pa.map_(pa.string(), item.arrow_type)

    def read(self, value: Any) -> Any:
        """Return a value of JSON in Arrow's form."""
        if type(value) is not dict:
            raise UnfitError("map")
        read = self.item.read
        return [(name, None if each is None else read(each)) for name, each in value.items()]

    def write(self, value: Any) -> Any:
        """Return a value of the column as JSON."""
        pairs = value.items() if isinstance(value, dict) else value
        write = self.item.write
        return {name: None if each is None else write(each) for name, each in pairs}


class _StructText:
    fields: int
    arrow_type: pa.DataType

    def __init__(self, members: Mapping[str, _Typed]) -> None:
        columns = plain_names(list(members))
        self.members = [
            (name, column, member)
            for (name, member), column in zip(members.items(), columns, strict=True)
        ]
        self.fields = len(members) + max((member.fields for member in members.values()), default=0)
        kinds = [pa.field(column, member.arrow_type) for _, column, member in self.members]
        self.arrow_type = pa.struct(kinds)

    def read(self, value: Any) -> Any:
        """Return a value of JSON in Arrow's form."""
        if type(value) is not dict:
            raise UnfitError("object")
        fields = {}
        for name, column, member in self.members:
            item = value.get(name)
            fields[column] = None if item is None else member.read(item)
        return fields

    def write(self, value: Any) -> Any:
        """Return a value of the column as JSON."""
        fields = {}
        for name, column, member in self.members:
            item = value.get(column)
            if item is not None:
                fields[name] = member.write(item)
        return fields


_Typed: TypeAlias = "Leaf | _ListText | _MapText | _StructText"


def _typed(shape: Any, levels: int = 0) -> _Typed:
    """Return a shape's reader and writer.

    Raises:
        EncodeError: It is no shape.
    """
    if levels > COLUMN_NESTING.most:
        raise EncodeError(f"a shape of more than {COLUMN_NESTING.most} levels", remedy=_REMEDY)
    if isinstance(shape, str) and shape in LEAVES:
        return Leaf(shape)
    if isinstance(shape, list) and len(shape) == 1:
        return _ListText(_typed(shape[0], levels + 1))
    if isinstance(shape, dict) and list(shape) == [ANY_NAME]:
        return _MapText(_typed(shape[ANY_NAME], levels + 1))
    if isinstance(shape, dict) and shape and all(map(is_text, shape)):
        return _StructText({name: _typed(each, levels + 1) for name, each in shape.items()})
    raise EncodeError(f"{json.dumps(shape)[:200]} is no shape of JSON", remedy=_REMEDY)


def _levels(value: Any) -> int:
    """Return how many objects and arrays are within each other."""
    levels, inner = 0, [value]
    while inner := [each for each in inner if isinstance(each, dict | list)]:
        levels += 1
        inner = [part for each in inner
                 for part in (each.values() if isinstance(each, dict) else each)]  # fmt: skip
    return levels


def _columns(kind: pa.DataType) -> int:
    return 1 + sum(_columns(kind.field(index).type) for index in range(kind.num_fields))


class JsonTexts(Content):
    """Texts that are JSON of a shape.

    Args:
        shape: The shape.

    Raises:
        EncodeError: It is no shape, or has too many columns.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._typed = _typed(shape)
        self.arrow_type = self._typed.arrow_type
        self.name = f"JSON {_text(shape)}"
        columns = _columns(self.arrow_type)
        if columns > COLUMNS.most:
            raise EncodeError(
                f"a shape of {columns} columns, and a table takes {COLUMNS.most}",
                remedy='say "json" for parts that need no columns',
            )

    @classmethod
    def parse(cls, text: str) -> JsonTexts:
        """Return the content of the rest of a saying.

        Raises:
            EncodeError: It is no shape.
        """
        try:
            return cls(_parsed(text))
        except _UNFIT as error:
            raise EncodeError(f"no shape of JSON ({error})", remedy=_REMEDY) from error

    @property
    def saying(self) -> str:
        """The saying that is kept with a state."""
        return f"json {_text(self.shape)}"

    def read(self, data: bytes) -> Any:
        """Return the value of a text."""
        try:
            value = _parsed(data)
            # absent fields take no bytes, and an object is at least two
            if data.count(b"{") * self._typed.fields > (
                EMPTY_ELEMENTS.most + FIELDS_OF_A_BYTE * len(data)
            ):
                raise UnfitError("too many absent fields")
            if data.count(b"[") + data.count(b"{") > MOST_LEVELS and _levels(value) > MOST_LEVELS:
                raise UnfitError(f"more than {MOST_LEVELS} levels")
            if value is None:
                raise UnfitError("null")
            return self._typed.read(value)
        except _UNFIT as error:
            raise UnfitError(str(error)) from error

    def write(self, value: Any) -> bytes:
        """Return the text of a value."""
        try:
            return _text(self._typed.write(value)).encode()
        except (*_UNFIT, AttributeError, TypeError) as error:
            raise EncodeError(f"{str(value)[:200]} is not JSON of its shape ({error})") from error


# --------------------------------------------------------------------------- shapes of values


@dataclass
class _Seen:
    """What values at one place of the JSON were."""

    kinds: set[str] = field(default_factory=set)
    members: dict[str, _Seen] = field(default_factory=dict)
    item: _Seen | None = None
    any_name: _Seen | None = None  # of a map: what its values are

    def add(self, value: Any) -> None:
        """Look at one more value."""
        if value is None:
            return
        kind = _KIND_OF.get(type(value), JSON)
        if kind == "long" and not -_LONG <= value < _LONG:
            kind = JSON
        self.kinds.add(kind)
        if kind == "object" and self.any_name is not None:
            for each in value.values():
                self.any_name.add(each)
        elif kind == "object":
            for name, each in value.items():
                if len(self.members) <= COLUMNS.most or name in self.members:
                    self.members.setdefault(name, _Seen()).add(each)
        elif kind == "array":
            self.item = self.item or _Seen()
            for each in value:
                self.item.add(each)

    def shape(self, levels: int = 0) -> Shape:
        """Return the shape that takes all of them; `json` if they are not alike."""
        if self.kinds == {"long", "double"}:
            return "double"
        if len(self.kinds) != 1 or levels >= COLUMN_NESTING.most:
            return JSON
        (kind,) = self.kinds
        if kind == "array" and self.item is not None:
            return [self.item.shape(levels + 1)]
        if kind != "object":
            return kind
        if self.any_name is not None:
            return {ANY_NAME: self.any_name.shape(levels + 1)}
        members = {name: each.shape(levels + 1) for name, each in self.members.items()}
        shapes = list(members.values())
        if len(members) >= MAP_FROM and all(each == shapes[0] for each in shapes):
            return {ANY_NAME: shapes[0]}
        if not members or len(members) > COLUMNS.most or ANY_NAME in members:
            return JSON
        if not all(map(is_text, members)):
            return JSON
        return members


_KIND_OF: dict[type, str] = {
    bool: "boolean", int: "long", float: "double", str: "string", dict: "object", list: "array",
}  # fmt: skip


def _seen_in(shape: Shape) -> _Seen:
    """Return what values of a shape would be."""
    if isinstance(shape, str):
        return _Seen({shape})
    if isinstance(shape, list):
        return _Seen({"array"}, item=_seen_in(shape[0]))
    if list(shape) == [ANY_NAME]:
        return _Seen({"object"}, any_name=_seen_in(shape[ANY_NAME]))
    return _Seen({"object"}, {name: _seen_in(each) for name, each in shape.items()})


def shape_of(texts: Iterable[bytes], before: Shape | None = None) -> Shape | None:
    """Return the shape of some texts in UTF-8; None if none of them is JSON.

    Args:
        texts: The texts.
        before: An earlier shape, from which it grows.
    """
    seen = _Seen() if before is None else _seen_in(before)
    for text in texts:
        with suppress(*_UNFIT):  # what is no JSON has no shape
            seen.add(_parsed(text))
    return seen.shape() if seen.kinds else None
