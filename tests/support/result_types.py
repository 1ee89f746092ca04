"""The JSON of results as their types say it, in the form of the schemas of `docs/json`."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Union, get_args, get_origin

from statelake.state_core.printable import JsonFields

PLAIN = {
    str: "string", datetime: "string", bytes: "string", bool: "boolean", int: "integer",
    float: "number", type(None): "null",
}  # fmt: skip
COMPARED = ("items", "additionalProperties")


def schema_of_type(hint: Any) -> dict[str, Any]:
    """Return the schema of a type; empty if the type leaves it open, or a class says it itself."""
    if get_origin(hint) is Annotated:
        return schema_of_type(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        parts = [schema_of_type(each) for each in get_args(hint)]
        if not all(parts):
            return {}
        kinds = {kind for part in parts for kind in part["type"]}
        return {key: value for part in parts for key, value in part.items()} | {"type": kinds}
    kind, args = get_origin(hint) or hint, get_args(hint)
    if hint in PLAIN:
        return {"type": {PLAIN[hint]}}
    if not isinstance(kind, type) or kind.__name__ == "object":
        return {}
    if issubclass(kind, Enum):
        return {"type": {"string"}}
    if issubclass(kind, Mapping):
        return {"type": {"object"}, "additionalProperties": schema_of_type(args[1])}
    if getattr(kind, "to_json", JsonFields.to_json) is not JsonFields.to_json:
        return {}
    names = getattr(kind, "JSON", JsonFields.JSON)
    if issubclass(kind, Sequence) and names is JsonFields.JSON:
        if not args:
            ((item,),) = (found for base in kind.__orig_bases__ if (found := get_args(base)))
            args = (_evaluated(item, kind),)
        pairs = get_origin(args[0]) is tuple  # which are shown as a map
        return {"type": {"array"}, "items": schema_of_type(args[0])} if not pairs else {}
    is_struct = is_dataclass(kind) or names is not JsonFields.JSON
    return _schema_of_struct(kind) if is_struct else {}


def _schema_of_struct(struct: type) -> dict[str, Any]:
    names = getattr(struct, "JSON", JsonFields.JSON)
    if isinstance(names, str):
        return schema_of_type(_type_of(struct, names))
    shown = list(_shown(struct))
    return {
        "type": {"object"},
        "required": {name for name, optional, _ in shown if not optional},
        "properties": {name: schema_of_type(hint) for name, _, hint in shown},
    }


def _shown(struct: type) -> Iterator[tuple[str, bool, Any]]:
    """Yield what JSON shows of a struct: name, whether it may be left out, type; `` for a map."""
    for entry in getattr(struct, "JSON", JsonFields.JSON):
        shown, _, name = entry.rpartition("=")
        if entry == "*":
            for field in fields(struct):
                if field.repr:
                    yield field.name, False, _type_of(struct, field.name)
            continue
        hint: Any = struct
        if name == ".":
            hint = next(base for base in struct.__orig_bases__ if get_args(base))
        elif name.startswith("!"):
            hint = bool
        else:
            for part in name.strip("*?").split("."):
                hint = _type_of(hint, part)
        if not name.startswith("*"):
            yield shown or name.strip("?"), name.endswith("?"), _there(hint, name)
        elif is_dataclass(hint) and schema_of_type(hint):
            yield from _shown(hint)  # type: ignore[arg-type]  # it is a class
        else:
            yield "", True, hint


def _there(hint: Any, name: str) -> Any:
    """Return the type that a field has if it is shown: not None if it may be left out."""
    if name.endswith("?") and get_origin(hint) in (Union, types.UnionType):
        return Union[tuple(each for each in get_args(hint) if each is not type(None))]  # noqa: UP007
    return hint


def _type_of(struct: Any, name: str) -> Any:
    """Return the type of a field or property; `Any` if it is not known."""
    for base in getattr(struct, "__mro__", ()):
        if name in vars(base).get("__annotations__", {}):
            return _evaluated(base.__annotations__[name], base)
        if isinstance(attribute := vars(base).get(name), property):
            return _evaluated(attribute.fget.__annotations__["return"], base)
        if name in vars(base):
            return type(attribute)
    return Any


def _evaluated(annotation: Any, owner: type) -> Any:
    try:
        text = getattr(annotation, "__forward_arg__", annotation)
        names = vars(sys.modules[owner.__module__])
        return eval(text, names) if isinstance(text, str) else text  # noqa: S307 - our own code
    except (NameError, TypeError):  # imported for types alone; a string within `|`
        return Any


def differences(
    schema: dict[str, Any], typed: dict[str, Any], definitions: Any, at: str = ""
) -> Iterator[str]:
    """Yield how a schema differs from that of a type, where both say something.

    Args:
        schema: The schema.
        typed: What `schema_of_type` returns.
        definitions: What its `$ref` are of.
        at: Where it is in the schema.
    """
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rsplit("/", 1)[-1]]
    if not typed or not {"type", "enum"} & schema.keys():
        return
    kinds = schema.get("type", "string")
    kinds = {kinds} if isinstance(kinds, str) else set(kinds)
    if kinds != typed["type"]:
        yield f"{at}: {sorted(kinds)} is {sorted(typed['type'])}"
    for name in COMPARED:
        if isinstance(schema.get(name), dict) and name in typed:
            yield from differences(schema[name], typed[name], definitions, f"{at}/{name}")
    if "properties" not in schema or "properties" not in typed:
        return
    listed, known = schema["properties"], typed["properties"]
    is_open = "" in known  # fields of a map are in it
    if listed.keys() != known.keys() and not is_open:
        yield f"{at}: {sorted(listed.keys() ^ known.keys())}"
    if set(schema["required"]) != typed["required"] and not is_open:
        yield f"{at}: required {sorted(set(schema['required']) ^ typed['required'])}"
    for name in listed.keys() & known.keys():
        yield from differences(listed[name], known[name], definitions, f"{at}/{name}")
