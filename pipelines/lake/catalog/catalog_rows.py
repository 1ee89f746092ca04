"""Rows of the catalog: read from a file; some of them replaced, changed or deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from statelake.pipelines.lake.tables.records import SNAPSHOT_SCHEMA
from statelake.state_core.errors import HeldError
from statelake.state_core.nested import parts_of, with_types

HoldsChange: TypeAlias = Callable[[list[dict[str, object]]], list[dict[str, object]]]

HOLDS = "holds"
# which are missing in rows of older lakes
_LATER_COLUMNS = SNAPSHOT_SCHEMA.names[SNAPSHOT_SCHEMA.get_field_index("operators") + 1 :]


def with_columns_of(columns: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """Return columns, followed by those that only another schema has; also in nested columns."""
    known = {field.name: field for field in columns}
    merged = [
        field.with_type(_merged(field.type, wanted.field(field.name).type))
        if field.name in wanted.names
        else field
        for field in columns
    ]
    return pa.schema([*merged, *(field for field in wanted if field.name not in known)])


def _merged(kind: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind) and pa.types.is_struct(wanted):
        return pa.struct(list(with_columns_of(pa.schema(list(kind)), pa.schema(list(wanted)))))
    parts, others = parts_of(kind), parts_of(wanted)
    if kind.id != wanted.id or not parts:
        return kind
    pairs = zip(parts, others, strict=True)
    return with_types(kind, [_merged(field.type, other.type) for (_, field), (_, other) in pairs])


def without_views(rows: pa.Table) -> pa.Table:
    """Return rows whose text and bytes are no views, which Arrow neither compares nor filters.

    delta-rs writes views when it updates a row.
    """
    columns = pa.schema([field.with_type(_without_views(field.type)) for field in rows.schema])
    return rows if columns == rows.schema else rows.cast(columns)


def _without_views(kind: pa.DataType) -> pa.DataType:
    if parts := parts_of(kind):
        return with_types(kind, [_without_views(field.type) for _, field in parts])
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def rows_of(
    file: pa.Table | pq.ParquetFile, columns: list[str], snapshot_id: str | None
) -> list[dict[str, object]]:
    """Return rows of a file of the catalog: all, or those of one snapshot.

    Raises:
        ValueError: A column is missing that every version of a lake has.
    """
    is_read = isinstance(file, pa.Table)
    stored = file.schema.names if is_read else file.schema_arrow.names
    missing = sorted(set(columns) - {*stored, *_LATER_COLUMNS})
    if missing:
        raise ValueError(f"it has no column {missing[0]!r}")
    present = [name for name in columns if name in stored]
    rows = without_views(file.select(present) if is_read else file.read(columns=present))
    if snapshot_id is not None:
        rows = rows.filter(pc.equal(rows.column("snapshot_id"), snapshot_id))
    dicts: list[dict[str, object]] = rows.to_pylist()
    return dicts


def rows_replaced(
    job: str, rows_by_id: dict[str, dict[str, object]], rows: pa.Table, *, on_hold: bool = False
) -> pa.Table:
    """Return rows of a file, with the rows of some snapshots replaced.

    Args:
        job: The job.
        rows_by_id: The new rows, by the id of the snapshot.
        rows: The rows of the file.
        on_hold: Whether rows with a hold are replaced as well, and keep it.

    Raises:
        HeldError: There is a hold on one of these snapshots.
    """
    names = rows.column("snapshot_id").to_pylist()
    others = [
        rows_by_id[name] | {HOLDS: holds}
        for name, holds in zip(names, _holds_of(rows), strict=True)
        if name in rows_by_id
    ]
    if not others:
        return rows
    going = pa.array([name in rows_by_id for name in names])
    if not on_hold:
        _refuse_held(job, rows.filter(going))
    replacing = pa.Table.from_pylist(others, SNAPSHOT_SCHEMA)
    staying = rows.filter(pc.invert(going))
    return pa.concat_tables([staying, replacing], promote_options="permissive")


def rows_without(job: str, snapshot_ids: list[str], rows: pa.Table) -> pa.Table:
    """Return rows of a file but those of some snapshots; the same object if nothing changes.

    Raises:
        HeldError: There is a hold on one of these snapshots.
    """
    names = pc.fill_null(rows.column("snapshot_id").cast(pa.string()), "")
    going = pc.is_in(names, pa.array(snapshot_ids, pa.string()))
    _refuse_held(job, rows.filter(going))
    return rows.filter(pc.invert(going)) if pc.any(going).as_py() else rows


def rows_with_holds(snapshot_id: str, change: HoldsChange, rows: pa.Table) -> pa.Table:
    """Return rows of a file with one snapshot's holds changed; the same object if they stay."""
    before, names = _holds_of(rows), rows.column("snapshot_id").to_pylist()
    holds = [
        change(current) if name == snapshot_id else current
        for name, current in zip(names, before, strict=True)
    ]
    if holds == before:
        return rows
    column = pa.array(holds, SNAPSHOT_SCHEMA.field(HOLDS).type)
    others = rows.drop_columns([HOLDS]) if HOLDS in rows.column_names else rows
    return others.append_column(HOLDS, column)


def _holds_of(rows: pa.Table) -> list[list[dict[str, object]]]:
    """Return the holds of each row, valid or not."""
    listed_holds = (
        rows.column(HOLDS).to_pylist() if HOLDS in rows.column_names else [None] * len(rows)
    )
    return [holds or [] for holds in listed_holds]


def _refuse_held(job: str, rows: pa.Table) -> None:
    """Refuse to change rows if there is a hold on one of them.

    Raises:
        HeldError: There is one.
    """
    for name, holds in zip(rows.column("snapshot_id").to_pylist(), _holds_of(rows), strict=True):
        if holds:
            raise held_error(job, name, [str(hold["reason"] or "") for hold in holds])


def held_error(job: str, snapshot_id: str, reasons: Iterable[str]) -> HeldError:
    """Return the error for a snapshot with holds, with their reasons."""
    why = "; ".join(filter(None, reasons))
    return HeldError(
        f"there is a hold on snapshot {snapshot_id!r} of job {job!r}"
        + (f" ({why})" if why else ""),
        remedy="nothing was changed; `statelake release` ends the hold",
    )
