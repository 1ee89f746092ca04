"""From the class names that Flink writes to the classes that read them.

A snapshot holds, for every serializer, the name of its snapshot class. Names are looked up here
and nowhere else; nothing is ever loaded by a name that a file holds.
"""

from __future__ import annotations

from typing import TypeVar

from state_core.errors import EncodeError, UnknownSerializerError
from state_core.serializers.base import TypeSerializerSnapshot
from state_core.wire import DataInput, DataOutput

__all__ = [
    "read_serializer_snapshot",
    "register",
    "registered_classes",
    "write_serializer_snapshot",
]

_SnapshotClass = TypeVar("_SnapshotClass", bound=type[TypeSerializerSnapshot])

MAX_NESTING = 64
_classes: dict[str, type[TypeSerializerSnapshot]] = {}


def register(snapshot_class: _SnapshotClass) -> _SnapshotClass:
    """Register a snapshot class under its `java_class`; usable as a decorator.

    Raises:
        EncodeError: The class can't be restored by name: it has no `java_class` or version, it
            is abstract or local, its constructor wants arguments, or the name is taken.
    """
    name = getattr(snapshot_class, "java_class", "")
    problem = ""
    if not name:
        problem = "has no `java_class`, the name that Flink writes"
    elif not hasattr(snapshot_class, "current_version"):
        problem = "has no `current_version`"
    elif "<locals>" in snapshot_class.__qualname__:
        problem = "is defined inside a function, where no other process can find it"
    elif getattr(snapshot_class, "__abstractmethods__", None):
        missing = ", ".join(sorted(snapshot_class.__abstractmethods__))
        problem = f"lacks {missing}"
    elif _classes.get(name, snapshot_class) is not snapshot_class:
        problem = f"claims {name}, which {_classes[name].__qualname__} has already"
    else:
        try:
            snapshot_class()
        except TypeError:
            problem = "needs arguments to be made, and a snapshot is restored by name alone"
    if problem:
        raise EncodeError(f"snapshot class {snapshot_class.__qualname__} {problem}")
    _classes[name] = snapshot_class
    return snapshot_class


def registered_classes() -> dict[str, type[TypeSerializerSnapshot]]:
    """Every registered class, by Java name."""
    return dict(_classes)


def read_serializer_snapshot(source: DataInput) -> TypeSerializerSnapshot:
    """Read one snapshot: class name, version, payload.

    Source: `TypeSerializerSnapshot.readVersionedSnapshot`.

    Raises:
        UnknownSerializerError: The class is not registered. A payload has no length, so nothing
            behind it can be read either.
    """
    at = source.place
    class_name = source.read_utf()
    version = source.read_int()
    found = _classes.get(class_name)
    if found is None:
        raise UnknownSerializerError(
            f"serializer snapshot class {class_name!r} is unknown, and what follows it can't be"
            " found without it",
            place=at,
            remedy="register a class for it with state_core.serializers.register",
        )
    if source.nesting >= MAX_NESTING:
        raise source.fault(f"serializers nested more than {MAX_NESTING} deep")
    snapshot = found()
    source.nesting += 1
    snapshot.read_snapshot(version, source)
    source.nesting -= 1
    return snapshot


def write_serializer_snapshot(snapshot: TypeSerializerSnapshot, out: DataOutput) -> None:
    """Write one snapshot (`TypeSerializerSnapshot.writeVersionedSnapshot`)."""
    out.write_utf(snapshot.java_class)
    out.write_int(snapshot.current_version)
    snapshot.write_snapshot(out)
