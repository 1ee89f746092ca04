"""What a report says of a snapshot, as values: nothing here knows where they are from."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from statelake.state_core.formats.key_weights import HeavyKey

__all__ = [
    "DETAILED",
    "DETAILED_STATES",
    "GrowthStep",
    "I64Array",
    "Integrity",
    "Report",
    "ReportedFault",
    "ReportedOperator",
    "ReportedState",
]

DETAILED = 50  # operators with details: a page that nobody can scroll through helps nobody
DETAILED_STATES = 200  # of one operator
I64Array: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ReportedState:
    """A keyed state, a queue of timers, or an operator state.

    Attributes:
        name: Its name.
        kind: `value`, `list`, ..., `timers`; of operator state `split`, `union` or `broadcast`.
        namespace_type: The Java type of its namespaces; empty for operator state.
        value_type: The Java type of its values; of maps with that of their keys before it.
        column_type: The Arrow type in which values are read, with the fields of POJOs and rows.
        with_ttl: Whether each value has the time of its last access.
        entries: Entries, or elements of operator state.
        size: Bytes of keys and values; None if they are not known by state.
        heaviest: The keys with the most bytes, the heaviest first.
    """

    name: str
    kind: str
    namespace_type: str
    value_type: str
    column_type: str
    with_ttl: bool
    entries: int
    size: int | None
    heaviest: tuple[HeavyKey, ...] = ()


@dataclass(frozen=True)
class ReportedOperator:
    """An operator.

    Attributes:
        label: Its uid, or else its id.
        name: Its name; may be empty.
        parallelism: The number of its subtasks.
        max_parallelism: The number of its key groups.
        size: The bytes of all its state: as stored in a savepoint, of keys and values in a lake.
        key_type: The Java type of its keys; empty if it has no keyed state.
        state_count: How many states it has; `states` may have fewer.
        states: Its states.
        entries: The entries of keyed state by key group; empty if it was left out.
        sizes: The bytes of their keys and values.
        other: Bytes that are no state with a name: raw, in flight, of the coordinator.
        problem: Why its state could not be read; empty if it could.
    """

    label: str
    name: str
    parallelism: int
    max_parallelism: int
    size: int
    key_type: str
    state_count: int
    states: tuple[ReportedState, ...] = ()
    entries: I64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    sizes: I64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    other: tuple[tuple[str, int], ...] = ()
    problem: str = ""


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
        operators: Its operators, the largest first; those behind the first few without details.
        integrity: What is wrong with it; None if nobody looked.
        growth: The job's snapshots, the oldest first; empty of a savepoint.
        snapshot_id: Which of these it is.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    operators: tuple[ReportedOperator, ...]
    integrity: Integrity | None = None
    growth: tuple[GrowthStep, ...] = ()
    snapshot_id: str = ""
