"""The classes that read serializer snapshots, by the class names that Flink writes.

A snapshot contains the name of the snapshot class of every serializer. Names are looked up only
here; nothing is ever loaded by a name in a file. Built-in classes are imported when needed, from
their module in `built_in`. Users add their own classes with `register`, in a module that is
imported before, or that `plugins` finds.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TypeVar

import pyarrow as pa

from statelake.state_core.bounds import SERIALIZER_NESTING
from statelake.state_core.errors import EncodeError, StateError, UnknownSerializerError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.framework import plugins
from statelake.state_core.serializers.framework.base import (
    ADAPTER_VERSION,
    TypeSerializer,
    TypeSerializerSnapshot,
)
from statelake.state_core.serializers.framework.built_in import BUILT_IN

_SnapshotClass = TypeVar("_SnapshotClass", bound=type[TypeSerializerSnapshot])

_MODULES = {name: module for module, names in BUILT_IN.items() for name in names}
_classes: dict[str, type[TypeSerializerSnapshot]] = {}


def register(snapshot_class: _SnapshotClass, *, replace: bool = False) -> _SnapshotClass:
    """Register a snapshot class under its `java_class`; also usable as a decorator.

    From then on this class reads snapshots with that Java class, and its `restore_serializer`
    returns the serializer that reads and writes the values.

    Args:
        snapshot_class: A class at the top level of a module that takes no arguments,
            with `java_class`, an int `current_version` and `resolve_schema_compatibility`; the
            only snapshot class of its serializer.
        replace: Whether it may replace another class, such as a built-in one.

    Raises:
        EncodeError: The class does not meet these conditions, or the name is taken.
    """
    problem = _problem(snapshot_class, replace=replace)
    if problem:
        raise EncodeError(f"snapshot class {snapshot_class.__qualname__} {problem}")
    if not _decides(snapshot_class) and not _is_ours(snapshot_class):
        warnings.warn(
            f"{snapshot_class.__qualname__} has only the older direction, resolve_new_serializer:"
            " since Flink 1.19 the new snapshot decides, with resolve_schema_compatibility",
            DeprecationWarning,
            stacklevel=2,
        )
    _classes[snapshot_class.java_class] = snapshot_class
    if not _is_ours(snapshot_class):
        plugins.note_change()
    return snapshot_class


def _is_ours(snapshot_class: type) -> bool:
    return snapshot_class.__module__.startswith("statelake.state_core.")


def _decides(snapshot_class: type[TypeSerializerSnapshot]) -> bool:
    """Return whether a class has the method that Flink calls since 1.19."""
    ours = TypeSerializerSnapshot.resolve_schema_compatibility
    return snapshot_class.resolve_schema_compatibility is not ours


def _problem(snapshot_class: type[TypeSerializerSnapshot], *, replace: bool) -> str:
    """Return why a class can't be registered; empty if it can."""
    if not isinstance(snapshot_class, type) or not issubclass(
        snapshot_class, TypeSerializerSnapshot
    ):
        return "is no subclass of TypeSerializerSnapshot"
    name = getattr(snapshot_class, "java_class", "")
    version = getattr(snapshot_class, "current_version", None)
    if not isinstance(name, str) or not name:
        return "has no `java_class`, the name that Flink writes"
    if version is None:
        return "has no `current_version`"
    if not isinstance(version, int) or isinstance(version, bool):
        return f"has the `current_version` {version!r}, which is no int"
    if "<locals>" in snapshot_class.__qualname__:
        return "is defined inside a function, where no other process can find it"
    if "." in snapshot_class.__qualname__:
        return "is defined inside another class: define it in its module"
    if getattr(snapshot_class, "__abstractmethods__", None):
        return f"lacks {', '.join(sorted(snapshot_class.__abstractmethods__))}"
    older = TypeSerializerSnapshot.resolve_new_serializer
    silent = not _decides(snapshot_class) and snapshot_class.resolve_new_serializer is older
    if silent and not _is_ours(snapshot_class):
        return "lacks resolve_schema_compatibility, which decides what may follow what"
    return (
        ("" if _is_ours(snapshot_class) else snapshot_class.lacking())
        or _taken(snapshot_class, replace=replace)
        or _unmade(snapshot_class)
    )


def _taken(snapshot_class: type[TypeSerializerSnapshot], *, replace: bool) -> str:
    """Return the other class that has its name or its serializer; empty if both are free."""
    name = snapshot_class.java_class
    classes = _classes if _is_ours(snapshot_class) else registered_classes()
    other_class = classes.get(name, snapshot_class)
    if not replace and not _is_same(other_class, snapshot_class):
        whose = (
            "which is built in"
            if _is_ours(other_class)
            else f"which {other_class.__qualname__} has already"
        )
        return f"claims {name}, {whose}; to replace it pass replace=True"
    serializer: type[TypeSerializer] | None = getattr(snapshot_class, "serializer_class", None)
    if serializer is None or _is_ours(snapshot_class):
        return ""
    called = serializer.__name__
    for other, registered in classes.items():
        if other != name and getattr(registered, "serializer_class", None) is serializer:
            return (
                f"is for {called}, and so is {registered.__qualname__}: a serializer has one"
                " snapshot class"
            )
    return ""


