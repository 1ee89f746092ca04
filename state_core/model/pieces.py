"""Pieces of a file of keyed state: entries that follow on each other, which one task reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.snapshot import Entries

__all__ = ["CuttableFile", "FilePiece", "Place", "pieces_between"]


@dataclass(frozen=True)
class FilePiece:
    """Entries of a file that follow on each other, perhaps only some of a key group.

    Attributes:
        key_groups: The key groups that they are of.
        size: Their bytes as stored, about.
        begin: The first entry's place, as the file's format says it; None where it is the first of
            the key groups.
        end: The place of the entry behind the last; None where they end with the key groups.
        guessed: Whether nobody knows that an entry begins at these places: if none does, reading
            the piece, or the one before, raises `CorruptSnapshotError`.
    """

    key_groups: KeyGroupRange
    size: int
    begin: Any = None
    end: Any = None
    guessed: bool = False


class Place(Protocol):
    """Where an entry lies, as a file's format says it."""

    @property
    def group(self) -> int:
        """Its key group."""


def pieces_between(
    key_groups: KeyGroupRange, cuts: Sequence[tuple[Place | None, int]], *, guessed: bool = False
) -> list[FilePiece]:
    """The pieces of some key groups.

    Args:
        key_groups: The key groups.
        cuts: Where each piece begins, and the last ends, each with the bytes before it; the first
            and the last place are None.
        guessed: Whether the places are.
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
        """As `group_bytes`, even where it takes reading: of RocksDB's files the indexes."""

    def cut(
        self, key_groups: KeyGroupRange, piece_bytes: int, *, guess: bool = False
    ) -> list[FilePiece]:
        """Cut some key groups into pieces of about so many bytes as stored, in order.

        Args:
            key_groups: The key groups.
            piece_bytes: About how many bytes a piece has.
            guess: Whether pieces may be guessed, where that saves reading all of them.

        Raises:
            SnapshotError: The entries can't be read.
        """

    def entries_of(self, piece: FilePiece) -> Iterator[Entries]:
        """Yield the entries of a piece: those of all pieces are those of the key groups, in order.

        Raises:
            SnapshotError: The entries can't be read.
        """
