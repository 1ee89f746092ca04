"""Snapshots of Flink SQL jobs in a lake, whose tables have the columns of the query."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import statelake as sl
from statelake.pipelines.lake.query.table_names import EVERY_SNAPSHOT
from statelake.state_core.errors import ConflictError, DeclarationError
from tests.support.command import run
from tests.support.lakes import entries
from tests.support.savepoints.sql_jobs import (
    unpack_sql_job,
    unpack_sql_plans,
    unpack_sql_views,
)

ACCUMULATORS = '"4_group-aggregate"."accState"'
NODE = "GroupAggregate[4]"


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    """A savepoint of a job of two queries."""
    return unpack_sql_job("shop", tmp_path / "shop")


@pytest.fixture
def plans(tmp_path: Path) -> tuple[Path, Path]:
    """Its plan, and that of a changed job."""
    return unpack_sql_plans(tmp_path)


@pytest.fixture
def job(savepoint: Path, plans: tuple[Path, Path], tmp_path: Path) -> sl.Job:
    """A job with `plain`, imported without the plan, and `named`, with it."""
    shop = sl.Lake(tmp_path / "lake").job("shop", engine="local")
    shop.import_snapshot(savepoint, "plain")
    shop.import_snapshot(savepoint, "named", plan=plans[0])
    return shop


def rows(snapshot: sl.LakeSnapshot, operator: str, state: str = "accState") -> list[dict[str, Any]]:
    """The rows of a state, with what a user sees."""
    table = snapshot[operator][state].to_arrow()
    names = [name for name in ("key", "user_key", "value") if name in table.schema.names]
    return list(table.select(names).to_pylist())


def files_of(savepoint: Path) -> list[bytes]:
    """The files of a savepoint, whose names are random."""
    return sorted(each.read_bytes() for each in savepoint.iterdir() if each.name != "_metadata")


def test_tables_have_the_columns_of_the_query(job: sl.Job) -> None:
    """In SQL, in Arrow and for one key; without a plan the same entries have other names."""
    query = f"SELECT key.shop, value.sum_amount FROM {ACCUMULATORS} WHERE value.count_amount > 7"
    shops = {each["shop"]: each["sum_amount"] for each in job.sql(query).read_all().to_pylist()}
    assert shops == {"shop-0": 318, "shop-1": 284, "shop-2": 340}
    named, plain = rows(job["named"], NODE), rows(job["plain"], "4_group-aggregate")
    assert named[0] == {
        "key": {"shop": "shop-1"}, "value": {"count_amount": 8, "sum_amount": 284},
    }  # fmt: skip
    assert [list(each["value"].values()) for each in named] == [
        list(each["value"].values()) for each in plain
    ]
    assert list(rows(job["named"], "Join[11]", "right-records")[0]["user_key"]) == ["id", "name"]
    (held,) = job["named"].key_rows("shop-1", operator=NODE)
    assert held.key == {"shop": "shop-1"}
    operator = job["named"][NODE]
    assert (operator.node, job["plain"]["4_group-aggregate"].node) == (NODE, "")
    assert operator.query.startswith("GroupAggregate(groupBy=[shop]")


def test_snapshots_with_and_without_names_are_the_same(
    job: sl.Job, savepoint: Path, tmp_path: Path
) -> None:
    """To the byte: exports, and what they hold of the savepoint; a comparison finds nothing."""
    for name in ("plain", "named"):
        job[name].export(tmp_path / name)
    assert files_of(tmp_path / "named") == files_of(tmp_path / "plain")
    assert entries(tmp_path / "named") == entries(savepoint)
    states = [
        [(each.uid, state.name, state.meta_info) for each in sl.open_snapshot(at).operators
         for state in each.keyed_states]
        for at in (savepoint, tmp_path / "named")
    ]  # fmt: skip
    assert states[0] == states[1]
    assert job["plain"].diff("named").same


def test_files_are_shared_between_snapshots_with_the_same_names(
    job: sl.Job, savepoint: Path, plans: tuple[Path, Path]
) -> None:
    """And not with those that have others: a file has its columns' names."""
    shared = job.import_snapshot(savepoint, "again", plan=plans[0])
    assert (shared.written_files, shared.kept_files) == (0, 5)
    assert job.import_snapshot(savepoint, "plain-again").written_files == 3
    with pytest.raises(ConflictError, match="without the names of"):
        job.import_snapshot(savepoint, "plain", plan=plans[0])
    assert not job.import_snapshot(savepoint, "named", plan=plans[0]).new
    with pytest.raises(DeclarationError, match="is no operator of the plan"):
        job.import_snapshot(savepoint, "other", plan=plans[1])
    assert [each.snapshot_id for each in job.snapshots()] == [
        "plain", "named", "again", "plain-again",
    ]  # fmt: skip


