"""A key group that several tasks import: the lake is as if one had, but for its number of files."""

from __future__ import annotations

from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from statelake import Lake, open_snapshot
from statelake.pipelines.engine import Engine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export import cutting
from statelake.pipelines.lake.export.export_slice import WriteTask
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest import large_slice_tasks, large_slices
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.ingest.large_slice_tasks import CutTask, PieceTask
from statelake.pipelines.lake.ingest.large_slices import large_bytes
from statelake.pipelines.lake.tables import file_spans as units
from statelake.pipelines.lake.tables.records import SnapshotRecord, by_span
from statelake.state_core.errors import CorruptSnapshotError
from statelake.state_core.formats.keyed import unified_file
from statelake.state_core.formats.rewriting.recompression import recompress_snapshot
from statelake.state_core.formats.writing.new_snapshot import write_snapshot
from statelake.state_core.formats.writing.new_states import NewKeyedState, NewOperator
from tests.pipelines.lake.conftest import JOB
from tests.pipelines.lake.ingest.test_lake_repeated_tasks import Repeating, files_of, named
from tests.support.engines import Noting
from tests.support.lakes import tiny_pieces, unit_paths
from tests.support.rocksdb_databases import Settings
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases
from tests.support.savepoints.rocksdb_checkpoints import rocksdb_checkpoint

CHOSEN = (
    "kinds-hashmap-canonical", "sql-rocksdb-canonical-snappy", "windows-hashmap-canonical",
    "kinds-rocksdb-native", "churn-rocksdb-checkpoint",
)  # fmt: skip
CASES = [case for name in CHOSEN for case in golden_cases() if case.name.startswith(name)]
ENTRIES, FEW = 4000, 10
CHANGING = {
    "size", "written_bytes", "imported_at", "version", "path", "snapshot_id", "source", "slices",
}  # fmt: skip


@pytest.fixture(autouse=True)
def a_slice_for_each_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices and files as those of large state are."""
    monkeypatch.setattr(units, "SLICE_BYTES", 1)
    monkeypatch.setattr(units, "FILE_BYTES", 1)


def savepoint(root: Path, *, changed: bool = False) -> Path:
    """One key has most entries of two maps and most timers; there are others around it."""
    many = {
        "key": [7] * ENTRIES + list(range(FEW)),
        "user_key": list(range(ENTRIES + FEW)),
        "value": [f"value {index % 1000}" for index in range(ENTRIES + FEW)],
    }
    few = {"key": list(range(FEW)), "value": list(range(FEW))}
    none = {"key": pa.array([], pa.int64()), "value": pa.array([], pa.int64())}
    others = {**many, "value": ["changed", *many["value"][1:]]} if changed else many
    timers = {"key": many["key"], "timestamp": many["user_key"]}
    states = (
        NewKeyedState("few", pa.table(few), value="Long"),
        NewKeyedState("none", pa.table(none), value="Long"),
        NewKeyedState("many", pa.table(many), kind="map", user_key="Long", value="String"),
        NewKeyedState("more", pa.table(others), kind="map", user_key="Long", value="String"),
        NewKeyedState.timers("event", pa.table(timers)),
        NewKeyedState.timers("processing", pa.table(timers)),
    )
    operator = NewOperator("op", "Long", states, parallelism=2, max_parallelism=128)
    write_snapshot(root, [operator])
    return root


def imported(
    lake: Catalog, source: Path, snapshot_id: str = "s", engine: Engine | str = "local"
) -> SnapshotRecord:
    """The record of an import."""
    return import_snapshot(lake, str(source), JOB, snapshot_id=snapshot_id, engine=engine).record


def said(record: SnapshotRecord) -> Any:
    """What a record says, but for what two lakes differ in."""

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: without(spans(v) if name == "units" else v)
                for name, v in value.items()
                if name not in CHANGING
            }
        return [without(element) for element in value] if isinstance(value, list) else value

    def spans(units: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Files of the same key groups as one."""
        merged: dict[tuple[int, int], dict[str, Any]] = {}
        for unit in units:
            span = unit["first"], unit["last"]
            rows = merged[span]["rows"] if span in merged else 0
            merged[span] = unit | {"rows": rows + unit["rows"]}
        return list(merged.values())

    return without(asdict(record))


