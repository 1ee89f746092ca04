"""What a lake says of runs leads nowhere else: plans, what was prepared, locks, and links."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from statelake.pipelines.lake.catalog.processes import this_process
from statelake.pipelines.lake.catalog.run_log import (
    Prepared,
    RunLog,
    RunPlan,
    Turn,
    output_directory,
)
from statelake.pipelines.runtime.sinks import discard_attempts
from statelake.state_core.errors import ConflictError, StateError, UnsafePathError
from statelake.state_core.files.filesystem import Directory
from tests.support.forged_lakes import DEAD

JOB, ATTEMPT = "orders", "attempt-0123456789ab"
PLAN = RunPlan(1, 2, 128, 1000, {"events": {}}, {"events": {"files": {"0.jsonl": 40}}})
FILE = f"{output_directory(JOB, 1, ATTEMPT)}/kept-counter-0-00000.parquet"
PREPARED = Prepared(
    ATTEMPT, f"{ATTEMPT}/savepoint", None, {}, {"kept": [(FILE, 9, 1)]}, 1, {"counter-0": ""}
)


@pytest.fixture
def log(tmp_path: Path) -> RunLog:
    """A run that was planned and prepared."""
    made = RunLog(Directory(tmp_path / "lake"), JOB)
    made.write_plan(PLAN)
    made.write_prepared(Turn("", 1, 0), PREPARED)
    return made


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory beside the lake, with a file in it."""
    (tmp_path / "victim" / "deeper").mkdir(parents=True)
    (tmp_path / "victim" / "deeper" / "secret.txt").write_text("mine")
    return tmp_path / "victim"


def untouched(victim: Path) -> bool:
    """Whether the victim is as it was."""
    return {path.read_text() for path in victim.rglob("*") if path.is_file()} == {"mine"}


def process(number: int, *, gone: bool = False) -> dict[str, Any]:
    """What a process says of itself: one of another host, or of this one, where there is none."""
    here = {**this_process(), "begun": ""} if gone else {"started": 0.0}
    return {**here, "host": "h", "process": number}


def say(log: RunLog, name: str, **said: Any) -> None:
    """Change a word of the first run."""
    path = Path(log.run_directory(1).full(name))
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **said}), "utf-8")


def test_what_was_written_is_read(log: RunLog) -> None:
    """Words of ours keep the rules."""
    assert log.runs() == [1]
    assert log.plan(1) == PLAN
    assert log.prepared(1) == PREPARED


@pytest.mark.parametrize(
    "said",
    [
        {"run": 7}, {"run": "1"}, {"parallelism": 0}, {"parallelism": 1 << 31},
        {"parallelism": "2"},
        {"max_parallelism": 0}, {"max_parallelism": 1 << 31}, {"processing_time": "now"},
        {"processing_time": 10**30}, {"processing_time": -1}, {"begins": []}, {"ends": []},
        {"ends": {"events": "x"}}, {"ends": {"events": {"files": ["0.jsonl"]}}},
        {"ends": {"events": {"files": {"0.jsonl": -5}}}}, {"ends": {"events": {"version": "1"}}},
        {"ends": {"events": {"version": 2**70}}}, {"restore": 5}, {"watermark": "x"},
        {"latest": "x"}, {"latest": {"events": "x"}}, {"final": 1}, {"evil": 1}, {"version": 99},
        {"version": "1"}, {"version": None},
    ],
    ids=repr,
)  # fmt: skip
def test_a_plan_that_cannot_be(said: dict[str, Any], log: RunLog) -> None:
    """It is refused by its file's name."""
    say(log, "plan.json", **said)
    with pytest.raises(StateError, match=r"plan\.json") as raised:
        log.plan(1)
    assert raised.value.remedy


OUTSIDE = ["../../victim", "/victim", "file:///victim", "", "..", "a/../../victim", "attempt\0"]


@pytest.mark.parametrize(
    "said",
    [
        *({"savepoint": path} for path in OUTSIDE),
        *({"attempt": path, "savepoint": f"{path}/savepoint"} for path in OUTSIDE),
        *({"outputs": {"kept": [[path, 9, 1]]}} for path in OUTSIDE),
        {"outputs": {"kept": [["_delta_log/00000000000000000000.json", 9, 1]]}},
        {"outputs": {"kept": [[FILE.replace(ATTEMPT, "attempt-000000000000"), 9, 1]]}},
        {"outputs": {"kept": [[f"{FILE}/x.parquet", 9, 1]]}}, {"outputs": {"kept": "x"}},
        {"outputs": {"kept": [[]]}}, {"outputs": {"kept": [[FILE, -1, 1]]}}, {"outputs": [1]},
        {"outputs": {"kept": [[FILE, 2**70, 1]]}}, {"attempt": 5}, {"savepoint": 5},
        {"markers": []}, {"markers": {"counter-0": 5}}, {"counts": "x"}, {"counts": {"a": 1}},
        {"records": -1}, {"watermark": 0.5}, {"evil": 1},
    ],
    ids=repr,
)  # fmt: skip
def test_what_was_prepared_cannot_be(said: dict[str, Any], log: RunLog) -> None:
    """Neither the savepoint nor the output may be anywhere but in the attempt's directories."""
    say(log, "prepared.json", **said)
    with pytest.raises(StateError, match=r"prepared\.json") as raised:
        log.prepared(1)
    assert raised.value.remedy


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", "null", "{}", "[" * 100_000, '{"version": 1}']
)
@pytest.mark.parametrize("name", ["plan.json", "prepared.json", "running.json"])
def test_what_is_no_word_of_a_run(name: str, text: str, log: RunLog) -> None:
    """It is told by its name."""
    directory = log.directory if name == "running.json" else log.run_directory(1)
    directory.write(name, text.encode())
    read = {"plan.json": log.plan, "prepared.json": log.prepared}.get(name, lambda _: log.lock({}))
    with pytest.raises(StateError, match=name.replace(".", r"\.")):
        read(1)


