"""Where RocksDB's files can be divided: what their indexes say of key groups and keys.

An index has a key for each data block, which is not before the block's own and before those of the
next, and the block's size. So bytes by key group, and keys between which there are about so many
bytes, are found without reading a data block, over all tables of all column families together.

A piece has of each column family keys that follow on each other: key group after key group, and
within one state after state, it goes on where the piece before ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from statelake.state_core.errors import OversizedError, StateError
from statelake.state_core.files.filesystem import ByteSource
from statelake.state_core.formats.keyed.sst_file import KeyBounds, SstFile
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.pieces import FilePiece, pieces_between

__all__ = ["KeyPlace", "bounds_in", "by_family", "cut_families", "open_indexes", "stored_bytes"]

MARKS = 16  # keys of a table that are looked up for as many bytes as a piece has
READERS = 8


@dataclass(frozen=True, order=True, slots=True)
class KeyPlace:
    """Where a piece begins: the first key that may be its own.

    Attributes:
        group: The key group.
        state: The state's id.
        key: The key, key group and all.
    """

    group: int
    state: int
    key: bytes


def bounds_in(piece: FilePiece, groups: KeyGroupRange, state: int, prefix: int) -> KeyBounds:
    """Which keys a piece has of one state.

    Args:
        piece: What `cut_families` made.
        groups: Its key groups, as far as they are wanted.
        state: The state's id.
        prefix: Bytes of the key group in front of a key.
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
    """Cut some key groups into pieces of about so many bytes as stored, in order.

    Args:
        families: The tables of each state, by its id.
        key_groups: The key groups.
        prefix: Bytes of the key group in front of a key.
        piece_bytes: How many bytes.

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
        whole = read - cuts[-1][1] >= piece_bytes and total - read >= piece_bytes // 2
        if whole and place != cuts[-1][0] and place.group in key_groups:
            cuts.append((place, read))
    cuts.append((None, total))
    return pieces_between(key_groups, cuts)


def _marks(
    table: SstFile, bounds: KeyBounds, prefix: int, step: int
) -> Iterator[tuple[bytes, int]]:
    """Keys of a table about so many bytes apart, each with the bytes since the one before."""
    first, behind = table.blocks_of(bounds)
    if first >= behind:
        return
    sizes = np.cumsum(table.block_sizes[first:behind])
    steps = sizes[:-1] // step
    chosen = np.append(np.flatnonzero(np.diff(steps, prepend=0)), len(sizes) - 1)
    shares = np.diff(sizes[chosen], prepend=0)
    for key, share in zip(table.keys_of(first + chosen), shares.tolist(), strict=True):
        # an entry may have the very key: what goes on begins behind it
        yield key.ljust(prefix, b"\0") + b"\0", share


def stored_bytes(
    files: Mapping[str, ByteSource], key_groups: KeyGroupRange, prefix: int
) -> list[tuple[int, int]]:
    """Key groups and their bytes as stored: one at least, as a small one may share another's block.

    A table whose index can't be read counts as if it were spread evenly.

    Args:
        files: The bytes of each file, by its name.
        key_groups: The key groups that are counted.
        prefix: Bytes of the key group in front of a key.
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
    """Tables and what their indexes say: None of one that is damaged, which its reader is told.

    Args:
        files: The bytes of each file, by its name.
        prefix: Bytes of the key group in front of a key.

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

    with ThreadPoolExecutor(READERS) as pool:
        yield from pool.map(opened, [files[name] for name in files if name.endswith(".sst")])


def by_family(
    tables: Iterable[tuple[ByteSource, SstFile | None]],
) -> dict[str, list[SstFile]]:
    """Tables by the name of their column family."""
    families: dict[str, list[SstFile]] = {}
    for _, table in tables:
        if table is not None:
            families.setdefault(table.column_family.decode("utf-8", "replace"), []).append(table)
    return families


def _group_of(key: bytes, prefix: int) -> int:
    return int.from_bytes(key[:prefix], "big")
