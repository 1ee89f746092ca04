"""Damaged table files: a changed byte is found or means nothing, and what precedes it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cramjam
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.bounds import SST_BYTES
from statelake.state_core.errors import CorruptSnapshotError, OversizedError, StateError
from statelake.state_core.files.filesystem import Directory, InlineSource
from statelake.state_core.formats.keyed.rocksdb import rocksdb_tables, sst_file
from statelake.state_core.formats.keyed.rocksdb.rocksdb_tables import FamilyTables, OutputBatch
from statelake.state_core.formats.keyed.rocksdb.sst_file import KeyBounds, SstFile
from statelake.state_core.kernels.sst import CRC_TABLES, block_crcs, unpack_blocks
from statelake.state_core.model.handles import KeyGroupRange
from tests.support.rocksdb_databases import Settings, Step, opened, read, tables_in, write

ALL = KeyGroupRange(0, 255)
STEPS: list[Step] = [
    ("put", 0, bytes([n % 7]) + b"key-%04d" % (n * 31 % 997), b"value %d" % n * (n % 9))
    for n in range(700)
]
KINDS = [
    Settings(block_size=512, compression=compression, checksum=checksum, two_levels=two_levels)
    for compression, checksum, two_levels in [
        ("none", "no_checksum", False),
        ("snappy", "no_checksum", True),
        ("lz4", "no_checksum", False),
        ("zstd", "no_checksum", True),
        ("bz2", "no_checksum", False),
        ("snappy", "crc32c", True),
        ("snappy", "xxh3", False),
    ]
]


@pytest.fixture(scope="module", params=KINDS, ids=str)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """One table file of many blocks."""
    directory = tmp_path_factory.mktemp("database")
    write(directory, request.param, STEPS)
    (path,) = tables_in(directory)
    return path.read_bytes()


def content(data: bytes) -> tuple[bytes, str] | None:
    """Keys and values of a table up to a fault, and what that says; None if it is RocksDB's."""
    out, found = OutputBatch(str), []
    try:
        file = SstFile.open(InlineSource("table", data), 1)
        if file is None:
            return None
        reader = FamilyTables([[file]], 0, KeyBounds.of(ALL, 1), 1)
        while not reader.fill(out, 255):
            held = out.entries()
            found.append(held.data[: int(held.value_end[-1]) if len(held) else 0].tobytes())
    except StateError as error:
        return b"".join([*found, out.data[: out.position].tobytes()]), str(error)
    return b"".join([*found, out.data[: out.position].tobytes()]), ""


@given(at=st.integers(0, 1 << 20), to=st.integers(1, 255))
def test_changed_bytes(table: bytes, at: int, to: int) -> None:
    """With checksums the content is right or a fault is told; without, nothing else ends it."""
    whole = content(table)
    assert whole is not None
    assert whole[1] == ""
    data = bytearray(table)
    data[at % len(data)] ^= to
    assert_right_or_told(bytes(data), table, whole)


@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=40))
def test_bytes_changed_everywhere(table: bytes, changes: list[tuple[int, int]]) -> None:
    """It makes no difference to that how many bytes are changed."""
    whole = content(table)
    assert whole is not None
    data = bytearray(table)
    for at, value in changes:
        data[at % len(data)] = value
    assert_right_or_told(bytes(data), table, whole)


def assert_right_or_told(data: bytes, table: bytes, whole: tuple[bytes, str]) -> None:
    """Content up to a fault is the table's; where nothing checks it, it is the same each time."""
    changed = content(data)
    if changed is not None and data[-53] and table[-53]:
        assert changed == whole or (changed[1] and whole[0].startswith(changed[0]))
    else:
        assert content(data) == changed


@given(st.integers(0, 1 << 20))
def test_files_that_are_cut_off(table: bytes, size: int) -> None:
    """A file without its end is no table."""
    assert content(table[: size % len(table)]) is None


@pytest.mark.parametrize("kind", ["crc32c", "xxhash", "xxhash64", "xxh3"])
def test_each_checksum_is_checked(tmp_path: Path, kind: str) -> None:
    """One changed byte of a data block: its offset is told, all before is read, for slices too."""
    settings = Settings(block_size=512, checksum=kind, families=("a", "b"))
    write(tmp_path, settings, [(what, n % 2, key, v) for n, (what, _, key, v) in enumerate(STEPS)])
    files = opened(tmp_path, settings)
    rows, _ = read(files)
    ((table,),) = files._tables["b"]
    path = tmp_path / Path(table.source.name).name
    block = len(table.offsets) * 2 // 3
    at = int(table.offsets[block])
    data = bytearray(path.read_bytes())
    data[at + 20] ^= 1
    path.write_bytes(data)
    again = opened(tmp_path, settings)
    found, fault = read(again)
    assert f"{path.name}, block at offset {at}" in fault
    assert "block checksum mismatch" in fault
    assert found
    assert found == rows[: len(found)]
    read_alone = 0
    entries = again.entries(states=[1])
    with pytest.raises(CorruptSnapshotError, match="block checksum mismatch"):  # noqa: PT012
        for batch in entries:
            read_alone += len(batch)
    assert read_alone == entries_of(table, block)


def entries_of(table: SstFile, behind: int) -> int:
    """How many entries the blocks before one have."""
    names = ("key_groups", "offsets", "block_sizes")
    part = replace(table, **{name: getattr(table, name)[:behind] for name in names})
    out = OutputBatch(str)
    assert FamilyTables([[part]], 0, KeyBounds.of(ALL, 1), 1).fill(out, 255)
    return out.rows


