"""Values that only their own class understands: bytes if their end is known, or users' decoders.

A class that Kryo writes is such a type, and so is every composite type with a part whose end can't
be found in its bytes. Values too wide or too deep for a table become bytes as well.

A user who knows the format of a class registers a `Decoder` for it: the column is typed then, and
the exact bytes stay beside every row that could not be written back from its typed value. Unchanged
values are exported as Flink wrote them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import pyarrow as pa

from statelake.state_core.bounds import COLUMN_NESTING, COLUMNS
from statelake.state_core.errors import EncodeError, PluginError, StateError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.kernels import decode, encode
from statelake.state_core.serializers.framework import plugins
from statelake.state_core.serializers.framework.base import (
    TypeSerializer,
    TypeSerializerSnapshot,
    named,
)
from statelake.state_core.serializers.framework.columns import (
    Cursor,
    I64Array,
    Target,
    U8Array,
    decode_bytes,
    require_values,
    variable_sizes,
    variable_values,
)

_is_key: ContextVar[bool] = ContextVar("is_key", default=False)


def restore_bounded(snapshot: TypeSerializerSnapshot) -> TypeSerializer:
    """Return the snapshot's serializer, or bytes under its name if it has too many columns."""
    serializer = snapshot.restore_serializer()
    columns, levels = _measure(serializer.arrow_type)
    if columns <= COLUMNS.most and levels <= COLUMN_NESTING.most:
        return serializer
    return OpaqueSerializer(serializer.name)


@contextmanager
def as_key() -> Iterator[None]:
    """Restore serializers of keys and namespaces in this thread, until the context ends.

    Entries are found by these bytes, so a type whose equal values may have several forms stays
    bytes.
    """
    token = _is_key.set(True)
    try:
        yield
    finally:
        _is_key.reset(token)


def is_key() -> bool:
    """Return whether this thread restores the serializer of a key or a namespace."""
    return _is_key.get()


def restore_key(snapshot: TypeSerializerSnapshot) -> TypeSerializer:
    """Return the serializer of a key or a namespace, as `restore_bounded` does."""
    with as_key():
        return restore_bounded(snapshot)


def count_columns(schema: pa.Schema) -> int:
    """Return the number of a state's columns, including nested ones."""
    return sum(_measure(field.type)[0] for field in schema)


def _measure(kind: pa.DataType) -> tuple[int, int]:
    """Return the number of a type's columns, including nested ones, and their depth."""
    columns, deepest = 1, 0
    struct = pa.types.is_struct(kind)
    for field in kind if struct else [kind.field(i) for i in range(kind.num_fields)]:
        more, levels = _measure(field.type)
        columns += more
        deepest = max(deepest, levels)
    return columns, deepest + 1


class OpaqueSerializer(TypeSerializer):
    """A type whose bytes only its own class understands: they are kept as they are.

    A value extends to the end of its entry, so it must be the last part.
    """

    arrow_type = pa.binary()
    self_delimiting = False
    name = named("binary ({java_class})")

    def __init__(self, java_class: str = "unknown") -> None:
        self.java_class = java_class

    def read(self, source: DataInput) -> bytes:
        """Read all bytes that are left."""
        return source.read_rest()

    def write(self, value: Any, out: DataOutput) -> None:
        """Write the bytes as they are."""
        if not isinstance(value, bytes):
            raise EncodeError(f"{value!r} is not bytes, and {self.java_class} is not understood")
        out.write_bytes(value)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read all bytes up to the end of each row."""
        column = decode_bytes(cursor, decode.read_units, "bytes")
        there = True if cursor.present.size == 0 else cursor.present != 0
        np.copyto(cursor.position, cursor.end, where=there)
        return column

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return the lengths of the bytes."""
        if not pa.types.is_binary(values.type):
            raise EncodeError(f"{values.type} where there should be bytes, of a {self.name}")
        require_values(values, present, self.name)
        return variable_sizes(values, present)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write the bytes as they are."""
        offsets, data = variable_values(values)
        encode.write_units(offsets, data, target.present, target.out, target.position)


SHOWN = 200
DECODED = " as "  # in the names of decoded types in tables
_decoders: dict[str, Decoder] = {}
_undecoded: ContextVar[bool] = ContextVar("undecoded", default=False)
_finding_ends: ContextVar[bool] = ContextVar("finding_ends", default=False)
_writer: ContextVar[int] = ContextVar("writer", default=0)
_NO_VALUE = (pa.ArrowException, TypeError, ValueError, OverflowError)


class Decoder(ABC):
    """A user's decoder of the values of a class.

    A subclass has `arrow_type` and `decode`. With `encode` values can be edited; with `length` they
    can be inside lists, maps, tuples and POJOs, and before a namespace, where the end of a value is
    not known otherwise.

    Attributes:
        arrow_type: The type of the column.
        declared: A text that distinguishes decoders of a class with different results for the same
            bytes; kept with every table, which only the same decoder can read.
    """

    arrow_type: pa.DataType
    declared: str = ""

    @abstractmethod
    def decode(self, data: bytes) -> Any:
        """Return the value of exactly these bytes, in Arrow's form: a struct is a dict.

        Return None for bytes that can't be decoded: the column is null there, and the bytes stay.
        """

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a value for Flink; leave it out if the format is not known."""
        raise NotImplementedError

    def length(self, data: memoryview) -> int:
        """Return the length of the value at the start of `data`; leave it out if not known."""
        raise NotImplementedError

    def standing_last(self) -> Decoder:
        """Return the decoder for a value with a known end; by default this one."""
        return self


