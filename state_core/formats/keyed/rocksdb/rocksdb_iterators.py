"""Column families with rare features, read by RocksDB itself, entry by entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeAlias

from rocksdict import ReadOptions

from statelake.state_core.errors import CorruptSnapshotError
from statelake.state_core.formats.keyed.rocksdb.sst_file import KeyBounds

Pairs: TypeAlias = list[tuple[bytes, bytes]]

BATCH_ROWS = 1 << 16


class IteratedFamily:
    """One column family, or a part of it, read from front to back.

    Args:
        family: The column family of rocksdict.
        state: The id of its state.
        bounds: The bounds of the keys, which RocksDB finds by its index.
        prefix: Bytes of the key-group prefix.
        fault: Translates RocksDB's error to ours.
    """

    def __init__(
        self,
        family: Any,
        state: int,
        bounds: KeyBounds,
        prefix: int,
        fault: Callable[[object], CorruptSnapshotError],
    ) -> None:
        self.family = family
        self.state = state
        self.prefix = prefix
        self.fault = fault
        self.last, self.behind = bounds.first, bounds.behind
        # kept as long as the iterator, which points to it
        self.options = options = ReadOptions()
        if self.behind is not None:
            options.set_iterate_upper_bound(self.behind)
        try:
            self.items: Any = self.family.items(from_key=self.last, read_opt=options)
        except Exception as error:
            raise self.fault(error) from error
        self.pending: Pairs = []
        self.error: Exception | None = None

    def batches(self) -> Iterator[Pairs]:
        """Yield all entries within the bounds, in batches."""
        while pairs := self._next():
            yield pairs

    def of_group(self, group: int) -> Iterator[Pairs]:
        """Yield the entries of one key group, in batches."""
        behind = (group + 1).to_bytes(self.prefix + 1, "big")[-self.prefix :]
        last = group + 1 >= 1 << 8 * self.prefix
        while True:
            if not self.pending:
                self.pending = self._next()
                if not self.pending:
                    return
            if last or self.pending[-1][0] < behind:
                yield self.pending
                self.pending = []
                continue
            cut = _first_from(self.pending, behind)
            if cut:
                yield self.pending[:cut]
                self.pending = self.pending[cut:]
            return

    def _next(self) -> Pairs:
        """Return the next entries; those before a damaged block come before its error."""
        if self.error is not None:
            raise self.fault(self.error) from self.error
        pairs: Pairs = []
        try:
            pairs = list(islice(self.items, BATCH_ROWS))
            if pairs:
                self.last = pairs[-1][0]
            if len(pairs) < BATCH_ROWS:
                self._check_end()
        except Exception as error:
            if not pairs:
                raise self.fault(error) from error
            self.error = error
        return pairs

    def _check_end(self) -> None:
        """Find out why an iterator ended, as it also ends at a block that can't be read.

        Raises:
            Exception: RocksDB's own error, or ours if more entries follow after all.
        """
        again = self.family.iter()
        again.seek(self.last)
        if again.valid() and again.key() == self.last:
            again.next()
        again.status()
        if again.valid() and (self.behind is None or again.key() < self.behind):
            raise CorruptSnapshotError("reading ended before the last entry")


def _first_from(rows: Pairs, key: bytes) -> int:
    """Return the first row whose key is not before `key`."""
    low, high = 0, len(rows)
    while low < high:
        middle = (low + high) // 2
        if rows[middle][0] < key:
            low = middle + 1
        else:
            high = middle
    return low