def rows_of(lake: Catalog, record: SnapshotRecord) -> dict[tuple[str, int], pa.Table]:
    """The rows of every span of key groups, by its table and its first key group, in order."""
    return {
        (table.path, first): pa.concat_tables(
            pq.read_table(Path(lake.location, table.path, unit.path), partitioning=None)
            for unit in files
        ).combine_chunks()
        for operator in record.operators
        for table in operator.tables
        for (first, _), files in by_span(table.units).items()
    }


def most_files(record: SnapshotRecord) -> int:
    """The files of the span that has most of them."""
    return max(len(files) for table in record.tables for files in by_span(table.units).values())


def exported(lake: Catalog, to: Path) -> list[bytes]:
    """The files of an exported savepoint but for `_metadata`."""
    export_snapshot(lake, JOB, "s", to, engine="local")
    return sorted(path.read_bytes() for path in to.iterdir() if path.name != "_metadata")


@pytest.mark.full
def test_as_one_task_would(tmp_path: Path) -> None:
    """Rows in the same order, the same records, the same export, and no file beside them."""
    for compression in ("none", "snappy"):
        source = tmp_path / f"savepoint-{compression}"
        recompress_snapshot(savepoint(tmp_path / f"plain-{compression}"), source, compression)
        whole, cut = (Catalog(tmp_path / f"{name}-{compression}") for name in ("whole", "cut"))
        expected = imported(whole, source)
        engine = Noting()
        with tiny_pieces():
            record = imported(cut, source, engine=engine)
        assert engine.count(PieceTask) > (50 if compression == "none" else 3)
        assert most_files(record) > 2
        assert most_files(expected) == 1
        assert said(record) == said(expected)
        assert rows_of(cut, record) == rows_of(whole, expected)
        assert files_of(cut) == named(cut)
        assert exported(cut, tmp_path / "a") == exported(whole, tmp_path / "b")
        for name in ("a", "b"):
            (tmp_path / name).rename(tmp_path / f"{name}-{compression}")


@pytest.mark.thinned(5)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.full
def test_what_flink_wrote(case: GoldenCase, tmp_path: Path) -> None:
    """Every kind of state, SQL's and timers, cut in the midst of key groups."""
    whole, cut = Catalog(tmp_path / "whole"), Catalog(tmp_path / "cut")
    expected = imported(whole, case.snapshot)
    with tiny_pieces(200):
        record = imported(cut, case.snapshot)
    assert said(record) == said(expected)
    assert rows_of(cut, record) == rows_of(whole, expected)
    assert files_of(cut) == named(cut)


@pytest.mark.full
def test_rocksdbs_own_files(tmp_path: Path) -> None:
    """A checkpoint with tables over each other: as one task would, and shared by the next."""
    written = [savepoint(tmp_path / "1"), savepoint(tmp_path / "2", changed=True)]
    source = rocksdb_checkpoint(written, tmp_path / "checkpoint", Settings(block_size=1000))
    whole, cut = Catalog(tmp_path / "whole"), Catalog(tmp_path / "cut")
    expected, engine = imported(whole, source), Noting()
    with tiny_pieces(2000):
        record = imported(cut, source, engine=engine)
    assert engine.count(PieceTask) > 5
    assert most_files(record) > 2
    assert said(record) == said(expected)
    assert rows_of(cut, record) == rows_of(whole, expected)
    assert files_of(cut) == named(cut)
    assert exported(cut, tmp_path / "a") == exported(whole, tmp_path / "b")
    before = files_of(cut)
    with tiny_pieces():
        imported(cut, source, "again")
    assert files_of(cut) == before


