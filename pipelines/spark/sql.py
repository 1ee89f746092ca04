"""Spark SQL over a lake: tables go by `<job>.<operator>.<state>`, at any snapshot.

A name of three parts (each may be quoted by backticks) that the catalog knows is replaced by the
Delta table it stands for, pinned to the snapshot's version where one is asked for. Text in quotes
and comments is left alone; everything else is Spark's own SQL.

Spark opens a table by its path. That there is no link on the way, and that the table's log names
files in it alone, is looked at right before; who can write into the lake can still change it then.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from pipelines.lake.catalog.catalog import Lake
from pipelines.lake.tables.records import SnapshotRecord
from state_core.errors import DamagedLakeError, NotFoundError

__all__ = ["resolve_names", "run_sql", "table_names"]

LOG = logging.getLogger(__name__)
TIMERS = "timers"
BESIDE = "~operator"  # what tells an operator state from a keyed one of the same name
# they print what is raised as well, with its Java trace
QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")

_TOKEN = re.compile(
    r"""
    (?P<skip> '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | --[^\n]* | /\*.*?\*/ )
  | (?P<name> (?:`(?:[^`]|``)+`|[^\W\d]\w*) (?: \s*\.\s* (?:`(?:[^`]|``)+`|\w[\w-]*) )+ )
    """,
    re.VERBOSE | re.DOTALL,
)
_PART = re.compile(r"`((?:[^`]|``)+)`|(\w[\w-]*)")


def run_sql(
    session: SparkSession,
    lake: Lake,
    query: str,
    *,
    as_of: str | None = None,
    job: str | None = None,
) -> DataFrame:
    """Run a query or a statement.

    Args:
        session: Spark, with Delta.
        lake: The lake.
        query: One statement.
        as_of: A snapshot's id: tables are read as they were in it.
        job: A job whose name may be left out of table names.

    Raises:
        NotFoundError: No job has that snapshot.
        UnsafePathError: A table that is asked for leads out of the lake.
    """
    for name in QUERY_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    names = table_names(lake, as_of=as_of, job=job)
    text = resolve_names(query, names)
    root = spark_path(lake.directory.uri)
    for target in set(names.values()):
        if target in text:
            _, path, version = target.split("`")
            pinned = int(version.rpartition(" ")[2]) if version else None
            lake.table(path.removeprefix(f"{root}/")).checked_uri(pinned)
    return session.sql(text)


def table_names(
    lake: Lake, *, as_of: str | None = None, job: str | None = None
) -> dict[tuple[str, ...], str]:
    """Every table's name, and what stands for it in Spark SQL.

    An operator's timers go by `<job>.<operator>.timers`. A job with a row that can't be believed
    has no names, and the log says why; the others have theirs.
    """
    names: dict[tuple[str, ...], str] = {}
    found = False
    for one in lake.jobs():
        try:
            record = lake.latest(one) if as_of is None else _snapshot(lake, one, as_of)
        except DamagedLakeError as error:
            LOG.warning("the tables of job %r have no names: %s", one, error)
            continue
        if record is None:
            continue
        found = True
        for key, target in _tables_of(lake, record, pinned=as_of is not None).items():
            names[key] = target
            if job == one:
                names[key[1:]] = target
    if as_of is not None and not found:
        raise NotFoundError(f"no job has a snapshot {as_of!r}", remedy="see `statelake snapshots`")
    return names


def _snapshot(lake: Lake, job: str, snapshot_id: str) -> SnapshotRecord | None:
    known = {summary.snapshot_id for summary in lake.summaries(job)}
    return lake.snapshot(job, snapshot_id) if snapshot_id in known else None


def _tables_of(lake: Lake, record: SnapshotRecord, *, pinned: bool) -> dict[tuple[str, ...], str]:
    names: dict[tuple[str, ...], str] = {}
    for operator in record.operators:
        versions = {table.path: table.version for table in operator.tables}
        for state in operator.states:
            name = TIMERS if state.kind == TIMERS else state.name
            target = f"delta.`{spark_path(lake.table(state.table).uri)}`"
            if pinned:
                target += f" VERSION AS OF {versions[state.table]}"
            names[record.job, operator.label, name] = target
        keyed = {state.name for state in operator.states}
        for operator_state in operator.operator_states:
            name = (
                f"{operator_state.name}{BESIDE}"
                if operator_state.name in keyed
                else operator_state.name
            )
            target = f"delta.`{spark_path(lake.table(operator_state.table).uri)}`"
            if pinned:
                target += f" VERSION AS OF {versions[operator_state.table]}"
            names[record.job, operator.label, name] = target
    return names


def spark_path(uri: str) -> str:
    """A table's location as Hadoop spells it."""
    return "s3a://" + uri.removeprefix("s3://") if uri.startswith("s3://") else uri


def resolve_names(query: str, names: Mapping[tuple[str, ...], str]) -> str:
    """Replace the names of tables in a query, which have no case unless two differ in it alone."""
    by_folded = {tuple(part.lower() for part in key): value for key, value in names.items()}

    def replace(match: re.Match[str]) -> str:
        text = match["name"]
        if text is None:
            return match[0]
        parts = list(_PART.finditer(text))
        values = tuple((part[1] or part[2]).replace("``", "`") for part in parts)
        folded = tuple(value.lower() for value in values)
        return names.get(values) or by_folded.get(folded) or text

    return _TOKEN.sub(replace, query)
