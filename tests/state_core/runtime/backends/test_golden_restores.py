"""Flink's own snapshots, of either backend and in any form, restored in ours and written again.

From parallelism 2 to 3 to 1: every entry of every state must still be there, byte for byte, and
nothing else. States that nobody asks for go the whole way, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from statelake import open_snapshot
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.layout.meta_info import read_serializer_entry
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.model.key_groups import key_group_ranges
from statelake.state_core.model.snapshot import Operator, StateKind
from statelake.state_core.runtime.backends import (
    BackendConfiguration,
    KeyedStateBackend,
    StateDescriptor,
)
from statelake.state_core.runtime.backends.restoring import restore_backend
from tests.support.covering import pairs
from tests.support.jobs.backend_cases import (
    BACKENDS,
    MakeBackend,
    descriptor,
    time_to_live,
    write_savepoint,
)
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases
from tests.support.savepoints.heap_timers import TIMER_KEYS, heap_timers

pytestmark = pytest.mark.thinned(6, by=pairs)

Contents = dict[str, set[tuple[int, bytes, bytes]]]


def contents(operator: Operator) -> Contents:
    """All entries by state, in no order."""
    found: Contents = {state.name: set() for state in operator.keyed_states}
    for file in operator.keyed_files:
        for entries in file.entries():
            for index, state in enumerate(file.states):
                mine = entries.of_state(index)
                data = mine.data.tobytes()
                found[state.name] |= {
                    (group, data[a:b], data[c:d])
                    for group, a, b, c, d in zip(
                        mine.group_of.tolist(), mine.key_start.tolist(), mine.key_end.tolist(),
                        mine.value_start.tolist(), mine.value_end.tolist(), strict=True,
                    )
                }  # fmt: skip
    return found


def keyed_operators(where: Path) -> list[tuple[Operator, list[Any]]]:
    """The operators that have keyed state, with their handles."""
    snapshot = open_snapshot(where)
    return [
        (operator, [subtask.managed_keyed for subtask in (raw.subtasks or {}).values()])
        for operator, raw in zip(snapshot.operators, snapshot.metadata.operators, strict=True)
        if operator.keyed_states
    ]


def started(
    make: MakeBackend,
    operator: Operator,
    handles: list[Any],
    where: Path,
    parallelism: int,
    raw: Sequence[Any] = (),
) -> list[KeyedStateBackend]:
    """Backends at a parallelism, restored of handles."""
    file = operator.keyed_files[0]
    key = read_serializer_entry(DataInput(file.key_serializer, "key"), "the key").snapshot
    most = operator.max_parallelism
    made = []
    for key_groups in key_group_ranges(most, min(most, parallelism)):
        backend = make(BackendConfiguration(key, key_groups, most, compressed=parallelism == 3))
        restore_backend(backend, handles, StateFiles(Directory(where)), raw)
        made.append(backend)
    return made


@pytest.mark.parametrize("kind", sorted(BACKENDS))
@pytest.mark.parametrize("golden", golden_cases(), ids=lambda case: case.name)
@pytest.mark.full
def test_every_entry_goes_the_whole_way(golden: GoldenCase, kind: str, tmp_path: Path) -> None:
    """2 to 3 to 1, the backend in the middle being the other one."""
    other = next(backend for backend in BACKENDS if backend != kind)
    for number, (operator, given) in enumerate(keyed_operators(golden.snapshot)):
        expected = contents(operator)
        where, handles = golden.snapshot, given
        for turn, (parallelism, name) in enumerate(((3, kind), (1, other), (2, kind))):
            backends = started(BACKENDS[name], operator, handles, where, parallelism)
            where = write_savepoint(backends, tmp_path / f"{number}-{turn}")
            for backend in backends:
                backend.close()
            again, handles = next(iter(keyed_operators(where)))
            assert contents(again) == expected


@pytest.mark.parametrize("kind", sorted(BACKENDS))
@pytest.mark.parametrize("case", sorted(TIMER_KEYS))
def test_timers_that_lie_beside(case: str, kind: str, tmp_path: Path) -> None:
    """On the heap, while all else is in RocksDB."""
    where = heap_timers(case, tmp_path / "chk")
    states = {
        operator.operator_id: operator for operator in open_snapshot(where).metadata.operators
    }
    for number, (operator, handles) in enumerate(keyed_operators(where)):
        subtasks = (states[operator.operator_id].subtasks or {}).values()
        raw = [subtask.raw_keyed for subtask in subtasks]
        backends = started(BACKENDS[kind], operator, handles, where, 3, raw)
        made = write_savepoint(backends, tmp_path / str(number))
        for backend in backends:
            backend.close()
        ((again, _),) = keyed_operators(made)
        assert contents(again) == contents(operator)


@pytest.mark.parametrize("kind", sorted(BACKENDS))
@pytest.mark.parametrize("golden", golden_cases(), ids=lambda case: case.name)
@pytest.mark.full
def test_checkpoints_hold_the_same(golden: GoldenCase, kind: str, tmp_path: Path) -> None:
    """Each backend's own form, compressed or not, is read as what it was written of."""
    for number, (operator, handles) in enumerate(keyed_operators(golden.snapshot)):
        for parallelism in (3, 2):
            backends = started(BACKENDS[kind], operator, handles, golden.snapshot, parallelism)
            where = tmp_path / f"{number}-{parallelism}"
            write_savepoint(backends, where, canonical=False)
            for backend in backends:
                backend.close()
            ((again, _),) = keyed_operators(where)
            assert contents(again) == contents(operator)


@pytest.mark.parametrize("kind", sorted(BACKENDS))
@pytest.mark.parametrize(
    "golden",
    [golden_case for golden_case in golden_cases("kinds") if "2.3.0" in golden_case.name],
    ids=lambda case: case.name,
)
def test_what_flink_wrote_is_used(golden: GoldenCase, kind: str, tmp_path: Path) -> None:
    """States are asked for by name and type, and hold what Flink says; then they are changed."""
    ((operator, handles),) = keyed_operators(golden.snapshot)
    (backend,) = started(BACKENDS[kind], operator, handles, golden.snapshot, 1)
    lines = {entry["key"]: entry for entry in golden.expected() if "timer" not in entry}
    scores: Any = backend.state(StateDescriptor("scores", StateKind.MAP, "Double", "String"))
    total: Any = backend.state(descriptor("reducing", name="total"))
    mean: Any = backend.state(descriptor("aggregating", name="avg"))
    forever = time_to_live(1 << 50)
    session: Any = backend.state(StateDescriptor("session", StateKind.VALUE, "String", ttl=forever))
    assert sorted(backend.keys("total")) == sorted(lines)
    for key, line in lines.items():
        backend.set_current_key(key)
        assert dict(scores.entries()) == line["scores"]
        assert total.get() == line["total"]
        assert mean.get() == pytest.approx(line["avg"])
        assert session.value() == line["session"]
        total.add(1)
    timers = [entry for entry in golden.expected() if entry.get("timer") == "EVENT_TIME"]
    queue = backend.timer_queue("event")
    assert sorted((timer.key, timer.timestamp) for timer in queue) == sorted(
        (timer["key"], timer["ts"]) for timer in timers
    )
    where = write_savepoint([backend], tmp_path / "sp")
    backend.close()
    table = open_snapshot(where).operators[0].state("total").to_arrow()
    found = dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    assert found == {key: line["total"] + 1 for key, line in lines.items()}
