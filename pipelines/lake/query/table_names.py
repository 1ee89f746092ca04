"""Names of tables in a query: `<job>.<operator>.<state>`, at any snapshot.

The rule is the same for every engine. A name of three parts that the catalog has, or of two if the
job may be left out, is replaced by the engine's name of that table. Text in quotes and comments is
left alone; everything else is the engine's own SQL. Jobs that a query does not name are not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.reading import SnapshotReading
from statelake.pipelines.lake.tables.file_spans import Partitioning
from statelake.pipelines.lake.tables.records import OperatorRecord, SnapshotRecord, TableRecord
from statelake.state_core.errors import (
    DamagedLakeError,
    NotFoundError,
    ReadOnlyError,
    did_you_mean,
)

Found = TypeVar("Found")
Parts = tuple[str, ...]

TIMERS = "timers"
BESIDE = "~operator"  # a suffix for an operator state with the name of a keyed one
EVERY_SNAPSHOT = "@all"  # a suffix of a state's name: its rows in all snapshots
IS_EXACT = "is_exact"  # a column of every state's table, for the queries that name it
SHOWN_NAMES = 20

_COMMENT = r"--[^\n]*|/\*.*?\*/"
_BACKTICKS = r"`(?:[^`]|``)+`"
_PART = re.compile(r'`((?:[^`]|``)+)`|"((?:[^"]|"")+)"|(\w[\w-]*(?:@all)?)')
_PLAIN = re.compile(r"\w+(?:@all)?")


@dataclass(frozen=True)
class Dialect:
    """An engine's syntax of text, comments and names.

    Attributes:
        token: Finds text and comments (`skip`), names of several parts (`name`), and single names
            in backticks (`quoted`).
        double_quotes: Whether names are in double quotes, and backticks are not supported.
    """

    token: re.Pattern[str]
    double_quotes: bool


def _dialect(skipped: str, quoted: str, *, double_quotes: bool) -> Dialect:
    name = rf"(?:{quoted}|\w+) (?: \s*\.\s* (?:{quoted}|\w[\w-]*(?:@all)?) )+"
    pattern = rf"(?P<skip>{_COMMENT}|{skipped}) | (?P<name>{name}) | (?P<quoted>{_BACKTICKS})"
    return Dialect(re.compile(pattern, re.VERBOSE | re.DOTALL), double_quotes)


SPARK = _dialect(r"""'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*\"""", _BACKTICKS, double_quotes=False)
DUCKDB = _dialect(
    r"""\b[eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$""",
    rf"""{_BACKTICKS} | "(?:[^"]|"")+\"""",
    double_quotes=True,
)


@dataclass(frozen=True)
class NamedTable:
    """The table of a name.

    Attributes:
        job: The job.
        operator: The name of its operator.
        state: The name of its state in SQL.
        path: The table's path below the lake.
        snapshot_id: The snapshot whose table it is.
        partitioning: The table's partitioning, if it is by key group.
        every_snapshot: Whether it has the rows of all snapshots, with a column `snapshot`.
    """

    job: str
    operator: str
    state: str
    path: str
    snapshot_id: str
    partitioning: Partitioning | None = None
    every_snapshot: bool = False

    @property
    def name(self) -> str:
        """The three parts as a query may write them, which no other table has."""
        return shown_name((self.job, self.operator, self.state))