def test_an_upgrade_gives_rows_the_columns_of_the_new_query(
    job: sl.Job, plans: tuple[Path, Path], tmp_path: Path
) -> None:
    """If they had those of the old one; what Flink gets is the same with and without names."""
    for name in ("plain", "named"):
        made = job[name].sql_upgrade(*plans, accept="partly").made
        job[made].export(tmp_path / made)
    assert files_of(tmp_path / "named-sql") == files_of(tmp_path / "plain-sql")
    upgraded = rows(job["named-sql"], NODE)
    assert upgraded[0]["value"] == {"sum_amount": 284, "count_amount": 8, "max_item": None}
    assert list(rows(job["plain-sql"], "4_group-aggregate")[0]["value"]) == ["f0", "f1", "f2"]
    customers = rows(job["named-sql"], "Join[10]", "right-records")
    assert list(customers[0]["user_key"]) == ["id", "name", "city"]
    assert job["named-sql"]["Join[10]"].query.startswith("Join(joinType=[InnerJoin]")


def test_states_are_changed_by_the_names_of_their_nodes(job: sl.Job, tmp_path: Path) -> None:
    """A purge, and SQL that writes a column by its name."""
    job["named"].edit("fewer").purge(f"{NODE}/accState", "key.shop = 'shop-1'").save()
    assert [each["key"]["shop"] for each in rows(job["fewer"], NODE)] == ["shop-0", "shop-2"]
    doubled = "value = struct_pack(count_amount := value.count_amount, sum_amount := 7)"
    job["named"].edit_sql("sevens", f"UPDATE {ACCUMULATORS} SET {doubled}")
    assert {each["value"]["sum_amount"] for each in rows(job["sevens"], NODE)} == {7}
    job["sevens"].export(tmp_path / "sevens")
    held = sl.open_snapshot(tmp_path / "sevens")["4_group-aggregate"].state("accState").to_arrow()
    assert held["value"].to_pylist() == [{"f0": 8, "f1": 7}] * 3


@pytest.mark.parametrize("key", ["shop-1", '{"shop": "shop-1"}', '{"f0": "shop-1"}'])
def test_a_key_is_erased_from_snapshots_with_and_without_names(key: str, job: sl.Job) -> None:
    """However it is written: by the column's name, its place, or as its value."""
    erasure = job.lake.erase("gdpr", keys=[key], carried="keep")
    assert erasure.plan().rows == 2
    erasure.execute()
    for name in ("plain", "named"):
        assert {value for each in rows(job[name], "4_group-aggregate")
                for value in each["key"].values()} == {"shop-0", "shop-2"}  # fmt: skip
    assert erasure.audit().clean


@pytest.mark.parametrize("key", ["shop-1", '{"shop": "shop-1"}'])
def test_names_are_no_change_of_a_key(key: str, job: sl.Job, savepoint: Path) -> None:
    """Its history has those that any snapshot has, also where a later one has none."""
    job.import_snapshot(savepoint, "later")
    plain, named, later = job.history(key, operator="4_group-aggregate").snapshots
    ((change,),) = [plain.changes]
    assert change.after == {"value": {"count_amount": 8, "sum_amount": 284}}
    assert (named.changes, later.changes, later.entries) == ([], [], 1)


def test_sql_names_operators_by_their_nodes(job: sl.Job) -> None:
    """Besides their uids, also in the rows of all snapshots."""
    newest = job.sql(f'SELECT key.shop FROM "{NODE}"."accState" ORDER BY 1').read_all()
    assert newest["shop"].to_pylist() == ["shop-0", "shop-1", "shop-2"]
    every = job.sql(f'SELECT snapshot, count(*) AS n FROM "{NODE}"."accState@all" GROUP BY 1')
    assert {each["snapshot"]: each["n"] for each in every.read_all().to_pylist()} == {
        "plain": 3, "named": 3,
    }  # fmt: skip
    with pytest.raises(sl.StateError, match=r'shop\.11_join\."left-records", shop\.11_join\.'):
        job.sql('SELECT * FROM "GroupAggregate[5]"."accState"')


