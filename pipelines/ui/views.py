"""The content of pages: snapshots of a lake or below a directory, rows, keys and differences.

SQL runs on a lake alone. So a savepoint whose rows are asked for is imported into a lake of this
process, once, which is removed at the end. With a mask, everything is read from such a lake, into
which only masked copies get: nothing shows an unmasked value.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

import statelake as sl
from statelake.pipelines.api import Lake, LakeSnapshot
from statelake.pipelines.find.growth import Growth
from statelake.pipelines.find.scanning import FoundSnapshot
from statelake.pipelines.keys import KeyRows, key_table, rows_of_key, with_lost_errors
from statelake.pipelines.lake.erase.audit_records import AuditRecord, broken_record
from statelake.pipelines.lake.erase.planning import ErasurePlan
from statelake.pipelines.lake.keys.key_history import KeyHistory
from statelake.pipelines.lake.query.session import Answer, QueryError, Session, memory_error
from statelake.pipelines.lake.query.table_names import operator_tables_by_name, quoted
from statelake.pipelines.lake.tables.records import AnyState, OperatorRecord, StateRecord
from statelake.pipelines.lake.verify.diffing import Differences
from statelake.pipelines.shown import TIMES, bytes_text, cell_text, json_rows, json_text
from statelake.pipelines.ui.options import Options
from statelake.pipelines.ui.query_pool import PLACE
from statelake.state_core.errors import (
    DeclarationError,
    EncodeError,
    NotFoundError,
    StateError,
)
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.files.held_directories import EXPORT_PREFIX, held_temporary
from statelake.state_core.formats.description import OperatorDescription
from statelake.state_core.formats.key_weights import StateWeights
from statelake.state_core.formats.layout.state_compatibility import Verdicts
from statelake.state_core.formats.metadata.state_files import METADATA_FILE
from statelake.state_core.formats.reader import Snapshot, open_snapshot
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.printable import Table, kind_text

# what is quoted in the words of an error may come from a value, and so may a long number
_QUOTED = re.compile(r"""(?<!\w)b?'(?:[^'\\]|\\.)*'|b?"(?:[^"\\]|\\.)*"|\d{5,}""")
TYPES_FILE = "types.yaml"
OPERATOR_STATE = "operator"  # the mode of a state that is not keyed
HERE = "."  # the name of a snapshot that is the directory itself
PAGE_ROWS = 100
QUERY_ROWS = 500
KEY_ROWS = 1000  # of one operator
HEAVIEST = 1000  # keys of a state that are weighed
EXAMPLES = 20
COMPLETED_TABLES = 50  # whose columns are offered while a query is typed
LARGEST = 64 << 20  # bytes of a page's rows: as text they take many times that
DOWNLOAD = 10  # times as long as a page
REMEMBERED = 16  # descriptions: each may have read all of a snapshot


@dataclass(frozen=True)
class Name:
    """The name of a snapshot in addresses.

    Attributes:
        job: Its job in the lake; empty below a directory.
        snapshot: Its id in the lake, or its path below the directory.
    """

    job: str
    snapshot: str


@dataclass(frozen=True)
class Listed:
    """A snapshot in the list of all.

    Attributes:
        name: Its name.
        job: The id or the name of its job.
        kind: Its format and kind.
        taken: When it was written.
        size: The bytes of its state.
        state: `restorable`, or why it is not; empty in a lake.
        reason: The problems of it.
    """

    name: Name
    job: str
    kind: str
    taken: datetime
    size: int
    state: str = ""
    reason: str = ""


@dataclass(frozen=True)
class SnapshotContents:
    """What a snapshot holds.

    Attributes:
        facts: Names and values of its properties.
        operators: Its operators, the largest first.
    """

    facts: tuple[tuple[str, str], ...]
    operators: tuple[OperatorDescription, ...]


@dataclass(frozen=True)
class Rows:
    """Rows of a state or of a query.

    Attributes:
        columns: The names of the columns.
        values: The rows, as JSON values.
        more: Whether there are more rows.
        of_state: Whether they are of a state, whose times are numbers.
    """

    columns: tuple[str, ...]
    values: list[tuple[Any, ...]]
    more: bool
    of_state: bool = False

    @property
    def cells(self) -> list[list[str]]:
        """The rows as text, for people."""
        names = ["" if name in TIMES and not self.of_state else name for name in self.columns]
        return [list(map(cell_text, names, row)) for row in self.values]

    @property
    def keys(self) -> list[str]:
        """The key of each row as text; an empty list without a column of keys."""
        at = self.columns.index("key") if "key" in self.columns else None
        return [] if at is None else [json_text(row[at]) for row in self.values]


