"""Pieces of a file of keyed state: consecutive entries, read by one task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.snapshot import Entries


@dataclass(frozen=True)
class FilePiece:
    """Consecutive entries of a file, perhaps only a part of a key group.

    Attributes:
        key_groups: The key groups of the entries.
        size: Their approximate size in bytes, as stored.
        begin: The first entry's place, in the terms of the file's format; None at the beginning of
            the key groups.
        end: The place of the entry behind the last; None at the end of the key groups.
        guessed: Whether the places are guessed: if no entry begins there, reading the piece, or the
            one before, raises `CorruptSnapshotError`.
    """

    key_groups: KeyGroupRange
    size: int
    begin: Any = None
    end: Any = None
    guessed: bool = False


class EntryPosition(Protocol):
    """The position of an entry, in the terms of a file's format."""

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
            it; the first and the last place are None.
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
class CuttableFile(Protocol):
    """A `KeyedFile` whose key groups can be read in pieces."""

    def looked_up_bytes(self) -> list[tuple[int, int]]:
        """Return `group_bytes`, even if that takes reading, as with the indexes of RocksDB."""

    def cut(
        self, key_groups: KeyGroupRange, piece_bytes: int, *, guess: bool = False
    ) -> list[FilePiece]:
        """Cut some key groups into pieces of about `piece_bytes` bytes as stored, in order.

        Args:
            key_groups: The key groups.
            piece_bytes: The approximate size of a piece in bytes.
            guess: Whether the places may be guessed, if that saves reading all entries.

        Raises:
            SnapshotError: The entries can't be read.
        """

    def entries_of(self, piece: FilePiece) -> Iterator[Entries]:
        """Yield the entries of a piece; all pieces together have all entries, in order.

        Raises:
            SnapshotError: The entries can't be read.
        """
