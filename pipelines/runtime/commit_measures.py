"""The costs of commits: a Delta table `<job>/_commits` in the lake, one row for each report.

A row has what a task counted in one run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import DeltaError

from statelake.pipelines.lake.tables.delta_commit import DeltaCommit, until_committed
from statelake.pipelines.lake.tables.names import commits_table, new_edited_file
from statelake.pipelines.lake.tables.tables import create_table, open_table, read_rows
from statelake.state_core.errors import DamagedLakeError
from statelake.state_core.files.filesystem import Directory
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
    """The costs of a task's commits in a run.

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

    def append(self, counts: Mapping[str, Mapping[str, int]], run: int) -> None:
        """Add a row for every task of a run, only once however often this is called.

        Args:
            counts: The counts of each task, by the names of `CommitMeasures`.
            run: The run's number; one that is not above the last was added before.
        """
        if not counts:
            return
        now = self.clock()
        columns = [
            list(counts),
            [now * 1000] * len(counts),
            *([counted.get(name, 0) for counted in counts.values()] for name in COUNTED),
        ]
        arrays = [pa.array(c, field.type) for c, field in zip(columns, SCHEMA, strict=True)]
        rows = pa.Table.from_arrays(arrays, schema=SCHEMA)

        def commit() -> bool:
            table = open_table(self.directory)
            recorded = None if table is None else table.transaction_version(RUNS)
            if recorded is not None and run <= recorded:
                return True
            table = table or create_table(self.directory, SCHEMA, name="commits")
            properties = CommitProperties(app_transactions=[Transaction(RUNS, run, now)])
            change = DeltaCommit(self.directory, SCHEMA, None, properties)
            change.add_rows(new_edited_file(table.version() + 1), rows)
            change.write(table)
            return True

        until_committed(commit, self.directory)

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


def total(reports: Iterable[CommitReport]) -> dict[str, int]:
    """Return the sum of all counts."""
    listed = list(reports)
    return {name: sum(report.counts[name] for report in listed) for name in COUNTED}
