"""Fifty snapshots with all that can happen to them: nothing of two people is left, in any file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.dropping import drop_snapshots
from statelake.pipelines.lake.change.changes import ValueChange
from statelake.pipelines.lake.change.migrating import migrate_snapshot
from statelake.pipelines.lake.edit.committing import commit_snapshot
from statelake.pipelines.lake.edit.editing import SnapshotEdit, edit_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.edit.sql_editing import edit_by_sql
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.verify.integrity import stored_faults
from statelake.pipelines.runtime import RunOptions, run_job
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.runtime.commit import FileCheckpointLog
from statelake.state_core.serializers.type_spec import parse_type
from tests.integration.flink.oracle import FlinkOracle, sorted_lines
from tests.integration.flink.people import restored_people
from tests.support.command import run
from tests.support.jobs.alert_orders import EXAMPLE, example_module
from tests.support.jobs.committed_job import CommittedJob
from tests.support.lakes import DEMO, LOCAL, assert_whole, edit, import_as, unit_paths
from tests.support.people import ALICE, BESIDE_KEYS, NEW_PROFILE, files_with, people_savepoint

pytestmark = [pytest.mark.flink, pytest.mark.full, pytest.mark.nightly]

UIDS = ("users", "places")
CUSTOMER = -783_633_772_217
KEYS = 120
# every key of their savepoints, and the words that runs have counted
PEOPLE = [f"person-{at:03d}" for at in range(59)] + [ALICE, "east", "north", "south", "west"]
PEOPLE += ["and", "bob", *map(str, range(6))]
NOTHING = {"items": [], "scores": {}} | dict.fromkeys(
    ("name", "total", "avg", "triple", "row", "session")
)


def jobs_of_people(lake: Catalog, root: Path) -> None:
    """Thirty-nine snapshots of two jobs, of which three are dropped."""
    for day in range(16):
        import_as(lake, people_savepoint(root / f"day-{day}", day), f"day-{day}", uids=UIDS)
        if day in {3, 9, 14}:
            edit(lake, "orders/keyed/users/visits").update(
                {"value": "value + 1"}, predicate=f"key = '{ALICE}'"
            )
            commit_snapshot(
                ChildSnapshot(lake, "orders", f"day-{day}", f"committed-{day}", engine=LOCAL)
            )
    for day in range(8):
        statement = f"UPDATE users.visits SET value = {day} WHERE key = '{ALICE}'"
        note = f"as {ALICE} asked"  # statements are kept without their literals
        edit_by_sql(
            ChildSnapshot(lake, "orders", f"day-{day}", f"edited-{day}", note=note), [statement]
        )
    change = ValueChange("users", "profile", parse_type(NEW_PROFILE), {}, NEW_PROFILE)
    for day in (1, 5, 11):
        migrate_snapshot(
            ChildSnapshot(lake, "orders", f"day-{day}", f"migrated-{day}", engine=LOCAL), change
        )
    for day in range(4):
        import_as(lake, root / f"day-{day + 12}", f"audit-{day}", "audit", uids=UIDS)
    renamed = SnapshotEdit(drop_operator=["places"], rename_uid={"users": "clients"})
    for day in range(2):
        edit_snapshot(
            ChildSnapshot(lake, "audit", f"audit-{day}", f"clients-{day}", engine=LOCAL), renamed
        )
    for day in range(3):
        merged = SnapshotEdit(merge=[("audit", f"clients-{day % 2}")], drop_operator=["users"])
        edit_snapshot(
            ChildSnapshot(lake, "orders", f"edited-{day}", f"merged-{day}", engine=LOCAL), merged
        )
    drop_snapshots(lake, "orders", snapshot_ids=["day-1", "day-4", "edited-2"])


def job_of_flink(lake: Catalog) -> None:
    """Eight snapshots of savepoints that real Flink wrote."""
    for name in ("monday", "tuesday"):
        import_as(lake, DEMO / name, name, "kinds")
    for group in range(6):
        statement = f"DELETE FROM kinds.name WHERE key_group % 6 = {group}"
        edit_by_sql(
            ChildSnapshot(lake, "kinds", "tuesday" if group % 2 else "monday", f"less-{group}"),
            [statement],
        )


def job_of_runs(lake: Catalog, root: Path) -> None:
    """Six runs of a job of process functions, with a blob store, and a task with a changelog."""
    example = example_module(EXAMPLE.with_name("words.py"))
    try:
        for part in range(6):
            (root / "data" / "lines").mkdir(parents=True, exist_ok=True)
            path = root / "data" / "lines" / f"{part}.jsonl"
            path.write_text(json.dumps({"line": f"{ALICE} and bob {part}"}) + "\n", "utf-8")
            options = RunOptions(
                parallelism=2, engine="local", commit_to=[f"blob={root / 'blobs'}"]
            )
            run_job(example.words(str(root / "data")), lake, options)
    finally:
        del sys.modules["words"]
    log = FileCheckpointLog(Directory(root / "log"))
    rounds = [{ALICE.encode(): b"1", b"bob": b"1"}, {ALICE.encode(): b"2"}]
    CommittedJob(root, log, ("changelog",)).run("Partition 0", rounds)


def holding(root: Path) -> set[str]:
    """The files with one of the two, found by a program that shares no code with statelake."""
    files = set(files_with(root, ALICE)) | set(files_with(root, str(CUSTOMER)))
    for path in root.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        if any(CUSTOMER.to_bytes(8, order, signed=True) in data for order in ("big", "little")):
            files.add(path.relative_to(root).as_posix())
    return files


def restored_from(
    lake: Catalog, names: Iterable[tuple[str, str]], to: Path
) -> list[list[dict[str, Any]]]:
    """What real Flink restores of each of these snapshots, exported for one to three subtasks."""
    savepoints = []
    for at, (job, snapshot_id) in enumerate(names):
        target, parallelism = to / job / snapshot_id, 1 + at % 3
        export_snapshot(lake, job, snapshot_id, target, parallelism=parallelism, engine=LOCAL)
        uids = [operator.label for operator in lake.snapshot(job, snapshot_id).operators]
        savepoints.append((target, uids, parallelism))
    return restored_people(savepoints, PEOPLE)


def without_her(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lines of Flink as they are to be once she is gone: nothing of her key, nor with her name."""
    left = []
    for line in lines:
        if line.get("pending") == ALICE:
            continue
        states = {name: _without_her(value) for name, value in line.items() if name != "key"}
        if line["key"] != ALICE:
            left.append({"key": line["key"]} | states)
        elif "timer" not in line:
            left.append({"key": ALICE} | {name: _empty(value) for name, value in states.items()})
    return left


