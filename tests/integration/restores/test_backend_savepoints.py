"""Real Flink restores what our backends were working on: state made here, and Flink's gone on with.

The jobs are those that the oracle knows; our side does what their functions would do, key by key,
on either backend, and Flink restores the savepoint in either of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statelake import open_snapshot
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
    SubtaskState,
)
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.formats.writing.new_states import NewOperatorState
from statelake.state_core.formats.writing.writer import SavepointDirectory
from statelake.state_core.model.key_groups import key_group_of, operator_id_of_uid, subtask_of
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.runtime.backends import (
    BackendConfiguration,
    KeyedStateBackend,
    StateDescriptor,
)
from statelake.state_core.runtime.backends.restoring import restore_backend
from statelake.state_core.runtime.backends.states.operator_state import OperatorStateBackend
from tests.integration.flink.oracle import FlinkOracle, sorted_lines
from tests.support.jobs.backend_cases import (
    BACKENDS,
    Clock,
    descriptor,
    time_to_live,
    write_savepoint,
)
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

pytestmark = [pytest.mark.flink, pytest.mark.full, pytest.mark.thinned(2)]

KEYS = 90
MOST = 128
FAR = 4_000_000_000_000
FLINKS = ("hashmap", "rocksdb")


def subtasks(
    kind: str, key: str, parallelism: int, *, compressed: bool = False
) -> list[KeyedStateBackend]:
    """A backend for every subtask of an operator."""
    clock = Clock(1_750_000_000_000)
    return [
        BACKENDS[kind](
            BackendConfiguration.of_subtask(
                key, index, parallelism, MOST, compressed=compressed, clock=clock
            )
        )
        for index in range(parallelism)
    ]


def of_key(backends: list[KeyedStateBackend], key: Any) -> KeyedStateBackend:
    """The backend of the subtask that owns a key, which is made its current one."""
    code = backends[0].registry.key_serializer.hash_code(key)
    group = key_group_of(code, MOST)
    backend = backends[subtask_of(group, MOST, len(backends))]
    backend.set_current_key(key)
    return backend


def work(backend: KeyedStateBackend, number: int) -> list[Any]:
    """All that the job `kinds` keeps of a key; the lines that Flink is to print of it."""
    key = backend.current_key

    def state(name: str, kind: str, value: str, **more: Any) -> Any:
        return backend.state(StateDescriptor(name, StateKind(kind), value, **more))

    line: dict[str, Any] = {"key": key, "name": f"name {number}"}
    state("name", "value", "String").update(line["name"])
    items = state("items", "list", "Integer")
    line["items"] = [number - index for index in range(number % 4)]
    for item in line["items"]:
        items.add(item)
    scores = state("scores", "map", "Double", user_key="String")
    line["scores"] = {f"s{index}": number / (index + 1) for index in range(number % 3)}
    scores.put_all(line["scores"])
    scores.put("gone", 1.0)
    scores.remove("gone")
    total, mean = (descriptor(kind, name=name) for kind, name in
                   (("reducing", "total"), ("aggregating", "avg")))  # fmt: skip
    for index in range(number + 1):
        backend.state(total).add(index * 10**9)  # type: ignore[union-attr]
        backend.state(mean).add(index)  # type: ignore[union-attr]
    line["total"], line["avg"] = number * (number + 1) // 2 * 10**9, number / 2
    state("triple", "value", "Tuple3<Integer, String, Boolean>").update(
        {"f0": -number, "f1": "t", "f2": True}
    )
    line["triple"] = [-number, "t", True]
    fields = {"f0": number, "f1": None if number % 2 else "r", "f2": number / 4}
    state("row", "value", "Row<Long, String, Double>").update({"row_kind": "+I", **fields})
    line["row"] = list(fields.values())
    state("session", "value", "String", ttl=time_to_live(1 << 50)).update(f"session of {number}")
    line["session"] = f"session of {number}"
    timers = backend.timer_service()
    timers.register_processing_time(FAR)
    times = {FAR - number, FAR - 2 * number}
    for time in times:
        timers.register_event_time(time)
    return [line, *({"key": key, "timer": "EVENT_TIME", "ts": time} for time in times)]


OF_128_GROUPS = [
    golden_case for golden_case in golden_cases("wordcount") if "-m128-" in golden_case.name
]


@pytest.mark.parametrize("flink_backend", FLINKS)
@pytest.mark.parametrize("kind", sorted(BACKENDS))
def test_flink_goes_on_from_every_kind_of_state(
    kind: str, flink_backend: str, flink: FlinkOracle, tmp_path: Path
) -> None:
    """Values, lists, maps, functions' results, time to live and timers, made at parallelism 3."""
    backends = subtasks(kind, "Long", 3, compressed=flink_backend == "rocksdb")
    lines: list[Any] = []
    for number in range(KEYS):
        key = -(1 << 40) + number * 2654435761
        lines += work(of_key(backends, key), number)
    write_savepoint(backends, tmp_path / "sp", "kinds")
    restored = flink.restore("kinds", tmp_path / "sp", keys=KEYS, backend=flink_backend)
    assert sorted_lines(restored) == sorted_lines(lines)
    for backend in backends:
        backend.close()


