"""`statelake report`: what it writes and refuses, of savepoints and of lakes."""

from __future__ import annotations

import re
import shutil
from datetime import datetime, timezone
from html import unescape
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

import statelake as sl
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.report.page import refuse_target
from statelake.state_core.errors import SnapshotError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.printable import bytes_text
from tests.support.command import run
from tests.support.lakes import DEMO, golden, import_as
from tests.support.savepoints.damaged import Damaged, damaged

NO, USAGE, BAD_INPUT = 1, 2, 3
MONDAY, TUESDAY = DEMO / "monday", DEMO / "tuesday"
DOCS = Path(__file__).parents[3] / "docs"
PLAIN = "wordcount-hashmap-canonical-p2-m128-flink1.20.0"


def text_of(path: Path) -> str:
    """The text of a page, a bar between any two parts."""
    body = path.read_text("utf-8").partition("<body>")[2]
    return unescape(re.sub("(<[^>]*>)+", "|", body))


@pytest.fixture
def broken(tmp_path: Path) -> Damaged:
    """A savepoint with an entry that is longer than its key group."""
    savepoint = damaged(golden(PLAIN), tmp_path / "damaged")
    group = savepoint.groups(0)[4]
    savepoint.change_group(0, group, lambda data: data[:2] + b"\x7f\xff\xff\xff" + data[6:])
    return savepoint


def test_a_savepoint(tmp_path: Path) -> None:
    """One file, and a line that says so; nothing is said of faults that nobody looked for."""
    target = tmp_path / "report.html"
    ran = run("report", MONDAY, "--to", target)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"wrote {target}: ")
    assert list(tmp_path.iterdir()) == [target]
    assert "|Faults|Not checked for faults: make the report with |--check|" in text_of(target)


def test_the_documentation_shows_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command of docs/report.md prints what stands below it; its picture is a small one."""
    page = DOCS / "report.md"
    command, printed = page.read_text("utf-8").split("```\n")[1].splitlines()
    shutil.copytree(DEMO, tmp_path / "demo" / "savepoints")
    monkeypatch.chdir(tmp_path)
    ran = run(*command.removeprefix("$ statelake ").split())
    assert (ran.code, ran.out) == (0, f"{printed}\n")
    assert 10_000 < (DOCS / "images" / "report.png").stat().st_size < 150_000


def test_for_scripts(tmp_path: Path) -> None:
    """The same as JSON."""
    target = tmp_path / "report.html"
    ran = run("report", MONDAY, "--to", target, "--check", "--json")
    assert ran.code == 0
    size = target.stat().st_size
    assert ran.json == {
        "path": str(target), "bytes": size, "operators": 3, "faults": 0, "problems": [],
    }  # fmt: skip
    assert "|Sound: everything was read, and no fault was found.|" in text_of(target)


def test_without_heaviest_keys(tmp_path: Path) -> None:
    """No key of the snapshot is in the page; sizes are."""
    target = tmp_path / "report.html"
    assert run("report", MONDAY, "--to", target, "--limit", 0).code == 0
    assert "Heaviest keys" not in text_of(target)
    assert "|Bytes by subtask|" in text_of(target)


@pytest.mark.full
def test_a_lake(tmp_path: Path) -> None:
    """The newest snapshot or the one that is named, how the job grew, and a savepoint's sizes."""
    lake = tmp_path / "lake"
    for savepoint in (MONDAY, TUESDAY):
        import_as(Catalog(lake), savepoint, savepoint.name, "demo")
    target, other, direct = (tmp_path / f"{name}.html" for name in ("new", "old", "savepoint"))
    words = ("report", "--lake", lake, "--job", "demo")
    assert run(*words, "--to", target, "--check").code == 0
    assert run(*words, "--snapshot", "latest~1", "--to", other).code == 0
    assert run("report", MONDAY, "--to", direct).code == 0
    new, old = text_of(target), text_of(other)
    assert new.startswith("|State of demo, tuesday|Job|demo|Snapshot|tuesday|From|canonical|Taken|")
    assert re.search(r"\|tuesday\|[^|]+\|1,248\|26.9 KiB\|\+1.7 KiB\|[^|]+\|", new)
    assert "|State of demo, monday|" in old
    growth = re.compile(r"Growth.*?Faults")
    assert growth.search(old) is not None
    assert "Growth" not in text_of(direct)
    since = "|States and their types|"
    assert (
        old.partition(since)[2].partition('{"shown"')[0]
        == (text_of(direct).partition(since)[2].partition('{"shown"')[0])
    )


