"""Types written down by people: what a migration, a check or a bootstrap is given.

A type is text as Java would write it, or, where a class has parts with names, a mapping::

    Long
    Tuple2<String, List<Integer>>
    {pojo: com.acme.Customer, fields: {id: Long, name: String, tier: Tier}}
    {list: {enum: com.acme.Tier, constants: [GOLD, SILVER]}}

What comes of it is a serializer snapshot, as a new job of Flink's would write it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from state_core.errors import EncodeError
from state_core.serializers.avro.serializer import AvroSerializerSnapshot
from state_core.serializers.basic.enums import EnumSerializerSnapshot
from state_core.serializers.composite.arrays import (
    GenericArraySerializerSnapshot,
    SetSerializerSnapshot,
)
from state_core.serializers.composite.collections import (
    ListSerializerSnapshot,
    MapSerializerSnapshot,
)
from state_core.serializers.composite.optionals import (
    JavaEitherSerializerSnapshot,
    NullableSerializerSnapshot,
)
from state_core.serializers.composite.pojo_snapshot import PojoSerializerSnapshot
from state_core.serializers.composite.structs import RowSerializerSnapshot, TupleSerializerSnapshot
from state_core.serializers.framework import plugins
from state_core.serializers.framework.base import TypeSerializerSnapshot
from state_core.serializers.framework.registry import changes, registered_classes
from state_core.serializers.framework.snapshots import (
    CompositeTypeSerializerSnapshot,
    SimpleTypeSerializerSnapshot,
)
from state_core.serializers.sql.row_data import RowDataSerializerSnapshot
from state_core.serializers.sql.types.logical_type_parser import parse_logical_type

__all__ = ["TypeSpec", "parse_type", "simple_types"]

TypeSpec: TypeAlias = "str | Mapping[str, Any]"
Nested: TypeAlias = "tuple[TypeSerializerSnapshot, ...]"

_TOKEN = re.compile(r"\s*([\w.$]+(?:\[\])?|[<>,])")
_PRIMITIVES = {
    "boolean": "Boolean", "byte": "Byte", "short": "Short", "int": "Integer", "long": "Long",
    "float": "Float", "double": "Double", "char": "Character",
}  # fmt: skip
_ALIASES = _PRIMITIVES | {"Int": "Integer", "Char": "Character", "Bytes": "byte[]"}
MAX_TUPLE = 25
SHOWN = 200


def parse_type(spec: TypeSpec) -> TypeSerializerSnapshot:
    """The snapshot of a type that someone wrote down.

    Raises:
        EncodeError: It can't be understood; the message says what is known.
    """
    try:
        if isinstance(spec, Mapping):
            return _parse_mapping(spec)
        found, rest = _parse(_tokens(str(spec)))
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # a mapping whose parts are of another form than the language has
        shown = f"{str(spec)[:SHOWN]} is no type ({type(error).__name__}: {error})"
        raise EncodeError(shown, remedy=_known()) from error
    if rest:
        raise EncodeError(f"{rest[0]!r} behind a complete type in {spec!r}")
    return found


def simple_types() -> dict[str, type[SimpleTypeSerializerSnapshot]]:
    """Types whose name says everything, those that users have registered included."""
    return _simple_types(changes())


@lru_cache(maxsize=1)
def _simple_types(_changes: int) -> dict[str, type[SimpleTypeSerializerSnapshot]]:
    return {
        one().type_name: one
        for one in registered_classes().values()
        if issubclass(one, SimpleTypeSerializerSnapshot)
    }


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise EncodeError(f"{text[at:]!r} is no part of a type, in {text!r}")
        found.append(match[1])
        at = match.end()
    if not found:
        raise EncodeError("a type is missing", remedy="write one, such as Long or List<String>")
    return found


def _parse(tokens: list[str]) -> tuple[TypeSerializerSnapshot, list[str]]:
    """One type from the front of the tokens, and the rest."""
    if not tokens:
        raise EncodeError("a type ends too early")
    name, rest = _ALIASES.get(tokens[0], tokens[0]), tokens[1:]
    if not rest or rest[0] != "<":
        return _named(name, ()), rest
    nested: list[TypeSerializerSnapshot] = []
    while rest and rest[0] in ("<", ","):
        one, rest = _parse(rest[1:])
        nested.append(one)
    if not rest or rest[0] != ">":
        raise EncodeError(f"{name}<...> is not closed")
    return _named(name, tuple(nested)), rest[1:]


def _named(name: str, nested: Nested) -> TypeSerializerSnapshot:
    if nested:
        build = _GENERIC.get(name.rstrip("0123456789") if name.startswith("Tuple") else name)
        if build is None:
            raise EncodeError(f"{name}<...> is no known type", remedy=_known())
        return build(name, nested)
    if name not in simple_types():
        plugins.load_installed()
    found = simple_types().get(name)
    if found is None:
        raise EncodeError(f"{name} is no known type", remedy=_known())
    return found()


def _known() -> str:
    names = [*simple_types(), *(f"{name}<...>" for name in _GENERIC)]
    return f"known are: {', '.join(names)}; {', '.join(_MAPPINGS) or 'no'} mappings"


def _of(
    made: CompositeTypeSerializerSnapshot, nested: Nested, arity: int | None
) -> TypeSerializerSnapshot:
    if arity is not None and len(nested) != arity:
        raise EncodeError(f"{type(made).__name__} of {len(nested)} types; it takes {arity}")
    made.nested = nested
    return made


def _tuple(name: str, nested: Nested) -> TypeSerializerSnapshot:
    digits = name.removeprefix("Tuple")
    if len(nested) > MAX_TUPLE or (digits and int(digits) != len(nested)):
        raise EncodeError(f"{name} of {len(nested)} types")
    made = TupleSerializerSnapshot()
    made.tuple_class = f"org.apache.flink.api.java.tuple.Tuple{len(nested)}"
    return _of(made, nested, None)


_GENERIC: dict[str, Callable[[str, Nested], TypeSerializerSnapshot]] = {
    "List": lambda _, nested: _of(ListSerializerSnapshot(), nested, 1),
    "Map": lambda _, nested: _of(MapSerializerSnapshot(), nested, 2),
    "Set": lambda _, nested: _of(SetSerializerSnapshot(), nested, 1),
    "Nullable": lambda _, nested: _of(NullableSerializerSnapshot(), nested, 1),
    "Either": lambda _, nested: _of(JavaEitherSerializerSnapshot(), nested, 2),
    "Row": lambda _, nested: _of(RowSerializerSnapshot(), nested, None),
    "Tuple": _tuple,
}


def _pojo(
    spec: Mapping[str, Any], inherited: Mapping[str, str] | None = None
) -> PojoSerializerSnapshot:
    """A POJO; a field that is `Integer` begins as null where it is new, an `int` as 0.

    A subclass has the fields of the class that it is given under, whose own they are: were they
    declared once more, Java would have two of one name, and Flink no POJO.

    Args:
        spec: With `pojo`, `fields`, and the subclasses `registered` and `non_registered`.
        inherited: The class that declares a field, of those that are a superclass's.
    """
    java_class, held = str(spec["pojo"]), spec.get("fields", {})
    fields = _fields(spec, "fields")
    declared = {name: (inherited or {}).get(name, java_class) for name in fields}
    return PojoSerializerSnapshot.of(
        java_class,
        fields,
        registered=_subclasses(spec, "registered", declared),
        non_registered=_subclasses(spec, "non_registered", declared),
        declared_in=declared,
        boxed=[name for name, one in held.items() if one in _PRIMITIVES.values()],
    )


def _subclasses(
    spec: Mapping[str, Any], name: str, declared: Mapping[str, str]
) -> dict[str, TypeSerializerSnapshot] | None:
    if name not in spec:
        return None
    return {
        java_class: (
            _pojo(one, declared) if isinstance(one, Mapping) and "pojo" in one else parse_type(one)
        )
        for java_class, one in _held(spec, name).items()
    }


def _enum(spec: Mapping[str, Any]) -> TypeSerializerSnapshot:
    constants = spec.get("constants")
    if not isinstance(constants, list) or not constants:
        raise EncodeError("an enum without its `constants`")
    return EnumSerializerSnapshot.of(str(spec["enum"]), [str(one) for one in constants])


def _array(spec: Mapping[str, Any]) -> TypeSerializerSnapshot:
    return GenericArraySerializerSnapshot.of(str(spec["array"]), parse_type(spec.get("of", "")))


def _row_data(spec: Mapping[str, Any]) -> TypeSerializerSnapshot:
    types = spec["row_data"]
    if not isinstance(types, list):
        raise EncodeError("`row_data` wants a list of SQL types, such as [BIGINT, STRING]")
    return RowDataSerializerSnapshot.of(*(parse_logical_type(str(one)) for one in types))


def _fields(spec: Mapping[str, Any], name: str) -> dict[str, TypeSerializerSnapshot]:
    return {field: parse_type(one) for field, one in _held(spec, name).items()}


def _held(spec: Mapping[str, Any], name: str) -> dict[str, TypeSpec]:
    held = spec.get(name)
    if not isinstance(held, Mapping):
        raise EncodeError(f"{name!r} of a type is not a mapping of names to types")
    return {str(field): one for field, one in held.items()}


def _avro(spec: Mapping[str, Any]) -> TypeSerializerSnapshot:
    if "class" in spec:
        return AvroSerializerSnapshot.of(spec["avro"], str(spec["class"]))
    return AvroSerializerSnapshot.of(spec["avro"])


def _generic(name: str) -> Callable[[Mapping[str, Any]], TypeSerializerSnapshot]:
    """`{list: ...}`, `{map: [..., ...]}`: what text can't say where a part is a mapping."""

    def build(spec: Mapping[str, Any]) -> TypeSerializerSnapshot:
        held = spec[name.lower()]
        parts = held if isinstance(held, list) else [held]
        if not parts:
            raise EncodeError(f"a {name.lower()} of no types")
        return _GENERIC[name](name, tuple(parse_type(one) for one in parts))

    return build


_MAPPINGS: dict[str, Callable[[Mapping[str, Any]], TypeSerializerSnapshot]] = {
    "pojo": _pojo,
    "avro": _avro,
    "enum": _enum,
    "array": _array,
    "row_data": _row_data,
    **{name.lower(): _generic(name) for name in _GENERIC},
}


def _parse_mapping(spec: Mapping[str, Any]) -> TypeSerializerSnapshot:
    kinds = [name for name in _MAPPINGS if name in spec]
    if len(kinds) != 1:
        raise EncodeError(f"a type of {sorted(spec)}", remedy=_known())
    return _MAPPINGS[kinds[0]](spec)
