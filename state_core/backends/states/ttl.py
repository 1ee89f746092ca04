"""Time to live: each value, list element or map entry carries the time of its last access.

Around a state of such pairs stands one that looks at the times: what has expired is not seen (or
once more, if its visibility says so), and is removed where it is met. The clock is the backend's.

Source: `TtlValueState` and its siblings, `TtlReduceFunction`, `TtlAggregateFunction` in
`org.apache.flink.runtime.state.ttl`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from state_core.backends.states.descriptors import TimeToLive
from state_core.backends.states.states import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    State,
    ValueState,
)
from state_core.declarations.functions import AggregateFunction
from state_core.errors import EncodeError

__all__ = [
    "LastAccess",
    "TtlAggregateFunction",
    "TtlAggregatingState",
    "TtlListState",
    "TtlMapState",
    "TtlReducingState",
    "TtlValueState",
    "ttl_reduce",
]

Original = TypeVar("Original", bound=State[Any])
TtlValue: TypeAlias = "dict[str, Any]"


class LastAccess:
    """Looks at times, and makes them.

    Args:
        ttl: How long values live.
        clock: Says the time.
    """

    def __init__(self, ttl: TimeToLive, clock: Callable[[], int]) -> None:
        self.ttl = ttl
        self.clock = clock

    def wrap(self, value: Any) -> TtlValue:
        """A value with the time that it is now."""
        return {"ttl": self.clock(), "value": value}

    def expired(self, held: TtlValue) -> bool:
        """Whether it is dead."""
        return self.ttl.expired(held["ttl"], self.clock())

    def unexpired(self, held: TtlValue | None) -> Any:
        """The value, as far as it may be seen."""
        if held is None or (not self.ttl.return_expired and self.expired(held)):
            return None
        return held["value"]

    def read(
        self,
        held: TtlValue | None,
        renew: Callable[[TtlValue], None],
        remove: Callable[[], None],
    ) -> TtlValue | None:
        """What was read, as far as it may be seen; renewed or removed as its time says."""
        if held is None:
            return None
        if self.expired(held):
            remove()
            return held if self.ttl.return_expired else None
        if self.ttl.on_read:
            renew(self.wrap(held["value"]))
        return held


class _Ttl(Generic[Original]):
    """What stands around a state.

    Args:
        original: The state of values with their times.
        access: Looks at times.
    """

    def __init__(self, original: Original, access: LastAccess) -> None:
        self.original = original
        self.access = access

    @property
    def name(self) -> str:
        """The state's."""
        return self.original.name

    def set_current_namespace(self, namespace: Any) -> None:
        """Scope the state."""
        self.original.set_current_namespace(namespace)


class TtlValueState(_Ttl[ValueState]):
    """One value."""

    def value(self) -> Any:
        """The value; None if there is none that lives."""
        state = self.original
        held = self.access.read(state.value(), state.update, state.clear)
        return None if held is None else held["value"]

    def update(self, value: Any) -> None:
        """Set the value; None removes it."""
        self.original.update(None if value is None else self.access.wrap(value))

    def clear(self) -> None:
        """Let there be nothing."""
        self.original.clear()


class TtlReducingState(_Ttl[ReducingState]):
    """One value, into which a function puts each that is added."""

    def get(self) -> Any:
        """The value; None if there is none that lives."""
        state = self.original
        held = self.access.read(state.get_internal(), state.update_internal, state.clear)
        return None if held is None else held["value"]

    def add(self, value: Any) -> None:
        """Put a value in; None clears."""
        self.original.add(None if value is None else self.access.wrap(value))

    def clear(self) -> None:
        """Let there be nothing."""
        self.original.clear()

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Let the target namespace have what the sources have too, and them nothing."""
        self.original.merge_namespaces(target, sources)


class TtlAggregatingState(_Ttl[AggregatingState]):
    """An accumulator, into which a function puts each value that is added."""

    def get(self) -> Any:
        """The result; None if there is no accumulator that lives."""
        state = self.original
        held = self.access.read(state.get_internal(), state.update_internal, state.clear)
        return None if held is None else state.aggregate.get_result(held)

    def add(self, value: Any) -> None:
        """Put a value in; None clears."""
        self.original.add(value)

    def clear(self) -> None:
        """Let there be nothing."""
        self.original.clear()

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Let the target namespace have what the sources have too, and them nothing."""
        self.original.merge_namespaces(target, sources)


