"""Commit a run's output to Delta tables: once, however often the run is repeated.

Every commit carries the job's name and the run's number as a Delta transaction; a run whose number
is there already commits nothing. Files of failed attempts are never in the log.

They lie in `_data/<job>-<run>-<attempt>` below the table, and no link on the path is followed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Sequence
from posixpath import dirname

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction

from statelake.pipelines.lake.catalog.run_log import OUTPUT_DIRECTORY, output_directory
from statelake.pipelines.lake.tables.delta_commit import DeltaCommit, until_committed
from statelake.pipelines.lake.tables.tables import files_of, open_table
from statelake.state_core.errors import ConflictError, IncompatibleError
from statelake.state_core.files.confinement import relative_path
from statelake.state_core.files.filesystem import ConfinedDirectory, Directory


def commit_output(
    location: str, app: str, run: int, schema: pa.Schema, files: Sequence[tuple[str, int, int]]
) -> bool:
    """Append files to a table, unless that run did so before.

    Args:
        location: The table.
        app: The committer: the job and the sink.
        run: The run's number.
        schema: The table's columns.
        files: Path below the table, bytes and rows of each.

    Returns: Whether this call committed.

    Raises:
        IncompatibleError: The table has other columns.
        ConflictError: Other commits came first, again and again.
        UnsafePathError: A file is not one of the output's.
    """
    directory = Directory(location).confined()
    for path, _, _ in files:
        relative_path(path, what="a file of the output", place=location, inside="the table")

    def commit() -> bool | None:
        directory.refuse_links()
        table = open_table(directory)
        if table is not None:
            last_run = table.transaction_version(app)
            if last_run is not None and last_run >= run:
                return False
            _check_columns(table, schema, location)
            if not files:
                return False
        transaction = Transaction(app, run, int(time.time() * 1000))
        properties = CommitProperties(app_transactions=[transaction])
        change = DeltaCommit(directory, schema, None, properties)
        for path, size, rows in files:
            change.add(path, size, rows)
        if table is None:
            change.create()
        else:
            change.write(table)
        return True

    remedy = "run again: the run continues where it stopped"
    return until_committed(commit, directory, remedy=remedy)


def refuse_committed(location: str, app: str, run: int) -> None:
    """Refuse a planned run if another job has committed its number.

    Args:
        location: The table.
        app: The committer: the job and the sink.
        run: The run's number.

    Raises:
        ConflictError: A job of the same name has, with another lake.
    """
    table = open_table(Directory(location).confined())
    last_run = None if table is None else table.transaction_version(app)
    if last_run is not None and last_run >= run:
        raise _taken(location, app.partition("/")[0], run)


def _taken(location: str, job: str, run: int) -> ConflictError:
    return ConflictError(
        f"run {run} of another job {job!r} is in the table already",
        place=location,
        remedy="jobs of one name, of two lakes, can't write to the same table: choose another "
        "table or name",
    )


def _check_columns(table: DeltaTable, schema: pa.Schema, location: str) -> None:
    present, needed = table.schema(), Schema.from_arrow(schema)
    if present != needed:
        raise IncompatibleError(
            f"the table has columns {_listed(present)}, and the stream {_listed(needed)}",
            place=location,
            remedy="write to another table, or change the operator's output",
        )


def _listed(schema: Schema) -> str:
    return ", ".join(
        f"{field.name} {field.type.type}" if hasattr(field.type, "type") else field.name
        for field in schema.fields
    )


def discard_attempts(location: str, job: str, run: int, keep: str) -> None:
    """Delete the files of a run's other attempts in a table's directory.

    Args:
        location: The table.
        job: The job's name.
        run: The run's number.
        keep: The attempt that stays.

    Raises:
        ConflictError: The table has rows of another attempt: a job of the same name committed it.
    """
    directory = Directory(location).confined()
    attempts = re.compile(re.escape(output_directory(job, run, "")) + "attempt-[0-9a-f]{12}")
    paths = [f"{OUTPUT_DIRECTORY}/{name}" for name in directory.names(OUTPUT_DIRECTORY)]
    others = [
        path
        for path in paths
        if attempts.fullmatch(path) and path != output_directory(job, run, keep)
    ]
    committed = {dirname(path) for path in _held(directory)} if others else set()
    for path in others:
        if path in committed:
            raise _taken(location, job, run)
        directory.delete_tree(path)


def discard_unnamed(location: str, attempt: str, named: Collection[str]) -> None:
    """Delete files that were written into an attempt's directory after its commit.

    Args:
        location: The table.
        attempt: The attempt's directory.
        named: The files to keep, beside those in the table's log.
    """
    directory = Directory(location).confined()
    late = {path for path, _ in directory.files_below(attempt)}.difference(named)
    for path in sorted(late - _held(directory) if late else ()):
        directory.delete(path)


def _held(directory: ConfinedDirectory) -> set[str]:
    """Return the files that a table's log names."""
    table = open_table(directory)
    return set() if table is None else {file.path for file in files_of(table)}