@dataclass(frozen=True)
class Erasures:
    """The erasures of a lake, and their audits.

    Attributes:
        records: The records of erasures and audits, the newest first.
        broken: The first record that was changed; None if the chain is whole.
        unfinished: The requests that began and have not ended.
    """

    records: list[AuditRecord]
    broken: AuditRecord | None
    unfinished: list[str]


@dataclass(frozen=True)
class KeyState:
    """All that is held for a key.

    Attributes:
        tables: A table for each operator that holds something for it.
        history: Its changes through the snapshots of a lake; None for a directory, or without one.
        trouble: Why there is no history.
        problems: What could not be read that may hold something for it.
    """

    tables: list[Table]
    history: KeyHistory | None
    trouble: str = ""
    problems: tuple[str, ...] = ()


class Source:
    """A lake, or a directory with snapshots; it is closed at the end.

    Args:
        location: The lake, the directory, or one snapshot.
        options: What is shown, and how it is read.

    Attributes:
        title: Its location, without credentials.
        in_lake: Whether it is a lake.

    Raises:
        SnapshotError: The directory can't be listed.
        DeclarationError: It is a lake, which has the names and columns of its imports.
    """

    def __init__(self, location: str | os.PathLike[str], options: Options) -> None:
        self.location = os.fspath(location)
        self.options = options
        lake = Lake(self.location)
        self.in_lake = lake.catalog.exists()
        if self.in_lake and (options.plan is not None or options.decode):
            raise DeclarationError(
                "a plan, or what texts hold, for a lake: it has the columns of its imports",
                place=self.location,
                remedy="leave out --plan and --decode",
            )
        self._lake = lake
        self._found: dict[str, FoundSnapshot] = {}
        self._described: dict[tuple[Name, object], SnapshotContents] = {}
        self._copies: dict[tuple[Name, object], str] = {}
        self._copying = threading.Lock()
        self._ending = ExitStack()
        self._own: str | None = None
        self.title = lake.catalog.directory.uri if self.in_lake else self._scan()

    def close(self) -> None:
        """Remove the lake of this process."""
        self._ending.close()

    @property
    def masked(self) -> bool:
        """Return whether values are masked."""
        return self.options.mask is not None

    def _scan(self) -> str:
        scanned = sl.scan(self.location)
        self._found = {each.path or HERE: each for each in scanned.snapshots}
        return scanned.location

    # ------------------------------------------------------------------- which snapshots there are

    def listed(self, *, again: bool = True) -> list[Listed]:
        """Return the snapshots, the sound ones first, and of these the newest.

        Args:
            again: Whether a directory is scanned again.
        """
        if self.in_lake:
            return [
                Listed(
                    Name(each.job, each.snapshot_id), each.job, each.origin or each.format,
                    each.taken_at, each.state_bytes,
                )
                for each in reversed(self._lake.snapshots())
            ]  # fmt: skip
        if again:
            self._scan()
        return [
            Listed(
                Name("", path), each.job, kind_text(each.format, each.kind), each.time, each.bytes,
                each.state, each.reason,
            )
            for path, each in sorted(self._found.items(), key=lambda item: not item[1].restorable)
        ]  # fmt: skip

    def jobs(self) -> list[str]:
        """Return the jobs of the lake; an empty list for a directory."""
        return self._lake.jobs() if self.in_lake else []

    def beside(self, name: Name) -> list[tuple[Name, Name]]:
        """Return the other snapshots with which one may be compared: each pair by time."""
        listed = [each for each in self.listed(again=False) if each.name.job == name.job]
        ages = {each.name: (each.taken, -at) for at, each in enumerate(listed)}  # newest first
        return [
            (each.name, name) if ages[each.name] < ages[name] else (name, each.name)
            for each in listed
            if name in ages and each.name != name and each.state in ("", "restorable")
        ]

    def _place(self, name: Name) -> str:
        """Return the directory of a snapshot: only those that the scan found are opened.

        Raises:
            NotFoundError: There is no such snapshot.
        """
        if name.snapshot not in self._found:
            raise NotFoundError(
                f"no snapshot {name.snapshot!r}", place=self.title, remedy="see the list of all"
            )
        return self._found[name.snapshot].location

    def _version(self, name: Name) -> tuple[Name, object]:
        """Return a value that changes when the snapshot does.

        Raises:
            NotFoundError: There is no such snapshot.
        """
        if self.in_lake:
            record = self._lake.catalog.snapshot(name.job, name.snapshot)
            return name, (record.sequence, len(record.erased))
        return name, Directory(self._place(name)).confined().modified(METADATA_FILE)

    def opened(self, name: Name, *, partial: bool = False) -> Snapshot:
        """Return an open snapshot.

        Args:
            name: The snapshot.
            partial: Whether to open it as far as it can be.

        Raises:
            NotFoundError: There is no such snapshot.
            StateError: It can't be read, or not be masked.
        """
        if self.masked or self.in_lake:
            return self.stored(name)
        snapshot = open_snapshot(self._place(name), partial=partial, **self.options.reading)
        if self.options.values or not snapshot.unread:
            return snapshot
        return replace(
            snapshot,
            operators=tuple(
                replace(
                    each,
                    unread=tuple(
                        replace(part, error=without_values(part.error)) for part in each.unread
                    ),
                )
                for each in snapshot.operators
            ),
        )

    def stored(self, name: Name) -> LakeSnapshot:
        """Return a snapshot of the lake, or one that was imported for its rows.

        Raises:
            NotFoundError: There is no such snapshot.
            StateError: It can't be read, or not be masked.
        """
        if self.in_lake and not self.masked:
            return self._lake.job(name.job, engine="local")[name.snapshot]
        with self._copying:
            if self._own is None:
                self._own = str(self._ending.enter_context(held_temporary(EXPORT_PREFIX)))
            own = Lake(f"{self._own}/lake").job(name.job or "snapshots", engine="local")
            version = self._version(name)
            if version not in self._copies:
                copy = f"snapshot-{len(self._copies) + 1}"
                try:
                    self._import(name, copy)
                except StateError as error:
                    if self.masked:  # it is of the values as they are
                        raise without_values(error) from None
                    raise
                self._copies[version] = copy
            return own[self._copies[version]]

    def _import(self, name: Name, copy: str) -> None:
        own = Lake(f"{self._own}/lake").job(name.job or "snapshots", engine="local")
        reading = self.options.reading
        if self.options.mask is None:
            own.import_snapshot(self._place(name), copy, **reading)
            return
        target = f"{self._own}/{copy}"
        with ExitStack() as stack:
            if self.in_lake:
                plain_one = self._lake.job(name.job, engine="local")[name.snapshot]
            else:
                plain_one = stack.enter_context(sl.in_temporary_lake(self._place(name), **reading))
            taken = plain_one.taken_at
            plain_one.export(
                target, mask=self.options.mask, leave_out_opaque=self.options.leave_out_opaque
            )
        own.import_snapshot(target, copy, taken=taken, **{**reading, "allow_external": ()})

    # ----------------------------------------------------------------------------- what one holds

    def contents(self, name: Name) -> SnapshotContents:
        """Return what a snapshot holds, as `statelake inspect` counts it.

        Raises:
            StateError: It can't be read.
        """
        remembered = not self.in_lake or self.masked  # elsewhere it is quick, and may be edited
        version = self._version(name) if remembered else (name, None)
        known = self._described.get(version)
        if known is not None:
            return known
        snapshot = self.opened(name, partial=True)
        if isinstance(snapshot, LakeSnapshot):
            operators = snapshot.describe().operators
            facts = [
                ("Taken", f"{snapshot.taken_at:%Y-%m-%d %H:%M} UTC"),
                ("Kind", kind_text(snapshot.format, snapshot.kind)),
                ("Entries", f"{snapshot.record.entries:,}"),
                ("Keys and values", bytes_text(snapshot.record.state_bytes)),
                # by people, who may have named a key
                ("Note", snapshot.record.note if self.options.values else ""),
            ]
        else:
            described = snapshot.describe()
            operators = described.operators
            if not self.options.values:
                operators = tuple(map(_without_words, operators))
            facts = [
                ("Taken", f"{snapshot.taken_at:%Y-%m-%d %H:%M} UTC"),
                ("Kind", described.kind_text),
                ("Checkpoint", str(described.checkpoint_id)),
                ("Version of _metadata", str(described.metadata_version)),
                ("Compression", described.compression),
                ("Size as stored", bytes_text(described.total_bytes)),
            ]
        contents = SnapshotContents(
            tuple((fact, value) for fact, value in facts if value),
            tuple(sorted(operators, key=lambda each: (-each.total_bytes, each.label))),
        )
        if remembered:
            while len(self._described) >= REMEMBERED:
                self._described.pop(next(iter(self._described)), None)
            self._described[version] = contents
        return contents

    def key_rows(
        self, name: Name, text: str, problems: list[str], **selected: str | None
    ) -> list[KeyRows]:
        """Return the rows that each operator holds for a key.

        Args:
            name: The snapshot.
            text: The key.
            problems: Receives the parts that may have the key and could not be read; for rows, when
                they are read.
            selected: The fields of `Selection`.

        Raises:
            EncodeError: No operator can have that key.
            StateError: The snapshot can't be read.
        """
        snapshot = self.opened(name, partial=True)
        problems += snapshot.problems_of(**selected, keyed=True)
        parts = rows_of_key(snapshot, text, **selected)
        return [with_lost_errors(rows, lambda error: self._tell(error, problems)) for rows in parts]

    def _tell(self, error: StateError, problems: list[str]) -> None:
        problems.append(str(error if self.options.values else without_values(error)))

    def key(self, name: Name, text: str) -> KeyState:
        """Return all that is held for a key, as `statelake get` and `history` show it.

        Raises:
            EncodeError: No operator can have that key.
            StateError: The snapshot can't be read.
        """
        problems: list[str] = []
        key_rows = self.key_rows(name, text, problems)
        tables = [table for each in key_rows if (table := key_table(each, KEY_ROWS)).rows]
        if not self.in_lake or self.masked:
            trouble = "A lake whose values are not masked has one."
            return KeyState(tables, None, trouble, tuple(problems))
        try:
            history = self._lake.job(name.job, engine="local").history(text)
            return KeyState(tables, history, problems=tuple(problems))
        except StateError as error:  # another snapshot is damaged
            return KeyState(tables, None, str(error), tuple(problems))

    def top(
        self, name: Name, operator: str, count: int, problems: list[str]
    ) -> dict[str, StateWeights]:
        """Return the heaviest keys of each keyed state of an operator, as `statelake top`.

        Args:
            name: The snapshot.
            operator: The operator.
            count: The number of keys of each state.
            problems: Receives the parts that could not be read.

        Raises:
            NotFoundError: There is no such operator with keyed state.
            StateError: The snapshot can't be read.
        """
        snapshot = self.opened(name, partial=True)
        problems += snapshot.problems_of(operator, keyed=True)
        weighed = snapshot.top(count, operator=operator, problems=problems)
        return {state: each for states in weighed.values() for state, each in states.items()}

    def diff(self, earlier: Name, later: Name, **words: Any) -> Differences:
        """Return the states that differ, as `statelake diff` shows them by these options.

        Raises:
            NotFoundError: They are not of one job.
            StateError: One can't be read.
        """
        if earlier.job != later.job:
            raise NotFoundError(
                "they are of two jobs", remedy="compare two snapshots of the same job"
            )
        before, after = self.stored(earlier), self.stored(later)
        examples = EXAMPLES if self.options.values else 0
        states = before.diff(after.name, examples=examples, **words)
        return Differences(
            earlier.snapshot, later.snapshot, [each for each in states if each.status != "same"]
        )

    def growth(self, job: str, **words: Any) -> Growth:
        """Return how a job's state grew over the snapshots of the lake, by these options.

        Raises:
            NotFoundError: There is no such job, or it has fewer than two snapshots.
        """
        if job not in self.jobs():
            raise NotFoundError(f"no job {job!r}", place=self.title, remedy="see the list of all")
        keys = self.options.values and not self.masked
        return self._lake.job(job, engine="local").growth(**words, keys=keys)

    def faults(self, name: Name) -> list[Any]:
        """Return the faults of a snapshot, of which all is read, as `statelake check integrity`.

        Raises:
            NotFoundError: There is no such snapshot.
        """
        if self.in_lake or self.masked:
            return self.stored(name).check_integrity()
        report = sl.check_integrity(
            self._place(name), allow_external=self.options.allow_external, uids=self.options.uids
        )
        return [fault.to_json() for fault in report.faults]

    def checked(self, name: Name, types: str, **words: Any) -> Verdicts:
        """Return whether a new job could use each state, as `statelake check compatibility`.

        Args:
            name: The snapshot.
            types: The types of the new job, as YAML.
            words: The options of `CheckCompatibility`.

        Raises:
            StateError: The types can't be read, or the snapshot.
        """
        with held_temporary(EXPORT_PREFIX) as path:
            Directory(path).confined().write(TYPES_FILE, types.encode())
            try:
                return self.stored(name).check_compatibility(f"{path}/{TYPES_FILE}", **words)
            except EncodeError as error:  # names no directory of ours
                place = error.place.removeprefix(f"{path}/")
                raise EncodeError(error.problem, place=place, remedy=error.remedy) from error

    def erasures(self) -> Erasures:
        """Return what was erased from the lake.

        Raises:
            NotFoundError: It is no lake.
            DamagedLakeError: A record can't be read.
        """
        if not self.in_lake:
            raise NotFoundError(
                "no erasures", place=self.title, remedy="a lake has them, a directory does not"
            )
        records = self._lake.audit_records()
        return Erasures(
            records[::-1],
            broken_record(records),
            sorted(self._lake.catalog.version().claims.erasures),
        )

    def erasure_plan(self, key: str) -> ErasurePlan:
        """Return what an erasure of a key would change; nothing is written.

        Raises:
            StateError: It is no lake, values are masked, or no operator can have that key.
        """
        if not self.in_lake or self.masked:
            raise HiddenError("an erasure is planned in a lake whose values are not masked")
        return self._lake.erase("this", keys=[key]).plan()

    # ------------------------------------------------------------------------------------- by SQL

    @contextmanager
    def _session(self, name: Name, times: int = 1) -> Iterator[tuple[LakeSnapshot, Session]]:
        stored, limits = self.stored(name), self.options.limits
        if limits.seconds is not None:
            limits = replace(limits, seconds=times * limits.seconds)
        lake, job, place = stored.job.lake, stored.job.name, PLACE.get()
        with lake.session(as_of=stored.name, job=job, limits=limits) as session, ExitStack() as own:
            if place is not None:
                own.enter_context(place.holding(session))
            try:
                yield stored, session
            except MemoryError as error:
                raise memory_error(str(error)) from error

    def rows(
        self, name: Name, operator: str, state: str, where: str, page: int, mode: str = ""
    ) -> Rows:
        """Return a page of a state's rows, in the order of its columns.

        Args:
            name: The snapshot.
            operator: The uid of the operator, or else its id.
            state: The state's name.
            where: A condition in SQL; empty for all rows.
            page: The number of the page, from 0.
            mode: `OPERATOR_STATE` if no keyed state of that name is meant.

        Raises:
            NotFoundError: There is no such state.
            QueryError: The condition is no SQL, or takes too long.
        """
        with self._session(name) as (stored, session):
            record, called, queue = _table(stored, operator, state, mode)
            table = ".".join(map(quoted, (stored.job.name, operator, called)))
            conditions, offset = [queue] if queue else [], page * PAGE_ROWS
            if where.strip():
                conditions.append(f"(\n{where}\n)")
            elif isinstance(record, StateRecord) and record.key_groups:
                groups, offset = _groups_of_rows(record, offset, PAGE_ROWS + 1)
                conditions.append(groups)
            condition = f" WHERE {' AND '.join(conditions)}" if conditions else ""
            query = (
                f"SELECT * FROM {table}{condition} ORDER BY ALL"  # noqa: S608 - quoted, read only
                f" LIMIT {PAGE_ROWS + 1} OFFSET {offset}"
            )
            return replace(_rows_of(session.query(query), PAGE_ROWS), of_state=True)

    def query(self, name: Name, query: str) -> Rows:
        """Return the first rows of a query over the tables of a snapshot.

        Raises:
            QueryError: It is refused, or takes too long.
        """
        with self._session(name) as (_, session):
            return _rows_of(session.query(query, QUERY_ROWS + 1), QUERY_ROWS)

    def tables(self, name: Name) -> dict[str, list[str]]:
        """Return the tables of a snapshot as a query may name them, the first ones with columns."""
        with self._session(name) as (_, session):
            columns = {
                table.name: session.columns_in(table.name)
                for table in islice(session.names, COMPLETED_TABLES)
            }
            return {table: columns.get(table, []) for table in session.tables()}

    @contextmanager
    def answer(self, name: Name, query: str) -> Iterator[Answer]:
        """Run a query for all its rows, which are read while they are consumed.

        Raises:
            QueryError: It is refused, or takes too long.
        """
        with self._session(name, DOWNLOAD) as (_, session):
            yield session.query(query)


