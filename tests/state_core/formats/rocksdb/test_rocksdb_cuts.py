"""RocksDB's files read in pieces, and what their indexes say of key groups."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake import open_snapshot
from statelake.state_core.errors import CorruptSnapshotError
from statelake.state_core.files.filesystem import Directory, FileSource, InlineSource
from statelake.state_core.formats.keyed.rocksdb import rocksdb_native
from statelake.state_core.formats.keyed.rocksdb.rocksdb_native import RocksDBFiles, RocksDBKeyedFile
from statelake.state_core.formats.keyed.rocksdb.rocksdb_tables import FamilyTables, OutputBatch
from statelake.state_core.formats.keyed.rocksdb.sst_file import KeyBounds, SstFile
from statelake.state_core.model.entries import FilePiece
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.serializers.framework.columns import U8Array
from tests.state_core.formats.rocksdb.test_sst_reading import DATABASES, settings_, steps
from tests.support.rocksdb_databases import (
    Row,
    Settings,
    Step,
    opened,
    opened_with_appended,
    read,
    rows_in,
    tables_in,
    write,
)
from tests.support.savepoints.golden_cases import GoldenCase

HOT = 7
ENTRIES = 6000


def in_pieces(files: RocksDBFiles, pieces: list[FilePiece]) -> list[Row]:
    """The entries of pieces, one piece after the other."""
    return [row for piece in pieces for row in rows_in(files.entries_of(piece))]


@pytest.mark.parametrize("golden", DATABASES, ids=[database.name for database in DATABASES])
def test_pieces_of_real_flink(golden: GoldenCase) -> None:
    """The pieces of what Flink wrote have its entries, in order."""
    cut = 0
    for operator in open_snapshot(golden.snapshot).operators:
        for file in operator.keyed_files:
            assert isinstance(file, RocksDBKeyedFile)
            pieces = file.database.cut(file.key_groups, 200)
            cut += len(pieces) - 1
            assert (in_pieces(file.database, pieces), "") == read(file.database)
    assert cut


@given(settings_, steps, st.integers(1, 2000), st.integers(0, 255), st.integers(0, 255))
def test_any_database(
    settings: Settings, written: list[Step], piece_bytes: int, first: int, last: int
) -> None:
    """Wherever it is cut, and of whatever key groups, and where RocksDB reads the pieces too."""
    wanted = KeyGroupRange(min(first, last), max(first, last))
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), settings, written)
        files = opened(Path(name), settings)
        rows, _ = read(files, wanted)
        pieces = files.cut(wanted, piece_bytes)
        assert in_pieces(files, pieces) == rows
        assert in_pieces(replace(files, by_rocksdb=True), pieces) == rows
        assert [piece.begin for piece in pieces[1:]] == [piece.end for piece in pieces[:-1]]


@given(
    steps,
    st.lists(st.booleans(), max_size=150),
    st.sampled_from([1, 100, 4096]),
    st.integers(1, 2000),
)
def test_appended_elements(
    written: list[Step], chosen: list[bool], block_size: int, piece_bytes: int
) -> None:
    """Elements of a list that lie in several tables are in the piece of their key."""
    with tempfile.TemporaryDirectory() as name:
        files = opened_with_appended(Path(name), written, chosen, block_size)
        rows, _ = read(files)
        assert in_pieces(files, files.cut(files.key_groups, piece_bytes)) == rows


def hot_database(directory: Path, settings: Settings) -> RocksDBFiles:
    """Compacted tables with old values, and above them two with new ones and deletions."""

    def key(number: int) -> bytes:
        return bytes([HOT]) + b"hot key %06d" % (number * 7 % ENTRIES)

    def put(numbers: range, value: bytes) -> list[Step]:
        return [("put", n, key(n), value + b" %06d" % n) for n in numbers]

    flushes: list[Step] = [("flush", family, b"", b"") for family in (0, 1)]
    write(
        directory,
        settings,
        [
            *[("put", n, bytes([n % 20]) + b"few %d" % n, b"value") for n in range(100)],
            *put(range(ENTRIES), b"old"),
            *flushes,
            *[("compact", family, b"", b"") for family in (0, 1)],
            *put(range(0, ENTRIES, 3), b"new"),
            *[("delete", n, key(n), b"") for n in range(0, ENTRIES, 5)],
            *flushes,
            *put(range(0, ENTRIES, 4), b"newest"),
        ],
    )
    return opened(directory, settings)


@pytest.mark.parametrize("settings", [
    Settings(("a", "b"), block_size=500, file_size=10_000),
    Settings(("a", "b"), block_size=500, file_size=10_000, two_levels=True, compression="zstd"),
    Settings(("a", "b"), block_size=500, version=2, index_restarts=4),
], ids=["tables", "two levels", "one table"])  # fmt: skip
def test_a_hot_key_group(tmp_path: Path, settings: Settings) -> None:
    """It is known for its bytes, and cut into pieces alike, over tables of several levels."""
    files = hot_database(tmp_path, settings)
    sizes = dict(files.stored_bytes)
    tables = sum(path.stat().st_size for path in tables_in(tmp_path))
    assert list(sizes) == list(range(256))
    assert min(sizes.values()) == 1
    assert 0.8 * tables < sizes[HOT] <= tables
    pieces = files.cut(KeyGroupRange(HOT, HOT), sizes[HOT] // 10)
    assert len(pieces) in {9, 10}
    found = [list(rows_in(files.entries_of(piece))) for piece in pieces]
    rows, _ = read(files, KeyGroupRange(HOT, HOT))
    assert [row for piece in found for row in piece] == rows
    counts = [len(piece) for piece in found]
    assert max(counts) < 2 * min(counts)
    assert sum(piece.size for piece in pieces) == pytest.approx(sizes[HOT], rel=0.02)


def test_only_its_blocks_are_read(tmp_path: Path) -> None:
    """The pieces together read little more than the tables have."""
    files = hot_database(tmp_path, Settings(("a", "b"), block_size=500, file_size=10_000))
    pieces = files.cut(files.key_groups, 8000)
    blocks = sum(
        behind - first
        for piece in pieces
        for tables in files._readers_of(piece)
        if isinstance(tables, FamilyTables)
        for run in tables.runs
        for _, first, behind in run.spans
    )
    runs = sum(len(files._tables[name]) for name in ("a", "b"))
    all_blocks = sum(
        len(table.offsets) for name in ("a", "b") for run in files._tables[name] for table in run
    )
    assert len(pieces) > 5
    assert blocks <= all_blocks + 2 * runs * len(pieces)


def test_cutting_reads_indexes_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where files are elsewhere, they are not copied for that."""
    files = hot_database(tmp_path, Settings(("a", "b"), block_size=4000))
    monkeypatch.setattr(rocksdb_native, "_is_local_file", lambda _: False)
    counted = 0

    def count(read_into: Callable[[FileSource, int, U8Array], None]) -> object:
        def counting(source: FileSource, offset: int, out: U8Array) -> None:
            nonlocal counted
            counted += out.size
            read_into(source, offset, out)

        return counting

    monkeypatch.setattr(FileSource, "read_into", count(FileSource.read_into))
    pieces = files.cut(files.key_groups, 8000)
    assert len(pieces) > 5
    assert 0 < counted < files.size // 4
    assert (in_pieces(files, pieces), "") == read(files)
    assert counted > files.size


