"""Declarations as JSON, and back: text that can be stored and sent, and is never executed.

A declaration is an object of its fields, with its `kind` and `redistribution_mode`; a type has the
form of `type_spec`, a function that of `module:qualname`. Reading refuses unknown content, and
names its place::

    {"kind": "list", "name": "offsets", "redistribution_mode": "REDISTRIBUTABLE",
     "redistribution_strategy": "UNION", "type": "Tuple2<String, Long>"}
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from statelake.state_core.errors import DeclarationError
from statelake.state_core.runtime.declarations.functions import FunctionReference
from statelake.state_core.runtime.declarations.jobs import JobDeclaration
from statelake.state_core.runtime.declarations.states import KINDS, StateDeclaration
from statelake.state_core.runtime.declarations.type_descriptors import TypeDescriptor

VERSION = 1
KIND, MODE, VERSION_NAME = "kind", "redistribution_mode", "version"
# a list's mode is a field, that of all others follows from their kind; JSON has one name for both
_RENAMED = {"mode": MODE}
_WORDS = {str: "text", int: "a number", bool: "true or false"}

Value = TypeVar("Value")


def to_json(declared: StateDeclaration | JobDeclaration) -> str:
    """Return a declaration of a state or a job as JSON text; equal ones give the same text."""
    plain = _plain(declared)
    if isinstance(declared, JobDeclaration):
        plain = {VERSION_NAME: VERSION, **plain}
    return json.dumps(plain, ensure_ascii=True, sort_keys=True)


def from_json(text: str) -> StateDeclaration:
    """Read the declaration of a state.

    Raises:
        DeclarationError: Malformed JSON or an invalid declaration; the message names the place.
    """
    return _state(_parsed(text), "")


def job_from_json(text: str) -> JobDeclaration:
    """Read the declaration of a job.

    Raises:
        DeclarationError: Malformed JSON or an invalid declaration; the message names the place.
    """
    content = _object(_parsed(text), "")
    version = content.get(VERSION_NAME)
    if version != VERSION:
        raise DeclarationError(
            f"version {version!r} of a job's declaration is not {VERSION}, which can be read",
            place=f"$.{VERSION_NAME}",
        )
    return _dataclass(JobDeclaration, content, "", known=(VERSION_NAME,))


def _plain(value: Any) -> Any:
    if isinstance(value, TypeDescriptor):
        return value.spec
    if isinstance(value, FunctionReference):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if not is_dataclass(value):
        return value
    content = {
        _RENAMED.get(field.name, field.name): _plain(getattr(value, field.name))
        for field in fields(value)
        if field.default is MISSING or getattr(value, field.name) not in (None, ())
    }
    if isinstance(value, StateDeclaration):
        content |= {KIND: value.kind, MODE: value.redistribution_mode.value}
    return content


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DeclarationError(f"malformed JSON ({error})") from error


def _object(data: Any, path: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise DeclarationError(f"{_shown(data)} is no object", place=f"${path}")
    return data


def _state(data: Any, path: str) -> StateDeclaration:
    content = _object(data, path)
    kind = content.get(KIND)
    state_class = KINDS.get(kind) if isinstance(kind, str) else None
    if state_class is None:
        raise DeclarationError(
            f"{_shown(kind)} is no kind of state",
            place=f"${path}.{KIND}",
            remedy=f"one of {', '.join(KINDS)}",
        )
    own = {_RENAMED.get(field.name, field.name) for field in fields(state_class)}
    declaration = _dataclass(
        state_class, content, path, known=(KIND,) if MODE in own else (KIND, MODE)
    )
    mode = declaration.redistribution_mode.value
    if content.get(MODE, mode) != mode:
        raise DeclarationError(
            f"a {kind} state is {mode}, not {_shown(content[MODE])}", place=f"${path}.{MODE}"
        )
    return declaration


def _dataclass(
    cls: type[Value], content: Mapping[str, Any], path: str, *, known: tuple[str, ...] = ()
) -> Value:
    hints = get_type_hints(cls)
    of_class = fields(cls)  # type: ignore[arg-type]  # the caller's is a dataclass
    attributes = {_RENAMED.get(field.name, field.name): field for field in of_class}
    unknown = [name for name in content if name not in attributes and name not in known]
    if unknown:
        raise DeclarationError(
            f"{_shown(unknown[0])} is not known here",
            place=f"${path}",
            remedy=f"known are: {', '.join(sorted({*attributes, *known}))}",
        )
    values = {}
    for name, attribute in attributes.items():
        if name in content:
            values[attribute.name] = _value(hints[attribute.name], content[name], f"{path}.{name}")
        elif attribute.default is MISSING:
            raise DeclarationError(f"{name!r} is missing", place=f"${path}")
    try:
        return cls(**values)
    except DeclarationError as error:
        raise error.within(f"${path}") from error


def _value(hint: Any, data: Any, path: str) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (argument for argument in get_args(hint) if argument is not type(None))
        if data is None:
            return None
    if get_origin(hint) is tuple:
        if not isinstance(data, list):
            raise DeclarationError(f"{_shown(data)} is no list", place=f"${path}")
        item = get_args(hint)[0]
        return tuple(_value(item, element, f"{path}[{at}]") for at, element in enumerate(data))
    if hint is StateDeclaration:
        return _state(data, path)
    if hint is TypeDescriptor:
        if not isinstance(data, str | dict):
            raise DeclarationError(f"{_shown(data)} is no type", place=f"${path}")
        return TypeDescriptor.of(data, f"${path}")
    if hint is FunctionReference:
        return FunctionReference.of(_scalar(str, data, path), f"${path}")
    if issubclass(hint, Enum):
        allowed = [member.value for member in hint]
        if data not in allowed:
            raise DeclarationError(
                f"{_shown(data)} is not known",
                place=f"${path}",
                remedy=f"one of {', '.join(allowed)}",
            )
        return hint(data)
    if hint in _WORDS:
        return _scalar(hint, data, path)
    return _dataclass(hint, _object(data, path), path)


def _scalar(hint: Any, data: Any, path: str) -> Any:
    if type(data) is not hint:
        raise DeclarationError(f"{_shown(data)} is not {_WORDS[hint]}", place=f"${path}")
    return data


def _shown(data: Any) -> str:
    text = json.dumps(data, ensure_ascii=True)
    return text if len(text) <= 60 else f"{text[:57]}..."
