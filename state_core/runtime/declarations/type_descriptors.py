"""Types of declared states: as text, or from Python's type hints.

A `TypeDescriptor` has a type in the language of `state_core.serializers.type_spec`, which
corresponds to exactly one serializer. Python's hints become:

===============================  ================================================================
`str`, `bool`, `bytes`           `String`, `Boolean`, `byte[]`
`int`, `float`                   `Long`, `Double`; `numpy.int32` and its like are Java's of that
                                 width, and `Annotated[int, "Integer"]` is what it says
`Decimal`                        `BigDecimal`
`datetime`                       `Instant`, a point in time; a wall clock's is written
                                 `Annotated[datetime, "LocalDateTime"]`
`date`, `time`                   `LocalDate`, `LocalTime`
`None`                           `Void`
`list[T]`, `tuple[T, ...]`       `List<T>`
`set[T]`, `frozenset[T]`         `Set<T>`
`dict[K, V]`                     `Map<K, V>`, whose values may be null
`tuple[A, B]`, a `NamedTuple`    `Tuple2<A, B>`
`Optional[T]`, `T | None`        `Nullable<T>`; plain `T` if null has its own place: in
                                 fields of a dataclass, and as values of a map
a dataclass                      `Row` of its fields in their order; or, with an attribute
                                 `__java_class__`, the POJO of that class: `int` is then `long`,
                                 and `Optional[int]` is `Long`
an `Enum`                        `String`, its members' names; with `__java_class__`, that enum
===============================  ================================================================

Text instead of a hint is in the language of types, so `"int"` is Java's `Integer`.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, NewType, TypeAlias, Union, get_args, get_origin, get_type_hints

import numpy as np

from statelake.state_core.errors import DeclarationError, StateError
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.type_spec import TypeSpec, composed, parse_type

TypeLike: TypeAlias = Any

JAVA_CLASS = "__java_class__"
DEEPEST = 32

_SCALARS: dict[Any, str] = {
    str: "String", bool: "Boolean", int: "Long", float: "Double", bytes: "byte[]",
    Decimal: "BigDecimal", datetime: "Instant", date: "LocalDate", time: "LocalTime",
    None: "Void", type(None): "Void",
    np.int8: "Byte", np.int16: "Short", np.int32: "Integer", np.int64: "Long",
    np.float32: "Float", np.float64: "Double", np.bool_: "Boolean",
}  # fmt: skip
_PRIMITIVE_OF = {
    "Byte": "byte", "Short": "short", "Integer": "int", "Long": "long", "Float": "float",
    "Double": "double", "Boolean": "boolean",
}  # fmt: skip
_KNOWN = (
    "known are str, int, float, bool, bytes, Decimal, datetime, date, time, list, set, dict, tuple,"
    " Optional, enums and dataclasses; any other type is written, such as Annotated[..., 'Integer']"
)


@dataclass(frozen=True, slots=True)
class TypeDescriptor:
    """A type, with its serializer.

    Attributes:
        text: The type as canonical JSON, by which descriptors are compared.
        python_type: The type hint that it was made from, if any; not compared.
    """

    text: str
    python_type: Any = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, given: TypeLike, place: str = "") -> TypeDescriptor:
        """Return the descriptor of a type as text, a Python type hint, or a descriptor.

        Args:
            given: The type, in any of these forms.
            place: The place, for messages.

        Raises:
            DeclarationError: The type can't be parsed; the message names the known ones.
        """
        if isinstance(given, TypeDescriptor):
            return given
        written = isinstance(given, str | Mapping)
        spec = given if written else _spec_of(given, place, ())
        try:
            snapshot = parse_type(spec)
            # an Avro schema is parsed only here: a type without a serializer is invalid
            snapshot.restore_serializer()
        except StateError as error:
            raise DeclarationError(error.problem, place=place, remedy=error.remedy) from error
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            # a mapping whose parts have another form than in the language
            raise DeclarationError(
                f"{_shown(spec)} is no type ({type(error).__name__}: {error})", place=place
            ) from error
        return cls(_canonical(spec, snapshot, place), None if written else given)

    @property
    def spec(self) -> TypeSpec:
        """The type as text or a mapping, as in `type_spec`."""
        spec: TypeSpec = json.loads(self.text)
        return spec

    @property
    def name(self) -> str:
        """The type in Java's syntax."""
        return self.snapshot().type_name

    def snapshot(self) -> TypeSerializerSnapshot:
        """Return the snapshot that a new job's serializer would write."""
        return parse_type(self.spec)

    def serializer(self) -> TypeSerializer:
        """Return the serializer of its values."""
        return self.snapshot().restore_serializer()

    def __str__(self) -> str:
        return self.name


def _canonical(spec: TypeSpec, snapshot: TypeSerializerSnapshot, place: str) -> str:
    """Return the canonical text of a type: that of `Tuple<Long,int>` is `Tuple2<Long, Integer>`."""
    if isinstance(spec, str):
        name = snapshot.type_name
        try:
            same = parse_type(name).type_name == name
        except StateError:
            same = False
        return json.dumps(name if same else " ".join(spec.split()))
    try:
        # Flink sorts fields of POJOs, too
        return json.dumps(spec, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"a type that is not JSON: {error}", place=place) from error


