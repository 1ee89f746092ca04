"""Column families read from their table files, without RocksDB: runs of blocks, merged by a kernel.

Files whose keys do not overlap form one run, so a level of RocksDB is one run, and mostly each file
of level 0. About a megabyte of a run is in memory at a time, or one larger block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from statelake.state_core.bounds import HELD_BYTES, SST_BYTES, Budget
from statelake.state_core.errors import OversizedError, StateError
from statelake.state_core.files.filesystem import ByteSource
from statelake.state_core.formats.keyed.rocksdb.sst_blocks import BlockRun
from statelake.state_core.formats.keyed.rocksdb.sst_file import KeyBounds, SstFile
from statelake.state_core.kernels import sst_merge as merge
from statelake.state_core.kernels.sst import SLACK
from statelake.state_core.model.entries import Entries
from statelake.state_core.serializers.framework.columns import I64Array, U8Array

_Array = TypeVar("_Array", U8Array, I64Array)
Runs: TypeAlias = tuple[tuple[SstFile, ...], ...]

BATCH_ROWS = 1 << 17
BATCH_BYTES = 8 << 20
READ_BYTES = 1 << 18
RUN_BYTES = 1 << 20
FIRST_ROOM = 1 << 16
BLOCKS = 512
KEY_ROOM = 256
PIECES = 64
_STRAYED = "a key that is not where the index has it"
PROBLEMS = {
    merge.NO_ENTRY: "an entry that does not fit into its block",
    merge.NO_KEY: "a key without its key group",
    merge.UNKNOWN_KIND: "an entry of a kind that Flink never writes",
    merge.UNORDERED: "keys that are out of order",
    merge.STRAYED: _STRAYED,
}


@dataclass(frozen=True)
class ManifestFile:
    """A table file in the manifest.

    Attributes:
        table: The file.
        level: Its level.
        start: Its first key.
        end: Its last key.
    """

    table: SstFile
    level: int
    start: bytes
    end: bytes


def open_tables(
    live: Iterable[Mapping[str, Any]],
    sources: Mapping[str, ByteSource],
    sizes: Mapping[str, int],
    prefix: int,
) -> dict[str, Runs]:
    """Return the column families that can be read here: all files are known and readable.

    Args:
        live: Files of the manifest, as rocksdict lists them.
        sources: Bytes of each file, by its name.
        sizes: The bytes of all files of each column family.
        prefix: Bytes of the key-group prefix.
    """
    families: dict[str, list[ManifestFile]] = {name: [] for name in sizes}
    for file in live:
        try:
            table = SstFile.open(sources[file["name"].lstrip("/")], prefix)
        except OversizedError:
            raise  # RocksDB would unpack it
        except (StateError, KeyError):
            continue  # its family then lacks a file, and RocksDB reports the fault
        if table is None or table.source.size != file["size"]:
            continue
        family = families.get(table.column_family.decode("utf-8", "replace"))
        if family is not None:
            start, end = file["start_key"], file["end_key"]
            table = replace(table, first_key=start, last_key=end)
            family.append(ManifestFile(table, file["level"], start, end))
    return {
        name: plan_runs(files)
        for name, files in families.items()
        if sum(file.table.source.size for file in files) == sizes[name]
    }


def plan_runs(files: Sequence[ManifestFile]) -> Runs:
    """Return runs of files, each of which begins behind the one before it."""
    runs: list[list[ManifestFile]] = []
    for file in sorted(files, key=lambda table: (table.start, table.end)):
        fitting = [run for run in runs if run[-1].end < file.start]
        if fitting:
            max(fitting, key=lambda run: (run[-1].level == file.level, run[-1].end)).append(file)
        else:
            runs.append([file])
    return tuple(tuple(file.table for file in run) for run in runs)


class OutputBatch:
    """An output buffer for entries, of one column family or several.

    Args:
        place: Returns the name of a position in it, for messages.
    """

    def __init__(self, place: Callable[[int], str]) -> None:
        self.place = place
        self.data = np.empty(BATCH_BYTES, np.uint8)
        self.state_of = np.empty(BATCH_ROWS, np.int16)
        self.columns = [np.empty(BATCH_ROWS, np.int64) for _ in range(4)]
        self.rows = self.position = 0

    def entries(self) -> Entries:
        """Return the entries in the buffer; the next output overwrites them."""
        rows = slice(self.rows)
        groups, keys, values, ends = (column[rows] for column in self.columns)
        self.rows = self.position = 0
        return Entries(
            self.data, self.state_of[rows], groups, keys, values, values, ends, self.place
        )


class _FileRun:
    """Consecutive files, read some blocks at a time."""

    def __init__(self, files: Sequence[SstFile], bounds: KeyBounds) -> None:
        self.spans = [(file, *file.blocks_of(bounds)) for file in files]
        self.spans = [(file, first, behind) for file, first, behind in self.spans if first < behind]
        self.spans.reverse()
        self.blocks: BlockRun | None = None
        self.budget = Budget(0)
        self.next = 0
        self.most = BLOCKS
        self.file: SstFile | None = None
        self.offsets = np.zeros(0, np.int64)

    @property
    def has_more(self) -> bool:
        """Return whether some blocks are not unpacked yet."""
        return bool(self.spans) or self.blocks is None or self.next < len(self.blocks.starts)

    def read(self) -> tuple[BlockRun, SstFile] | None:
        """Return the next blocks with their table; None at the end."""
        while self.blocks is None or self.next == len(self.blocks.starts):
            if not self.spans:
                return None
            file, first, behind = self.spans.pop()
            sizes = np.cumsum(file.block_sizes[first : min(behind, first + self.most)])
            count = max(1, int(np.searchsorted(sizes, READ_BYTES)))
            while True:
                count = min(count, behind - first)
                try:
                    self.blocks = file.read(first, first + count)
                    break
                except StateError:
                    if count == 1:
                        raise
                    count = self.most = count // 2  # entries before the damage come first
            if file is not self.file:
                self.budget = Budget(file.source.size)
            self.budget.spend(SST_BYTES, int(self.blocks.sizes.sum()), file.source.name)
            self.file, self.next = file, 0
            if first + count < behind:
                self.spans.append((file, first + count, behind))
        assert self.file is not None  # noqa: S101 - blocks have one
        return self.blocks, self.file


class FamilyTables:
    """One column family, read from front to back.

    Args:
        runs: Its files.
        state: The state's id, for the entries.
        bounds: The bounds of the keys.
        prefix: Bytes of the key-group prefix.
    """

    def __init__(
        self, runs: Sequence[Sequence[SstFile]], state: int, bounds: KeyBounds, prefix: int
    ) -> None:
        all_runs = [_FileRun(files, bounds) for files in runs]
        self.runs = [run for run in all_runs if run.spans]
        self.label, self.prefix = state, prefix
        self.bounds = np.frombuffer(bounds.first + (bounds.behind or b""), np.uint8)
        self.first_size, self.first_group = len(bounds.first), bounds.first_group(prefix)
        self.behind_group = bounds.behind_group(prefix)
        self.group = self.first_group if self.runs else -1
        count = len(self.runs)
        self.run_bytes = np.zeros(count, np.int64)
        self.stored = sum(file.source.size for run in self.runs for file, _, _ in run.spans)
        self.cursors = np.zeros(count * merge.CURSOR, np.int64)
        self.cursors[merge.WAITING :: merge.CURSOR] = 1
        self.cursors[merge.BLOCK :: merge.CURSOR] = -1
        self.loaded = np.zeros(count, np.int64)
        self.starts = np.zeros(count * BLOCKS, np.int64)
        self.ends = np.zeros(count * BLOCKS, np.int64)
        self.order = np.zeros(count, np.int64)
        self.state = np.zeros(merge.STATE_CELLS, np.int64)
        self.room, self.key_room = FIRST_ROOM, KEY_ROOM
        self.data = np.empty(0, np.uint8)
        self.keys = np.empty(count * KEY_ROOM, np.uint8)
        self.scratch = np.empty(0, np.uint8)
        self.pieces = np.empty(0, np.int64)
        self.full = False  # `out` was full, and must be emptied first
        self.current = np.empty(0, np.uint8)

    def fill(self, out: OutputBatch, last: int) -> bool:
        """Output entries up to the key group `last`; return whether that is done, or `out` is full.

        Raises:
            CorruptSnapshotError: A block is damaged.
        """
        if not 0 <= self.group <= last:
            return True
        if not self.data.size:
            self.data = np.empty(len(self.runs) * self.room + SLACK, np.uint8)
        state = self.state
        state[merge.ROWS], state[merge.POSITION] = out.rows, out.position
        if self.full:
            self._carry_over(out)
        try:
            while True:
                status = self._merge(out, last)
                if status == merge.DONE:
                    self.group = int(state[merge.GROUP])
                    if self.group < 0:
                        self._check_ends()
                    return True
                if status == merge.FULL:
                    start, behind = int(state[merge.KEY_START]), int(state[merge.KEY_BEHIND])
                    self.current = out.data[start : behind if state[merge.OPEN] else start].copy()
                    self.full = True
                    return False
                self._resolve(status)
        finally:
            out.rows, out.position = int(state[merge.ROWS]), int(state[merge.POSITION])

    def _merge(self, out: OutputBatch, last: int) -> int:
        return int(
            merge.merge_runs(
                self.data, self.room, self.starts, self.ends, BLOCKS, self.cursors, self.keys,
                self.key_room, self.order, self.state, self.scratch, self.pieces, self.prefix,
                self.bounds, self.first_size, self.first_group, self.behind_group, last,
                self.label, out.data, out.state_of, *out.columns,
            )
        )  # fmt: skip

    def _carry_over(self, out: OutputBatch) -> None:
        """Copy the current key, and room for what follows, to an empty batch."""
        size = int(self.state[merge.WANTED]) + self.current.size
        if size > out.data.size:
            out.data = np.empty(size + size // 8, np.uint8)
        out.data[: self.current.size] = self.current
        self.state[merge.KEY_START], self.state[merge.KEY_BEHIND] = 0, self.current.size
        self.full = False

    def _resolve(self, status: int) -> None:
        run = int(self.state[merge.RUN])
        if status == merge.WANTING:
            self._load(run)
        elif status == merge.GROWING_KEYS:
            wider = 2 * int(self.state[merge.WANTED])
            self.keys = _spread(self.keys, self.key_room, wider, len(self.runs))
            self.key_room = wider
        elif status == merge.GROWING_PIECES:
            self.scratch = _longer(self.scratch, int(self.state[merge.WANTED]))
            self.pieces = _longer(self.pieces, PIECES)
        else:
            self._raise(run)

    def _load(self, run: int) -> None:
        """Read a run's next blocks, or end it."""
        reader, at = self.runs[run], run * merge.CURSOR
        blocks_read = reader.read()
        if blocks_read is None:
            self.cursors[at + merge.WAITING] = 0
            return
        blocks, file = blocks_read
        first = reader.next
        sizes = np.cumsum(blocks.sizes[first : first + reader.most])
        count = max(1, int(np.searchsorted(sizes, RUN_BYTES, side="right")))
        size = int(sizes[count - 1]) + SLACK
        self.run_bytes[run] = size
        if (total := int(self.run_bytes.sum())) > HELD_BYTES.allowed(self.stored):
            raise HELD_BYTES.exceeded(total, file.source.name, self.stored)
        if size > self.room:
            wider = size if size > RUN_BYTES else min(2 * size, RUN_BYTES + SLACK)
            self.data = _spread(self.data, self.room, wider, len(self.runs))
            self.room = wider
        target = self.data[run * self.room : (run + 1) * self.room]
        try:
            starts, ends = file.unpack(blocks, slice(first, first + count), target)
        except StateError:
            if count == 1:
                raise
            reader.most = count // 2
            self._load(run)
            return
        rows = slice(run * BLOCKS, run * BLOCKS + count)
        self.starts[rows], self.ends[rows] = starts, ends
        reader.offsets = blocks.offset + blocks.starts[first : first + count]
        reader.next = first + count
        cursor = self.cursors[at : at + merge.CURSOR]
        cursor[merge.AT] = cursor[merge.END] = 0
        cursor[merge.BLOCK], cursor[merge.BLOCKS_BEHIND] = -1, count
        cursor[merge.FRESH] = not self.loaded[run]
        self.loaded[run] = 1

    def _check_ends(self) -> None:
        """Refuse a run that passes the last key before its last block."""
        for run in self.order[: int(self.state[merge.LIVE])].tolist():
            cursor = self.cursors[run * merge.CURSOR : (run + 1) * merge.CURSOR]
            if cursor[merge.BLOCK] + 1 < cursor[merge.BLOCKS_BEHIND] or self.runs[run].has_more:
                self.state[merge.WHY] = merge.STRAYED
                self._raise(run)

    def _raise(self, run: int) -> None:
        reader = self.runs[run]
        block = int(self.cursors[run * merge.CURSOR + merge.BLOCK])
        assert reader.file is not None  # noqa: S101 - it has read something
        raise reader.file.fault(PROBLEMS[int(self.state[merge.WHY])], int(reader.offsets[block]))


def _spread(data: U8Array, room: int, wider: int, runs: int) -> U8Array:
    """Return the array with more room for each run."""
    spread = np.empty(runs * wider + SLACK, np.uint8)
    for run in range(runs):
        spread[run * wider : run * wider + room] = data[run * room : (run + 1) * room]
    return spread


def _longer(data: _Array, size: int) -> _Array:
    """Return the array with more room."""
    return np.resize(data, max(2 * data.size, size))
