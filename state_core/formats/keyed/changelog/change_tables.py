"""Tables of entries with changes, to which the changes are applied one after the other.

If namespaces of a reducing or aggregating state are merged, its value comes from the job's own
function. Flink's windows write the result right after the merge; without it the state is refused.

Source: the `*StateChangeApplier` classes in `org.apache.flink.state.changelog.restore`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from statelake.state_core.errors import CorruptSnapshotError, StateError, UnsupportedFormatError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.layout.keys import namespaced_keys_of
from statelake.state_core.kernels.changes import find_sorted
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.basic.numbers import LongSerializer
from statelake.state_core.serializers.composite.wrappers import TtlSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import I64Array, U8Array

CLEAR, SET, SET_INTERNAL, ADD, MERGE_NS, ADD_ELEMENT, UPDATE_ELEMENT, REMOVE_ELEMENT = range(8)
REMOVE_FIRST = 8
NAMES = (
    "CLEAR", "SET", "SET_INTERNAL", "ADD", "MERGE_NS", "ADD_ELEMENT", "ADD_OR_UPDATE_ELEMENT",
    "REMOVE_ELEMENT", "REMOVE_FIRST_ELEMENT",
)  # fmt: skip
DELIMITER = b","
PRESENT = b"\0"
REMEDY = "the log is damaged or was not copied whole: fetch its files again"
SAVEPOINT = "take a savepoint (flink savepoint), which holds what the changes made, too"


class _ByteStrings:
    """A sorted set of byte strings, for membership tests of pieces of a buffer."""

    def __init__(self, words: Iterable[bytes]) -> None:
        ascending = sorted(words)
        sizes = np.fromiter(map(len, ascending), np.int64, len(ascending))
        self.bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
        self.data = np.frombuffer(b"".join(ascending), np.uint8)

    def contains(self, data: U8Array, starts: I64Array, ends: I64Array) -> U8Array:
        """Return 1 for each piece that is one of the strings, otherwise 0."""
        flags = np.zeros(len(starts), np.uint8)
        if len(self.bounds) > 1:
            first, last = np.ascontiguousarray(starts), np.ascontiguousarray(ends)
            find_sorted(data, first, last, self.data, self.bounds, flags)
        return flags


class ChangeTable(ABC):
    """The changed entries of one state in one key group.

    Args:
        layout: The layout of the state's entries.

    Attributes:
        operations: The possible operations on such a state.
        ambiguous: Whether key and namespace are followed by their lengths.
        keys: The key bytes of all changed entries.
    """

    operations: tuple[int, ...]

    def __init__(self, layout: KeyedLayout) -> None:
        self.layout = layout
        self.ambiguous = layout.ambiguous
        self.keys: set[bytes] = set()

    @abstractmethod
    def add(self, operation: int, joined: bytes, key: bytes, rest: bytes) -> None:
        """Note a change and its entry.

        Args:
            operation: The operation of the change.
            joined: Key and namespace in the unified format.
            key: The key alone.
            rest: The bytes that follow key and namespace.
        """

    @abstractmethod
    def apply(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield each changed entry as it is after all changes, as key and value."""

    @cached_property
    def _words(self) -> _ByteStrings:
        return _ByteStrings(self.keys)

    def has_change(self, entries: Entries) -> U8Array:
        """Return 1 for each entry with a change, otherwise 0, after all changes are noted."""
        return self._words.contains(entries.data, entries.key_start, entries.key_end)

    def add_entries(self, entries: Entries) -> None:  # noqa: B027 - most need none of them
        """Keep changed entries as they were before the changes."""

    def full_key(self, key: bytes, namespace: bytes) -> bytes:
        """Return key and namespace in the unified format."""
        if not self.ambiguous:
            return key + namespace
        return key + _trailer(len(key)) + namespace + _trailer(len(namespace))

    def _merged(self, joined: bytes, key: bytes, rest: bytes) -> tuple[bytes, ...]:
        """Return the key with each namespace that is merged into the target."""
        namespace, source = self.layout.namespace, DataInput(rest, "a merge")
        namespace.skip(source)
        if self.full_key(key, rest[: source.position]) != joined:
            raise source.fault("a merge into two namespaces", remedy=REMEDY)
        keys: dict[bytes, None] = {}
        for _ in range(source.read_count("namespaces", max(1, namespace.min_length))):
            start = source.position
            namespace.skip(source)
            keys[self.full_key(key, rest[start : source.position])] = None
        _check_at_end(source)
        keys.pop(joined, None)
        return tuple(keys)


