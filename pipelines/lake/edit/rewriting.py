"""What is rewritten of a table: its files in slices, and the rows that SQL made for each.

A migration rewrites all files of one state's table; what a row becomes is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from pipelines.lake.catalog.catalog import Lake
from pipelines.lake.tables.records import OperatorRecord, TableRecord, UnitRecord
from pipelines.lake.tables.tables import TableFile
from state_core.errors import StateError
from state_core.files.filesystem import Directory

__all__ = [
    "SLICE_BYTES",
    "RewrittenUnit",
    "TableRewriting",
    "ValueStaging",
    "slices_of",
    "staged_files",
]

SLICE_BYTES = 16 << 20
# of a table and a token: the directory of the rows with new values of each partition, or of each
# subtask where the table has no partitions
ValueStaging = Callable[[OperatorRecord, TableRecord, str], Mapping[int, str]]
# a file, and those with the rows that SQL made for it, if it made any
RewrittenUnit = tuple[UnitRecord, tuple[UnitRecord, ...]]


class TableRewriting:
    """All files of one table, written again.

    Args:
        lake: The lake.
        operator: The operator whose table it is.
        path: The table's.
        token: Of the attempt.
    """

    def __init__(self, lake: Lake, operator: OperatorRecord, path: str, token: str) -> None:
        self.operator = operator
        self.token = token
        (self.record,) = (one for one in operator.tables if one.path == path)
        self.table = lake.table(path)
        self.staged: Mapping[int, str] = {}

    def stage(self, staging: ValueStaging | None) -> None:
        """Have SQL make the new values.

        Raises:
            StateError: There is no Spark to do it.
        """
        if staging is None:
            raise StateError("expressions need Spark, and no session was given")
        self.staged = staging(self.operator, self.record, self.token)

    def slices(self) -> list[tuple[RewrittenUnit, ...]]:
        """The files, cut into slices, with what SQL made for each."""
        directory = self.table.directory
        return [
            tuple((unit, staged_files(directory, self.staged, unit)) for unit in units)
            for units in slices_of(self.record.units)
        ]

    def replace_files(
        self, units: list[UnitRecord], schema: pa.Schema, partition_by: str | None
    ) -> list[TableRecord]:
        """Make these files the table's next version; all tables of the operator as they are then.

        Args:
            units: What was written.
            schema: The table's, from now on.
            partition_by: The column that it is partitioned by, if any.
        """
        for path in {path.rpartition("/")[0] for path in self.staged.values()}:
            self.table.directory.delete_tree(path)
        version = self.table.replace_files(
            schema,
            [TableFile(one.path, one.size, one.rows, one.partition) for one in units],
            partition_by=partition_by,
            attempt=self.token,
        )
        made = replace(self.record, version=version, units=units)
        return [made if one is self.record else one for one in self.operator.tables]


def slices_of(units: Iterable[UnitRecord]) -> list[list[UnitRecord]]:
    """Files cut into slices of about `SLICE_BYTES`, in order."""
    slices: list[list[UnitRecord]] = []
    held = 0
    for unit in units:
        if not slices or held + unit.size > SLICE_BYTES:
            slices.append([])
            held = 0
        slices[-1].append(unit)
        held += unit.size
    return slices


def staged_files(
    table: Directory, staged: Mapping[int, str], unit: UnitRecord
) -> tuple[UnitRecord, ...]:
    """The files that SQL wrote for one file's rows; none if it left none of them.

    Args:
        table: The table's directory.
        staged: Below it, the directory of each partition's rows, or of each subtask's.
        unit: The file.
    """
    parts = range(unit.first, unit.last + 1) if unit.partition < 0 else [unit.partition]
    return tuple(
        replace(unit, path=f"{staged[part]}/{name}", rows=-1)
        for part in parts
        if part in staged
        for name in table.names(staged[part])
        if name.endswith(".parquet")
    )
