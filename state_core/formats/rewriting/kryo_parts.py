"""The parts of values that Flink 1's Kryo wrote, found in the bytes of values.

Kryo may be the serializer of whole values, or of any part of them. Parts are found a column at a
time, by the other serializers of the values, or else value by value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.operator_state.operator_states import ElementRows
from statelake.state_core.formats.rewriting.value_migration import binary_cursor
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.kernels import skip
from statelake.state_core.kernels.encode import copy_pieces
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.composite.pojo_snapshot import PojoSerializerSnapshot
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.columns import (
    Cursor,
    I64Array,
    U8Array,
    arrow_buffer,
)
from statelake.state_core.serializers.framework.opaque_values import (
    OpaqueSerializer,
    undecoded,
    written_by,
)
from statelake.state_core.serializers.framework.snapshots import CompositeTypeSerializerSnapshot
from statelake.state_core.serializers.kryo.graph import Item
from statelake.state_core.serializers.kryo.snapshot import KryoSerializerSnapshot
from statelake.state_core.serializers.kryo.tables import Objects, read_objects
from statelake.state_core.serializers.kryo.wire import KryoVersion
from statelake.state_core.serializers.opaque.optional_map import FramedSnapshot, OptionalEntry

Change: TypeAlias = Callable[[KryoSerializerSnapshot, str], TypeSerializerSnapshot]


def replaced(
    snapshot: TypeSerializerSnapshot, change: Change, path: str = ""
) -> TypeSerializerSnapshot:
    """Return a serializer snapshot with each one of Kryo within it changed.

    Args:
        snapshot: The snapshot.
        change: Returns what replaces a snapshot of Kryo, given it and its path, such as `tags`.
        path: The path of the snapshot.
    """
    if isinstance(snapshot, KryoSerializerSnapshot):
        return change(snapshot, path)
    if isinstance(snapshot, CompositeTypeSerializerSnapshot):
        nested = tuple(
            replaced(each, change, below(path, snapshot.nested_name(index)))
            for index, each in enumerate(snapshot.nested)
        )
        if all(new is old for new, old in zip(nested, snapshot.nested, strict=True)):
            return snapshot
        new = copy(snapshot)
        new.nested = nested
        return new
    if isinstance(snapshot, PojoSerializerSnapshot):
        pojo = snapshot.pojo
        fields = _entries(pojo.fields, change, path)
        registered = _entries(pojo.registered, change, path)
        others = _entries(pojo.non_registered, change, path)
        if (fields, registered, others) == (pojo.fields, pojo.registered, pojo.non_registered):
            return snapshot
        changed = copy(snapshot)
        changed.pojo = replace(pojo, fields=fields, registered=registered, non_registered=others)
        return changed
    return snapshot


def _entries(
    entries: tuple[OptionalEntry, ...], change: Change, path: str
) -> tuple[OptionalEntry, ...]:
    done = []
    for entry in entries:
        old = None if entry.value is None else entry.value.snapshot
        new = None if old is None else replaced(old, change, below(path, entry.name))
        if new is old or new is None:
            done.append(entry)
        else:
            done.append(replace(entry, value=FramedSnapshot(new)))
    return tuple(done)


def below(path: str, name: str) -> str:
    """Return the path of a part of a part."""
    return f"{path}.{name}" if path and not name.startswith("[") else f"{path}{name}"


def kryo_places(snapshot: TypeSerializerSnapshot) -> dict[str, KryoSerializerSnapshot]:
    """Return the snapshots of Kryo within a serializer snapshot, by their paths."""
    places: dict[str, KryoSerializerSnapshot] = {}

    def note(kryo: KryoSerializerSnapshot, path: str) -> TypeSerializerSnapshot:
        places[path] = kryo
        return kryo

    replaced(snapshot, note)
    return places


@dataclass(frozen=True)
class PartPlaces:
    """The places of a part in the bytes of many values.

    Attributes:
        path: The part's path.
        objects: The objects; where they begin ascends within each call of `decode`.
    """

    path: str
    objects: Objects


class KryoPart(OpaqueSerializer):
    """A part of a value that Kryo wrote, whose place and object are noted."""

    name = "Kryo"
    min_length = 1
    self_delimiting = True

    def __init__(self, path: str, kryo: KryoSerializerSnapshot, version: KryoVersion) -> None:
        super().__init__(kryo.type_class)
        self.path = path
        self.values = kryo.values(version)
        self.version = version
        self.noted: list[tuple[int, int, Item | None]] = []
        self.places: list[PartPlaces] = []

    def read(self, source: DataInput) -> Any:
        """Read an object, and note it."""
        start = source.position
        item = self.values.read_next(source, self.version)
        self.noted.append((start, source.position, item))
        return item

    def skip(self, source: DataInput) -> None:
        """Move behind an object, which is not noted."""
        self.values.read_next(source, self.version)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Note the places of a column; return no content."""
        rows = np.arange(cursor.rows)
        if cursor.present.size:
            rows = np.flatnonzero(cursor.present)
        starts, limits = cursor.position[rows], cursor.end[rows]
        batches = list(read_objects(self.values, cursor.data, starts, limits, cursor.place))
        self.places += [PartPlaces(self.path, objects) for objects in batches]
        if batches:
            cursor.position[rows] = np.concatenate([objects.ends for objects in batches])
        offsets = np.zeros(cursor.rows + 1, np.int32)
        return pa.Array.from_buffers(
            pa.binary(), cursor.rows, [None, arrow_buffer(offsets), pa.py_buffer(b"")]
        )

    def write(self, value: Any, out: DataOutput) -> None:
        """Write an object."""
        out.write_bytes(self.values.write(value, self.version))


