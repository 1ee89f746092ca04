"""Commands that fail, are killed or stand still at a call: a sample of `python -m tests.faults`.

And what the sweep is made of: it sees what native code writes, and what is wrong with a lake.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from tests.faults.judging import Seen, files_too_many, files_with, look, shape
from tests.support.lakes import WORDS, import_golden, unit_paths

ROOT = Path(__file__).parents[2]


Sweep = Callable[..., str]


@pytest.fixture(scope="module")
def sweep() -> Iterator[Sweep]:
    """What a sweep prints, where nothing goes wrong; one process makes them all."""
    program = [sys.executable, "-m", "tests.faults", "--served"]
    with subprocess.Popen(
        program, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asks, answers = process.stdin, process.stdout

        def swept(*words: str) -> str:
            asks.write(" ".join(words) + "\n")
            asks.flush()
            printed = []
            while (line := answers.readline()) and not line.startswith("end "):
                printed.append(line)
            assert line == "end 0\n", "".join(printed)[-8000:]
            return "".join(printed)

        yield swept
        asks.close()


def tried(printed: str) -> int:
    """How many cases there were, of which none went wrong."""
    (line,) = (line for line in printed.splitlines() if line.startswith("all "))
    _, cases, _, wrong = line.split()
    assert wrong == "0"
    return int(cases)


@pytest.mark.full
def test_a_fault_at_any_call_leaves_a_lake_as_before_or_as_after(sweep: Sweep) -> None:
    """A few of each of three commands."""
    assert tried(sweep("--faults", "6", "--commands", "import,drop-all,erase")) == 6


@pytest.mark.full
def test_a_command_that_is_told_to_end_leaves_a_lake_as_before_or_as_after(sweep: Sweep) -> None:
    """It ends in order, wherever it is, and leaves no temporary files."""
    cases = [f"{name}:term:{at}:1" for name in ("import", "commit") for at in range(20, 400, 60)]
    assert tried(sweep("--again", *cases)) == len(cases)


@pytest.mark.full
def test_an_upgrade_that_is_killed_at_any_call_leaves_a_lake_that_opens(sweep: Sweep) -> None:
    """It is of the format before, or of the one after, with all that it held."""
    assert tried(sweep("--faults", "12", "--commands", "upgrade")) == 12


@pytest.mark.full
def test_an_upgrade_to_flink_2_that_is_killed_at_any_call_leaves_all_or_nothing(
    sweep: Sweep,
) -> None:
    """A new snapshot of the lake, and a new savepoint; either can be made again."""
    assert tried(sweep("--faults", "6", "--commands", "flink-2,flink-2-savepoint")) == 6


@pytest.mark.parametrize(
    "count",
    [
        2,
        pytest.param(10, marks=pytest.mark.full),
        pytest.param(60, marks=[pytest.mark.full, pytest.mark.nightly]),
    ],
)
def test_a_fault_at_any_call_of_a_run_counts_nothing_twice(count: int, sweep: Sweep) -> None:
    """Output and state are as if there had been none, in the lake and in each other backend."""
    assert tried(sweep("--runs", str(count), "--seed", str(count))) == count


@pytest.mark.full
@pytest.mark.parametrize("count", [8, pytest.param(500, marks=pytest.mark.nightly)])
def test_two_that_are_killed_again_and_again_lose_nothing(count: int, sweep: Sweep) -> None:
    """Each snapshot that an import said it made is right, and costs are those of what is there."""
    assert tried(sweep("--imports", str(count), "--seed", str(count))) == count


@pytest.mark.full
def test_a_fault_of_any_command_leaves_a_lake_as_before_or_as_after(sweep: Sweep) -> None:
    """Some of each command."""
    assert tried(sweep("--faults", "40")) == 40


@pytest.mark.full
def test_who_stands_still_beside_another_loses_nothing(sweep: Sweep) -> None:
    """Commands that write the same job, two by two."""
    assert tried(sweep("--pairs", "6", "--commands", "import,edit,commit")) == 6


@pytest.mark.full
@pytest.mark.nightly
def test_thousands_of_faults_leave_a_lake_as_before_or_as_after(sweep: Sweep) -> None:
    """All commands: each kind of call of each, with each fault, and again."""
    assert tried(sweep("--faults", "4000", "--seed", "2")) == 4000


@pytest.mark.full
@pytest.mark.nightly
def test_a_thousand_interleavings_lose_nothing(sweep: Sweep) -> None:
    """All pairs, on hosts and in containers with the same numbers, and with other clocks."""
    assert tried(sweep("--pairs", "1000", "--seed", "2")) == 1000


@pytest.mark.full
@pytest.mark.nightly
def test_a_fault_of_a_run_of_dagster_leaves_a_lake_as_before_or_as_after(sweep: Sweep) -> None:
    """A savepoint into the lake, checked, and out again."""
    assert tried(sweep("--faults", "60", "--commands", "dagster")) == 60


def test_what_native_code_writes_is_counted(sweep: Sweep) -> None:
    """Parquet files, by Arrow; entries of logs, by delta-rs; directories by descriptors."""
    calls = sweep("--trace", "first").splitlines()
    assert any(call.startswith("write lake/orders/keyed/") for call in calls)
    assert any(call.startswith("mkdirat lake/orders/keyed/") for call in calls)
    assert any("snapshots/_delta_log/" in call or "/_delta_log/0000" in call for call in calls)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A world with a lake of one snapshot."""
    import_golden(Catalog(tmp_path / "lake"), ("one", WORDS))
    return tmp_path


