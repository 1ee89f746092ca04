"""Conversion of values of Flink 1's Kryo to what Flink 2 reads, which Flink itself can't do.

Kryo may be the serializer of whole values, or of any part of them. Only the bytes of these parts
change. Objects are read with their references and written again, so that shared objects stay
shared.

Flink 2 has serializers of its own for what Flink 1 left to Kryo: collections and maps whose type
arguments are classes without arguments of their own (FLIP-398). A snapshot has no type arguments,
so that they are declared, taken from a snapshot of the new job, or found in the values.

Source: `TypeExtractor`, `NullableListTypeInfo`, `NullableSetTypeInfo` and `NullableMapTypeInfo` of
Flink 2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.errors import EncodeError, StateError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.keyed_layout import (
    KEY,
    KEY_GROUP,
    NAMESPACE,
    RAW_KEY,
    USER_KEY,
    KeyedLayout,
    LengthTrailer,
    RowPart,
    RowWriter,
    skip_lengths,
)
from statelake.state_core.formats.operator_state.operator_states import SUBTASK, ElementRows
from statelake.state_core.formats.rewriting.kryo_parts import (
    KryoPart,
    PartPlaces,
    PartSnapshot,
    PartsOfKryo,
    below,
    kryo_places,
    replaced,
    spliced,
)
from statelake.state_core.formats.rewriting.kryo_targets import OWN, target_column
from statelake.state_core.formats.rewriting.value_migration import (
    TTL_BYTES,
    binary_cursor,
    rewrite_entry,
    rewritten_rows,
    with_columns,
)
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.kernels.encode import copy_pieces
from statelake.state_core.kernels.kryo import WRITTEN
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.basic.enums import EnumSerializerSnapshot
from statelake.state_core.serializers.composite.arrays import (
    SetSerializerSnapshot,
)
from statelake.state_core.serializers.composite.collections import (
    ListSerializerSnapshot,
    MapSerializerSnapshot,
    offsets_of,
)
from statelake.state_core.serializers.composite.optionals import NullableSerializerSnapshot
from statelake.state_core.serializers.composite.pojo_snapshot import PojoSerializerSnapshot
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.columns import (
    ALL_PRESENT,
    I64Array,
    Target,
    U8Array,
    arrow_buffer,
)
from statelake.state_core.serializers.framework.opaque_values import (
    OpaqueSerializer,
    as_key,
    restore_bounded,
    restore_key,
    undecoded,
)
from statelake.state_core.serializers.framework.snapshots import CompositeTypeSerializerSnapshot
from statelake.state_core.serializers.kryo.graph import Item
from statelake.state_core.serializers.kryo.java_types import JavaType, parse_java_type
from statelake.state_core.serializers.kryo.scalars import ScalarColumn
from statelake.state_core.serializers.kryo.snapshot import KryoSerializerSnapshot
from statelake.state_core.serializers.kryo.tables import MarkedTable, Objects
from statelake.state_core.serializers.kryo.wire import KryoVersion
from statelake.state_core.serializers.type_spec import parse_type

Rows = TypeVar("Rows", StateRows, ElementRows)
# the parts of namespaces and user keys, and what writes them
KeyParts: TypeAlias = "dict[str, tuple[PartsOfKryo, _Writers]]"

TIME_BYTES = 8  # of a timer
LISTS = ("java.util.List", "java.util.Collection")
COLLECTIONS = (*LISTS, "java.util.Set", "java.util.Map")
# limits for shared objects, which collections of Flink 2 hold each by itself: bytes
EXPANDED, EXPANDED_OF_A_BYTE = 1 << 20, 64
# classes with type arguments: Flink 2 leaves a collection of these to Kryo
_GENERIC = ("java.util.", "org.apache.flink.api.java.tuple.", "scala.")
# types that are declared in place of the classes of their values, which are Java's own
_DECLARED_AS = {
    "java.time.ZoneRegion": "java.time.ZoneId",
    "sun.util.calendar.ZoneInfo": "java.util.TimeZone",
}
_PLAIN = ("java.util.UUID", "java.util.Date", "java.util.Currency", "java.util.Locale",
          "java.util.BitSet", "java.util.regex.Pattern")  # fmt: skip


@dataclass
class ElementClasses:
    """The classes of the elements of a collection by Kryo, over all its values.

    Attributes:
        java_class: The collection's class, as the state declares it.
        parts: The classes of elements; of a map those of keys, and those of values.
    """

    java_class: str
    parts: tuple[set[str], set[str]] = field(default_factory=lambda: (set(), set()))

    def note(self, item: Item | None) -> None:
        """Add the classes of a collection's elements."""
        for element in item.value if item is not None and isinstance(item.value, list) else ():
            members = element if isinstance(element, tuple) else (element,)
            for classes, member in zip(self.parts, members, strict=False):
                if member is not None:
                    classes.add(member.java_class)

    def note_all(self, objects: Objects) -> None:
        """Add the classes of the elements of collections."""
        parts, lines = objects.parts, objects.roots[objects.roots >= 0]
        try:
            if self.java_class == "java.util.Map":
                _, keys, values = parts.entries(lines)
                members = [keys, values]
            else:
                members = [parts.elements(lines)[1]]
        except EncodeError:  # other classes than usual
            for row in range(len(objects.roots)):
                self.note(objects.item(row))
            return
        for classes, each in zip(self.parts, members, strict=False):
            classes.update(parts.classes_of(each))
        for item in objects.others.values():
            self.note(item)

    def check(self, declared: JavaType) -> None:
        """Refuse a type for which Flink 2 has a serializer that can't write elements of others.

        Raises:
            EncodeError: A collection has such elements.
        """
        for classes, argument in zip(self.parts, declared.arguments, strict=False):
            others = sorted(classes - {argument.box}) if argument.box in OWN else ()
            if others:
                raise EncodeError(f"a {others[0]} where there should be a {argument}")

    @property
    def declared(self) -> JavaType | None:
        """The type that was declared, as far as values tell: raw for Kryo; None if they do not."""
        parts = self.parts if self.java_class == "java.util.Map" else self.parts[:1]
        arguments = []
        for classes in parts:
            if len(classes) != 1:
                return None
            (name,) = classes
            if name.startswith(_GENERIC) and name not in _PLAIN:
                return JavaType(self.java_class)
            arguments.append(JavaType(_DECLARED_AS.get(name, name)))
        return JavaType(self.java_class, tuple(arguments))


