"""Parquet files joined on the level of bytes: other readers read the same rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from statelake.pipelines.lake.tables.joined_files import MovedFiles, join_files
from statelake.pipelines.lake.tables.thrift_compact import read_struct, write_struct
from statelake.state_core.errors import DamagedLakeError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.files.moves import move_all

OPTIONS = [
    {},
    {"compression": "zstd", "use_dictionary": False},
    {"write_page_index": True, "data_page_version": "2.0"},
    {"bloom_filter_options": {"name": {"ndv": 100}}},
    {"store_schema": False, "write_statistics": False, "sorting_columns": [pq.SortingColumn(0)]},
]


def copied(directory: Path, names: list[str]) -> Path:
    """The row groups of files in a new one; its bytes are as many as was said."""
    size = join_files(Directory(directory), names, "joined/all")
    assert (directory / "joined/all").stat().st_size == size
    return directory / "joined/all"


def moved(directory: Path, names: list[str]) -> Path:
    """The row groups of files in a copy of the first, whose bytes are as many as was said."""
    for name in names:
        shutil.copy(directory / name, directory / f"{name}.part")
    parts = [f"{name}.part" for name in names]
    files = MovedFiles(Directory(directory).confined(), parts[0])
    moves = [files.add(part) for part in parts[1:]]
    last, size = files.end("footer")
    move_all([last, *moves])
    path, *others = (directory / part for part in parts)
    assert path.stat().st_size == size
    assert [other.stat().st_size for other in others] == [0] * len(others)
    return path


both_ways = pytest.mark.parametrize("join", [copied, moved])
Join = Callable[[Path, list[str]], Path]


def rows(first: int, count: int) -> pa.Table:
    """Some rows, with nested columns and nulls."""
    numbers = range(first, first + count)
    schema = pa.schema(
        {
            "number": pa.int64(),
            "name": pa.string(),
            "list": pa.list_(pa.int64()),
            "struct": pa.struct({"x": pa.float64(), "y": pa.binary()}),
        }
    )
    return pa.table(
        {
            "number": numbers,
            "name": [None if n % 7 == 0 else f"name {n}" for n in numbers],
            "list": [[n] * (n % 3) for n in numbers],
            "struct": [{"x": n / 2, "y": bytes([n % 256])} for n in numbers],
        },
        schema=schema,
    )


def written(directory: Path, options: dict[str, object]) -> list[str]:
    """Three files, of several row groups, of one, and of none."""
    counts = {"a": 250, "b": 10, "c": 0}
    first = 0
    for name, count in counts.items():
        pq.write_table(rows(first, count), directory / name, row_group_size=100, **options)
        first += count
    return list(counts)


@both_ways
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "default")
def test_all_rows_in_order(options: dict[str, object], join: Join, tmp_path: Path) -> None:
    """PyArrow and DuckDB read the rows of all files, whole and where a filter uses statistics."""
    path = join(tmp_path, written(tmp_path, options))
    expected = rows(0, 260)
    read = pq.read_table(path, page_checksum_verification=True)
    assert read.cast(expected.schema) == expected
    assert pq.ParquetFile(path).metadata.num_row_groups in (4, 5)  # an empty one perhaps
    assert ds.dataset(path).to_table(filter=ds.field("number") >= 255).num_rows == 5
    with duckdb.connect() as connection:
        query = "SELECT sum(number), count(name) FROM read_parquet(?) WHERE number >= 100"
        numbers = range(100, 260)
        assert connection.execute(query, [str(path)]).fetchone() == (
            sum(numbers), sum(n % 7 != 0 for n in numbers),
        )  # fmt: skip


@both_ways
def test_statistics_and_schema_stay(join: Join, tmp_path: Path) -> None:
    """Each row group says what it said before, but for where it is."""
    names = written(tmp_path, {})
    joined = pq.ParquetFile(join(tmp_path, names))
    parts = [pq.ParquetFile(tmp_path / name) for name in names]
    assert joined.schema_arrow.equals(parts[0].schema_arrow, check_metadata=True)
    groups = [part.metadata.row_group(i) for part in parts for i in range(part.num_row_groups)]
    for index, before in enumerate(groups):
        after = joined.metadata.row_group(index)
        assert (after.num_rows, after.total_byte_size) == (before.num_rows, before.total_byte_size)
        for column in range(before.num_columns):
            assert after.column(column).statistics == before.column(column).statistics


def test_no_page_indexes_are_named(tmp_path: Path) -> None:
    """They say where pages were in their own files, and nobody may look for them there."""
    names = written(tmp_path, {"write_page_index": True})
    join_files(Directory(tmp_path), names, "all")
    for name, expected in {"a": True, "all": False}.items():
        row_group = pq.ParquetFile(tmp_path / name).metadata.row_group(1)
        for index in range(row_group.num_columns):
            column = row_group.column(index)
            assert (column.has_offset_index, column.has_column_index) == (expected, expected)


def test_lists_in_lists_have_an_end() -> None:
    """Levels are counted whatever they are of: the stack is Python's own."""
    structs, lists, maps = b"\x1c" * 10_000, b"\x19" * 10_000, b"\x1b" + b"\x01\xbb" * 10_000
    for data in (structs, lists, maps):
        with pytest.raises(ValueError, match="too many levels"):
            read_struct(data)


def test_a_footer_is_written_as_it_was_read(tmp_path: Path) -> None:
    """Nothing of a footer is lost, whether its meaning is known or not."""
    for number, options in enumerate(OPTIONS):
        pq.write_table(rows(0, 300), tmp_path / str(number), row_group_size=10, **options)
        data = (tmp_path / str(number)).read_bytes()
        footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
        fields, end = read_struct(footer)
        assert end == len(footer)
        assert write_struct(fields) == footer


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    """Another schema, or no Parquet, is refused by name."""
    directory = Directory(tmp_path)
    pq.write_table(rows(0, 5), tmp_path / "a")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "b")
    (tmp_path / "c").write_bytes(b"PAR1" + b"\xff" * 20 + (20).to_bytes(4, "little") + b"PAR1")
    (tmp_path / "d").write_bytes((tmp_path / "a").read_bytes()[:-3])
    (tmp_path / "e").write_bytes(b"PAR1")
    for name in "bcde":
        with pytest.raises(DamagedLakeError, match=f"{tmp_path}/{name}"):
            join_files(directory, ["a", name], "out")


def test_damaged_footers(tmp_path: Path) -> None:
    """A byte of a footer that is another is told as damage, if it is told."""
    pq.write_table(rows(0, 5), tmp_path / "a")
    data = (tmp_path / "a").read_bytes()
    begins = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    told = 0
    for at in range(begins, len(data), 5):
        for flipped in (0x5A, 0x01, 0x03):
            changed = bytes([data[at] ^ flipped])
            (tmp_path / "b").write_bytes(data[:at] + changed + data[at + 1 :])
            try:
                join_files(Directory(tmp_path), ["a", "b"], "out")
            except DamagedLakeError:
                told += 1
    assert told
