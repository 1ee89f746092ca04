"""Bytes that several tasks move into one file, each to the place that they have in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from state_core.files.filesystem import ConfinedDirectory

__all__ = ["Move", "move_all", "moves_of_tasks"]

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


def moves_of_tasks(moves: Iterable[Move]) -> list[list[Move]]:
    """The moves of each task: those into one file, about `TASK_BYTES` of them."""
    tasks: list[list[Move]] = []
    room: dict[str, int] = {}
    open_task: dict[str, list[Move]] = {}
    for move in moves:
        if room.get(move.to, 0) <= 0:
            open_task[move.to] = []
            tasks.append(open_task[move.to])
            room[move.to] = TASK_BYTES
        open_task[move.to].append(move)
        room[move.to] -= move.size
    return tasks


def move_all(moves: Iterable[Move]) -> None:
    """Move bytes. Files they were in are empty then, and take no room while others are moved.

    It may be called again with the same moves, or twice at once.

    Raises:
        TruncatedError: A file is shorter than it was.
        SnapshotError: What they are moved into can't be written.
    """
    for move in moves:
        move.directory.move_into(move.path, move.to, move.at, move.start, move.end)