def test_a_damaged_index(tmp_path: Path) -> None:
    """RocksDB itself tells of it."""
    settings = Settings(block_size=512)
    write(tmp_path, settings, STEPS)
    (path,) = tables_in(tmp_path)
    table = SstFile.open(Directory(tmp_path).source(path.name), 1)
    assert table is not None
    data = bytearray(path.read_bytes())
    data[int(table.offsets[-1] + table.block_sizes[-1]) + 15] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptSnapshotError, match="checksum mismatch"):
        SstFile.open(Directory(tmp_path).source(path.name), 1)
    rows, fault = read(opened(tmp_path, settings))
    assert not rows
    assert "RocksDB can't read its files" in fault


@given(st.binary(max_size=300), st.integers(0, 20))
def test_crc32c(data: bytes, start: int) -> None:
    """Eight bytes at a time are what one at a time is."""
    raw = np.frombuffer(b"\xaa" * start + data + b"\x01", np.uint8)
    found = np.empty(1, np.int64)
    starts, ends = np.array([start], np.int64), np.array([start + len(data)], np.int64)
    block_crcs(raw, starts, ends, CRC_TABLES, found)
    crc = 0xFFFFFFFF
    for byte in data + b"\x01":
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    assert found[0] == ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF


pieces = st.one_of(
    st.binary(max_size=100),
    st.builds(
        lambda entry, times: entry * times, st.binary(min_size=1, max_size=20), st.integers(1, 90)
    ),
    st.builds(lambda seed: np.random.default_rng(seed).bytes(70_000), st.integers(0, 9)),
)


@given(st.lists(pieces, max_size=6), st.integers(0, 1 << 20), st.integers(0, 255))
def test_snappy(parts: list[bytes], at: int, to: int) -> None:
    """What Snappy compressed comes out whole; one changed byte leaves what is behind the end."""
    data = b"".join(parts)
    packed = bytearray(bytes(cramjam.snappy.compress_raw(data)))
    assert _unpacked(packed, len(data)) == data
    packed[at % len(packed)] = to
    changed = _unpacked(packed, len(data))
    assert changed is None or len(changed) == len(data)


def _unpacked(packed: bytearray, size: int) -> bytes | None:
    raw = np.frombuffer(bytes(packed) + b"\x01" + bytes(8), np.uint8)
    out = np.full(size + 8 + 64, 0xEE, np.uint8)
    starts, ends = np.zeros(1, np.int64), np.array([len(packed)], np.int64)
    failed = unpack_blocks(raw, starts, ends, out, starts, np.array([size], np.int64))
    assert (out[size + 8 :] == 0xEE).all()
    return None if failed >= 0 else out[:size].tobytes()


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.__setitem__(slice(0, 3), b"\xff\xff\x7f"),  # shared with nothing
        lambda data: data.__setitem__(slice(1, 6), b"\xff\xff\xff\xff\x0f"),  # a key of 4 GB
        lambda data: data.__setitem__(slice(2, 7), b"\xff\xff\xff\xff\x0f"),  # a value of 4 GB
        lambda data: data.__setitem__(1, 2),  # a key without a tag
    ],
)
def test_entries_that_lie(tmp_path: Path, change: Callable[[bytearray], None]) -> None:
    """Lengths are held against the block before anything is taken at them."""
    settings = Settings(compression="none", checksum="no_checksum", restarts=1)
    write(tmp_path, settings, [("put", 0, b"\x03key", b"value")])
    (path,) = tables_in(tmp_path)
    data = bytearray(path.read_bytes())
    change(data)
    found = content(bytes(data))
    assert found is not None
    assert "block at offset 0" in found[1]
    assert "does not fit into its block" in found[1]


# made in their test: each worker would have them for as long as it runs
BOMBS: dict[str, Callable[[], list[Step]]] = {
    "a block": lambda: [("put", 0, b"\1key", bytes(70_000_000))],
    "an index": lambda: [("put", 0, b"\1" + bytes(70_000_000), b"value")],
    "blocks": lambda: [("put", 0, b"\1key-%03d" % n, bytes(60_000)) for n in range(900)],
    "an index of 10 MB": lambda: [("put", 0, b"\1" + bytes(10_000_000), b"value")],
    "tables that overlap": lambda: [
        step
        for n in range(40)
        for step in (
            *(("put", 0, b"\1%c%02d" % (end, n), bytes(1_900_000)) for end in b"az"),
            ("flush", 0, b"", b""),
        )
    ],
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("by_rocksdb", [False, True])
@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.full
def test_few_bytes_that_unpack_to_many(
    tmp_path: Path, bomb: str, by_rocksdb: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are refused by file and offset before they are, also if RocksDB would unpack them."""
    if bomb == "blocks":
        for module in (sst_file, rocksdb_tables):
            monkeypatch.setattr(module, "SST_BYTES", replace(SST_BYTES, most=1 << 20))
    settings = Settings(compression="zstd")
    steps = BOMBS[bomb]()
    if by_rocksdb:
        steps.append(("delete range", 0, b"\2", b"\3"))
    write(tmp_path, settings, steps)
    files = opened(tmp_path, settings)
    with pytest.raises(OversizedError, match=r"(000\d+\.sst.* of RocksDB|'s tables) unpack"):
        for _ in files.entries():
            pass
