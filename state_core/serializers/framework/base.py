"""Serializers and their snapshots: the base classes.

A `TypeSerializer` knows one type's bytes: a value at a time (`read`, `write`, `skip`) and a column
at a time (`decode`, `sizes`, `encode`). A `TypeSerializerSnapshot` is the description of the bytes
that Flink writes to a snapshot: a class name, a version, and its own payload. It is found by name
in the registry, and restores the serializer.

Values in Python have the form of Arrow's `to_pylist`: a tuple or row is a `dict` of its fields, a
map is a list of pairs.

Source: `org.apache.flink.api.common.typeutils.TypeSerializer` and `TypeSerializerSnapshot`.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, ClassVar, cast

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import (
    EncodeError,
    StateError,
    UnknownEndError,
    UnknownHashError,
    UnsupportedFormatError,
)
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.framework.columns import (
    Cursor,
    I32Array,
    I64Array,
    Target,
    U8Array,
)
from statelake.state_core.serializers.framework.compatibility import (
    Compatibility,
    incompatible,
    unknown,
)
from statelake.state_core.serializers.framework.layouts import ByteLayout, fixed

__all__ = ["VARIABLE", "TypeSerializer", "TypeSerializerSnapshot", "named", "to_int32"]

VARIABLE = -1
SHOWN = 200
ADAPTER_VERSION = 0x7A53C4F0  # of snapshots from before Flink 1.7
# errors of Arrow for a value of another type
_NO_COLUMN = (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError, OverflowError)


def to_int32(value: int) -> int:
    """Wrap a number around as Java's `int` does."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


class _Named:
    """The attributes of a serializer by name, and the names of its parts."""

    def __init__(self, serializer: TypeSerializer) -> None:
        self.serializer = serializer

    def __getitem__(self, attribute: str) -> Any:
        value = getattr(self.serializer, attribute)
        return getattr(value, "name", value)


def named(pattern: str) -> str:
    """Return the property `name` for a class of serializers: its type in Java's syntax.

    Args:
        pattern: The type, with the serializer's attributes in braces: `Map<{key}, {value}>`.
    """

    def name(serializer: TypeSerializer) -> str:
        return pattern.format_map(_Named(serializer))

    return cast("str", property(name, doc=f"`{pattern}`."))


