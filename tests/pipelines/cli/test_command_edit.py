"""`statelake edit`: options, what it prints, and what it refuses."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from tests.support.command import run
from tests.support.lakes import (
    KINDS,
    assert_whole,
    entries,
    exported,
    golden,
    import_as,
    import_golden,
)

OPERATOR = golden("operator-hashmap-canonical-p2-m128-flink2.3.0").snapshot
PLACE = ("--job", "orders", "--parent", "s", "--snapshot", "edited")


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """A lake with one snapshot."""
    return import_golden(Catalog(tmp_path / "lake"), ("s", KINDS))


def test_several_changes_at_once(lake: Catalog, tmp_path: Path) -> None:
    """What changed is reported with entries and bytes, and the export has it."""
    ran = run(
        "edit", "--lake", lake.location, *PLACE, "--rename-uid", "kinds", "all-kinds",
        "--drop-state", "kinds/scores", "--expire", "kinds/session", "0s",
        "--at", "2999-01-01T00:00Z", "--note", "why", "--json",
    )  # fmt: skip
    assert (ran.code, ran.err) == (0, "")
    assert {change["state"] for change in ran.json["changes"]} == {"scores", "session"}
    assert all(change["entries"][1] == 0 < change["entries"][0] for change in ran.json["changes"])
    assert ran.json["saved_bytes"] == sum(
        change["state_bytes"][0] - change["state_bytes"][1] for change in ran.json["changes"]
    )
    exported(lake, "edited", tmp_path / "out")
    operator = open_snapshot(tmp_path / "out").operator("all-kinds")
    names = {keyed_state.name for keyed_state in operator.keyed_states}
    assert "scores" not in names
    assert len(operator.state("session").to_arrow()) == 0
    assert lake.snapshot("orders", "edited").note == "why"


def test_a_merged_snapshot_with_a_colon_in_its_id(lake: Catalog) -> None:
    """It is found by how its id begins, with a job and without one."""
    import_as(lake, OPERATOR, "tuesday:06")
    for number, name in enumerate(("tuesday", "orders:tuesday")):
        ran = run("edit", "--lake", lake.location, *PLACE[:-1], f"e{number}", "--merge", name)
        assert (ran.code, ran.err) == (0, "tuesday is completed to tuesday:06\n")
        labels = {each.label for each in lake.snapshot("orders", f"e{number}").operators}
        assert {"kinds", "opstate"} <= labels


def test_for_people(lake: Catalog) -> None:
    """One line of what was made, and a table of the states that differ."""
    ran = run("edit", "--lake", lake.location, *PLACE, "--drop-state", "kinds/total")
    assert ran.code == 0
    assert "made edited from s" in ran.out
    assert "total" in ran.out


def test_a_dry_run_and_state_that_grows(lake: Catalog) -> None:
    """What would be made is said, and a snapshot with more state has no less than nothing less."""
    words = ("edit", "--lake", lake.location, *PLACE)
    ran = run(*words, "--drop-state", "kinds/total", "--dry-run")
    assert ran.code == 0
    assert ran.out.startswith("would make edited from s: 1,050 entries")
    assert [summary.snapshot_id for summary in lake.summaries("orders")] == ["s"]
    run(*words, "--drop-state", "kinds/total")
    ran = run(
        "sql", "--lake", lake.location, "--job", "orders", "--edit", "s", "--as", "longer",
        "UPDATE kinds.name SET value = repeat('x', 200)",
    )  # fmt: skip
    assert ran.code == 0
    assert " KiB more); wrote " in ran.out


@pytest.mark.full
def test_keys_that_stay(lake: Catalog, tmp_path: Path) -> None:
    """A file of keys leaves just these; one with no key that is there is answered with no."""
    keys = sorted(set(open_snapshot(KINDS).operator("kinds").state("total").to_arrow()["key"]
                      .to_pylist()))[:3]  # fmt: skip
    path = tmp_path / "keys.txt"
    path.write_text("".join(f"{key}\n" for key in keys), "utf-8")
    place = ("edit", "--lake", lake.location, *PLACE, "--keep-keys", "kinds", path)
    ran = run(*place, "--json")
    assert (ran.code, ran.err) == (0, "")
    exported(lake, "edited", tmp_path / "out")
    left = open_snapshot(tmp_path / "out").operator("kinds").state("total").to_arrow()
    assert sorted(left["key"].to_pylist()) == keys
    path.write_text("1\n2\n", "utf-8")
    ran = run(*place, "--snapshot", "none")
    assert (ran.code, ran.out) == (1, "")
    assert "kinds has none of the keys" in ran.err
    path.write_text(f"{keys[0]}\nalice\n", "utf-8")
    ran = run(*place, "--snapshot", "none")
    assert ran.code == 3
    assert f"{path}:2: alice is not a key of type Long" in ran.err
    assert [summary.snapshot_id for summary in lake.summaries("orders")] == ["s", "edited"]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ([], 2, "say what to change"),
        (["--drop-operator", "a", "--keep-operator", "b"], 2, "either"),
        (["--expire", "kinds/session", "soon"], 2, "no duration"),
        (["--drop-state", "kinds/total", "--at", "noon"], 2, "no time"),
        (["--drop-state", "kinds/totl"], 3, "no state 'kinds/totl'; it has: kinds/"),
        (["--drop-state", "kinds/totl"], 3, "did you mean 'kinds/total'?"),
        (["--drop-operator", "kinda"], 3, "did you mean 'kinds'?"),
        (["--purge", "kinds/total", "value < -7"], 1, "no row of s matches"),
        (["--merge", "nobody:s"], 3, "no job 'nobody'"),
        (["--keep-keys", "kinds", "nowhere.txt"], 3, "nowhere.txt: it can't be read"),
        (["--keep-keys", "kinds", "a", "--keep-keys", "kinds", "b"], 2, "--keep-keys names kinds"),
        (["--purge", "kinds/name", "a", "--purge", "kinds/name", "b"], 2, "--purge names kinds/n"),
        (["--expire", "kinds/name", "1d", "--expire", "kinds/name", "2d"], 2, "--expire names"),
        (["--rename-uid", "kinds", "a", "--rename-uid", "kinds", "b"], 2, "--rename-uid names"),
    ],
)
def test_refusals(options: list[str], code: int, said: str, lake: Catalog) -> None:
    """Usage and bad input are told apart, and no snapshot is made."""
    ran = run("edit", "--lake", lake.location, *PLACE, *options)
    assert ran.code == code
    assert said in ran.err
    assert [summary.snapshot_id for summary in lake.summaries("orders")] == ["s"]


def test_expiry_says_by_whose_time(lake: Catalog) -> None:
    """Without --at it goes by the lake's time of the snapshot, which a copy may have changed."""
    words = ("edit", "--lake", lake.location, "--job", "orders", "--parent", "s", "--json")
    expire = ("--expire", "kinds/session", "1h")
    ran = run(*words, "--snapshot", "one", *expire)
    taken = lake.snapshot("orders", "s").taken_at
    assert ran.code == 0
    assert ran.err.startswith(f"warning: what had expired by {taken:%Y-%m-%d %H:%M} UTC is gone")
    assert "give --at" in ran.err
    assert ran.json["expired_at"] == taken.isoformat()
    ran = run(*words, "--snapshot", "two", *expire, "--at", "2999-11-20T06:00Z")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json["expired_at"] == "2999-11-20T06:00:00+00:00"
    ran = run(*words, "--snapshot", "three", "--drop-state", "kinds/total")
    assert (ran.code, ran.err, "expired_at" in ran.json) == (0, "", False)


