"""The power is cut at any moment of an import, of an export and of a run.

What was reported done is there and whole; what was not can be done again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.runtime import RunOptions, run_job
from tests.support.command import run
from tests.support.jobs.alert_orders import (
    EXAMPLE,
    alerts_module,
    expected,
    feed,
    sink_rows,
    state_rows,
)
from tests.support.jobs.committed_runs import assert_alike
from tests.support.lakes import WINDOWS, Contents, edited_savepoint, entries, raw_savepoint
from tests.support.power_cuts import Kept, Recording, record

pytestmark = pytest.mark.thinned(10)

MOMENTS = 50
CUTS = [pytest.param(at, list(Kept)[at % len(Kept)], id=f"at-{at}") for at in range(MOMENTS)]
ENDS = [pytest.param(kept, id=kept.value) for kept in Kept]
SOURCES = ("blob", "changelog", "lake")
Savepoints = dict[str, Path]


@pytest.fixture(scope="module")
def savepoints(tmp_path_factory: pytest.TempPathFactory) -> Savepoints:
    """Two that follow on each other, with state in tables and state that is carried."""
    work = tmp_path_factory.mktemp("savepoints")
    first = raw_savepoint(work / "first", WINDOWS)
    change = ("tumbling/window-contents", "key_group < 20", {"value": "value + 1"})
    return {"first": first, "second": edited_savepoint(first, work / "second", change)}


@pytest.fixture(scope="module")
def first_import(tmp_path_factory: pytest.TempPathFactory, savepoints: Savepoints) -> Recording:
    """The first import into a lake that is not there yet."""
    root = tmp_path_factory.mktemp("first-import")
    words = importing(root, savepoints, "first")
    return record(root, tmp_path_factory.mktemp("record"), *words)


@pytest.fixture(scope="module")
def second_import(tmp_path_factory: pytest.TempPathFactory, savepoints: Savepoints) -> Recording:
    """The import of the next snapshot, which shares files with the first."""
    root = tmp_path_factory.mktemp("second-import")
    assert run(*importing(root, savepoints, "first")).code == 0
    words = importing(root, savepoints, "second")
    return record(root, tmp_path_factory.mktemp("record"), *words)


@pytest.fixture(scope="module")
def an_export(tmp_path_factory: pytest.TempPathFactory, savepoints: Savepoints) -> Recording:
    """The export of a snapshot."""
    root = tmp_path_factory.mktemp("export")
    assert run(*importing(root, savepoints, "first")).code == 0
    words = exporting(root, "first")
    return record(root, tmp_path_factory.mktemp("record"), *words)


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Recording]:
    """The first run of a job, and the second, both committed to a blob store and a changelog."""
    root = tmp_path_factory.mktemp("runs")
    words = [
        "run", f"{EXAMPLE}:JOB", "--lake", root / "lake", "--parallelism", "2",
        "--engine", "local", *(f"--commit-to={place}" for place in commit_to(root)),
    ]  # fmt: skip
    recordings = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALERTS_DATA", str(root / "data"))
        for number in range(2):
            feed(root / "data", number)
            recordings.append(record(root, tmp_path_factory.mktemp("record"), *words))
    return recordings


@pytest.mark.parametrize(("at", "kept"), CUTS)
@pytest.mark.full
def test_a_first_import_that_was_cut_off_can_be_done_again(
    first_import: Recording, savepoints: Savepoints, tmp_path: Path, at: int, kept: Kept
) -> None:
    """The same command ends well then, and the snapshot is whole."""
    root = cut(first_import, tmp_path, at, kept)
    assert_done(importing(root, savepoints, "first"))
    assert_exported(root, savepoints, "first")


@pytest.mark.parametrize(("at", "kept"), CUTS)
@pytest.mark.full
def test_a_second_import_that_was_cut_off_can_be_done_again(
    second_import: Recording, savepoints: Savepoints, tmp_path: Path, at: int, kept: Kept
) -> None:
    """And the snapshot before is whole, before that and after."""
    root = cut(second_import, tmp_path, at, kept)
    assert_exported(root, savepoints, "first", to="before")
    assert_done(importing(root, savepoints, "second"))
    assert_exported(root, savepoints, "first", "second")


@pytest.mark.parametrize(("at", "kept"), CUTS)
@pytest.mark.full
def test_an_export_that_was_cut_off_can_be_done_again(
    an_export: Recording, savepoints: Savepoints, tmp_path: Path, at: int, kept: Kept
) -> None:
    """A savepoint of that name is whole, or the same command makes it; nothing else is left."""
    root = cut(an_export, tmp_path, at, kept)
    if not (root / "first").exists():
        assert_done(exporting(root, "first"))
    assert content(root / "first") == content(savepoints["first"])
    assert sorted(path.name for path in root.iterdir()) == ["first", "lake"]


@pytest.mark.parametrize("kept", ENDS)
@pytest.mark.full
def test_what_was_reported_as_imported_is_there(
    first_import: Recording,
    second_import: Recording,
    savepoints: Savepoints,
    tmp_path: Path,
    kept: Kept,
) -> None:
    """Without a second try."""
    for recording, names in ((first_import, ["first"]), (second_import, ["first", "second"])):
        root = tmp_path / names[-1]
        recording.disk(root, len(recording.calls), kept)
        assert_exported(root, savepoints, *names)


@pytest.mark.parametrize("kept", ENDS)
def test_what_was_reported_as_exported_is_there(
    an_export: Recording, savepoints: Savepoints, tmp_path: Path, kept: Kept
) -> None:
    """Under its name, with all of its files."""
    an_export.disk(tmp_path / "root", len(an_export.calls), kept)
    assert content(tmp_path / "root/first") == content(savepoints["first"])


@pytest.mark.parametrize(("at", "kept"), CUTS)
@pytest.mark.full
def test_a_run_that_was_cut_off_is_done_once(
    two_runs: list[Recording], tmp_path: Path, at: int, kept: Kept
) -> None:
    """By the same command, whatever state is restored from; and all backends have its state."""
    root = cut(two_runs[1], tmp_path, at, kept)
    assert_run(root, 2, SOURCES[at // len(Kept) % len(SOURCES)])


@pytest.mark.parametrize("kept", ENDS)
@pytest.mark.full
def test_what_a_prepared_run_names_is_there(
    two_runs: list[Recording], tmp_path: Path, kept: Kept
) -> None:
    """Its output, too, as nothing computes it again."""
    for number, recording in enumerate(two_runs, 1):
        (made,) = (at for at, call in enumerate(recording.calls) if call[-1] == "prepared.json")
        synced = next(
            at for at in range(made, len(recording.calls)) if names_are_synced(recording, at)
        )
        root = tmp_path / str(number)
        recording.disk(root, synced + 1, kept)
        assert_run(root, number, "lake")


@pytest.mark.parametrize("kept", ENDS)
def test_what_was_reported_as_run_is_there(
    two_runs: list[Recording], tmp_path: Path, kept: Kept
) -> None:
    """In every backend."""
    for number, recording in enumerate(two_runs, 1):
        root = tmp_path / str(number)
        recording.disk(root, len(recording.calls), kept)
        assert_run(root, number, "lake", done=True)


def names_are_synced(recording: Recording, at: int) -> bool:
    """Whether a call syncs the directory into which `prepared.json` came."""
    (parent,) = (call[2] for call in recording.calls if call[-1] == "prepared.json")
    return recording.calls[at][:2] == ["sync", parent]


def commit_to(root: Path) -> list[str]:
    """The backends beside the lake."""
    return [f"{name}={root / name}" for name in ("blob", "changelog")]


def assert_run(root: Path, number: int, source: str, *, done: bool = False) -> None:
    """Assert that a run ends well, or has done so, and that output and state are there once."""
    job, lake = alerts_module().alerts(str(root / "data")), Catalog(root / "lake")
    options = RunOptions(
        parallelism=2, engine="local", commit_to=commit_to(root), restore_from=source
    )
    ran = run_job(job, lake, options).run
    assert ran in ({0} if done else {0, number})
    alerts, spent = expected(range(number))
    rows = sink_rows(root / "data/alerts")
    assert sorted((row["customer"], row["rule"], row["spent"]) for row in rows) == sorted(alerts)
    assert state_rows(lake, number, "alert", "spent", root) == spent
    assert_alike(job, root / "lake", commit_to(root))


def importing(root: Path, savepoints: Savepoints, name: str) -> list[Any]:
    """The command that imports a savepoint."""
    where = ["--lake", root / "lake", "--job", "windows", "--snapshot", name]
    return ["import", savepoints[name], *where, "--engine", "local"]


def exporting(root: Path, name: str, to: str = "") -> list[Any]:
    """The command that exports a snapshot, by default to where its name says."""
    where = ["--lake", root / "lake", "--job", "windows", "--snapshot", name]
    return ["export", *where, "--to", root / (to or name), "--engine", "local"]


def cut(recording: Recording, tmp_path: Path, at: int, kept: Kept) -> Path:
    """The directory as it is when the power was cut."""
    recording.disk(tmp_path / "root", len(recording.calls) * at // MOMENTS, kept)
    return tmp_path / "root"


def assert_done(words: list[Any]) -> None:
    """Assert that a command ends well."""
    ran = run(*words)
    assert ran.code == 0, ran.err


def assert_exported(root: Path, savepoints: Savepoints, *names: str, to: str = "after") -> None:
    """Assert that snapshots of the lake are what was imported."""
    for name in names:
        assert_done(exporting(root, name, f"{to}-{name}"))
        assert content(root / f"{to}-{name}") == content(savepoints[name])


def content(savepoint: Path) -> tuple[Contents, bool]:
    """The entries of a savepoint, and whether the raw state is there."""
    held = {path.read_bytes() for path in savepoint.iterdir()}
    return entries(savepoint), b"only the job can read this" in held
