"""Objects as JSON, if no declared type determines a column.

Types that JSON has are plain JSON: null, text, `Boolean`, `Integer`, `Double`, an `ArrayList`, a
`HashMap` whose keys are text. Other values have their class, as in `{"@class": "java.lang.Long",
"value": 5}`; a map's value is a list of pairs, an object's its fields.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import EncodeError, UnsupportedFormatError
from statelake.state_core.kernels.kryo import BOOLEAN, COLLECTION, MAP, NULL
from statelake.state_core.serializers.framework.columns import I64Array
from statelake.state_core.serializers.kryo.containers import ArrayForm, CollectionForm, MapForm
from statelake.state_core.serializers.kryo.forms import TIMES, decimal_parts, decimal_text
from statelake.state_core.serializers.kryo.graph import Classes, Item
from statelake.state_core.serializers.kryo.java_types import PRIMITIVES
from statelake.state_core.serializers.kryo.objects import FieldForm
from statelake.state_core.serializers.kryo.tables import Marked, Parts, Placed, Plan

CLASS = "@class"
HOLDERS = ("java.util.Collections$", "java.util.Optional")
BARE = {
    str: "java.lang.String", bool: "java.lang.Boolean", int: "java.lang.Integer",
    float: "java.lang.Double", list: "java.util.ArrayList", dict: "java.util.HashMap",
}  # fmt: skip


class JsonValues:
    """A converter between objects and JSON.

    Args:
        classes: The known classes.
    """

    def __init__(self, classes: Classes) -> None:
        self.classes = classes

    def text(self, item: Item | None) -> str:
        """Return an object as JSON text."""
        text = json.dumps(self.to_json(item), ensure_ascii=False)
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:  # half of a character
            return json.dumps(json.loads(text))
        return text

    def to_json(self, item: Item | None) -> Any:
        """Return an object as a JSON value."""
        if item is None:
            return None
        content: Any
        form = self.classes.form_of(item.java_class)
        if isinstance(form, FieldForm):
            content = {
                name: _number(value) if not isinstance(value, Item) else self.to_json(value)
                for name, value in item.value.items()
            }
        elif isinstance(form, MapForm) or _pairs(item):
            content = [[self.to_json(part) for part in pair] for pair in item.value]
            keys = [key for key, _ in content]
            plain = all(isinstance(key, str) and not key.startswith("@") for key in keys)
            if item.java_class == BARE[dict] and plain and len(set(keys)) == len(keys):
                content = dict(content)
        elif isinstance(item.value, list):
            content = [
                self.to_json(part) if isinstance(part, Item) or part is None else _number(part)
                for part in item.value
            ]
        elif item.java_class == "java.math.BigDecimal":
            content = decimal_text(*item.value)
        else:
            content = _number(item.value)
        if BARE.get(type(content)) == item.java_class:
            return content
        tagged = {CLASS: item.java_class, "value": content}
        if item.extra is not None:
            extra = item.extra
            tagged["with"] = self.to_json(extra) if isinstance(extra, Item) else extra
        return tagged

    def item(self, text: str) -> Item | None:
        """Return the object in a JSON text.

        Raises:
            EncodeError: The text is not JSON, or not a known object.
        """
        try:
            return self.from_json(json.loads(text))
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise EncodeError(f"{text[:200]!r} is no value of Kryo's ({error})") from error

    def from_json(self, said: Any) -> Item | None:
        """Return the object for a JSON value."""
        if said is None:
            return None
        java_class, extra = BARE[type(said)], None
        if isinstance(said, dict) and CLASS in said:
            java_class, extra, said = said[CLASS], said.get("with"), said["value"]
        elif isinstance(said, dict):
            said = list(said.items())
        form = self.classes.form_of(java_class)
        if isinstance(extra, dict):
            extra = self.from_json(extra)
        item = Item(java_class, said, extra)
        if isinstance(form, FieldForm):
            item.value = {
                name: _unsaid(said[name], kind.box)
                if kind.name in PRIMITIVES
                else self.from_json(said[name])
                for name, kind in form.fields.items()
            }
        elif isinstance(form, MapForm) or (said and java_class.endswith("SingletonMap")):
            item.value = [tuple(self.from_json(part) for part in pair) for pair in said]
        elif isinstance(form, (CollectionForm, ArrayForm)) or java_class.startswith(HOLDERS):
            item.value = [self.from_json(part) for part in said]
        else:
            item.value = _unsaid(said, java_class)
        return item


def _pairs(item: Item) -> bool:
    return item.java_class.endswith("SingletonMap")


def _number(value: Any) -> Any:
    """Return the JSON value for a value without objects."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    return list(value) if isinstance(value, tuple) else value


def _unsaid(content: Any, java_class: str) -> Any:
    """Return the value without objects for a JSON value."""
    if java_class == "java.math.BigDecimal":
        return decimal_parts(content)
    if java_class == "[B":
        return bytes.fromhex(content)
    if java_class in ("java.lang.Float", "java.lang.Double"):
        return float(content)
    if java_class in ("[F", "[D"):
        return [float(number) for number in content]
    several = ("java.util.Locale", "java.util.regex.Pattern", "java.sql.Timestamp")
    return tuple(content) if java_class in TIMES or java_class in several else content


