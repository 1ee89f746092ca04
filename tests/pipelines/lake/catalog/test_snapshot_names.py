"""How a snapshot is named: its id, `latest`, a date, a prefix; and what none may be called."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import click
import pyarrow as pa
import pytest
from deltalake import write_deltalake

import statelake as sl
from statelake.pipelines.cli.main import statelake as commands
from statelake.pipelines.cli.options import _complete_snapshots
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.snapshot_names import (
    SnapshotId,
    full_snapshot_id,
    resolve_snapshot,
)
from statelake.pipelines.lake.edit.committing import commit_snapshot
from statelake.pipelines.lake.edit.editing import SnapshotEdit, edit_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.tables.records import SNAPSHOT_SCHEMA, SnapshotRecord
from statelake.state_core.errors import DamagedLakeError, LakeError, NotALakeError, NotFoundError
from tests.support.command import run
from tests.support.lakes import WORDS, add_row

MONDAY = datetime(2026, 11, 16, tzinfo=timezone.utc)


def record(snapshot_id: str, taken_hours: float, imported_hours: int) -> SnapshotRecord:
    """A snapshot without any state, taken and imported so many hours after Monday began."""
    taken, imported = (MONDAY + timedelta(hours=at) for at in (taken_hours, imported_hours))
    return SnapshotRecord(
        "orders", snapshot_id, "", "import", "savepoint", "canonical", 6, 1, taken, imported,
        "source", "digest", "none", "", 0, 0, 0, b"metadata",
    )  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """Five snapshots; the one that was taken last was not imported last."""
    lake = Catalog(tmp_path_factory.mktemp("names") / "lake")
    for snapshot in (
        record("monday", 10, 100),
        record("monday-fixed", 10, 101),
        record("tuesday", 34.51, 102),
        record("thursday", 82, 103),
        record("wednesday", 58, 104),
    ):
        add_row(lake, snapshot)
    return lake


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("monday", "monday"),
        ("latest", "wednesday"),
        ("latest~0", "wednesday"),
        ("latest~1", "thursday"),
        ("latest~4", "monday"),
        ("2026-11-16", "monday-fixed"),
        ("2026-11-17", "tuesday"),
        ("2026-11-18", "wednesday"),
        ("2026-11-19", "thursday"),
        ("2030-01-01", "thursday"),
        ("2026-11-17T10:29", "monday-fixed"),
        ("2026-11-17T10:30", "tuesday"),
        ("2026-11-17T10:30:35Z", "monday-fixed"),
        ("2026-11-17T10:30:36Z", "tuesday"),
        ("2026-11-17 12:30+02:00", "tuesday"),
        ("monday-", "monday-fixed"),
        ("w", "wednesday"),
        # what means none is left to whoever opens it
        ("sunday", "sunday"),
        ("", ""),
        ("Latest", "Latest"),
        ("latest~", "latest~"),
        ("latest~x", "latest~x"),
        (f"latest~{'9' * 5000}", f"latest~{'9' * 5000}"),
        ("2026-02-31", "2026-02-31"),
        ("9999-12-31", "9999-12-31"),
    ],
)
def test_what_is_meant(lake: Catalog, name: str, meant: str) -> None:
    """Each way to name a snapshot gives its id."""
    assert resolve_snapshot(lake, "orders", name) == meant


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("latest~5", "no snapshot 'latest~5': it has 5; the oldest is 'monday'"),
        ("2026-11-15", "taken on 2026-11-15 or before; its first is 'monday', of 2026-11-16 10:00"),
        ("mon", "2 snapshots that begin with 'mon'; say which: monday, monday-fixed"),
        ("t", "2 snapshots that begin with 't'; say which: tuesday, thursday"),
    ],
)
def test_what_is_not_clear(lake: Catalog, name: str, said: str) -> None:
    """What could be several, or can be none, is an error with what there is."""
    with pytest.raises(NotFoundError) as failed:
        resolve_snapshot(lake, "orders", name)
    assert said in str(failed.value)


def test_many_candidates(tmp_path: Path) -> None:
    """Of many that begin so, the newest are listed."""
    lake = Catalog(tmp_path / "lake")
    for number in range(12):
        add_row(lake, record(f"run-{number:02d}", number, number))
    with pytest.raises(NotFoundError, match=r"12 snapshots .*: \.\.\., run-02, .*, run-11$"):
        resolve_snapshot(lake, "orders", "run")


def test_the_id_itself_comes_first(tmp_path: Path) -> None:
    """A snapshot of an older lake that is really called so is the one that is meant."""
    lake = Catalog(tmp_path / "lake")
    for hours, name in enumerate(("latest", "2026-11-16", "latest~1", "newest", "latest~1-x")):
        add_row(lake, record(name, hours, hours))
    for name in ("latest", "2026-11-16", "latest~1"):
        assert resolve_snapshot(lake, "orders", name) == name
    assert resolve_snapshot(lake, "orders", "latest~2") == "latest~1"


def test_where_nothing_is(tmp_path: Path, lake: Catalog) -> None:
    """No lake is an error; a job without snapshots is left to whoever opens it."""
    with pytest.raises(NotALakeError):
        resolve_snapshot(Catalog(tmp_path), "orders", "latest")
    assert resolve_snapshot(lake, "returns", "latest") == "latest"


def test_a_row_that_can_not_be_believed(tmp_path: Path) -> None:
    """It may be the newest, so nobody knows which that is; by their ids both are found."""
    lake = Catalog(tmp_path / "lake")
    add_row(lake, record("monday", 0, 0))
    row = record("forged", 1, 1).to_row() | {"entries": -1}
    write_deltalake(
        str(tmp_path / "lake" / "snapshots"), pa.Table.from_pylist([row], SNAPSHOT_SCHEMA),
        mode="append",
    )  # fmt: skip
    assert [resolve_snapshot(lake, "orders", name) for name in ("monday", "forged", "mon")] == [
        "monday", "forged", "monday",
    ]  # fmt: skip
    for name in ("latest", "2026-11-20"):
        with pytest.raises(DamagedLakeError):
            resolve_snapshot(lake, "orders", name)


MAKERS: list[Callable[[Catalog, str], object]] = [
    lambda lake, name: import_snapshot(lake, str(WORDS), "words", snapshot_id=name),
    lambda lake, name: commit_snapshot(ChildSnapshot(lake, "words", "monday", name)),
    lambda lake, name: edit_snapshot(ChildSnapshot(lake, "words", "monday", name), SnapshotEdit()),
]


@pytest.mark.parametrize("name", ["latest", "latest~1", "latest~x"])
@pytest.mark.parametrize("make", MAKERS, ids=["import", "commit", "edit"])
def test_what_no_snapshot_may_be_called(
    make: Callable[[Catalog, str], object], name: str, tmp_path: Path
) -> None:
    """An id that would seem to be another's is refused before anything is written."""
    with pytest.raises(LakeError, match=rf"no snapshot can be called '{name}'"):
        make(Catalog(tmp_path / "lake"), name)
    assert not (tmp_path / "lake").exists()


