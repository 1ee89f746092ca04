"""The language of types, for migrations, checks and bootstraps.

A type is text in Java's syntax, or a mapping if a class has named parts::

    Long
    Tuple2<String, List<Integer>>
    {pojo: com.acme.Customer, fields: {id: Long, name: String, tier: Tier}}
    {list: {enum: com.acme.Tier, constants: [GOLD, SILVER]}}

`parse_type` returns a serializer snapshot, as a new Flink job would write it; `type_text` returns
the type of a snapshot in this language.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from statelake.state_core.errors import EncodeError, StateError, did_you_mean
from statelake.state_core.serializers.avro.serializer import AvroSerializerSnapshot
from statelake.state_core.serializers.basic.enums import EnumSerializerSnapshot
from statelake.state_core.serializers.composite.arrays import (
    GenericArraySerializerSnapshot,
    SetSerializerSnapshot,
)
from statelake.state_core.serializers.composite.collections import (
    ListSerializerSnapshot,
    MapSerializerSnapshot,
)
from statelake.state_core.serializers.composite.optionals import (
    JavaEitherSerializerSnapshot,
    NullableSerializerSnapshot,
)
from statelake.state_core.serializers.composite.pojo_compatibility import declared_in
from statelake.state_core.serializers.composite.pojo_snapshot import PojoSerializerSnapshot
from statelake.state_core.serializers.composite.structs import (
    RowSerializerSnapshot,
    TupleSerializerSnapshot,
)
from statelake.state_core.serializers.framework import plugins
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import Verdict
from statelake.state_core.serializers.framework.registry import changes, registered_classes
from statelake.state_core.serializers.framework.snapshots import (
    CompositeTypeSerializerSnapshot,
    SimpleTypeSerializerSnapshot,
)
from statelake.state_core.serializers.opaque.optional_map import OptionalEntry
from statelake.state_core.serializers.sql.row_data import RowDataSerializerSnapshot
from statelake.state_core.serializers.sql.types.logical_type_parser import parse_logical_type

TypeSpec: TypeAlias = "str | Mapping[str, Any]"
Nested: TypeAlias = "tuple[TypeSerializerSnapshot, ...]"

_TOKEN = re.compile(r"\s*([\w.$]+(?:\[\])?|[<>,])")
PRIMITIVES = {
    "boolean": "Boolean", "byte": "Byte", "short": "Short", "int": "Integer", "long": "Long",
    "float": "Float", "double": "Double", "char": "Character",
}  # fmt: skip
_ALIASES = PRIMITIVES | {"Int": "Integer", "Char": "Character", "Bytes": "byte[]"}
MAX_TUPLE = 25
SHOWN = 200


def parse_type(spec: TypeSpec) -> TypeSerializerSnapshot:
    """Return the serializer snapshot of a type in this language.

    Raises:
        EncodeError: The type can't be parsed; the message names the known types.
    """
    try:
        if isinstance(spec, Mapping):
            return _parse_mapping(spec)
        snapshot, rest = _parse(_tokens(str(spec)))
    except StateError:
        raise
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # a mapping whose parts have another form than in this language
        shown = f"{str(spec)[:SHOWN]} is no type ({type(error).__name__}: {error})"
        raise EncodeError(shown, remedy=_known()) from error
    if rest:
        raise EncodeError(f"{rest[0]!r} behind a complete type in {spec!r}")
    return snapshot


def simple_types() -> dict[str, type[SimpleTypeSerializerSnapshot]]:
    """Return the types that their name alone determines, including users' registered ones."""
    return _simple_types(changes())


@lru_cache(maxsize=1)
def _simple_types(_changes: int) -> dict[str, type[SimpleTypeSerializerSnapshot]]:
    return {
        registered_class().type_name: registered_class
        for registered_class in registered_classes().values()
        if issubclass(registered_class, SimpleTypeSerializerSnapshot)
    }


