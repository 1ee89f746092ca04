"""Division of RocksDB's files by key groups and keys, from their indexes.

An index has for each data block its size, and a key that is not before the block's own keys, and
before those of the next block. So bytes by key group, and keys that divide the data evenly, are
found without reading a data block, over all tables of all column families together.

A piece has consecutive keys of each column family: key group after key group, and within one state
after state, it continues where the previous piece ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from statelake.state_core.errors import OversizedError, StateError
from statelake.state_core.files.file_sources import Workers
from statelake.state_core.files.filesystem import ByteSource
from statelake.state_core.formats.keyed.rocksdb.sst_file import KeyBounds, SstFile
from statelake.state_core.model.entries import FilePiece, pieces_between
from statelake.state_core.model.handles import KeyGroupRange

MARKS = 16  # keys of a table that are looked up for every piece's worth of bytes
READERS = 8


@dataclass(frozen=True, order=True, slots=True)
class KeyPlace:
    """The start of a piece: the first key that may belong to it.

    Attributes:
        group: The key group.
        state: The state's id.
        key: The key, including the key group.
    """

    group: int
    state: int
    key: bytes


def bounds_in(piece: FilePiece, groups: KeyGroupRange, state: int, prefix: int) -> KeyBounds:
    """Return the keys of one state in a piece.

    Args:
        piece: The piece, from `cut_families`.
        groups: The wanted ones of its key groups.
        state: The state's id.
        prefix: Bytes of the key-group prefix.
    """
    bounds = KeyBounds.of(groups, prefix)
    first: bytes | None = bounds.first
    behind = bounds.behind
    begin: KeyPlace | None = piece.begin
    end: KeyPlace | None = piece.end
    if begin is not None and state <= begin.state:
        group = begin.group.to_bytes(prefix, "big")
        first = begin.key if state == begin.state else KeyBounds.beginning(group).behind
    if end is not None and state >= end.state:
        behind = end.key if state == end.state else end.group.to_bytes(prefix, "big")
    return KeyBounds(b"", b"") if first is None else KeyBounds(first, behind)


def cut_families(
    families: Sequence[Sequence[SstFile]], key_groups: KeyGroupRange, prefix: int, piece_bytes: int
) -> list[FilePiece]:
    """Cut some key groups into pieces of about `piece_bytes` bytes as stored, in order.

    Args:
        families: The tables of each state, by its id.
        key_groups: The key groups.
        prefix: Bytes of the key-group prefix.
        piece_bytes: The size of a piece.

    Raises:
        CorruptSnapshotError: An index is damaged.
    """
    bounds = KeyBounds.of(key_groups, prefix)
    marks = sorted(
        (KeyPlace(_group_of(key, prefix), state, key), size)
        for state, tables in enumerate(families)
        for table in tables
        for key, size in _marks(table, bounds, prefix, max(1, piece_bytes // MARKS))
    )
    total, read = sum(size for _, size in marks), 0
    cuts: list[tuple[KeyPlace | None, int]] = [(None, 0)]
    for place, size in marks:
        read += size
        large_enough = read - cuts[-1][1] >= piece_bytes and total - read >= piece_bytes // 2
        if large_enough and place != cuts[-1][0] and place.group in key_groups:
            cuts.append((place, read))
    cuts.append((None, total))
    return pieces_between(key_groups, cuts)


def _marks(
    table: SstFile, bounds: KeyBounds, prefix: int, step: int
) -> Iterator[tuple[bytes, int]]:
    """Yield keys of a table about `step` bytes apart, each with the bytes since the one before."""
    first, behind = table.blocks_of(bounds)
    if first >= behind:
        return
    sizes = np.cumsum(table.block_sizes[first:behind])
    steps = sizes[:-1] // step
    chosen = np.append(np.flatnonzero(np.diff(steps, prepend=0)), len(sizes) - 1)
    shares = np.diff(sizes[chosen], prepend=0)
    for key, share in zip(table.keys_of(first + chosen), shares.tolist(), strict=True):
        # an entry may have this very key, so the next piece begins behind it
        yield key.ljust(prefix, b"\0") + b"\0", share


def stored_bytes(
    files: Mapping[str, ByteSource], key_groups: KeyGroupRange, prefix: int
) -> list[tuple[int, int]]:
    """Return key groups and their bytes as stored: at least 1, as a small one may share a block.

    A table whose index can't be read counts as if it were spread evenly.

    Args:
        files: The bytes of each file, by its name.
        key_groups: The key groups to count.
        prefix: Bytes of the key-group prefix.
    """
    if not files or not len(key_groups):
        return [(group, 0) for group in range(key_groups.first, key_groups.last + 1)]
    sizes = np.zeros(len(key_groups), np.int64)
    for source, table in open_indexes(files, prefix):
        if table is None:
            sizes += source.size // len(key_groups)
            continue
        groups = table.key_groups - key_groups.first
        inside = (groups >= 0) & (groups < len(key_groups))
        np.add.at(sizes, groups[inside], table.block_sizes[inside])
    return list(enumerate(np.maximum(sizes, 1).tolist(), key_groups.first))


def open_indexes(
    files: Mapping[str, ByteSource], prefix: int
) -> Iterator[tuple[ByteSource, SstFile | None]]:
    """Yield tables with their indexes; None for a damaged one, which its reader reports.

    Args:
        files: The bytes of each file, by its name.
        prefix: Bytes of the key-group prefix.

    Raises:
        OversizedError: An index unpacks to too much.
    """

    def opened(source: ByteSource) -> tuple[ByteSource, SstFile | None]:
        try:
            return source, SstFile.open(source, prefix, index_only=True)
        except OversizedError:
            raise
        except StateError:
            return source, None

    with Workers(READERS) as pool:
        yield from pool.map(opened, [files[name] for name in files if name.endswith(".sst")])


def by_family(
    tables: Iterable[tuple[ByteSource, SstFile | None]],
) -> dict[str, list[SstFile]]:
    """Return tables by the name of their column family."""
    families: dict[str, list[SstFile]] = {}
    for _, table in tables:
        if table is not None:
            families.setdefault(table.column_family.decode("utf-8", "replace"), []).append(table)
    return families


def _group_of(key: bytes, prefix: int) -> int:
    return int.from_bytes(key[:prefix], "big")
