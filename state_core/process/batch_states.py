"""Keyed state of batch functions: columns of keys, and of their values."""

from __future__ import annotations

import pyarrow as pa

from statelake.state_core.backends import KeyedStateBackend
from statelake.state_core.backends.backend import AnyState
from statelake.state_core.backends.batches import KeyBatch, encode_keys, get_many, put_many

__all__ = ["BatchState"]


class BatchState:
    """A value, list, reducing or aggregating state, for many keys at once.

    Values are the stored ones: accumulators of an aggregating state. A key that occurs twice in a
    column is looked up twice; of two values for it the last one counts.
    """

    def __init__(self, backend: KeyedStateBackend, state: AnyState) -> None:
        self._backend = backend
        self._state = state
        self._keys: pa.Array | pa.ChunkedArray | None = None
        self._batch: KeyBatch | None = None

    def get(self, keys: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Return the value of each key; null without a value.

        Raises:
            EncodeError: A key is invalid.
            KeyGroupError: A key belongs to another subtask.
        """
        return get_many(self._encoded(keys))

    def put(self, keys: pa.Array | pa.ChunkedArray, values: pa.Array | pa.ChunkedArray) -> None:
        """Set the value of each key; null removes it.

        Raises:
            EncodeError: A key or a value is invalid.
            KeyGroupError: A key belongs to another subtask.
        """
        put_many(self._encoded(keys), values)

    def _encoded(self, keys: pa.Array | pa.ChunkedArray) -> KeyBatch:
        """Return the bytes of the keys, computed once for a `get` and the following `put`."""
        if self._batch is None or keys is not self._keys:
            self._batch = encode_keys(self._backend, self._state, keys)
            self._keys = keys
        return self._batch
