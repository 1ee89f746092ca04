"""The costs of commits: a Delta table `<job>/_commits` in the lake, one row for each report.

A task counts from its start; a row has the increase since the previous row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import DeltaError

from statelake.pipelines.lake.tables.delta_commit import DeltaCommit, until_committed
from statelake.pipelines.lake.tables.names import commits_table, new_edited_file
from statelake.pipelines.lake.tables.tables import create_table, open_table, read_rows
from statelake.state_core.errors import DamagedLakeError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.runtime.commit import CommitMeasures
from statelake.state_core.runtime.commit.records.clocks import now_millis

COUNTED = (
    "commits", "commits_skipped", "commits_blocked", "snapshot_ms", "upload_ms", "bytes_sent",
    "bytes_saved", "files_sent", "files_saved", "bytes_restored", "changes_restored",
)  # fmt: skip
RUNS = "runs"
SCHEMA = pa.schema(
    [
        ("task", pa.string()),
        ("reported_at", pa.timestamp("us", "UTC")),
        *((name, pa.int64()) for name in COUNTED),
    ]
)


@dataclass(frozen=True, slots=True)
class CommitReport:
    """The costs of a task's commits since its last report.

    Attributes:
        task: Its name.
        reported_at: The time of the report, in milliseconds since 1970.
        counts: The counts, by the names of `CommitMeasures`.
    """

    task: str
    reported_at: int
    counts: dict[str, int]


class CommitReports:
    """The reports of a job's tasks.

    Args:
        lake: The lake's directory.
        job: The job's name.
        clock: Milliseconds since 1970.
    """

    def __init__(self, lake: Directory, job: str, clock: Callable[[], int] = now_millis) -> None:
        self.directory = lake.confined().child(commits_table(job))
        self.clock = clock
        self._told: dict[str, dict[str, int]] = {}
        self._lock = Lock()

    def append(self, measures: Iterable[tuple[str, CommitMeasures]]) -> None:
        """Add a row for every task that counted something; all of them are one commit.

        Args:
            measures: The measures of each task, the same object every time.
        """
        now = self.clock()
        with self._lock:
            reports = []
            for task, counted in measures:
                counts = counted.as_dict()
                before = self._told.get(task, {})
                since = {name: counts.get(name, 0) - before.get(name, 0) for name in COUNTED}
                if any(since.values()):
                    reports.append(CommitReport(task, now, since))
                    self._told[task] = counts
            if reports:
                self._write(reports)

    def append_counts(self, counts: Mapping[str, Mapping[str, int]], version: int) -> None:
        """Add a row for every task of a run, only once however often this is called.

        Args:
            counts: The counts of each task, by the names of `CommitMeasures`.
            version: The run's number; one that is not above the last was added before.
        """
        now = self.clock()
        reports = [
            CommitReport(task, now, {name: counted.get(name, 0) for name in COUNTED})
            for task, counted in counts.items()
        ]
        if reports:
            self._write(reports, version)

    def read(self, since: int = 0) -> list[CommitReport]:
        """Return the reports since a time, in milliseconds since 1970, in their order."""
        table = open_table(self.directory)
        if table is None:
            return []
        begin = pa.scalar(since * 1000, pa.timestamp("us", "UTC"))
        condition = ds.field("reported_at") >= begin
        try:
            rows = read_rows(table, self.directory, SCHEMA, condition)
            if any(column.null_count for column in rows.columns):
                raise pa.ArrowInvalid("a report with a count that is missing")
        except (DeltaError, pa.ArrowException, OSError) as error:
            raise DamagedLakeError(
                f"the reports can't be read: {error}", place=self.directory.uri
            ) from error
        rows = rows.sort_by([("reported_at", "ascending"), ("task", "ascending")])
        times = rows.column("reported_at").cast(pa.int64()).to_pylist()
        counts = rows.select(COUNTED).to_pylist()
        tasks = rows.column("task").to_pylist()
        return [
            CommitReport(task, at // 1000, counted)
            for task, at, counted in zip(tasks, times, counts, strict=True)
        ]

    def _write(self, reports: Sequence[CommitReport], run: int | None = None) -> None:
        """Add rows; those of a run only if neither it nor a later run has rows yet."""
        columns = [
            [report.task for report in reports],
            [report.reported_at * 1000 for report in reports],
            *([report.counts[name] for report in reports] for name in COUNTED),
        ]
        arrays = [pa.array(c, field.type) for c, field in zip(columns, SCHEMA, strict=True)]
        rows = pa.Table.from_arrays(arrays, schema=SCHEMA)
        moment = [] if run is None else [Transaction(RUNS, run, reports[0].reported_at)]

        def commit() -> bool:
            table = open_table(self.directory)
            recorded = None if table is None else table.transaction_version(RUNS)
            if run is not None and recorded is not None and run <= recorded:
                return True
            table = table or create_table(self.directory, SCHEMA, name="commits")
            properties = CommitProperties(app_transactions=moment)
            change = DeltaCommit(self.directory, SCHEMA, None, properties)
            change.add_rows(new_edited_file(table.version() + 1), rows)
            change.write(table)
            return True

        until_committed(commit, self.directory)


def total(reports: Iterable[CommitReport]) -> dict[str, int]:
    """Return the sum of all counts."""
    listed = list(reports)
    return {name: sum(report.counts[name] for report in listed) for name in COUNTED}
