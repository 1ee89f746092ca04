"""A further snapshot of a job costs what changed: other key groups are not written again."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statelake import NewKeyedState, NewOperator, write_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.edit.committing import commit_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.ingest.import_slice import TableTarget, _ImportSlice
from statelake.pipelines.lake.ingest.import_targets import reusable_tables
from statelake.pipelines.lake.ingest.importing import ImportResult, import_snapshot
from statelake.pipelines.lake.tables.file_spans import Partitioning
from statelake.pipelines.lake.tables.records import DataFile, PartRecord, SnapshotRecord
from statelake.pipelines.lake.tables.table_rows import TableReader
from statelake.pipelines.requests.imports import Import
from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata, write_metadata
from statelake.state_core.formats.reader import open_snapshot
from statelake.state_core.model.entries import Entries, KeyedFile
from statelake.state_core.model.handles import IncrementalHandle, KeyGroupRange
from tests.support.lakes import (
    KINDS,
    LOCAL,
    WIDE,
    WINDOWS,
    WORDS,
    assert_whole,
    data_bytes,
    edit,
    edited_savepoint,
    entries,
    exported,
    golden,
    import_as,
)
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases
from tests.support.savepoints.heap_timers import heap_timers

pytestmark = pytest.mark.thinned(2)


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """A lake that is not there yet."""
    return Catalog(tmp_path / "lake")


def run(lake: Catalog, source: Path, snapshot_id: str) -> ImportResult:
    """Import into job `orders`, with a file for each key group of up to 128."""
    return import_snapshot(
        lake, str(source), "orders", Import(partitions=128), snapshot_id=snapshot_id, engine=LOCAL
    )


def units(record: SnapshotRecord, table: str) -> dict[int, DataFile]:
    """The files of a table by their first key group."""
    (found,) = (t for op in record.operators for t in op.tables if t.path.endswith(table))
    return {unit.first: unit for unit in found.units}


def key_groups(contents: Iterable[tuple[int, bytes, bytes]]) -> set[int]:
    """The key groups of some entries."""
    return {group for group, _, _ in contents}


@pytest.mark.full
def test_only_changed_key_groups_are_written(lake: Catalog, tmp_path: Path) -> None:
    """Changed ones are, and emptied ones are left out; all others are the files of before."""
    changes = (
        ("tumbling/window-contents", "key_group < 8", {"value": "value + 1"}),
        ("tumbling/window-contents", "key_group BETWEEN 20 AND 25", {}),
    )
    later = edited_savepoint(WINDOWS, tmp_path / "later", *changes)
    first, second = run(lake, WINDOWS, "first"), run(lake, later, "second")
    for table in ("sliding/window-contents", "timers/tumbling", "timers/sliding"):
        assert units(second.record, table) == units(first.record, table)
    before = units(first.record, "tumbling/window-contents")
    after = units(second.record, "tumbling/window-contents")
    assert set(after) == set(before) - set(range(20, 26))
    changed = {group for group in after if group < 8}
    assert changed
    assert {group for group in after if after[group] != before[group]} == changed
    assert second.written_files == len(changed)
    assert second.record.written_bytes == sum(after[group].size for group in changed)
    assert second.kept_files == first.written_files - len(before) + len(after) - len(changed)
    assert exported(lake, "second", tmp_path / "out") == entries(later)
    assert_whole(lake)


def test_bytes_in_proportion(lake: Catalog, tmp_path: Path) -> None:
    """One key group of a hundred changed: at most a tenth of the first snapshot is written."""
    change = ("counter/count", "key_group = 3", {"value": "value + 1"})
    later = edited_savepoint(WORDS, tmp_path / "later", change)
    first, second = run(lake, WORDS, "first"), run(lake, later, "second")
    assert 0 < second.record.written_bytes * 10 < first.record.written_bytes
    assert data_bytes(Path(lake.location)) == sum(
        result.record.written_bytes for result in (first, second)
    )


@pytest.mark.parametrize(
    ("golden_name", "other"),
    [
        ("kinds-hashmap-canonical-p2-m128-flink2.3.0", KINDS),
        (
            "wordcount-hashmap-native-p2-m128-flink2.3.0",
            WORDS,
        ),
    ],
    ids=["kinds", "wordcount"],
)
@pytest.mark.full
def test_the_order_of_entries_does_not_matter(
    golden_name: str, other: Path, lake: Catalog, tmp_path: Path
) -> None:
    """The same state from another backend, format, compression and parallelism costs no file."""
    first = run(lake, golden(golden_name).snapshot, "first")
    second = run(lake, other, "second")
    before, after = entries(golden(golden_name).snapshot), entries(other)
    same = {name for name in before if before[name] == after[name]}
    assert same
    assert second.kept_files > 0
    for (operator_id, state), held in after.items():
        if (operator_id, state) in same and "_timer_state" not in state and held:
            table = f"/{state}"
            assert units(second.record, table) == units(first.record, table)
    assert exported(lake, "second", tmp_path / "out") == after


def test_wide_operators_share_buckets(lake: Catalog, tmp_path: Path) -> None:
    """Above 128 key groups it is the buckets with a changed key group that are written."""
    groups = sorted({group for held in entries(WIDE).values() for group, _, _ in held})
    change = ("counter/count", f"key_group = {groups[7]}", {"value": "value + 1"})
    later = edited_savepoint(WIDE, tmp_path / "later", change)
    run(lake, WIDE, "first")
    second = run(lake, later, "second")
    assert second.written_files == 1
    assert exported(lake, "second", tmp_path / "out") == entries(later)


@pytest.mark.full
def test_compared_with_the_newest(lake: Catalog, tmp_path: Path) -> None:
    """After a change and back only the changed key groups are written, twice."""
    change = ("counter/count", "key_group < 4", {"value": "value + 1"})
    later = edited_savepoint(WORDS, tmp_path / "later", change)
    groups = {g for held in entries(WORDS).values() for g in key_groups(held) if g < 4}
    run(lake, WORDS, "first")
    assert run(lake, later, "second").written_files == len(groups)
    assert run(lake, WORDS, "third").written_files == len(groups)
    assert run(lake, WORDS, "fourth").written_files == 0
    assert_whole(lake)
    assert exported(lake, "fourth", tmp_path / "out") == entries(WORDS)


@pytest.mark.full
def test_another_max_parallelism_shares_nothing(lake: Catalog, tmp_path: Path) -> None:
    """A job that was given more key groups has other files in its tables, and both are whole."""
    run(lake, WORDS, "narrow")
    exported(lake, "narrow", tmp_path / "wide", max_parallelism=512)
    wide = run(lake, tmp_path / "wide", "wide")
    assert wide.kept_files == 0
    assert [t.path for op in wide.record.operators for t in op.tables if t.units] == [
        "orders/keyed/counter/count"
    ]
    exported(lake, "narrow", tmp_path / "half", max_parallelism=64)
    half = run(lake, tmp_path / "half", "half")
    assert half.kept_files == 0
    assert_whole(lake)
    for name, source in (
        ("narrow", WORDS),
        ("wide", tmp_path / "wide"),
        ("half", tmp_path / "half"),
    ):
        assert exported(lake, name, tmp_path / f"{name}-out") == entries(source)


def test_a_second_import_after_all_went(lake: Catalog, tmp_path: Path) -> None:
    """A state that became empty has no file, and comes back whole."""
    empty = edited_savepoint(WORDS, tmp_path / "empty", ("counter/count", "true", {}))
    run(lake, WORDS, "first")
    second = run(lake, empty, "second")
    assert (second.record.entries, second.written_files, second.kept_files) == (0, 0, 0)
    third = import_as(lake, WORDS, "third")
    assert third.entries == 300
    assert exported(lake, "third", tmp_path / "out") == entries(WORDS)


def test_other_keys_of_the_same_bytes(lake: Catalog) -> None:
    """Where another serializer wrote the keys, no file of before can say what they are."""
    record = run(lake, WORDS, "first").record
    (operator,) = (
        operator for operator in open_snapshot(WORDS).operators if operator.label == "counter"
    )
    assert reusable_tables(operator, record)
    (before,) = (owner for owner in record.operators if owner.label == "counter")
    other = replace(before, key_serializer=before.key_serializer + b"\0")
    assert reusable_tables(operator, replace(record, operators=[other])) == {}


def test_queues_of_timers_of_which_one_has_other_types(lake: Catalog, tmp_path: Path) -> None:
    """They share a table: the same bytes are another row of one of them."""

    def written(name: str, *constants: str) -> Path:
        states = [
            NewKeyedState.timers(
                domain,
                pa.table({"key": [1], "timestamp": [7], "namespace": [of_queue[0]]}),
                namespace={"enum": "com.acme.Tier", "constants": of_queue},
                service="window-timers",
            )
            for domain, of_queue in (
                ("event", ["GOLD", "SILVER"]),
                ("processing", list(constants)),
            )
        ]
        operator = NewOperator("op", "Long", states, parallelism=1, max_parallelism=128)
        write_snapshot(tmp_path / name, [operator])
        return tmp_path / name

    import_as(lake, written("first", "GOLD", "SILVER"), "first")
    second = written("second", "SILVER", "GOLD")
    import_as(lake, second, "second")
    assert exported(lake, "second", tmp_path / "out") == entries(second)


class TestIdenticalBytes:
    """What is stored as before is not read entry by entry."""

    @pytest.fixture(autouse=True)
    def reads(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The operators of which entries were read."""
        reads: list[str] = []
        original = _ImportSlice._entries

        def entries_of(of: _ImportSlice) -> Iterator[tuple[KeyedFile, Entries]]:
            reads.append(of.task.operator_id)
            return original(of)

        monkeypatch.setattr(_ImportSlice, "_entries", entries_of)
        return reads

    @pytest.mark.parametrize(
        "case", golden_cases("wordcount", "kinds", "windows"), ids=lambda case: case.name
    )
    @pytest.mark.full
    def test_nothing_of_them_is_decoded(
        self, case: GoldenCase, lake: Catalog, tmp_path: Path, reads: list[str]
    ) -> None:
        """The rows are those of the snapshot before, in each format."""
        first = import_as(lake, case.snapshot, "first")
        assert reads
        reads.clear()
        second = import_as(lake, case.snapshot, "second")
        assert not reads
        for one, other in zip(first.operators, second.operators, strict=True):
            assert (one.states, one.slices) == (other.states, other.slices)
            assert [table.units for table in one.tables] == [t.units for t in other.tables]
        assert exported(lake, "second", tmp_path / "out") == entries(case.snapshot)
        assert_whole(lake)

    def test_nor_of_timers_beside_rocksdb(
        self, lake: Catalog, tmp_path: Path, reads: list[str]
    ) -> None:
        """Which are in files of their own, of the same key groups."""
        source = heap_timers("windows", tmp_path / "checkpoint")
        import_as(lake, source, "first")
        reads.clear()
        import_as(lake, source, "second")
        assert not reads
        assert exported(lake, "second", tmp_path / "out") == entries(source)

    def test_what_changed_in_the_lake_is_read(
        self, lake: Catalog, tmp_path: Path, reads: list[str]
    ) -> None:
        """The snapshot before may have been edited: the savepoint has what it had."""
        import_as(lake, WORDS, "first")
        edit(lake, "orders/keyed/counter/count").update(
            {"value": "value + 1"}, predicate="key_group < 9"
        )
        commit_snapshot(ChildSnapshot(lake, "orders", "first", "edited", engine=LOCAL))
        reads.clear()
        import_as(lake, WORDS, "second")
        assert reads
        assert exported(lake, "second", tmp_path / "out") == entries(WORDS)

    @pytest.mark.full
    def test_blocks_that_other_subtasks_claim(self, lake: Catalog, tmp_path: Path) -> None:
        """The same bytes are other rows where the handles name other key groups."""
        source = golden("kinds-rocksdb-native-p2-m128-flink2.3.0").snapshot
        moved = tmp_path / "moved"
        shutil.copytree(source, moved)
        metadata = read_metadata((moved / "_metadata").read_bytes())
        for operator in metadata.operators:
            for index, subtask in (operator.subtasks or {}).items():
                if isinstance(subtask.managed_keyed, IncrementalHandle):
                    first, count = ((0, 32), (32, 96))[index]
                    subtask.managed_keyed = replace(subtask.managed_keyed, first=first, count=count)
        (moved / "_metadata").write_bytes(write_metadata(metadata))
        assert entries(moved) != entries(source)
        import_as(lake, source, "first")
        import_as(lake, moved, "second")
        assert exported(lake, "second", tmp_path / "out") == entries(moved)

    def test_a_damaged_file_of_before_is_written_again(
        self, lake: Catalog, tmp_path: Path, reads: list[str]
    ) -> None:
        """The savepoint is the same, and the rows of the lake are not."""
        first = import_as(lake, WORDS, "first")
        (unit,) = units(first, "count").values()
        path = Path(lake.location) / "orders/keyed/counter/count" / unit.path
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        reads.clear()
        second = import_as(lake, WORDS, "second")
        assert reads
        assert units(second, "count")[unit.first].path != unit.path
        assert exported(lake, "second", tmp_path / "out") == entries(WORDS)


class _Looked(dict[tuple[int, int], bytes]):
    """Fingerprints that count how often all of them are gone through."""

    count = 0

    def items(self) -> Any:
        """All of them."""
        self.count += 1
        return super().items()


def test_what_a_table_has_is_gone_through_once_for_all_slices() -> None:
    """Each slice finds what it touches: as many parts as there are slices are no work of each."""
    spans = [(first, first + 7) for first in range(0, 2_000, 10)]
    parts = [PartRecord(*span, str(span).encode()) for span in spans]
    unit = DataFile("a", 0, 0, 1_997, 1, 1, b"", parts)
    rows = TableReader("", "", Partitioning(2_000), b"", (), (unit,))
    rows.found_as_written["a"] = True
    target = TableTarget("", "", (), rows)
    looked = target.__dict__["fingerprints"] = _Looked(target.fingerprints)
    for first in range(0, 2_000, 7):
        groups = KeyGroupRange(first, first + first % 23)
        touched = [each for each in parts if each.first <= groups.last and each.last >= first]
        assert target.parts(groups) == touched
        assert all(target.keeps(KeyGroupRange(*each.span), each.fingerprint) for each in touched)
    assert looked.count == 1
