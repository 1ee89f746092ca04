"""Protobuf messages as typed columns, from the descriptors that `protoc` writes.

A message that would not be written back byte for byte (unknown fields, another order of fields)
is left to its exact bytes. Kryo's serializer is taken to be chill's `ProtobufSerializer`, which
writes the message behind its length.

Source: Protobuf's encoding and `descriptor.proto`; `com.twitter.chill.protobuf` 0.7.6.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from statelake.state_core.bounds import COLUMNS, EMPTY_ELEMENTS
from statelake.state_core.errors import EncodeError, UnsupportedFormatError
from statelake.state_core.nested import column_names, struct_of
from statelake.state_core.serializers.kryo.graph import Form, Item, ObjectReader, ObjectWriter
from statelake.state_core.serializers.kryo.java_types import JavaType

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
INT64, STRING, GROUP, MESSAGE, BYTES, ENUM = 3, 9, 10, 11, 12, 14
REPEATED = 3
KINDS = range(1, 19)
_ERRORS = (ValueError, struct.error, AttributeError, TypeError, KeyError, OverflowError)
MAP_KEYS = frozenset(KINDS) - {1, 2, GROUP, MESSAGE, BYTES, ENUM}
MAX_TAG = 1 << 32
FIELDS_OF_A_BYTE = 16
_FIXED = {1: "<d", 2: "<f", 6: "<Q", 7: "<I", 15: "<i", 16: "<q"}
_UNSIGNED = {8: 2, 13: 2**32, 17: 2**32}  # where fewer than 64 bits are valid
_ARROW = {
    1: pa.float64(), 2: pa.float32(), 3: pa.int64(), 4: pa.uint64(), 5: pa.int32(),
    6: pa.uint64(), 7: pa.uint32(), 8: pa.bool_(), 9: pa.string(), 12: pa.binary(),
    13: pa.uint32(), 14: pa.string(), 15: pa.int32(), 16: pa.int64(), 17: pa.int32(),
    18: pa.int64(),
}  # fmt: skip


@dataclass
class _Field:
    name: str
    number: int
    kind: int
    repeated: bool
    packed: bool
    presence: bool
    type_name: str
    recursive: bool = False
    column: str = ""

    def __post_init__(self) -> None:
        self.column = self.name  # unless another one differs from it only in its case


@dataclass
class _ProtobufMessage:
    java_class: str
    fields: list[_Field] = field(default_factory=list)
    is_map: bool = False


class _Room:
    """The fields that a message may have with all messages in it, as absent ones take no bytes.

    Args:
        size: The size of its bytes.
    """

    def __init__(self, size: int) -> None:
        self.left = EMPTY_ELEMENTS.most + FIELDS_OF_A_BYTE * size

    def take(self, count: int) -> None:
        """Count the fields of a message.

        Raises:
            ValueError: All of them are too many.
        """
        self.left -= count
        if self.left < 0:
            raise ValueError("too many fields that take no bytes")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        if at >= len(data):
            raise ValueError("a number ends too early")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value & (2**64 - 1), at
    raise ValueError("a number of more than 10 bytes")


def _put(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _parts(data: bytes) -> Iterator[tuple[int, int, Any]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, at = _varint(data, at)
            yield number, wire, value
            continue
        size = {FIXED64: 8, FIXED32: 4}.get(wire, 0)
        if wire == LENGTH:
            size, at = _varint(data, at)
        elif not size:
            raise ValueError(f"wire type {wire} is not decoded")
        if tag >= MAX_TAG or size > len(data) - at:
            raise ValueError("a field is longer than its message")
        yield number, wire, data[at : at + size]
        at += size


def _of(data: bytes, number: int) -> list[Any]:
    return [value for field_number, _, value in _parts(data) if field_number == number]


def _one(data: bytes, number: int, default: Any = 0) -> Any:
    return [default, *_of(data, number)][-1]


class _MessageDescriptors:
    def __init__(self, data: bytes) -> None:
        self.messages: dict[str, _ProtobufMessage] = {}
        self.enums: dict[str, dict[int, str]] = {}
        self._structs: dict[str, tuple[pa.DataType, int]] = {}
        for file in _of(data, 1):
            self._file(file)

    def _file(self, file: bytes) -> None:
        package, options = _one(file, 2, b"").decode(), _one(file, 8, b"")
        syntax = _one(file, 12, b"proto2").decode()
        if syntax not in ("proto2", "proto3"):
            raise ValueError(f"{_one(file, 1, b'').decode()}: syntax {syntax!r} is not decoded")
        java = _one(options, 1, package.encode()).decode()
        prefix = f"{java}." if java else ""
        if not _one(options, 10):
            stem = _one(file, 1, b"").decode().rpartition("/")[2].removesuffix(".proto")
            parts = stem.replace("-", "_").split("_")
            outer = "".join(part[:1].upper() + part[1:] for part in parts)
            names = [_one(t, 1, b"").decode() for n in (4, 5, 6) for t in _of(file, n)]
            outer += "OuterClass" if outer in names else ""
            prefix += _one(options, 8, outer.encode()).decode() + "$"
        scope = f".{package}" if package else ""
        self._types(_of(file, 4), _of(file, 5), scope, prefix, syntax == "proto3")

    def _types(
        self, messages: list[bytes], enums: list[bytes], scope: str, prefix: str, proto3: bool
    ) -> None:
        for enum in enums:
            values = [(_signed(_one(v, 2)), _one(v, 1, b"").decode()) for v in _of(enum, 2)]
            self.enums[f"{scope}.{_one(enum, 1, b'').decode()}"] = dict(reversed(values))
        for data in messages:
            name = _one(data, 1, b"").decode()
            full, java = f"{scope}.{name}", prefix + name
            kind = _ProtobufMessage(java, is_map=bool(_one(_one(data, 7, b""), 7)))
            kind.fields = sorted((_field(f, proto3) for f in _of(data, 2)), key=lambda f: f.number)
            for by in ("name", "number"):
                if len({getattr(each, by) for each in kind.fields}) < len(kind.fields):
                    raise ValueError(f"{full} has two fields of one {by}")
            columns = column_names([each.name for each in kind.fields])
            for each, column in zip(kind.fields, columns, strict=True):
                each.column = column
            if kind.is_map and not _is_entry(kind.fields):
                raise ValueError(f"{full} is no entry of a map")
            if full in self.messages:
                raise ValueError(f"{full} is there twice")
            self.messages[full] = kind
            self._types(_of(data, 3), _of(data, 4), full, java + "$", proto3)

    def check(self) -> None:
        """Refuse fields of a type that is not described, and find the recursive ones.

        Raises:
            ValueError: An import is missing, or an entry of a map is used as something else.
        """
        for name, message in self.messages.items():
            for each in message.fields:
                known = self.messages if each.kind == MESSAGE else self.enums
                if each.kind in (MESSAGE, ENUM) and each.type_name not in known:
                    raise ValueError(f"{name}.{each.name} is a {each.type_name}, which is missing")
                inner = self.messages.get(each.type_name) if each.kind == MESSAGE else None
                if inner is not None and inner.is_map and not each.repeated:
                    raise ValueError(f"{name}.{each.name} is one entry of a map")
        cycle_of = self._cycles()
        for name, message in self.messages.items():
            for each in message.fields:
                # with map entries, which are no level of their own
                if each.kind == MESSAGE:
                    each.recursive = cycle_of[name] == cycle_of[each.type_name]

    def arrow(self, name: str) -> pa.DataType:
        """Return the struct of a message: within it, what is too large is bytes, and itself."""
        return self._struct(name)[0]

    def _struct(self, name: str) -> tuple[pa.DataType, int]:
        """Return the struct of a message, and the number of all fields in it."""
        if name not in self._structs:
            self._structs[name] = self._new_struct(name)
        return self._structs[name]

    def _new_struct(self, name: str) -> tuple[pa.DataType, int]:
        kinds: list[pa.DataType] = []
        count = 1
        for each in self.messages[name].fields:
            kind = _ARROW.get(each.kind, pa.binary())
            inner = self.messages.get(each.type_name) if each.kind == MESSAGE else None
            if inner is not None:
                if not each.recursive:
                    kind, inside = self._struct(each.type_name)
                    each.recursive = inside > COLUMNS.most
                    count += 0 if each.recursive else inside
                kind = pa.binary() if each.recursive else kind
                if inner.is_map and not each.recursive:
                    key, value = kind.field(0).type, kind.field(1).type
                    kinds.append(pa.map_(key, value))
                    continue
            kinds.append(pa.list_(kind) if each.repeated else kind)
            count += 1
        return struct_of([each.name for each in self.messages[name].fields], kinds), count

    def _cycles(self) -> dict[str, int]:
        """Return the number of each message's cycle: messages that reach each other have the same.

        Source: Tarjan's algorithm for strongly connected components, without recursion.
        """
        below = {
            name: [each.type_name for each in message.fields if each.kind == MESSAGE]
            for name, message in self.messages.items()
        }
        order: dict[str, int] = {}
        lowest: dict[str, int] = {}
        cycles: dict[str, int] = {}
        open_names: list[str] = []
        for start, named in below.items():
            path = [] if start in order else [(start, iter(named))]
            while path:
                name, rest = path[-1]
                if name not in order:
                    order[name] = lowest[name] = len(order)
                    open_names.append(name)
                for inner in rest:
                    if inner not in order:
                        path.append((inner, iter(below[inner])))
                        break
                    if inner not in cycles:
                        lowest[name] = min(lowest[name], lowest[inner])
                else:
                    path.pop()
                    if lowest[name] == order[name]:
                        while name not in cycles:
                            cycles[open_names.pop()] = order[name]
                    elif path:
                        outer = path[-1][0]
                        lowest[outer] = min(lowest[outer], lowest[name])
        return cycles

    def read(self, name: str, data: bytes, room: _Room) -> dict[str, Any]:
        """Return the value of a message."""
        message = self.messages[name]
        room.take(len(message.fields))
        occurrences: dict[int, list[tuple[int, Any]]] = {}
        for number, wire, value in _parts(data):
            occurrences.setdefault(number, []).append((wire, value))
        result: dict[str, Any] = {}
        for each in message.fields:
            values: list[Any] = []
            for wire, raw in occurrences.get(each.number, ()):
                values.extend(self._values(each, wire, raw, room))
            if each.repeated:
                result[each.column] = values
            elif values:
                result[each.column] = values[-1]
            else:
                result[each.column] = None if each.presence else self._default(each)
        return result

    def _default(self, each: _Field) -> Any:
        if each.kind == ENUM:
            return self.enums[each.type_name].get(0, "0")
        return {STRING: "", BYTES: b"", 8: False, 1: 0.0, 2: 0.0}.get(each.kind, 0)

    def _values(self, each: _Field, wire: int, raw: Any, room: _Room) -> Iterator[Any]:
        own = _wire(each.kind)
        if wire == own:
            yield self._value(each, raw, room)
        elif wire != LENGTH or not each.repeated:
            raise ValueError(f"{each.name} has wire type {wire}")
        elif own == VARINT:
            at = 0
            while at < len(raw):
                number, at = _varint(raw, at)
                yield self._value(each, number, room)
        else:
            size = struct.calcsize(_FIXED[each.kind])
            for at in range(0, len(raw), size):
                yield self._value(each, raw[at : at + size], room)

    def _value(self, each: _Field, raw: Any, room: _Room) -> Any:
        kind = each.kind
        if kind in _FIXED:
            if len(raw) != struct.calcsize(_FIXED[kind]):
                raise ValueError("a packed field ends within a number")
            return struct.unpack(_FIXED[kind], raw)[0]
        if kind == STRING:
            return raw.decode()
        if kind == BYTES or each.recursive:
            return bytes(raw)
        if kind == MESSAGE:
            value = self.read(each.type_name, raw, room)
            return tuple(value.values()) if self.messages[each.type_name].is_map else value
        if raw >= _UNSIGNED.get(kind, 2**64):
            raise ValueError(f"{each.name} does not fit its type")
        if kind in (17, 18):
            return (raw >> 1) ^ -(raw & 1)
        if kind == 8:
            return bool(raw)
        if kind in (3, 5, ENUM):
            raw = _signed(raw)
            if kind == 5 and not -(2**31) <= raw < 2**31:
                raise ValueError(f"{each.name} does not fit its type")
        return self.enums[each.type_name].get(raw, str(raw)) if kind == ENUM else raw

    def write(self, name: str, value: Any) -> bytes:
        """Return the bytes of a message, as Java writes them: by number, without defaults."""
        message = self.messages[name]
        if message.is_map and not isinstance(value, dict):
            value = {"key": value[0], "value": value[1]}
        out = bytearray()
        for each in message.fields:
            own = value.get(each.column)
            if each.repeated:
                items = own.items() if isinstance(own, dict) else own or ()
                encoded = [self._bytes(each, item) for item in items]
                if each.packed and encoded:
                    body = b"".join(encoded)
                    out += _put(each.number << 3 | LENGTH) + _put(len(body)) + body
                    continue
            elif own is None:
                continue
            else:
                encoded = [self._bytes(each, own)]
                default = not each.presence and not message.is_map
                if default and encoded[0] == self._bytes(each, self._default(each)):
                    continue
            tag = _put(each.number << 3 | _wire(each.kind))
            for item in encoded:
                out += tag + item
        return bytes(out)

    def _bytes(self, each: _Field, value: Any) -> bytes:
        kind = each.kind
        if kind in _FIXED:
            return struct.pack(_FIXED[kind], value)
        if kind in (STRING, BYTES, MESSAGE):
            if kind == STRING:
                value = str(value).encode()
            elif kind == MESSAGE and not each.recursive:
                value = self.write(each.type_name, value)
            return _put(len(value)) + bytes(value)
        if kind in (17, 18):
            return _put(value << 1 ^ value >> 63)
        if kind == ENUM:
            names = {name: number for number, name in self.enums[each.type_name].items()}
            value = names[value] if value in names else int(value)
        return _put(int(value))


def _wire(kind: int) -> int:
    if kind in _FIXED:
        return FIXED64 if struct.calcsize(_FIXED[kind]) == 8 else FIXED32
    return LENGTH if kind in (STRING, MESSAGE, BYTES) else VARINT


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _is_entry(fields: list[_Field]) -> bool:
    """Return whether a message has the fields of a map's entry."""
    form = [(each.name, each.number, each.repeated) for each in fields]
    return form == [("key", 1, False), ("value", 2, False)] and fields[0].kind in MAP_KEYS


