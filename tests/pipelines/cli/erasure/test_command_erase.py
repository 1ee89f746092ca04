"""`statelake erase` and `statelake audit`, as people and scripts call them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.command import run
from tests.support.lakes import DEMO, files_of
from tests.support.people import ALICE, files_with, people_savepoint

KEY = "-783633772217"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A lake with a savepoint of the demo's and one of people."""
    monkeypatch.delenv("STATELAKE_ERASE_SECRET", raising=False)
    lake = str(tmp_path / "lake")
    people = str(people_savepoint(tmp_path / "people", 1))
    uids = ("--uid", "users", "--uid", "places")
    for source, job, *more in ((str(DEMO / "monday"), "orders"), (people, "people", *uids)):
        words = ("--lake", lake, "--job", job, "--snapshot", "monday")
        assert run("import", source, *words, *more).code == 0
    return lake


def test_a_plan_is_printed_and_nothing_is_written(lake: str) -> None:
    """Without --yes; as a table and as JSON."""
    files = files_of(Path(lake))
    ran = run("erase", "--lake", lake, f"--key={KEY}", "--request", "r")
    assert ran.code == 0
    assert "r would erase 11 rows in 9 files" in ran.out
    assert "nothing was written; --yes erases" in ran.out
    plan = run("erase", "--lake", lake, f"--key={KEY}", "--json").json
    assert plan["rows"] == 11
    assert plan["planned"] is True
    assert files_of(Path(lake)) == files


def test_a_plan_asks_for_no_option_that_was_given(lake: str) -> None:
    """For state that can't be searched it asks for --carried, and for a whole state for --all."""
    assert run("import", DEMO / "tuesday", "--lake", lake, "--job", "orders").code == 0
    words = ("erase", "--lake", lake, "--job", "orders", f"--key={KEY}", "--request", "r")
    where = ("--where", "kinds/total", "true")
    ran = run(*words, *where)
    assert "give --carried drop or --carried keep" in ran.out
    assert "give --all" in ran.out
    for choice, becomes in (("keep", "kept"), ("drop", "dropped")):
        ran = run(*words, *where, "--carried", choice, "--all")
        assert ran.code == 0
        assert f"in 1 of 2 snapshots: would be {becomes} (--carried {choice})" in ran.out
        assert "give --" not in ran.out


def test_a_state_that_is_misspelled_is_suggested(lake: str) -> None:
    """Among the states of all snapshots."""
    ran = run("erase", "--lake", lake, "--where", "kinds/totl", "true", "--request", "r")
    assert ran.code == 3
    assert "did you mean 'kinds/total'?" in ran.err


@pytest.mark.full
def test_what_is_erased_is_proved_gone(lake: str, tmp_path: Path) -> None:
    """With the keys in a file and a secret, predicates, and the records of both."""
    (tmp_path / "keys.txt").write_text(f"{ALICE}\n\n", "utf-8")
    (tmp_path / "secret").write_text("s3cret\n", "utf-8")
    asked = (
        "--lake", lake, "--keys", tmp_path / "keys.txt", "--secret-file", tmp_path / "secret",
        "--where", "users/friends", f"user_key = '{ALICE}'",
        "--where", "places/members", f"element = '{ALICE}'",
        "--where", "places/pending", f"value = '{ALICE}'",
        "--where", "places/shared", f"value = '{ALICE}'",
        "--where", "places/rules", "key = 'nobody'", "--where", "places/rules", f"key = '{ALICE}'",
        "--request", "gdpr-4711",
    )  # fmt: skip
    refused = run("erase", *asked, "--job", "people", "--yes")
    assert refused.code == 3
    assert "--all" in refused.err
    ran = run("erase", *asked, "--job", "people", "--all", "--yes", "--by", "ops", "--json")
    assert ran.code == 0
    assert len(ran.json["asked"]) == 64
    assert ALICE not in ran.out
    assert files_with(Path(lake), ALICE) == []
    listed = run("snapshots", "--lake", lake).out
    assert "erased by" in listed.splitlines()[1]
    assert listed.count("gdpr-4711") == 1
    of_sql = run("sql", "--lake", lake, "--json", "SELECT job, erased FROM statelake.snapshots")
    assert '"erased": ["gdpr-4711"]' in of_sql.out
    audited = run("audit", "erase", *asked)
    assert (audited.code, audited.out.count("nothing is left")) == (0, 1)
    exports = tmp_path / "people"
    found = run("audit", "erase", *asked, "--also", exports, "--json")
    assert found.code == 1
    assert found.json["hits"]
    assert found.json["clean"] is False
    records = run("audit", "records", "--lake", lake, "--json").json
    assert [record["kind"] for record in records["records"]] == ["erase", "audit", "audit"]
    assert records["records"][0]["requested_by"] == "ops"
    assert records["broken"] is None
    assert run("audit", "records", "--lake", lake).code == 0


def test_exit_codes(lake: str, tmp_path: Path) -> None:
    """1 where nothing is found, 2 for wrong usage, 3 for bad input."""
    assert run("erase", "--lake", lake, "--key", "nobody-at-all").code == 1
    assert run("erase", "--lake", lake, "--key", "nobody-at-all", "--yes").code == 1
    assert run("erase", "--lake", lake).code == 2
    assert run("erase", "--lake", lake, "--job", "orders", "--key", "no-number").code == 3
    assert run("erase", "--lake", lake, "--job", "nothing", "--key", "x").code == 3
    assert run("erase", "--lake", tmp_path / "no", "--key", "x").code == 3
    assert run("erase", "--lake", lake, "--where", "users/visits", "SELECT").code == 3
    assert run("audit", "erase", "--lake", lake, "--request", "r", "--key", "xxxxxx").code == 3


def test_the_secret_may_be_a_variable(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the environment; another one is refused by the audit."""
    asked = ("--lake", lake, f"--key={KEY}", "--request", "r", "--job", "orders")
    monkeypatch.setitem(os.environ, "STATELAKE_ERASE_SECRET", "one")
    assert run("erase", *asked, "--yes").code == 0
    monkeypatch.setitem(os.environ, "STATELAKE_ERASE_SECRET", "another")
    ran = run("audit", "erase", *asked[:5])
    assert ran.code == 3
    assert "another secret" in ran.err
