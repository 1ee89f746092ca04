"""Java object streams as data, read and written by their grammar without instantiating anything.

Flink leaves `java.io.ObjectOutputStream` bytes in two places: the checkpoint properties at the
end of `_metadata` (version 4 and later), and the logical types inside SQL serializer snapshots.
Flink reads both by deserializing them. Here they are parsed into plain values by the grammar of
the *Java Object Serialization Specification*, chapter 6: no class is loaded and no method runs,
so bytes from a stranger can do nothing but fail to parse.

A stream is read as: `JavaString` (a `str`), `None`, `JavaObject`, `JavaEnum`, `JavaArray`,
`JavaClassLiteral` (a `java.lang.Class`), `JavaClass` (a class descriptor).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from statelake.state_core.bounds import JAVA_NESTING
from statelake.state_core.errors import CorruptSnapshotError, UnsupportedFormatError
from statelake.state_core.files.wire import DataInput, DataOutput, decode_modified_utf8

STREAM_MAGIC = 0xACED
STREAM_VERSION = 5
BASE_HANDLE = 0x7E0000

TC_NULL = 0x70
TC_REFERENCE = 0x71
TC_CLASSDESC = 0x72
TC_OBJECT = 0x73
TC_STRING = 0x74
TC_ARRAY = 0x75
TC_CLASS = 0x76
TC_BLOCKDATA = 0x77
TC_ENDBLOCKDATA = 0x78
TC_BLOCKDATALONG = 0x7A
TC_LONGSTRING = 0x7C
TC_ENUM = 0x7E

SC_WRITE_METHOD = 0x01
SC_SERIALIZABLE = 0x02
SC_EXTERNALIZABLE = 0x04

_PRIMITIVES = {
    "B": ("read_byte", "write_byte", 1),
    "C": ("read_char", "write_char", 2),
    "D": ("read_double", "write_double", 8),
    "F": ("read_float", "write_float", 4),
    "I": ("read_int", "write_int", 4),
    "J": ("read_long", "write_long", 8),
    "S": ("read_short", "write_short", 2),
    "Z": ("read_boolean", "write_boolean", 1),
}


@dataclass(frozen=True, slots=True)
class JavaField:
    """One field of a class descriptor: JVM type code, name, and class name if it is an object."""

    code: str
    name: str
    signature: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class JavaClass:
    """A class descriptor: name, serial version, flags, fields as written, and the superclass."""

    name: str
    serial_version: int
    flags: int
    fields: tuple[JavaField, ...] = ()
    parent: JavaClass | None = None
    annotations: tuple[JavaValue, ...] = ()

    def lineage(self) -> list[JavaClass]:
        """Return the class hierarchy in the order of written data: the topmost class first."""
        chain: list[JavaClass] = []
        step: JavaClass | None = self
        while step is not None:
            chain.append(step)
            step = step.parent
        return chain[::-1]


@dataclass(slots=True, eq=False)
class JavaObject:
    """An object: field values, and the data that its `writeObject` methods added, by class name."""

    java_class: JavaClass
    values: dict[str, JavaValue] = field(default_factory=dict)
    extra: dict[str, list[JavaValue]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class JavaEnum:
    """An enum constant."""

    java_class: JavaClass
    constant: str


@dataclass(slots=True, eq=False)
class JavaArray:
    """An array; `java_class.name[1]` is the element's type code."""

    java_class: JavaClass
    items: list[JavaValue] = field(default_factory=list)


