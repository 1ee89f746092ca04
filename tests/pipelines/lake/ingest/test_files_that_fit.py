"""How many files a state has: by its bytes, and as the snapshot before had them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statelake import open_snapshot
from statelake.pipelines.engine import LocalEngine
from statelake.pipelines.lake.catalog.catalog import Catalog, CatalogChange
from statelake.pipelines.lake.edit.committing import commit_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.edit.sql_editing import edit_by_sql
from statelake.pipelines.lake.erase.erasing import rows_edits
from statelake.pipelines.lake.ingest import import_slice, joined_files
from statelake.pipelines.lake.ingest.import_targets import table_targets
from statelake.pipelines.lake.query.session import key_group
from statelake.pipelines.lake.tables import file_spans as units
from statelake.pipelines.lake.tables import table_rows
from statelake.pipelines.lake.tables.data_files import table_batch, table_columns
from statelake.pipelines.lake.tables.file_spans import (
    BUCKET,
    KEY_GROUP,
    FileCuts,
    Partitioning,
    plan_import_slices,
)
from statelake.pipelines.lake.tables.parquet_seals import check_whole
from statelake.pipelines.lake.tables.record_rules import record_fault
from statelake.pipelines.lake.tables.records import DataFile, SnapshotRecord
from statelake.pipelines.lake.tables.tables import CONFIGURATION, create_table
from statelake.pipelines.lake.verify.lake_checking import check_lake
from statelake.state_core.errors import DeclarationError, KeyGroupError
from statelake.state_core.model.handles import KeyGroupRange
from tests.support.lakes import (
    KINDS,
    LOCAL,
    WIDE,
    WORDS,
    assert_whole,
    edit,
    edited_savepoint,
    entries,
    exported,
    import_as,
)

MEGABYTE = 1 << 20
COUNTS = "orders/keyed/counter/count"
NEW_WORDS = {"alice", "bob", "carol", "dave", "eve"}


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """A lake that is not there yet."""
    return Catalog(tmp_path / "lake")


def count_files(record: SnapshotRecord) -> list[DataFile]:
    """The files of the table of counts."""
    (table,) = (t for op in record.operators for t in op.tables if t.path.startswith(COUNTS))
    return table.units


def group_of(word: str) -> int:
    """The key group of a word, of 128."""
    return int(key_group(pa.array([word]), pa.array([128]))[0].as_py())


def insert(lake: Catalog, word: str, group: int, bucket: int | None) -> None:
    """Put a row more into the table of counts, as another engine would."""
    row = edit(lake, COUNTS).to_pyarrow_table().slice(0, 1)
    for name, value in (("key", word), (KEY_GROUP, group), (BUCKET, bucket), ("value", 7)):
        at = row.schema.get_field_index(name)
        field = row.schema.field(name)
        row = row.set_column(at, field, pa.array([value], field.type))
    write_deltalake(edit(lake, COUNTS), row, mode="append")


def ranges(cuts: FileCuts, sizes: Sequence[int]) -> list[tuple[int, int]]:
    """The first and the last key group of each file."""
    return [(unit.first, unit.last) for unit in cuts.files(sizes)]


def cut(max_parallelism: int, sizes: Sequence[int], **before: Any) -> list[tuple[int, int]]:
    """Files of all key groups of an operator, of buckets with these bytes."""
    partitioning = Partitioning(max_parallelism)
    buckets = partitioning.buckets(KeyGroupRange(0, max_parallelism - 1))
    cuts = FileCuts(partitioning, buckets, before.get("partitions"))
    if "starts" in before:
        cuts.follow(before["starts"], sizes)
    return ranges(cuts, sizes)


class TestCuts:
    """Where files end."""

    def test_a_small_state_is_one_file(self) -> None:
        """Below a megabyte."""
        assert cut(128, [80] * 128) == [(0, 127)]

    def test_a_few_megabytes_are_a_few_files(self) -> None:
        """Of about a megabyte each."""
        assert len(cut(128, [40_000] * 128)) == 5

    def test_a_large_state_is_a_file_a_bucket(self) -> None:
        """However large it is."""
        assert len(cut(128, [70 * MEGABYTE] * 128)) == 128
        assert len(cut(1 << 15, [70 * MEGABYTE] * 128)) == 128

    def test_files_stay_where_they_were(self) -> None:
        """Until one has grown to four megabytes, which alone is cut anew."""
        sizes = [100_000] * 128
        before = cut(128, sizes)
        starts = {first for first, _ in before}
        assert cut(128, [2 * size for size in sizes], starts=starts) == before
        grown = [3_000_000 if first <= 12 else 100_000 for first in range(128)]
        after = cut(128, grown, starts=starts)
        assert after[:10] == [(group, group) for group in range(10)]
        assert [row for row in after if row[0] >= 22] == [row for row in before if row[0] >= 22]

    def test_many_small_files_become_few(self) -> None:
        """Where a state has shrunk to a sixteenth of what its files are for."""
        assert cut(128, [1000] * 128, starts=set(range(128))) == [(0, 127)]
        assert len(cut(128, [100_000] * 128, starts=set(range(128)))) == 128

    @pytest.mark.parametrize("partitions", [1, 2, 3, 100, 128])
    def test_as_many_as_were_asked_for(self, partitions: int) -> None:
        """Whatever the bytes, and whatever was there before."""
        for size in (1, 70 * MEGABYTE):
            assert len(cut(128, [size] * 128, partitions=partitions)) == partitions
            assert len(cut(4096, [size] * 128, partitions=partitions, starts={5})) == partitions

    @given(
        st.integers(1, 1 << 15),
        st.lists(st.integers(0, 3 * MEGABYTE), min_size=128, max_size=128),
        st.sets(st.integers(0, 127)),
        st.data(),
    )
    def test_two_files_of_a_bucket_have_it_to_themselves(
        self, max_parallelism: int, sizes: list[int], starts: set[int], data: st.DataObject
    ) -> None:
        """Slices that end anywhere: all key groups are covered once, each file in whole buckets."""
        partitioning = Partitioning(max_parallelism)
        ends = sorted(data.draw(st.sets(st.integers(0, max_parallelism - 1))))
        ends = [*ends, max_parallelism - 1] if max_parallelism - 1 not in ends else ends
        files: list[tuple[int, int]] = []
        first = 0
        for last in ends:
            buckets = partitioning.buckets(KeyGroupRange(first, last))
            cuts = FileCuts(partitioning, buckets)
            cuts.follow(starts, sizes[: len(buckets)])
            files += ranges(cuts, sizes[: len(buckets)])
            first = last + 1
        assert [group for begin, end in files for group in range(begin, end + 1)] == list(
            range(max_parallelism)
        )
        for (begin, end), (next_begin, next_end) in pairwise(files):
            if partitioning.partition_of(end) == partitioning.partition_of(next_begin):
                shared = {partitioning.partition_of(group) for group in (begin, end, next_end)}
                assert len(shared) == 1


@dataclass
class Source:
    """A file of keyed state, as far as slices are planned by it."""

    key_groups: KeyGroupRange
    size: int
    key_serializer: bytes = b"k"
    states: list[Any] = field(default_factory=list)

    def group_bytes(self) -> list[tuple[int, int]]:
        """The bytes of each key group."""
        groups = range(self.key_groups.first, self.key_groups.last + 1)
        return [(group, self.size // len(groups)) for group in groups]


class Cuttable(Source):
    """One that says how its bytes are spread only where it is asked: key group 100 has most."""

    def looked_up_bytes(self) -> list[tuple[int, int]]:
        """The bytes of each key group, as they are."""
        hot = self.size - MEGABYTE
        return [(group, hot if group == 100 else 1) for group, _ in self.group_bytes()]

    def cut(self, key_groups: KeyGroupRange, piece_bytes: int) -> Any:
        """Not asked for."""

    def entries_of(self, piece: Any) -> Any:
        """Not asked for."""


def sources(count: int, size: int, max_parallelism: int = 1024) -> list[Any]:
    """Files of as many subtasks."""
    width = max_parallelism // count
    return [Source(KeyGroupRange(at * width, (at + 1) * width - 1), size) for at in range(count)]


class TestSlices:
    """What is read together."""

    def planned(self, files: list[Any], present: Any = ()) -> list[list[tuple[int, int, int]]]:
        """File, first and last key group of each part of each slice."""
        slices = plan_import_slices(files, Partitioning(1024), present)
        return [
            [(p.file, p.key_groups.first, p.key_groups.last) for p in parts] for parts, _ in slices
        ]

    def test_small_files_share_a_slice(self) -> None:
        """A hundred subtasks of a small state do not make a hundred files."""
        (parts,) = self.planned(sources(64, 1000))
        assert parts == [(at, at * 16, at * 16 + 15) for at in range(64)]
        assert len(self.planned(sources(64, 4 * MEGABYTE))) == 16

    def test_the_bytes_of_slices_are_said(self) -> None:
        """By which the largest are begun first."""
        planned = plan_import_slices(sources(4, 100 * MEGABYTE), Partitioning(1024))
        assert sum(size for _, size in planned) == 400 * MEGABYTE
        assert max(size for _, size in planned) <= 64 * MEGABYTE

    def test_large_files_are_cut(self) -> None:
        """Into slices of 64 MB, at buckets."""
        (slices,) = [self.planned(sources(2, 256 * MEGABYTE))]
        assert len(slices) == 8
        assert all(first % 8 == 0 and last % 8 == 7 for ((_, first, last),) in slices)

    def test_a_hot_key_group_is_alone(self) -> None:
        """Where it is looked up how a large file's bytes are spread, a hot bucket is a slice."""
        hot = Cuttable(KeyGroupRange(0, 1023), 300 * MEGABYTE)
        for large, alone in ((200 * MEGABYTE, True), (400 * MEGABYTE, False)):
            planned = plan_import_slices([hot], Partitioning(1024), (), large)
            slices = {
                (parts[0].key_groups.first, parts[0].key_groups.last): size
                for parts, size in planned
            }
            assert ((96, 103) in slices) == alone
            assert (slices.get((96, 103)) == 299 * MEGABYTE + 7) == alone

    def test_states_that_differ_share_none(self) -> None:
        """What was registered otherwise may be stored otherwise."""
        files = sources(4, 1000)
        files[2].key_serializer = b"other"
        assert len(self.planned(files)) == 3

    def test_a_slice_ends_where_no_file_is_cut(self) -> None:
        """Unless it became twice as large."""
        files = sources(1, 128 * MEGABYTE)
        assert [parts[0][2] for parts in self.planned(files)] == [511, 1023]
        assert [parts[0][2] for parts in self.planned(files, [(0, 639), (640, 1023)])] == [
            639,
            1023,
        ]
        assert len(self.planned(sources(1, 300 * MEGABYTE), [(0, 1023)])) == 3


