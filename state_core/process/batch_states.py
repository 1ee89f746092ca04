"""Keyed state as a batch function sees it: columns of keys, and of what they have."""

from __future__ import annotations

import pyarrow as pa

from state_core.backends import KeyedStateBackend
from state_core.backends.backend import AnyState
from state_core.backends.batches import KeyBatch, encode_keys, get_many, put_many

__all__ = ["BatchState"]


class BatchState:
    """A value, list, reducing or aggregating state, for many keys at once.

    Values are as they are stored: of an aggregating state they are accumulators. A key that is
    there twice in a column is asked for twice; of two values for it the last counts.
    """

    def __init__(self, backend: KeyedStateBackend, state: AnyState) -> None:
        self._backend = backend
        self._state = state
        self._keys: pa.Array | pa.ChunkedArray | None = None
        self._batch: KeyBatch | None = None

    def get(self, keys: pa.Array | pa.ChunkedArray) -> pa.Array:
        """What each key has; null where it has nothing.

        Raises:
            EncodeError: A key that can't be one.
            KeyGroupError: A key belongs to another subtask.
        """
        return get_many(self._encoded(keys))

    def put(self, keys: pa.Array | pa.ChunkedArray, values: pa.Array | pa.ChunkedArray) -> None:
        """Let each key have its value; null lets it have nothing.

        Raises:
            EncodeError: A key or a value that can't be one.
            KeyGroupError: A key belongs to another subtask.
        """
        put_many(self._encoded(keys), values)

    def _encoded(self, keys: pa.Array | pa.ChunkedArray) -> KeyBatch:
        """The keys' bytes, made once for a `get` and the `put` behind it."""
        if self._batch is None or keys is not self._keys:
            self._batch = encode_keys(self._backend, self._state, keys)
            self._keys = keys
        return self._batch