class JavaString(str):
    """A string that is an object of its own, not shared with an equal one when written again.

    Any other `str` is shared by content, as literals of Java are.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class JavaClassLiteral:
    """A `java.lang.Class` as a value."""

    java_class: JavaClass


JavaValue: TypeAlias = (
    "bool | int | float | str | bytes | JavaObject | JavaEnum | JavaArray | JavaClassLiteral"
    " | JavaClass | None"
)


def read_java_stream(source: DataInput) -> JavaValue:
    """Read one stream with one object, and leave `source` right behind it.

    Raises:
        CorruptSnapshotError: The bytes are not such a stream.
        UnsupportedFormatError: They use a part of the grammar that Flink's streams never do
            (externalizable objects, proxies, exceptions, resets).
        OversizedError: It is larger than any that Flink writes.
    """
    if source.read_char() != STREAM_MAGIC or source.read_short() != STREAM_VERSION:
        raise source.fault("no Java object stream (AC ED 00 05) where one should begin")
    return _StreamReader(source).read_content(0)


def write_java_stream(value: JavaValue) -> bytes:
    """Return the stream that `ObjectOutputStream` would write for a value of `read_java_stream`."""
    out = DataOutput()
    out.write_char(STREAM_MAGIC)
    out.write_short(STREAM_VERSION)
    _Writer(out).write_content(value)
    return out.to_bytes()


class _StreamReader:
    def __init__(self, source: DataInput) -> None:
        self.source = source
        self.handles: list[JavaValue] = []
        self.ancestors: dict[int, int] = {}
        self.levels: dict[int, list[JavaClass]] = {}

    def read_content(self, depth: int) -> JavaValue:
        JAVA_NESTING.check(depth, self.source)
        self.source.declare()
        tag = self.source.read_unsigned_byte()
        if tag == TC_NULL:
            return None
        if tag == TC_REFERENCE:
            return self._reference()
        if tag == TC_STRING:
            return self._remember(JavaString(self.source.read_utf()))
        if tag == TC_LONGSTRING:
            return self._remember(JavaString(self._long_string()))
        if tag == TC_CLASSDESC:
            return self._class_descriptor(depth)
        if tag == TC_CLASS:
            return self._remember(JavaClassLiteral(self._require_class(depth)))
        if tag == TC_OBJECT:
            return self._object(depth)
        if tag == TC_ENUM:
            return self._enum(depth)
        if tag == TC_ARRAY:
            return self._array(depth)
        if tag == TC_BLOCKDATA:
            return self.source.read_bytes(self.source.read_unsigned_byte())
        if tag == TC_BLOCKDATALONG:
            return self.source.read_bytes(self.source.read_length("bytes of block data"))
        raise UnsupportedFormatError(
            f"Java stream element 0x{tag:02X}, which Flink's own streams do not use",
            place=self.source.place,
            remedy="report it with the class that wrote this state",
        )

    def _remember(self, value: JavaValue) -> JavaValue:
        self.handles.append(value)
        return value

    def _reference(self) -> JavaValue:
        index = self.source.read_int() - BASE_HANDLE
        if not 0 <= index < len(self.handles):
            raise self.source.fault("a back reference to an object that was not written")
        return self.handles[index]

    def _long_string(self) -> str:
        length = self.source.read_long()
        try:
            return decode_modified_utf8(self.source.read_bytes(length))
        except ValueError:
            raise self.source.fault("a string that is not modified UTF-8") from None

    def _require_class(self, depth: int) -> JavaClass:
        value = self.read_content(depth + 1)
        if not isinstance(value, JavaClass):
            raise self.source.fault("no class descriptor where one should be")
        return value

    def _class_descriptor(self, depth: int) -> JavaClass:
        source = self.source
        name = source.read_utf()
        serial_version = source.read_long()
        slot = len(self.handles)
        self.handles.append(None)
        flags = source.read_unsigned_byte()
        count = source.read_short()
        if count < 0:
            raise source.fault(f"class {name} with {count} fields")
        source.declare(count)
        fields = tuple(self._field(depth) for _ in range(count))
        annotations = self._until_end_of_block(depth)
        parent = self.read_content(depth + 1)
        if parent is not None and not isinstance(parent, JavaClass):
            raise source.fault(f"class {name} whose superclass is no class")
        described = JavaClass(name, serial_version, flags, fields, parent, tuple(annotations))
        self.handles[slot] = described
        self.ancestors[id(described)] = 0 if parent is None else self.ancestors[id(parent)] + 1
        JAVA_NESTING.check(self.ancestors[id(described)], source)
        return described

    def _field(self, depth: int) -> JavaField:
        code = chr(self.source.read_unsigned_byte())
        name = self.source.read_utf()
        if code in _PRIMITIVES:
            return JavaField(code, name)
        signature = self.read_content(depth + 1)
        if code not in "[L" or not isinstance(signature, str):
            raise self.source.fault(f"field {name} of an unknown type {code!r}")
        return JavaField(code, name, signature)

    def _until_end_of_block(self, depth: int) -> list[JavaValue]:
        content: list[JavaValue] = []
        source = self.source
        while not source.remaining or source.data[source.position] != TC_ENDBLOCKDATA:
            content.append(self.read_content(depth + 1))
        source.read_byte()
        return content

    def _object(self, depth: int) -> JavaObject:
        described = self._require_class(depth)
        instance = JavaObject(described)
        self.handles.append(instance)
        for level in self._levels_of(described):
            if level.flags & SC_EXTERNALIZABLE or not level.flags & SC_SERIALIZABLE:
                raise UnsupportedFormatError(
                    f"{level.name} writes itself in a form of its own",
                    place=self.source.place,
                    remedy="its bytes can't be read without its class",
                )
            for member in level.fields:
                instance.values[member.name] = self._value(member.code, depth)
            if level.flags & SC_WRITE_METHOD:
                instance.extra[level.name] = self._until_end_of_block(depth)
        return instance

    def _levels_of(self, described: JavaClass) -> list[JavaClass]:
        """Return the class and its superclasses, topmost first, except those without data."""
        if id(described) not in self.levels:
            self.levels[id(described)] = [
                one for one in described.lineage() if one.fields or one.flags != SC_SERIALIZABLE
            ]
        return self.levels[id(described)]

    def _value(self, code: str, depth: int) -> JavaValue:
        if code in _PRIMITIVES:
            value: JavaValue = getattr(self.source, _PRIMITIVES[code][0])()
            return value
        return self.read_content(depth + 1)

    def _enum(self, depth: int) -> JavaEnum:
        instance = JavaEnum(self._require_class(depth), "")
        self.handles.append(instance)
        constant = self.read_content(depth + 1)
        if not isinstance(constant, str):
            raise self.source.fault("an enum constant without a name")
        instance.constant = constant
        return instance

    def _array(self, depth: int) -> JavaArray:
        array = JavaArray(self._require_class(depth))
        self.handles.append(array)
        code = array.java_class.name[1:2]
        width = _PRIMITIVES[code][2] if code in _PRIMITIVES else 1
        count = self.source.read_count("array elements", width)
        array.items = [self._value(code, depth) for _ in range(count)]
        return array


class _Writer:
    def __init__(self, out: DataOutput) -> None:
        self.out = out
        self.handles: dict[object, int] = {}

    def write_content(self, value: JavaValue) -> None:
        if value is None:
            self.out.write_byte(TC_NULL)
        elif isinstance(value, bytes):
            self._block(value)
        elif (handle := self.handles.get(self._identity(value))) is not None:
            self.out.write_byte(TC_REFERENCE)
            self.out.write_int(BASE_HANDLE + handle)
        elif isinstance(value, str):
            self.out.write_byte(TC_STRING)
            self._remember(value)
            self.out.write_utf(value)
        elif isinstance(value, JavaClass):
            self._class_descriptor(value)
        elif isinstance(value, JavaObject):
            self._object(value)
        elif isinstance(value, JavaClassLiteral):
            self.out.write_byte(TC_CLASS)
            self.write_content(value.java_class)
            self._remember(value)
        elif isinstance(value, JavaEnum):
            self.out.write_byte(TC_ENUM)
            self.write_content(value.java_class)
            self._remember(value)
            self.write_content(value.constant)
        elif isinstance(value, JavaArray):
            self._array(value)
        else:
            raise CorruptSnapshotError(f"a bare {type(value).__name__} in a Java object stream")

    @staticmethod
    def _identity(value: JavaValue) -> object:
        """Return the identity of a shared value: literals by content, all else by object."""
        literal = isinstance(value, str) and not isinstance(value, JavaString)
        return value if literal else id(value)

    def _remember(self, value: JavaValue) -> None:
        self.handles[self._identity(value)] = len(self.handles)

    def _block(self, data: bytes) -> None:
        if len(data) < 256:
            self.out.write_byte(TC_BLOCKDATA)
            self.out.write_byte(len(data))
        else:
            self.out.write_byte(TC_BLOCKDATALONG)
            self.out.write_int(len(data))
        self.out.write_bytes(data)

    def _class_descriptor(self, described: JavaClass) -> None:
        self.out.write_byte(TC_CLASSDESC)
        self.out.write_utf(described.name)
        self.out.write_long(described.serial_version)
        self._remember(described)
        self.out.write_byte(described.flags)
        self.out.write_short(len(described.fields))
        for member in described.fields:
            self.out.write_byte(ord(member.code))
            self.out.write_utf(member.name)
            if member.signature is not None:
                self.write_content(member.signature)
        for annotation in described.annotations:
            self.write_content(annotation)
        self.out.write_byte(TC_ENDBLOCKDATA)
        self.write_content(described.parent)

    def _object(self, value: JavaObject) -> None:
        self.out.write_byte(TC_OBJECT)
        self.write_content(value.java_class)
        self._remember(value)
        for level in value.java_class.lineage():
            for member in level.fields:
                self._value(member.code, value.values[member.name])
            if level.flags & SC_WRITE_METHOD:
                for item in value.extra.get(level.name, []):
                    self.write_content(item)
                self.out.write_byte(TC_ENDBLOCKDATA)

    def _array(self, value: JavaArray) -> None:
        self.out.write_byte(TC_ARRAY)
        self.write_content(value.java_class)
        self._remember(value)
        self.out.write_int(len(value.items))
        for item in value.items:
            self._value(value.java_class.name[1:2], item)

    def _value(self, code: str, value: JavaValue) -> None:
        if code in _PRIMITIVES:
            getattr(self.out, _PRIMITIVES[code][1])(value)
        else:
            self.write_content(value)