def test_the_time_of_a_copy_can_be_said(tmp_path: Path) -> None:
    """A copied savepoint has the time of copying, unless `import --taken` says another."""
    copied = tmp_path / "copied"
    shutil.copytree(KINDS, copied, copy_function=shutil.copyfile)
    of = ("--lake", tmp_path / "lake", "--job", "orders", "--json")
    now = datetime.now(timezone.utc)
    ran = run("import", copied, *of, "--snapshot", "plain")
    assert abs(datetime.fromisoformat(ran.json["taken_at"]) - now) < timedelta(minutes=5)
    ran = run("import", copied, *of, "--snapshot", "said", "--taken", "2026-11-20T06:00+02:00")
    assert datetime.fromisoformat(ran.json["taken_at"]) == datetime(
        2026, 11, 20, 4, tzinfo=timezone.utc
    )
    stored = Catalog(tmp_path / "lake").snapshot("orders", "said").taken_at
    assert stored == datetime(2026, 11, 20, 4, tzinfo=timezone.utc)
    # the time of a file is a guess, also of what is made of it, and is marked as one
    assert run("edit", *of[:4], "--parent", "plain", "--snapshot", "less", "--drop-state",
               "kinds/total").code == 0  # fmt: skip
    listed = {row["snapshot_id"]: row["taken_from"] for row in run("snapshots", *of).json}
    assert listed == {"said": "given", "plain": "file", "less": "file"}
    lines = {line.split()[1]: line for line in run("snapshots", *of[:4]).out.splitlines()[1:]}
    assert {name: "? " in lines[name] for name in listed} == {
        "said": False, "plain": True, "less": True,
    }  # fmt: skip
    assert "2026-11-20 04:00  " in lines["said"]
    query = "SELECT snapshot FROM statelake.snapshots WHERE taken_from = 'given'"
    assert run("sql", *of[:2], query, "--csv").out.split() == ["snapshot", "said"]
    grown = run("growth", *of[:4])
    assert grown.out.count(" ? ") == 1
    assert "? when the file `_metadata` was last written" in grown.out


