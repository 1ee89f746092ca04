"""Differences in the state of one query between versions of Flink.

Each was found by the plans that Flink 1.18 to 2.3 compile of the same queries, and by the
savepoints of their jobs. The ids of nodes, and attributes that a version leaves out where they have
their default, differ too, and mean nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

OLD_PLAN = "run the plan that the old Flink compiled, in the new one"
FIRST_FILTERS = (2, 1)  # and later releases of 1.20 and 2.0, which plans do not tell
UNFILTERED = "before Flink 2.1 a FILTER on what is the first column counts all rows (FLINK-30687)"


@dataclass(frozen=True)
class VersionChange:
    """Something that a version of Flink keeps otherwise.

    Attributes:
        since: The first version that does.
        what: What it does.
        remedy: What keeps the state that is there.
    """

    since: tuple[int, int]
    what: str
    remedy: str

    def __str__(self) -> str:
        """What changed, and what to do."""
        version = ".".join(map(str, self.since))
        return f"Since Flink {version} {self.what}: {self.remedy}"


FIRST_ROWS = VersionChange(
    (2, 1), "first rows by event time wait for the watermark, in states of other names", OLD_PLAN
)
FIRST_ROWS_SENT = (
    "since Flink 2.1 first rows by event time wait for the watermark: of a key that has a row, it"
    " was sent, and an earlier one that comes late no longer takes its place. If it is to, run the"
    " plan that the old Flink compiled, in the new one"
)
UNBOUNDED_OVER = VersionChange(
    (2, 1),
    "rows that wait in an unbounded OVER by event time have other timers",
    "compile the new plan with 'table.exec.unbounded-over.version' = '1'",
)
FILTERED_CHANGES = VersionChange(
    (2, 1),
    "a table's changes are filtered before they are held, so that rows that do not pass would be"
    " taken back, and no operator has counted them",
    OLD_PLAN,
)
RETRACTING_SINKS = VersionChange(
    (2, 2),
    "a sink that takes retractions is sent all of them, and no rows are held to settle which of a"
    " key stays",
    OLD_PLAN,
)