class TtlListState(_Ttl[ListState]):
    """A list, each of whose elements has its own time."""

    def get(self) -> list[Any]:
        """The elements that live."""
        held = self.original.get()
        living = [one for one in held if not self.access.expired(one)]
        if held and not living:
            self.original.clear()
        elif living and self.access.ttl.on_read:
            held = living = [self.access.wrap(one["value"]) for one in living]
            self.original.update(living)
        shown = held if self.access.ttl.return_expired else living
        return [one["value"] for one in shown]

    def add(self, value: Any) -> None:
        """Append an element."""
        self.original.add(self._wrapped(value))

    def add_all(self, values: Iterable[Any]) -> None:
        """Append elements."""
        self.original.add_all([self._wrapped(one) for one in values])

    def update(self, values: Iterable[Any]) -> None:
        """Replace the list."""
        self.original.update([self._wrapped(one) for one in values])

    def clear(self) -> None:
        """Let there be nothing."""
        self.original.clear()

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Append what the sources have to what the target has, and let them have nothing."""
        self.original.merge_namespaces(target, sources)

    def _wrapped(self, value: Any) -> TtlValue:
        if value is None:
            raise EncodeError("a null element, and lists have none", place=f"state {self.name!r}")
        return self.access.wrap(value)


class TtlMapState(_Ttl[MapState]):
    """A map, each of whose entries has its own time."""

    def get(self, user_key: Any) -> Any:
        """A key's value; None if it has none that lives."""
        held = self._read(user_key, self.original.get(user_key))
        return None if held is None else held["value"]

    def put(self, user_key: Any, value: Any) -> None:
        """Set a key's value."""
        self.original.put(user_key, self.access.wrap(value))

    def put_all(self, entries: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        """Set many values, of a mapping, or of pairs where keys can't be hashed."""
        pairs = entries.items() if isinstance(entries, Mapping) else entries
        for user_key, value in pairs:
            self.put(user_key, value)

    def remove(self, user_key: Any) -> None:
        """Let a key have nothing."""
        self.original.remove(user_key)

    def contains(self, user_key: Any) -> bool:
        """Whether the key has a value that lives."""
        return self._read(user_key, self.original.get(user_key)) is not None

    def entries(self) -> Iterator[tuple[Any, Any]]:
        """All keys and values that live, each looked at when it comes."""
        read = ((key, self._read(key, held)) for key, held in self.original.entries())
        return ((key, held["value"]) for key, held in read if held is not None)

    def keys(self) -> Iterator[Any]:
        """All keys whose values live."""
        return (user_key for user_key, _ in self.entries())

    def values(self) -> Iterator[Any]:
        """All values that live."""
        return (value for _, value in self.entries())

    def is_empty(self) -> bool:
        """Whether there is no entry, dead ones that nobody has met among them."""
        return self.original.is_empty()

    def clear(self) -> None:
        """Let there be nothing."""
        self.original.clear()

    def _read(self, user_key: Any, held: TtlValue | None) -> TtlValue | None:
        state = self.original
        return self.access.read(
            held, lambda new: state.put(user_key, new), lambda: state.remove(user_key)
        )


def ttl_reduce(reduce: Callable[[Any, Any], Any], access: LastAccess) -> Callable[[Any, Any], Any]:
    """The function over values with their times: the dead count for nothing."""

    def reduced(one: TtlValue, two: TtlValue) -> TtlValue | None:
        living = [access.unexpired(one), access.unexpired(two)]
        living = [value for value in living if value is not None]
        if not living:
            return None
        return access.wrap(reduce(*living) if len(living) == 2 else living[0])

    return reduced


class TtlAggregateFunction:
    """The function over accumulators with their times: a dead one begins anew.

    Args:
        original: The user's.
        access: Looks at times.
    """

    def __init__(self, original: AggregateFunction, access: LastAccess) -> None:
        self.original = original
        self.access = access

    def create_accumulator(self) -> TtlValue:
        """A new accumulator."""
        return self.access.wrap(self.original.create_accumulator())

    def add(self, value: Any, accumulator: TtlValue) -> TtlValue:
        """The accumulator with one more value in it."""
        living = self.access.unexpired(accumulator)
        if living is None:
            living = self.original.create_accumulator()
        return self.access.wrap(self.original.add(value, living))

    def get_result(self, accumulator: TtlValue) -> Any:
        """What the state says when it is read."""
        return self.original.get_result(accumulator["value"])

    def merge(self, a: TtlValue, b: TtlValue) -> TtlValue | None:
        """Two accumulators as one; the dead count for nothing."""
        living = [one for one in map(self.access.unexpired, (a, b)) if one is not None]
        if not living:
            return None
        return self.access.wrap(self.original.merge(*living) if len(living) == 2 else living[0])