def _field(data: bytes, proto3: bool) -> _Field:
    kind, repeated = _one(data, 5), _one(data, 4) == REPEATED
    name = _one(data, 1, b"").decode()
    number = _one(data, 3)
    if kind == GROUP:
        raise ValueError(f"{name} is a group, which is not decoded")
    if kind not in KINDS:
        raise ValueError(f"{name} has type {kind}, which is not known")
    if not 0 < number < MAX_TAG >> 3:
        raise ValueError(f"{name} has number {number}")
    presence = not proto3 or kind == MESSAGE or bool(_of(data, 9)) or bool(_one(data, 17))
    packable = repeated and kind not in (STRING, BYTES, MESSAGE)
    packed = packable and bool(_one(_one(data, 8, b""), 2, int(proto3)))
    type_name = _one(data, 6, b"").decode()
    return _Field(name, number, kind, repeated, packed, presence, type_name)


class MessageType:
    """A type of messages.

    Attributes:
        arrow_type: The struct of its fields.
        digest: Eight digits of the descriptors that determine it.
    """

    def __init__(self, descriptors: _MessageDescriptors, name: str, digest: str) -> None:
        self._descriptors, self._name = descriptors, name
        self.arrow_type = descriptors.arrow(name)
        self.digest = digest

    def read(self, data: bytes) -> dict[str, Any]:
        """Return a message as a value of the struct.

        Raises:
            UnsupportedFormatError: It would not be written back as the same bytes.
        """
        try:
            value = self._descriptors.read(self._name, data, _Room(len(data)))
            if self._descriptors.write(self._name, value) == data:
                return value
        except _ERRORS as error:
            raise UnsupportedFormatError(f"no message of {self._name}: {error}") from error
        raise UnsupportedFormatError(f"a message of {self._name} with more than its fields")

    def write(self, value: Any) -> bytes:
        """Return the bytes of a message.

        Raises:
            EncodeError: It is no value of the struct.
        """
        try:
            return self._descriptors.write(self._name, value)
        except _ERRORS as error:
            raise EncodeError(f"no message of {self._name}: {error}") from error


