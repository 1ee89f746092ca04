"""Entries sorted by key group into spill files, and assembled again.

This writes rows in any order to a savepoint in bounded memory: batch after batch is sorted by key
group, encoded and appended to a file; a key group is then the concatenation of its runs in all
files. Only one batch, the positions of runs, and a piece of a key group are in memory. As the
positions give the size of everything in advance, files can be cut into parts for tasks.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from statelake.state_core.files.filesystem import ByteSource, Directory
from statelake.state_core.formats.writing.unified_encode import (
    END_OF_KEY_GROUP,
    StateRows,
    encode_rows,
)
from statelake.state_core.kernels.hashing import fingerprint_entries
from statelake.state_core.kernels.scan import BETWEEN_RUNS, scan_unified
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.serializers.framework.columns import I64Array, U8Array

LAST_OF_RUN = 0x80
STATE_ID_BYTES = 2
PART_BYTES = 128 << 20  # a part of a file that one task writes
LARGE_SHARE = 6  # a file with less than a sixth of all bytes does not delay the others
PIECE_BYTES = 16 << 20  # the part of a key group in memory at once
READS_AT_ONCE = 4  # if reads are requests
# the columns of a spill's runs; a planned part has two more, the second with these flags
GROUP, STATE, START, END, LAST, COUNT, FILE, FLAGS = range(8)
BEGINS_PIECE, BEGINS_STATE, BEGINS_GROUP, ENDS_STATE, ENDS_GROUP = (1 << bit for bit in range(5))
Runs: TypeAlias = npt.NDArray[np.int64]
GroupCheck: TypeAlias = Callable[[Entries], None]


@dataclass(frozen=True)
class Spill:
    """Entries sorted by key group in a file, one run for each state and key group of a batch.

    Attributes:
        name: The file.
        runs: Rows of key group, state id, start, end, start of the last entry, and entries.
        prefix: Bytes of the key-group prefix.
    """

    name: str
    runs: Runs
    prefix: int

    @property
    def entries(self) -> int:
        """Return the number of entries in it."""
        return int(self.runs[:, COUNT].sum())


def spill_rows(
    directory: Directory, batches: Iterable[StateRows], prefix: int, attempt: str = ""
) -> Spill:
    """Write rows, each batch in order of key group, to a new file.

    Args:
        directory: The directory of the file.
        batches: The rows.
        prefix: Bytes of the key-group prefix.
        attempt: The prefix of the file's name, from a `SavepointDirectory`.

    Raises:
        EncodeError: A value that its serializer can't write.
    """
    name = f"{attempt}{uuid.uuid4()}.spill"
    all_runs: list[Runs] = []
    size = 0
    with directory.open_output(name) as file:
        for rows in batches:
            if not len(rows.batch):
                continue
            encoded = encode_rows(rows, prefix)
            file.write(encoded.data.data)
            all_runs.append(runs_of(encoded, 4 + prefix, size))
            size += len(encoded.data)
    runs = np.concatenate(all_runs) if all_runs else np.empty((0, FILE), np.int64)
    return Spill(name, runs, prefix)


def runs_of(entries: Entries, head: int, base: int) -> Runs:
    """Return the runs of encoded entries, for a spill file in which they begin at `base`."""
    groups = entries.group_of
    first = np.flatnonzero(np.append(True, groups[1:] != groups[:-1]))
    last = np.append(first[1:], len(groups)) - 1
    starts = entries.key_start - head + base
    columns = [
        groups[first],
        entries.state_of[first].astype(np.int64),
        starts[first],
        entries.value_end[last] + base,
        starts[last],
        last - first + 1,
    ]
    return np.stack(columns, axis=1)


@dataclass(frozen=True)
class PlannedPart:
    """The content of a part of a keyed file, picklable.

    Attributes:
        files: The spill files of its runs.
        runs: Rows like a `Spill`'s, in the order of the file; with the spill file of each, and
            flags for the first and last of a key group.
        prefix: Bytes of the key-group prefix.
    """

    files: tuple[str, ...]
    runs: Runs
    prefix: int

    @property
    def size(self) -> int:
        """The number of bytes of its entries."""
        return int(_sizes(self.runs).sum())


def plan_parts(
    spills: Sequence[Spill],
    ranges: Sequence[KeyGroupRange],
    *,
    whole_files: bool = False,
    whole_groups: bool = False,
) -> list[list[PlannedPart]]:
    """Return the consecutive parts of each file: one, or several of about `PART_BYTES` each.

    Only a file that is large compared with the others is cut, as joining parts means writing them
    again.

    Args:
        spills: The spills from which the files are assembled.
        ranges: Each file's key groups.
        whole_files: Whether each file is one part.
        whole_groups: Whether no part ends within a key group.
    """
    runs = _in_order(spills, whole_groups=whole_groups)
    begins = np.searchsorted(runs[:, GROUP], [key_groups.first for key_groups in ranges])
    ends = np.searchsorted(runs[:, GROUP], [key_groups.last + 1 for key_groups in ranges])
    files = [runs[begin:end] for begin, end in zip(begins, ends, strict=True)]
    large = _sizes(runs).sum() / LARGE_SHARE

    def parts_of(file: Runs) -> list[Runs]:
        if whole_files or _sizes(file).sum() <= large:
            return [file]
        return np.split(file, _cuts(file))

    return [[_part(spills, part) for part in parts_of(file)] for file in files]


def _in_order(spills: Sequence[Spill], *, whole_groups: bool) -> Runs:
    """Return all runs in the order of files, in pieces of `PIECE_BYTES` if groups may be cut."""
    counts = [len(spill.runs) for spill in spills]
    runs = np.empty((sum(counts), FLAGS + 1), np.int64)
    if spills:
        runs[:, :FILE] = np.concatenate([spill.runs for spill in spills])
    runs[:, FILE] = np.repeat(np.arange(len(spills)), counts)
    runs = runs[np.lexsort((runs[:, START], runs[:, FILE], runs[:, STATE], runs[:, GROUP]))]
    group = np.diff(runs[:, GROUP], prepend=-1) != 0
    state = group | (np.diff(runs[:, STATE], prepend=-1) != 0)
    piece = group
    if not whole_groups:
        sizes = _sizes(runs)
        behind = np.cumsum(sizes)
        in_group = behind - (behind - sizes)[group][np.cumsum(group) - 1]
        piece = group | (np.diff(in_group // PIECE_BYTES, prepend=0) != 0)
    runs[:, FLAGS] = BEGINS_PIECE * piece + BEGINS_STATE * state + BEGINS_GROUP * group
    # one ends where the next begins, and the last where the first would begin
    runs[:, FLAGS] += ENDS_STATE * np.roll(state, -1) + ENDS_GROUP * np.roll(group, -1)
    return runs


def _cuts(runs: Runs) -> Runs:
    """Return the starts of a file's parts, except the first: at pieces, about equally large."""
    sizes = _sizes(runs)
    total = int(sizes.sum())
    share = -(-total // max(1, -(-total // PART_BYTES)))
    pieces = np.flatnonzero(runs[:, FLAGS] & BEGINS_PIECE)
    before = (np.cumsum(sizes) - sizes)[pieces]
    begin: Runs = pieces[1:][np.diff(before // max(1, share)) != 0]
    return begin


def _part(spills: Sequence[Spill], runs: Runs) -> PlannedPart:
    used, runs[:, FILE] = np.unique(runs[:, FILE], return_inverse=True)
    files = tuple(spills[index].name for index in used.tolist())
    return PlannedPart(files, runs, spills[0].prefix if spills else 0)


def _sizes(runs: Runs) -> Runs:
    return runs[:, END] - runs[:, START]


def gathered_groups(
    directory: Directory, part: PlannedPart, check: GroupCheck | None = None
) -> Iterator[tuple[int | None, memoryview]]:
    """Yield each key group's bytes: its states' runs from all spills, with ids, flags and the end.

    They are yielded in pieces, for `write_keyed_part`.

    Args:
        directory: The directory of the spills.
        part: The key groups, or pieces of them.
        check: Called with all entries of each piece, and may refuse them; only for a part that was
            planned with `whole_groups`.
    """
    sources = [directory.source(name) for name in part.files]
    begins = np.flatnonzero(part.runs[:, FLAGS] & BEGINS_PIECE)
    with ThreadPoolExecutor(READS_AT_ONCE) as pool:  # starts threads only for work
        run = map if directory.local else pool.map
        for piece in np.split(part.runs, begins[1:]) if len(begins) else []:
            data = _gathered(sources, piece, run)
            if check is not None:
                check(_scanned(data, part.prefix, piece))
            yield int(piece[0, GROUP]) if piece[0, FLAGS] & BEGINS_GROUP else None, data.data


def _gathered(
    sources: Sequence[ByteSource], runs: Runs, run_reads: Callable[..., Iterable[None]]
) -> U8Array:
    """Return consecutive runs of one key group."""
    begins = int(np.count_nonzero(runs[:, FLAGS] & BEGINS_STATE))
    ending = END_OF_KEY_GROUP if runs[-1, FLAGS] & ENDS_GROUP else b""
    data = np.empty(int(_sizes(runs).sum()) + STATE_ID_BYTES * begins + len(ending), np.uint8)
    reads, last_entries, at = [], [], 0
    for run in runs.tolist():
        if run[FLAGS] & BEGINS_STATE:
            data[at : at + 2] = np.frombuffer(run[STATE].to_bytes(2, "big"), np.uint8)
            at += STATE_ID_BYTES
        size = run[END] - run[START]
        reads.append((sources[run[FILE]], run[START], data[at : at + size]))
        if run[FLAGS] & ENDS_STATE:
            last_entries.append(at + run[LAST] - run[START])
        at += size
    for _ in run_reads(lambda read: read[0].read_into(*read[1:]), reads):
        pass
    data[np.array(last_entries, np.int64) + 4] |= LAST_OF_RUN
    data[at:] = np.frombuffer(ending, np.uint8)
    return data


def _scanned(data: U8Array, prefix: int, runs: Runs) -> Entries:
    """Return the positions of the entries of one key group."""
    group, count = int(runs[0, GROUP]), int(runs[:, COUNT].sum())
    state_of = np.empty(count, np.int16)
    group_of, keys, key_ends, values, value_ends = (np.empty(count, np.int64) for _ in range(5))
    progress = np.array([0, 0, BETWEEN_RUNS, 0], np.int64)
    scan_unified(
        data, np.array([group], np.int32), np.zeros(1, np.int64), np.array([len(data)], np.int64),
        prefix, 1 << 15, True, progress, state_of, group_of, keys, key_ends, values, value_ends,
    )  # fmt: skip
    return Entries(
        data, state_of, group_of, keys, key_ends, values, value_ends,
        lambda at: f"key group {group}, byte {at}",
    )  # fmt: skip


def find_twin(entries: Entries) -> int:
    """Return an entry with the state and key of another entry; -1 without one."""
    count = len(entries)
    low, high = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    ends, slots = entries.key_end, np.arange(count)
    fingerprint_entries(
        entries.data, entries.key_start, ends, ends, ends, slots.astype(np.int64), low, high
    )
    order = np.lexsort((slots, high, low, entries.state_of))
    left, right = order[:-1], order[1:]
    alike = (low[left] == low[right]) & (high[left] == high[right])
    alike &= entries.state_of[left] == entries.state_of[right]
    twins = zip(left[alike].tolist(), right[alike].tolist(), strict=True)
    return next((b for a, b in twins if _key(entries, a) == _key(entries, b)), -1)


def _key(entries: Entries, row: int) -> bytes:
    where: tuple[I64Array, I64Array] = (entries.key_start, entries.key_end)
    return entries.data[int(where[0][row]) : int(where[1][row])].tobytes()
