"""The kinds of keyed state, as functions use them, for the current key.

Special values are treated as in Flink: null in a value state is the same as no value, an empty list
is the same as no list, a map may contain null, and adding null to a reducing or aggregating state
clears it. Values are read and written by their serializers, so a caller may change a returned
value.

Source: `AbstractRocksDBState` and its kinds, `HeapReducingState`, `HeapAggregatingState`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from statelake.state_core.errors import EncodeError, KeyGroupError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.runtime.backends.states.keys import KeyContext, composite_key
from statelake.state_core.runtime.backends.states.tables import (
    DELIMITER,
    EntryTable,
    ListTable,
    MapTable,
    ValueTable,
)
from statelake.state_core.runtime.declarations.functions import AggregateFunction
from statelake.state_core.serializers.composite.collections import DelimitedListSerializer
from statelake.state_core.serializers.composite.wrappers import TtlSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer

TableOf = TypeVar("TableOf", bound=EntryTable)
Entries: TypeAlias = "Mapping[Any, Any] | Iterable[tuple[Any, Any]]"
NOT_NULL, NULL = b"\x00", b"\x01"


class State(ABC, Generic[TableOf]):
    """A state of the current key, in the current namespace.

    Args:
        name: The name of the state.
        context: The current key.
        layout: The layout of entries.
        table: The table of entries.
    """

    def __init__(self, name: str, context: KeyContext, layout: KeyedLayout, table: TableOf) -> None:
        self.name = name
        self.context = context
        self.layout = layout
        self.table = table
        self.serializer = stored_serializer(layout)
        self.namespace: Any = None
        self._namespace: bytes | None = None
        self._composed_of: tuple[bytes | None, bytes | None] = (None, None)
        self._composed = b""

    def set_current_namespace(self, namespace: Any) -> None:
        """Set the namespace of the state, a window for instance; it stays until the next call."""
        self.namespace = namespace
        self._namespace = written(self.layout.namespace, namespace)

    @abstractmethod
    def clear(self) -> None:
        """Remove the state of the current key."""

    @property
    def _at(self) -> tuple[int, bytes]:
        """Return the key group and the key bytes of the entry."""
        key = self.context.encoded
        composed = self._composed_of
        if composed[0] is not key or composed[1] is not self._namespace:
            if self.context.group < 0:
                raise KeyGroupError("no key is set", place=f"state {self.name!r}")
            if self._namespace is None:
                self.set_current_namespace(self.namespace)
            self._composed_of = key, self._namespace
            self._composed = self._under(self._namespace or b"")
        return self.context.group, self._composed

    def _under(self, namespace: bytes) -> bytes:
        return composite_key(self.context.encoded, namespace, ambiguous=self.layout.ambiguous)

    def _sources(self, namespaces: Iterable[Any]) -> list[bytes]:
        """Return the key bytes of the current key's entries in these namespaces."""
        return [self._under(written(self.layout.namespace, namespace)) for namespace in namespaces]

    def _write(self, value: Any) -> bytes:
        try:
            return written(self.serializer, value)
        except EncodeError as error:
            raise error.within(f"state {self.name!r}") from error

    def _read(self, data: bytes) -> Any:
        return self.serializer.read(DataInput(data, self.name))


class _SingleState(State[ValueTable]):
    """A state with one entry for each key."""

    def get_internal(self) -> Any:
        """Return the stored value of the serializer; None without a value."""
        data = self.table.get(*self._at)
        return None if data is None else self._read(data)

    def update_internal(self, value: Any) -> None:
        """Store a value; None removes it."""
        if value is None:
            self.clear()
        else:
            self.table.put(*self._at, self._write(value))

    def clear(self) -> None:
        """Remove the state of the current key."""
        self.table.remove(*self._at)

    def _merge(self, target: Any, sources: Iterable[Any], join: Callable[[Any, Any], Any]) -> None:
        """Merge the entries of the source namespaces into the target, and remove the sources."""
        group, _ = self._at
        merged = None
        for source in self._sources(sources):
            data = self.table.get(group, source)
            if data is not None:
                self.table.remove(group, source)
                value = self._read(data)
                merged = value if merged is None else join(merged, value)
        if merged is None:
            return
        (into,) = self._sources([target])
        data = self.table.get(group, into)
        if data is not None:
            merged = join(merged, self._read(data))
        if merged is None:
            self.table.remove(group, into)
        else:
            self.table.put(group, into, self._write(merged))


class ValueState(_SingleState):
    """A value state."""

    def value(self) -> Any:
        """Return the value; None without one."""
        return self.get_internal()

    def update(self, value: Any) -> None:
        """Set the value; None removes it."""
        self.update_internal(value)


class _FunctionState(_SingleState):
    """A state whose function combines values.

    Args:
        name: The name of the state.
        context: The current key.
        layout: The layout of entries.
        table: The table of entries.
        function: The function.
    """

    def __init__(
        self, name: str, context: KeyContext, layout: KeyedLayout, table: ValueTable, function: Any
    ) -> None:
        super().__init__(name, context, layout, table)
        self.function = function


