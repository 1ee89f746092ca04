"""Every error that statelake raises on purpose, in one tree.

::

    StateError
    ├── SnapshotError                 a snapshot that can't be used
    │   ├── NotASnapshotError         no `_metadata` with Flink's magic number there
    │   ├── CorruptSnapshotError      the bytes contradict their format
    │   │   └── TruncatedError        the bytes end before the value does
    │   ├── UnsupportedFormatError    a version, handle or layout that is not supported
    │   │   └── UnwalkableError       entries behind a value whose end is not known
    │   ├── UnknownSerializerError    a serializer snapshot of a class that is not registered
    │   ├── OversizedError            more is declared than the bounds allow
    │   ├── MissingFileError          a handle names a file that is not there
    │   ├── UnreachableFileError      a file that its store, or the system, does not give
    │   └── UnsafePathError           a handle leads outside the snapshot
    ├── EncodeError                   a value that its serializer can't write
    │   └── InexactError              a change that would act on values that columns do not hold
    ├── KeyGroupError                 a key outside its key group
    │   └── UnknownHashError          a key type whose Java hash can't be derived
    ├── IncompatibleError             state that can't be converted to the new type
    ├── PluginError                   a user's code that can't be loaded
    ├── MissingExtraError             a package that only some features need is not installed
    ├── DeclarationError              an invalid declaration of a state or a job
    ├── LegalityError                 a declaration, or an access to state, against the rules
    ├── ProcessError                  a user's process function failed
    ├── CommitError                   a failed commit of state, or a failed restore
    │   ├── AsyncCommitError          the part that ran beside processing failed: the task is over
    │   ├── CommitOrderError          a backend called out of order, or after its end
    │   ├── CheckpointRecordError     a malformed record of a checkpoint log or of an index
    │   ├── DeletedBlobError          a blob that no longer exists
    │   └── RestoreInterruptedError   a restore that was interrupted
    ├── ReadOnlyError                 a statement that changes rows, where only reading is allowed
    ├── NotFoundError                 no such operator, state, job or snapshot
    │   └── NoMatchError              the question is valid, and nothing matches it
    ├── ClusterError                  a Flink cluster refuses, or its answer is not understood
    │   ├── UnreachableClusterError   it does not answer, or not in time
    │   └── FlinkJobError             a job there failed, ended, or does not start
    └── LakeError                     an operation that the lake can't do
        ├── DamagedLakeError          an invalid row, record or log of the lake
        ├── NotALakeError             a directory without a `snapshots` table
        ├── ConflictError             someone else changed the lake meanwhile
        └── UnreadableTableError      a Delta feature that the direct reader lacks

Where Python has a similar error, ours is a subclass of it: a missing file or snapshot is a
`FileNotFoundError`, an unknown name a `LookupError`, impossible bytes or values a `ValueError`, a
cluster that is gone a `ConnectionError`.

A message is one sentence that names the place (file and offset, or operator, state and key
group), what was found there, and ends in the remedy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from statelake.state_core.printable import printable

__all__ = [
    "AsyncCommitError",
    "CheckpointRecordError",
    "ClusterError",
    "CommitError",
    "CommitOrderError",
    "ConflictError",
    "CorruptSnapshotError",
    "DamagedLakeError",
    "DeclarationError",
    "DeletedBlobError",
    "EncodeError",
    "FlinkJobError",
    "IncompatibleError",
    "InexactError",
    "KeyGroupError",
    "LakeError",
    "LegalityError",
    "MissingExtraError",
    "MissingFileError",
    "NoMatchError",
    "NotALakeError",
    "NotASnapshotError",
    "NotFoundError",
    "OversizedError",
    "PluginError",
    "ProcessError",
    "ReadOnlyError",
    "RestoreInterruptedError",
    "SnapshotError",
    "StateError",
    "TruncatedError",
    "UnknownEndError",
    "UnknownHashError",
    "UnknownSerializerError",
    "UnreachableClusterError",
    "UnreachableFileError",
    "UnreadableTableError",
    "UnsafePathError",
    "UnsupportedFormatError",
    "UnwalkableError",
    "did_you_mean",
]


class StateError(Exception):
    """Base of all errors here.

    Attributes:
        usual_remedy: The remedy if no other is given.
        place: The place: a file, an offset, an operator and state. May be empty.
        problem: The fault.
        remedy: The way to repair or avoid it. May be empty.
    """

    usual_remedy: ClassVar[str] = ""

    def __init__(self, problem: str, *, place: str = "", remedy: str = "") -> None:
        super().__init__(problem)
        self.place = place
        self.problem = problem
        self.remedy = remedy or self.usual_remedy

    def __str__(self) -> str:
        text = f"{self.place}: {self.problem}" if self.place else self.problem
        message = f"{text}; {self.remedy}" if self.remedy else text
        return printable(message)

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes with every field."""
        return (_rebuild, (type(self), self.problem, self.place, self.remedy))

    def within(self, place: str) -> StateError:
        """Return the same error with its place prefixed with `place`."""
        joined = f"{place}, {self.place}" if self.place else place
        return type(self)(self.problem, place=joined, remedy=self.remedy)


