"""What a run gave, committed to Delta tables: once, however often the run is repeated.

Every commit carries the job's name and the run's number as a Delta transaction; a run whose number
is there already commits nothing. Files of attempts that came to nothing are never in the log.

They lie in `_data/<job>-<run>-<attempt>` below the table, and no link is followed to get there.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from pipelines.lake.tables.tables import open_table
from state_core.errors import ConflictError, IncompatibleError
from state_core.files.confinement import relative_path
from state_core.files.filesystem import Directory
from state_core.files.storage_options import storage_options

__all__ = ["commit_output", "discard_attempts", "output_directory"]

OUTPUT_DIRECTORY = "_data"
ATTEMPTS = 20


def output_directory(job: str, run: int, attempt: str) -> str:
    """Where an attempt's files lie below a sink's table."""
    return f"{OUTPUT_DIRECTORY}/{job}-{run:08d}-{attempt}"


def commit_output(
    location: str, app: str, run: int, schema: pa.Schema, files: Sequence[tuple[str, int, int]]
) -> bool:
    """Append files to a table, unless that run did so before.

    Args:
        location: The table.
        app: Who commits: the job and the sink.
        run: The run's number.
        schema: The table's columns.
        files: Path below the table, bytes and rows of each.

    Returns:
        Whether it was done now.

    Raises:
        IncompatibleError: The table has other columns.
        ConflictError: Others kept committing.
        UnsafePathError: A file is none of the output's.
    """
    directory = Directory(location).confined()
    for path, _, _ in files:
        relative_path(path, what="a file of the output", place=location, inside="the table")
    for _ in range(ATTEMPTS):
        directory.refuse_links()
        table = open_table(directory)
        if table is not None:
            done = table.transaction_version(app)
            if done is not None and done >= run:
                return False
            _check_columns(table, schema, location)
        if table is not None and not files:
            return False
        try:
            _commit(directory, table, app, run, schema, files)
        except CommitFailedError:
            continue
        except DeltaError as error:
            if "already exists" not in str(error):
                raise
            continue  # another made the table at this moment
        return True
    raise ConflictError(
        f"others committed {ATTEMPTS} times while this was tried",
        place=directory.uri,
        remedy="run again: it goes on where it stopped",
    )


def _commit(
    directory: Directory,
    table: DeltaTable | None,
    app: str,
    run: int,
    schema: pa.Schema,
    files: Sequence[tuple[str, int, int]],
) -> None:
    now = int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = [
        AddAction(path, size, {}, now, True, json.dumps({"numRecords": rows}))
        for path, size, rows in files
    ]
    properties = CommitProperties(
        app_transactions=[Transaction(app, run, now)], max_commit_retries=0
    )
    if table is None:
        create_table_with_add_actions(
            directory.uri,
            Schema.from_arrow(schema),
            [action for action in actions if isinstance(action, AddAction)],
            mode="error",
            partition_by=[],
            storage_options=storage_options(directory),
            commit_properties=properties,
        )
        return
    table.create_write_transaction(
        actions,
        mode="append",
        schema=Schema.from_arrow(schema),
        partition_by=[],
        commit_properties=properties,
    )


def _check_columns(table: DeltaTable, schema: pa.Schema, location: str) -> None:
    held, wanted = table.schema(), Schema.from_arrow(schema)
    if held != wanted:
        raise IncompatibleError(
            f"the table has columns {_listed(held)}, and the stream {_listed(wanted)}",
            place=location,
            remedy="write to another table, or change the operator's output",
        )


def _listed(schema: Schema) -> str:
    return ", ".join(
        f"{field.name} {field.type.type}" if hasattr(field.type, "type") else field.name
        for field in schema.fields
    )


def discard_attempts(location: str, job: str, run: int, keep: str) -> None:
    """Remove what other attempts of a run wrote into a table's directory.

    Args:
        location: The table.
        job: The job's name.
        run: The run's number.
        keep: The attempt that stays.
    """
    directory = Directory(location).confined()
    attempts = re.compile(re.escape(output_directory(job, run, "")) + "attempt-[0-9a-f]{12}")
    for name in directory.names(OUTPUT_DIRECTORY):
        path = f"{OUTPUT_DIRECTORY}/{name}"
        if attempts.fullmatch(path) and path != output_directory(job, run, keep):
            directory.delete_tree(path)
