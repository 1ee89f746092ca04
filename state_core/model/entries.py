"""Entries of state, the files that store them, and the pieces in which files are read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.errors import UnwalkableError
from statelake.state_core.files.file_sources import ByteSource
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.key_groups import EncodedKey

if TYPE_CHECKING:
    from statelake.state_core.model.snapshot import KeyedState

I64Array: TypeAlias = npt.NDArray[np.int64]
Item = TypeVar("Item")
SLICE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries of one or more states; valid until their producer yields the next ones.

    Attributes:
        data: The buffer of the positions.
        state_of: The state of each entry, as an index into its file's states.
        group_of: The key group of each entry.
        key_start: The start of each key, after the key-group prefix.
        key_end: The end of each key.
        value_start: The start of each value.
        value_end: The end of each value.
        place: Returns the name of a position in `data`, for messages.
    """

    data: npt.NDArray[np.uint8]
    state_of: npt.NDArray[np.int16]
    group_of: I64Array
    key_start: I64Array
    key_end: I64Array
    value_start: I64Array
    value_end: I64Array
    place: Callable[[int], str]

    def __len__(self) -> int:
        return len(self.state_of)

    def of_state(self, state: int) -> Entries:
        """Return the entries of one state, in their order."""
        wanted = self.state_of == state
        return self if wanted.all() else self.take(np.flatnonzero(wanted))

    def take(self, rows: npt.NDArray[np.intp] | slice) -> Entries:
        """Return some of the entries."""
        return Entries(
            self.data,
            self.state_of[rows],
            self.group_of[rows],
            self.key_start[rows],
            self.key_end[rows],
            self.value_start[rows],
            self.value_end[rows],
            self.place,
        )

    def payload_bytes(self) -> I64Array:
        """Return the bytes of each entry's key (without its prefix) and value."""
        total: I64Array = (self.key_end - self.key_start) + (self.value_end - self.value_start)
        return total


