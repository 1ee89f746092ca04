"""Time to live: each value, list element or map entry has the time of its last access.

A state of such pairs is wrapped by one that checks the times: an expired value is not returned (or
once more, if its visibility allows), and is removed when it is read. The clock is the backend's.

Source: `TtlValueState` and its siblings, `TtlReduceFunction`, `TtlAggregateFunction` in
`org.apache.flink.runtime.state.ttl`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeAlias, TypeVar

from statelake.state_core.runtime.backends.states.descriptors import TimeToLive
from statelake.state_core.runtime.backends.states.states import (
    AggregatingState,
    Entries,
    ListState,
    MapState,
    ReducingState,
    State,
    ValueState,
    put_all,
    refuse_null,
)
from statelake.state_core.runtime.declarations.functions import AggregateFunction

Original = TypeVar("Original", bound=State[Any])
SingleOf = TypeVar("SingleOf", ValueState, ReducingState, AggregatingState)
MergingOf = TypeVar("MergingOf", ReducingState, AggregatingState)
TtlValue: TypeAlias = "dict[str, Any]"


class LastAccess:
    """Checks and sets the times of last access.

    Args:
        ttl: The time to live.
        clock: Returns the time.
    """

    def __init__(self, ttl: TimeToLive, clock: Callable[[], int]) -> None:
        self.ttl = ttl
        self.clock = clock

    def wrap(self, value: Any) -> TtlValue:
        """Return a value with the current time."""
        return {"ttl": self.clock(), "value": value}

    def expired(self, stored: TtlValue) -> bool:
        """Return whether a value has expired."""
        return self.ttl.expired(stored["ttl"], self.clock())

    def unexpired(self, stored: TtlValue | None) -> Any:
        """Return the value; None if it has expired and may not be returned."""
        if stored is None or (not self.ttl.return_expired and self.expired(stored)):
            return None
        return stored["value"]

    def read(
        self,
        stored: TtlValue | None,
        renew: Callable[[TtlValue], None],
        remove: Callable[[], None],
    ) -> TtlValue | None:
        """Return a value unless it has expired, and renew or remove it."""
        if stored is None:
            return None
        if self.expired(stored):
            remove()
            return stored if self.ttl.return_expired else None
        if self.ttl.on_read:
            renew(self.wrap(stored["value"]))
        return stored


class _Ttl(Generic[Original]):
    """A wrapper of a state that checks the times of its values.

    Args:
        original: The state of values with their times.
        access: Checks and sets times.
    """

    def __init__(self, original: Original, access: LastAccess) -> None:
        self.original = original
        self.access = access

    @property
    def name(self) -> str:
        """The name of the state."""
        return self.original.name

    def set_current_namespace(self, namespace: Any) -> None:
        """Set the namespace of the state."""
        self.original.set_current_namespace(namespace)

    def clear(self) -> None:
        """Remove the state of the current key."""
        self.original.clear()


class _SingleTtl(_Ttl[SingleOf]):
    """A wrapper of a state with one entry for each key."""

    def _stored(self) -> TtlValue | None:
        """Return the stored value with its time; None without one, or if it has expired."""
        state = self.original
        return self.access.read(state.get_internal(), state.update_internal, state.clear)


class _MergingTtl(_SingleTtl[MergingOf]):
    """A wrapper of a state whose entries can be merged."""

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Merge the values of the source namespaces into the target, and remove the sources."""
        self.original.merge_namespaces(target, sources)


class TtlValueState(_SingleTtl[ValueState]):
    """A value state."""

    def value(self) -> Any:
        """Return the value; None without one, or if it has expired."""
        stored = self._stored()
        return None if stored is None else stored["value"]

    def update(self, value: Any) -> None:
        """Set the value; None removes it."""
        self.original.update(None if value is None else self.access.wrap(value))


class TtlReducingState(_MergingTtl[ReducingState]):
    """A reducing state: a function combines the stored value with each added one."""

    def get(self) -> Any:
        """Return the value; None without one, or if it has expired."""
        stored = self._stored()
        return None if stored is None else stored["value"]

    def add(self, value: Any) -> None:
        """Add a value; None clears the state."""
        self.original.add(None if value is None else self.access.wrap(value))


class TtlAggregatingState(_MergingTtl[AggregatingState]):
    """An aggregating state: a function adds each value to the stored accumulator."""

    def get(self) -> Any:
        """Return the result; None without an accumulator, or if it has expired."""
        stored = self._stored()
        return None if stored is None else self.original.function.get_result(stored)

    def add(self, value: Any) -> None:
        """Add a value; None clears the state."""
        self.original.add(value)


