"""A handful of entries as Flink's backends wrote them, in both forms, down to each byte.

The job: key 1 (or `k1`) has a value 7, a list `a`, `bc`, a map `u` -> 9, `v` -> 10, timers at
-5 and 1000, and where keys are strings a value `q` under the namespace `NS`; key 2 has a value 8.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.keyed.heap.heap_native import HeapKeyedFile
from statelake.state_core.formats.keyed.keyed_files import open_keyed
from statelake.state_core.formats.keyed.unified_file import UnifiedKeyedFile
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.formats.operator_state.operator_file import open_operator_file
from statelake.state_core.formats.operator_state.operator_states import (
    encode_operator_file,
    operator_layout,
)
from statelake.state_core.model.entries import KeyedFile
from statelake.state_core.model.handles import (
    DistributionMode,
    InlineHandle,
    KeyGroupRange,
    KeyGroupsHandle,
    KeyGroupsKind,
    OperatorHandle,
    PartitionOffsets,
)
from tests.support.savepoints.golden_cases import GOLDEN

VECTORS = GOLDEN / "vectors"
LINES = (VECTORS / "backend_dumps.txt").read_text("utf-8").splitlines()
NOWHERE = StateFiles(Directory("nowhere"))


@dataclass(frozen=True)
class Dump:
    """One job's bytes: its key groups, those of its two keys, and what its keys are."""

    name: str
    groups: int
    first: int
    second: int
    keys: tuple[Any, Any]


DUMPS = [
    Dump("long4", 4, 2, 3, (1, 2)),
    Dump("long4z", 4, 2, 3, (1, 2)),
    Dump("str4", 4, 3, 2, ("k1", "k2")),
    Dump("str200", 200, 51, 26, ("k1", "k2")),
]
every_dump = pytest.mark.parametrize("dump", DUMPS, ids=[dump.name for dump in DUMPS])
every_form = pytest.mark.parametrize("form", ["canon", "native"])


def offsets_of(dump: Dump, form: str) -> tuple[int, ...]:
    """Where each key group begins, 0 where the canonical form has nothing."""
    at = next(i for i, line in enumerate(LINES) if line.startswith(f"dump_{dump.name}_{form}"))
    pairs = [pair.split(":") for pair in LINES[at + 1].split()[1:]]
    found = {int(group): int(offset) for group, offset in pairs}
    if (dump.name, form) != ("str200", "native"):
        return tuple(found.get(group, 0) for group in range(dump.groups))
    # this list is cut off: an empty key group takes its number and six bytes for each of 5 states
    size = (VECTORS / "dump_str200_native.bin").stat().st_size
    known = [found[group] for group in range(38)]
    full = range(38, dump.first + 1)
    empty = range(dump.first + 1, dump.groups)
    before = [known[-1] + 34 * (group - 37) for group in full]
    return (*known, *before, *(size - 34 * (dump.groups - group) for group in empty))


def opened(
    dump: Dump, form: str, kind: KeyGroupsKind | None = None, data: bytes | None = None
) -> KeyedFile:
    """The dump as a file, with the handle that Flink gave it or another kind of handle."""
    if kind is None:
        kind = KeyGroupsKind.SAVEPOINT if form == "canon" else KeyGroupsKind.NATIVE
    held = data or (VECTORS / f"dump_{dump.name}_{form}.bin").read_bytes()
    handle = KeyGroupsHandle(kind, 0, offsets_of(dump, form), InlineHandle("dump", held))
    found = open_keyed(handle, NOWHERE, dump.groups)
    assert found is not None
    return found


def rows(file: KeyedFile) -> dict[str, list[dict[str, Any]]]:
    """Every state's rows, key group after key group."""
    found: dict[str, list[dict[str, Any]]] = {}
    for index, state in enumerate(file.states):
        held = found.setdefault(state.name, [])
        for entries in file.entries():
            held += file.decode(index, entries.of_state(index)).to_pylist()
    return found


@every_form
@every_dump
def test_the_job_is_read(dump: Dump, form: str) -> None:
    """Values, lists, maps, timers and namespaces, whichever backend form holds them."""
    one, two = dump.keys
    place = {"key_group": dump.first, "key": one, "namespace": None, "raw_key": None}
    plain = {**place, "raw_value": None}
    other = {**plain, "key_group": dump.second, "key": two}
    found = rows(opened(dump, form))
    assert sorted(found.pop("val"), key=lambda row: row["value"]) == [
        {**plain, "value": 7},
        {**other, "value": 8},
    ]
    assert found.pop("mp") == [
        {**plain, "user_key": "u", "value": 9},
        {**plain, "user_key": "v", "value": 10},
    ]
    assert found.pop("lst") == [{**plain, "value": ["a", "bc"]}]
    assert found.pop("_timer_state/event_my") == [
        {**place, "timestamp": -5},
        {**place, "timestamp": 1000},
    ]
    scoped = found.pop("nsv", [])
    assert scoped == ([{**plain, "namespace": "NS", "value": "q"}] if one == "k1" else [])
    assert not found