def _rebuild(kind: type[StateError], problem: str, place: str, remedy: str) -> StateError:
    return kind(problem, place=place, remedy=remedy)


class SnapshotError(StateError):
    """A snapshot that can't be used."""


class NotASnapshotError(SnapshotError, FileNotFoundError):
    """There is no `_metadata` file with Flink's magic number."""


class CorruptSnapshotError(SnapshotError, ValueError):
    """The bytes contradict their format."""

    usual_remedy = "the file is damaged or was not copied whole: fetch it again"


class TruncatedError(CorruptSnapshotError):
    """The bytes end before the value does."""


class UnsupportedFormatError(SnapshotError):
    """A version, a handle or a layout that is not supported."""


class UnknownEndError(UnsupportedFormatError):
    """A value whose end is not known, so that what contains it stays bytes."""


class UnwalkableError(UnsupportedFormatError):
    """Entries that can't be found, as a value whose end is not known is among or before them.

    Attributes:
        states: The names of the states that have such entries; all entries of others were found.
        why: The reason, the same for all key groups.
    """

    def __init__(
        self,
        problem: str,
        *,
        place: str = "",
        remedy: str = "",
        states: Iterable[str] = (),
        why: str = "",
    ) -> None:
        super().__init__(problem, place=place, remedy=remedy)
        self.states = frozenset(states)
        self.why = why or problem

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes with every field."""
        return (_unwalkable, (self.problem, self.place, self.remedy, self.states, self.why))

    def of(self, states: Iterable[str]) -> UnwalkableError:
        """Return the same error for other states."""
        return _unwalkable(self.problem, self.place, self.remedy, frozenset(states), self.why)

    def within(self, place: str) -> UnwalkableError:
        """Return the same error with its place prefixed with `place`."""
        joined = f"{place}, {self.place}" if self.place else place
        return _unwalkable(self.problem, joined, self.remedy, self.states, self.why)


def _unwalkable(
    problem: str, place: str, remedy: str, states: frozenset[str], why: str
) -> UnwalkableError:
    return UnwalkableError(problem, place=place, remedy=remedy, states=states, why=why)


class UnknownSerializerError(SnapshotError):
    """A serializer snapshot of a class that is not registered."""


class OversizedError(SnapshotError, ValueError):
    """A length or count in the bytes is above the limit (`state_core.bounds`)."""


class MissingFileError(SnapshotError, FileNotFoundError):
    """A handle names a file that does not exist."""

    usual_remedy = "copy the whole directory of the snapshot, not `_metadata` alone"


class UnreachableFileError(SnapshotError):
    """A file that can't be read: access is denied, or its store does not answer."""


class ChangedFileError(SnapshotError):
    """A file is no longer the one that was opened."""

    usual_remedy = "do it again when nobody writes there: Flink leaves a complete snapshot as it is"


class UnsafePathError(SnapshotError, ValueError):
    """A handle leads outside the snapshot."""


class EncodeError(StateError, ValueError):
    """A value that its serializer can't write."""


class KeyGroupError(StateError, ValueError):
    """A key outside its key group."""