def register_decoder(java_class: str, decoder: Decoder, *, replace: bool = False) -> None:
    """Register a decoder for values of a Java class whose serializer is not understood here.

    Args:
        java_class: The class as shown in `binary (com.acme.Event)`: for Kryo the value's class.
        decoder: The decoder.
        replace: Whether it may replace another class's decoder.

    Raises:
        EncodeError: It is not a decoder, has no Arrow type, or the class has another decoder.
    """
    problem = ""
    other = _decoders.get(java_class)
    kind = type(decoder)
    if not isinstance(decoder, Decoder):
        problem = f"{decoder!r} is no Decoder, but a {kind.__qualname__}"
    elif not isinstance(getattr(decoder, "arrow_type", None), pa.DataType):
        problem = f"{kind.__qualname__} has no `arrow_type`"
    elif not replace and other is not None and type(other).__qualname__ != kind.__qualname__:
        problem = f"{type(other).__qualname__} decodes it already; to replace it pass replace=True"
    if problem:
        raise EncodeError(problem, place=f"decoder of {java_class}")
    _decoders[java_class] = decoder
    plugins.note_change()


def decoder_of(java_class: str) -> Decoder | None:
    """Return the decoder of a class; None without a decoder."""
    if _undecoded.get():
        return None
    if java_class not in _decoders:
        plugins.load_installed()
    return _decoders.get(java_class)


@contextmanager
def undecoded() -> Iterator[None]:
    """Ignore all decoders in this thread, until the context ends."""
    token = _undecoded.set(True)
    try:
        yield
    finally:
        _undecoded.reset(token)


@contextmanager
def finding_ends() -> Iterator[None]:
    """Restore serializers that find where values end in this thread, until the context ends.

    They are restored with decoders after all, and decode nothing.
    """
    token, ends = _undecoded.set(False), _finding_ends.set(True)
    try:
        yield
    finally:
        _finding_ends.reset(ends)
        _undecoded.reset(token)


def is_undecoded() -> bool:
    """Return whether this thread ignores decoders."""
    return _undecoded.get()


def is_finding_ends() -> bool:
    """Return whether this thread restores serializers only to find where values end."""
    return _finding_ends.get()


@contextmanager
def written_by(flink: int) -> Iterator[None]:
    """Restore serializers of a snapshot of Flink 1 or 2 in this thread, until the context ends.

    Args:
        flink: 1 or 2; 0 if it is not known.
    """
    token = _writer.set(flink)
    try:
        yield
    finally:
        _writer.reset(token)


def writer() -> int:
    """Return the major version of the Flink that wrote the snapshot; 0 if it is not known."""
    return _writer.get()