@pytest.mark.parametrize("name", ["9" * 40, "\u0661" * 8, "00000000", "1", "000000002", "x", "..."])
def test_only_our_own_numbers_are_runs(name: str, log: RunLog) -> None:
    """A directory that is called otherwise is no run."""
    (Path(log.directory.full()) / name).mkdir()
    assert log.runs() == [1]


@pytest.mark.parametrize("path", ["", "00000001", "00000001/plan.json"])
def test_a_link_is_no_word_of_a_run(path: str, log: RunLog, victim: Path) -> None:
    """Neither a file nor a directory above it: it is not read, and not written through."""
    target = Path(log.directory.full()) / path
    if target.is_dir():
        shutil.rmtree(target)
        target.symlink_to(victim / "deeper")
    else:
        target.unlink()
        target.symlink_to(victim / "deeper" / "secret.txt")
    with pytest.raises(UnsafePathError):
        log.plan(1)
    with pytest.raises(UnsafePathError):
        log.write_plan(PLAN)
    assert untouched(victim)


@pytest.mark.parametrize("below", ["", "records", "records/deeper"])
def test_no_attempt_is_removed_through_a_link(below: str, log: RunLog, victim: Path) -> None:
    """Nor is what is called otherwise."""
    attempt = Path(log.run_directory(1).full(ATTEMPT))
    (attempt / below).parent.mkdir(parents=True, exist_ok=True)
    (attempt / below).symlink_to(victim)
    with pytest.raises(UnsafePathError):
        log.discard(1)
    assert untouched(victim)
    other = Path(log.run_directory(1).full("attempt-mine"))
    other.mkdir()
    assert log.attempts(1) == [ATTEMPT]
    with pytest.raises(UnsafePathError):
        log.discard(1)
    assert other.is_dir()


@pytest.mark.parametrize("path", ["_data", "_data/{attempt}", "_data/{attempt}/deeper"])
def test_no_output_is_removed_through_a_link(path: str, victim: Path, tmp_path: Path) -> None:
    """A sink's table is not followed out of, either."""
    attempt = f"{JOB}-00000001-{ATTEMPT}"
    link = tmp_path / "kept" / path.format(attempt=attempt)
    link.parent.mkdir(parents=True)
    link.symlink_to(victim)
    with pytest.raises(UnsafePathError):
        discard_attempts(str(tmp_path / "kept"), JOB, 1, "attempt-000000000000")
    assert untouched(victim)


def test_of_two_that_begin_at_once_none_runs_beside_the_other(
    log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other looked before this one's lock was there, and wrote its own."""
    write = type(log.directory).write
    locks: list[Turn] = []

    def at_once(*arguments: Any) -> None:
        monkeypatch.undo()
        locks.append(log.lock(process(1)))
        write(*arguments)

    monkeypatch.setattr(type(log.directory), "write", at_once)
    with pytest.raises(ConflictError, match="is run by process 1 on h"):
        log.lock(process(2))
    (turn,) = locks
    assert log.directory.is_file(turn.lock)
    log.unlock(turn)
    log.unlock(log.lock(process(2)))
    assert log.directory.names() == ["00000001"]


def test_locks_of_processes_that_are_gone_go_too(log: RunLog) -> None:
    """Also that of a version that had one for all."""
    log.directory.write("running.json", json.dumps(process(DEAD, gone=True)).encode())
    log.lock(process(DEAD, gone=True))
    log.unlock(log.lock(process(3)))
    assert log.directory.names() == ["00000001"]


def test_a_confined_directory_travels(log: RunLog, victim: Path) -> None:
    """A task that has it on another machine is confined there too."""
    made = pickle.loads(pickle.dumps(log.run_directory(1)))  # noqa: S301 - our own bytes
    assert made.read("plan.json") == log.run_directory(1).read("plan.json")
    Path(log.run_directory(1).full("records")).symlink_to(victim)
    with pytest.raises(UnsafePathError):
        made.open_output("records/0/0.arrow")
    assert untouched(victim)