class JsonParts:
    """A converter of many objects of the usual classes to JSON, as `JsonValues` does each.

    Args:
        table: The table of their parts; what is not of these classes is marked as untold.
    """

    def __init__(self, table: Marked) -> None:
        self.table = table
        parts = table.parts
        self.names = [*parts.classes.names, ""]  # of null, which is -1
        self.forms = [form for form, _ in parts.classes.forms]
        self.kind, self.behind = parts.kind.tolist(), parts.behind.tolist()
        self.number = parts.number.tolist()
        self.held: dict[int, Any] = {}
        for java_class, values in _TEXT_OF.items():
            lines = np.flatnonzero(parts.kind == parts.classes.number_of(java_class))
            self.held.update(zip(lines.tolist(), values(parts, lines).to_pylist(), strict=True))

    @classmethod
    def of(cls, table: Marked) -> JsonParts:
        """Return the converter of a table, which all of its columns share."""
        table.json = table.json or cls(table)
        return table.json

    def texts(self, lines: I64Array) -> pa.Array:
        """Return the JSON of objects."""
        texts: list[str | None] = []
        for line in lines.tolist():
            if self.kind[line] == NULL:
                texts.append(None)
                continue
            try:
                texts.append(json.dumps(self.value(line), ensure_ascii=False))
            except UnsupportedFormatError:
                texts.append(None)
                self.table.untold[line] = True
        return pa.array(texts, pa.string())

    def value(self, line: int) -> Any:
        """Return an object as a JSON value.

        Raises:
            UnsupportedFormatError: It has to be read by itself.
        """
        kind = self.kind[line]
        if kind == NULL:
            return None
        name, form = self.names[kind], self.forms[kind]
        content: Any
        if name in _TEXT_OF:
            content = self.held[line]
        elif form == COLLECTION:
            content = [self.value(part) for part in self._within(line, self.number[line])]
        elif form == MAP:
            parts = [self.value(part) for part in self._within(line, 2 * self.number[line])]
            content = [list(pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
            keys = parts[::2]
            plain = all(isinstance(key, str) and not key.startswith("@") for key in keys)
            if name == BARE[dict] and plain and len(set(keys)) == len(keys):
                content = dict(content)
        elif name in _WHOLE:
            content = bool(self.number[line]) if form == BOOLEAN else self.number[line]
        else:
            raise UnsupportedFormatError(f"a {name} that is read by itself")
        return content if BARE.get(type(content)) == name else {CLASS: name, "value": content}

    def _within(self, line: int, count: int) -> list[int]:
        """Return the lines of the parts right within an object."""
        found, part = [], line + 1
        for _ in range(count):
            found.append(part)
            part = self.behind[part]
        return found


_WHOLE_BITS = {
    f"java.lang.{name}": bits
    for name, bits in {"Byte": 8, "Short": 16, "Integer": 32, "Long": 64}.items()
}
_WHOLE = frozenset(("java.lang.Boolean", *_WHOLE_BITS))
_TEXT_OF: dict[str, Callable[[Parts, I64Array], pa.Array]] = {
    "java.lang.String": Parts.texts,
    "java.util.UUID": Parts.uuids,
}


class _JsonLines:
    """The lines of a table, made of JSON of the usual classes."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.numbers: list[int] = []
        self.texts: list[str] = []

    def add(self, value: Any) -> None:
        """Add the lines of a JSON value.

        Raises:
            EncodeError: It has another class.
        """
        name = "" if value is None else BARE[type(value)]
        if isinstance(value, dict) and CLASS in value:
            name = value[CLASS]
            if len(value) != 2 or name not in _WHOLE_BITS or type(value["value"]) is not int:
                raise EncodeError("an object that is written by itself")
            value = value["value"]
        if name in _WHOLE_BITS and not -1 <= value >> _WHOLE_BITS[name] - 1 <= 0:
            raise EncodeError(f"{value} is no {name}")
        at = len(self.names)
        self.names.append(name)
        self.numbers.append(0)
        if name == BARE[str]:
            self.texts.append(value)
        elif name == BARE[list]:
            self.numbers[at] = len(value)
            for part in value:
                self.add(part)
        elif name == BARE[dict]:
            self.numbers[at] = len(value)
            for key, part in value.items():
                self.add(key)
                self.add(part)
        elif name == BARE[float]:
            self.numbers[at] = struct.unpack("<q", struct.pack("<d", value))[0]
        elif name:
            self.numbers[at] = int(value)


def plan_of_json(values: pa.Array) -> Plan:
    """Return the plan by which many values of JSON are written.

    Raises:
        EncodeError: One has another class than the usual ones, or is no JSON.
    """
    lines, ends = _JsonLines(), []
    try:
        for text in values.to_pylist():
            lines.add(None if text is None else json.loads(text))
            ends.append(len(lines.names))
        texts = pa.array(lines.texts, pa.string())
    except (KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise EncodeError(f"a value that is written by itself ({error})") from error
    behind: I64Array = np.array([0, *ends], np.int64)
    sizes = np.diff(behind)
    names, which = np.unique(np.array(lines.names, "O"), return_inverse=True)
    numbers = np.array(lines.numbers, np.int64)

    def place(table: Placed, first: I64Array) -> None:
        at = np.repeat(first - (np.cumsum(sizes) - sizes), sizes) + np.arange(int(sizes.sum()))
        for number, name in enumerate(names.tolist()):
            mine = which == number
            if name:
                table.put(at[mine], name, numbers[mine])
            if name == BARE[str]:
                table.put_texts(at[mine], texts)

    return Plan(sizes, place)
