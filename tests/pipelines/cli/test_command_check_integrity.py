"""`statelake check integrity`: exit codes, what people read and what scripts do, salvage."""

from __future__ import annotations

from pathlib import Path

import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from tests.support.command import run
from tests.support.lakes import KINDS, WORDS, entries, golden, import_as
from tests.support.savepoints.damaged import Damaged, damaged

PLAIN = "wordcount-hashmap-canonical-p2-m128-flink1.20.0"


@pytest.fixture
def broken(tmp_path: Path) -> Damaged:
    """A savepoint with a key that is damaged, and a file that is cut off."""
    one = damaged(golden(PLAIN), tmp_path / "damaged")
    one.change_group(0, one.groups(0)[4], lambda data: data[:9] + b"\x7f" + data[10:])
    end = one.span(1, one.groups(1)[-1])[0]
    one.change(one.file(1), lambda data: data[: end + 5])
    return one


def test_a_sound_one() -> None:
    """Exit code 0, and how much was looked at."""
    ran = run("check", "integrity", KINDS)
    assert (ran.code, ran.err) == (0, "")
    assert "sound: 3 handles, 3 files" in ran.out
    assert "83 key groups; 1170 entries" in ran.out


def test_a_sound_one_for_scripts() -> None:
    """The same as JSON."""
    ran = run("check", "integrity", KINDS, "--json")
    assert ran.code == 0
    assert ran.json["sound"] is True
    assert ran.json["faults"] == ran.json["not_checked"] == []
    assert ran.json["checked"]["entries"] == ran.json["checked"]["hashed"] == 1170


def test_a_damaged_one(broken: Damaged) -> None:
    """Exit code 1, and every fault with its place and remedy."""
    ran = run("check", "integrity", broken.path)
    assert (ran.code, ran.err) == (1, "")
    assert "3 faults" in ran.out
    group = broken.groups(0)[4]
    assert f"subtask 0, state 'count', key group {group}\n" in ran.out
    for word in ("its hash is of key group", "`_metadata` says", "-> the file was cut off"):
        assert word in ran.out


def test_a_damaged_one_for_scripts(broken: Damaged) -> None:
    """Every fault has its kind and its place in the job and in the file."""
    ran = run("check", "integrity", broken.path, "--json")
    assert ran.code == 1
    assert ran.json["sound"] is False
    kinds = [(fault["kind"], fault["subtask"], fault["state"]) for fault in ran.json["faults"]]
    assert kinds == [("file", 1, None), ("key", 0, "count"), ("key group", 1, None)]
    assert ran.json["faults"][1]["key_groups"] == [broken.groups(0)[4]] * 2
    assert all(
        fault["problem"] and fault["remedy"] and fault["place"] for fault in ran.json["faults"]
    )


def test_salvage(broken: Damaged, tmp_path: Path) -> None:
    """What can be read is written, what can't is listed; the exit code is still 1."""
    ran = run("check", "integrity", broken.path, "--salvage", tmp_path / "saved", "--json")
    assert ran.code == 1
    done = ran.json["salvage"]
    assert done["path"] == str(tmp_path / "saved")
    held = entries(tmp_path / "saved")
    assert done["entries"] == sum(map(len, held.values()))
    lost = {tuple(loss["key_groups"]): loss["entries"] for loss in done["lost"]}
    assert lost[broken.groups(0)[4], broken.groups(0)[4]] == 1
    assert run("check", "integrity", tmp_path / "saved").code == 0


def test_salvage_for_people(broken: Damaged, tmp_path: Path) -> None:
    """A line of what was written, and a table of what was lost."""
    ran = run("check", "integrity", broken.path, "--salvage", tmp_path / "saved")
    assert ran.code == 1
    assert "elements of operator state; lost:" in ran.out
    again = run("check", "integrity", WORDS, "--salvage", tmp_path / "whole")
    assert again.code == 0
    assert "nothing is lost" in again.out
    assert entries(tmp_path / "whole") == entries(WORDS)


def test_metadata_that_can_not_be_read(broken: Damaged, tmp_path: Path) -> None:
    """Said so; nothing is written."""
    (broken.path / "_metadata").write_bytes(b"no")
    ran = run("check", "integrity", broken.path, "--salvage", tmp_path / "saved")
    assert ran.code == 1
    assert "nothing can be salvaged" in ran.out
    assert not (tmp_path / "saved").exists()


def test_words_of_markup_are_words(tmp_path: Path) -> None:
    """A name with brackets is printed as it is."""
    ran = run("check", "integrity", WORDS, "--salvage", tmp_path / "[/red]")
    assert ran.code == 0
    assert "[/red]" in ran.out


@pytest.mark.parametrize(
    "words",
    [
        [], ["--lake", "l"], ["--lake", "l", "--job", "j"], ["sp", "--job", "j"],
        ["--salvage", "to", "--lake", "l", "--job", "j", "--snapshot", "s"],
    ],
)  # fmt: skip
def test_what_can_not_be_asked(words: list[str]) -> None:
    """Usage: exit code 2."""
    assert run("check", "integrity", *words).code == 2


def test_no_savepoint(tmp_path: Path) -> None:
    """Bad input: exit code 3."""
    ran = run("check", "integrity", tmp_path)
    assert ran.code == 3
    assert "no `_metadata` file in it" in ran.err


def test_help_has_examples() -> None:
    """What to type."""
    ran = run("check", "integrity", "--help")
    assert ran.code == 0
    assert "statelake check integrity /checkpoints/chk-42 --salvage" in ran.out


def test_of_a_lake(tmp_path: Path) -> None:
    """A snapshot of a lake, alone and held against its savepoint."""
    lake = Catalog(tmp_path / "lake")
    record = import_as(lake, WORDS, "s")
    words = ["check", "integrity", "--lake", lake.location, "--job", "orders", "--snapshot", "s"]
    assert run(*words).code == 0
    assert run(*words, WORDS, "--json").json["sound"] is True
    other = run(*words, KINDS)
    assert other.code == 1
    assert "is not in the lake" in other.out
    table = record.operators[0].tables[0]
    (tmp_path / "lake" / table.path / table.units[0].path).unlink()
    ran = run(*words, "--json")
    assert ran.code == 1
    assert ran.json["lake_faults"] == [f"{table.path}/{table.units[0].path} is not there"]
