"""What is rewritten of a table: its files in slices, and the rows that SQL made for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from pipelines.lake.records import OperatorRecord, TableRecord, UnitRecord
from state_core.filesystem import Directory

__all__ = ["SLICE_BYTES", "ValueStaging", "slices_of", "staged_files"]

SLICE_BYTES = 16 << 20
# of a table and a token: the directory of the rows with new values of each partition, or of each
# subtask where the table has no partitions
ValueStaging = Callable[[OperatorRecord, TableRecord, str], Mapping[int, str]]


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
