"""Rows of the catalog: what honest ones hold, and what no row may."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.dropping import drop_snapshots
from statelake.pipelines.lake.tables.record_rules import record_fault
from statelake.pipelines.lake.tables.records import SNAPSHOT_SCHEMA, SnapshotRecord
from statelake.state_core.errors import DamagedLakeError
from tests.support.forged_lakes import Scene, make_scene, places_of
from tests.support.lakes import entries, exported, import_as
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

pytestmark = pytest.mark.thinned(2)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """A lake with two snapshots of one job."""
    return make_scene(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def scene(prepared: Scene, tmp_path: Path) -> Scene:
    """A copy of it."""
    shutil.copytree(prepared.path, tmp_path / "lake")
    return Scene(tmp_path)


@pytest.fixture
def row(prepared: Scene) -> dict[str, Any]:
    """A row of the catalog: keyed state, timers, operator state and a file that is carried."""
    return prepared.lake.snapshot("orders", "bad").to_row()


@pytest.mark.parametrize("case", golden_cases()[::4], ids=lambda case: case.name)
def test_what_statelake_writes_keeps_all_rules(case: GoldenCase, tmp_path: Path) -> None:
    """Whatever Flink wrote: imported, its row is a snapshot."""
    lake = Catalog(tmp_path / "lake")
    import_as(lake, case.snapshot, "s")
    assert lake.listed()[1] == []
    assert lake.snapshot("orders", "s").snapshot_id == "s"


Place = tuple[str | int, ...]
OPERATOR: Place = ("operators", 0)
KEYED: Place = (*OPERATOR, "states", 0)
GROUP: Place = (*KEYED, "key_groups", 0)
OTHER: Place = (*OPERATOR, "operator_states", 0)
SUBTASK: Place = (*OTHER, "subtasks", 0)
TABLE: Place = (*OPERATOR, "tables", 0)
UNIT: Place = (*TABLE, "units", 0)
WHOLE = (1 << 15) + 1
VALUES: list[tuple[Place, Any]] = [
    (("job",), ""), (("job",), "clean"), (("snapshot_id",), ""), (("snapshot_id",), None),
    (("metadata_version",), 0), (("metadata_version",), 99), (("compression",), "evil"),
    (("taken_at",), None), (("imported_at",), None),
    (("imported_at",), datetime.fromisoformat("2026-11-16")),
    (("entries",), -1), (("entries",), 7), (("state_bytes",), 1 << 62), (("written_bytes",), -1),
    (("operators",), []), (("operators",), 5), (("operators",), ["x"]), (("digest",), 5),
    (("carried", 0, "blob"), "../victim"), (("carried", 0, "blob"), "0" * 63),
    (("carried", 0, "blob"), "A" * 64), (("carried", 0, "size"), -1),
    ((*OPERATOR, "operator_id"), ""), ((*OPERATOR, "operator_id"), "../victim"),
    ((*OPERATOR, "operator_id"), "X" * 32), ((*OPERATOR, "uid"), 7),
    ((*OPERATOR, "parallelism"), 0), ((*OPERATOR, "parallelism"), 5),
    ((*OPERATOR, "parallelism"), 1 << 31), ((*OPERATOR, "parallelism"), True),
    ((*OPERATOR, "max_parallelism"), 0), ((*OPERATOR, "max_parallelism"), -1),
    ((*OPERATOR, "max_parallelism"), WHOLE), ((*OPERATOR, "max_parallelism"), 3),
    ((*OPERATOR, "max_parallelism"), 1 << 31), ((*OPERATOR, "tables"), []),
    ((*OPERATOR, "tables"), None), ((*OPERATOR, "states"), []),
    ((*OPERATOR, "operator_states"), []),
    ((*KEYED, "kind"), "evil"), ((*KEYED, "kind"), "timers"), ((*KEYED, "name"), "total"),
    ((*KEYED, "name"), "other"), ((*KEYED, "table"), "orders/keyed/counter/none"),
    ((*KEYED, "entries"), -1), ((*KEYED, "entries"), 1 << 62), ((*KEYED, "state_bytes"), 0),
    ((*GROUP, "key_group"), -5), ((*GROUP, "key_group"), 4), ((*GROUP, "key_group"), 1 << 62),
    ((*GROUP, "key_group"), 3), ((*GROUP, "entries"), -1), ((*GROUP, "entries"), 0.5),
    ((*GROUP, "state_bytes"), -(1 << 40)), ((*OTHER, "mode"), "EVIL"), ((*OTHER, "mode"), ""),
    ((*OTHER, "elements"), 1 << 62), ((*OTHER, "disagreeing"), [-1]),
    ((*OTHER, "disagreeing"), [2]), ((*OTHER, "disagreeing"), ["x"]),
    ((*SUBTASK, "subtask"), -1), ((*SUBTASK, "subtask"), 1 << 40), ((*SUBTASK, "subtask"), 1),
    ((*SUBTASK, "elements"), -1), ((*TABLE, "version"), -1), ((*TABLE, "version"), "0"),
    ((*TABLE, "partition_by"), ""), ((*TABLE, "partition_by"), "key_group"),
    ((*TABLE, "partition_by"), "../victim"), ((*TABLE, "units"), []),
    ((*UNIT, "path"), "_data/x.parquet"), ((*UNIT, "partition"), 77), ((*UNIT, "first"), -5),
    ((*UNIT, "first"), 3), ((*UNIT, "last"), 1 << 40), ((*UNIT, "last"), -1),
    ((*UNIT, "rows"), -1), ((*UNIT, "rows"), 1 << 62), ((*UNIT, "size"), -2),
    ((*UNIT, "fingerprint"), "x"),
    *(
        ((*UNIT, "parts"), [{"first": a, "last": b, "fingerprint": b"x"} for a, b in spans])
        for spans in (
            [(0, 2)], [(1, 3)], [(0, 1), (1, 3)], [(0, 3), (0, 3)], [(2, 3), (0, 1)],
            [(0, 2), (2, 1), (3, 3)], [(0, 1), (2, 1 << 62)], [(0, -1), (0, 3)],
        )
    ),
]  # fmt: skip


def fault_of(row: dict[str, Any]) -> str:
    """What is wrong with a row, by its types or by the rules."""
    try:
        return record_fault(SnapshotRecord.from_row(row), with_operators=True)
    except DamagedLakeError as error:
        return error.problem


def at(row: dict[str, Any], place: Place) -> Any:
    """What is at a place of a row."""
    held: Any = row
    for step in place:
        held = held[step]
    return held


def test_the_row_of_these_tests_is_sound(row: dict[str, Any]) -> None:
    """Or nothing below would say anything."""
    assert fault_of(row) == ""


@pytest.mark.parametrize(("place", "value"), VALUES, ids=lambda value: repr(value)[-60:])
def test_a_value_that_cannot_be(place: Place, value: Any, row: dict[str, Any]) -> None:
    """A row with one is no snapshot, and it is said what is wrong."""
    at(row, place[:-1])[place[-1]] = value
    assert fault_of(row)


@pytest.mark.parametrize(
    "place",
    [OPERATOR, KEYED, GROUP, OTHER, SUBTASK, TABLE, UNIT, ("carried", 0)],
    ids=lambda where: where[-2],
)
def test_nothing_is_there_twice(place: Place, row: dict[str, Any]) -> None:
    """Neither operators nor states, key groups, subtasks, tables, files or what is carried."""
    at(row, place[:-1]).append(at(row, place))
    assert fault_of(row)


def test_key_groups_of_one_bucket_may_have_several_files(row: dict[str, Any]) -> None:
    """All with the same ends; other files have key groups, or subtasks, of their own."""
    tables = row["operators"][0]["tables"]
    keyed = next(table for table in tables if table["partition_by"] and len(table["units"]) == 1)
    other = next(table for table in tables if not table["partition_by"])
    (unit,) = keyed["units"]
    before = unit["last"]
    for table in (keyed, other):
        half = dict(table["units"][0], path=f"_data/{'0' * 16}/key-groups-00000.parquet", rows=0)
        table["units"].append(half)
        if table is keyed:
            assert "in partition" in fault_of(row)
            half["last"] = unit["last"] = unit["first"]
            assert fault_of(row) == ""
            half["parts"] = [{"first": unit["first"], "last": unit["first"], "fingerprint": b"x"}]
            assert "other parts" in fault_of(row)
            del half["parts"]
            half["last"] += 1
            assert "two files of" in fault_of(row)
            half["last"] -= 1
    assert "two files of" in fault_of(row)
    other["units"].pop()
    unit["last"] = before
    assert "two files of" in fault_of(row)


def test_a_table_of_no_state(row: dict[str, Any]) -> None:
    """Every table is the table of a state that the operator has."""
    tables = row["operators"][0]["tables"]
    tables.append({**tables[0], "path": "orders/keyed/counter/more", "units": []})
    assert "the table of no state" in fault_of(row)


@pytest.mark.parametrize("suffix", ["~key_group", "~key_group_bucket", "~whole", "~whole~whole"])
def test_a_table_beside_one_that_is_partitioned_otherwise(suffix: str, row: dict[str, Any]) -> None:
    """It has the state's name, and the partitioning's behind it."""
    path = row["operators"][0]["tables"][0]["path"]
    for held, key in list(places_of(row, path)):
        held[key] = path + suffix
    assert fault_of(row) == ""


def test_the_message_names_the_place(row: dict[str, Any]) -> None:
    """Of a value within, by which it is found in the row."""
    row["operators"][0]["tables"][1]["units"][0]["size"] = -7
    wanted = "operators[0].tables[1].units[0].size: -7, and `int` >= 0 is wanted"
    assert fault_of(row) == wanted


# --------------------------------------------------------------------------- in the catalog


def put(scene: Scene, table: pa.Table) -> None:
    """Rows past all rules."""
    path = str(scene.path / "snapshots")
    write_deltalake(path, table, mode="append", partition_by=["job"], schema_mode="merge")


def test_two_rows_of_one_snapshot(scene: Scene, row: dict[str, Any]) -> None:
    """Nobody knows which is true; the others are as they were."""
    put(scene, pa.Table.from_pylist([row], SNAPSHOT_SCHEMA))
    with pytest.raises(DamagedLakeError, match="2 rows of this snapshot"):
        scene.lake.snapshot("orders", "bad")
    assert [summary.snapshot_id for summary in scene.lake.summaries("orders")] == ["good", "bad"]
    assert scene.lake.snapshot("orders", "good").entries == row["entries"]
    drop_snapshots(scene.lake, "orders", snapshot_ids=["bad"])
    assert [summary.snapshot_id for summary in scene.lake.summaries("orders")] == ["good"]


def test_of_two_rows_the_one_that_can_be(scene: Scene, row: dict[str, Any]) -> None:
    """A forged row does not take an honest one's place."""
    wanted = scene.lake.snapshot("orders", "good")
    row |= {"snapshot_id": "good", "imported_at": row["imported_at"] + timedelta(days=1)}
    row["operators"][0]["max_parallelism"] = 0
    put(scene, pa.Table.from_pylist([row], SNAPSHOT_SCHEMA))
    assert scene.lake.snapshot("orders", "good") == wanted
    with pytest.raises(DamagedLakeError):
        drop_snapshots(scene.lake, "orders", keep=1)