class TableNames:
    """The names of a lake's tables in SQL.

    Args:
        lake: The lake.
        as_of: A snapshot's id: tables have its rows, and not the newest ones.
        job: A job whose name may be left out.

    Attributes:
        reading: The snapshots whose tables were found.

    Raises:
        NotFoundError: No job has that snapshot, or there is no such job.
    """

    def __init__(self, lake: Catalog, *, as_of: str | None = None, job: str | None = None) -> None:
        self.lake = lake
        self.as_of = as_of
        self.job = job
        summaries, bad = lake.listed()
        self.jobs = {record.job: record.snapshot_id for record in summaries}
        self.jobs |= {row.job: row.snapshot_id for row in bad if row.job not in self.jobs}
        if as_of is not None:
            self.jobs = {
                summary.job: as_of for summary in summaries if summary.snapshot_id == as_of
            }
            if not self.jobs:
                raise NotFoundError(
                    f"no job has a snapshot {as_of!r}", remedy="see `statelake snapshots`"
                )
        if job is not None and job not in self.jobs:
            lake.snapshot(job, as_of or "")  # raises the error that lists what exists
        self.reading = SnapshotReading(lake)
        self._by_job: dict[str, dict[Parts, NamedTable]] = {}

    def __getstate__(self) -> dict[str, object]:
        """Return the pickled state, without tables: records may be large, so each process reads."""
        return self.__dict__ | {"reading": SnapshotReading(self.lake), "_by_job": {}}

    def find(self, parts: Parts) -> NamedTable | None:
        """Return the table of a name, ignoring case unless two names differ only in case.

        Raises:
            DamagedLakeError: The catalog has an invalid row of the job.
        """
        if len(parts) == 3:
            job = find_folded({(name,): name for name in self.jobs}, parts[:1])
            return None if job is None else find_folded(self.of_job(job), parts[1:])
        if len(parts) == 2 and self.job is not None:
            return find_folded(self.of_job(self.job), parts)
        return None

    def of_job(self, job: str) -> Mapping[Parts, NamedTable]:
        """Return the tables of a job, by operator and state."""
        if job not in self._by_job:
            record = (
                self.lake.latest(job) if self.as_of is None else self.lake.snapshot(job, self.as_of)
            )
            self._by_job[job] = {} if record is None else self._tables_of(self.reading.add(record))
        return self._by_job[job]

    def recorded(self, table: NamedTable) -> TableRecord:
        """Return a table's record, from the snapshot's record that is read.

        Raises:
            NotFoundError: Another snapshot has that name now, without the table.
        """
        for recorded in self.reading.records[table.job, table.snapshot_id].tables:
            if recorded.path == table.path:
                return recorded
        raise NotFoundError(f"no table {table.name}", remedy=self.remedy)

    def snapshots_of(self, job: str) -> list[SnapshotRecord]:
        """Return all snapshots of a job, the oldest first, by the records that are read.

        Raises:
            DamagedLakeError: The catalog has an invalid row of the job.
        """
        return [self.reading.add(record) for record in self.lake.records(job).all_valid()]

    def forget(self) -> None:
        """Forget all names, so that the catalog is read again."""
        self._by_job.clear()
        self.reading.records.clear()

    def _tables_of(self, record: SnapshotRecord) -> dict[Parts, NamedTable]:
        tables: dict[Parts, NamedTable] = {}
        views: dict[Parts, NamedTable] = {}
        by_plan: dict[Parts, NamedTable] = {}  # as the plan of a Flink SQL job calls them
        labels = [operator.label for operator in record.operators]
        for operator in record.operators:
            if labels.count(operator.label) > 1:
                raise DamagedLakeError(
                    f"two operators of snapshot {record.snapshot_id!r} are called"
                    f" {operator.label!r}",
                    place=self.lake.directory.uri,
                    remedy="a name in SQL would mean the states of both: export the snapshot",
                )
            tables_by_path = {table.path: table for table in operator.tables}
            aliases = {each.name: each.alias for each in operator.states}
            for state, path in operator_tables_by_name(operator):
                table = tables_by_path[path]
                partitioning = (
                    Partitioning(operator.max_parallelism, table.partition_by)
                    if table.partition_by
                    else None
                )
                named = NamedTable(
                    record.job, operator.label, state, path, record.snapshot_id, partitioning
                )
                tables[operator.label, state] = named
                view = f"{state}{EVERY_SNAPSHOT}"
                views[operator.label, view] = NamedTable(
                    record.job, operator.label, view, path, record.snapshot_id, every_snapshot=True
                )
                for label in (operator.label, *filter(None, (operator.node,))):
                    for called in (state, *filter(None, (aliases.get(state),))):
                        by_plan[label, called] = named
                        by_plan[label, f"{called}{EVERY_SNAPSHOT}"] = views[operator.label, view]
        return by_plan | views | tables  # a state with the name of a view takes precedence

    def __iter__(self) -> Iterator[NamedTable]:
        """Yield all tables in the order of their names, except for the views of all snapshots."""
        for job in sorted(self.jobs):
            tables = sorted(self.of_job(job).items())
            yield from (
                table
                for (operator, state), table in tables
                if (operator, state) == (table.operator, table.state) and not table.every_snapshot
            )

    @cached_property
    def remedy(self) -> str:
        """The names of the tables, for the end of a message."""
        names = [table.name for table in self]
        more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
        return f"tables are: {', '.join(names[:SHOWN_NAMES])}{more}"

    def remedy_for(self, wanted: str) -> str:
        """Return the names of the tables, and the one that a wrong name resembles."""
        return f"{self.remedy}{did_you_mean(wanted, [table.name for table in self])}"


