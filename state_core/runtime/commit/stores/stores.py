"""Stores of keys and values of a task: `SubtaskStore` of a run is one, in `pipelines`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping


class KeyValueStore(ABC):
    """A store of keys and values as bytes."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[bytes, bytes | None], None]] = []

    def subscribe(self, listener: Callable[[bytes, bytes | None], None]) -> None:
        """Call a function after every change: with key and value, or with None for a value."""
        self._listeners.append(listener)

    @abstractmethod
    def apply(self, key: bytes, value: bytes | None) -> None:
        """Set or remove a key without calling subscribers, for restores."""

    def apply_all(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Set some keys, and remove those without a value, without calling subscribers."""
        for key, value in changes.items():
            self.apply(key, value)

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None without a value."""

    @abstractmethod
    def items(self) -> Iterable[tuple[bytes, bytes]]:
        """Return every key with its value, sorted by key."""

    def flush(self) -> None:  # noqa: B027 - a store without files has nothing to do
        """Write data that is only in memory to disk."""

    def close(self) -> None:  # noqa: B027 - the same
        """Close the files."""


class PersistentStore(KeyValueStore):
    """A store with its content in a directory."""

    @abstractmethod
    def checkpoint(self, target: str) -> None:
        """Copy or link the flushed content to a new directory of the same disk."""
