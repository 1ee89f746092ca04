"""Findings of a check: faults, unchecked parts, losses of a salvage, and the amount checked.

Equal faults of neighbouring key groups are joined into one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeVar

from statelake.state_core.errors import StateError, UnreachableFileError
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.printable import JsonFields, bytes_text

Value = TypeVar("Value")


def most_frequent(values: Iterable[Value]) -> Value:
    """Return the most frequent value; of several, the first."""
    listed = list(values)
    return max(listed, key=listed.count)


class FaultKind(Enum):
    """The kind of a fault."""

    METADATA = "metadata"
    FILE = "file"
    HEADER = "header"
    RANGE = "key groups"
    KEY_GROUP = "key group"
    KEY = "key"
    ENTRY = "entry"
    OPERATOR_STATE = "operator state"
    BROADCAST = "broadcast"


@dataclass(frozen=True)
class Place:
    """A place in the job, as far as it is known.

    Attributes:
        operator: The operator's uid, or otherwise its name or id; empty for the whole snapshot.
        subtask: The subtask's index.
        state: The state's name.
        key_groups: The key groups.
    """

    operator: str = ""
    subtask: int | None = None
    state: str = ""
    key_groups: KeyGroupRange | None = None

    def __str__(self) -> str:
        parts = [f"operator {self.operator}"] if self.operator else []
        if self.subtask is not None:
            parts.append(f"subtask {self.subtask}")
        if self.state:
            parts.append(f"state {self.state!r}")
        if self.key_groups is not None and len(self.key_groups) == 1:
            parts.append(f"key group {self.key_groups.first}")
        elif self.key_groups is not None:
            parts.append(f"key groups {self.key_groups}")
        return ", ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        groups = self.key_groups
        return {
            "operator": self.operator or None,
            "subtask": self.subtask,
            "state": self.state or None,
            "key_groups": None if groups is None else [groups.first, groups.last],
        }


@dataclass(frozen=True)
class Fault(JsonFields):
    """A fault of a snapshot.

    Attributes:
        kind: Its kind.
        where: Its place in the job.
        place: Its file, and the position there.
        problem: The problem; for several entries, the problem of the first.
        remedy: The remedy.
        entries: The number of entries or elements with the fault, if known.
        unreachable: Whether the file can't be read but may be sound: access is denied, or its store
            does not answer.
    """

    JSON = ("kind", "*where", "place", "problem", "remedy", "entries")

    kind: FaultKind
    where: Place
    place: str
    problem: str
    remedy: str
    entries: int | None = None
    unreachable: bool = False

    def __str__(self) -> str:
        error = StateError(self.problem, place=self.place, remedy=self.remedy)
        return str(error.within(str(self.where)) if str(self.where) else error)


@dataclass(frozen=True)
class Unchecked:
    """A part that could not be checked.

    Attributes:
        where: Its place.
        why: The reason.
        unread: Whether entries in it could not even be located.
    """

    JSON = ("*where", "why")

    where: Place
    why: str
    unread: bool = False

    def __str__(self) -> str:
        return str(StateError(self.why, place=str(self.where)))


@dataclass(frozen=True)
class Loss(JsonFields):
    """A part that a salvage did not write.

    Attributes:
        where: The place of the lost part.
        why: The reason.
        entries: The number of entries or elements, if known.
        size: The largest possible number of bytes, as stored, if known.
    """

    JSON = ("*where", "why", "entries", "bytes=size")

    where: Place
    why: str
    entries: int | None = None
    size: int | None = None

    def __str__(self) -> str:
        parts = [] if self.entries is None else [f"{self.entries} entries"]
        parts += [] if self.size is None else [f"at most {bytes_text(self.size)}"]
        amount = ", ".join(parts) or "an unknown amount"
        return f"{self.where or 'the snapshot'}: {amount} ({self.why})"


@dataclass
class Checked:
    """The amount that was checked.

    Attributes:
        handles: Handles that should lead to bytes.
        files: Files of those handles.
        size: The bytes of those handles.
        key_groups: Key groups with data, of every operator.
        entries: Sound entries of keyed state.
        values: Values of these entries that were decoded to the last byte.
        hashed: Keys whose key group was verified by their hash.
        elements: Sound elements of operator state; a copy of a broadcast state counts as one.
    """

    handles: int = 0
    files: int = 0
    size: int = 0
    key_groups: int = 0
    entries: int = 0
    values: int = 0
    hashed: int = 0
    elements: int = 0

    def add(self, other: Checked) -> None:
        """Add another's sums."""
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)


@dataclass
class Findings:
    """The findings so far."""

    faults: list[Fault] = field(default_factory=list)
    unchecked: dict[Unchecked, None] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    checked: Checked = field(default_factory=Checked)

    def add(self, other: Findings) -> None:
        """Add another's findings."""
        for fault in other.faults:
            self._append(fault)
        self.unchecked.update(other.unchecked)
        self.losses += other.losses
        self.checked.add(other.checked)

    def fault(
        self, kind: FaultKind, where: Place, error: StateError, entries: int | None = None
    ) -> None:
        """Note a fault, described by an error."""
        remedy = error.remedy or "the file is damaged or was not copied whole: fetch it again"
        place = error.place.removeprefix(f"state {where.state!r}").removeprefix(", ")
        unreachable = isinstance(error, UnreachableFileError)
        self._append(Fault(kind, where, place, error.problem, remedy, entries, unreachable))

    def skip(self, where: Place, why: str, *, unread: bool = False) -> None:
        """Note a part that is not checked; `unread` if entries in it could not even be located."""
        self.unchecked[Unchecked(where, why, unread)] = None

    def lose(
        self, where: Place, why: str, *, entries: int | None = None, size: int | None = None
    ) -> None:
        """Note a part that a salvage loses."""
        self.losses.append(Loss(where, why, entries, size))

    def _append(self, fault: Fault) -> None:
        """Add a fault; join it to the last one if that is equal, for the key groups before."""
        groups, last = fault.where.key_groups, self.faults[-1] if self.faults else None
        before = last.where.key_groups if last is not None else None
        if last is not None and groups is not None and before is not None:
            joined = KeyGroupRange(before.first, groups.last)
            where = replace(fault.where, key_groups=joined)
            same = replace(last, where=where, entries=None) == replace(
                fault, where=where, entries=None
            )
            if same and groups.first == before.last + 1:
                count = None
                if last.entries is not None and fault.entries is not None:
                    count = last.entries + fault.entries
                self.faults[-1] = replace(fault, where=where, entries=count)
                return
        self.faults.append(fault)