def purge(lake: Catalog, job: str, state: str, predicate: str) -> tuple[int, str]:
    """Let rows go: the exit code, and what was said."""
    ran = run(
        "edit", "--lake", lake.location, "--job", job, "--parent", "s", "--snapshot", "less",
        "--purge", state, predicate,
    )  # fmt: skip
    return ran.code, ran.err


def test_purged_keyed_rows(lake: Catalog, tmp_path: Path) -> None:
    """The rows of which it is true go, and all others are there, entry for entry."""
    assert purge(lake, "orders", "kinds/total", "value > 10 AND key_group < 64") == (0, "")
    before = open_snapshot(KINDS).operator("kinds").state("total").to_arrow().to_pylist()
    stays = [row for row in before if not (row["value"] > 10 and row["key_group"] < 64)]
    assert 0 < len(stays) < len(before)
    found = exported(lake, "less", tmp_path / "out")
    after = open_snapshot(tmp_path / "out").operator("kinds").state("total").to_arrow()
    assert sorted(map(str, after.to_pylist())) == sorted(map(str, stays))
    others = {key: held for key, held in entries(KINDS).items() if key[1] != "total"}
    assert {key: held for key, held in found.items() if key[1] != "total"} == others
    assert_whole(lake)


def test_purged_operator_state(lake: Catalog, tmp_path: Path) -> None:
    """Elements of a list, and the rest keeps its subtask and order."""
    import_as(lake, OPERATOR, "s", "rules")
    assert purge(lake, "rules", "opstate/split", "value % 3 = 0") == (0, "")
    before = open_snapshot(OPERATOR).operator("opstate").operator_state("split").to_arrow()
    stays = [(row["subtask"], row["value"]) for row in before.to_pylist() if row["value"] % 3 != 0]
    exported(lake, "less", tmp_path / "out", "rules")
    after = open_snapshot(tmp_path / "out").operator("opstate").operator_state("split").to_arrow()
    assert [(row["subtask"], row["value"]) for row in after.to_pylist()] == stays


@pytest.mark.parametrize(
    "predicate", ["nothing = 1", "value >", "value; DROP TABLE x", "value + 1", "'a'"]
)
def test_a_predicate_that_is_not_understood(predicate: str, lake: Catalog) -> None:
    """It is told in one line, and nothing was made."""
    code, said = purge(lake, "orders", "kinds/total", predicate)
    assert code == 3
    assert said.startswith(f"error: state kinds/total, {predicate}: ")
    assert said.count("\n") == 1
    assert [summary.snapshot_id for summary in lake.summaries("orders")] == ["s"]