class UnknownHashError(KeyGroupError):
    """A key type whose Java hash can't be derived, so that only Flink knows the key group."""


class PluginError(StateError):
    """A user's code that can't be loaded, or that does not do what it should."""


class MissingExtraError(StateError, ImportError):
    """A package that only some features need, part of an extra, is not installed."""


class DeclarationError(StateError, ValueError):
    """Invalid declaration of a state or a job, or malformed JSON."""


class LegalityError(StateError):
    """A declaration, or an access to a state, that the tables of legality forbid."""


class ProcessError(StateError):
    """A user's process function failed."""


class IncompatibleError(StateError, ValueError):
    """State written by one serializer that can't be converted to another's."""


class InexactError(EncodeError, IncompatibleError):
    """A change of rows by values that their columns don't hold in full.

    Attributes:
        count: The number of such rows; 0 if it is not known.
        what: `value` or `key`.
    """

    count = 0
    what = "value"

    @classmethod
    def of(cls, count: int, what: str, *, place: str = "", remedy: str = "") -> InexactError:
        """Return the refusal of so many rows."""
        rows = "1 row has" if count == 1 else f"{count:,} rows have"
        problem = f"{rows} a {what} that the column does not hold in full, as raw_{what} does"
        error = cls(problem, place=place, remedy=remedy)
        error.count, error.what = count, what
        return error

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes with every field."""
        return (*super().__reduce__(), {"count": self.count, "what": self.what})

    def within(self, place: str) -> InexactError:
        """Return the same error with its place prefixed with `place`."""
        error = type(self)(self.problem, place=place, remedy=self.remedy)
        error.place = f"{place}, {self.place}" if self.place else place
        error.count, error.what = self.count, self.what
        return error


class CommitError(StateError):
    """A failed commit of state, or a failed restore."""


class AsyncCommitError(CommitError):
    """The asynchronous part of a commit failed: the task has to end."""


class CommitOrderError(CommitError):
    """A state backend that is called out of order, or after its end."""


class CheckpointRecordError(CommitError):
    """A malformed record of a checkpoint log, or of a snapshot index."""


class DeletedBlobError(CommitError):
    """A blob that was deleted or has expired."""


class RestoreInterruptedError(CommitError):
    """A restore that was interrupted before its end."""


class ReadOnlyError(StateError, ValueError):
    """A statement that changes rows, where only reading is allowed."""

    usual_remedy = "`edit_sql` of a snapshot makes another one by such statements"


class NotFoundError(StateError, LookupError):
    """There is no such operator, state, job or snapshot."""


class NoMatchError(NotFoundError):
    """The question is valid, and nothing matches it."""


class ClusterError(StateError):
    """A Flink cluster refuses a call, or its answer is not understood."""


class UnreachableClusterError(ClusterError, ConnectionError):
    """A Flink cluster does not answer, or not in time: the request may still be carried out."""


class FlinkJobError(ClusterError):
    """A job on a Flink cluster failed, ended, or does not start."""


class LakeError(StateError):
    """An operation that the lake can't do."""


class DamagedLakeError(LakeError, ValueError):
    """An invalid row, record or log of the lake, which statelake did not write."""

    usual_remedy = "restore it from a backup of the lake, and see who else may write there"


class NotALakeError(LakeError, FileNotFoundError):
    """A directory without a `snapshots` table."""


class ConflictError(LakeError):
    """Someone else changed the lake meanwhile."""


class HeldError(LakeError):
    """A hold protects a snapshot from the operation."""


class UnreadableTableError(LakeError):
    """A Delta feature that the direct reader lacks."""


class LakeFormatError(LakeError):
    """A lake of a format that this statelake does not read, or does not write."""


def did_you_mean(wanted: str, known: Iterable[str]) -> str:
    """Return the question whether a similar name was meant, for the end of a remedy; or nothing.

    Args:
        wanted: The name that is not there.
        known: The names that are.
    """
    import difflib  # noqa: PLC0415 - only for an error

    near = difflib.get_close_matches(wanted, [*known], 1)
    return f"; did you mean {near[0]!r}?" if near else ""