def _groups_of_rows(state: StateRecord, first: int, count: int) -> tuple[str, int]:
    """Return where rows are in the order of key groups, so that no others are read and sorted.

    Args:
        state: The state.
        first: The number of the first row, from 0.
        count: The number of rows.

    Returns:
        The condition that they meet, and how many rows before the first meet it, too.
    """
    groups = sorted(state.key_groups, key=lambda each: each.key_group)
    ends = np.cumsum([each.entries for each in groups])
    low, high = np.searchsorted(ends, [first, first + count - 1], "right").tolist()
    covering = groups[low : high + 1]
    if not covering:
        return "false", 0
    before = int(ends[low]) - covering[0].entries
    return f"key_group BETWEEN {covering[0].key_group} AND {covering[-1].key_group}", first - before


def _table(stored: LakeSnapshot, operator: str, state: str, mode: str) -> tuple[AnyState, str, str]:
    """Return a state, the name of its table, and what tells a queue of timers from others.

    Raises:
        NotFoundError: There is no such operator or state.
    """
    for record in stored.record.operators:
        if record.label != operator:
            continue
        names = {path: name for name, path in operator_tables_by_name(record)}
        states = record.operator_states if mode == OPERATOR_STATE else record.all_states
        for each in states:
            if each.name == state and each.table in names:
                return each, names[each.table], _queue(stored, record, state)
    raise NotFoundError(f"no state {operator}/{state} with rows", remedy="see the snapshot's page")