def days(lake: Path) -> sl.Job:
    """The demo's job with two snapshots, a day apart."""
    job = sl.Lake(lake).job("demo", engine="local")
    for number, savepoint in enumerate((MONDAY, TUESDAY)):
        taken = datetime(2026, 11, 23 + number, tzinfo=timezone.utc)
        job.import_snapshot(savepoint, savepoint.name, taken=taken)
    return job


@pytest.mark.full
def test_why_the_state_of_a_job_grew(tmp_path: Path) -> None:
    """The sentences of `growth`, a line on which the snapshot is marked, and its tables."""
    job = days(tmp_path / "lake")
    target = tmp_path / "report.html"
    words = ("report", "--lake", tmp_path / "lake", "--job", "demo", "--to", target, "--overwrite")
    assert run(*words).code == 0
    said, found = text_of(target), job.growth()
    assert len(found.sentences) == 3
    assert f"|Growth|{'|'.join(found.sentences)}|tuesday: 26.9 KiB|Bytes of keys" in said
    assert (
        "to 2026-11-24 00:00 UTC; the top is 26.9 KiB, the bottom 0. The bar is tuesday.|" in said
    )
    state = found.states[0]
    assert f"|{state.label}|map|3.7 KiB|3.9 KiB|+252 B|180|192|{state.cause}|" in said
    group = found.groups[0]
    assert f"|{group.key_group}|{bytes_text(group.first)}|{bytes_text(group.last)}|" in said
    assert re.search(r"\|monday\|2026-11-23 00:00\|1,170\|[^|]+\|[^|]+\|", said)
    assert run(*words, "--snapshot", "monday").code == 0
    assert "|Growth|" + "|".join(found.sentences) in text_of(target)
    assert "The bar is monday." in text_of(target)
    assert run(*words, "--limit", 0).code == 0
    told = text_of(target)  # without keys, and what is only known of them
    assert "|Growth|" + "|".join(job.growth(keys=False).sentences) in told
    assert found.sentences[2] not in told


@pytest.mark.full
def test_what_is_not_known_of_the_growth(tmp_path: Path) -> None:
    """There is none of one snapshot; a file that another one lacks is told, with the rest."""
    job = days(tmp_path / "lake")
    of_day = {name: job[name].record for name in ("monday", "tuesday")}
    kept = {(table.path, unit.path) for table in of_day["tuesday"].tables for unit in table.units}
    for table in of_day["monday"].tables:
        for unit in table.units:
            if (table.path, unit.path) not in kept:
                (tmp_path / "lake" / table.path / unit.path).unlink()
    target = tmp_path / "report.html"
    words = ("report", "--lake", tmp_path / "lake", "--job", "demo", "--to", target, "--overwrite")
    assert run(*words).code == 0
    assert re.search(r"\|Growth\|Why it grew is not known: [^|]+\|", text_of(target))
    assert "|The job's snapshots, the oldest first|" in text_of(target)
    assert "|Heaviest keys|" in text_of(target)
    import_as(Catalog(tmp_path / "lake"), TUESDAY, "first", "other")
    assert run("report", "--lake", tmp_path / "lake", "--job", "other", "--to", target,
               "--overwrite").code == 0  # fmt: skip
    assert "|Growth|The job's snapshots, the oldest first|" in text_of(target)


