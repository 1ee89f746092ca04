"""Objects as JSON, if no declared type determines a column.

Types that JSON has are plain JSON: null, text, `Boolean`, `Integer`, `Double`, an `ArrayList`, a
`HashMap` whose keys are text. Other values have their class, as in `{"@class": "java.lang.Long",
"value": 5}`; a map's value is a list of pairs, an object's its fields.
"""

from __future__ import annotations

import json
import math
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
    variable_values,
)
from statelake.state_core.serializers.kryo.containers import (
    CONTAINER_FORMS,
    ArrayForm,
    CollectionForm,
    EnumSetForm,
    MapForm,
)
from statelake.state_core.serializers.kryo.forms import TIMES, decimal_parts, decimal_text
from statelake.state_core.serializers.kryo.graph import Classes, Item
from statelake.state_core.serializers.kryo.java_types import PRIMITIVES
from statelake.state_core.serializers.kryo.objects import FieldForm
from statelake.state_core.serializers.kryo.scalars import present_mask
from statelake.state_core.serializers.kryo.tables import (
    MOST_TEXT,
    ClassNames,
    ClassTable,
    MarkedTable,
    PlacedTable,
    TablePlan,
)

CLASS = "@class"
HOLDERS = ("java.util.Collections$", "java.util.Optional")
_OF_OBJECTS = (CollectionForm, ArrayForm, EnumSetForm)
_TUPLES = (
    "java.lang.Class",
    "java.net.InetSocketAddress",
    "java.sql.Timestamp",
    "java.util.GregorianCalendar",
    "java.util.Locale",
    "java.util.regex.Pattern",
)
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

    def from_json(self, value: Any) -> Item | None:
        """Return the object for a JSON value."""
        if value is None:
            return None
        java_class, extra = BARE[type(value)], None
        if isinstance(value, dict) and CLASS in value:
            java_class, extra, value = value[CLASS], value.get("with"), value["value"]
        elif isinstance(value, dict):
            value = list(value.items())
        form = self.classes.form_of(java_class)
        if isinstance(extra, dict):
            extra = self.from_json(extra)
        item = Item(java_class, value, extra)
        if isinstance(form, FieldForm):
            item.value = {
                name: _unsaid(value[name], kind.box)
                if kind.name in PRIMITIVES
                else self.from_json(value[name])
                for name, kind in form.fields.items()
            }
        elif isinstance(form, MapForm) or (value and java_class.endswith("SingletonMap")):
            item.value = [tuple(self.from_json(part) for part in pair) for pair in value]
        elif isinstance(form, _OF_OBJECTS) or java_class.startswith(HOLDERS):
            item.value = [self.from_json(part) for part in value]
        else:
            item.value = _unsaid(value, java_class)
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
    return tuple(content) if java_class in TIMES or java_class in _TUPLES else content


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


def _way(name: str) -> int:
    """Return the way of a class of the JDK."""
    form = CONTAINER_FORMS[name].kernel[0] if name in CONTAINER_FORMS else UNKNOWN
    way = {COLLECTION: kernels.LIST, MAP: kernels.ENTRIES}.get(form, kernels.UNTOLD)
    return _WAYS.get(name, way)


def _ways(classes: ClassTable) -> tuple[I64Array, I64Array, U8Array]:
    """Return the way of each class, and what names it: where that begins, and its bytes."""
    ways, tags = [], []
    for name, (form, _) in zip(classes.names, classes.forms, strict=True):
        way = _way(name) if form != UNKNOWN else kernels.UNTOLD
        named = name != BARE[dict] and name in BARE.values()
        tagged = way != kernels.UNTOLD and not named
        ways.append(way)
        tags.append(f'{{"{CLASS}": "{name}", "value": '.encode() if tagged else b"")
    offsets = offsets_of(np.array(list(map(len, tags)), np.int64))
    return np.array(ways, np.int64), offsets, np.frombuffer(b"".join(tags), np.uint8)


def json_of(table: MarkedTable, lines: I64Array) -> pa.Array:
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


# the classes of JSON that kernels read, and of each its way and the bits of a whole number
_NAMES = (
    BARE[float],
    *_WAYS,
    *(name for name in CONTAINER_FORMS if name not in _WAYS and _way(name)),
)
_BY_NAME = ClassNames.of(_NAMES)
_READ_WAYS = np.array([_way(name) for name in _NAMES], np.int64)
_BITS = np.array([_WHOLE_BITS.get(name, 64) for name in _NAMES], np.int64)
_BARE = np.array([_NAMES.index(BARE[kind]) for kind in (str, bool, int, float, list, dict)])


def plan_of_json(values: pa.Array) -> TablePlan:
    """Return the plan by which many values of JSON are written.

    What has other classes than the usual ones, or is no JSON, is an object of no known class there.
    """
    offsets, data = variable_values(values)
    present = present_mask(values).astype(np.uint8)
    size = int(offsets[-1] - offsets[0])
    kind, number, start, end, behind = np.zeros((5, size + len(values)), np.int64)
    out, ends = np.empty(size, np.uint8), np.zeros(len(values), np.int64)
    kernels.read_json(
        offsets, data, present, *_BY_NAME, _READ_WAYS, _BITS, _BARE, kind, number, start, end,
        behind, out, ends, np.empty(kernels.SEEN, np.int64),
        np.empty((DEEPEST + 1) * kernels.LEVEL_WIDTH, np.int64),
    )  # fmt: skip
    sizes = np.diff(ends, prepend=0)
    kind, number, start, end = (each[: int(sizes.sum())] for each in (kind, number, start, end))
    floats = np.flatnonzero(kind == _BARE[3])
    texts = [data[a:b].tobytes() for a, b in zip(start[floats], end[floats], strict=True)]
    number[floats] = np.array(list(map(float, texts)), np.float64).view(np.int64)

    def place(table: PlacedTable, first: I64Array) -> None:
        at = np.repeat(first - (ends - sizes), sizes) + np.arange(len(kind))
        table.put_all(at, np.where(kind == kernels.FAILED, len(_NAMES), kind), _NAMES)
        table.number[at], table.start[at] = number, start
        text = kind == _BARE[0]
        table.start[at[text]] += table.size
        table.end[at[text]] = end[text] + table.size
        table.put_data(out)

    return TablePlan(sizes, place)
