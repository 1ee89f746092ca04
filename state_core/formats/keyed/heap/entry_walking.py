"""Walk entries without lengths, and convert them to the unified format.

The heap backend writes (in checkpoints, and for timers beside RocksDB) a count and then the
entries, whose types alone determine their length. This module finds the start of each part of each
entry, by kernels if the types have programs, and copies the parts in another order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from statelake.state_core.errors import UnsupportedFormatError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.layout.keyed_layout import trailer_sizes
from statelake.state_core.kernels.encode import copy_pieces
from statelake.state_core.kernels.skip import UNKNOWN, locate_counted
from statelake.state_core.model.entries import Entries
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import I32Array, I64Array, U8Array

# what to do about values whose end is not known
NO_END = (
    "take a savepoint in canonical format, say the class in a file for --kryo, or register a"
    " decoder"
)


class EntryWalker(ABC):
    """A walker over one key group.

    Attributes:
        data: Its content.
        at: The start of the next entry.
        name: The file, for messages.
        group: The key group.
        where: The kind of place, for messages.
    """

    data: U8Array
    at: int
    name: str
    group: int
    where: str

    @abstractmethod
    def _place(self, position: int) -> str:
        """Return the name of a position in `data`."""

    def _walk(self, parts: tuple[TypeSerializer, ...], rows: int) -> list[I64Array]:
        """Return the start of each part of the next `rows` entries, and the end of the last part.

        A count in front of a list or a map is a part of its own, of repeated elements.
        """
        programs = [part.skip_program() for part in parts]
        known = [program for program in programs if program is not None]
        starts = np.empty(rows, np.int64)
        if len(known) < len(parts):
            return self._walk_slowly(parts, rows)
        ends = np.empty(rows, np.int64)
        position = np.array([self.at], np.int64)
        words = np.array([word for program in known for word in program], np.int32)
        failed = self._locate(position, words, rows, starts, ends)
        if failed >= 0 or position[0] == UNKNOWN:
            return self._walk_slowly(parts, rows)
        self.at = int(position[0])
        bounds = [starts]
        for program in known[:-1]:
            bounds.append(self._behind(bounds[-1], ends, np.array(program, np.int32)))
        return [*bounds, ends]

    def _locate(
        self, position: I64Array, words: I32Array, rows: int, starts: I64Array, ends: I64Array
    ) -> int:
        limit = np.full(len(position), self.data.size, np.int64)
        counts, first = np.array([rows], np.int64), np.zeros(1, np.int64)
        return int(locate_counted(self.data, position, limit, counts, first, words, starts, ends))

    def _behind(self, starts: I64Array, ends: I64Array, words: I32Array) -> I64Array:
        """Return the ends of parts that begin at `starts`."""
        rows = len(starts)
        spare, behind = np.empty(rows, np.int64), np.empty(rows, np.int64)
        ones, first = np.ones(rows, np.int64), np.arange(rows, dtype=np.int64)
        locate_counted(self.data, starts.copy(), ends, ones, first, words, spare, behind)
        return behind

    def _walk_slowly(self, parts: tuple[TypeSerializer, ...], rows: int) -> list[I64Array]:
        """Do the same entry by entry, for types that only their serializer can walk."""
        for part in parts:
            if not part.self_delimiting:
                raise UnsupportedFormatError(
                    f"a {part.name} {self.where}, where only its class knows where a value ends",
                    place=self.name,
                    remedy=NO_END,
                )
        source = DataInput(self.data[self.at :].data, self._place(self.at))
        bounds = np.empty((len(parts) + 1, rows), np.int64)
        for row in range(rows):
            for index, part in enumerate(parts):
                bounds[index, row] = self.at + source.position
                part.skip(source)
            bounds[-1, row] = self.at + source.position
        self.at += source.position
        return list(bounds)

    def _entries(
        self,
        state: int,
        keys: list[tuple[I64Array, I64Array]],
        value: tuple[I64Array, I64Array],
        ambiguous: bool = False,
        user_key: tuple[I64Array, I64Array] | None = None,
        data: U8Array | None = None,
    ) -> Entries:
        """Join pieces of the native format to entries of the unified one."""
        source = self.data if data is None else data
        rows = len(value[0])
        pieces = keys if user_key is None else [*keys, user_key]
        sizes = np.sum([ends - starts for starts, ends in pieces], axis=0, dtype=np.int64)
        lengths = [ends - starts for starts, ends in keys] if ambiguous else []
        for length in lengths:
            sizes = sizes + trailer_sizes(length)
        key_ends = np.cumsum(sizes + (value[1] - value[0])) - (value[1] - value[0])
        value_ends = key_ends + (value[1] - value[0])
        key_starts = key_ends - sizes
        out = np.empty(int(value_ends[-1]) if rows else 0, np.uint8)
        position = key_starts.copy()
        for index, (starts, ends) in enumerate(pieces):
            copy_pieces(source, starts, ends, out, position)
            if index < len(lengths):
                _write_lengths(lengths[index], out, position)
        copy_pieces(source, *value, out, position)
        group = np.full(rows, self.group, np.int64)
        states = np.full(rows, state, np.int16)
        return Entries(
            out, states, group, key_starts, key_ends, key_ends, value_ends, self._rewritten
        )

    def _named(self) -> str:
        return f"{self.name}, key group {self.group}"

    def _rewritten(self, position: int) -> str:
        return f"{self._named()}, rewritten byte {position}"


def _write_lengths(lengths: I64Array, out: U8Array, position: I64Array) -> None:
    """Write length trailers: base 256, low byte first."""
    sizes = trailer_sizes(lengths)
    for byte in range(int(sizes.max(initial=0))):
        rows = sizes > byte
        out[position[rows] + byte] = lengths[rows] >> (8 * byte) & 0xFF
    position += sizes