@pytest.mark.full
def test_files_are_shared(tmp_path: Path) -> None:
    """Files stay where their key group is as it was, cut or not, before or now."""
    first, second = savepoint(tmp_path / "1"), savepoint(tmp_path / "2", changed=True)
    lake = Catalog(tmp_path / "lake")
    imported(lake, first, "whole")
    before = files_of(lake)
    with tiny_pieces():
        engine = Noting()
        imported(lake, first, "again", engine)
        assert files_of(lake) == before
        assert not any(task.measured for task in engine.tasks if isinstance(task, PieceTask))
        engine = Noting()
        imported(lake, second, "changed", engine)
        cut = [task for task in engine.tasks if isinstance(task, PieceTask)]
        assert 0 < sum(task.measured for task in cut) < len(cut) / 3  # of five tables, one
        changed = files_of(lake) - before
        assert {Path(path).parts[3] for path in changed} == {"more"}
    again = imported(lake, second, "whole again")
    assert files_of(lake) == before | changed
    assert most_files(again) > 2


def test_a_piece_counts_its_own_key_groups(tmp_path: Path) -> None:
    """What tasks send back is in proportion to the pieces, whatever the max parallelism."""
    source, engine = tmp_path / "s", Noting()
    numbers = range(ENTRIES)
    hot = pa.table({"key": [7] * ENTRIES, "user_key": numbers, "value": numbers})
    state = NewKeyedState("map", hot, kind="map", user_key="Long", value="Long")
    timers = NewKeyedState.timers("event", pa.table({"key": [7] * 9, "timestamp": range(9)}))
    write_snapshot(source, [NewOperator("op", "Long", (state, timers), max_parallelism=1 << 15)])
    with tiny_pieces():
        record = imported(Catalog(tmp_path / "cut"), source, engine=engine)
    assert said(record) == said(imported(Catalog(tmp_path / "whole"), source))
    pieces = [(t, r) for t, r in zip(engine.tasks, engine.results, strict=True)
              if isinstance(t, PieceTask)]  # fmt: skip
    assert len(pieces) > 3
    for task, result in pieces:
        assert result.measure.key_groups == task.piece.key_groups
    assert sum(len(task.piece.key_groups) == 1 for task, _ in pieces) >= len(pieces) - 2


@pytest.mark.full
def test_tasks_that_run_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts and files of other runs are gone when the snapshot is there."""
    lake, engine = Catalog(tmp_path / "lake"), Repeating(monkeypatch)
    with tiny_pieces():
        record = imported(lake, savepoint(tmp_path / "s"), engine=engine)
    assert engine.lost
    assert files_of(lake) == named(lake)
    whole = Catalog(tmp_path / "whole")
    assert rows_of(lake, record) == rows_of(whole, imported(whole, tmp_path / "s"))


@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_a_damaged_key_group(compression: str, tmp_path: Path) -> None:
    """The error names file and offset, and nothing is left."""
    source = tmp_path / "s"
    recompress_snapshot(savepoint(tmp_path / "plain"), source, compression)
    damaged = max(source.iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2 :: 64] = b"\xff" * len(content[len(content) // 2 :: 64])
    damaged.write_bytes(content)
    lake = Catalog(tmp_path / "lake")
    with tiny_pieces(), pytest.raises(CorruptSnapshotError, match="offset") as caught:
        imported(lake, source)
    assert damaged.name in str(caught.value)
    assert not files_of(lake)


def hot(root: Path) -> Path:
    """One state, of which one key has nearly all."""
    rows = {"key": [7] * ENTRIES + [1], "user_key": range(ENTRIES + 1)}
    values = pa.array(rows["user_key"]).cast(pa.string())
    table = pa.table({**rows, "value": values})
    state = NewKeyedState("hot", table, kind="map", user_key="Long", value="String")
    write_snapshot(root, [NewOperator("op", "Long", (state,), max_parallelism=128)])
    return root


@pytest.mark.parametrize("wrong", [None, 0, 2])
def test_pieces_that_were_guessed(
    wrong: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the file is read once; if a guess was wrong, it is cut, and imported as it is."""
    source, lake, whole = (
        hot(tmp_path / "s"),
        Catalog(tmp_path / "lake"),
        Catalog(tmp_path / "whole"),
    )
    guess, numbers = unified_file.UnifiedFile._entry_from, iter(range(1000))

    def guessed(*arguments: Any) -> int | None:
        at = guess(*arguments)
        return at if at is None or next(numbers) != wrong else at + 1

    monkeypatch.setattr(unified_file.UnifiedFile, "_entry_from", guessed)
    engine = Noting()
    with tiny_pieces():
        record = imported(lake, source, engine=engine)
        again = imported(lake, hot(tmp_path / "again"), "again", engine)
    assert sum(not task.guess for task in engine.tasks if isinstance(task, CutTask)) == (
        wrong is not None
    )
    expected = imported(whole, source)
    assert said(record) == said(expected)
    assert rows_of(lake, record) == rows_of(whole, expected)
    assert unit_paths(again) == unit_paths(record) == files_of(lake)


