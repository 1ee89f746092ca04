"""Where a case plays: hostile input beside a victim, and what must be true when it is over.

::

    victim/        somebody else's: never changed, never read
    lake/          an honest lake, of which the case makes a hostile one
    savepoint/     the same of a savepoint; checkpoint/ with chk-7 in it
    work/          where the command is called, and its temporary files
    out/           what it writes: nothing else appears
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tests.adversary.makers.seed import JOB, LOST_PLACE, SECRETS, Seed

HERE = Path(__file__).parent

__all__ = ["Maker", "Scene", "Tree", "changed", "files", "leaks", "tree"]

# of a path: kind and permissions, size, time of the last change, links, content or link's target
Tree: TypeAlias = "dict[str, tuple[int, int, int, int, str]]"


@dataclass(frozen=True)
class Scene:
    """The directories of a case.

    Attributes:
        root: Holds them.
        seed: What they are copied from.
    """

    root: Path
    seed: Seed

    def __post_init__(self) -> None:
        self.seed.copy("victim", self.victim)
        self.work.mkdir()
        self.temporary.mkdir()

    @property
    def victim(self) -> Path:
        """Somebody else's directory."""
        return self.root / "victim"

    @property
    def lake(self) -> Path:
        """The lake; made with `with_lake`."""
        return self.root / "lake"

    @property
    def savepoint(self) -> Path:
        """The savepoint; made with `with_savepoint`."""
        return self.root / "savepoint"

    @property
    def checkpoint(self) -> Path:
        """The checkpoint; made with `with_checkpoint`."""
        return self.root / "checkpoint" / "chk-7"

    @property
    def committed(self) -> Path:
        """A job that committed: `log`, `blobs` and `changelogs`; made with `with_committed`."""
        return self.root / "committed"

    @property
    def work(self) -> Path:
        """Where the command is called."""
        return self.root / "work"

    @property
    def temporary(self) -> Path:
        """Where temporary files go."""
        return self.root / "work" / "tmp"

    @property
    def data(self) -> Path:
        """The orders of the job that runs, and where its output goes."""
        return self.root / "orders-data"

    @property
    def out(self) -> Path:
        """What a command writes."""
        return self.root / "out"

    def with_lake(self) -> Path:
        """An honest lake."""
        return self.seed.copy("lake", self.lake)

    def with_runs(self) -> Path:
        """An honest lake whose job has run once, and its data with an order that waits."""
        self.seed.copy("orders-data", self.data)
        return self.seed.copy("lake-ran", self.lake)

    def with_savepoint(self) -> Path:
        """An honest savepoint, which is not in the lake."""
        return self.seed.copy("savepoint-bad", self.savepoint)

    def with_checkpoint(self) -> Path:
        """An honest checkpoint that was moved here."""
        self.seed.copy("checkpoint", self.checkpoint.parent)
        return self.checkpoint

    def with_committed(self) -> Path:
        """A job that committed, honestly."""
        return self.seed.copy("committed", self.committed)

    def words(self, command: str) -> tuple[str, ...]:
        """A command's words, with the scene's places in them."""
        places = {
            "lake": self.lake, "savepoint": self.savepoint, "checkpoint": self.checkpoint,
            "out": self.out, "victim": self.victim, "work": self.work, "root": self.root,
            "seed": self.seed.root, "job": JOB, "lost": LOST_PLACE, "here": HERE,
            "committed": self.committed,
        }  # fmt: skip
        return tuple(word.format(**places) for word in command.split())


Maker: TypeAlias = "Callable[[Scene], object]"


def tree(root: Path) -> Tree:
    """All that can be seen of a directory, but for times of access."""
    return {name: _state(path, status) for name, path, status in _walk(root)}


def _walk(root: Path) -> Iterator[tuple[str, str, os.stat_result]]:
    """The name below the root of all that is there, with its path; links are not followed."""
    if not os.path.lexists(root):
        return
    status = root.lstat()
    yield ".", str(root), status
    directories = [("", str(root))] if stat.S_ISDIR(status.st_mode) else []
    while directories:
        above, directory = directories.pop()
        for entry in os.scandir(directory):
            status = entry.stat(follow_symlinks=False)
            yield above + entry.name, entry.path, status
            if stat.S_ISDIR(status.st_mode):
                directories.append((f"{above}{entry.name}/", entry.path))


def _state(path: str, status: os.stat_result) -> tuple[int, int, int, int, str]:
    content = ""
    if stat.S_ISLNK(status.st_mode):
        content = str(Path(path).readlink())
    elif stat.S_ISREG(status.st_mode):
        content = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return status.st_mode, status.st_size, status.st_mtime_ns, status.st_nlink, content


def changed(before: Tree, after: Tree) -> list[str]:
    """What was added, removed, or is another now."""
    names = before.keys() | after.keys()
    return sorted(name for name in names if before.get(name) != after.get(name))


def files(seen: Tree) -> Tree:
    """What is no directory."""
    return {name: state for name, state in seen.items() if not stat.S_ISDIR(state[0])}


def leaks(root: Path, seen: Tree, known: Tree) -> list[str]:
    """The files below that have the victim's secret and did not have it before.

    Args:
        root: Where they are.
        seen: What is there; links are not followed.
        known: What was there before.
    """
    new = (
        name for name, state in seen.items()
        if stat.S_ISREG(state[0]) and known.get(name) != state
    )  # fmt: skip
    contents = ((name, (root / name).read_bytes()) for name in new)
    return [name for name, data in contents if any(secret in data for secret in SECRETS)]
