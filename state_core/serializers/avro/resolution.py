"""Avro's rules for a valid schema, and for a reader's schema that follows a writer's.

Source: `org.apache.avro.SchemaCompatibility`, and "Schema Resolution" in Avro's specification.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from statelake.state_core.bounds import MEMBERS
from statelake.state_core.serializers.framework.compatibility import Reason

Schema: TypeAlias = "str | list[Any] | dict[str, Any]"

PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
NAMED = {"record", "error", "enum", "fixed"}
PROMOTIONS = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "string": {"bytes"},
    "bytes": {"string"},
}
NOT_COMPARED = {"doc", "aliases", "full_name", "namespace", "name"}


MOST_OF_FIXED = (1 << 31) - 1


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_fields(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


# the parts of a schema by its type, required and optional: name, check, expected form in words
_Part: TypeAlias = "tuple[str, Callable[[Any], bool], str]"
_OPTIONAL: tuple[_Part, ...] = (
    ("namespace", lambda value: value is None or isinstance(value, str), "text"),
    ("aliases", _are_texts, "a list of names"),
)
_NAME: _Part = ("name", _is_text, "a name")
_FIELDS: _Part = ("fields", _are_fields, "a list of fields")
_PARTS: dict[str, tuple[_Part, ...]] = {
    "record": (_NAME, _FIELDS),
    "error": (_NAME, _FIELDS),
    "enum": (_NAME, ("symbols", _are_texts, "a list of names")),
    "fixed": (
        _NAME,
        ("size", lambda value: type(value) is int and 0 <= value <= MOST_OF_FIXED, "a size"),
    ),
}


def parse_schema(text: str) -> Schema:
    """Return the schema in JSON text.

    Raises:
        ValueError: The schema is not valid.
    """
    try:
        schema: Schema = json.loads(text, parse_constant=_refuse_constant)
        _check_schema(schema, "the schema")
    except RecursionError:
        raise ValueError("nested too deep") from None
    return schema


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name}, which is no number of JSON")


def _check_schema(schema: Any, place: str) -> None:
    """Refuse schemas that Avro's own parser refuses, as far as they matter here."""
    if isinstance(schema, str):
        return
    if isinstance(schema, list):
        for index, branch in enumerate(schema):
            _check_schema(branch, f"{place}[{index}]")
        return
    if not isinstance(schema, dict):
        raise ValueError(f"{place} is {json.dumps(schema)}")  # noqa: TRY004 - it is all one
    if "type" not in schema:
        raise ValueError(f"{place} has no type")
    kind = schema["type"]
    if not isinstance(kind, str):
        _check_schema(kind, f"{place}.type")
        return
    for part, fits, what in _PARTS.get(kind, ()):
        if part not in schema or not fits(schema[part]):
            raise ValueError(f"{place}.{part} is not {what}")
    _check_optional(schema, place)
    for part in {"array": ("items",), "map": ("values",)}.get(kind, ()):
        if part not in schema:
            raise ValueError(f"{place} has no {part}")
        _check_schema(schema[part], f"{place}.{part}")
    if kind == "enum":
        symbols = schema["symbols"]
        if len(symbols) > MEMBERS.most:
            raise ValueError(f"{place} has {len(symbols)} symbols; at most {MEMBERS.most} are read")
        if len(set(symbols)) < len(symbols):
            raise ValueError(f"{place} has a symbol twice")
    for field in schema["fields"] if kind in ("record", "error") else ():
        if not _is_text(field.get("name")):
            raise ValueError(f"{place} has a field without a name")
        _check_optional(field, f"{place}.{field['name']}")
        if "type" not in field:
            raise ValueError(f"{place}.{field['name']} has no type")
        _check_schema(field["type"], f"{place}.{field['name']}")


def _check_optional(schema: Mapping[str, Any], place: str) -> None:
    for part, fits, what in _OPTIONAL:
        if part in schema and not fits(schema[part]):
            raise ValueError(f"{place}.{part} is not {what}")


def named_schemas(schema: Schema) -> dict[str, dict[str, Any]]:
    """Return the records, enums and fixeds of a schema by full name, and add `full_name` to each.

    References in the schema are replaced by full names.
    """
    named: dict[str, dict[str, Any]] = {}
    _name(schema, "", named)
    return named


def _name(schema: Any, namespace: str, named: dict[str, dict[str, Any]]) -> Any:
    """Note the named schemas in a schema, and return it with full names in their references."""
    if isinstance(schema, str):
        if schema in PRIMITIVES or "." in schema or not namespace:
            return schema
        qualified = f"{namespace}.{schema}"
        return qualified if qualified in named else schema
    if isinstance(schema, list):
        schema[:] = [_name(branch, namespace, named) for branch in schema]
        return schema
    kind = schema.get("type")
    if isinstance(kind, str) and kind in NAMED:
        name = str(schema["name"])
        own = schema.get("namespace")
        space = name.rpartition(".")[0] if "." in name else namespace if own is None else own
        simple = name.rpartition(".")[2]
        schema["full_name"] = f"{space}.{simple}" if space else simple
        if named.setdefault(schema["full_name"], schema) is not schema:
            raise ValueError(f"{schema['full_name']!r} is defined twice")
        for field in schema.get("fields", []):
            field["type"] = _name(field["type"], space, named)
        return schema
    part = (
        {"array": "items", "map": "values"}.get(kind, "type") if isinstance(kind, str) else "type"
    )
    schema[part] = _name(schema[part], namespace, named)
    return schema


