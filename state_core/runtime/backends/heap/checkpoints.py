"""Checkpoints of the heap backend, in the native format of Flink's heap backend.

::

    keyed header
    each key group of the range, empty ones too:
        i32 key group
        each state: i16 id, i32 count, its entries [a Snappy stream a state, if compressed]:
            key-value state:  namespace, key, value; lists and maps whole, with their counts
            timers:           the timer

The number of entries precedes them, which a backend in memory knows. Values whose end only their
own class can find can't be read back from this format: with such a state the unified format is
written.

Source: `HeapSnapshotStrategy`, `CopyOnWriteStateTableSnapshot` in
`org.apache.flink.runtime.state.heap`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.compression import compress_snappy
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.layout.meta_info import write_keyed_header
from statelake.state_core.formats.writing.writer import KeyedPart, keyed_handle
from statelake.state_core.kernels.encode import copy_pieces, write_values_heads
from statelake.state_core.kernels.skip import UNKNOWN, count_delimited, locate_delimited
from statelake.state_core.model.handles import KeyGroupRange, KeyGroupsHandle, KeyGroupsKind
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.runtime.backends.heap.tables import Frozen, in_pieces
from statelake.state_core.runtime.backends.states.keys import key_parts
from statelake.state_core.runtime.backends.states.savepoints import SavepointStrategy
from statelake.state_core.runtime.backends.states.snapshots import (
    FullSnapshotResources,
    SnapshotTarget,
)
from statelake.state_core.runtime.backends.states.states import stored_serializer
from statelake.state_core.runtime.backends.states.tables import DELIMITER, entries_of
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import I64Array, U8Array
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer


@dataclass(frozen=True)
class FrozenState:
    """The frozen dictionaries of a state.

    Attributes:
        layout: The layout of entries.
        chunks: Yields keys and values of a dictionary in the unified format.
        groups: One dictionary for each key group.
    """

    layout: KeyedLayout
    chunks: Callable[[dict[bytes, Any]], Iterator[tuple[list[bytes], list[bytes]]]]
    groups: Frozen


class HeapResources(FullSnapshotResources, Protocol):
    """Snapshot resources with the dictionaries of all states."""

    @property
    def frozen(self) -> Sequence[FrozenState]:
        """The frozen states, by id."""


@dataclass
class HeapCheckpointStrategy:
    """Writes checkpoints in the heap backend's own format.

    Attributes:
        prepare: Prepares the snapshot's resources.
        key_groups: The key groups of this subtask.
        unified: The strategy for states whose values only their own class can walk.
        compressed: Whether states are compressed.
    """

    prepare: Callable[[], HeapResources]
    key_groups: KeyGroupRange
    unified: SavepointStrategy
    compressed: bool

    def sync_prepare_resources(self, checkpoint_id: int) -> HeapResources:
        """Freeze the dictionaries in their current form."""
        del checkpoint_id
        return self.prepare()

    def async_snapshot(
        self, resources: HeapResources, target: SnapshotTarget
    ) -> KeyGroupsHandle | None:
        """Write a file, and return its handle with the offset of each key group."""
        if not resources.header.states:
            return None
        if not all(_walkable(state.layout) for state in resources.frozen):
            return self.unified.async_snapshot(resources, target)
        part = KeyedPart(str(uuid.uuid4()))
        with target.directory.open_output(part.name) as file:
            head = DataOutput()
            write_keyed_header(replace(resources.header, compressed=self.compressed), head)
            pieces = [head.to_bytes()]
            for index in range(len(self.key_groups)):
                group = self.key_groups.first + index
                part.offsets[group] = part.size + sum(map(len, pieces))
                pieces.append(group.to_bytes(4, "big"))
                for state_id, state in enumerate(resources.frozen):
                    pieces += self._state(state_id, state, index)
                for piece in pieces:
                    file.write(piece)
                part.size += sum(map(len, pieces))
                pieces = []
        handle = keyed_handle(part, self.key_groups)
        return replace(handle, kind=KeyGroupsKind.NATIVE, handle_id=str(uuid.uuid4()))

    def _state(self, state_id: int, state: FrozenState, index: int) -> list[Any]:
        """Write one state's part of a key group."""
        entries = state.groups[index]
        head = state_id.to_bytes(2, "big") + len(entries).to_bytes(4, "big")
        pieces: list[Any] = [head, *(piece.data for piece in _native(state, entries))]
        return [compress_snappy(b"".join(pieces))] if self.compressed else pieces

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Do nothing: later checkpoints do not depend on it."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Do nothing: nothing was kept for it."""