def test_key_groups_of_two_bytes(tmp_path: Path) -> None:
    """Pieces of many key groups, and key groups of many pieces, in two states."""
    settings = Settings(families=("a", "b"), block_size=300)
    written: list[Step] = [
        ("put", n, (n % 900 if n % 2 else 255).to_bytes(2, "big") + b"%d" % n, b"%d" % n)
        for n in range(8000)
    ]
    write(tmp_path, settings, written)
    files = opened(tmp_path, settings, prefix=2, groups=KeyGroupRange(0, 899))
    for piece_bytes in (1000, 10_000):
        pieces = files.cut(files.key_groups, piece_bytes)
        groups = [len(piece.key_groups) for piece in pieces]
        assert min(groups) == 1
        assert max(groups) > 10
        assert (in_pieces(files, pieces), "") == read(files)


@pytest.mark.parametrize("hot", [255, 511, 65535])
def test_a_hot_key_group_whose_number_ends_in_ff(tmp_path: Path, hot: int) -> None:
    """Pieces within its second state begin with the next key group of the first."""
    settings = Settings(families=("a", "b"), block_size=300)
    groups = range(hot - 20, min(hot + 20, 1 << 16))
    written: list[Step] = [
        ("put", 0, group.to_bytes(2, "big") + b"%d" % n, b"few") for group in groups for n in (1, 2)
    ]
    written += [("put", 1, hot.to_bytes(2, "big") + b"%04d" % n, b"many") for n in range(1000)]
    write(tmp_path, settings, written)
    files = opened(tmp_path, settings, prefix=2)
    pieces = files.cut(files.key_groups, 1000)
    assert {(piece.begin.group, piece.begin.state) for piece in pieces[2:]} == {(hot, 1)}
    assert (in_pieces(files, pieces), "") == read(files)
    assert (in_pieces(replace(files, by_rocksdb=True), pieces), "") == read(files)