class PartSnapshot(TypeSerializerSnapshot):
    """The snapshot of a part, which is never written."""

    java_class = "Kryo"
    current_version = 1

    def __init__(self, part: KryoPart) -> None:
        self.part = part

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Read nothing: there is no such class in a file."""
        raise source.fault("no snapshot of a file")

    def write_snapshot(self, out: DataOutput) -> None:
        """Write nothing."""

    def restore_serializer(self) -> TypeSerializer:
        """Return the part."""
        return self.part


class PartsOfKryo:
    """The parts of values that Kryo wrote in Flink 1, found in their bytes.

    Args:
        value: The serializer snapshot of the values.

    Raises:
        StateError: The end of another part of the values is not known.
    """

    def __init__(self, value: TypeSerializerSnapshot) -> None:
        self.parts: list[KryoPart] = []

        def change(kryo: KryoSerializerSnapshot, path: str) -> TypeSerializerSnapshot:
            part = KryoPart(path, kryo, KryoVersion.FLINK_1)
            self.parts.append(part)
            return PartSnapshot(part)

        with undecoded(), written_by(KryoVersion.FLINK_1.value):
            self.serializer = replaced(value, change).restore_serializer()
        if not self.serializer.self_delimiting:
            raise EncodeError(
                f"a part of {value.type_name} besides Kryo has no known end",
                remedy="register its serializer, see --plugins",
            )

    def of(self, source: DataInput) -> list[tuple[int, int, str, Item | None]]:
        """Return start, end, path and object of each part of the next value, in order.

        Raises:
            StateError: The value can't be parsed.
        """
        self.serializer.read(source)
        places = []
        for part in self.parts:
            places += [(start, end, part.path, item) for start, end, item in part.noted]
            part.noted.clear()
        return sorted(places, key=lambda each: each[:2])

    def located(
        self, rows: StateRows | ElementRows, stored: pa.LargeBinaryArray
    ) -> list[PartPlaces]:
        """Return the places of all parts in the values of some rows, a column at a time.

        Args:
            rows: The rows.
            stored: The bytes of their values, in the form of a file.

        Raises:
            StateError: A value can't be parsed, or has a part whose end only a look at each value
                tells.
        """
        layout = replace(rows.layout, value=self.serializer)
        if isinstance(layout, KeyedLayout) and layout.kind is StateKind.LIST:
            return self._noted(
                partial(_decode_lists, replace(layout, kind=StateKind.VALUE)), stored
            )
        return self._noted(layout.decode_values, stored)

    def located_alone(self, stored: pa.LargeBinaryArray) -> list[PartPlaces]:
        """Return the places in values that have nothing around them; errors as in `located`."""
        return self._noted(self.serializer.decode, stored)

    def _noted(
        self, decode: Callable[[Cursor], object], stored: pa.LargeBinaryArray
    ) -> list[PartPlaces]:
        for part in self.parts:
            part.places.clear()
        cursor = binary_cursor(stored)
        decode(cursor)
        cursor.check_at_end()
        if cursor.present.size or any(part.noted for part in self.parts):
            for part in self.parts:
                part.noted.clear()
            raise EncodeError("a value that has to be read by itself")
        return [places for part in self.parts for places in part.places]


def _decode_lists(element: KeyedLayout, cursor: Cursor) -> None:
    """Read lists with delimiters: the first elements of all, the second ones, and so on."""
    stored = element.stored_value()
    assert stored is not None  # noqa: S101 - not of timers
    left = np.arange(cursor.rows)
    while left.size:
        part = Cursor(cursor.data, cursor.position[left], cursor.end[left], cursor.place)
        stored.decode(part)
        cursor.position[left] = part.position
        if part.present.size:
            cursor.lose(left)
        left = left[part.position < part.end]
        at = cursor.position[left]
        if (cursor.data[at] != skip.DELIMITER).any() or (at + 1 == cursor.end[left]).any():
            raise EncodeError("a list without a delimiter between its elements")
        cursor.position[left] += 1


def spliced(
    stored: pa.LargeBinaryArray,
    places: Sequence[PartPlaces],
    parts: Sequence[tuple[U8Array, I64Array]],
) -> pa.LargeBinaryArray:
    """Return values with other bytes in some places.

    Args:
        stored: The values.
        places: The places, none of which is within another.
        parts: The new bytes for each of `places`, one behind the other, with the size of each.
    """
    bounds = np.frombuffer(stored.buffers()[1], np.int64, len(stored) + 1)
    data = np.frombuffer(stored.buffers()[2] or b"", np.uint8)[: int(bounds[-1])]
    starts = np.concatenate([np.empty(0, np.int64), *(each.objects.starts for each in places)])
    ends = np.concatenate([np.empty(0, np.int64), *(each.objects.ends for each in places)])
    sizes = np.concatenate([np.empty(0, np.int64), *(sizes for _, sizes in parts)])
    new = np.concatenate([np.empty(0, np.uint8), *(written for written, _ in parts)])
    behind = np.cumsum(sizes)
    order = np.argsort(starts, kind="stable")
    starts, ends, sizes, behind = starts[order], ends[order], sizes[order], behind[order]
    moved = np.concatenate(([0], np.cumsum(sizes - (ends - starts))))
    out = np.empty(len(data) + int(moved[-1]), np.uint8)
    kept = np.concatenate((bounds[:1], ends))
    copy_pieces(data, kept, np.concatenate((starts, bounds[-1:])), out, kept + moved)
    copy_pieces(new, behind - sizes, behind, out, starts + moved[:-1])
    shifted = bounds + moved[np.searchsorted(starts, bounds)]
    buffers = [None, arrow_buffer(shifted), arrow_buffer(out)]
    return pa.Array.from_buffers(pa.large_binary(), len(stored), buffers)