@pytest.mark.full
def test_a_piece_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that were written are removed with the attempt, or by the next after a crash."""
    lake, source = Catalog(tmp_path / "lake"), savepoint(tmp_path / "s")
    calls, batch = count(), large_slice_tasks.table_batch

    def failing(*arguments: Any) -> pa.RecordBatch:
        if next(calls) == 100:
            raise OSError("broken")
        return batch(*arguments)

    monkeypatch.setattr(large_slice_tasks, "table_batch", failing)
    with tiny_pieces():
        with pytest.raises(OSError, match="broken"):
            imported(lake, source)
        assert not files_of(lake)
        imported(lake, source)
    assert files_of(lake) == named(lake)


@pytest.mark.full
def test_progress_ends_with_all(tmp_path: Path) -> None:
    """Progress over all stages goes up, and reaches its end once."""
    told: list[tuple[int, int]] = []
    with tiny_pieces():
        import_snapshot(
            Catalog(tmp_path / "lake"), str(savepoint(tmp_path / "s")), JOB, engine="local",
            progress=lambda done, total: told.append((done, total)),
        )  # fmt: skip
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert [done == total for done, total in told] == [False] * (len(told) - 1) + [True]


def test_small_slices_stay_whole(tmp_path: Path) -> None:
    """Nothing is cut where no slice is large."""
    engine = Noting()
    imported(Catalog(tmp_path / "lake"), savepoint(tmp_path / "s"), engine=engine)
    assert not engine.count(PieceTask)


def test_a_huge_slice_is_cut_on_local_disks_whatever_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a store it would be read and written twice, which takes longer than to wait for it."""
    whole, cut, source = Catalog(tmp_path / "whole"), Catalog(tmp_path / "cut"), tmp_path / "s"
    savepoint(source)
    monkeypatch.setattr(large_slices, "LARGE_BYTES", 1)
    monkeypatch.setattr(large_slices, "SHARE", 1)
    engine = Noting()
    expected = imported(whole, source, engine=engine)
    assert not engine.count(PieceTask)
    monkeypatch.setattr(large_slices, "HUGE_BYTES", 1)
    record = imported(cut, source, engine=engine)
    assert engine.count(PieceTask) >= engine.count(CutTask) > 5
    assert said(record) == said(expected)
    assert rows_of(cut, record) == rows_of(whole, expected)
    (operator,) = open_snapshot(source).operators
    assert large_bytes([operator], local=True) == 1
    assert large_bytes([operator], local=False) == sum(
        size for file in operator.keyed_files for _, size in file.group_bytes()
    )