TOO_LATE = pa.array([1 << 62], pa.timestamp("us"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"no Parquet"),
        lambda path: path.unlink(),
        lambda path: pq.write_table(pa.table({"snapshot_id": [1, 2]}), path),
        lambda path: pq.write_table(pa.table({"snapshot_id": [b"\xff"]}), path),
        lambda path: pq.write_table(pa.table({"snapshot_id": ["x"], "taken_at": TOO_LATE}), path),
    ],
    ids=["no Parquet", "gone", "other types", "no text", "no time"],
)  # fmt: skip
def test_a_file_of_rows_that_is_none(
    damage: Callable[[Path], None], prepared: Scene, scene: Scene
) -> None:
    """It is told; snapshots in other files are exported, and the next is imported."""
    table = DeltaTable(str(scene.path / "snapshots"))
    before = set(table.file_uris())
    import_as(scene.lake, prepared.source, "next")
    (added,) = set(DeltaTable(str(scene.path / "snapshots")).file_uris()) - before
    damage(Path(added.removeprefix("file://").replace("%3D", "=")))
    assert len(scene.lake.listed("orders")[1]) in (1, 2)
    for name in ("next", "none"):
        with pytest.raises(DamagedLakeError):
            scene.lake.snapshot("orders", name)
    assert exported(scene.lake, "good", scene.root / "out")
    import_as(scene.lake, prepared.source, "later")
    assert exported(scene.lake, "later", scene.root / "later") == entries(prepared.source)
