"""How a state's key groups are spread over files: units, which are written or kept as a whole.

Up to 128 key groups each has a partition and a file of its own. Above, ranges of key groups share
at most 128 buckets, with `key_group` as a sorted column in the files: thousands of partitions cost
minutes to write and seconds to scan.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from state_core.model.handles import KeyGroupRange
from state_core.model.snapshot import KeyedFile

__all__ = ["MAX_PARTITIONS", "Partitioning", "Unit", "plan_unit_slices", "units_of"]

MAX_PARTITIONS = 128
KEY_GROUP, BUCKET = "key_group", "key_group_bucket"


@dataclass(frozen=True, slots=True)
class Unit:
    """Key groups `first` to `last`, which share a file in one partition."""

    partition: int
    first: int
    last: int

    @property
    def key_groups(self) -> KeyGroupRange:
        """The key groups."""
        return KeyGroupRange(self.first, self.last)


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How the tables of an operator with this max parallelism are partitioned."""

    max_parallelism: int

    @property
    def column(self) -> str:
        """The partition column."""
        return KEY_GROUP if self.max_parallelism <= MAX_PARTITIONS else BUCKET

    def partition_of(self, key_group: int) -> int:
        """The value of the partition column for a key group."""
        if self.max_parallelism <= MAX_PARTITIONS:
            return key_group
        return key_group * MAX_PARTITIONS // self.max_parallelism

    def table_schema(self, columns: pa.Schema) -> pa.Schema:
        """The columns of the table: those of the state, and the bucket where there is one."""
        if self.column == KEY_GROUP:
            return columns
        return columns.insert(0, pa.field(BUCKET, pa.int32()))

    def file_schema(self, columns: pa.Schema) -> pa.Schema:
        """The columns of a file: Delta keeps the partition column in its log alone."""
        if self.column != KEY_GROUP:
            return columns
        return columns.remove(columns.get_field_index(KEY_GROUP))


def units_of(key_groups: KeyGroupRange, partitioning: Partitioning) -> list[Unit]:
    """The units that key groups `first` to `last` of one subtask form."""
    units: list[Unit] = []
    for group in range(key_groups.first, key_groups.last + 1):
        partition = partitioning.partition_of(group)
        if units and units[-1].partition == partition:
            units[-1] = Unit(partition, units[-1].first, group)
        else:
            units.append(Unit(partition, group, group))
    return units


def plan_unit_slices(
    file: KeyedFile, partitioning: Partitioning, slice_bytes: int
) -> list[tuple[KeyGroupRange, int]]:
    """Cut a file into ranges of whole units of about `slice_bytes`, each with its bytes."""
    sizes = dict(file.group_bytes())
    slices: list[tuple[KeyGroupRange, int]] = []
    first, size = -1, 0
    last = -1
    for unit in units_of(file.key_groups, partitioning):
        held = sum(sizes.get(group, 0) for group in range(unit.first, unit.last + 1))
        if size and size + held > slice_bytes:
            slices.append((KeyGroupRange(first, last), size))
            first, size = unit.first, 0
        first = unit.first if first < 0 else first
        last = unit.last
        size += held
    if first >= 0:
        slices.append((KeyGroupRange(first, last), size))
    return slices