def _queue(stored: LakeSnapshot, record: OperatorRecord, state: str) -> str:
    """Return the condition of a queue of timers, which may share its table; empty for others."""
    timers = (each for each in record.states if each.kind == StateKind.TIMERS.value)
    if state not in (each.name for each in timers):
        return ""
    states = stored.operator(record.operator_id).keyed_states
    words = next(each for each in states if each.name == state).timer_service
    domain, service = (word.replace("'", "''") for word in words)
    return f"domain = '{domain}' AND service = '{service}'"


def _rows_of(answer: Answer, limit: int) -> Rows:
    """Return the first rows of an answer, without columns of exact bytes that are empty."""
    table = pa.Table.from_batches(answer.first(limit + 1), answer.schema)
    if table.nbytes > LARGEST:
        raise QueryError(
            f"its rows have {bytes_text(table.nbytes)}, and are shown up to {bytes_text(LARGEST)}",
            remedy="ask for fewer columns or rows, or for a part of them: substr, list_slice",
        )
    shown = [
        at
        for at, (field, column) in enumerate(zip(table.schema, table.columns, strict=True))
        if not field.name.startswith("raw_") or column.null_count < len(column)
    ]
    names = tuple(table.schema.field(at).name for at in shown)
    values = list(json_rows(table.select(shown).slice(0, limit)))
    return Rows(names, values, table.num_rows > limit)