def _is_same(old: type, new: type) -> bool:
    """Return whether both are the same class, even if its module was run again, by any name."""
    if _is_ours(old) or old.__qualname__ != new.__qualname__:
        return old is new
    return plugins.has_same_text(old.__module__, new.__module__)


def _unmade(snapshot_class: type[TypeSerializerSnapshot]) -> str:
    """Return why a snapshot, or its serializer, can't be created; empty if it can."""
    try:
        instance = snapshot_class()
    except TypeError:
        return "can't be made without arguments, and a snapshot is restored by name alone"
    if _is_ours(snapshot_class) or not hasattr(snapshot_class, "serializer_class"):
        return ""
    try:
        serializer = instance.restore_serializer()
    except TypeError as error:
        return f"has a serializer_class that can't be made without arguments ({error})"
    if not isinstance(serializer, TypeSerializer):
        return f"has a serializer_class that is no TypeSerializer: {type(serializer).__qualname__}"
    if not isinstance(getattr(serializer, "arrow_type", None), pa.DataType):
        return f"is for {type(serializer).__qualname__}, which has no `arrow_type`"
    return ""


def changes() -> int:
    """Return the number of users' registrations: earlier caches are outdated then."""
    return plugins.changes()


def registered_class(java_class: str) -> type[TypeSerializerSnapshot] | None:
    """Return the class of a Java name; None if it is not registered."""
    if java_class in _MODULES:  # imported or not: another thread may be importing it
        importlib.import_module(_MODULES[java_class])
    return _classes.get(java_class)


def registered_classes() -> dict[str, type[TypeSerializerSnapshot]]:
    """Return every registered class, by Java name: built-in ones, then those of users."""
    for module in BUILT_IN:
        importlib.import_module(module)
    return {name: _classes[name] for name in _MODULES} | _classes


def read_serializer_snapshot(source: DataInput) -> TypeSerializerSnapshot:
    """Read one snapshot: class name, version, payload.

    Source: `TypeSerializerSnapshot.readVersionedSnapshot`.

    Raises:
        UnknownSerializerError: The class is not registered. A payload has no length, so nothing
            behind it can be read either, unless the whole source is (`unknown_classes`).
    """
    at = source.place
    class_name = source.read_utf()
    version = source.read_int()
    if version == ADAPTER_VERSION:
        from statelake.state_core.serializers.framework.config_snapshots import (  # noqa: PLC0415
            read_config_snapshot,
        )

        return read_config_snapshot(class_name, source, registered_classes())
    return _read_named(class_name, version, source, at)


def read_unversioned_snapshot(source: DataInput) -> TypeSerializerSnapshot:
    """Read one snapshot without its version: class name, payload of the version of its time.

    Source: `CollectionSerializerSnapshot` of flink-scala-api before 1.2.7.

    Raises:
        UnknownSerializerError: The class is not registered.
    """
    at = source.place
    return _read_named(source.read_utf(), None, source, at)


def _read_named(
    class_name: str, version: int | None, source: DataInput, at: str
) -> TypeSerializerSnapshot:
    """Read the payload of one snapshot; `version` is None for that of an unversioned one."""
    snapshot_class = registered_class(class_name)
    if snapshot_class is None:
        plugins.load_installed()
        snapshot_class = registered_class(class_name)
    if snapshot_class is None and source.unknown is not None:
        carried: TypeSerializerSnapshot = source.unknown(class_name, version or 0, source)
        return carried
    if snapshot_class is None:
        broken = "".join(f" ({failure})" for failure in plugins.failures())
        raise UnknownSerializerError(
            f"serializer snapshot class {class_name!r} is unknown, and what follows it can't be"
            f" found without it{broken}",
            place=at,
            remedy="register a class for it with statelake.state_core.serializers.register",
        )
    if source.nesting >= SERIALIZER_NESTING.most:
        raise source.fault(f"serializers nested more than {SERIALIZER_NESTING.most} deep")
    snapshot = snapshot_class()
    source.nesting += 1
    _read_payload(snapshot, snapshot.unversioned if version is None else version, source)
    source.nesting -= 1
    return snapshot


def _read_payload(snapshot: TypeSerializerSnapshot, version: int, source: DataInput) -> None:
    try:
        snapshot.read_snapshot(version, source)
    except StateError:
        raise
    except Exception as error:
        if _is_ours(type(snapshot)):
            raise
        raise source.fault(
            f"{type(snapshot).__qualname__}.read_snapshot failed ({type(error).__name__}: {error})",
            remedy="the snapshot is damaged, or the class does not read what Flink's writes",
        ) from error


def write_serializer_snapshot(snapshot: TypeSerializerSnapshot, out: DataOutput) -> None:
    """Write one snapshot (`TypeSerializerSnapshot.writeVersionedSnapshot`)."""
    out.write_utf(snapshot.java_class)
    out.write_int(snapshot.written_version)
    snapshot.write_snapshot(out)
