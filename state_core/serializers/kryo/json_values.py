"""Objects as JSON, if no declared type determines a column.

Types that JSON has are plain JSON: null, text, `Boolean`, `Integer`, `Double`, an `ArrayList`, a
`HashMap` whose keys are text. Other values have their class, as in `{"@class": "java.lang.Long",
"value": 5}`; a map's value is a list of pairs, an object's its fields.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.kernels import kryo_json as kernels
from statelake.state_core.kernels.kryo import COLLECTION, DEEPEST, MAP, NULL, UNKNOWN
from statelake.state_core.serializers.composite.collections import offsets_of
from statelake.state_core.serializers.framework.columns import (
    I64Array,
    U8Array,
    arrow_buffer,
    validity,
)
from statelake.state_core.serializers.kryo.containers import ArrayForm, CollectionForm, MapForm
from statelake.state_core.serializers.kryo.forms import TIMES, decimal_parts, decimal_text
from statelake.state_core.serializers.kryo.graph import Classes, Item
from statelake.state_core.serializers.kryo.java_types import PRIMITIVES
from statelake.state_core.serializers.kryo.objects import FieldForm
from statelake.state_core.serializers.kryo.tables import (
    MOST_TEXT,
    ClassTable,
    Marked,
    Placed,
    Plan,
)

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


_WHOLE_BITS = {
    f"java.lang.{name}": bits
    for name, bits in {"Byte": 8, "Short": 16, "Integer": 32, "Long": 64}.items()
}
# the ways of classes that kernels make JSON of, beside all collections and maps
_WAYS = {
    "java.lang.String": kernels.TEXT,
    "java.util.UUID": kernels.UUID,
    "java.lang.Boolean": kernels.BOOLEAN,
    **dict.fromkeys(_WHOLE_BITS, kernels.WHOLE),
    BARE[dict]: kernels.DICT,
}


def _ways(classes: ClassTable) -> tuple[I64Array, I64Array, U8Array]:
    """Return the way of each class, and what names it: where that begins, and its bytes."""
    ways, tags = [], []
    for name, (form, _) in zip(classes.names, classes.forms, strict=True):
        way = {COLLECTION: kernels.LIST, MAP: kernels.ENTRIES}.get(form, kernels.UNTOLD)
        way = _WAYS.get(name, way) if form != UNKNOWN else kernels.UNTOLD
        named = name != BARE[dict] and name in BARE.values()
        told = way != kernels.UNTOLD and not named
        ways.append(way)
        tags.append(f'{{"{CLASS}": "{name}", "value": '.encode() if told else b"")
    offsets = offsets_of(np.array(list(map(len, tags)), np.int64))
    return np.array(ways, np.int64), offsets, np.frombuffer(b"".join(tags), np.uint8)


def json_of(table: Marked, lines: I64Array) -> pa.Array:
    """Return the JSON of many objects of the usual classes, as `JsonValues` makes it of each.

    Those of other classes are marked as untold.
    """
    parts, row = table.parts, 0
    ways = _ways(parts.classes)
    ends = np.zeros(len(lines), np.int64)
    sizes = int((parts.behind[lines] - lines).sum())
    out = np.empty(kernels.ROOM * 2 + sizes * 16, np.uint8)
    seen = np.empty(kernels.SEEN, np.int64)
    stack = np.empty((DEEPEST + 1) * kernels.LEVEL_WIDTH, np.int64)
    while True:
        row = kernels.write_json(
            row, lines, parts.data, parts.kind, parts.start, parts.end, parts.number, parts.behind,
            *ways, out, ends, seen, stack,
        )  # fmt: skip
        if row == len(lines):
            break
        out = np.concatenate((out, np.empty_like(out)))
    done = ends >= 0
    table.untold[lines[~done]] = True
    offsets = np.concatenate(([0], np.where(done, ends, ~ends)))
    if offsets[-1] > MOST_TEXT:
        raise EncodeError("JSON that is too long in a column")
    bitmap, nulls = validity((done & (parts.kind[lines] != NULL)).astype(np.uint8))
    buffers = [bitmap, arrow_buffer(offsets.astype(np.int32)), arrow_buffer(out[: offsets[-1]])]
    return pa.Array.from_buffers(pa.string(), len(lines), buffers, nulls)


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