class ReducingState(_FunctionState):
    """A reducing state: a function combines the stored value with each added one."""

    function: Callable[[Any, Any], Any]

    def get(self) -> Any:
        """Return the value; None without one."""
        return self.get_internal()

    def add(self, value: Any) -> None:
        """Add a value; None clears the state."""
        if value is None:
            self.clear()
            return
        stored = self.get_internal()
        self.update_internal(value if stored is None else self.function(stored, value))

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Merge the values of the source namespaces into the target, and remove the sources."""
        self._merge(target, sources, self.function)


class AggregatingState(_FunctionState):
    """An aggregating state: a function adds each value to the stored accumulator."""

    function: AggregateFunction

    def get(self) -> Any:
        """Return the result of the accumulator; None without one."""
        accumulator = self.get_internal()
        return None if accumulator is None else self.function.get_result(accumulator)

    def add(self, value: Any) -> None:
        """Add a value; None clears the state."""
        if value is None:
            self.clear()
            return
        accumulator = self.get_internal()
        if accumulator is None:
            accumulator = self.function.create_accumulator()
        self.update_internal(self.function.add(value, accumulator))

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Merge the values of the source namespaces into the target, and remove the sources."""
        self._merge(target, sources, self.function.merge)


class ListState(State[ListTable]):
    """A list state."""

    def get(self) -> list[Any]:
        """Return the elements; empty without a list."""
        data = self.table.get(*self._at)
        if data is None:
            return []
        elements: list[Any] = DelimitedListSerializer(self.serializer).read(
            DataInput(data, self.name)
        )
        return elements

    def add(self, value: Any) -> None:
        """Append an element.

        Raises:
            EncodeError: The element is null.
        """
        self.table.append(*self._at, self._element(value))

    def add_all(self, values: Iterable[Any]) -> None:
        """Append elements."""
        elements = self._elements(values)
        if elements:
            self.table.append(*self._at, elements)

    def update(self, values: Iterable[Any]) -> None:
        """Replace the list; an empty one is removed."""
        elements = self._elements(values)
        if elements:
            self.table.put(*self._at, elements)
        else:
            self.clear()

    def clear(self) -> None:
        """Remove the state of the current key."""
        self.table.remove(*self._at)

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Append the elements of the source namespaces to the target, and remove the sources."""
        group, _ = self._at
        (into,) = self._sources([target])
        for source in self._sources(sources):
            data = self.table.get(group, source)
            if data is not None:
                self.table.remove(group, source)
                self.table.append(group, into, data)

    def _elements(self, values: Iterable[Any]) -> bytes:
        return DELIMITER.join([self._element(value) for value in values])

    def _element(self, value: Any) -> bytes:
        refuse_null(value, self.name)
        data = self._write(value)
        if not data:
            raise EncodeError(
                f"{value!r} has no bytes, so a list can't contain it",
                place=f"state {self.name!r}",
            )
        return data


class MapState(State[MapTable]):
    """A map state. Its entries are stored one by one, so only those that are used cost time."""

    def get(self, user_key: Any) -> Any:
        """Return the value of a key; None without one, or if it is null."""
        data = self.table.get(*self._at, self._user_key(user_key))
        return None if data is None else self._value(data)

    def put(self, user_key: Any, value: Any) -> None:
        """Set the value of a key."""
        self.table.put(*self._at, self._user_key(user_key), self._flagged(value))

    def put_all(self, entries: Entries) -> None:
        """Set many values, from a mapping, or from pairs if keys can't be hashed."""
        put_all(self.put, entries)

    def remove(self, user_key: Any) -> None:
        """Remove a key."""
        self.table.remove(*self._at, self._user_key(user_key))

    def contains(self, user_key: Any) -> bool:
        """Return whether the key exists, even if its value is null."""
        return self.table.get(*self._at, self._user_key(user_key)) is not None

    def entries(self) -> Iterator[tuple[Any, Any]]:
        """Yield all keys and values, unordered, as they are at the call."""
        entries = self.table.entries(*self._at)
        return ((self._read_key(key), self._value(data)) for key, data in entries)

    def keys(self) -> Iterator[Any]:
        """Yield all keys."""
        return (self._read_key(key) for key, _ in self.table.entries(*self._at))

    def values(self) -> Iterator[Any]:
        """Yield all values."""
        return (self._value(data) for _, data in self.table.entries(*self._at))

    def is_empty(self) -> bool:
        """Return whether the map is empty."""
        return self.table.is_empty(*self._at)

    def clear(self) -> None:
        """Remove the state of the current key."""
        self.table.clear(*self._at)

    def _user_key(self, user_key: Any) -> bytes:
        assert self.layout.user_key is not None  # noqa: S101 - of every map
        try:
            return written(self.layout.user_key, user_key)
        except EncodeError as error:
            raise error.within(f"state {self.name!r}, user key") from error

    def _read_key(self, data: bytes) -> Any:
        assert self.layout.user_key is not None  # noqa: S101 - of every map
        return self.layout.user_key.read(DataInput(data, self.name))

    def _flagged(self, value: Any) -> bytes:
        return NULL if value is None else NOT_NULL + self._write(value)

    def _value(self, data: bytes) -> Any:
        return None if data[:1] != NOT_NULL else self._read(data[1:])


def refuse_null(element: Any, state: str) -> None:
    """Refuse a null element of a list.

    Raises:
        EncodeError: The element is null.
    """
    if element is None:
        raise EncodeError("a null element, which a list can't hold", place=f"state {state!r}")


def put_all(put: Callable[[Any, Any], None], entries: Entries) -> None:
    """Put the entries of a mapping, or pairs."""
    pairs = entries.items() if isinstance(entries, Mapping) else entries
    for key, value in pairs:
        put(key, value)


def stored_serializer(layout: KeyedLayout) -> TypeSerializer:
    """Return the serializer of a value or element, with its time if it has TTL."""
    assert layout.value is not None  # noqa: S101 - of all but timers
    return TtlSerializer(layout.value) if layout.with_ttl else layout.value


def written(serializer: TypeSerializer, value: Any) -> bytes:
    """Return the bytes of a value."""
    out = DataOutput()
    serializer.write(value, out)
    return out.to_bytes()