def for_flink_2(
    snapshot: TypeSerializerSnapshot, targets: Mapping[str, TypeSerializerSnapshot]
) -> TypeSerializerSnapshot:
    """Return the serializer snapshot of the same type in Flink 2.

    Args:
        snapshot: The snapshot of Flink 1.
        targets: What becomes of parts by Kryo, by their paths; all others stay Kryo's.

    Raises:
        UnsupportedFormatError: A serializer of Kryo registers no class.
    """

    def change(kryo: KryoSerializerSnapshot, path: str) -> TypeSerializerSnapshot:
        target = targets.get(path)
        return kryo.for_flink_2() if target is None else replaced(target, _marked)

    return replaced(snapshot, change)


def _marked(kryo: KryoSerializerSnapshot, _: str) -> KryoSerializerSnapshot:
    return kryo if kryo.kryo is KryoVersion.FLINK_2 else kryo.for_flink_2()


def targets_in(
    before: TypeSerializerSnapshot, new: TypeSerializerSnapshot
) -> dict[str, TypeSerializerSnapshot]:
    """Return what has the place of each part by Kryo in a snapshot of the new job, by its path.

    Args:
        before: The serializer snapshot of Flink 1.
        new: That of the new job's state; it may have other fields besides.
    """
    return {path: target for path, _, target in _pairs(before, new, "") if target is not None}