def _walkable(layout: KeyedLayout) -> bool:
    """Return whether the ends of entries are known from their bytes."""
    value = layout.stored_value()
    parts = [layout.key, layout.namespace, layout.user_key, layout.value]
    return not isinstance(value, OpaqueSerializer) and all(
        part is None or part.self_delimiting for part in parts
    )


def _native(state: FrozenState, entries: dict[bytes, Any]) -> Iterator[U8Array]:
    """Yield the entries of a dictionary, some at a time."""
    layout = state.layout
    if layout.kind is StateKind.TIMERS:
        for keys, _ in state.chunks(entries):
            yield np.frombuffer(b"".join(keys), np.uint8)
    elif layout.kind is StateKind.MAP:
        plain = replace(layout, user_key=None)  # keys without user keys
        for maps in in_pieces(entries.items()):
            yield _entries(
                plain, [key for key, _ in maps], [_whole(user_map) for _, user_map in maps]
            )
    elif layout.kind is StateKind.LIST:
        element = stored_serializer(layout)
        for keys, values in state.chunks(entries):
            yield _entries(layout, keys, _counted(element, values))
    else:
        for keys, values in state.chunks(entries):
            yield _entries(layout, keys, values)


def _whole(entries: dict[bytes, bytes]) -> bytes:
    """Return a map with its count in front; its entries are in the final format already."""
    pairs = [part for pair in entries.items() for part in pair]
    return b"".join([len(entries).to_bytes(4, "big"), *pairs])


def _entries(layout: KeyedLayout, keys: list[bytes], values: list[bytes]) -> U8Array:
    """Return entries of namespace, key and value, concatenated."""
    entries = entries_of(0, 0, keys, values)
    key_end, namespace, namespace_end = key_parts(layout, entries)
    parts = [
        (namespace, namespace_end),
        (entries.key_start, key_end),
        (entries.value_start, entries.value_end),
    ]
    bounds = np.zeros(len(keys) + 1, np.int64)
    np.cumsum(sum(end - start for start, end in parts), out=bounds[1:])
    out = np.empty(int(bounds[-1]), np.uint8)
    position = bounds[:-1].copy()
    for start, end in parts:
        pieces = np.ascontiguousarray(start), np.ascontiguousarray(end)
        copy_pieces(entries.data, *pieces, out, position)
    return out


def _counted(element: TypeSerializer, lists: list[bytes]) -> list[bytes]:
    """Return lists with their counts in front, instead of delimiters in between."""
    program = element.skip_program()
    if program is None:
        return [_counted_slowly(element, list_) for list_ in lists]
    data = np.frombuffer(b"".join(lists), np.uint8)
    bounds = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, lists), np.int64, len(lists)), out=bounds[1:])
    starts, ends = bounds[:-1].copy(), bounds[1:].copy()
    words, counts = np.array(program, np.int32), np.empty(len(lists), np.int64)
    failed = count_delimited(data, starts, ends, words, counts)
    if failed >= 0 or (counts == UNKNOWN).any():
        raise EncodeError(
            f"the ends of the elements in a list of {element.name} are not known",
            remedy="take a savepoint, which keeps lists as they are",
        )
    first = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(counts, out=first[1:])
    element_start, element_end = np.empty(first[-1], np.int64), np.empty(first[-1], np.int64)
    locate_delimited(data, starts, ends, first, words, element_start, element_end)
    return _without_delimiters(data, bounds, first, element_start, element_end)


def _without_delimiters(
    data: U8Array, bounds: I64Array, first: I64Array, starts: I64Array, ends: I64Array
) -> list[bytes]:
    counts = np.diff(first)
    sizes = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(np.diff(bounds) - (counts - 1) + 4, out=sizes[1:])
    out = np.empty(int(sizes[-1]), np.uint8)
    position = sizes[:-1].copy()
    write_values_heads(counts, out, position)
    rows = np.repeat(np.arange(len(counts)), counts)
    # an element moves to the front by the delimiters before it
    place = position[rows] + (starts - bounds[rows]) - (np.arange(len(starts)) - first[rows])
    copy_pieces(data, starts, ends, out, place)
    whole = out.tobytes()
    return [whole[start:end] for start, end in pairwise(sizes.tolist())]


def _counted_slowly(element: TypeSerializer, data: bytes) -> bytes:
    """Return one list of elements that only their serializer can walk."""
    source, elements = DataInput(data, "list state"), []
    while source.remaining:
        start = source.position
        element.skip(source)
        elements.append(data[start : source.position])
        source.read_bytes(min(len(DELIMITER), source.remaining))
    return len(elements).to_bytes(4, "big") + b"".join(elements)