class TypeSerializer(ABC):
    """The wire format of one type.

    A subclass must have `arrow_type`, `name`, `read` and `write`; the other methods default to
    these, a value at a time. Exceptions of a user's subclass become a `StateError` that names the
    place.

    Attributes:
        length: The bytes of every value, or -1: `TypeSerializer.getLength()`, which decides whether
            a composite key has length trailers.
        arrow_type: The type of a decoded column.
        self_delimiting: Whether a value's end is known from its bytes. If not, it takes
            everything up to the end of its entry.
    """

    length: int = VARIABLE
    arrow_type: pa.DataType
    self_delimiting: bool = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.__module__.startswith("statelake.state_core."):
            for name in ("read", "skip", "write"):
                if name in vars(cls):
                    setattr(cls, name, _guarded(vars(cls)[name]))

    @property
    @abstractmethod
    def name(self) -> str:
        """The type in Java's syntax: `Tuple2<String, Long>`."""

    @property
    def wire_length(self) -> int:
        """The bytes of every value in state, or -1: `length`, unless Flink's own is wrong."""
        return self.length

    @property
    def min_length(self) -> int:
        """The fewest bytes of a value; 0 only if a value can have no bytes."""
        layout = self.byte_layout
        return 1 if layout is None else layout.min_length

    @property
    def byte_layout(self) -> ByteLayout | None:
        """How a value's bytes follow each other; by default the bytes of a fixed length.

        None if no program of `kernels.skip` can walk them.
        """
        return fixed(self.wire_length) if self.wire_length > 0 else None

    @abstractmethod
    def read(self, source: DataInput) -> Any:
        """Read one value."""

    @abstractmethod
    def write(self, value: Any, out: DataOutput) -> None:
        """Write one value."""

    def skip(self, source: DataInput) -> None:
        """Move behind one value."""
        self.read(source)

    def skip_program(self) -> tuple[int, ...] | None:
        """Return the program of `kernels.skip` that walks one value; None if no program can."""
        layout = self.byte_layout
        return None if layout is None else layout.skip_program()

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read a column of the values at the cursor, which moves behind them.

        This implementation reads value by value; built-in types override it with kernels. A value
        is marked inexact if it would be written as other bytes, or if its column can't hold it; a
        row with a value of unknown end is lost.
        """
        values = self._decode_values(cursor)
        try:
            return pa.array(values, self.arrow_type)
        except (*_NO_COLUMN, TypeError, ValueError):
            return self._nulled(values, cursor)

    def _decode_values(self, cursor: Cursor) -> list[Any]:
        """Read the values at the cursor one by one, None for absent rows."""
        values: list[Any] = [None] * cursor.rows
        lost = []
        for row in range(cursor.rows):
            if cursor.present.size and not cursor.present[row]:
                continue
            start, end = int(cursor.position[row]), int(cursor.end[row])
            source = DataInput(cursor.data.data[start:end], cursor.place(start))
            try:
                values[row] = self.read(source)
            except UnknownEndError:
                lost.append(row)
                continue
            cursor.position[row] = start + source.position
            if source.has_more or not self._writes(values[row], source.data[: source.position]):
                cursor.inexact[row] = 1
        if lost:
            cursor.lose(np.array(lost))
        return values

    def _writes(self, value: Any, data: memoryview) -> bool:
        """Return whether the value would be written as these bytes."""
        out = DataOutput()
        try:
            self.write(value, out)
        except EncodeError:
            return False
        return out.buffer == data

    def _nulled(self, values: list[Any], cursor: Cursor) -> pa.Array:
        """Return the column, null and inexact for a value that it can't hold: half a character."""
        for row, value in enumerate(values):
            try:
                pa.array([value], self.arrow_type)
            except _NO_COLUMN:  # noqa: PERF203 - a rare case
                values[row] = None
                cursor.inexact[row] = 1
        return pa.array(values, self.arrow_type)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return the bytes of each row, 0 where it is not present."""
        return np.array([len(written) for written in self._written(values, present)], np.int64)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write each present row at the target, which moves behind it."""
        for row, data in enumerate(self._written(values, target.present)):
            at = int(target.position[row])
            target.out[at : at + len(data)] = np.frombuffer(data, np.uint8)
            target.position[row] = at + len(data)

    def hash_code(self, value: Any) -> int:
        """Return Java's `hashCode()` of a value, as a signed 32-bit number.

        Raises:
            UnknownHashError: The Java class defines it, or it differs in each JVM.
        """
        raise UnknownHashError(
            f"the Java hash code of {self.name} can't be derived from its value",
            remedy="keep the max parallelism, so that every key stays in its key group",
        )

    def hash_code_at(self, source: DataInput) -> int:
        """Return the hash code of the next value, from its bytes; 0 for null."""
        value = self.read(source)
        return 0 if value is None else self.hash_code(value)

    def hash_codes(self, values: pa.Array) -> I32Array:
        """Return the hash code of every row; 0 for null, as in `Objects.hashCode`."""
        pylist = values.to_pylist()
        codes = [0 if value is None else self.hash_code(value) for value in pylist]
        return np.array(codes, np.int32)

    def _written(self, values: pa.Array, present: U8Array) -> list[bytes]:
        try:
            pylist = values.to_pylist()
        except (OverflowError, ValueError) as error:  # which other programs write into tables
            raise EncodeError(
                f"a {self.name} with text that is not UTF-8, or a time outside of the years 1 to"
                f" 9999 ({error})"
            ) from error
        written = []
        for row, value in enumerate(pylist):
            out = DataOutput()
            if present.size == 0 or present[row]:
                self.write(value, out)
            written.append(out.to_bytes())
        return written

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a user's `read`, `skip` or `write`, to convert its errors to a `StateError`."""

    @wraps(method)
    def guarded(serializer: TypeSerializer, *arguments: Any) -> Any:
        try:
            return method(serializer, *arguments)
        except StateError:
            raise
        except Exception as error:
            what = f"{method.__qualname__} failed ({type(error).__name__}: {error})"
            stream = arguments[-1]
            if isinstance(stream, DataInput):
                remedy = "the value is damaged, or the serializer does not read what Flink's writes"
                raise stream.fault(what, remedy=remedy) from error
            shown = repr(arguments[0])[:SHOWN]
            raise EncodeError(f"{what} for {shown}, a {serializer.name}") from error

    return guarded