def collection_of(kryo: KryoSerializerSnapshot, declared: JavaType) -> TypeSerializerSnapshot:
    """Return the snapshot of the serializer that Flink 2 has for a collection by Kryo.

    Args:
        kryo: The serializer snapshot of Flink 1.
        declared: The collection's type; without type arguments it stays Kryo's.

    Raises:
        EncodeError: It has another number of type arguments than that collection, or elements of a
            class of the job's own, whose serializer in Flink 2 is not known.
    """
    if not declared.arguments:
        return kryo.for_flink_2()
    wanted = 2 if kryo.type_class == "java.util.Map" else 1
    if len(declared.arguments) != wanted:
        raise EncodeError(f"{declared.name} with {len(declared.arguments)} type arguments")
    elements = [_element(kryo, each) for each in declared.arguments]
    if kryo.type_class in LISTS:
        inner: TypeSerializerSnapshot = ListSerializerSnapshot.around(
            NullableSerializerSnapshot.of(elements[0])
        )
    elif kryo.type_class == "java.util.Set":
        inner = SetSerializerSnapshot.around(elements[0])
    else:
        key, value = elements
        inner = MapSerializerSnapshot.around(NullableSerializerSnapshot.of(key), value)
    return NullableSerializerSnapshot.of(inner)


def _element(kryo: KryoSerializerSnapshot, declared: JavaType) -> TypeSerializerSnapshot:
    if declared.box in OWN:
        return parse_type(OWN[declared.box])
    user = kryo.values(KryoVersion.FLINK_1).classes.users.get(declared.name)
    if user is not None and user.constants:
        return EnumSerializerSnapshot.of(user.name, user.constants)
    if not declared.name.startswith("java."):
        raise EncodeError(
            f"elements of {declared.name}, which Flink 2 may take for a POJO",
            remedy="name a savepoint of the new job, --like",
        )
    return kryo.of_class(declared.name).for_flink_2()


def declared_collection(java_class: str, text: str) -> JavaType:
    """Return the declared type of a collection by Kryo.

    Args:
        java_class: The collection's class.
        text: The type in Java's syntax, such as `List<String>`.

    Raises:
        EncodeError: It is not a type, or not one of that class.
    """
    declared = parse_java_type(text)
    if declared.name != java_class:
        raise EncodeError(f"{text} is no {java_class}")
    return declared


class _Writers:
    """What writes the parts of values for Flink 2.

    Args:
        before: The serializer snapshot of Flink 1.
        after: That of Flink 2.
    """

    def __init__(self, before: TypeSerializerSnapshot, after: TypeSerializerSnapshot) -> None:
        self.targets: dict[str, TypeSerializerSnapshot] = {}
        self.columns: dict[str, ScalarColumn] = {}
        for path, kryo, target in _pairs(before, after, ""):
            if target is None:
                raise EncodeError(f"{path or 'the value'} has nothing in its place")
            self.targets[path] = replaced(target, _items)
            classes = kryo.values(KryoVersion.FLINK_1).classes
            self.columns[path] = target_column(self.targets[path], classes)
            if isinstance(target, KryoSerializerSnapshot) and target.type_class != kryo.type_class:
                raise EncodeError(f"{path}: {kryo.type_class} became {target.type_class}")
        self.serializers = {
            path: target.restore_serializer() for path, target in self.targets.items()
        }

    def write_all(self, places: PartPlaces) -> tuple[U8Array, I64Array]:
        """Return the bytes of a part in all its places, one behind the other, with their sizes.

        Raises:
            EncodeError: Flink 2 has no form for one of them.
        """
        path, objects = places.path, places.objects
        out, sizes, done = self._write_columns(path, objects)
        if done.all():
            return out, sizes
        others = np.flatnonzero(~done)
        pieces = []
        for row in others.tolist():
            size = int(objects.ends[row] - objects.starts[row])
            pieces.append(self.write(path, objects.item(row), size))
        sizes[others] = [len(piece) for piece in pieces]
        ends = np.empty_like(sizes)
        ends[done] = np.cumsum(sizes[done])
        ends[others] = len(out) + np.cumsum(sizes[others])
        data = np.concatenate((out, np.frombuffer(b"".join(pieces), np.uint8)))
        both = np.empty(int(sizes.sum()), np.uint8)
        copy_pieces(data, ends - sizes, ends, both, np.cumsum(sizes) - sizes)
        return both, sizes

    def _write_columns(
        self, path: str, objects: Objects
    ) -> tuple[U8Array, I64Array, npt.NDArray[np.bool_]]:
        """Return the bytes of the objects that can be written at once, sizes, and which these are.

        An object that is not among them has the size 0.
        """
        target = self.targets[path]
        sizes, done = np.zeros(len(objects.roots), np.int64), objects.roots >= 0
        lines = objects.roots[done]
        if isinstance(target, PartSnapshot):
            classes = target.part.values.classes
            out, sizes[done], outcomes = objects.parts.written(lines, KryoVersion.FLINK_2, classes)
            done[done] = outcomes == WRITTEN
            return out, sizes, done
        table, serializer = MarkedTable.of(objects.parts), self.serializers[path]
        try:
            column = self.columns[path].many(table, lines)
            fits = ~table.parts.has_within(table.untold | table.unfit | table.loose, lines)
            done[done] = fits
            column = column.filter(pa.array(fits))
            sizes[done] = serializer.sizes(column, ALL_PRESENT)
            first = offsets_of(sizes[done])
            out = np.empty(int(first[-1]), np.uint8)
            serializer.encode(column, Target(out, first[:-1]))
        except EncodeError:  # `write` says which one it is, or has a form for it
            return np.empty(0, np.uint8), np.zeros_like(sizes), np.zeros_like(done)
        return out, sizes, done

    def write(self, path: str, item: Item | None, size: int) -> bytes:
        """Return the bytes of a part that had so many in Flink 1.

        Raises:
            EncodeError: Flink 2 has no form for it.
        """
        out = _Expanded(size)
        self.serializers[path].write(self.columns[path].to_arrow(item), out)
        return out.to_bytes()


