"""Bytes that several tasks move into one file, each to the place that they have in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from statelake.state_core.files.filesystem import ConfinedDirectory

__all__ = ["Move", "move_all", "plan_moves"]

TASK_BYTES = 1 << 30  # writers of one file wait for each other: more of them are worth little


@dataclass(frozen=True)
class Move:
    """Bytes of a file that are to be moved into another one, on a local disk; picklable.

    Attributes:
        directory: Where both are.
        path: The file's path.
        start: Its first byte to be moved.
        end: The byte behind the last.
        to: The path of the other file.
        at: Where in that they begin.
    """

    directory: ConfinedDirectory
    path: str
    start: int
    end: int
    to: str
    at: int

    @property
    def size(self) -> int:
        """How many bytes they are."""
        return self.end - self.start


def plan_moves(moves: Sequence[Move]) -> list[list[Move]]:
    """Make files as long as they are to be, and say what each task is to move.

    A task writes into one file, about `TASK_BYTES`.

    Raises:
        SnapshotError: A file can't be written.
    """
    # else NFS would take what a node has not heard of for zeros, and write pages that have them
    for to, last in {move.to: move for move in sorted(moves, key=lambda move: move.at)}.items():
        last.directory.resize(to, last.at + last.size)
    tasks: dict[str, list[list[Move]]] = {}
    sizes: defaultdict[str, int] = defaultdict(int)
    for move in moves:
        of_file = tasks.setdefault(move.to, [[]])
        if sizes[move.to] >= TASK_BYTES:
            of_file.append([])
            sizes[move.to] = 0
        of_file[-1].append(move)
        sizes[move.to] += move.size
    return [task for of_file in tasks.values() for task in of_file]


def move_all(moves: Iterable[Move]) -> None:
    """Move bytes. Files they were in are empty then, and take no room while others are moved.

    It may be called again with the same moves, or twice at once.

    Raises:
        TruncatedError: A file is shorter than it was.
        SnapshotError: What they are moved into can't be written.
    """
    for move in moves:
        move.directory.move_into(move.path, move.to, move.at, move.start, move.end)
