"""Where two logical types part, for the reasons of a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from state_core.serializers.sql.types.logical_types import (
    LogicalType,
    MapType,
    RawType,
    RowType,
    StructuredType,
    UnknownType,
)

__all__ = ["Difference", "differences"]


@dataclass(frozen=True)
class Difference:
    """Where two types part: the path of the field, both types, and whether it is certain."""

    path: str
    old: str
    new: str
    certain: bool


def differences(old: LogicalType, new: LogicalType, path: str = "") -> Iterator[Difference]:
    """All places where `new` is not equal to `old`, innermost.

    A RAW type's serializer decides in Java whether it equals another: if only what it holds
    differs, that is not certain.
    """
    if old == new:
        return
    parted = False
    if type(old) is type(new) and old.root == new.root and old.nullable == new.nullable:
        names = _child_names(old)
        if names == _child_names(new) and len(old.children) == len(new.children):
            for name, before, after in zip(names, old.children, new.children, strict=True):
                inner = f"{path}.{name}" if path else name
                for one in differences(before, after, inner):
                    parted = True
                    yield one
    if not parted:
        yield Difference(path, str(old), str(new), not _alike(old, new))


def _alike(old: LogicalType, new: LogicalType) -> bool:
    """Whether nothing but what a class of Java's holds could make the difference."""
    if isinstance(old, RawType) and isinstance(new, RawType):
        return replace(old, serializer=()) == replace(new, serializer=())
    if isinstance(old, UnknownType) and isinstance(new, UnknownType):
        return replace(old, content=()) == replace(new, content=())
    return False


def _child_names(one: LogicalType) -> tuple[str, ...]:
    if isinstance(one, RowType):
        return tuple(field.name for field in one.fields)
    if isinstance(one, StructuredType):
        return tuple(field.name for field in one.all_fields)
    return ("key", "value") if isinstance(one, MapType) else ("[]",) * len(one.children)