class _Expanded(DataOutput):
    """Values of Flink 2's collections, which have a flag each: shared ones are written each time.

    Args:
        size: The bytes of all of them in Flink 1.
    """

    __slots__ = ("most",)

    def __init__(self, size: int) -> None:
        super().__init__()
        self.most = EXPANDED + EXPANDED_OF_A_BYTE * size

    def write_boolean(self, value: bool) -> None:
        """Write a flag.

        Raises:
            EncodeError: The values before it are too large.
        """
        if len(self.buffer) > self.most:
            raise EncodeError(f"shared objects expand to more than {self.most} bytes")
        super().write_boolean(value)


def _items(kryo: KryoSerializerSnapshot, path: str) -> TypeSerializerSnapshot:
    return PartSnapshot(KryoPart(path, kryo, KryoVersion.FLINK_2))


def _pairs(
    before: TypeSerializerSnapshot, after: TypeSerializerSnapshot | None, path: str
) -> Iterator[tuple[str, KryoSerializerSnapshot, TypeSerializerSnapshot | None]]:
    """Yield each snapshot of Kryo, with its path and what has its place, None if nothing has."""
    if isinstance(before, KryoSerializerSnapshot):
        yield path, before, after
    elif isinstance(before, CompositeTypeSerializerSnapshot):
        same = isinstance(after, CompositeTypeSerializerSnapshot) and (
            after.java_class == before.java_class and len(after.nested) == len(before.nested)
        )
        for index, old in enumerate(before.nested):
            new = after.nested[index] if same else None  # type: ignore[union-attr]
            yield from _pairs(old, new, below(path, before.nested_name(index)))
    elif isinstance(before, PojoSerializerSnapshot):
        new_fields = _snapshots(after) if isinstance(after, PojoSerializerSnapshot) else {}
        for place, old in _snapshots(before).items():
            yield from _pairs(old, new_fields.get(place), below(path, place[1]))


def _snapshots(
    snapshot: PojoSerializerSnapshot,
) -> dict[tuple[bool, str], TypeSerializerSnapshot]:
    """Return the known snapshots of fields, and of subclasses, by name."""
    pojo = snapshot.pojo
    return {
        (is_field, entry.name): entry.value.snapshot
        for is_field, entries in (
            (True, pojo.fields), (False, (*pojo.registered, *pojo.non_registered))
        )
        for entry in entries
        if entry.value is not None and entry.value.snapshot is not None
    }  # fmt: skip