class KeyedFile(Protocol):
    """The keyed state of one subtask, in any format."""

    @property
    def name(self) -> str:
        """The name of the file, for messages."""

    @property
    def compressed(self) -> bool:
        """Return whether its entries are compressed."""

    @property
    def key_serializer(self) -> bytes:
        """The snapshot of the key serializer, as Flink wrote it."""

    @property
    def key_groups(self) -> KeyGroupRange:
        """The key groups that its handle names."""

    @property
    def states(self) -> Sequence[KeyedState]:
        """Its states, by the ids that `Entries.state_of` uses."""

    @property
    def layouts(self) -> Sequence[Any]:
        """The layout of each state's entries: a `KeyedLayout` of the formats."""

    @property
    def is_spread_evenly(self) -> bool:
        """Return whether `group_bytes` only estimates an equal share for each key group."""

    def group_bytes(self) -> list[tuple[int, int]]:
        """Return the key groups that have data, ascending, with their stored sizes."""

    def entries(self, key_groups: KeyGroupRange | None = None) -> Iterator[Entries]:
        """Yield all entries of some key groups, in order of key group."""

    def stored_spans(self, key_groups: KeyGroupRange) -> Iterable[StoredSpan] | None:
        """Return the places of the bytes of some key groups; None if they are not known."""

    def encode_key(self, key: object) -> EncodedKey:
        """Return the bytes of a key as its serializer writes them, and its key group."""

    def entries_of_key(
        self, key: EncodedKey, states: Collection[int] | None = None
    ) -> Iterator[Entries]:
        """Yield the entries of one key, of all states or of some, one state at a time."""

    def decode(
        self, state: int, entries: Entries, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Return entries of one state as typed columns: all columns, or only `columns`."""


class StoredSpan(NamedTuple):
    """The place of some bytes of keyed state.

    Attributes:
        owner: Their key group, or the id of their state, as the format has them.
        source: Their file.
        start: The offset of the first byte.
        end: The offset after the last byte.
    """

    owner: int
    source: ByteSource
    start: int
    end: int


@dataclass(frozen=True)
class FilePiece:
    """Consecutive entries of a file, perhaps only a part of a key group.

    Attributes:
        key_groups: The key groups of the entries.
        size: Their approximate size in bytes, as stored.
        begin: The position of the first entry, in the file's format; None at the beginning of the
            key groups.
        end: The position of the entry after the last; None at the end of the key groups.
        guessed: Whether the positions are guesses: if no entry begins there, reading the piece, or
            the one before, raises `CorruptSnapshotError`.
    """

    key_groups: KeyGroupRange
    size: int
    begin: Any = None
    end: Any = None
    guessed: bool = False


class EntryPosition(Protocol):
    """The position of an entry, in a file's format."""

    @property
    def group(self) -> int:
        """Its key group."""


def pieces_between(
    key_groups: KeyGroupRange,
    cuts: Sequence[tuple[EntryPosition | None, int]],
    *,
    guessed: bool = False,
) -> list[FilePiece]:
    """Return the pieces of some key groups.

    Args:
        key_groups: The key groups.
        cuts: The start of each piece and the end of the last, each with the number of bytes before
            it; the first and the last position are None.
        guessed: Whether the places are guessed.
    """
    return [
        FilePiece(
            KeyGroupRange(
                key_groups.first if begin is None else begin.group,
                key_groups.last if end is None else end.group,
            ),
            behind - before, begin, end, guessed,
        )
        for (begin, before), (end, behind) in pairwise(cuts)
    ]  # fmt: skip


@runtime_checkable
class FileOfFamilies(Protocol):
    """A `KeyedFile` that stores each state separately, so that one is readable without others."""

    def entries_of_state(
        self, state: int, key_groups: KeyGroupRange | None = None
    ) -> Iterator[Entries]:
        """Yield the entries of one state in some key groups, without reading others.

        Raises:
            SnapshotError: The entries can't be read.
        """


@runtime_checkable
class CuttableFile(Protocol):
    """A `KeyedFile` whose key groups can be read in pieces."""

    def looked_up_bytes(self) -> list[tuple[int, int]]:
        """Return `group_bytes`, reading for it if necessary, such as RocksDB's indexes."""

    def cut(
        self, key_groups: KeyGroupRange, piece_bytes: int, *, guess: bool = False
    ) -> list[FilePiece]:
        """Cut some key groups into pieces of about `piece_bytes` bytes as stored, in order.

        Args:
            key_groups: The key groups.
            piece_bytes: The approximate size of a piece in bytes.
            guess: Whether positions may be guessed, if that saves reading all entries.

        Raises:
            SnapshotError: The entries can't be read.
        """

    def entries_of(self, piece: FilePiece) -> Iterator[Entries]:
        """Yield the entries of a piece; all pieces together have all entries, in order.

        Raises:
            SnapshotError: The entries can't be read.
        """


@dataclass(frozen=True)
class StateSlice:
    """A unit of work: some key groups of one file."""

    file: int
    key_groups: KeyGroupRange
    size: int


def entries_of_state(
    file: KeyedFile, state: int, key_groups: KeyGroupRange | None = None
) -> Iterator[Entries]:
    """Yield the entries of one state of a file in some key groups."""
    if isinstance(file, FileOfFamilies):
        yield from file.entries_of_state(state, key_groups)
        return
    try:
        for entries in file.entries(key_groups):
            yield entries.of_state(state)
    except UnwalkableError as error:  # the error may be about other states
        if file.states[state].name in error.states:
            raise


def by_size(
    items: Iterable[Item], size_of: Callable[[Item], float], limit: float
) -> Iterator[list[Item]]:
    """Yield consecutive items together, up to a size that only a single one may exceed."""
    together: list[Item] = []
    size: float = 0
    for item in items:
        more = size_of(item)
        if size and size + more > limit:
            yield together
            together, size = [], 0
        together.append(item)
        size += more
    if together:
        yield together


def plan_slices(files: Sequence[KeyedFile], slice_bytes: int = SLICE_BYTES) -> list[StateSlice]:
    """Cut files into slices of about `slice_bytes`, each of whole key groups of one file."""
    return [
        StateSlice(index, KeyGroupRange(part[0][0], part[-1][0]), sum(count for _, count in part))
        for index, file in enumerate(files)
        for part in by_size(file.group_bytes(), itemgetter(1), slice_bytes)
    ]