@pytest.fixture(scope="module")
def of(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The lake and job of two snapshots."""
    lake = tmp_path_factory.mktemp("named") / "lake"
    of = ("--lake", str(lake), "--job", "words")
    for name in ("monday", "tuesday"):
        assert run("import", WORDS, *of, "--snapshot", name).code == 0
    return of


class TestOnTheCommandLine:
    """Every command that reads a snapshot of a lake takes these names, and says what they mean."""

    @pytest.mark.parametrize(
        "words",
        [
            ["export", "--to", "{new}", "--snapshot", "latest"],
            ["plan-rescale", "--parallelism", "2", "--snapshot", "latest"],
            ["diff", "monday", "latest"],
            ["check", "integrity", "--snapshot", "latest"],
            ["check", "compatibility", "--against", str(WORDS), "--snapshot", "latest"],
            ["migrate", "--state", "counter/count", "--to", "{spec}", "--dry-run",
             "--snapshot", "latest"],
        ],
        ids=lambda words: " ".join(words[:2]),
    )  # fmt: skip
    def test_latest(self, words: list[str], of: tuple[str, ...], tmp_path: Path) -> None:
        """On standard error, so that scripts get the same output as with the id."""
        (tmp_path / "spec.yaml").write_text("states:\n  counter/count: {type: Long}\n")
        names = {"{new}": str(tmp_path / "new"), "{spec}": str(tmp_path / "spec.yaml")}
        ran = run(*[names.get(word, word) for word in words], *of)
        assert ran.err == "latest is snapshot tuesday\n"
        exact = [names.get(word, "tuesday" if word == "latest" else word) for word in words]
        again = run(*exact, *of)
        assert again.err != ran.err
        if words[0] != "export":
            assert (again.code, again.out, again.err) == (ran.code, ran.out, "")

    @pytest.mark.full
    def test_edit_commit_and_drop(self, of: tuple[str, ...], tmp_path: Path) -> None:
        """What is made says which snapshot it is made of; what is dropped is looked up first."""
        ran = run("edit", *of, "--parent", "mon", "--snapshot", "renamed", "--rename-uid",
                  "counter", "counted", "--json")  # fmt: skip
        assert (ran.code, ran.json["parent"]) == (0, "monday"), ran.err
        merged = run("edit", *of, "--parent", "tue", "--snapshot", "both", "--merge",
                     "words:latest", "--json")  # fmt: skip
        assert merged.code == 0, merged.err
        assert sorted(merged.json["operators"]) == ["counted", "counter"]
        ran = run("drop", *of, "--snapshot", "renamed", "--snapshot", "both", "--yes", "--json")
        assert (ran.code, ran.json["dropped"]["dropped"]) == (0, ["renamed", "both"]), ran.err
        committed = run("commit", *of, "--parent", "tuesday", "--snapshot", "again", "--json")
        assert (committed.code, committed.json["parent"]) == (0, "tuesday"), committed.err
        unclear = run("export", *of, "--snapshot", "", "--to", tmp_path / "none")
        assert (unclear.code, unclear.out) == (3, "")


WHOLE: dict[str, tuple[str, ...]] = {
    "drop": ("--snapshot", "{}", "--yes"),
    "hold": ("{}",),
    "release": ("{}",),
    "commit": ("--parent", "{}", "--snapshot", "new"),
    "erase": ("--snapshot", "{}", "--key", "a", "--request", "r", "--carried", "drop", "--yes"),
}
COMPLETED = {
    # these read
    "get", "find", "expired", "top", "offsets", "channels", "report",
    "export", "diff", "growth", "plan-rescale", "sql", "shell", "run", "flink canary",
    "check integrity", "check legality", "check compatibility", "check sql", "types",
    # these make another snapshot of the one that is named, which stays
    "edit", "migrate", "upgrade", "sql-upgrade",
}  # fmt: skip
OTHERS = {"run": "restore"}  # in which it completes nothing


def commands_that_name_a_snapshot() -> set[str]:
    """The commands with an argument or option that names a snapshot of a lake which is there."""
    found = set()

    def look(command: click.Command, name: str) -> None:
        if isinstance(command, click.Group):
            context = click.Context(command)
            for each in command.list_commands(context):
                below = command.get_command(context, each)
                assert below is not None
                look(below, f"{name} {each}".strip())
            return
        for option in command.params:
            completes = getattr(option, "_custom_shell_complete", None) is _complete_snapshots
            if completes or OTHERS.get(name) == option.name:
                found.add(name)

    look(commands, "")
    return found


class TestWhatChangesASnapshot:
    """It takes whole ids alone: any other name means another snapshot once that one is gone."""

    @pytest.fixture
    def gone(self, tmp_path: Path) -> tuple[str, ...]:
        """The lake and job of `run-10`, where `run-1` was dropped."""
        of = ("--lake", str(tmp_path / "lake"), "--job", "words")
        for name in ("run-1", "run-10"):
            assert run("import", WORDS, *of, "--snapshot", name).code == 0
        assert run("drop", *of, "--snapshot", "run-1", "--yes").code == 0
        return of

    def test_each_command_is_of_one_kind(self) -> None:
        """A new command that names a snapshot is put into one of the two tables."""
        assert commands_that_name_a_snapshot() == COMPLETED | set(WHOLE)

    @pytest.mark.parametrize("command", WHOLE)
    def test_a_name_that_is_gone_means_no_other(self, command: str, gone: tuple[str, ...]) -> None:
        """A command that is given again is refused, says what is near, and changes nothing."""
        assert run("hold", *gone, "run-10", "--reason", "case").code == 0
        listed = run("snapshots", *gone, "--json").json
        ran = run(command, *gone, *(word.format("run-1") for word in WHOLE[command]))
        assert (ran.code, ran.out) == (3, "")
        assert "there is no snapshot run-1; there is run-10; nothing was changed" in ran.err
        assert run("snapshots", *gone, "--json").json == listed

    @pytest.mark.parametrize("name", ["latest", "2030-01-01"])
    @pytest.mark.parametrize("command", WHOLE)
    def test_a_name_that_moves_is_refused(
        self, command: str, name: str, gone: tuple[str, ...]
    ) -> None:
        """With the id that it means now."""
        listed = run("snapshots", *gone, "--json").json
        ran = run(command, *gone, *(word.format(name) for word in WHOLE[command]))
        assert (ran.code, ran.out) == (3, "")
        assert f"give the id: {name} is run-10 now" in ran.err
        assert run("snapshots", *gone, "--json").json == listed

    def test_in_python(self, gone: tuple[str, ...]) -> None:
        """The methods refuse what the commands do; an id that was looked up is whole."""
        job = sl.Lake(gone[1]).job("words")
        newest = job.newest()
        newest.hold("case")
        for name in ("run-1", "latest"):
            lake = job.lake
            for change in (
                partial(job.plan_drop, name), partial(job.drop, name),
                partial(job.commit, "new", name), job[name].hold, job[name].release,
                partial(job[name].erase, "r", keys=["a"]),
                lake.erase("r", keys=["a"], snapshots=[name]).plan,
                lake.erase("r", keys=["a"], snapshots=[name]).execute,
            ):  # fmt: skip
                with pytest.raises(NotFoundError, match=r"there is run-10|latest is run-10 now"):
                    change()
        assert [each.reason for each in job.newest().record.holds] == ["case"]
        assert newest.release() == ["case"]
        assert job.drop(job["latest"].name).dropped == ["run-10"]

    def test_a_reader_says_what_it_completed(self, gone: tuple[str, ...], tmp_path: Path) -> None:
        """In one line on standard error; standard output is that of the id."""
        for words in (
            ("top", "--json", "--snapshot"), ("sql", "--json", "SELECT 1 AS a", "--as-of"),
            ("export", "--json", "--to", str(tmp_path / "out"), "--snapshot"),
        ):  # fmt: skip
            ran = run(*words, "run-1", *gone)
            assert (ran.code, ran.err) == (0, "run-1 is completed to run-10\n")
            assert "completed" not in ran.out

    def test_growth_says_what_it_completed(self, of: tuple[str, ...]) -> None:
        """Of both of its names."""
        ran = run("growth", *of, "--since", "mon", "--until", "tue", "--json")
        assert ran.err.splitlines()[:2] == [
            "mon is completed to monday", "tue is completed to tuesday",
        ]  # fmt: skip

    def test_in_several_jobs(self, gone: tuple[str, ...]) -> None:
        """An erasure of all jobs says what the name means in each."""
        assert run("import", WORDS, *gone[:2], "--job", "more", "--snapshot", "m").code == 0
        erasure = sl.Lake(gone[1]).erase("r", keys=["a"], snapshots=["latest"])
        with pytest.raises(NotFoundError, match="latest is m of more and run-10 of words now"):
            erasure.plan()

    def test_an_id_that_was_looked_up(self, lake: Catalog) -> None:
        """It is taken as it is; of a job that is not there, the jobs are named."""
        assert full_snapshot_id(lake, "orders", SnapshotId("mon")) == "mon"
        assert full_snapshot_id(lake, "orders", "monday") == "monday"
        with pytest.raises(NotFoundError, match="no job 'returns' in the lake; it has: orders"):
            full_snapshot_id(lake, "returns", "latest")