def upgrade_rows(
    rows: Rows, before: TypeSerializerSnapshot, after: TypeSerializerSnapshot, *, plain: bool
) -> Rows:
    """Rewrite the values of a state for Flink 2; keys and times stay.

    Args:
        rows: The rows, whose values (elements, a map's values) Flink 1 wrote.
        before: The serializer of these values.
        after: That of the new ones, as `for_flink_2` returns it.
        plain: Whether the new rows are not decoded; those of operator state never are.

    Raises:
        StateError: A value can't be parsed, or Flink 2 has no form for it.
    """
    parts, writers = PartsOfKryo(before), _Writers(before, after)
    with undecoded() if plain or isinstance(rows, ElementRows) else nullcontext():
        serializer = after.restore_serializer()
    stored = rows.layout.value_writer(rows.batch).to_binary()
    try:
        places = parts.located(rows, stored)
        new = spliced(stored, places, [writers.write_all(each) for each in places])
    except StateError:  # say which row it is, or read each by itself
        new = _each_value(rows, stored, lambda source: _rewritten(source, parts, writers))
    return rewritten_rows(rows, serializer, new)


def _each_value(
    rows: StateRows | ElementRows,
    stored: pa.LargeBinaryArray,
    rewritten: Callable[[DataInput], bytes],
) -> pa.LargeBinaryArray:
    """Return the values of some rows, each rewritten by itself, behind its time of last access."""
    ttl = TTL_BYTES * (isinstance(rows, StateRows) and rows.layout.with_ttl)

    def behind_ttl(source: DataInput) -> bytes:
        return source.read_bytes(ttl) + rewritten(source)

    return _each(rows, stored, lambda source: rewrite_entry(source, rows.layout.kind, behind_ttl))


def _each(
    rows: StateRows | ElementRows,
    stored: pa.LargeBinaryArray,
    rewritten: Callable[[DataInput], bytes],
) -> pa.LargeBinaryArray:
    """Return the bytes of rows, each rewritten by itself.

    Raises:
        StateError: They can't be parsed, or Flink 2 has no form for them: with the row's place.
    """
    done = []
    for row, data in enumerate(stored.to_pylist()):
        place = _place_of(rows, row)
        try:
            done.append(rewritten(DataInput(data, place)))
        except StateError as error:
            raise _at(error, place) from error
    return pa.array(done, pa.large_binary())


def _rewritten(source: DataInput, parts: PartsOfKryo, writers: _Writers) -> bytes:
    """Return the bytes of the next value for Flink 2."""
    at = source.position
    pieces: list[bytes] = []
    for start, end, path, item in parts.of(source):
        pieces += [bytes(source.data[at:start]), writers.write(path, item, end - start)]
        at = end
    return b"".join((*pieces, bytes(source.data[at : source.position])))


def upgrade_keys(
    rows: StateRows | ElementRows,
    before: Mapping[str, TypeSerializerSnapshot],
    after: Mapping[str, TypeSerializerSnapshot],
    *,
    plain: bool,
) -> StateRows | ElementRows:
    """Rewrite namespaces, and the keys of a map or of a broadcast state, for Flink 2.

    The keys of the stream stay, and with them the key groups of all entries.

    Args:
        rows: The rows.
        before: The serializers of `namespace` and `user_key`, as Flink 1 wrote them.
        after: Those of the new ones, as `for_flink_2` returns them.
        plain: Whether the new rows are not decoded.

    Raises:
        StateError: A part of a key can't be parsed, or Flink 2 has no form for it.
    """
    changed = {name for name, snapshot in before.items() if kryo_places(snapshot)}
    if isinstance(rows, StateRows) and NAMESPACE in changed:
        return _with_namespaces(rows, before, after, plain=plain)
    if USER_KEY in changed:
        with undecoded() if plain else nullcontext():
            return _with_map_keys(rows, before[USER_KEY], after[USER_KEY])
    return rows