class TtlListState(_Ttl[ListState]):
    """A list state, each of whose elements has its own time."""

    def get(self) -> list[Any]:
        """Return the elements that have not expired."""
        elements = self.original.get()
        living = [element for element in elements if not self.access.expired(element)]
        if elements and not living:
            self.original.clear()
        elif living and self.access.ttl.on_read:
            elements = living = [self.access.wrap(element["value"]) for element in living]
            self.original.update(living)
        shown = elements if self.access.ttl.return_expired else living
        return [element["value"] for element in shown]

    def add(self, value: Any) -> None:
        """Append an element."""
        self.original.add(self._wrapped(value))

    def add_all(self, values: Iterable[Any]) -> None:
        """Append elements."""
        self.original.add_all([self._wrapped(value) for value in values])

    def update(self, values: Iterable[Any]) -> None:
        """Replace the list."""
        self.original.update([self._wrapped(value) for value in values])

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Append the elements of the source namespaces to the target, and remove the sources."""
        self.original.merge_namespaces(target, sources)

    def _wrapped(self, value: Any) -> TtlValue:
        refuse_null(value, self.name)
        return self.access.wrap(value)


class TtlMapState(_Ttl[MapState]):
    """A map state, each of whose entries has its own time."""

    def get(self, user_key: Any) -> Any:
        """Return the value of a key; None without one, or if it has expired."""
        stored = self._read(user_key, self.original.get(user_key))
        return None if stored is None else stored["value"]

    def put(self, user_key: Any, value: Any) -> None:
        """Set the value of a key."""
        self.original.put(user_key, self.access.wrap(value))

    def put_all(self, entries: Entries) -> None:
        """Set many values, from a mapping, or from pairs if keys can't be hashed."""
        put_all(self.put, entries)

    def remove(self, user_key: Any) -> None:
        """Remove a key."""
        self.original.remove(user_key)

    def contains(self, user_key: Any) -> bool:
        """Return whether the key has a value that has not expired."""
        return self._read(user_key, self.original.get(user_key)) is not None

    def entries(self) -> Iterator[tuple[Any, Any]]:
        """Yield all keys and values that have not expired when they are reached."""
        read = ((key, self._read(key, stored)) for key, stored in self.original.entries())
        return ((key, stored["value"]) for key, stored in read if stored is not None)

    def keys(self) -> Iterator[Any]:
        """Yield all keys whose values have not expired."""
        return (user_key for user_key, _ in self.entries())

    def values(self) -> Iterator[Any]:
        """Yield all values that have not expired."""
        return (value for _, value in self.entries())

    def is_empty(self) -> bool:
        """Return whether the map is empty; expired entries count until they are removed."""
        return self.original.is_empty()

    def _read(self, user_key: Any, stored: TtlValue | None) -> TtlValue | None:
        state = self.original
        return self.access.read(
            stored, lambda new: state.put(user_key, new), lambda: state.remove(user_key)
        )


def _joined(
    access: LastAccess, pair: Iterable[TtlValue], join: Callable[[Any, Any], Any]
) -> TtlValue | None:
    """Return two values combined into one, without expired ones; None without any."""
    living = [value for value in map(access.unexpired, pair) if value is not None]
    if not living:
        return None
    return access.wrap(join(*living) if len(living) == 2 else living[0])


def ttl_reduce(reduce: Callable[[Any, Any], Any], access: LastAccess) -> Callable[[Any, Any], Any]:
    """Return the function over values with their times, which ignores expired ones."""

    def reduced(first: TtlValue, second: TtlValue) -> TtlValue | None:
        return _joined(access, (first, second), reduce)

    return reduced


class TtlAggregateFunction:
    """An aggregate function over accumulators with times: an expired one is replaced by a new one.

    Args:
        original: The user's function.
        access: Checks and sets times.
    """

    def __init__(self, original: AggregateFunction, access: LastAccess) -> None:
        self.original = original
        self.access = access

    def create_accumulator(self) -> TtlValue:
        """Return a new accumulator."""
        return self.access.wrap(self.original.create_accumulator())

    def add(self, value: Any, accumulator: TtlValue) -> TtlValue:
        """Return the accumulator with one more value in it."""
        living = self.access.unexpired(accumulator)
        if living is None:
            living = self.original.create_accumulator()
        return self.access.wrap(self.original.add(value, living))

    def get_result(self, accumulator: TtlValue) -> Any:
        """Return the result of an accumulator."""
        return self.original.get_result(accumulator["value"])

    def merge(self, a: TtlValue, b: TtlValue) -> TtlValue | None:
        """Return two accumulators combined into one, without expired ones."""
        return _joined(self.access, (a, b), self.original.merge)
