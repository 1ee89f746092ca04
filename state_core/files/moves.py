"""Bytes that several tasks move into one file, each to the place that they have in it."""

from __future__ import annotations

from dataclasses import dataclass

from state_core.files.filesystem import ConfinedDirectory

__all__ = ["Move", "move"]


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


def move(task: Move) -> None:
    """Move bytes. What is left is an empty file, which takes no room while others are moved.

    It may be called again with the same task, or twice at once.

    Raises:
        TruncatedError: The file is shorter than it was.
        SnapshotError: The other can't be written.
    """
    task.directory.move_into(task.path, task.to, task.at, task.start, task.end)