def _with_namespaces(
    rows: StateRows,
    before: Mapping[str, TypeSerializerSnapshot],
    after: Mapping[str, TypeSerializerSnapshot],
    *,
    plain: bool,
) -> StateRows:
    layout = rows.layout
    timers = layout.kind is StateKind.TIMERS
    if not layout.key.self_delimiting:
        raise EncodeError(
            f"namespaces by Kryo stand behind keys of {layout.key.name}, whose ends are not known",
            place=f"state {rows.name!r}",
            remedy="register the serializer of the keys, see --plugins",
        )
    parts = {
        name: (PartsOfKryo(snapshot), _Writers(snapshot, after[name]))
        for name, snapshot in before.items()
    }
    with undecoded() if plain else nullcontext(), as_key():
        # of a queue the namespace is a part of a timer's type
        restored = {
            name: snapshot.restore_nested() if timers else restore_bounded(snapshot)
            for name, snapshot in after.items()
        }
    new = replace(layout, namespace=restored[NAMESPACE], user_key=restored.get(USER_KEY))
    stored = layout.key_writer(rows.batch).to_binary()
    try:
        keys = _with_namespaces_at_once(layout, stored, parts)
    except StateError:  # say which row it is, or read each by itself
        keys = _with_namespaces_one_by_one(rows, stored, parts)
    columns = new.decode_keys(binary_cursor(keys))
    return replace(rows, layout=new, batch=with_columns(rows, new, columns))


def _with_namespaces_at_once(
    layout: KeyedLayout, stored: pa.LargeBinaryArray, parts: KeyParts
) -> pa.LargeBinaryArray:
    """Return the bytes of keys with other namespaces and user keys, a column at a time.

    Raises:
        StateError: A key can't be parsed, or has a part whose end only a look at each tells.
    """
    cursor = binary_cursor(stored)
    begin, last = cursor.position.copy(), cursor.end.copy()
    if layout.kind is StateKind.TIMERS:
        cursor.position += TIME_BYTES
    place = cursor.position.copy()
    layout.key.decode(cursor)
    if layout.ambiguous:
        skip_lengths(cursor, cursor.position - place)
    place = cursor.position.copy()
    parts[NAMESPACE][0].serializer.decode(cursor)
    end = cursor.position.copy()
    if layout.ambiguous:
        skip_lengths(cursor, end - place)
    if cursor.present.size:
        raise EncodeError("a key that has to be read by itself")
    namespace = _spliced_alone(_pieces(cursor.data, place, end), parts[NAMESPACE])
    columns = [_pieces(cursor.data, begin, place), namespace]
    written = [RowPart(OpaqueSerializer(), column.cast(pa.binary())) for column in columns]
    if layout.ambiguous:
        lengths = np.diff(np.frombuffer(namespace.buffers()[1], np.int64, len(namespace) + 1))
        written.append(RowPart(LengthTrailer(), pa.array(lengths)))
    user_key = _pieces(cursor.data, cursor.position, last)
    if USER_KEY in parts:
        user_key = _spliced_alone(user_key, parts[USER_KEY])
    elif (cursor.position != last).any():
        raise EncodeError("bytes behind a key")
    written.append(RowPart(OpaqueSerializer(), user_key.cast(pa.binary())))
    return RowWriter(written, len(stored), ALL_PRESENT, None).to_binary()


def _spliced_alone(
    stored: pa.LargeBinaryArray, part: tuple[PartsOfKryo, _Writers]
) -> pa.LargeBinaryArray:
    """Return values that have nothing around them for Flink 2."""
    places = part[0].located_alone(stored)
    return spliced(stored, places, [part[1].write_all(each) for each in places])


def _pieces(data: U8Array, starts: I64Array, ends: I64Array) -> pa.LargeBinaryArray:
    """Return the bytes between two places of each row."""
    offsets = offsets_of(ends - starts)
    out = np.empty(int(offsets[-1]), np.uint8)
    copy_pieces(data, starts, ends, out, offsets[:-1].copy())
    buffers = [None, arrow_buffer(offsets), arrow_buffer(out)]
    return pa.Array.from_buffers(pa.large_binary(), len(starts), buffers)


def _with_namespaces_one_by_one(
    rows: StateRows, stored: pa.LargeBinaryArray, parts: KeyParts
) -> pa.LargeBinaryArray:
    """Return the same, key by key; errors as of `_each`."""
    layout = rows.layout
    timers, ambiguous = layout.kind is StateKind.TIMERS, layout.ambiguous

    def upgraded(source: DataInput) -> bytes:
        source.read_bytes(TIME_BYTES * timers)
        start = source.position
        layout.key.skip(source)
        if ambiguous:
            _read_length(source, source.position - start)
        unchanged = bytes(source.data[: source.position])
        start = source.position
        namespace = _rewritten(source, *parts[NAMESPACE])
        if ambiguous:
            _read_length(source, source.position - start)
            namespace += _length(len(namespace))
        user_key = _rewritten(source, *parts[USER_KEY]) if USER_KEY in parts else b""
        if source.remaining:
            raise source.fault(f"{source.remaining} bytes behind a key")
        return unchanged + namespace + user_key

    return _each(rows, stored, upgraded)


