"""Entries sorted by key group into spill files, and the pieces put together again.

What makes a savepoint of rows in any order, in bounded memory: batch after batch is sorted by key
group, encoded and appended to a file; a key group is then what its runs in all files hold, one
behind the other. Nothing is held but one batch, the places of runs, and one key group.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from state_core.files.filesystem import ByteSource, Directory
from state_core.formats.writing.unified_encode import END_OF_KEY_GROUP, StateRows, encode_rows
from state_core.kernels.hashing import fingerprint_entries
from state_core.kernels.scan import BETWEEN_RUNS, scan_unified
from state_core.model.handles import KeyGroupRange
from state_core.model.snapshot import Entries
from state_core.serializers.framework.columns import I64Array, U8Array

__all__ = ["Spill", "find_twin", "gathered_groups", "runs_of", "spill_rows"]

LAST_OF_RUN = 0x80
STATE_ID_BYTES = 2
PART_BYTES = 16 << 20  # what is held of a key group at once
# the columns of a spill's runs
GROUP, STATE, START, END, LAST, COUNT, FILE = range(7)
GroupCheck: TypeAlias = Callable[[Entries], None]


@dataclass(frozen=True)
class Spill:
    """Entries sorted by their key group, one run a state and key group of a batch, in a file.

    Attributes:
        name: The file.
        runs: Rows of key group, state id, start, end, start of the last entry, and entries.
        prefix: Bytes of the key-group prefix.
    """

    name: str
    runs: npt.NDArray[np.int64]
    prefix: int

    @property
    def entries(self) -> int:
        """How many entries it holds."""
        return int(self.runs[:, COUNT].sum())

    @property
    def size(self) -> int:
        """The bytes of its entries."""
        return int((self.runs[:, END] - self.runs[:, START]).sum())

    def within(self, key_groups: KeyGroupRange) -> Spill:
        """Only the runs of some key groups."""
        inside = (self.runs[:, GROUP] >= key_groups.first) & (
            self.runs[:, GROUP] <= key_groups.last
        )
        return Spill(self.name, self.runs[inside], self.prefix)


def spill_rows(
    directory: Directory, batches: Iterable[StateRows], prefix: int, attempt: str = ""
) -> Spill:
    """Write rows, each batch in order of key group, to a new file.

    Args:
        directory: Where.
        batches: The rows.
        prefix: Bytes of the key-group prefix.
        attempt: What the file's name begins with, of a `SavepointDirectory`.

    Raises:
        EncodeError: A value that its serializer can't write.
    """
    name = f"{attempt}{uuid.uuid4()}.spill"
    all_runs: list[npt.NDArray[np.int64]] = []
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


def runs_of(entries: Entries, head: int, base: int) -> npt.NDArray[np.int64]:
    """The runs of encoded entries, for a spill file in which they begin at `base`."""
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


def gathered_groups(
    directory: Directory, spills: Sequence[Spill], check: GroupCheck | None = None
) -> Iterator[tuple[int | None, memoryview]]:
    """Each key group's bytes: its states' runs from all spills, with ids, flags and the end.

    A large one comes in parts, as `write_keyed_part` wants them, unless it is checked as a whole.

    Args:
        directory: Where the spills are.
        spills: The spills, cut to the selected key groups.
        check: Shown all entries of each key group; it may refuse them.
    """
    runs = np.concatenate(
        [
            np.column_stack((spill.runs, np.full(len(spill.runs), index, np.int64)))
            for index, spill in enumerate(spills)
        ]
        or [np.empty((0, FILE + 1), np.int64)]
    )
    runs = runs[np.lexsort((runs[:, START], runs[:, FILE], runs[:, STATE], runs[:, GROUP]))]
    bounds = np.flatnonzero(np.diff(runs[:, GROUP])) + 1
    used = np.unique(runs[:, FILE]).tolist()
    sources = {index: directory.source(spills[index].name) for index in used}
    for mine in np.split(runs, bounds) if len(runs) else []:
        begins = np.append(True, np.diff(mine[:, STATE]) != 0)
        ends = np.append(begins[1:], True)
        behind = np.cumsum(mine[:, END] - mine[:, START])
        size = int(behind[-1]) + 1 if check is not None else PART_BYTES
        parts = np.split(np.arange(len(mine)), np.flatnonzero(np.diff(behind // size)) + 1)
        group: int | None = int(mine[0, GROUP])
        for part in parts:
            ends_group = part is parts[-1]
            data = _gathered(sources, mine[part], begins[part], ends[part], ends_group=ends_group)
            if check is not None:
                check(_scanned(data, spills[0].prefix, mine))
            yield group, data.data
            group = None


def _gathered(
    sources: Mapping[int, ByteSource],
    runs: npt.NDArray[np.int64],
    begins: npt.NDArray[np.bool_],
    ends: npt.NDArray[np.bool_],
    *,
    ends_group: bool,
) -> U8Array:
    """Runs of one key group.

    Args:
        sources: The spill files.
        runs: The runs, which follow on each other.
        begins: Whether each is the first of its state.
        ends: Whether each is the last of its state.
        ends_group: Whether the last of them ends the key group.
    """
    sizes = runs[:, END] - runs[:, START]
    ending = END_OF_KEY_GROUP if ends_group else b""
    total = int(sizes.sum()) + STATE_ID_BYTES * int(begins.sum()) + len(ending)
    data = np.empty(total, np.uint8)
    at = 0
    for run, first, last in zip(runs.tolist(), begins.tolist(), ends.tolist(), strict=True):
        if first:
            data[at : at + 2] = np.frombuffer(run[STATE].to_bytes(2, "big"), np.uint8)
            at += STATE_ID_BYTES
        size = run[END] - run[START]
        sources[run[FILE]].read_into(run[START], data[at : at + size])
        if last:
            data[at + run[LAST] - run[START] + 4] |= LAST_OF_RUN
        at += size
    data[at:] = np.frombuffer(ending, np.uint8)
    return data


def _scanned(data: U8Array, prefix: int, runs: npt.NDArray[np.int64]) -> Entries:
    """Where the entries of one key group lie."""
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
    """An entry whose state and key another has too; -1 if there is none."""
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