def test_the_command_imports_with_a_plan(
    savepoint: Path, plans: tuple[Path, Path], tmp_path: Path
) -> None:
    """And shows one key by its value, of the operator by its node."""
    lake = ("--lake", tmp_path / "lake", "--job", "shop")
    assert run("import", savepoint, *lake, "--snapshot", "one", "--plan", plans[0]).code == 0
    (row,) = run("get", *lake, "--key", "shop-2", "--operator", NODE, "--json").json
    assert row["value"] == {"count_amount": 8, "sum_amount": 340}
    refused = run("import", savepoint, *lake, "--snapshot", "two", "--plan", plans[1])
    assert (refused.code, "no operator of the plan" in refused.err) == (3, True)


def test_a_report_and_a_mask_have_the_columns_of_the_query(
    savepoint: Path,
    plans: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also of a savepoint that is in no lake."""
    page = tmp_path / "report.html"
    assert run("report", savepoint, "--to", page, "--plan", plans[0]).code == 0
    written = page.read_text("utf-8")
    assert "GroupAggregate[4]: GroupAggregate(groupBy=[shop], select=[shop, COUNT(" in written
    assert "keyed by RowData&lt;shop VARCHAR(2147483647)&gt;" in written
    monkeypatch.setenv("MASK_SECRET", "a secret of the tests")
    mask = tmp_path / "mask.yaml"
    mask.write_text(
        f"secret: {{env: MASK_SECRET}}\nkeys:\n  {NODE}: keep\n  Join[11]: keep\nstates:\n"
        f"  {NODE}/accState: {{value: keep, value.sum_amount: {{constant: 1}}}}\n"
        "  Join[11]/left-records: keep\n"
        "  Join[11]/right-records: {user_key.id: keep, user_key.name: hash, value: keep}\n"
        "  1_numbers/SourceReaderState: drop\n  8_numbers/SourceReaderState: drop\n"
    )
    exported = run("export", savepoint, "--to", tmp_path / "masked", "--plan", plans[0],
                   "--mask", mask, "--leave-out-opaque")  # fmt: skip
    assert exported.code == 0, exported.err
    names = sl.open_snapshot(tmp_path / "masked", plan=plans[0])["Join[11]"].state("right-records")
    assert {len(each["name"]) for each in names.to_arrow()["user_key"].to_pylist()} == {32}


@pytest.mark.full
def test_data_views_go_by_what_the_plan_calls_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In SQL, for one key, in masks and edits; exports have Flink's names, and the same bytes."""
    savepoint, plan = unpack_sql_views("2.3.0", tmp_path)
    job = sl.Lake(tmp_path / "lake").job("views", engine="local")
    job.import_snapshot(savepoint, "named", plan=plan)
    job.import_snapshot(savepoint, "plain")
    node, named = "GroupAggregate[6]", job["named"]
    assert named[node]["distinct_b"].name == "distinctAcc_1"
    query = f'SELECT user_key FROM "{node}"."%s" WHERE key.a = 1 ORDER BY 1'
    for state in ("distinct_b", "DISTINCT_B", "distinctAcc_1"):
        (column,) = job.sql(query % state, as_of="named").read_all().to_pydict().values()
        assert column == [1, 4, 7, 10]
    every = f'SELECT snapshot, COUNT(*) FROM "{node}"."distinct_b{EVERY_SNAPSHOT}" GROUP BY 1'
    counted = job.sql(every, as_of="named").read_all().to_pydict().values()
    assert sorted(zip(*counted, strict=True)) == [("named", 12), ("plain", 12)]
    (held,) = named.key_rows("1", operator=node, state="distinct_b")
    assert {state.name for state, _ in held.batches} == {"distinctAcc_1"}
    assert {*named.top(1, operator=node, state="distinct_b")[named[node].label]} == {
        "distinctAcc_1"
    }
    assert named.find(10, operator=node, state="distinct_b").count == 1
    assert "distinctAcc_1 (distinct_b)" in str(named.describe())
    named.edit("fewer").purge(f"{node}/distinct_b", "user_key > 6").save()
    assert len(job["fewer"][node]["distinctAcc_1"].to_arrow()) == 7
    for name in ("plain", "named"):
        job[name].export(tmp_path / name)
    assert files_of(tmp_path / "named") == files_of(tmp_path / "plain")
    monkeypatch.setenv("MASK_SECRET", "a secret of the tests")
    mask = tmp_path / "mask.yaml"
    mask.write_text(
        f"secret: {{env: MASK_SECRET}}\nothers: keep\nstates:\n"
        f"  {node}/distinct_c: {{user_key: hash}}\n"
    )
    masked = run("export", "--lake", tmp_path / "lake", "--job", "views", "--snapshot", "named",
                 "--to", tmp_path / "masked", "--mask", mask, "--leave-out-opaque")  # fmt: skip
    assert masked.code == 0, masked.err
    values = sl.open_snapshot(tmp_path / "masked", plan=plan)[node]["distinct_c"].to_arrow()
    assert {len(value) for value in values["user_key"].to_pylist()} == {32}
    mask.write_text(f"{mask.read_text()}  {node}/distinctAcc_0: {{user_key: keep}}\n")
    twice = run("export", "--lake", tmp_path / "lake", "--job", "views", "--snapshot", "named",
                "--to", tmp_path / "twice", "--mask", mask, "--leave-out-opaque")  # fmt: skip
    assert twice.code == 3
    assert f"'{node}/distinct_c' and '{node}/distinctAcc_0' are one" in twice.err


@pytest.mark.full
def test_an_upgrade_gives_data_views_the_names_of_the_new_query(tmp_path: Path) -> None:
    """Where a set of distinct values gets another number, as the one before it is gone."""
    savepoint, plan = unpack_sql_views("2.3.0", tmp_path)
    content = json.loads(plan.read_text())
    (group,) = (node for node in content["nodes"] if node["id"] == 6)
    for name in ("aggCalls", "aggCallNeedRetractions"):
        del group[name][0]
    group["outputType"] = re.sub(r", `[^`]*` BIGINT NOT NULL", "", group["outputType"], count=1)
    new = tmp_path / "new.json"
    new.write_text(json.dumps(content))
    job = sl.Lake(tmp_path / "lake").job("views", engine="local")
    job.import_snapshot(savepoint, "named", plan=plan)
    job.import_snapshot(savepoint, "plain")
    for name in ("named", "plain"):
        job[name].sql_upgrade(plan, new)
        job[f"{name}-sql"].export(tmp_path / name)
    assert files_of(tmp_path / "named") == files_of(tmp_path / "plain")
    values = rows(job["named"], "GroupAggregate[6]", "distinct_b")
    assert rows(job["named-sql"], "GroupAggregate[6]", "distinct_b") == values
    assert job["named-sql"]["GroupAggregate[6]"]["distinct_b"].name == "distinctAcc_0"
    assert job["plain-sql"]["6_group-aggregate"]["distinctAcc_0"].labels == ("distinctAcc_0",)
    exported = sl.open_snapshot(tmp_path / "named", plan=new)
    assert exported["GroupAggregate[6]"]["distinct_b"].name == "distinctAcc_0"


def test_the_command_shows_the_names_of_data_views(tmp_path: Path) -> None:
    """For people beside Flink's own, in JSON apart; a wrong one is told."""
    savepoint, plan = unpack_sql_views("2.3.0", tmp_path)
    words = (savepoint, "--plan", plan, "--key", "1", "--operator", "GroupAggregate[6]")
    told = run("get", *words, "--state", "distinct_b")
    assert "distinctAcc_1 (distinct_b)" in told.out
    rows = run("get", *words, "--state", "distinctAcc_1", "--json").json
    assert {(row["state"], row["alias"]) for row in rows} == {("distinctAcc_1", "distinct_b")}
    lines = run("find", "10", *words[:3], "--state", "min_b.map", "--json").json
    assert {hit["alias"] for hit in lines["hits"]} == {"min_b.map"}
    assert "'distinct_bb'" in run("get", *words, "--state", "distinct_bb").err
    run("import", *words[:3], "--lake", tmp_path / "lake", "--job", "views", "--snapshot", "one")
    stored = run("get", "--lake", tmp_path / "lake", "--job", "views", *words[3:], "--json").json
    assert stored == run("get", *words, "--json").json
    history = run("history", "--key", "1", "--lake", tmp_path / "lake", "--job", "views",
                  "--state", "distinct_b")  # fmt: skip
    assert "distinctAcc_1 (distinct_b)" in history.out