@pytest.mark.parametrize(
    ("kind", "compressed"), [("heap", False), ("heap", True), ("rocksdb", False)]
)
def test_flink_goes_on_from_a_checkpoint(
    kind: str, compressed: bool, flink: FlinkOracle, tmp_path: Path
) -> None:
    """Each backend's own form is that of Flink's, which rescales it from 3 to 2."""
    backends = subtasks(kind, "Long", 3, compressed=compressed)
    lines: list[Any] = []
    for number in range(KEYS):
        key = -(1 << 40) + number * 2654435761
        lines += work(of_key(backends, key), number)
    write_savepoint(backends, tmp_path / "sp", "kinds", canonical=False)
    flink_backend = {"heap": "hashmap"}.get(kind, kind)
    restored = flink.restore("kinds", tmp_path / "sp", keys=KEYS, backend=flink_backend)
    assert sorted_lines(restored) == sorted_lines(lines)
    for backend in backends:
        backend.close()


@pytest.mark.parametrize("kind", sorted(BACKENDS))
@pytest.mark.parametrize(
    "golden",
    [
        pytest.param(case, marks=[] if index == 0 else pytest.mark.full)
        for index, case in enumerate(OF_128_GROUPS)
    ],
    ids=lambda case: case.name,
)
def test_what_flink_began_goes_on_here_and_there_again(
    golden: GoldenCase, kind: str, flink: FlinkOracle, tmp_path: Path
) -> None:
    """Flink's counts, rescaled from 2 to 3, counted on, to 1, counted on, and back in Flink."""
    snapshot = open_snapshot(golden.snapshot)
    ((operator, raw),) = [
        pair
        for pair in zip(snapshot.operators, snapshot.metadata.operators, strict=True)
        if pair[0].keyed_states
    ]
    handles, where = [subtask.managed_keyed for subtask in raw.subtasks.values()], golden.snapshot
    words = [line["key"] for line in golden.expected()]
    for turn, parallelism in enumerate((3, 1)):
        backends = subtasks(kind, "String", parallelism)
        for backend in backends:
            restore_backend(backend, handles, StateFiles(Directory(where)))
        for word in words:
            count: Any = of_key(backends, word).state(descriptor("value", name="count"))
            count.update(count.value() + 1000)
        where = write_savepoint(backends, tmp_path / str(turn), operator.uid or "counter")
        (written,) = open_snapshot(where).metadata.operators
        handles = [subtask.managed_keyed for subtask in written.subtasks.values()]
        for backend in backends:
            backend.close()
    lines = flink.restore(
        "wordcount", where, keys=golden.facts["keys"], backend=FLINKS[kind == "heap"]
    )
    expected = [{**line, "count": line["count"] + 2000} for line in golden.expected()]
    assert sorted_lines(lines) == sorted_lines(expected)


def test_operator_state_goes_on_in_flink(flink: FlinkOracle, tmp_path: Path) -> None:
    """Split, union and broadcast state beside keyed state, at the parallelism it was made at."""
    target = SavepointDirectory(tmp_path / "sp")
    backends = subtasks("heap", "String", 2)
    lines: list[Any] = []
    for number in range(KEYS):
        word = f"word-{number}"
        length: Any = of_key(backends, word).state(descriptor("value", name="length"))
        length.update(number * 7)
    rules = {f"rule-{number}": number * number for number in range(20)}
    elements = {}
    for index, backend in enumerate(backends):
        own = OperatorStateBackend(compressed=True)
        own.state(NewOperatorState("split", (), "split", "Long")).add_all(
            range(10 * index, 10 * index + 10)
        )
        own.state(NewOperatorState("offsets", (), "split", "Tuple2<String, Integer>")).add(
            {"f0": f"p{index}", "f1": index}
        )
        own.state(NewOperatorState("union", (), "union", "String")).add(f"u{index}")
        own.state(NewOperatorState("rules", (), "broadcast", "Integer", "String")).put_all(rules)
        elements[index] = SubtaskState(
            managed_keyed=backend.snapshot(target.directory).run(),
            managed_operator=own.snapshot(target.directory).run(),
        )
        lines.append({"subtask": index, "rules": rules})
        lines.append(
            {
                "subtask": index,
                "split": list(range(10 * index, 10 * index + 10)),
                "offsets": [[f"p{index}", index]],
                "union": ["u0", "u1"],
            }
        )
    operator = OperatorMetadata(
        operator_id_of_uid("mixed"), 2, MOST, "mixed", "mixed", None, elements
    )
    target.commit(CheckpointMetadata(3, 1, [operator]))
    after = flink.restore("mixed", tmp_path / "sp", keys=KEYS)
    names = {name for line in lines for name in line}
    seen = [{name: row[name] for name in row if name in names} for row in after if "subtask" in row]
    for row in seen:  # Flink reads files in the order of their names' hashes
        if "union" in row:
            row["union"].sort()
    assert sorted_lines(row for row in seen if len(row) > 1) == sorted_lines(lines)
    lengths = {row["key"]: row["length"] for row in after if "key" in row}
    # the words of the job are these, and others
    for number in range(KEYS):
        if number % 7 and number % 11:
            assert lengths[f"word-{number}"] == number * 7
