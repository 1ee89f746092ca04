"""Moves of bytes from several files into one file, each to its final position, by several tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from statelake.state_core.files.filesystem import ConfinedDirectory

TASK_BYTES = 1 << 30  # writers of one file wait for each other: more tasks gain little


@dataclass(frozen=True)
class Move:
    """A range of bytes of a file to move into another file, on a local disk; picklable.

    Attributes:
        directory: The directory of both files.
        path: The file's path.
        start: Its first byte to be moved.
        end: The byte behind the last.
        to: The path of the other file.
        at: Their offset in that file.
    """

    directory: ConfinedDirectory
    path: str
    start: int
    end: int
    to: str
    at: int

    @property
    def size(self) -> int:
        """Return the number of bytes."""
        return self.end - self.start


def plan_moves(moves: Sequence[Move]) -> list[list[Move]]:
    """Resize the target files to their final length, and return the moves of each task.

    A task writes about `TASK_BYTES` into one file.

    Raises:
        SnapshotError: A file can't be written.
    """
    # otherwise NFS would take bytes that a node has not seen for zeros, and write them back
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
    """Move bytes. The files that held them are empty afterwards, and free their space.

    It may be called again with the same moves, or twice at once.

    Raises:
        TruncatedError: A file is shorter than it was.
        SnapshotError: The target can't be written.
    """
    for move in moves:
        move.directory.move_into(move.path, move.to, move.at, move.start, move.end)