def _tokens(text: str) -> list[str]:
    tokens, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise EncodeError(f"{text[at:]!r} is no part of a type, in {text!r}")
        tokens.append(match[1])
        at = match.end()
    if not tokens:
        raise EncodeError("a type is missing", remedy="write one, such as Long or List<String>")
    return tokens


def _parse(tokens: list[str]) -> tuple[TypeSerializerSnapshot, list[str]]:
    """Parse one type at the front of the tokens, and return it with the rest."""
    if not tokens:
        raise EncodeError("the type ends too early")
    name, rest = _ALIASES.get(tokens[0], tokens[0]), tokens[1:]
    if not rest or rest[0] != "<":
        return _named(name, ()), rest
    nested: list[TypeSerializerSnapshot] = []
    while rest and rest[0] in ("<", ","):
        argument, rest = _parse(rest[1:])
        nested.append(argument)
    if not rest or rest[0] != ">":
        raise EncodeError(f"{name}<...> is not closed")
    return _named(name, tuple(nested)), rest[1:]


def _named(name: str, nested: Nested) -> TypeSerializerSnapshot:
    if nested:
        kind = _GENERIC.get(name.rstrip("0123456789") if name.startswith("Tuple") else name)
        if kind is None:
            raise EncodeError(f"{name}<...> is no known type", remedy=_known())
        return _tuple(name, nested) if kind is TupleSerializerSnapshot else kind.around(*nested)
    if name not in simple_types():
        plugins.load_installed()
    snapshot_class = simple_types().get(name)
    if snapshot_class is None:
        raise EncodeError(f"{name} is no known type", remedy=_known())
    return snapshot_class()


def _known() -> str:
    names = [*simple_types(), *(f"{name}<...>" for name in _GENERIC)]
    return f"known types: {', '.join(names)}; mappings: {', '.join(_MAPPINGS)}"


def _tuple(name: str, nested: Nested) -> TypeSerializerSnapshot:
    digits = name.removeprefix("Tuple")
    if len(nested) > MAX_TUPLE or (digits and int(digits) != len(nested)):
        raise EncodeError(f"{name} is given {len(nested)} types")
    snapshot = TupleSerializerSnapshot.around(*nested)
    snapshot.tuple_class = f"org.apache.flink.api.java.tuple.Tuple{len(nested)}"
    return snapshot


_GENERIC: dict[str, type[CompositeTypeSerializerSnapshot]] = {
    "List": ListSerializerSnapshot,
    "Map": MapSerializerSnapshot,
    "Set": SetSerializerSnapshot,
    "Nullable": NullableSerializerSnapshot,
    "Either": JavaEitherSerializerSnapshot,
    "Row": RowSerializerSnapshot,
    "Tuple": TupleSerializerSnapshot,
}
_NAMES = {kind: name for name, kind in _GENERIC.items()}


def _pojo(
    spec: Mapping[str, Any], inherited: Mapping[str, str] | None = None
) -> PojoSerializerSnapshot:
    """Parse a POJO; a new field that is `Integer` begins as null, one that is `int` as 0.

    Fields that a subclass shares with its superclass belong to the superclass: if the subclass
    declared them again, Java would have two fields of one name, which Flink does not accept in a
    POJO. Other fields of a superclass are in `declared_in`.

    Args:
        spec: A mapping with `pojo`, `fields`, the classes `declared_in`, and the subclasses
            `registered` and `non_registered`.
        inherited: The declaring class of each field that belongs to a superclass.
    """
    java_class, spec_fields = str(spec["pojo"]), spec.get("fields", {})
    fields = _fields(spec, "fields")
    above = _held(spec, "declared_in") if "declared_in" in spec else {}
    unknown = [name for name in above if name not in fields]
    if unknown:
        raise EncodeError(f"`declared_in` has {unknown[0]!r}, which is no field of {java_class}")
    declared = {
        name: str(above.get(name, (inherited or {}).get(name, java_class))) for name in fields
    }
    return PojoSerializerSnapshot.of(
        java_class,
        fields,
        registered=_subclasses(spec, "registered", declared),
        non_registered=_subclasses(spec, "non_registered", declared),
        declared_in=declared,
        boxed=[
            name for name, field_spec in spec_fields.items() if field_spec in PRIMITIVES.values()
        ],
    )


