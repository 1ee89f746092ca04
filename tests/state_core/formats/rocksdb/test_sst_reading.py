"""Table files read by our own reader hold what RocksDB reads of them, entry for entry."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake import open_snapshot
from statelake.state_core.formats.keyed.rocksdb.rocksdb_native import RocksDBKeyedFile
from statelake.state_core.model.handles import KeyGroupRange
from tests.support.rocksdb_databases import (
    Settings,
    Step,
    appended,
    opened,
    opened_with_appended,
    read,
    tables_in,
    write,
)
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

GOLDEN = [
    golden_case
    for golden_case in golden_cases()
    if golden_case.name.split("-")[2] in {"native", "checkpoint"}
]
DATABASES = [path for path in GOLDEN if "-rocksdb-" in path.name]

settings_ = st.builds(
    Settings,
    families=st.sampled_from([("a",), ("a", "b", "c")]),
    compression=st.sampled_from(["none", "snappy", "lz4", "lz4hc", "zstd", "bz2"]),
    checksum=st.sampled_from(["no_checksum", "crc32c", "xxhash", "xxhash64", "xxh3"]),
    block_size=st.sampled_from([1, 64, 300, 4096]),
    restarts=st.sampled_from([1, 3, 16]),
    index_restarts=st.sampled_from([1, 4]),
    two_levels=st.booleans(),
    hashed=st.booleans(),
    version=st.sampled_from([2, 3, 4, 5]),
    file_size=st.sampled_from([1000, 64 << 20]),
)
keys = st.builds(
    lambda group, rest: bytes([group]) + rest,
    st.sampled_from([0, 1, 7, 254, 255]),
    st.one_of(
        st.binary(max_size=3),
        st.sampled_from([b"key-%05d" % number for number in range(40)]),
        st.integers(1, 700).map(lambda size: b"long" * size),
    ),
)
values = st.one_of(
    st.binary(max_size=20),
    st.integers(0, 20_000).map(lambda size: b"abcdefgh,xyz" * (size // 12)),
    st.integers(0, 1 << 16).map(lambda size: bytes(range(256)) * (size >> 8)),
)
steps = st.lists(
    st.tuples(
        st.sampled_from(["put"] * 12 + ["delete"] * 3 + ["flush", "flush", "hold", "compact"]),
        st.integers(0, 2),
        keys,
        values,
    ),
    max_size=150,
)


@pytest.mark.parametrize("golden", DATABASES, ids=[database.name for database in DATABASES])
def test_files_of_real_flink(golden: GoldenCase) -> None:
    """Every state is read from its files, and all entries are the same in the same order."""
    found = 0
    for operator in open_snapshot(golden.snapshot).operators:
        for file in operator.keyed_files:
            assert isinstance(file, RocksDBKeyedFile)
            database = file.database
            rows, fault = read(database)
            assert not fault
            assert (rows, "") == read(database, by_rocksdb=True)
            assert {state.name for state in file.header.states} <= set(database._tables)
            found += len(rows)
    assert found


@given(settings_, steps, st.integers(0, 255), st.integers(0, 255))
def test_databases_of_all_kinds(
    settings: Settings, written: list[Step], first: int, last: int
) -> None:
    """Puts, overwrites, deletions, flushes, compactions; whole, and a range of key groups."""
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), settings, written)
        files = opened(Path(name), settings)
        rows, fault = read(files)
        assert not fault
        assert (rows, "") == read(files, by_rocksdb=True)
        assert set(settings.families) <= set(files._tables)
        wanted = KeyGroupRange(min(first, last), max(first, last))
        part = [row for row in rows if row[1] in wanted]
        assert read(files, wanted) == (part, "")


@given(steps, st.lists(st.booleans(), max_size=150), st.sampled_from([1, 100, 4096]))
def test_appended_elements(written: list[Step], chosen: list[bool], block_size: int) -> None:
    """Elements that RocksDB was to append to lists, in any order with puts and deletions."""
    with tempfile.TemporaryDirectory() as name:
        files = opened_with_appended(Path(name), written, chosen, block_size)
        rows, fault = read(files)
        assert not fault
        assert (rows, "") == read(files, by_rocksdb=True)
        assert "a" in files._tables


def test_a_long_list_of_appended_elements(tmp_path: Path) -> None:
    """More elements and bytes of one key than fit into what is there at first."""
    settings = Settings(compression="none", checksum="no_checksum", restarts=1)
    written: list[Step] = []
    for number in range(90):
        written += [("put", 0, b"\x05list", bytes([number]) * 200_000), ("flush", 0, b"", b"")]
    write(tmp_path, settings, written)
    for path in tables_in(tmp_path)[1:]:
        appended(path, [True])
    rows, fault = read(opened(tmp_path, settings))
    assert not fault
    assert rows == [(0, 5, b"list", b",".join(bytes([n]) * 200_000 for n in range(90)))]


@pytest.mark.full
def test_many_rows_and_large_values(tmp_path: Path) -> None:
    """More rows than a batch has, and one value that is larger than all else."""
    settings = Settings(families=("a", "b"))
    written: list[Step] = [
        ("put", number, (number % 900).to_bytes(2, "big") + b"%d" % number, b"%d" % number)
        for number in range(150_000)
    ]
    written[70_000:70_000] = [("flush", family, b"", b"") for family in (0, 1)]
    written += [
        ("put", 1, b"\x00\x07large", bytes(30_000_000)),
        ("delete", 0, b"\x00\x001800", b""),
    ]
    write(tmp_path, settings, written)
    files = opened(tmp_path, settings, prefix=2, groups=KeyGroupRange(0, 899))
    rows, fault = read(files)
    assert not fault
    assert len(rows) == 150_000
    assert (rows, "") == read(files, by_rocksdb=True)
    assert (1, 7, b"large", bytes(30_000_000)) in rows


def test_tables_of_one_level_are_one_run(tmp_path: Path) -> None:
    """Compacted tables behind each other, and below them one that overlaps all."""
    settings = Settings(file_size=10_000, compression="none")
    written: list[Step] = [("put", 0, bytes([n % 9]) + b"%d" % n, b"old" * 9) for n in range(5000)]
    written[2500:2500] = [("flush", 0, b"", b"")]
    written.append(("compact", 0, b"", b""))
    written += [("put", 0, bytes([n % 9]) + b"%d" % n, b"new") for n in range(0, 6000, 3)]
    write(tmp_path, settings, written)
    files = opened(tmp_path, settings)
    rows, fault = read(files)
    assert not fault
    assert (rows, "") == read(files, by_rocksdb=True)
    assert sum(value == b"new" for *_, value in rows) == 2000
    assert len(rows) == 5333
    runs = sorted(len(run) for run in files._tables["a"])
    assert runs[0] == 1
    assert runs[1] > 10
    assert len(runs) == 2


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (Settings(families=("a", "b"), version=6), "put"),
        (Settings(families=("a", "b"), compression="zlib"), "put"),
        (Settings(families=("a", "b")), "delete range"),
    ],
)
def test_what_is_rare_is_left_to_rocksdb(tmp_path: Path, settings: Settings, what: str) -> None:
    """A newer format, another compression, deleted ranges: of that column family alone."""
    plain: list[Step] = [("put", n, bytes([n % 5]) + b"%d" % n, b"v" * n) for n in range(400)]
    write(tmp_path, settings, [*plain, (what, 0, b"\x01", b"\x03")])
    files = opened(tmp_path, settings)
    assert read(files) == read(files, by_rocksdb=True)
    assert "a" not in files._tables
    assert ("b" in files._tables) == (what != "put")


def test_what_only_the_log_has(tmp_path: Path) -> None:
    """Flink has no log; what another program left in one is read too, by RocksDB."""
    written: list[Step] = [("put", n, bytes([n % 5]) + b"%d" % n, b"v" * n) for n in range(99)]
    flushes: list[Step] = [("flush", family, b"", b"") for family in (0, 1)]
    settings = Settings(families=("a", "b"))
    logged: Step = ("put", 1, b"\x03logged", b"v")
    write(tmp_path / "db", settings, [*written, *flushes, logged], copied=tmp_path / "copy")
    files = opened(tmp_path / "copy", settings)
    rows, fault = read(files)
    assert not fault
    assert (1, 3, b"logged", b"v") in rows
    assert (rows, "") == read(files, by_rocksdb=True)
    assert "a" in files._tables
    assert "b" not in files._tables


def test_files_that_lie_elsewhere(tmp_path: Path) -> None:
    """Parts of larger files are copied, and read from the copies."""
    settings = Settings()
    write(tmp_path / "db", settings, [("put", 0, b"\x01%d" % n, b"v" * n) for n in range(400)])
    files = opened(tmp_path / "db", settings)
    whole = tmp_path / "whole"
    moved = []
    for name, source in files.files:
        data = (tmp_path / "db" / name).read_bytes()
        with whole.open("ab") as out:
            start = out.tell()
            out.write(data)
        moved.append((name, replace(source, path=str(whole), start=start)))  # type: ignore[type-var]
    copied = replace(files, files=tuple(moved), _held=[], _sources={}, _families=set())
    assert read(copied) == read(files)
    assert "a" in copied._tables