def test_what_is_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's lake and job stand in for the options, and give way to a savepoint."""
    lake, target = tmp_path / "lake", tmp_path / "report.html"
    import_as(Catalog(lake), TUESDAY, "tuesday", "demo")
    monkeypatch.setenv("STATELAKE_LAKE", str(lake))
    monkeypatch.setenv("STATELAKE_JOB", "demo")
    assert run("report", "--to", target, "--limit", 0).code == 0
    assert text_of(target).startswith("|State of demo, tuesday|")
    assert run("report", MONDAY, "--to", target, "--limit", 0, "--overwrite").code == 0
    assert text_of(target).startswith("|State of monday|")


def test_faults_are_told_and_the_rest_is_shown(broken: Damaged, tmp_path: Path) -> None:
    """Exit code 1 with --check; without it what can't be read is an error beside the page."""
    target = tmp_path / "report.html"
    ran = run("report", broken.path, "--to", target, "--check")
    assert (ran.code, ran.err) == (NO, "")
    assert ran.out.endswith("; 1 fault\n")
    said = text_of(target)
    assert "|Faults|1 fault|Problem|" in said
    assert "|Not all of its state could be read: " in said
    target.unlink()
    ran = run("report", broken.path, "--to", target)
    assert ran.code == BAD_INPUT
    assert "|Not all of its state could be read: " in text_of(target)


def test_one_that_can_not_be_opened(broken: Damaged, tmp_path: Path) -> None:
    """Its faults are all that there is to tell; of what is no savepoint there is no page."""
    target = tmp_path / "report.html"
    broken.change(broken.path / "_metadata", lambda data: data[:40])
    ran = run("report", broken.path, "--to", target, "--check", "--json")
    assert (ran.code, ran.json["operators"]) == (NO, 0)
    assert ran.json["faults"] == 1
    said = text_of(target)
    assert "|Can't be opened|" in said
    assert "|1 fault|Problem|" in said
    assert "|Operators|" not in said
    target.unlink()
    assert run("report", tmp_path / "none", "--to", target, "--check").code == BAD_INPUT
    assert not target.exists()


def test_a_new_place_in_an_object_store() -> None:
    """Its directories need not be there: they are parts of names, and come with the page."""
    directory = Directory("/bucket/new", MemoryFileSystem())
    with pytest.raises(SnapshotError, match="make it first"):
        refuse_target(directory, "page.html", "page.html", overwrite=False)
    directory.is_object_store = True
    refuse_target(directory, "page.html", "page.html", overwrite=False)


def test_a_file_that_is_there(tmp_path: Path) -> None:
    """It stays as it is, unless it is to be replaced."""
    target = tmp_path / "report.html"
    target.write_text("mine", "utf-8")
    ran = run("report", MONDAY, "--to", target)
    assert ran.code == BAD_INPUT
    assert ran.err == f"error: {target}: the file is there; --overwrite replaces it\n"
    assert target.read_text("utf-8") == "mine"
    assert run("report", MONDAY, "--to", target, "--overwrite").code == 0
    assert "State of monday" in target.read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "problem"),
    [("", "this is a directory"), ("made", "this is a directory"),
     ("none/report.html", "there is no such directory")],
)  # fmt: skip
def test_a_place_where_no_file_can_be(tmp_path: Path, name: str, problem: str) -> None:
    """It is refused before anything is read."""
    (tmp_path / "made").mkdir()
    ran = run("report", MONDAY, "--to", f"{tmp_path}/{name}", "--overwrite")
    assert ran.code == BAD_INPUT
    assert problem in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


@pytest.mark.parametrize(
    "words",
    [(), (MONDAY, "--lake", "l", "--job", "j"), ("--lake", "l"), (MONDAY, "--snapshot", "s")],
)
def test_neither_a_savepoint_nor_a_lake(tmp_path: Path, words: tuple[object, ...]) -> None:
    """Wrong usage, and nothing is written."""
    ran = run("report", *words, "--to", tmp_path / "report.html")
    assert ran.code == USAGE
    assert list(tmp_path.iterdir()) == []
