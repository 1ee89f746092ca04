"""What is rewritten of a table: its files in slices, and the rows that SQL made for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pipelines.lake.records import UnitRecord
from state_core.filesystem import Directory

__all__ = ["SLICE_BYTES", "slices_of", "staged_files"]

SLICE_BYTES = 16 << 20


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
        staged: Below it, the directory of each partition's rows.
        unit: The file.
    """
    if unit.partition not in staged:
        return ()
    path = staged[unit.partition]
    return tuple(
        replace(unit, path=f"{path}/{name}", rows=-1)
        for name in table.names(path)
        if name.endswith(".parquet")
    )