def a_unit(world: Path) -> Path:
    """A file of the snapshot."""
    lake = Catalog(world / "lake")
    return world / "lake" / min(unit_paths(lake.snapshot("orders", "one")))


def test_a_whole_lake_is_seen_as_that(world: Path) -> None:
    """One snapshot, and no file that nothing names."""
    seen = look(world)
    assert (list(seen.snapshots), seen.faults) == (["orders/one"], [])
    assert files_too_many(world, seen, Counter()) == []


def test_a_file_that_is_gone_is_seen(world: Path) -> None:
    """The snapshot is lost."""
    a_unit(world).unlink()
    (fault,) = look(world).faults
    assert fault.startswith("orders/one is lost")


def test_half_of_a_file_is_seen(world: Path) -> None:
    """As if it were gone."""
    unit = a_unit(world)
    unit.write_bytes(unit.read_bytes()[:-20])
    (fault,) = look(world).faults
    assert fault.startswith("orders/one is lost")


def test_other_rows_are_seen(world: Path) -> None:
    """A snapshot that lacks a row is another."""
    before = look(world)
    rows = pq.read_table(a_unit(world), partitioning=None)
    pq.write_table(rows.slice(1), a_unit(world))
    assert look(world).compared(before.state) == "differs in ['orders/one']"


def test_a_file_too_many_is_seen(world: Path) -> None:
    """Of data, whatever it is called; of others, but for as many as a calm run leaves."""
    calm = shape(world)
    extra = a_unit(world).with_name("key-groups-99999.parquet")
    extra.write_bytes(b"")
    note = world / "lake/_statelake/attempts/0123456789abcdef.json"
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_bytes(b"{}")
    found = {world / name for name in files_too_many(world, look(world), calm)}
    assert found == {extra, note}
    assert [world / name for name in files_too_many(world, look(world), shape(world))] == [extra]


def test_a_word_is_found_in_pages_that_are_packed(world: Path) -> None:
    """In the rows of a Parquet file, if not in its bytes."""
    assert files_with(world, "no-such-word") == []
    assert a_unit(world).relative_to(world).as_posix() in files_with(world, "key_group")


def test_states_are_compared_by_name() -> None:
    """What lacks, what is there also, and what is not the same."""
    seen = Seen(snapshots={"a": "1", "b": "2"})
    assert seen.compared({"a": "1", "b": "2"}) == ""
    words = "lacks ['c']; has also ['a']; differs in ['b']"
    assert seen.compared({"b": "3", "c": "1"}) == words