class MessageForm(Form):
    """A message behind its length, as chill's serializer writes it: its value is bytes."""

    def read(self, reader: ObjectReader, item: Item, _: tuple[JavaType, ...]) -> None:
        """Read the message."""
        item.value = bytes(reader.source.read_bytes(reader.length("bytes of a message")))

    def write(self, writer: ObjectWriter, item: Item, _: tuple[JavaType, ...]) -> None:
        """Write the message."""
        writer.varint(len(item.value))
        writer.out.write_bytes(item.value)


def message_types(descriptors: bytes, place: str) -> dict[str, MessageType]:
    """Return the types of all messages of a set of descriptors, by their Java classes.

    Args:
        descriptors: What `protoc --include_imports --descriptor_set_out=FILE` has written.
        place: The file, for messages.

    Raises:
        EncodeError: It is no such set, or it lacks an import.
    """
    remedy = "give what `protoc --include_imports --descriptor_set_out=FILE` writes"
    digest = hashlib.sha256(descriptors).hexdigest()[:8]
    try:
        known = _MessageDescriptors(descriptors)
        known.check()
        types = {
            message.java_class: MessageType(known, name, digest)
            for name, message in known.messages.items()
            if not message.is_map
        }
    except (*_ERRORS, RecursionError) as error:
        raise EncodeError(f"no descriptors: {error}", place=place, remedy=remedy) from error
    if not types:
        raise EncodeError("descriptors without a message", place=place, remedy=remedy)
    return types


def described_message(
    name: str, messages: Mapping[str, Sequence[tuple[str, int, int | str]]]
) -> MessageType:
    """Return the type of a message of proto3 whose form is known here, without descriptors.

    Args:
        name: The message.
        messages: The fields of it, and of each message in it, by number: name, number, and the
            number of their type in `descriptor.proto`, or the name of a message.
    """
    known = _MessageDescriptors(b"")
    for each, fields in messages.items():
        known.messages[each] = _ProtobufMessage(
            each,
            [
                _Field(field, number, MESSAGE, False, False, True, kind)
                if isinstance(kind, str)
                else _Field(field, number, kind, False, False, False, "")
                for field, number, kind in fields
            ],
        )
    return MessageType(known, name, "")