def _spec_of(hint: Any, place: str, within: tuple[Any, ...]) -> TypeSpec:
    """Return a hint as in `type_spec`; `within` are the classes that contain it."""
    if isinstance(hint, TypeDescriptor):
        return hint.spec
    if isinstance(hint, str | Mapping):
        return hint
    if isinstance(hint, NewType):
        return _spec_of(hint.__supertype__, place, within)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        specs = [
            argument
            for argument in arguments[1:]
            if isinstance(argument, str | Mapping | TypeDescriptor)
        ]
        return _spec_of(specs[0] if specs else arguments[0], place, within)
    if origin in (Union, types.UnionType):
        return composed("Nullable", [_spec_of(_optional(hint, place), place, within)])
    if origin is not None:
        return _spec_of_generic(hint, origin, arguments, place, within)
    if _hashable(hint) and hint in _SCALARS:
        return _SCALARS[hint]
    if isinstance(hint, type):
        return _spec_of_class(hint, place, within)
    raise DeclarationError(f"{_shown(hint)} is no type of a state", place=place, remedy=_KNOWN)


def _spec_of_generic(
    hint: Any, origin: Any, arguments: tuple[Any, ...], place: str, within: tuple[Any, ...]
) -> TypeSpec:
    def nested(argument_hint: Any) -> TypeSpec:
        return _spec_of(argument_hint, place, within)

    if origin is list or (origin is tuple and arguments[1:] == (Ellipsis,)):
        return composed("List", [nested(arguments[0])])
    if origin in (set, frozenset):
        return composed("Set", [nested(arguments[0])])
    if origin is dict:
        value = arguments[1]
        plain_value = _optional(value, place) if _is_optional(value) else value
        return composed("Map", [nested(arguments[0]), nested(plain_value)])
    if origin is tuple and arguments:
        return composed(f"Tuple{len(arguments)}", [nested(argument) for argument in arguments])
    raise DeclarationError(f"{_shown(hint)} is no type of a state", place=place, remedy=_KNOWN)


def _spec_of_class(hint: type, place: str, within: tuple[Any, ...]) -> TypeSpec:
    java_class = vars(hint).get(JAVA_CLASS)
    if issubclass(hint, Enum):
        names = list(hint.__members__)
        return {"enum": java_class, "constants": names} if java_class else "String"
    if hint in within or len(within) >= DEEPEST:
        raise DeclarationError(
            f"{_shown(hint)} contains itself", place=place, remedy="keep it as bytes"
        )
    inner = (*within, hint)
    if issubclass(hint, tuple) and hasattr(hint, "_fields"):
        hints = _hints_of(hint, place)
        elements = [_spec_of(hints.get(name, Any), place, inner) for name in hint._fields]
        return composed(f"Tuple{len(elements)}", elements)
    if not is_dataclass(hint):
        raise DeclarationError(f"{_shown(hint)} is no type of a state", place=place, remedy=_KNOWN)
    hints = _hints_of(hint, place)
    if java_class:
        spec = {
            attribute.name: _pojo_field(hints[attribute.name], place, inner)
            for attribute in fields(hint)
        }
        return {"pojo": java_class, "fields": spec}
    row = []
    for attribute in fields(hint):
        own = hints[attribute.name]
        row.append(_spec_of(_optional(own, place) if _is_optional(own) else own, place, inner))
    return composed("Row", row)


def _pojo_field(hint: Any, place: str, within: tuple[Any, ...]) -> TypeSpec:
    """Return the type of a POJO's field: boxed if it may be null, otherwise a primitive."""
    if _is_optional(hint):
        return _spec_of(_optional(hint, place), place, within)
    spec = _spec_of(hint, place, within)
    plain = get_origin(hint) is not Annotated and isinstance(spec, str)
    return _PRIMITIVE_OF.get(str(spec), spec) if plain else spec


def _is_optional(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint)


def _optional(hint: Any, place: str) -> Any:
    """Return the type that may be null."""
    others = [argument for argument in get_args(hint) if argument is not type(None)]
    if len(others) != 1 or not _is_optional(hint):
        raise DeclarationError(
            f"{_shown(hint)} is more than one type",
            place=place,
            remedy="one type and None is Optional; two are written 'Either<..., ...>'",
        )
    return others[0]


def _hints_of(hint: type, place: str) -> dict[str, Any]:
    try:
        return get_type_hints(hint, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise DeclarationError(
            f"the type hints of {_shown(hint)} can't be read ({error})", place=place
        ) from error


def _hashable(hint: Any) -> bool:
    try:
        hash(hint)
    except TypeError:
        return False
    return True


def _shown(hint: Any) -> str:
    name: Callable[[Any], str] = repr
    return getattr(hint, "__qualname__", None) or name(hint)[:80]
