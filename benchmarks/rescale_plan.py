"""Plans of a rescale, and operator state moved by one: `python -m benchmarks.rescale_plan`.

A plan's peer is a second; moving elements, which has none, is held against a tenth of them: ten
times the elements should take ten times as long.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

from benchmarks.measuring import Row, print_table, rate, seconds
from statelake import open_snapshot
from statelake.state_core.files.filesystem import InlineSource
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.layout.meta_info import StateMetaInfo, read_state_meta_info
from statelake.state_core.formats.operator_state.operator_file import (
    CURRENT_VERSION,
    OperatorFile,
    OperatorHeader,
    read_operator_header,
)
from statelake.state_core.formats.operator_state.operator_states import (
    encode_operator_file,
    operator_layout,
)
from statelake.state_core.model.handles import DistributionMode, OperatorHandle
from statelake.state_core.model.redistribution import (
    ElementSlice,
    StateShare,
    held_groups,
    plan_key_groups,
    plan_operator_state,
)
from tests.support.savepoints.golden_cases import golden_cases

ENTRIES = 10_000_000
KEY_GROUPS = 1 << 15
BEFORE, AFTER = 700, 1000
WIDTH = 8
SPLIT, UNION = "split", "union"
WANTED = 0.8
Work = Callable[[], object]
Plan = list[dict[str, list[ElementSlice]]]


def planned(entries: int) -> Plan:
    """Split and union state of that many elements each, and a broadcast state."""
    share, rest = divmod(entries, BEFORE)
    before = [
        {
            SPLIT: StateShare(DistributionMode.SPLIT_DISTRIBUTE, share + (index < rest)),
            UNION: StateShare(DistributionMode.UNION, share + (index < rest)),
            "rules": StateShare(DistributionMode.BROADCAST, 1),
        }
        for index in range(BEFORE)
    ]
    return plan_operator_state(before, AFTER)


def meta_infos() -> dict[str, StateMetaInfo]:
    """Real Flink's words about a split and a union state."""
    snapshot = open_snapshot(golden_cases("operator")[0].snapshot)
    states = [state for operator in snapshot.operators for state in operator.operator_states]
    found = {state.name: read_state_meta_info(DataInput(state.meta_info)) for state in states}
    return {name: found[name] for name in (SPLIT, UNION)}


class Moving:
    """Elements of eight bytes, moved as a plan says: written to a file each subtask."""

    def __init__(self, entries: int, compressed: bool) -> None:
        self.entries = entries
        self.infos = meta_infos()
        self.compressed = compressed
        data = np.full((entries, WIDTH), WIDTH, np.uint8)  # strings of seven digits, as Flink's
        numbers = np.arange(entries)
        for digit in range(1, WIDTH):
            data[:, -digit] = ord("0") + numbers // 10 ** (digit - 1) % 10
        bounds = np.arange(entries + 1, dtype=np.int64) * WIDTH
        self.elements = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), entries, [None, pa.py_buffer(bounds), pa.py_buffer(data.reshape(-1))]
        )
        share, rest = divmod(entries, BEFORE)
        self.firsts = np.arange(BEFORE) * share + np.minimum(np.arange(BEFORE), rest)
        self.plan = planned(entries)

    def write(self, name: str, slices: list[ElementSlice]) -> tuple[bytes, OperatorHandle]:
        """The file of one new subtask, with one state."""
        header = OperatorHeader(CURRENT_VERSION, self.compressed, (self.infos[name],), ())
        pieces = [
            self.elements.slice(int(self.firsts[slice_.subtask]) + slice_.first, len(slice_))
            for slice_ in slices
        ]
        elements = pa.concat_arrays(pieces) if pieces else self.elements.slice(0, 0)
        data, offsets = encode_operator_file(header, [(self.infos[name], elements)])
        return data, OperatorHandle(offsets)

    def split(self) -> None:
        """Every new subtask's split state."""
        for subtask in self.plan:
            self.write(SPLIT, subtask[SPLIT])

    def union(self) -> None:
        """Union state, written once, since a restore gives all of it to everyone; and read."""
        data, handle = self.write(UNION, self.plan[0][UNION])
        header = read_operator_header(DataInput(data, "union"))
        file = OperatorFile(InlineSource("union", data), header, handle)
        batch = operator_layout(self.infos[UNION]).decode(file, UNION, 0)
        assert batch.num_rows == self.entries  # noqa: S101 - or nothing was measured


def measure(entries: int = ENTRIES) -> list[Row]:
    """Plans, then data."""
    random = np.random.default_rng(1)
    groups = random.integers(0, 1000, KEY_GROUPS)
    plans: dict[str, Callable[[], object]] = {
        f"plan of {KEY_GROUPS:,} key groups, {BEFORE} → {AFTER} subtasks": partial(
            plan_key_groups, held_groups(groups, groups * 50), KEY_GROUPS, AFTER, BEFORE
        ),
        f"plan of {entries:,} split and as many union elements, {BEFORE} → {AFTER}": partial(
            planned, entries
        ),
    }
    rows = []
    for what, work in plans.items():
        took = seconds(work)
        rows.append(Row(what, f"{took * 1000:.0f} ms", "a second", 1 / took, 1))
    for compressed in (False, True):
        small, large = Moving(entries // 10, compressed), Moving(entries, compressed)
        form = "Snappy" if compressed else "uncompressed"
        rows += [
            _linear(f"split elements to {AFTER} files, {form}", small.split, large.split, entries),
            _linear(
                f"union elements to a file and back, {form}", small.union, large.union, entries
            ),
        ]
    return rows


def _linear(what: str, small: Work, large: Work, entries: int) -> Row:
    """How near to ten times the time ten times the elements come."""
    tenth, whole = seconds(small), seconds(large, 2)
    peer = f"a tenth of them {rate(entries // 10, tenth)}"
    return Row(what, rate(entries, whole), peer, 10 * tenth / whole, WANTED)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=ENTRIES)
    given = parser.parse_args()
    print_table("A rescale of operator state", measure(given.entries))


if __name__ == "__main__":
    main()