def opaque_serializer(java_class: str) -> TypeSerializer:
    """Return the serializer of a class by its decoder, or otherwise one of bytes."""
    decoder = decoder_of(java_class)
    if decoder is None:
        return OpaqueSerializer(java_class)
    return DecodedSerializer(java_class, decoder)


class DecodedSerializer(TypeSerializer):
    """A type that a user decoder decodes.

    Args:
        java_class: The class of the values.
        decoder: The decoder.
    """

    def __init__(self, java_class: str, decoder: Decoder) -> None:
        self.java_class = java_class
        self.decoder = decoder
        self.arrow_type = decoder.arrow_type
        self.self_delimiting = type(decoder).length is not Decoder.length

    def standing_last(self) -> DecodedSerializer:
        """Return the serializer for a value with a known end."""
        decoder = self.decoder.standing_last()
        return self if decoder is self.decoder else type(self)(self.java_class, decoder)

    @property
    def name(self) -> str:
        """The class, and its decoded type."""
        return f"{self.java_class}{DECODED}{self.arrow_type}"

    def read(self, source: DataInput) -> Any:
        """Read one value; without the decoder's `length`, from all bytes that are left."""
        place = source.place
        data = source.read_bytes(self._length(source))
        with self._errors("decode", place):
            return self.decoder.decode(data)

    def skip(self, source: DataInput) -> None:
        """Move behind one value without decoding it."""
        source.read_bytes(self._length(source))

    def _length(self, source: DataInput) -> int:
        if not self.self_delimiting:
            return source.remaining
        with self._errors("length", source.place):
            size = self.decoder.length(source.data[source.position :])
        if not 0 < size <= source.remaining:
            raise source.fault(
                f"the decoder of {self.java_class} returned length {size};"
                f" {source.remaining} bytes left",
                remedy="correct the decoder's `length`, or remove the decoder",
            )
        return size

    @contextmanager
    def _errors(self, method: str, place: str) -> Iterator[None]:
        try:
            yield
        except StateError:
            raise
        except Exception as error:
            raise PluginError(
                f"{type(self.decoder).__qualname__}.{method} failed for a {self.java_class}"
                f" ({type(error).__name__}: {error})",
                place=place,
                remedy="correct it, or return None for bytes that it does not understand",
            ) from error

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one value, by the decoder's `encode`."""
        shown = repr(value)[:SHOWN]
        if value is None:
            raise EncodeError(f"null, and the exact bytes of this {self.java_class} are not kept")
        if type(self.decoder).encode is Decoder.encode:
            raise EncodeError(
                f"{shown} can't be written: the decoder of {self.java_class} has no `encode`",
                remedy="add an `encode`, or leave the value as it was",
            )
        with self._errors("encode", shown):
            out.write_bytes(self.decoder.encode(value))

    def _nulled(self, values: list[Any], cursor: Any) -> pa.Array:
        """Raise an error for a value of another type: a mistake in the decoder."""
        for row, value in enumerate(values):
            try:
                pa.array([value], self.arrow_type)
            except _NO_VALUE as error:  # noqa: PERF203 - there is a mistake, so it ends here
                raise PluginError(
                    f"{type(self.decoder).__qualname__}.decode returned {repr(value)[:SHOWN]} for a"
                    f" {self.java_class}, which is no {self.arrow_type}",
                    place=cursor.place(int(cursor.position[row])),
                    remedy="correct the decoder's `arrow_type` or `decode`",
                ) from error
        return pa.array(values, self.arrow_type)


def described_type(serializer: TypeSerializer) -> str:
    """Return the name of a type, with the declarations that decode its values or their parts."""
    declared: set[str] = set()
    met: set[int] = set()
    todo: list[Any] = [serializer]
    while todo:
        part = todo.pop()
        if id(part) in met:
            continue
        met.add(id(part))
        if isinstance(part, DecodedSerializer):
            declared.add(part.decoder.declared)
        elif isinstance(part, TypeSerializer):
            todo += vars(part).values()
        elif isinstance(part, (list, tuple)):
            todo += part
        elif isinstance(part, dict):
            todo += part.values()
    digests = "+".join(sorted(declared - {""}))
    return f"{serializer.name}, decoded{DECODED}{digests}" if digests else serializer.name
