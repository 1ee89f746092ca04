"""Real Flink accepts what `statelake edit` makes, without being allowed to leave state behind.

Flink refuses a savepoint with state of an operator that the job does not have, unless it is told to
(`--allowNonRestoredState`). It is not told so here: what it accepts has just the job's operators.
The source that wrote the savepoint is none of the jobs that restore it, so each edit drops it.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.ingest.importing import import_snapshot
from tests.integration.flink.oracle import FlinkError, FlinkOracle, sorted_lines
from tests.support.command import run

pytestmark = [pytest.mark.flink, pytest.mark.full]

KEYS = 120
REFUSED = "Cannot map checkpoint/savepoint state for operator"


@pytest.fixture(scope="module")
def savepoints(flink: FlinkOracle, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Of the job `both`, and of jobs with one of its operators each."""
    work = tmp_path_factory.mktemp("written")
    cases = {"both": ("both", "hashmap"), "words": ("wordcount", "rocksdb"),
             "kinds": ("kinds", "rocksdb")}  # fmt: skip
    return {
        job: flink.generate(case, work / job, keys=KEYS, backend=backend)
        for job, (case, backend) in cases.items()
    }


@pytest.fixture(scope="module")
def lake(savepoints: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A lake with these jobs, and their savepoints as `s`."""
    lake = Catalog(tmp_path_factory.mktemp("edited") / "lake")
    for job, savepoint in savepoints.items():
        import_snapshot(lake, str(savepoint), job, snapshot_id="s", engine="local")
    return lake


@pytest.fixture(scope="module")
def truth(savepoints: dict[str, Path], flink: FlinkOracle) -> list[Any]:
    """What Flink sees in its own savepoint of `both`; that of the others is a part of it."""
    return flink.restore("both", savepoints["both"], keys=KEYS)


@pytest.fixture(scope="module")
def words(truth: list[Any]) -> list[Any]:
    """The part of the counters."""
    return [line for line in truth if "count" in line]


@pytest.fixture(scope="module")
def kinds(truth: list[Any]) -> list[Any]:
    """The part of all other state, and of timers."""
    return [line for line in truth if "count" not in line]


def seen(
    flink: FlinkOracle,
    lake: Catalog,
    case: str,
    job: str,
    snapshot_id: str = "s",
    suffix: str = "",
) -> list[Any]:
    """What Flink sees in an export for 3 subtasks, all of whose state an operator must claim."""
    target = Path(lake.location).parent / "exports" / f"{job}-{snapshot_id}"
    if not target.exists():
        ran = run("export", "--lake", lake.location, "--job", job, "--snapshot", snapshot_id,
                  "--to", target, "--parallelism", 3, "--engine", "local")  # fmt: skip
        assert (ran.code, ran.err) == (0, "")
    return flink.restore(
        case, target, keys=KEYS, parallelism=3, backend="hashmap",
        strict="true", suffix=suffix,
    )  # fmt: skip


def edit(lake: Catalog, job: str, snapshot_id: str, *options: object) -> Any:
    """Edit a job's `s`, and drop its source; what the command reports."""
    ran = run("edit", "--lake", lake.location, "--job", job, "--parent", "s", "--snapshot",
              snapshot_id, "--drop-operator", "source", "--json", *options)  # fmt: skip
    assert ran.code == 0, ran.err
    return ran.json


def test_an_operator_less(lake: Catalog, flink: FlinkOracle, words: list[Any]) -> None:
    """Flink refuses state without an operator, and accepts the snapshot that lacks it."""
    with pytest.raises(FlinkError, match=REFUSED):
        seen(flink, lake, "wordcount", "both")
    report = edit(lake, "both", "words-only", "--drop-operator", "kinds")
    assert report["operators"] == ["counter"]
    lines = seen(flink, lake, "wordcount", "both", "words-only")
    assert sorted_lines(lines) == sorted_lines(words)
    assert len(words) == KEYS


def test_other_uids(lake: Catalog, flink: FlinkOracle, words: list[Any], kinds: list[Any]) -> None:
    """A job whose operators have other uids now has their state; the one of before has none."""
    edit(
        lake, "both", "renamed", "--rename-uid", "counter", "counter-2", "--rename-uid", "kinds",
        "kinds-2",
    )  # fmt: skip
    lines = seen(flink, lake, "both", "both", "renamed", suffix="-2")
    assert sorted_lines(lines) == sorted_lines([*words, *kinds])
    with pytest.raises(FlinkError, match=REFUSED):
        seen(flink, lake, "both", "both", "renamed")


def test_operators_of_two_jobs(
    lake: Catalog, flink: FlinkOracle, words: list[Any], kinds: list[Any]
) -> None:
    """A job that has the operators of both goes on where they were."""
    edit(
        lake, "kinds", "without-source", "--drop-state", "kinds/_timer_state/processing_user-timers"
    )
    report = edit(lake, "words", "merged", "--merge", "kinds:without-source")
    assert sorted(report["operators"]) == ["counter", "kinds"]
    lines = seen(flink, lake, "both", "words", "merged")
    assert sorted_lines(lines) == sorted_lines([*words, *kinds])


def test_a_state_less(lake: Catalog, flink: FlinkOracle, kinds: list[Any]) -> None:
    """The state begins anew, as if it were a new one; timers that were dropped do not fire."""
    edit(lake, "kinds", "less", "--drop-state", "kinds/scores", "--drop-state", "kinds/timers")
    expected = [line | {"scores": {}} for line in kinds if "timer" not in line]
    assert len(expected) == KEYS < len(kinds)
    assert sorted_lines(seen(flink, lake, "kinds", "kinds", "less")) == sorted_lines(expected)


def test_what_has_expired(
    lake: Catalog, flink: FlinkOracle, kinds: list[Any], tmp_path: Path
) -> None:
    """Sessions older than the time to live are gone in Flink, whose own time to live is longer."""
    table = sessions(lake, tmp_path / "whole")
    middle = sorted(table.values())[len(table) // 2]
    at = middle + timedelta(hours=1)
    edit(lake, "kinds", "expired", "--expire", "kinds/session", "1h", "--at", at.isoformat())
    left = {key for key, used in table.items() if used > middle}
    assert 0 < len(left) < KEYS
    expected = [
        line if "timer" in line or line["key"] in left else line | {"session": None}
        for line in kinds
    ]
    assert sorted_lines(seen(flink, lake, "kinds", "kinds", "expired")) == sorted_lines(expected)


def sessions(lake: Catalog, to: Path) -> dict[int, datetime]:
    """When each key's session was last used."""
    ran = run("export", "--lake", lake.location, "--job", "kinds", "--snapshot", "s", "--to", to,
              "--engine", "local")  # fmt: skip
    assert ran.code == 0
    rows = open_snapshot(to).operator("kinds").state("session").to_arrow().to_pylist()
    return {row["key"]: instant(row["ttl"]) for row in rows}


def instant(value: Any) -> datetime:
    """A point in time, with its zone."""
    if isinstance(value, int):
        return datetime.fromtimestamp(value / 1000, timezone.utc)
    time: datetime = value
    return time if time.tzinfo else time.replace(tzinfo=timezone.utc)


@pytest.mark.full
def test_rows_of_a_predicate(lake: Catalog, flink: FlinkOracle, kinds: list[Any]) -> None:
    """Values, and entries of maps, that predicates chose are gone in Flink; others are there."""
    edit(
        lake, "kinds", "purged", "--purge", "kinds/total", "value % 2 = 0 AND value > 500",
        "--purge", "kinds/scores", "user_key = 's1'", "--purge", "kinds/items", "len(value) = 3",
    )  # fmt: skip
    expected = [line if "timer" in line else purged(line) for line in kinds]
    changed = [new != old for new, old in zip(expected, kinds, strict=True)]
    assert 0 < sum(changed) < len(changed)
    assert sorted_lines(seen(flink, lake, "kinds", "kinds", "purged")) == sorted_lines(expected)


def purged(line: dict[str, Any]) -> dict[str, Any]:
    """A key's line without what the predicates choose."""
    total = None if line["total"] % 2 == 0 and line["total"] > 500 else line["total"]
    scores = {name: score for name, score in line["scores"].items() if name != "s1"}
    items = [] if len(line["items"]) == 3 else line["items"]
    return line | {"total": total, "scores": scores, "items": items}