class TestImports:
    """Lakes of real savepoints."""

    @pytest.mark.full
    def test_small_states_are_a_file_each(self, lake: Catalog, tmp_path: Path) -> None:
        """From however many subtasks, and unchanged ones are shared."""
        first = import_as(lake, KINDS, "first")
        tables = [table for operator in first.operators for table in operator.keyed_tables]
        assert {len(table.units) for table in tables} <= {0, 1}
        change = ("kinds/total", "key_group = 3", {"value": "value + 1"})
        second = import_as(lake, edited_savepoint(KINDS, tmp_path / "later", change), "second")
        before, after = (
            {
                unit.path
                for operator in record.operators
                for t in operator.tables
                for unit in t.units
            }
            for record in (first, second)
        )
        assert len(after - before) == 1
        assert exported(lake, "second", tmp_path / "out") == entries(tmp_path / "later")
        assert_whole(lake)

    @pytest.mark.parametrize("source", [WORDS, WIDE], ids=["128", "1024"])
    @pytest.mark.full
    def test_growth_splits_and_shares(
        self, source: Path, lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What a state has of files follows its bytes; what did not change is shared."""
        monkeypatch.setattr(units, "FILE_BYTES", 400)
        first = import_as(lake, source, "first")
        files = count_files(first)
        assert 4 < len(files) < 40
        groups = {group for group, _, _ in next(iter(entries(source).values()))}
        change = ("counter/count", f"key_group = {min(groups)}", {"value": "value + 1"})
        later = edited_savepoint(source, tmp_path / "later", change)
        second = count_files(import_as(lake, later, "second"))
        assert [(file.first, file.last) for file in second] == [
            (file.first, file.last) for file in files
        ]
        assert sum(file not in files for file in second) == 1
        monkeypatch.setattr(units, "FILE_BYTES", 20)
        third = count_files(import_as(lake, source, "third"))
        assert len(third) > 2 * len(files)
        monkeypatch.setattr(units, "FILE_BYTES", MEGABYTE)
        fourth = count_files(import_as(lake, later, "fourth"))
        assert len(fourth) == 1
        for name, wanted in (("first", source), ("second", later), ("fourth", later)):
            assert exported(lake, name, tmp_path / f"out-{name}") == entries(wanted)
        assert_whole(lake)

    def test_partitions_that_were_asked_for(self, lake: Catalog, tmp_path: Path) -> None:
        """They are made, and others are refused."""
        assert len(count_files(import_as(lake, WORDS, "four", partitions=4))) == 4
        assert len(count_files(import_as(lake, WORDS, "two", partitions=2))) == 2
        assert exported(lake, "two", tmp_path / "out") == entries(WORDS)
        for partitions in (0, 129, -1):
            with pytest.raises(DeclarationError, match=r"must be at (least 1|most 128)"):
                import_as(lake, WORDS, "x", partitions=partitions)

    @pytest.mark.parametrize("bucket", ["its own", "its file's", "none"])
    def test_rows_of_another_engine(self, bucket: str, lake: Catalog, tmp_path: Path) -> None:
        """A row that one inserts may name the bucket of its key group, or its file's, or none."""
        import_as(lake, WORDS, "monday", partitions=2)
        for name in NEW_WORDS:
            group = group_of(name)
            insert(
                lake, name, group, {"its own": group, "its file's": group // 64 * 64}.get(bucket)
            )
        made = commit_snapshot(
            ChildSnapshot(lake, "orders", "monday", "edited", engine=LOCAL)
        ).record
        assert [file.partition for file in count_files(made)] == [0, 64]
        assert sum(file.rows for file in count_files(made)) == 300 + len(NEW_WORDS)
        exported(lake, "edited", tmp_path / "out")
        rows = open_snapshot(tmp_path / "out").operator("counter").state("count").to_arrow()
        assert set(rows.column("key").to_pylist()) >= NEW_WORDS
        assert_whole(lake, orphans=True)

    def test_rows_of_one_statement(self, lake: Catalog) -> None:
        """Rows that share a file and name no bucket are each in the snapshot once."""
        import_as(lake, WORDS, "monday", partitions=2)
        row = edit(lake, COUNTS).to_pyarrow_table().slice(0, 1)
        words = sorted(NEW_WORDS)
        rows = pa.concat_tables([row] * len(words))
        for name, values in (
            ("key", words), (KEY_GROUP, [group_of(word) for word in words]),
            (BUCKET, [None] * len(words)),
        ):  # fmt: skip
            at = rows.schema.get_field_index(name)
            field = rows.schema.field(name)
            rows = rows.set_column(at, field, pa.array(values, field.type))
        write_deltalake(edit(lake, COUNTS), rows, mode="append")
        made = commit_snapshot(
            ChildSnapshot(lake, "orders", "monday", "edited", engine=LOCAL)
        ).record
        assert [file.partition for file in count_files(made)] == [0, 64]
        assert sum(file.rows for file in count_files(made)) == 300 + len(words)
        assert_whole(lake, orphans=True)

    @pytest.mark.parametrize("group", [-1, 128, 500])
    def test_a_key_group_that_there_is_not(self, group: int, lake: Catalog) -> None:
        """A row that names no bucket is not lost for that: it is refused."""
        import_as(lake, WORDS, "monday")
        insert(lake, "alice", group, None)
        with pytest.raises(KeyGroupError, match=f"key_group is {group}, and it goes from 0 to 127"):
            commit_snapshot(ChildSnapshot(lake, "orders", "monday", "edited", engine=LOCAL))


class TestJoined:
    """Files of slices that become one."""

    @pytest.fixture(autouse=True)
    def small_slices(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As if the state were of many megabytes."""
        self.sliced(monkeypatch, 1500)

    def sliced(self, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
        """Have slices of so many bytes."""
        for name in ("SLICE_BYTES", "SMALL_SLICE_BYTES"):
            monkeypatch.setattr(units, name, size)

    def changed(self, source: Path, out: Path, by: int = 1) -> Path:
        """A savepoint with one key group of one state changed."""
        state = "kinds/total" if source == KINDS else "counter/count"
        group = min(group for group, _, _ in next(iter(entries(source).values())))
        change = (state, f"key_group = {group}", {"value": f"value + {by}"})
        return edited_savepoint(source, out, change)

    @pytest.mark.parametrize("origin", [KINDS, WORDS, WIDE], ids=["kinds", "128", "1024"])
    @pytest.mark.full
    def test_a_small_state_is_one_file_whatever_the_slices(
        self, origin: Path, lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What did not change is shared, and the rest decodes no more than its slice."""
        source = self.changed(origin, tmp_path / "source", by=0)
        later = self.changed(origin, tmp_path / "later")
        first = import_as(lake, source, "first")
        tables = [table for operator in first.operators for table in operator.keyed_tables]
        assert {len(table.units) for table in tables} <= {0, 1}
        assert max(len(unit.parts) for table in tables for unit in table.units) > 3
        files = {path for t in tables for path in lake.table(t.path).directory.files_below("_data")}
        assert len(files) == sum(len(table.units) for table in tables)
        decoded: list[int] = []
        monkeypatch.setattr(
            import_slice, "table_batch",
            lambda state, batch: decoded.append(len(batch)) or table_batch(state, batch),
        )  # fmt: skip
        second = import_as(lake, later, "second")
        before, after = ({unit.path for t in r.tables for unit in t.units} for r in (first, second))
        assert len(after - before) == 1
        assert 0 < sum(decoded) < first.entries / 3
        decoded.clear()
        third = import_as(lake, later, "third")
        assert [t.units for t in third.tables] == [t.units for t in second.tables]
        assert not decoded
        for name, wanted in (("first", source), ("second", later), ("third", later)):
            assert record_fault(lake.snapshot("orders", name), with_operators=True) == ""
            assert exported(lake, name, tmp_path / f"out-{name}") == entries(wanted)
        assert_whole(lake)

    def test_partitions_that_were_asked_for(self, lake: Catalog, tmp_path: Path) -> None:
        """They are no more for the slices."""
        assert len(count_files(import_as(lake, WORDS, "four", partitions=4))) == 4
        assert exported(lake, "four", tmp_path / "out") == entries(WORDS)

    def test_a_damaged_file_gives_no_part(self, lake: Catalog, tmp_path: Path) -> None:
        """All of it is written again, from the savepoint."""
        (file,) = count_files(import_as(lake, WORDS, "first"))
        path = Path(lake.location) / COUNTS / file.path
        data = bytearray(path.read_bytes())
        data[len(data) // 3] ^= 4
        path.write_bytes(data)
        later = self.changed(WORDS, tmp_path / "later")
        import_as(lake, later, "second")
        assert exported(lake, "second", tmp_path / "out") == entries(later)

    def test_a_file_of_several_parts_is_read_once(
        self, lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """To compare it with its seal, and for the parts that did not change."""
        first = import_as(lake, WORDS, "first")
        (file,) = count_files(first)
        assert len(file.parts) > 3
        checked: list[object] = []
        read: list[str] = []

        def check(source: pa.NativeFile) -> bool:
            checked.append(source)
            return check_whole(source)

        def read_file(lake: str, path: str, unit: DataFile, *rest: Any) -> pa.Table:
            read.append(unit.path)
            return table_rows.read_data_file(lake, path, unit, *rest)

        monkeypatch.setattr(table_rows, "check_whole", check)
        monkeypatch.setattr(joined_files, "read_data_file", read_file)
        import_as(lake, self.changed(WORDS, tmp_path / "later"), "second", engine=LocalEngine(1))
        assert len(checked) == sum(len(table.units) for table in first.tables)
        assert read.count(file.path) == 1

    def test_each_part_is_compared_with_its_fingerprint(self, lake: Catalog) -> None:
        """By the check of a lake, if the file has no seal."""
        record = import_as(lake, WORDS, "first")
        (file,) = count_files(record)
        path = Path(lake.location) / COUNTS / file.path
        rows = pq.read_table(path, partitioning=None)
        at = rows.schema.get_field_index("value")
        values = rows.column(at).to_pylist()
        values[-1] += 1
        changed = rows.set_column(at, rows.schema.field(at), [values])
        pq.write_table(changed, path, compression="zstd", use_dictionary=False)
        file.size = path.stat().st_size
        lake.transact(lambda _: CatalogChange(edits=rows_edits([record])))
        (damaged,) = check_lake(lake.location).damaged
        assert (damaged.path, damaged.problem) == (
            f"{COUNTS}/{file.path}", "its rows are not those of its fingerprint",
        )  # fmt: skip

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        st.sampled_from([WORDS, WIDE]),
        st.lists(
            st.tuples(st.sampled_from([200, 900, 1500, 9000, MEGABYTE]),
                      st.sampled_from([40, 300, 2000, MEGABYTE]), st.booleans()),
            min_size=2, max_size=4,
        ),
    )  # fmt: skip
    @pytest.mark.full
    def test_slices_and_files_of_any_size(
        self, monkeypatch: pytest.MonkeyPatch, source: Path, imports: list[tuple[int, int, bool]]
    ) -> None:
        """Each import follows one of other sizes: its rows are those of its savepoint."""
        with TemporaryDirectory() as directory:
            lake, later = Catalog(Path(directory) / "lake"), Path(directory) / "later"
            self.changed(source, later)
            for at, (slices, files, changes) in enumerate(imports):
                self.sliced(monkeypatch, slices)
                monkeypatch.setattr(units, "FILE_BYTES", files)
                name, wanted = f"import-{at}", later if changes else source
                record = import_as(lake, wanted, name)
                assert record_fault(record, with_operators=True) == ""
                assert exported(lake, name, Path(directory) / name) == entries(wanted)
            assert_whole(lake)


class TestFirstLakes:
    """Tables with a partition for each key group, as statelake's first lakes have them."""

    @pytest.fixture
    def old(self, lake: Catalog) -> Catalog:
        """Such a lake, with `WORDS` as the snapshot `monday`."""
        for operator in open_snapshot(WORDS).operators:
            for target in table_targets(lake, "orders", operator) if operator.keyed_states else ():
                create_table(
                    lake.table(target.path).directory,
                    table_columns(operator.state(target.states[0])),
                    partition_by=KEY_GROUP,
                    configuration=CONFIGURATION,
                )
        import_as(lake, WORDS, "monday")
        return lake

    @pytest.mark.full
    def test_they_stay_so(self, old: Catalog, tmp_path: Path) -> None:
        """Imports, edits, commits and exports find a file for each key group, and share them."""
        monday = old.snapshot("orders", "monday")
        assert {t.partition_by for op in monday.operators for t in op.keyed_tables} == {KEY_GROUP}
        assert all(file.first == file.last == file.partition for file in count_files(monday))
        assert len(count_files(monday)) == 115
        change = ("counter/count", "key_group < 3", {"value": "value + 1"})
        later = edited_savepoint(WORDS, tmp_path / "later", change)
        tuesday = import_as(old, later, "tuesday")
        assert sum(file not in count_files(monday) for file in count_files(tuesday)) == 3
        edit(old, COUNTS).delete("key_group = 5")
        commit_snapshot(ChildSnapshot(old, "orders", "tuesday", "committed", engine=LOCAL))
        statement = "INSERT INTO counter.count (key_group, key, value) VALUES (116, 'alice', 7)"
        edit_by_sql(ChildSnapshot(old, "orders", "monday", "edited"), [statement])
        assert len(count_files(old.snapshot("orders", "edited"))) == 115
        assert exported(old, "tuesday", tmp_path / "out") == entries(later)
        for name in ("monday", "tuesday", "committed", "edited"):
            assert record_fault(old.snapshot("orders", name), with_operators=True) == ""
        assert_whole(old, orphans=True)

    def test_partitions_are_another_table(self, old: Catalog, tmp_path: Path) -> None:
        """What was asked for is made beside it."""
        record = import_as(old, WORDS, "again", partitions=1)
        (table,) = (t for op in record.operators for t in op.keyed_tables if t.units)
        assert table.path == f"{COUNTS}~{BUCKET}"
        assert exported(old, "again", tmp_path / "out") == entries(WORDS)
        assert_whole(old)