class TypeSerializerSnapshot(ABC):
    """A description of the bytes that a serializer wrote.

    A subclass is registered under its Java class; it takes no arguments, and `read_snapshot` fills
    it.

    Attributes:
        java_class: The binary name that Flink writes.
        current_version: The version that `write_snapshot` writes; by default the last one read.
        versions: The versions that `read_snapshot` reads; by default the current one.
        version: The version that was read; the current one for a new snapshot.
    """

    java_class: ClassVar[str]
    current_version: ClassVar[int]
    versions: ClassVar[range]
    version: int = 0

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        members = vars(cls)
        if "versions" in members and "current_version" not in members:
            cls.current_version = cls.versions[-1]
        if "resolve_new_serializer" in members and "resolve_schema_compatibility" not in members:
            # the class has only the older direction, which an inherited one must not override
            ask = TypeSerializerSnapshot.resolve_schema_compatibility
            cls.resolve_schema_compatibility = ask  # type: ignore[method-assign]

    @abstractmethod
    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Read the payload, as written by `write_snapshot` of that version."""

    @abstractmethod
    def write_snapshot(self, out: DataOutput) -> None:
        """Write the payload of the current version."""

    @abstractmethod
    def restore_serializer(self) -> TypeSerializer:
        """Return the serializer that reads and writes those bytes."""

    def restore_nested(self) -> TypeSerializer:
        """Return the serializer of a part of another type; by default the same."""
        return self.restore_serializer()

    @property
    def type_name(self) -> str:
        """The type, for messages."""
        return self.restore_serializer().name

    def resolve_schema_compatibility(self, old: TypeSerializerSnapshot) -> Compatibility:
        """Return whether state that `old` describes can be used with this snapshot's serializer.

        This is the direction since Flink 1.19: the new snapshot decides. A user's class that only
        has the older direction implements `resolve_new_serializer` on the old snapshot; that is
        called, with a `DeprecationWarning`, where the new class does not decide itself.
        """
        before = type(old).resolve_new_serializer
        if before is not TypeSerializerSnapshot.resolve_new_serializer:
            warnings.warn(
                f"{type(old).__qualname__}.resolve_new_serializer: since Flink 1.19 the new"
                " snapshot decides; define resolve_schema_compatibility instead",
                DeprecationWarning,
                stacklevel=2,
            )
            return old.resolve_new_serializer(self.restore_serializer())
        if type(old) is not type(self):
            return incompatible(old.type_name, self.type_name, "the serializer is another one")
        return unknown(
            old.type_name,
            self.type_name,
            f"{self.java_class} decides in its own code; register a snapshot class that has"
            " resolve_schema_compatibility",
        )

    def resolve_new_serializer(self, new: TypeSerializer) -> Compatibility:
        """Judge the new serializer: the direction before Flink 1.19, on the old snapshot.

        Deprecated; for users' classes without the other method.
        """
        return unknown(self.type_name, new.name, "neither snapshot class decides")

    @classmethod
    def lacking(cls) -> str:
        """Return what the class lacks to be registered, for a message; empty if nothing."""
        return ""

    @property
    def written_version(self) -> int:
        """The version that `write_snapshot` writes of this snapshot; the class's by default."""
        return self.current_version

    @property
    def unversioned(self) -> int:
        """The version that is read where none is written; the current one by default."""
        return self.current_version

    def check_version(self, version: int, source: DataInput) -> None:
        """Refuse a version that can't be read.

        Raises:
            UnsupportedFormatError: The version is not in `versions`.
        """
        versions = getattr(self, "versions", (self.current_version,))
        if version not in versions:
            raise self.unread("version", version, versions, source)
        self.version = version

    def unread(
        self, what: str, version: int, versions: Iterable[int], source: DataInput
    ) -> UnsupportedFormatError:
        """Return the error of a version, or outer version, that can't be read."""
        read = ", ".join(map(str, versions))
        return UnsupportedFormatError(
            f"{self.java_class} {what} {version}; {read} can be read",
            place=source.place,
            remedy="restore it in the Flink that wrote it, upgrade, and take a new savepoint",
        )