def operator_tables_by_name(operator: OperatorRecord) -> Iterator[tuple[str, str]]:
    """Yield the name in SQL of each state of an operator, and its table; timers share one."""
    keyed = [(state.name, state.table) for state in operator.states if state.kind != TIMERS]
    timers = {(TIMERS, state.table): None for state in operator.states if state.kind == TIMERS}
    others = [(other.name, other.table) for other in operator.operator_states]
    taken: set[str] = set()
    for name, table in (*keyed, *timers, *others):
        unique = name
        while unique in taken:
            unique += BESIDE
        taken.add(unique)
        yield unique, table


def find_folded(names: Mapping[Parts, Found], parts: Parts) -> Found | None:
    """Return the entry of a name: of exactly that name, or of the one that only differs in case.

    Raises:
        NotFoundError: Several names only differ in case.
    """
    if parts in names:
        return names[parts]
    folded = [part.lower() for part in parts]
    matches = [key for key in names if [part.lower() for part in key] == folded]
    if len(matches) > 1:
        raise NotFoundError(
            f"{shown_name(parts)} may be {' or '.join(map(shown_name, matches))}",
            remedy="write it with the capital letters that it has",
        )
    return names[matches[0]] if matches else None


def read_only(verb: str) -> ReadOnlyError:
    """Return the error of a statement that changes rows, outside of an edit."""
    return ReadOnlyError(
        f"{verb} needs --edit: a snapshot can't be changed, but `--edit SNAPSHOT --as NAME` makes"
        " another of it"
    )


def shown_name(parts: Parts) -> str:
    """Return a name of several parts as a query may write it, each in quotes if needed."""
    return ".".join(part if _PLAIN.fullmatch(part) else quoted(part) for part in parts)


def quoted(name: str) -> str:
    """Return a name in quotes for DuckDB."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def resolve_names(
    query: str, target: Callable[[Parts], str | None], dialect: Dialect = SPARK
) -> str:
    """Replace the names of tables in a query.

    Args:
        query: SQL.
        target: Returns the replacement of a name of several parts; None if it is not a table.
        dialect: The engine's syntax.
    """

    def replace(match: re.Match[str]) -> str:
        text = match[0]
        if match["skip"] is not None:
            return text
        if match["name"] is not None:
            resolved = target(parts_of(text))
            if resolved is not None:
                return resolved
        return _BACKTICK.sub(_in_double_quotes, text) if dialect.double_quotes else text

    return dialect.token.sub(replace, query)


def says_exact(query: str, dialect: Dialect = SPARK) -> bool:
    """Return whether a query names the column `is_exact`, which tables have for those that do."""
    text = dialect.token.sub(lambda match: " " if match["skip"] is not None else match[0], query)
    return re.search(rf"\b{IS_EXACT}\b", text, re.IGNORECASE) is not None


def exact_rows_sql(table: str, columns: Iterable[str]) -> str:
    """Return a query of a table's rows with `is_exact`: whether its columns hold all of a row.

    Args:
        table: The table, as the engine names it.
        columns: Its columns.
    """
    raw = [f"{name} IS NULL" for name in columns if name.startswith("raw_")]
    return f"SELECT *, {' AND '.join(raw) or 'true'} AS {IS_EXACT} FROM {table}"  # noqa: S608 - by the callers


_BACKTICK = re.compile(r'"(?:[^"]|"")+"|`((?:[^`]|``)+)`')


def parts_of(name: str) -> Parts:
    """Return the parts of a name, without their quotes."""
    return tuple(
        (part[1] or "").replace("``", "`") or (part[2] or "").replace('""', '"') or part[3]
        for part in _PART.finditer(name)
    )


def _in_double_quotes(match: re.Match[str]) -> str:
    if match[1] is None:
        return match[0]
    return quoted(match[1].replace("``", "`"))
