"""Merge operators of one snapshot into another: share their tables, or copy them between jobs."""

from __future__ import annotations

import posixpath
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.tables.names import areas_of, job_directory
from statelake.pipelines.lake.tables.records import (
    DataFile,
    OperatorRecord,
    SnapshotRecord,
    TableRecord,
)
from statelake.pipelines.lake.tables.tables import DATA_DIRECTORY, StateTable
from statelake.state_core.errors import ConflictError
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    OperatorMetadata,
    subtask_bytes,
)

COPIERS = 8


def merge_operators(
    lake: Catalog,
    job: str,
    snapshot_id: str,
    other: SnapshotRecord,
    token: str,
    taken: Collection[str],
) -> tuple[list[OperatorRecord], int]:
    """Return the operators of another snapshot with their tables in `job`.

    Within one job the tables are shared. Between jobs every file is copied, since each job keeps
    and drops its own. A table of a renamed operator is copied too if its path is taken.

    Args:
        lake: The lake.
        job: The job of the new snapshot.
        snapshot_id: Its name.
        other: The other snapshot.
        token: The attempt's token.
        taken: The paths of tables that the snapshot has, or may have, of its own.

    Returns:
        The operators, and the bytes that were written.
    """
    operators, written = [], 0
    for operator in other.operators:
        tables = []
        for table in operator.tables:
            if other.job == job and table.path not in taken:
                tables.append(table)
                continue
            path = _free(_path_in(job, other.job, table.path), table, taken)
            copied = copy_table(lake, snapshot_id, table, path, token, taken)
            written += sum(file.size for file in copied.units)
            tables.append(copied)
        paths = {old.path: new.path for old, new in zip(operator.tables, tables, strict=True)}
        operators.append(
            replace(
                operator,
                tables=tables,
                states=[replace(state, table=paths[state.table]) for state in operator.states],
                operator_states=[
                    replace(operator_state, table=paths[operator_state.table])
                    for operator_state in operator.operator_states
                ],
            )
        )
    return operators, written


def union_of_operators(
    mine: tuple[list[OperatorMetadata], set[str]], theirs: tuple[list[OperatorMetadata], set[str]]
) -> list[OperatorMetadata]:
    """Return the operators of two `_metadata`; if both have one, the one with state.

    Args:
        mine: Its operators, and the ids of those with tables.
        theirs: The other's operators, and the ids of those with tables.

    Raises:
        ConflictError: An operator has state in both.
    """
    union = {operator.operator_id: operator for operator in mine[0]}
    for operator in theirs[0]:
        present = union.get(operator.operator_id)
        if present is None or not has_state(present, mine[1]):
            union[operator.operator_id] = operator
        elif has_state(operator, theirs[1]):
            raise ConflictError(
                f"operator {operator.uid or operator.operator_id} is in both snapshots",
                remedy="drop it from one of them, or give it another uid there, first",
            )
    return list(union.values())


def has_state(operator: OperatorMetadata, with_tables: set[str]) -> bool:
    """Return whether an operator has state, in tables or carried.

    Args:
        operator: Its part of the carried `_metadata`.
        with_tables: The ids of the operators that have tables.
    """
    carried = any(subtask_bytes(subtask) for subtask in (operator.subtasks or {}).values())
    return operator.operator_id in with_tables or carried or operator.coordinator is not None


def merged_tables(job: str, other: SnapshotRecord, taken: Collection[str]) -> list[str]:
    """Return the tables that a merge of another snapshot shares, or may write."""
    tables = other.tables
    places = [_free(_path_in(job, other.job, table.path), table, taken) for table in tables]
    return places + [
        _free(path_beside(place, table), table, taken)
        for place, table in zip(places, tables, strict=True)
    ]


def path_beside(path: str, table: TableRecord) -> str:
    """Return the path for a table whose own path has another partitioning, which can't change."""
    return f"{path}~{table.partition_by or 'whole'}"


def _free(path: str, table: TableRecord, taken: Collection[str]) -> str:
    """Return the path, or one beside it if another table of the snapshot has it."""
    while path in taken:
        path = path_beside(path, table)
    return path


def copy_table(
    lake: Catalog,
    snapshot_id: str,
    table: TableRecord,
    path: str,
    token: str,
    taken: Collection[str] = (),
) -> TableRecord:
    """Copy a version of a table as the next version of another one.

    Args:
        lake: The lake.
        snapshot_id: The snapshot that is to have it.
        table: The table, as a snapshot has it.
        path: The other table; the result is in one beside it if that has another partitioning.
        token: The attempt's, which `path` and `path_beside` must be claimed by.
        taken: Paths of the new snapshot's other tables.
    """
    source, target = lake.table(table.path), lake.table(path)
    present = target.open()
    columns = [table.partition_by] if table.partition_by else []
    if present is not None and present.metadata().partition_columns != columns:
        path = _free(path_beside(path, table), table, taken)
        target = lake.table(path)
    with ThreadPoolExecutor(COPIERS) as pool:
        files = list(pool.map(lambda file: _copy_file(source, target, file, token), table.units))
    copied = replace(table, path=path, units=files)
    schema = source.require(table.version).schema()
    return target.commit_files(copied, schema, token, snapshot_id)


def _path_in(job: str, other: str, path: str) -> str:
    """Return the path of the table of the same operator and state in another job."""
    for mine, theirs in zip(areas_of(job), areas_of(other), strict=True):
        if path.startswith(f"{theirs}/"):
            return f"{mine}/{path.removeprefix(f'{theirs}/')}"
    return f"{job_directory(job)}/{path}"


def _copy_file(source: StateTable, target: StateTable, file: DataFile, token: str) -> DataFile:
    """Copy one file under the attempt's name."""
    path = f"{DATA_DIRECTORY}/{token}/{posixpath.basename(file.path)}"
    target.directory.write(path, source.directory.read(file.path))
    return replace(file, path=path)