@every_dump
def test_both_forms_have_the_same_entries(dump: Dump) -> None:
    """The heap backend's form comes out as the very entries of the canonical form."""
    pieces = []
    for form in ("canon", "native"):
        file = opened(dump, form)
        found = set()
        for entries in file.entries():
            bounds = (entries.key_start, entries.key_end, entries.value_start, entries.value_end)
            for row, (a, b, c, d) in enumerate(zip(*(x.tolist() for x in bounds), strict=True)):
                name = file.states[int(entries.state_of[row])].name
                held = entries.data[a:b].tobytes(), entries.data[c:d].tobytes()
                found.add((name, int(entries.group_of[row]), *held))
        pieces.append(found)
    assert pieces[0] == pieces[1]
    assert len(pieces[0]) == 7 + (dump.keys[0] == "k1")


@pytest.mark.parametrize("kind", [KeyGroupsKind.LEGACY, KeyGroupsKind.NATIVE])
@every_dump
def test_old_handles_are_told_apart_by_their_bytes(dump: Dump, kind: KeyGroupsKind) -> None:
    """Tags 3 and 12 stand for either form: older RocksDB snapshots had the canonical one."""
    canonical, native = opened(dump, "canon", kind), opened(dump, "native", kind)
    assert isinstance(canonical, UnifiedKeyedFile)
    assert isinstance(native, HeapKeyedFile)
    by_key = {row: sorted(map(str, held)) for row, held in rows(canonical).items()}
    assert by_key == {row: sorted(map(str, held)) for row, held in rows(native).items()}


@every_form
@every_dump
def test_key_groups_are_read_alone(dump: Dump, form: str) -> None:
    """Asking for one key group gives its entries only."""
    file = opened(dump, form)
    for group, count in ((dump.first, 6 + (dump.keys[0] == "k1")), (dump.second, 1), (0, 0)):
        found = [entries.group_of for entries in file.entries(KeyGroupRange(group, group))]
        assert sum(map(len, found)) == count
        assert all((groups == group).all() for groups in found)


@every_dump
def test_prefixes_of_one_and_two_bytes(dump: Dump) -> None:
    """Above 128 key groups a key begins with two bytes; a wrong guess is refused, not misread."""
    file = opened(dump, "canon")
    assert isinstance(file, UnifiedKeyedFile)
    assert file.file.prefix == (2 if dump.groups == 200 else 1)


# ----------------------------------------------------------------------------- operator state


def operator_dumps() -> dict[str, tuple[bytes, OperatorHandle]]:
    """The two dumps of operator state, plain and compressed, with their handles."""
    found = {}
    for line, data in pairwise(LINES):
        if line.startswith("OP "):
            states = re.findall(r"(\w+)=StateMetaInfo\{offsets=\[(.*?)\], \w+=(\w+)\}", line)
            handle = OperatorHandle(
                {
                    name: PartitionOffsets(
                        DistributionMode[mode], tuple(int(at) for at in offsets.split(",") if at)
                    )
                    for name, offsets, mode in states
                },
                None,
            )
            found[line.split()[1]] = bytes.fromhex(data.strip()), handle
    return found


OPERATOR_DUMPS = operator_dumps()


@pytest.mark.parametrize("name", OPERATOR_DUMPS)
def test_operator_state_is_read(name: str) -> None:
    """List, union and broadcast state, plain and in one Snappy stream with offsets into it."""
    data, handle = OPERATOR_DUMPS[name]
    source = NOWHERE.open(InlineHandle("dump", data))
    file = open_operator_file(source, handle)
    assert file.header.compressed == name.startswith("Snappy")
    found = {}
    for state in file.states:
        layout = operator_layout(state)
        table = layout.decode(file, state.name, 3)
        found[state.name] = (
            layout.mode,
            [
                {key: value for key, value in row.items() if not key.startswith("raw_")}
                for row in table.to_pylist()
            ],
        )
    assert found == {
        "un": (DistributionMode.UNION, [{"subtask": 3, "position": 0, "value": "x"}]),
        "split": (
            DistributionMode.SPLIT_DISTRIBUTE,
            [{"subtask": 3, "position": i, "value": i + 1} for i in range(2)],
        ),
        "empty": (DistributionMode.SPLIT_DISTRIBUTE, []),
        "bc": (DistributionMode.BROADCAST, [{"key": "k", "value": 5}]),
    }


@pytest.mark.parametrize("name", OPERATOR_DUMPS)
def test_operator_state_comes_back(name: str) -> None:
    """Written again it has the same offsets where it is plain, and reads the same in any case."""
    data, handle = OPERATOR_DUMPS[name]
    file = open_operator_file(NOWHERE.open(InlineHandle("dump", data)), handle)
    states = []
    for state in file.states:
        layout = operator_layout(state)
        states.append((state, layout.encode(layout.decode(file, state.name, 0))))
    written, offsets = encode_operator_file(file.header, states)
    assert offsets == handle.states
    if not file.header.compressed:
        assert written == data
    else:
        assert written[: file.header.size + 10] == data[: file.header.size + 10]
    again = open_operator_file(
        NOWHERE.open(InlineHandle("again", written)), OperatorHandle(offsets, None)
    )
    assert again.content.tobytes() == file.content.tobytes()