@pytest.mark.full
def test_all_that_reads_or_changes_takes_a_key_group_of_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads, SQL, differences, exports, edits, commits and erasures: as of one file."""
    written = [savepoint(tmp_path / "s"), savepoint(tmp_path / "t", changed=True)]
    whole, cut = Lake(tmp_path / "whole"), Lake(tmp_path / "cut")
    for source in written:
        imported(whole.catalog, source, source.name)
        with tiny_pieces():
            record = imported(cut.catalog, source, source.name)
    assert most_files(record) > 2
    seen = [seen_of(lake, tmp_path / f"seen-{lake.catalog.directory.location[-3:]}", monkeypatch)
            for lake in (whole, cut)]  # fmt: skip
    assert seen[1].keys() == seen[0].keys()
    for what, expected in seen[0].items():
        assert seen[1][what] == expected, what


def seen_of(lake: Lake, to: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is read of a lake, before and after it is changed in every way."""
    job = lake.job(JOB, engine="local")
    snapshot = job["s"]
    (table,) = (t.path for t in job["t"].record.tables if t.path.endswith("/more"))

    def rows(name: str) -> dict[str, list[Any]]:
        (operator,) = job[name].operators
        return {state.name: sorted(map(repr, state.to_arrow().to_pylist()))
                for state in operator.keyed_states}  # fmt: skip

    def files(name: str, **options: Any) -> list[bytes]:
        target = to / f"{name}-{len(list(to.glob('*')))}"
        job[name].export(target, **options)
        return sorted(path.read_bytes() for path in target.iterdir() if path.name != "_metadata")

    to.mkdir()
    (operator,) = snapshot.operators
    uid, names = operator.operator_id, [state.name for state in operator.keyed_states]
    seen: dict[str, Any] = {
        "rows": [state.to_arrow() for state in operator.keyed_states],
        "of a key": [operator.state(name).get(7) for name in names],
        "sum": job.sql(
            f'SELECT key_group, sum(user_key), count(*) FROM "{uid}".more'
            " WHERE key_group > 3 GROUP BY ALL ORDER BY ALL",
            as_of="t",
        ).read_all(),
        "difference": snapshot.diff("t"),
        "history": [(s.snapshot_id, s.changes) for s in job.history(7).snapshots],
        "faults": snapshot.check_integrity(),
        "wider": files("t", parallelism=3),
        "rehashed": files("t", max_parallelism=100),
        "sample": files("t", sample=0.5),
    }
    with monkeypatch.context() as patch:
        patch.setattr(cutting, "SLICE_BYTES", 20_000)
        patch.setattr(cutting, "CHUNK_BYTES", 6_000)
        engine = Noting()
        target = to / "pieces"
        export_snapshot(lake.catalog, JOB, "t", target, engine=engine)
        assert sum(isinstance(task, WriteTask) for task in engine.tasks) > 3
        seen["in pieces"] = sorted(
            p.read_bytes() for p in target.iterdir() if p.name != "_metadata"
        )
    seen["as in pieces"] = files("t")
    DeltaTable(lake.catalog.table(table).uri).delete("user_key = 60")
    job.commit("committed", "t")
    seen["committed"] = rows("committed"), job["t"].diff("committed", examples=0)
    snapshot.edit("purged").purge(f"{uid}/more", "user_key < 100").purge(
        f"{uid}/timers", "timestamp > 5"
    ).save()
    seen["purged"] = rows("purged"), files("purged"), job["purged"].check_integrity()
    snapshot.edit_sql("updated", f"UPDATE \"{uid}\".many SET value = 'x'"
                      " WHERE user_key = 50")  # fmt: skip
    seen["updated"] = rows("updated")
    erasure = lake.erase(
        "r",
        keys=[7],
        where={f"{uid}/more": "value = 'changed'"},
        carried="keep",
        snapshots=["s", "t"],
    )
    plan = erasure.plan()
    seen["plan"] = plan.rows, plan.matched_snapshots
    erasure.execute()
    seen["erased"] = rows("s"), rows("t"), rows("purged"), files("t")
    erasure = lake.erase("r2", keys=[7], carried="keep")
    erasure.execute()
    seen["erased everywhere"] = {name: rows(name) for name in ("s", "t", "purged", "committed")}
    seen["left"] = erasure.audit().rows
    for record in lake.snapshots():
        for each in record.tables:
            files_of_version = lake.catalog.table(each.path).files(each.version)
            assert {file.path for file in files_of_version} == {u.path for u in each.units}
    return seen
