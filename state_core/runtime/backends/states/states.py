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
from functools import partial
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
from statelake.state_core.runtime.backends.states.ttl import LastAccess, TtlValue
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
        access: Checks and sets the times of values; None if they do not expire.
        function: The function that combines values; None for kinds without one.
    """

    def __init__(
        self,
        name: str,
        context: KeyContext,
        layout: KeyedLayout,
        table: TableOf,
        access: LastAccess | None = None,
        function: Any = None,
    ) -> None:
        self.name = name
        self.context = context
        self.layout = layout
        self.table = table
        self.access = access
        self.function = function
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

    def current(self) -> Any:
        """Return the value; None without one, or if it has expired."""
        data = self.table.get(*self._at)
        if data is None:
            return None
        value = self._read(data)
        if self.access is None:
            return value
        living = self.access.read(value, self._renew, self.clear)
        return None if living is None else living["value"]

    def _renew(self, value: Any) -> None:
        """Set the value that was read; with a time it may be null, as Flink writes it."""
        assert self.access is not None  # noqa: S101 - by the caller
        self.table.put(*self._at, self._write(self.access.wrap(value)))

    def store(self, value: Any) -> None:
        """Set the value; None removes it."""
        if value is None:
            self.clear()
        else:
            stored = value if self.access is None else self.access.wrap(value)
            self.table.put(*self._at, self._write(stored))

    def clear(self) -> None:
        """Remove the state of the current key."""
        self.table.remove(*self._at)

    def _unexpired(self) -> Any:
        """Return the value that another one is added to; this does not renew it."""
        data = self.table.get(*self._at)
        if data is None:
            return None
        value = self._read(data)
        return value if self.access is None else self.access.unexpired(value)

    def _merge(self, target: Any, sources: Iterable[Any], join: Callable[[Any, Any], Any]) -> None:
        """Merge the entries of the source namespaces into the target, and remove the sources."""
        if self.access is not None:
            join = partial(self.access.joined, join)
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

    value = _SingleState.current
    update = _SingleState.store


class ReducingState(_SingleState):
    """A reducing state: a function combines the stored value with each added one."""

    function: Callable[[Any, Any], Any]
    get = _SingleState.current

    def add(self, value: Any) -> None:
        """Add a value; None clears the state."""
        before = None if value is None else self._unexpired()
        self.store(value if before is None else self.function(before, value))

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Merge the values of the source namespaces into the target, and remove the sources."""
        self._merge(target, sources, self.function)


class AggregatingState(_SingleState):
    """An aggregating state: a function adds each value to the stored accumulator."""

    function: AggregateFunction

    def get(self) -> Any:
        """Return the result of the accumulator; None without one, or if it has expired."""
        accumulator = self.current()
        return None if accumulator is None else self.function.get_result(accumulator)

    def add(self, value: Any) -> None:
        """Add a value; None clears the state."""
        if value is None:
            self.clear()
            return
        accumulator = self._unexpired()
        if accumulator is None:
            accumulator = self.function.create_accumulator()
        self.store(self.function.add(value, accumulator))

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Merge the values of the source namespaces into the target, and remove the sources."""
        self._merge(target, sources, self.function.merge)


class ListState(State[ListTable]):
    """A list state. If its elements expire, each has its own time."""

    def get(self) -> list[Any]:
        """Return the elements that have not expired; empty without a list."""
        data = self.table.get(*self._at)
        if data is None:
            return []
        elements: list[Any] = DelimitedListSerializer(self.serializer).read(
            DataInput(data, self.name)
        )
        return elements if self.access is None else self._unexpired(elements, self.access)

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

    def _unexpired(self, elements: list[TtlValue], access: LastAccess) -> list[Any]:
        """Return the elements that have not expired, and renew or remove the list."""
        living = [element for element in elements if not access.expired(element)]
        if elements and not living:
            self.clear()
        elif living and access.on_read:
            elements = living
            self.update(element["value"] for element in living)
        shown = elements if access.return_expired else living
        return [element["value"] for element in shown]

    def _elements(self, values: Iterable[Any]) -> bytes:
        return DELIMITER.join([self._element(value) for value in values])

    def _element(self, value: Any) -> bytes:
        refuse_null(value, self.name)
        data = self._write(value if self.access is None else self.access.wrap(value))
        if not data:
            raise EncodeError(
                f"{value!r} has no bytes, so a list can't contain it",
                place=f"state {self.name!r}",
            )
        return data


class MapState(State[MapTable]):
    """A map state. Its entries are stored one by one, so only those that are used cost time.

    If its values expire, each has its own time.
    """

    def get(self, user_key: Any) -> Any:
        """Return the value of a key; None without one, or if it is null or has expired."""
        data = self.table.get(*self._at, self._user_key(user_key))
        value = None if data is None else self._value(data)
        if value is None or self.access is None:
            return value
        living = self._unexpired(user_key, value, self.access)
        return None if living is None else living["value"]

    def put(self, user_key: Any, value: Any) -> None:
        """Set the value of a key."""
        stored = value if self.access is None else self.access.wrap(value)
        self.table.put(*self._at, self._user_key(user_key), self._flagged(stored))

    def put_all(self, entries: Entries) -> None:
        """Set many values, from a mapping, or from pairs if keys can't be hashed."""
        put_all(self.put, entries)

    def remove(self, user_key: Any) -> None:
        """Remove a key."""
        self.table.remove(*self._at, self._user_key(user_key))

    def contains(self, user_key: Any) -> bool:
        """Return whether the key has a value that has not expired, even if it is null."""
        data = self.table.get(*self._at, self._user_key(user_key))
        if data is None or self.access is None:
            return data is not None
        return self._unexpired(user_key, self._value(data), self.access) is not None

    def entries(self) -> Iterator[tuple[Any, Any]]:
        """Yield all keys and values, unordered, as they are at the call.

        Of values that expire, those that have not when they are reached.
        """
        entries = self.table.entries(*self._at)
        stored = ((self._read_key(key), self._value(data)) for key, data in entries)
        access = self.access
        if access is None:
            return stored
        living = ((key, self._unexpired(key, value, access)) for key, value in stored)
        return ((key, value["value"]) for key, value in living if value is not None)

    def keys(self) -> Iterator[Any]:
        """Yield all keys whose values have not expired."""
        if self.access is not None:
            return (key for key, _ in self.entries())
        return (self._read_key(key) for key, _ in self.table.entries(*self._at))

    def values(self) -> Iterator[Any]:
        """Yield all values that have not expired."""
        if self.access is not None:
            return (value for _, value in self.entries())
        return (self._value(data) for _, data in self.table.entries(*self._at))

    def is_empty(self) -> bool:
        """Return whether the map is empty; expired entries count until they are removed."""
        return self.table.is_empty(*self._at)

    def clear(self) -> None:
        """Remove the state of the current key."""
        self.table.clear(*self._at)

    def _unexpired(
        self, user_key: Any, stored: TtlValue | None, access: LastAccess
    ) -> TtlValue | None:
        """Return a value unless it has expired, and renew or remove it."""
        if stored is None:
            return None
        return access.read(
            stored, lambda value: self.put(user_key, value), lambda: self.remove(user_key)
        )

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
