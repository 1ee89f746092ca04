"""`statelake hold`, `release` and `retain`: what they print, and what they refuse."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from tests.support.command import run
from tests.support.lakes import DEMO

DAYS = {"2026-01-05": "monday", "2026-01-06": "tuesday", "2026-02-01": "tuesday"}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake where a job has three snapshots, of two months."""
    lake = tmp_path_factory.mktemp("prepared") / "lake"
    for day, name in DAYS.items():
        words = ("--snapshot", day, "--taken", f"{day}T06:00Z", "--engine", "local")
        place = ("--lake", str(lake), "--job", "orders")
        assert run("import", DEMO / name, *place, *words).code == 0
    return lake


@pytest.fixture
def place(prepared: Path, tmp_path: Path) -> tuple[str, ...]:
    """Where a copy of it is."""
    shutil.copytree(prepared, tmp_path / "lake")
    return ("--lake", str(tmp_path / "lake"), "--job", "orders")


def left(place: tuple[str, ...]) -> list[str]:
    """The snapshots that the lake still has."""
    return [summary.snapshot_id for summary in Catalog(place[1]).summaries("orders")]


@pytest.mark.full
def test_a_hold_and_its_end(place: tuple[str, ...]) -> None:
    """It is shown, it is answered with no where somebody drops, and it ends once."""
    first, *_ = DAYS
    held = run("hold", *place, first, "--reason", "case 4711", "--json")
    assert (held.code, held.err) == (0, "")
    (hold,) = held.json["holds"]
    assert hold["reason"] == "case 4711"
    assert run("hold", *place, "2026-02-01").out.startswith("2026-02-01 of orders is held")
    shown = run("snapshots", *place, "--json").json
    assert [len(row["holds"]) for row in shown] == [1, 0, 1]
    assert "case 4711" in run("snapshots", *place).out
    refused = run("drop", *place, "--snapshot", first)
    assert (refused.code, refused.out) == (1, "")
    assert "there is a hold on snapshot '2026-01-05' of job 'orders' (case 4711)" in refused.err
    kept = run("drop", *place, "--keep", "0", "--yes")
    assert kept.out.rstrip().endswith("2 snapshots kept, 2026-01-05, 2026-02-01 by a hold")
    ended = run("release", *place, first, "--reason", "case 4711")
    assert ended.out == "released 2026-01-05 of orders: case 4711\n"
    again = run("release", *place, first)
    assert (again.code, again.out) == (1, "")
    assert "there is no hold on snapshot '2026-01-05'" in again.err
    assert run("drop", *place, "--snapshot", first, "--yes").code == 0
    assert left(place) == ["2026-02-01"]


@pytest.mark.parametrize("which", [("--keep", "1"), ("--snapshot", "2026-01-05")])
@pytest.mark.full
def test_a_drop_is_a_plan_first(place: tuple[str, ...], which: tuple[str, str]) -> None:
    """Nothing goes without --yes; then what was shown goes, and frees what was said."""
    shown = run("drop", *place, *which)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith("nothing was dropped: --yes drops 2026-01-05")
    plan = run("drop", *place, *which, "--json").json
    assert plan["dropped"] is None
    assert [*plan["going"], *plan["kept"]] == left(place) == list(DAYS)
    done = run("drop", *place, *which, "--yes", "--json").json["dropped"]
    assert (done["dropped"], done["kept"]) == (plan["going"], plan["kept"])
    assert done["freed_bytes"] == plan["frees"] > 0
    assert left(place) == plan["kept"]
    again = run("drop", *place, "--keep", "3")
    assert (again.code, again.out) == (0, f"nothing to drop: {len(plan['kept'])} snapshots kept\n")


def test_a_plan_to_drop_refuses_what_a_drop_would(place: tuple[str, ...]) -> None:
    """A snapshot with a hold is answered with no, one that is not there is bad input."""
    run("hold", *place, "2026-01-05")
    held = run("drop", *place, "--snapshot", "2026-01-05")
    assert (held.code, held.out) == (1, "")
    assert "there is a hold on snapshot '2026-01-05'" in held.err
    passed_over = run("drop", *place, "--keep", "1", "--json").json
    assert (passed_over["going"], passed_over["held"]) == (["2026-01-06"], ["2026-01-05"])
    assert run("drop", *place, "--snapshot", "2020-01-01").code == 3
    assert left(place) == list(DAYS)


def test_a_policy_is_a_plan_first(place: tuple[str, ...]) -> None:
    """Nothing goes without --yes; then what was shown goes, and frees what was said."""
    policy = ("--policy", "forever monthly")
    shown = run("retain", *place, *policy)
    assert shown.code == 0
    assert "2 of 3 snapshots of orders stay" in shown.out
    assert "nothing was dropped: --yes drops 1, and frees about" in shown.out
    plan = run("retain", *place, *policy, "--json").json
    assert plan["going"] == ["2026-01-05"]
    assert plan["dropped"] is None
    assert [snapshot["why"] for snapshot in plan["snapshots"]] == [
        [], ["forever monthly"], ["the newest", "forever monthly"],
    ]  # fmt: skip
    assert left(place) == list(DAYS)
    done = run("retain", *place, *policy, "--yes", "--json").json
    assert done["dropped"]["dropped"] == ["2026-01-05"]
    assert done["dropped"]["freed_bytes"] == plan["frees"] > 0
    assert left(place) == ["2026-01-06", "2026-02-01"]
    again = run("retain", *place, *policy, "--yes")
    assert (again.code, "dropped" in again.out) == (0, False)


def test_a_hold_outlasts_a_policy(place: tuple[str, ...]) -> None:
    """What is held stays, and is said to."""
    run("hold", *place, "2026-01-05", "--reason", "case 4711")
    done = run("retain", *place, "--policy", "1 all", "--yes", "--json").json
    assert done["snapshots"][0]["why"] == ["held: case 4711"]
    assert left(place) == ["2026-01-05", "2026-02-01"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ["retain", "--policy", "30 days"],
            3,
            "'30 days' is not a valid part of a retention policy",
        ),
        (["retain"], 2, "Missing option '--policy'"),
        (["hold"], 2, "Missing argument 'SNAPSHOT'"),
        (["hold", "sunday"], 3, "has no snapshot 'sunday'"),
        (["release", "sunday"], 3, "has no snapshot 'sunday'"),
        (["release", "2026-01-05", "--reason", "x"], 1, "no hold on snapshot '2026-01-05'"),
    ],
)
def test_refused(place: tuple[str, ...], words: list[str], code: int, said: str) -> None:
    """What is not understood, or not there, is said and changes nothing."""
    ran = run(*words, *place)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
    assert left(place) == list(DAYS)
