"""Versions of tables for snapshots that were erased from, while others keep the files.

A version that two snapshots share can't show erased rows for only one of them. So a named snapshot
gets a version of its own, after all existing ones; by default the table still shows the newest
snapshot.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.edit.rewriting import layout_of
from statelake.pipelines.lake.erase.requests import ErasureRequest
from statelake.pipelines.lake.tables.records import (
    DataFile,
    OperatorRecord,
    SnapshotRecord,
    TableRecord,
)


def give_own_versions(
    lake: Catalog,
    request: ErasureRequest,
    records: Mapping[str, Sequence[SnapshotRecord]],
    kept: Collection[tuple[str, str]],
    replaced: Mapping[str, Mapping[str, DataFile | None]],
    token: str,
) -> list[SnapshotRecord]:
    """Create table versions with the files of snapshots; it may be repeated.

    Args:
        lake: The lake.
        request: The request with the named snapshots.
        records: All snapshots by job, the oldest first, which name their new files.
        kept: Table and path of every file that a snapshot has.
        replaced: By table and old file, the new one.
        token: The token that identifies the versions.

    Returns:
        The snapshots whose rows are to name such versions.
    """
    tables = {path for path, files in replaced.items() if any((path, old) in kept for old in files)}
    changed: list[SnapshotRecord] = []
    for of_job in records.values() if tables else ():
        shown: dict[str, tuple[OperatorRecord, TableRecord, str]] = {}
        for record in of_job:
            operators = []
            for operator in record.operators:
                new_tables = []
                for table in operator.tables:
                    if table.path in tables:
                        shown[table.path] = operator, table, record.snapshot_id
                        if request.of_snapshot(record.snapshot_id):
                            table = _shown(lake, operator, table, token, record.snapshot_id)  # noqa: PLW2901 - the same table at another version
                    new_tables.append(table)
                operators.append(replace(operator, tables=new_tables))
            new = replace(record, operators=operators)
            if new != record:
                changed.append(new)
        for operator, table, newest in shown.values():  # the newest snapshot that has the table
            _shown(lake, operator, replace(table, version=-1), token, newest)
    return changed


def _shown(
    lake: Catalog, operator: OperatorRecord, table: TableRecord, token: str, snapshot: str
) -> TableRecord:
    """Return a table at a version with its files, which is created unless it exists."""
    opened = lake.table(table.path)
    paths = {data_file.path for data_file in table.units}
    for version in {table.version, opened.require().version()}:
        if version >= 0 and {file.path for file in opened.files(version)} == paths:
            return replace(table, version=version)
    return opened.commit_files(table, layout_of(lake, operator, table).schema, token, snapshot)
