"""The distribution of a state's key groups over files, by their bytes.

A table is partitioned by `key_group_bucket`: the key groups of an operator form at most 128
buckets, and the value is the first bucket of a file's rows. A file covers whole buckets, up to
about `FILE_BYTES` of state, so a small state is one file and a large one 128. The next snapshot's
files begin where those of the one before did, so that files which did not change are shared; only
a file that has grown to `GROWN` times that size is cut anew.

Tables of statelake's first lakes are partitioned by `key_group`, one file for each, and stay so.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.model.entries import CuttableFile, KeyedFile
from statelake.state_core.model.handles import KeyGroupRange

MAX_PARTITIONS = 128
FILE_BYTES = 1 << 20
GROWN = 4
SHRUNK = 16
SLICE_BYTES = 64 << 20
SMALL_SLICE_BYTES = 16 << 20
KEY_GROUP, BUCKET = "key_group", "key_group_bucket"


@dataclass(frozen=True, slots=True)
class FileSpan:
    """Key groups `first` to `last`, which share a file in one partition."""

    partition: int
    first: int
    last: int

    @property
    def key_groups(self) -> KeyGroupRange:
        """The range of its key groups."""
        return KeyGroupRange(self.first, self.last)


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The partitioning of a table.

    Attributes:
        max_parallelism: The operator's max parallelism.
        column: The partition column.
    """

    max_parallelism: int
    column: str = BUCKET

    def partition_of(self, key_group: int) -> int:
        """Return the value of the partition column for a file that begins with a key group."""
        if self.column == KEY_GROUP:
            return key_group
        return key_group * MAX_PARTITIONS // self.max_parallelism

    def first_of(self, partition: int) -> int:
        """Return the first key group of a partition, or of the next one that is not empty."""
        if self.column == KEY_GROUP:
            return partition
        return -(-partition * self.max_parallelism // MAX_PARTITIONS)

    def buckets(self, key_groups: KeyGroupRange) -> list[FileSpan]:
        """Return the buckets of key groups; the first and the last may be incomplete."""
        buckets: list[FileSpan] = []
        first = key_groups.first
        while first <= key_groups.last:
            partition = self.partition_of(first)
            last = min(self.first_of(partition + 1) - 1, key_groups.last)
            buckets.append(FileSpan(partition, first, last))
            first = last + 1
        return buckets

    def is_whole(self, bucket: FileSpan) -> bool:
        """Return whether a bucket has all its key groups."""
        behind = min(self.first_of(bucket.partition + 1), self.max_parallelism)
        return (bucket.first, bucket.last + 1) == (self.first_of(bucket.partition), behind)

    def buckets_of(self, key_groups: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return the bucket of each key group of a column."""
        scaled = pc.multiply(key_groups.cast(pa.int64()), MAX_PARTITIONS)
        return pc.divide(scaled, self.max_parallelism).cast(pa.int32())

    def table_schema(self, columns: pa.Schema) -> pa.Schema:
        """Return the columns of the table: those of the state, and the bucket if it has buckets."""
        if self.column == KEY_GROUP:
            return columns
        return columns.append(pa.field(BUCKET, pa.int32()))

    def file_schema(self, columns: pa.Schema) -> pa.Schema:
        """Return the columns of a file: Delta keeps the partition column only in its log."""
        if self.column != KEY_GROUP:
            return columns
        return columns.remove(columns.get_field_index(KEY_GROUP))


def has_shrunk(state_bytes: int, files: int) -> bool:
    """Return whether files of the previous snapshot are too many for what is in them now."""
    return state_bytes * SHRUNK < files * FILE_BYTES


def joined_bytes(state_bytes: int, *, follows: bool) -> int:
    """Return the largest bytes of state of a file that is joined from those of slices.

    Args:
        state_bytes: The bytes of state of all that may be joined.
        follows: Whether that was one file in the previous snapshot, or is to be one.
    """
    return GROWN * FILE_BYTES if follows and state_bytes < GROWN * FILE_BYTES else FILE_BYTES


class FileCuts:
    """The ends of one table's files, within the key groups of a slice.

    Two files of one partition must both be within it, so that it can be edited as a whole. Hence a
    bucket that is incomplete, at an end of the slice, is a file by itself.

    Args:
        partitioning: The table's partitioning.
        buckets: The slice's buckets, in order.
        partitions: How many partitions the table is to have, whatever its bytes.
    """

    def __init__(
        self, partitioning: Partitioning, buckets: Sequence[FileSpan], partitions: int | None = None
    ) -> None:
        self._buckets = buckets
        self._fixed = partitions is not None
        self._file_bytes = FILE_BYTES if partitioning.column == BUCKET else 0
        self._limits = [math.inf if self._fixed else self._file_bytes for _ in buckets]
        complete = [partitioning.is_whole(bucket) for bucket in buckets]
        self._ends = [*(not (this and following) for this, following in pairwise(complete)), True]
        if partitions is not None:
            shares = [bucket.partition * partitions // MAX_PARTITIONS for bucket in buckets]
            for at, (share, next_share) in enumerate(pairwise(shares)):
                self._ends[at] |= share != next_share
        self._bytes = 0

    def follow(self, starts: Collection[int], sizes: Sequence[int]) -> None:
        """End files where those of the previous snapshot do, unless they have grown too much.

        Args:
            starts: The partitions of the previous snapshot's files of the table.
            sizes: The bytes of the table's states in each bucket.
        """
        beginnings = [at for at, bucket in enumerate(self._buckets) if bucket.partition in starts]
        if self._fixed or (self._file_bytes and has_shrunk(sum(sizes), len(beginnings))):
            return
        for first, behind in pairwise([0, *beginnings[1:], len(self._buckets)]):
            self._ends[behind - 1] = True
            if sum(sizes[first:behind]) < GROWN * self._file_bytes:
                self._limits[first:behind] = [math.inf] * (behind - first)

    def ends_after(self, bucket: int, size: int) -> bool:
        """Return whether a file ends with a bucket: to be called for each, in order.

        Args:
            bucket: The index of the bucket.
            size: The bytes of the table's states in it.
        """
        self._bytes += size
        ends = self._ends[bucket] or self._bytes >= self._limits[bucket]
        if ends:
            self._bytes = 0
        return ends

    def files(self, sizes: Sequence[int]) -> list[FileSpan]:
        """Return all files, from the bytes of each bucket."""
        files, start = [], 0
        for at, size in enumerate(sizes):
            if self.ends_after(at, size):
                first = self._buckets[start]
                files.append(FileSpan(first.partition, first.first, self._buckets[at].last))
                start = at + 1
        return files


@dataclass(frozen=True, slots=True)
class SlicePart:
    """Some key groups of one of an operator's files, by the file's index."""

    file: int
    key_groups: KeyGroupRange


def plan_import_slices(
    files: Sequence[KeyedFile],
    partitioning: Partitioning,
    present: Collection[tuple[int, int]] = (),
    large: float = math.inf,
) -> list[tuple[tuple[SlicePart, ...], int]]:
    """Cut an operator's files into slices of whole buckets, about `SLICE_BYTES` each.

    Small files with consecutive key groups share a slice, since each slice makes at least one file
    of a table.

    Args:
        files: The files.
        partitioning: The partitioning of the operator's tables.
        present: First and last key group of the previous snapshot's files; a slice ends within one
            only if it would be twice as large otherwise.
        large: The bytes of a file above which its distribution over key groups is looked up.

    Returns:
        The parts of each slice, and its bytes as stored.
    """
    inside = {
        partition
        for first, last in present
        for partition in range(
            partitioning.partition_of(first) + 1, partitioning.partition_of(last) + 1
        )
    }
    slices: list[list[SlicePart]] = []
    counts: list[int] = []
    size = 0
    before: KeyedFile | None = None
    for index in sorted(range(len(files)), key=lambda at: files[at].key_groups.first):
        file = files[index]
        sizes = dict(file.group_bytes())
        if sum(sizes.values()) > large and isinstance(file, CuttableFile):
            sizes = dict(file.looked_up_bytes())
        joins = before is not None and _continues(before, file)
        if not joins or size + sum(sizes.values()) > SMALL_SLICE_BYTES:
            slices.append([])
            counts.append(0)
            size = 0
        before = file
        for bucket in partitioning.buckets(file.key_groups):
            count = sum(sizes.get(group, 0) for group in range(bucket.first, bucket.last + 1))
            limit = SLICE_BYTES * (2 if bucket.partition in inside else 1)
            if size and size + count > limit:
                slices.append([])
                counts.append(0)
                size = 0
            _add_part(slices[-1], index, bucket)
            counts[-1] += count
            size += count
    return [(tuple(parts), count) for parts, count in zip(slices, counts, strict=True) if parts]


def _continues(before: KeyedFile, file: KeyedFile) -> bool:
    """Return whether a file has the next key groups of exactly the same states."""
    return (
        file.key_groups.first == before.key_groups.last + 1
        and file.key_serializer == before.key_serializer
        and [state.meta_info for state in file.states]
        == [state.meta_info for state in before.states]
    )


def _add_part(parts: list[SlicePart], file: int, bucket: FileSpan) -> None:
    same = parts and parts[-1].file == file
    first = parts.pop().key_groups.first if same else bucket.first
    parts.append(SlicePart(file, KeyGroupRange(first, bucket.last)))
