"""What a report says of a snapshot, as values: nothing here knows where they are from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from statelake.state_core.model.description import OperatorDescription

DETAILED = 50  # operators with details: a page that nobody can scroll through helps nobody
DETAILED_STATES = 200  # of one operator


@dataclass(frozen=True)
class ReportedFault:
    """Something that is wrong: what kind of thing, where, and what to do about it."""

    kind: str
    where: str
    problem: str
    remedy: str


@dataclass(frozen=True)
class Integrity:
    """What came of reading everything.

    Attributes:
        faults: All faults.
        unchecked: What nothing is said about, and why.
    """

    faults: tuple[ReportedFault, ...]
    unchecked: tuple[str, ...] = ()


@dataclass(frozen=True)
class GrowthStep:
    """A snapshot of the job.

    Attributes:
        snapshot_id: Its id.
        taken_at: When the job took it.
        entries: In all states.
        state_bytes: The bytes of all keys and values.
        written_bytes: How much it added to the lake.
    """

    snapshot_id: str
    taken_at: datetime
    entries: int
    state_bytes: int
    written_bytes: int


@dataclass(frozen=True)
class Report:
    """A snapshot as a report shows it.

    Attributes:
        title: What it is called.
        facts: What is known of it as a whole: names and values.
        operators: Its operators, the largest first; the first few with counts and heaviest keys.
        integrity: What is wrong with it; None if nobody looked.
        growth: The job's snapshots, the oldest first; empty of a savepoint.
        snapshot_id: Which of these it is.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    operators: tuple[OperatorDescription, ...]
    integrity: Integrity | None = None
    growth: tuple[GrowthStep, ...] = ()
    snapshot_id: str = ""
