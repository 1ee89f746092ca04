"""The values of a report of a snapshot, wherever it is stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from statelake.state_core.formats.description import OperatorDescription
from statelake.state_core.printable import Printed, bytes_text, count_text, public_location

if TYPE_CHECKING:
    from statelake.pipelines.find.growth import Growth

DETAILED = 50  # operators with details, so that the page stays readable
DETAILED_STATES = 200  # the states of one operator with details


@dataclass(frozen=True)
class ReportedFault:
    """A fault: its kind, its place, its problem and the remedy."""

    kind: str
    where: str
    problem: str
    remedy: str


@dataclass(frozen=True)
class Integrity:
    """The result of reading all state.

    Attributes:
        faults: All faults.
        unchecked: The parts that were not checked, each with the reason.
    """

    faults: tuple[ReportedFault, ...]
    unchecked: tuple[str, ...] = ()


@dataclass(frozen=True)
class GrowthStep:
    """A snapshot of the job, as a step of its growth.

    Attributes:
        snapshot_id: Its id.
        taken_at: When the job took it.
        entries: In all states.
        state_bytes: The bytes of all keys and values.
        written_bytes: The bytes that it added to the lake.
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
        title: The name of the snapshot.
        facts: Names and values of the snapshot's properties.
        operators: Its operators, the largest first; the first few with counts and heaviest keys.
        integrity: The result of the check; None if it was not checked.
        growth: The job's snapshots, the oldest first; empty for a savepoint.
        snapshot_id: The id of the snapshot among these.
        grown: How the job's state grew over them, and why; None of fewer than two.
        growth_problem: The reason why that is not known.
        problems: The parts that could not be read, if faults were not checked.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    operators: tuple[OperatorDescription, ...]
    integrity: Integrity | None = None
    growth: tuple[GrowthStep, ...] = ()
    snapshot_id: str = ""
    grown: Growth | None = None
    growth_problem: str = ""
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReportResult(Printed):
    """A page that was written.

    Attributes:
        path: Its file.
        bytes: The size of the page.
        operators: The number of operators that it shows.
        faults: The number of faults; None if nothing was checked.
        problems: What could not be read, if nothing was checked: the page has all else.
    """

    path: str
    bytes: int
    operators: int
    faults: int | None
    problems: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield the text form: lines and tables."""
        verdict = "" if self.faults is None else f"; {count_text(self.faults, 'fault')}"
        yield f"wrote {public_location(self.path)}: {bytes_text(self.bytes)}{verdict}"
