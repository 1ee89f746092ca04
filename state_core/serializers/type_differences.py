"""Differences of two types, in words: what a reader of a pull request has to know.

::

    field `country: String` added, null for all
    field `total`: Integer to Long, widened
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from statelake.state_core.nested import column_names
from statelake.state_core.serializers.type_spec import PRIMITIVES, TypeSpec, parse_type

WIDTHS = ("Byte", "Short", "Integer", "Long", "Float", "Double")
NO_EXPRESSIONS: Mapping[str, str] = {}
_CLASSES = ("pojo", "enum", "array")  # kinds of types with a class


def mentions(sql: str, name: str) -> bool:
    """Return whether an expression has a word that is the name of a field."""
    return re.search(rf"\b{re.escape(name)}\b", sql) is not None


def initial_value(spec: TypeSpec) -> str:
    """Return Java's initial value of a new field, as SQL: of a primitive 0 or false, or NULL."""
    if spec not in PRIMITIVES:
        return "NULL"
    return "false" if spec == "boolean" else "0"


def short_text(spec: TypeSpec) -> str:
    """Return a type in one word or two: of a POJO its class, without its fields."""
    if isinstance(spec, str):
        return " ".join(spec.split())
    for kind in _CLASSES:
        if kind in spec:
            return f"{spec[kind]}[]" if kind == "array" else str(spec[kind])
    return parse_type(spec).type_name


def type_differences(
    old: TypeSpec, new: TypeSpec, path: str = "", expressions: Mapping[str, str] = NO_EXPRESSIONS
) -> Iterator[str]:
    """Yield each difference of two types, as a sentence without a period.

    Args:
        old: The old type.
        new: The new type.
        path: The field that has it; empty for the whole value.
        expressions: By field, the SQL over the old value that gives the new one.
    """
    kind = _common_kind(old, new)
    if kind == "pojo":
        yield from _of_fields(old, new, path, expressions)
        yield from _of_subclasses(old, new, path)
    elif kind == "enum":
        yield from _of_constants(old["constants"], new["constants"], path)  # type: ignore[index]
    elif kind and kind not in ("row_data", "avro", *_CLASSES):
        parts = [spec[kind] for spec in (old, new)]  # type: ignore[index]
        before, after = (part if isinstance(part, list) else [part] for part in parts)
        if len(before) != len(after):
            yield f"{_field(path)}{short_text(old)} to {short_text(new)}"
            return
        for index, pair in enumerate(zip(before, after, strict=True)):
            yield from type_differences(*pair, f"{path}[{index}]", expressions)
    elif not _same(old, new):
        yield f"{_field(path)}{_change(old, new)}"
    if path in expressions:
        yield f"{_field(path) or 'value: '}{expressions[path]}"


def _common_kind(old: TypeSpec, new: TypeSpec) -> str:
    """Return the kind of two mappings of the same kind and class; otherwise nothing."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return ""
    kind = next(iter(set(old) & set(new) & KINDS), "")
    return "" if kind in _CLASSES and old[kind] != new[kind] else kind


KINDS = frozenset(
    (*_CLASSES, "row_data", "avro", "list", "map", "set", "nullable", "either", "row", "tuple")
)


def _same(old: TypeSpec, new: TypeSpec) -> bool:
    if isinstance(old, str) and isinstance(new, str):
        return _boxed(old) == _boxed(new)
    return old == new


def _boxed(text: str) -> str:
    text = "".join(text.split())
    return PRIMITIVES.get(text, text)


def _field(path: str) -> str:
    return f"field `{path}`: " if path else ""


def _change(old: TypeSpec, new: TypeSpec) -> str:
    before, after = short_text(old), short_text(new)
    change = f"{before} to {after}"
    widths = [WIDTHS.index(_boxed(text)) for text in (before, after) if _boxed(text) in WIDTHS]
    if len(widths) == 2:
        return f"{change}, {'widened' if widths[0] < widths[1] else 'narrowed'}"
    return f"{change}, with other parts" if before == after else change


def _of_fields(old: Any, new: Any, path: str, expressions: Mapping[str, str]) -> Iterator[str]:
    before, after = old["fields"], new["fields"]
    columns = dict(zip(before, column_names(list(before)), strict=True))
    inside = f"{path}." if path else ""
    for name, spec in after.items():
        if name not in before:
            value = f"{initial_value(spec).replace('NULL', 'null')} for all"
            value = expressions.get(f"{inside}{name}", value)
            yield f"field `{inside}{name}: {short_text(spec)}` added, {value}"
    for name, spec in before.items():
        if name in after:
            yield from type_differences(spec, after[name], f"{inside}{name}", expressions)
        else:
            used = any(mentions(sql, columns[name]) for sql in expressions.values())
            lost = "which an expression uses" if used else "its values are dropped"
            yield f"field `{inside}{name}: {short_text(spec)}` removed, {lost}"


def _of_subclasses(old: Any, new: Any, path: str) -> Iterator[str]:
    for entry in ("registered", "non_registered"):
        before, after = old.get(entry, {}), new.get(entry, {})
        for name in after:
            if name not in before:
                yield f"{_field(path)}subclass {name} added"
        for name, spec in before.items():
            if name not in after:
                yield f"{_field(path)}subclass {name} removed, which Flink refuses"
            else:
                yield from type_differences(spec, after[name], f"{path}({name})")


def _of_constants(old: Sequence[str], new: Sequence[str], path: str) -> Iterator[str]:
    for constant in new:
        if constant not in old:
            yield f"{_field(path)}constant {constant} added"
    gone = [constant for constant in old if constant not in new]
    for constant in gone:
        yield f"{_field(path)}constant {constant} removed, which Flink refuses"
    both = [constant for constant in new if constant in old]
    if both != [constant for constant in old if constant not in gone]:
        yield f"{_field(path)}constants in another order"