def _without_her(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: entry for name, entry in value.items() if name != ALICE}
    return [entry for entry in value if entry != ALICE] if isinstance(value, list) else value


def _empty(value: Any) -> Any:
    return type(value)() if isinstance(value, dict | list) else None


def asked(where: Mapping[str, str]) -> list[str]:
    """The options that name both, and the states in which she is not the key."""
    words = [f"--key={CUSTOMER}", "--key", ALICE, "--request", "gdpr-4711"]
    for state, predicate in where.items():
        words += ["--where", state, predicate]
    return words


def test_nothing_of_two_people_is_left_in_fifty_snapshots(
    flink: FlinkOracle, tmp_path: Path
) -> None:
    """Before, all have them; after one command none does, all are whole, and Flink restores."""
    lake = Catalog(tmp_path / "lake")
    job_of_flink(lake)
    jobs_of_people(lake, tmp_path)
    job_of_runs(lake, tmp_path)
    names = [(summary.job, summary.snapshot_id) for summary in lake.summaries()]
    assert len(names) == 50
    before = holding(tmp_path / "lake")
    for name in names:
        assert unit_paths(lake.snapshot(*name)) & before, name
    others = [name for name in names if name[0] != "kinds"]
    truths = restored_from(lake, others, tmp_path / "before")
    areas = ("_runs/", "_delta_log/", "snapshots/")
    assert [area for area in areas if not any(area in path for path in before)] == []
    assert files_with(tmp_path / "blobs", ALICE)
    assert files_with(tmp_path / "changelogs", ALICE)

    where = BESIDE_KEYS | {"clients/friends": BESIDE_KEYS["users/friends"]}
    place, blobs = ("--lake", lake.location), str(tmp_path / "blobs")
    changelogs = str(tmp_path / "changelogs")
    places = ("--blobs", blobs, "--changelogs", changelogs)
    more = ("--carried", "keep", "--all", *places, "--yes", "--json")
    erased = run("erase", *place, *asked(where), *more)
    assert erased.code == 0, erased.err
    assert len(erased.json["snapshots_erased_from"]) == 50

    assert holding(tmp_path / "lake") == set()
    assert files_with(tmp_path / "blobs", ALICE) == []
    assert files_with(tmp_path / "changelogs", ALICE) == []
    assert [(summary.job, summary.snapshot_id) for summary in lake.summaries()] == names
    for name in names:
        assert list(stored_faults(lake, lake.snapshot(*name))) == [], name
    assert_whole(lake, orphans=True)  # of snapshots: what tasks keep is beside them
    audited = run("audit", "erase", *place, *asked(where), "--also", blobs, "--also", changelogs)
    assert audited.code == 0, audited.out

    restored = restored_from(lake, others, tmp_path / "out")
    for name, before_erasure, lines in zip(others, truths, restored, strict=True):
        assert ALICE in json.dumps(before_erasure), name
        assert sorted_lines(lines) == sorted_lines(without_her(before_erasure)), name

    kinds = [snapshot_id for job, snapshot_id in names if job == "kinds"]
    assert len(kinds) == 8
    for name in kinds:
        export_snapshot(lake, "kinds", name, tmp_path / "out" / name, engine=LOCAL)
    assert holding(tmp_path / "out") == set()
    for name in ("monday", "tuesday"):
        truth = flink.restore("kinds", DEMO / name, keys=KEYS)
        others = [line for line in truth if line["key"] != CUSTOMER]
        assert len(others) < len(truth)
        after = flink.restore("kinds", tmp_path / "out" / name, keys=KEYS)
        gone = {"key": CUSTOMER} | NOTHING
        assert sorted_lines(after) == sorted_lines([*others, gone])
    for name in set(kinds) - {"monday", "tuesday"}:
        less = flink.restore("kinds", tmp_path / "out" / name, keys=KEYS, backend="rocksdb")
        assert [line for line in less if line["key"] == CUSTOMER] == [gone], name
        assert any(line["name"] for line in less if line["key"] != CUSTOMER), name