class HiddenError(StateError):
    """The requested data is not shown here."""


UNSAID = "can't be read (why is left out, as it may have values)"


def without_values(error: StateError) -> StateError:
    """Return an error to show where keys and values are not shown.

    Its words may have a value, with or without quotes. So they are told only of names that are not
    there, and of types that were given; of all others the kind and the place.
    """
    if isinstance(error, (NotFoundError, HiddenError)):
        return error
    if error.place.startswith(TYPES_FILE):
        problem, remedy = (_QUOTED.sub("…", text) for text in (error.problem, error.remedy))
        return StateError(problem, place=error.place, remedy=remedy)
    kind = (type(error).__doc__ or "").partition("\n")[0].rstrip(".")
    text = f"{kind[:1].lower()}{kind[1:]}" if type(error) is not StateError else "it is refused"
    return StateError(
        f"{text} (its words are left out, as they may have values)", place=error.place,
        remedy="the command for it says them",
    )  # fmt: skip


def _without_words(operator: OperatorDescription) -> OperatorDescription:
    """Return the description of an operator without the words of errors, which may have values."""
    keyed, others = (
        tuple(
            replace(each, problem=f"{each.name} {UNSAID}") if each.problem else each
            for each in states
        )
        for states in (operator.keyed_states, operator.operator_states)
    )
    problem = operator.problem if operator.unread else operator.problem and UNSAID
    return replace(operator, keyed_states=keyed, operator_states=others, problem=problem)


def refuse_values(options: Options) -> None:
    """Refuse to show keys and values where that was forbidden.

    Raises:
        HiddenError: They are not shown.
    """
    if not options.values:
        raise HiddenError(
            "keys and values are not shown here", remedy="start it without --no-values"
        )