def _subclasses(
    spec: Mapping[str, Any], name: str, declared: Mapping[str, str]
) -> dict[str, TypeSerializerSnapshot] | None:
    if name not in spec:
        return None
    return {
        java_class: (
            _pojo(subclass, declared)
            if isinstance(subclass, Mapping) and "pojo" in subclass
            else parse_type(subclass)
        )
        for java_class, subclass in _held(spec, name).items()
    }


def _enum(spec: Mapping[str, Any]) -> TypeSerializerSnapshot:
    constants = spec.get("constants")
    if not isinstance(constants, list) or not constants:
        raise EncodeError("an enum needs its `constants`, a list of names")
    return EnumSerializerSnapshot.of(str(spec["enum"]), [str(constant) for constant in constants])


def _array(spec: Mapping[str, Any]) -> TypeSerializerSnapshot:
    return GenericArraySerializerSnapshot.of(str(spec["array"]), parse_type(spec.get("of", "")))


def _row_data(spec: Mapping[str, Any]) -> TypeSerializerSnapshot:
    types = spec["row_data"]
    if not isinstance(types, list):
        raise EncodeError("`row_data` must be a list of SQL types, such as [BIGINT, STRING]")
    return RowDataSerializerSnapshot.of(*(parse_logical_type(str(type_)) for type_ in types))


def _fields(spec: Mapping[str, Any], name: str) -> dict[str, TypeSerializerSnapshot]:
    return {field: parse_type(field_spec) for field, field_spec in _held(spec, name).items()}


def _held(spec: Mapping[str, Any], name: str) -> dict[str, TypeSpec]:
    mapping = spec.get(name)
    if not isinstance(mapping, Mapping):
        raise EncodeError(f"{name!r} of a type must be a mapping of names to types")
    return {str(field): field_spec for field, field_spec in mapping.items()}


def _avro(spec: Mapping[str, Any]) -> TypeSerializerSnapshot:
    if "class" in spec:
        return AvroSerializerSnapshot.of(spec["avro"], str(spec["class"]))
    return AvroSerializerSnapshot.of(spec["avro"])


def _generic(name: str) -> Callable[[Mapping[str, Any]], TypeSerializerSnapshot]:
    """Return a parser of `{list: ...}` and similar types, whose parts may be mappings."""

    def build(spec: Mapping[str, Any]) -> TypeSerializerSnapshot:
        content = spec[name.lower()]
        parts = content if isinstance(content, list) else [content]
        if not parts:
            raise EncodeError(f"a {name.lower()} needs at least one type")
        return _named(name, tuple(parse_type(part) for part in parts))

    return build


_MAPPINGS: dict[str, Callable[[Mapping[str, Any]], TypeSerializerSnapshot]] = {
    "pojo": _pojo,
    "avro": _avro,
    "enum": _enum,
    "array": _array,
    "row_data": _row_data,
    **{name.lower(): _generic(name) for name in _GENERIC},
}
_ENTRIES = {  # beside the kind itself
    "pojo": ("fields", "declared_in", "registered", "non_registered"),
    "avro": ("class",),
    "enum": ("constants",),
    "array": ("of",),
}


def _parse_mapping(spec: Mapping[str, Any]) -> TypeSerializerSnapshot:
    kinds = [name for name in _MAPPINGS if name in spec]
    if len(kinds) != 1:
        raise EncodeError(f"{sorted(spec)} must name one kind of type", remedy=_known())
    entries = _ENTRIES.get(kinds[0], ())
    unknown = [str(name) for name in spec if name not in (*kinds, *entries)]
    if unknown:
        raise EncodeError(
            f"{unknown[0]!r} is no entry of the type {kinds[0]!r}",
            remedy=f"it has: {', '.join((*kinds, *entries))}{did_you_mean(unknown[0], entries)}",
        )
    return _MAPPINGS[kinds[0]](spec)