def _read_length(source: DataInput, length: int) -> None:
    """Move behind the length of a key or namespace."""
    wanted = _length(length)
    if source.read_bytes(len(wanted)) != wanted:
        raise source.fault("a key or namespace followed by another length")


def _length(length: int) -> bytes:
    out = DataOutput()
    LengthTrailer().write(length, out)
    return out.to_bytes()


def _with_map_keys(
    rows: StateRows | ElementRows, before: TypeSerializerSnapshot, after: TypeSerializerSnapshot
) -> StateRows | ElementRows:
    if isinstance(rows, StateRows):
        old = rows.layout.user_key
        column, serializer = _upgraded_keys(rows, USER_KEY, old, before, after)
        layout = replace(rows.layout, user_key=serializer)
        return replace(rows, layout=layout, batch=with_columns(rows, layout, {USER_KEY: column}))
    column, serializer = _upgraded_keys(rows, KEY, rows.layout.key, before, after)
    new = replace(rows.layout, key=serializer)
    return replace(rows, layout=new, batch=with_columns(rows, new, {KEY: column}))


def _upgraded_keys(
    rows: StateRows | ElementRows,
    name: str,
    old: TypeSerializer | None,
    before: TypeSerializerSnapshot,
    after: TypeSerializerSnapshot,
) -> tuple[pa.Array, TypeSerializer]:
    """Return a column of keys for Flink 2, and its serializer."""
    place = f"state {rows.name!r}, {name.replace('_', ' ')}s"
    batch = rows.batch
    assert old is not None  # noqa: S101 - of a map
    if batch.column(RAW_KEY).null_count < len(batch):
        raise EncodeError("keys of which only the exact bytes are known", place=place)
    stored = RowWriter(
        [RowPart(old, batch.column(name))], len(batch), ALL_PRESENT, None
    ).to_binary()
    part = PartsOfKryo(before), _Writers(before, after)
    try:
        new = _spliced_alone(stored, part)
        serializer = restore_key(after)
        cursor = binary_cursor(new)
        column = serializer.decode(cursor)
        cursor.check_at_end()
    except StateError as error:
        raise error.within(place) from error
    if cursor.inexact.any():
        raise EncodeError("a key that has more than its columns hold", place=place)
    return column, serializer


def find_collections(
    rows: StateRows | ElementRows, before: TypeSerializerSnapshot, noted: dict[str, ElementClasses]
) -> None:
    """Note the classes of the elements of all collections by Kryo in some rows.

    Args:
        rows: The rows.
        before: The serializer of their values.
        noted: The classes by the collection's path, to which those of these rows are added.

    Raises:
        StateError: A value can't be parsed.
    """
    parts = PartsOfKryo(before)
    stored = rows.layout.value_writer(rows.batch).to_binary()
    try:
        places = parts.located(rows, stored)
    except StateError:  # say which row it is, or read each by itself

        def note(source: DataInput) -> bytes:
            for _, _, path, item in parts.of(source):
                if path in noted:
                    noted[path].note(item)
            return b""

        _each_value(rows, stored, note)
        return
    for each in places:
        if each.path in noted:
            noted[each.path].note_all(each.objects)


def _at(error: StateError, place: str) -> StateError:
    """Return the error with its place, unless it has that."""
    return error if error.place.startswith(place) else error.within(place)


def _place_of(rows: StateRows | ElementRows, row: int) -> str:
    """Return the name of a row's place in messages."""
    columns = [name for name in (KEY_GROUP, SUBTASK) if name in rows.batch.schema.names]
    parts = [f"{name.replace('_', ' ')} {rows.batch.column(name)[row]}" for name in columns]
    return ", ".join([f"state {rows.name!r}", *parts, f"row {row}"])