def same_schema(schema: Schema, other: Schema) -> bool:
    """Return whether two schemas are equal but for documentation and aliases (`Schema.equals`)."""
    named_schemas(schema)
    named_schemas(other)
    return bool(_canonical(schema) == _canonical(other))


def _canonical(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_canonical(field) for field in schema]
    if not isinstance(schema, dict):
        return schema
    if set(schema) == {"type"} and not isinstance(schema["type"], dict | list):
        return schema["type"]
    kept = {
        key: _canonical(attribute) for key, attribute in schema.items() if key not in NOT_COMPARED
    }
    if "full_name" in schema:
        kept["name"] = schema["full_name"]
    elif "name" in schema:
        kept["name"] = schema["name"]
    return kept


def resolve_schemas(reader: Schema, writer: Schema) -> list[Reason]:
    """Return why a reader's schema can't read a writer's values; empty if it can."""
    reading, writing = named_schemas(reader), named_schemas(writer)
    return _Resolver(reading, writing).compare(reader, writer, "")


class _Resolver:
    def __init__(
        self, reading: Mapping[str, dict[str, Any]], writing: Mapping[str, dict[str, Any]]
    ) -> None:
        self.reading = reading
        self.writing = writing
        self.settled: dict[tuple[str, str], list[Reason]] = {}

    def compare(self, reader: Any, writer: Any, path: str) -> list[Reason]:
        """Return why the reader's schema can't read the writer's values; empty if it can."""
        reader, writer = _resolved(reader, self.reading), _resolved(writer, self.writing)
        if isinstance(writer, list):
            return [reason for branch in writer for reason in self.compare(reader, branch, path)]
        if isinstance(reader, list):
            if any(not self.compare(branch, writer, path) for branch in reader):
                return []
            return [_reason(path, reader, writer, "no branch of the union can read it")]
        new, old = _kind(reader), _kind(writer)
        if new != old:
            if old in PROMOTIONS.get(new, set()):
                return []
            return [_reason(path, reader, writer, "Avro promotes no such type")]
        if new in PRIMITIVES:
            return []
        if new == "array":
            return self.compare(reader["items"], writer["items"], _join(path, "items"))
        if new == "map":
            return self.compare(reader["values"], writer["values"], _join(path, "values"))
        return self._named(reader, writer, new, path)

    def _named(self, reader: Any, writer: Any, kind: str, path: str) -> list[Reason]:
        if not _same_name(reader, writer):
            return [_reason(path, reader, writer, "the name is another, and no alias says so")]
        if kind == "fixed":
            if reader["size"] == writer["size"]:
                return []
            return [_reason(path, reader, writer, "the size of a fixed never changes")]
        if kind == "enum":
            symbols = set(reader["symbols"])
            gone = [symbol for symbol in writer["symbols"] if symbol not in symbols]
            if not gone or "default" in reader:
                return []
            return [Reason(path, ", ".join(gone), "", "symbols are gone, without a default")]
        pair = (reader["full_name"], writer["full_name"])
        if pair in self.settled:
            return self.settled[pair][:1]  # all reasons were given at the first occurrence
        self.settled[pair] = []  # assume compatibility while it is being compared
        written = {field["name"]: field["type"] for field in reversed(writer["fields"])}
        reasons = [
            reason for field in reader["fields"] for reason in self._field(field, written, path)
        ]
        self.settled[pair] = reasons
        return reasons

    def _field(self, field: dict[str, Any], written: Mapping[str, Any], path: str) -> list[Reason]:
        names = [field["name"], *field.get("aliases", [])]
        inner = _join(path, field["name"])
        for name in names:
            if name in written:
                return self.compare(field["type"], written[name], inner)
        if "default" in field:
            return []
        rule = "a new field without a default"
        return [Reason(inner, "", _shown(field["type"]), rule)]


def _resolved(schema: Any, names: Mapping[str, dict[str, Any]]) -> Any:
    """Return the schema behind a reference or a wrapper."""
    while True:
        if isinstance(schema, str) and schema in names:
            schema = names[schema]
        elif isinstance(schema, dict) and isinstance(schema.get("type"), dict | list):
            schema = schema["type"]
        elif isinstance(schema, dict) and schema.get("type") in names:
            schema = names[schema["type"]]
        else:
            return schema


def _kind(schema: Any) -> str:
    kind = schema if isinstance(schema, str) else str(schema["type"])
    return "record" if kind == "error" else kind


def _same_name(reader: Any, writer: Any) -> bool:
    names = [reader["full_name"], *reader.get("aliases", [])]
    simple = {str(name).rpartition(".")[2] for name in names}
    return str(writer["full_name"]).rpartition(".")[2] in simple


def _reason(path: str, reader: Any, writer: Any, rule: str) -> Reason:
    return Reason(path, _shown(writer), _shown(reader), rule)


def _shown(schema: Any) -> str:
    if isinstance(schema, list):
        return f"union<{', '.join(_shown(field) for field in schema)}>"
    if isinstance(schema, str):
        return schema
    return str(schema.get("full_name") or schema["type"])


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