# -------------------------------------------------------------------------------- as text


def composed(name: str, nested: Sequence[TypeSpec]) -> TypeSpec:
    """Return a generic type: as text where all its parts are text."""
    if all(isinstance(part, str) for part in nested):
        return f"{name}<{', '.join(map(str, nested))}>"
    return {name.rstrip("0123456789").lower(): list(nested) if len(nested) > 1 else nested[0]}


def type_text(snapshot: TypeSerializerSnapshot) -> TypeSpec | None:
    """Return the type of a snapshot in this language, if Flink would take the one for the other.

    A snapshot does not contain whether a POJO's field is `Integer` or `int`: it is `Integer` here.

    Returns:
        None for a type that the language can't express, or whose rules are only in Java code.
    """
    spec = _text_of(snapshot)
    if spec is None:
        return None
    try:
        same = parse_type(spec).resolve_schema_compatibility(snapshot)
    except StateError:
        return None
    return spec if same.verdict is Verdict.COMPATIBLE_AS_IS else None


def _text_of(snapshot: TypeSerializerSnapshot | None) -> TypeSpec | None:
    if isinstance(snapshot, PojoSerializerSnapshot):
        return _pojo_text(snapshot, {})
    if isinstance(snapshot, EnumSerializerSnapshot):
        return {"enum": snapshot.enum_class, "constants": list(snapshot.constants)}
    if isinstance(snapshot, RowDataSerializerSnapshot):
        # a slice of a stream's `JavaString` is a `str`, as JSON and YAML need it
        return {"row_data": [str(written.type)[:] for written in snapshot.types]}
    if isinstance(snapshot, AvroSerializerSnapshot):
        return {"avro": json.loads(snapshot.schema_text), "class": snapshot.runtime_class}
    if isinstance(snapshot, SimpleTypeSerializerSnapshot):
        return snapshot.type_name
    if not isinstance(snapshot, CompositeTypeSerializerSnapshot):
        return None
    nested = [spec for spec in map(_text_of, snapshot.nested) if spec is not None]
    if not nested or len(nested) != len(snapshot.nested):
        return None
    if isinstance(snapshot, GenericArraySerializerSnapshot):
        return {"array": snapshot.component_class, "of": nested[0]}
    name = _NAMES.get(type(snapshot))
    return name and composed(f"Tuple{len(nested)}" if name == "Tuple" else name, nested)


def _pojo_text(
    snapshot: PojoSerializerSnapshot, inherited: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return a POJO; `inherited` has the declaring class of each field of its superclass."""
    pojo = snapshot.pojo
    declared = {field.name: declared_in(field) for field in pojo.fields if field.present}
    fields = {field.name: _text_of(field.value.snapshot) for field in pojo.fields if field.value}
    if len(declared) != len(pojo.fields) or None in fields.values():
        return None
    above = {
        name: java_class
        for name, java_class in declared.items()
        if java_class != inherited.get(name, pojo.java_class)
    }
    spec: dict[str, Any] = {"pojo": pojo.java_class, "fields": fields}
    if above:
        spec["declared_in"] = above
    for name in ("registered", "non_registered"):
        entries: Sequence[OptionalEntry] = getattr(pojo, name)
        subclasses = {
            entry.name: _pojo_text(entry.value.snapshot, declared)
            if isinstance(entry.value.snapshot, PojoSerializerSnapshot)
            else _text_of(entry.value.snapshot)
            for entry in entries
            if entry.value is not None
        }
        if len(subclasses) != len(entries) or None in subclasses.values():
            return None
        if subclasses:
            spec[name] = subclasses
    return spec