def test_keys_longer_than_places_need(tmp_path: Path) -> None:
    """Only the beginning of a key says where a piece begins."""
    settings = Settings(block_size=300)
    keys = [bytes([5, n % 4]) + bytes(100_000) + b"%d" % n for n in range(40)]
    write(tmp_path, settings, [("put", 0, key, b"value") for key in keys])
    files = opened(tmp_path, settings)
    pieces = files.cut(files.key_groups, 1)
    assert len(pieces) == 8
    assert max(len(piece.begin.key) for piece in pieces[1:]) == (1 << 16) + 1
    assert (in_pieces(files, pieces), "") == read(files)


def test_a_column_family_that_rocksdb_reads(tmp_path: Path) -> None:
    """With a deleted range of keys, as Flink leaves when it rescales: it is cut as others are."""
    settings = Settings(("a", "b"), block_size=300)
    written: list[Step] = [
        ("put", n % 3 // 2, bytes([n % 5]) + b"%d" % n, b"v" * 90) for n in range(900)
    ]
    write(tmp_path, settings, [*written, ("delete range", 0, b"\x01", b"\x023")])
    files = opened(tmp_path, settings)
    pieces = files.cut(files.key_groups, 1000)
    assert set(files._tables) & {"a", "b"} == {"b"}
    assert {piece.begin.state for piece in pieces[1:]} == {0, 1}
    assert (in_pieces(files, pieces), "") == read(files)
    assert dict(files.stored_bytes)[4] > 200


def test_a_damaged_table_counts_evenly(tmp_path: Path) -> None:
    """Planning goes on, and whoever reads the table is told."""
    files = hot_database(tmp_path, Settings(("a", "b"), block_size=500))
    assert min(size for _, size in files.stored_bytes) == 1
    path = max(tables_in(tmp_path), key=lambda table: table.stat().st_size)
    data = bytearray(path.read_bytes())
    data[-200:-60] = bytes(140)
    path.write_bytes(data)
    again = opened(tmp_path, Settings(("a", "b")))
    assert min(size for _, size in again.stored_bytes) == len(data) // 256
    assert read(again)[1]


PLAIN = Settings(block_size=200, compression="none", checksum="no_checksum", index_restarts=1)


def table_with(tmp_path: Path, old: bytes, new: bytes) -> SstFile:
    """A table of one key group, in whose index another key stands."""
    write(tmp_path, PLAIN, [("put", 0, b"\x05key-%04d" % n, b"v" * 20) for n in range(300)])
    (path,) = tables_in(tmp_path)
    table = SstFile.open(Directory(tmp_path).source(path.name), 1)
    assert table is not None
    data = path.read_bytes()
    index = int(table.offsets[-1] + table.block_sizes[-1])
    assert old in data[index:]
    changed = data[:index] + data[index:].replace(old, new, 1)
    table = SstFile.open(InlineSource("table", changed), 1)
    assert table is not None
    return table


def key_at(tmp_path: Path, block: int) -> bytes:
    """A key of the index as it was written."""
    (key,) = table_with(tmp_path, b"", b"").keys_of(np.array([block]))
    return key


def read_between(table: SstFile, bounds: KeyBounds) -> int:
    """How many entries there are."""
    out = OutputBatch(str)
    assert FamilyTables([[table]], 0, bounds, 1).fill(out, 255)
    return out.rows


def test_an_index_whose_keys_descend(tmp_path: Path) -> None:
    """The error names file and offset."""
    key = key_at(tmp_path / "plain", 10)
    table = table_with(tmp_path / "changed", key, b"\x05kex" + key[4:])
    for read_it in (
        lambda: table.keys_of(np.array([20])),
        lambda: table.blocks_of(KeyBounds(b"\x05key-0250")),
    ):
        with pytest.raises(CorruptSnapshotError, match="a malformed index") as caught:
            read_it()
        assert "table, block at offset" in str(caught.value)


@pytest.mark.parametrize("later", [True, False])
def test_an_index_that_lies(tmp_path: Path, later: bool) -> None:
    """No entry is lost between two pieces without an error that says so."""
    before, key, after = (key_at(tmp_path / f"{block}", block) for block in (9, 10, 11))
    size = len(key)
    wrong = (after if later else before)[:size].ljust(size, b"\0")
    table = table_with(tmp_path / "changed", key, wrong)
    cut = wrong if later else wrong + b"\0"
    with pytest.raises(CorruptSnapshotError, match="not where the index has it"):  # noqa: PT012
        read_between(table, KeyBounds(b"\x05", cut))
        read_between(table, KeyBounds(cut, b"\x06"))


def test_an_index_that_lies_about_key_groups(tmp_path: Path) -> None:
    """A block of the next key group, which a reader of that would not look into, is told of."""
    write(tmp_path, PLAIN, [("put", 0, bytes([5 + n // 150]) + b"key-%04d" % n, b"v" * 20)
                            for n in range(300)])  # fmt: skip
    (path,) = tables_in(tmp_path)
    data = path.read_bytes()
    table = SstFile.open(InlineSource("table", data), 1)
    assert table is not None
    block = int(np.searchsorted(table.key_groups, 6))
    index = int(table.offsets[-1] + table.block_sizes[-1])
    for key in table.keys_of(np.array([block, block + 1])):
        head = bytes([0, len(key)])  # how much of it is shared with the one before, and the rest
        lie = b"\x05".ljust(len(key), b"z")
        data = data[:index] + data[index:].replace(head + key, head + lie, 1)
    table = SstFile.open(InlineSource("table", data), 1)
    assert table is not None
    reader = FamilyTables([[table]], 0, KeyBounds.of(KeyGroupRange(5, 5), 1), 1)
    with pytest.raises(CorruptSnapshotError, match="not where the index has it"):
        reader.fill(OutputBatch(str), 5)


def test_a_part_of_an_index_that_lists_nothing(tmp_path: Path) -> None:
    """The keys are those of the others."""
    settings = replace(PLAIN, two_levels=True)
    write(tmp_path, settings, [("put", 0, b"\x05key-%04d" % n, b"v" * 20) for n in range(300)])
    (path,) = tables_in(tmp_path)
    data = path.read_bytes()
    table = SstFile.open(InlineSource("table", data), 1)
    assert table is not None
    keys = table.keys_of(np.arange(len(table.offsets)))
    (first, *_), (offset, size) = table.index.counts, table.index.spots[1]
    count = table.index.counts[1]
    # one restart, and an index of hashes that has all other bytes
    end = (size - 10).to_bytes(2, "little") + (1 << 31 | 1).to_bytes(4, "little")
    changed = data[: offset + size - 6] + end + data[offset + size :]
    table = SstFile.open(InlineSource("table", changed), 1)
    assert table is not None
    assert table.index.counts[1] == 0
    left = table.keys_of(np.arange(len(table.offsets)))
    assert left == keys[:first] + keys[first + count :]