class Values(ChangeTable):
    """Value, reducing and aggregating states."""

    operations: tuple[int, ...] = (CLEAR, SET, SET_INTERNAL, MERGE_NS)

    def __init__(self, layout: KeyedLayout) -> None:
        super().__init__(layout)
        if layout.kind is StateKind.VALUE:
            self.operations = (CLEAR, SET, SET_INTERNAL)  # its namespaces are not merged
        self.steps: list[tuple[bytes, bytes | tuple[bytes, ...] | None]] = []
        self.merges = False
        self.table: dict[bytes, bytes | None] = {}

    def overwrite(self, joined: Iterable[bytes], values: Iterable[bytes | None]) -> None:
        """Note all changes in one call, without merges: the last value of a key stays."""
        last_values = dict(zip(joined, values, strict=True))
        self.keys.update(last_values)
        self.steps.extend(last_values.items())

    def add(self, operation: int, joined: bytes, key: bytes, rest: bytes) -> None:
        """Note a change: a value, the keys that are merged into this key, or a removal."""
        change: bytes | tuple[bytes, ...] | None = None if operation == CLEAR else rest
        if operation == MERGE_NS:
            change = self._merged(joined, key, rest)
            self.merges = True
            self.keys.update(change)
        self.keys.add(joined)
        self.steps.append((joined, change))

    def add_entries(self, entries: Entries) -> None:
        """Keep values from before the changes, which matter only for merges."""
        if self.merges:
            self.table.update(_pairs(entries))

    def apply(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the values; a merged value is None until it is set."""
        if not self.merges:
            last = dict(self.steps)
            return ((key, change) for key, change in last.items() if isinstance(change, bytes))
        return self._merging()

    def _merging(self) -> Iterator[tuple[bytes, bytes]]:
        table = self.table
        for key, change in self.steps:
            if isinstance(change, tuple):
                values = [table.pop(piece) for piece in (key, *change) if piece in table]
                if values:
                    table[key] = values[0] if len(values) == 1 else None
            elif change is None:
                table.pop(key, None)
            else:
                table[key] = change
        for key, value in table.items():
            if value is None:
                raise UnsupportedFormatError(
                    f"the job's own function merged namespaces of {self.layout.kind.value} state,"
                    " and its result is not in the log",
                    remedy=SAVEPOINT,
                )
            yield key, value


class _Lists(ChangeTable):
    """List states: for each list the pieces that delimiters join."""

    operations = (CLEAR, SET, SET_INTERNAL, ADD, MERGE_NS, ADD_ELEMENT)

    def __init__(self, layout: KeyedLayout) -> None:
        super().__init__(layout)
        assert layout.value is not None  # noqa: S101 - not of timers
        self.element = TtlSerializer(layout.value) if layout.with_ttl else layout.value
        self.steps: list[tuple[bytes, bool, list[bytes] | tuple[bytes, ...]]] = []
        self.table: dict[bytes, list[bytes]] = {}

    def add(self, operation: int, joined: bytes, key: bytes, rest: bytes) -> None:
        """Note a change: whether it clears the list, and the elements or keys that it adds."""
        change: list[bytes] | tuple[bytes, ...] = []
        if operation == MERGE_NS:
            change = self._merged(joined, key, rest)
            self.keys.update(change)
        elif operation == ADD_ELEMENT:
            change = [rest]
        elif operation != CLEAR:
            change = [element for (element,) in _elements(rest, (self.element,))]
        self.keys.add(joined)
        self.steps.append((joined, operation in (CLEAR, SET, SET_INTERNAL), change))

    def add_entries(self, entries: Entries) -> None:
        """Keep the lists that have changes."""
        self.table.update((key, [value]) for key, value in _pairs(entries))

    def apply(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the lists that have elements."""
        table = self.table
        for key, emptied, change in self.steps:
            if emptied:
                table.pop(key, None)
            pieces = change
            if isinstance(change, tuple):
                pieces = [piece for source in change for piece in table.pop(source, ())]
            if pieces:
                table.setdefault(key, []).extend(pieces)
        return ((key, DELIMITER.join(pieces)) for key, pieces in table.items())


class _Maps(ChangeTable):
    """Map states: the entries of each key and namespace, by user key.

    No change depends on the entries before it, so all changes are applied at once.
    """

    operations = (CLEAR, ADD, ADD_ELEMENT, UPDATE_ELEMENT, REMOVE_ELEMENT)

    def __init__(self, layout: KeyedLayout) -> None:
        super().__init__(layout)
        assert layout.value is not None  # noqa: S101 - not of timers
        assert layout.user_key is not None  # noqa: S101 - of a map
        self.user_key = layout.user_key
        self.value = TtlSerializer(layout.value) if layout.with_ttl else layout.value
        self.table: dict[bytes, dict[bytes, bytes]] = {}
        self.cleared: set[bytes] = set()

    @cached_property
    def _cleared_words(self) -> _ByteStrings:
        return _ByteStrings(self.cleared)

    def add(self, operation: int, joined: bytes, key: bytes, rest: bytes) -> None:
        """Apply a change."""
        entries = self.table.setdefault(joined, {})
        if operation == CLEAR:
            entries.clear()
            self.cleared.add(joined)
        elif operation == REMOVE_ELEMENT:
            self.keys.add(joined + rest)
            entries.pop(rest, None)
        elif operation == ADD:
            for user_key, value in _elements(rest, (self.user_key, self.value)):
                self.keys.add(joined + user_key)
                entries[user_key] = value
        else:
            check_ends(self.user_key)
            source = DataInput(rest, "a map's entry")
            self.user_key.skip(source)
            user_key = rest[: source.position]
            self.keys.add(joined + user_key)
            entries[user_key] = PRESENT + rest[source.position :]

    def has_change(self, entries: Entries) -> U8Array:
        """Return 1 for each entry that has a change, otherwise 0."""
        flags = super().has_change(entries)
        if self.cleared:
            heads = namespaced_keys_of(self.layout, entries)
            bounds = np.frombuffer(heads.buffers()[1], np.int64)
            data = np.frombuffer(heads.buffers()[2] or b"", np.uint8)
            flags |= self._cleared_words.contains(data, bounds[:-1], bounds[1:])
        return flags

    def apply(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of the maps."""
        for key, entries in self.table.items():
            for user_key, value in entries.items():
                yield key + user_key, value


class _Timers(ChangeTable):
    """Queues of timers: whether each timer exists after all changes."""

    operations = (ADD_ELEMENT, REMOVE_ELEMENT)

    def __init__(self, layout: KeyedLayout) -> None:
        super().__init__(layout)
        self.table: dict[bytes, bool] = {}

    def add(self, operation: int, joined: bytes, key: bytes, rest: bytes) -> None:
        """Apply a change."""
        timers = [rest] if operation == REMOVE_ELEMENT else self._timers(rest)
        for timer in timers:
            self.keys.add(timer)
            self.table[timer] = operation == ADD_ELEMENT

    def _timers(self, rest: bytes) -> list[bytes]:
        source = DataInput(rest, "timers")
        count = source.read_count("timers", LongSerializer.length)
        if count == 1:
            return [rest[source.position :]]
        parts = (LongSerializer(), self.layout.key, self.layout.namespace)
        check_ends(*parts)
        timers = []
        for _ in range(count):
            start = source.position
            for part in parts:
                part.skip(source)
            timers.append(rest[start : source.position])
        _check_at_end(source)
        return timers

    def apply(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the timers that exist."""
        return ((timer, b"") for timer, present in self.table.items() if present)


_TABLES: dict[StateKind, Callable[[KeyedLayout], ChangeTable]] = {
    StateKind.VALUE: Values,
    StateKind.REDUCING: Values,
    StateKind.AGGREGATING: Values,
    StateKind.LIST: _Lists,
    StateKind.MAP: _Maps,
    StateKind.TIMERS: _Timers,
}


def table_of(layout: KeyedLayout) -> ChangeTable:
    """Return an empty table for a state of a layout."""
    return _TABLES[layout.kind](layout)


# --------------------------------------------------------------------------- pieces of changes


def _pairs(entries: Entries) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of each entry."""
    bounds = (entries.key_start, entries.key_end, entries.value_start, entries.value_end)
    for start, end, first, last in zip(*(bound.tolist() for bound in bounds), strict=True):
        yield entries.data[start:end].tobytes(), entries.data[first:last].tobytes()


def _elements(rest: bytes, parts: Sequence[TypeSerializer]) -> list[tuple[bytes, ...]]:
    """Return the elements of a list, or the entries of a map, whose values have null flags."""
    source, elements = DataInput(rest, "its elements"), []
    count = source.read_count("elements")
    check_ends(*(parts if count > 1 else parts[:-1]))  # the last one ends at the end of the change
    for _ in range(count):
        bounds = [source.position]
        for index, part in enumerate(parts):
            if index == 0 or not source.read_boolean():
                part.skip(source)
            bounds.append(source.position)
        elements.append(tuple(rest[start:end] for start, end in pairwise(bounds)))
    _check_at_end(source)
    return elements


def _trailer(length: int) -> bytes:
    """Return the length that follows an ambiguous key: base 256, low byte first."""
    return length.to_bytes(max(1, (length.bit_length() + 7) // 8), "little")


def _check_at_end(source: DataInput) -> None:
    if source.remaining:
        raise source.fault(f"{source.remaining} bytes behind the end of a change", remedy=REMEDY)


def check_ends(*parts: TypeSerializer) -> None:
    """Refuse types whose values end where only their class knows."""
    for part in parts:
        if not part.self_delimiting:
            raise UnsupportedFormatError(
                f"a {part.name} in a log of changes, where only its class knows where it ends",
                remedy=SAVEPOINT,
            )


def refused(operation: int, kind: StateKind) -> StateError:
    """Return the error for an operation that a state of that kind does not have."""
    if kind is StateKind.TIMERS and operation == REMOVE_FIRST:
        return UnsupportedFormatError(
            "a timer was removed without being named, as old versions of Flink do", remedy=SAVEPOINT
        )
    name = NAMES[operation] if operation < len(NAMES) else str(operation)
    return CorruptSnapshotError(f"operation {name} on {kind.value} state", remedy=REMEDY)
