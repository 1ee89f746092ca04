"""Cuts the power while a command runs: the disk as it is then has only what was synced.

The command runs once, with `power_cut.c` preloaded, which records what it does to names and what
it syncs. From that record the directory is made as it may be after a power cut at any moment: a
name that was not synced with its directory is there or not, and a file holds what it held when it
was synced last, or nothing.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import pytest

__all__ = ["Kept", "Recording", "record"]

SHIM = Path(__file__).with_name("power_cut.c")
COMMAND = "from statelake.pipelines.cli.main import main; main()"
SECONDS = 300
LOG = "_delta_log"


class Kept(Enum):
    """Which names a disk keeps that were not synced with their directory."""

    NONE = "none"
    ALL = "all"
    SOME = "some"


@dataclass
class _Node:
    """A file, or a directory with its names: as they are, and as they are on the disk."""

    is_file: bool
    names: dict[str, _Node] = field(default_factory=dict)
    synced_names: dict[str, _Node] = field(default_factory=dict)
    content: bytes = b""


@dataclass(frozen=True)
class Recording:
    """What a command did below a directory.

    Attributes:
        before: The directory as it was before, all of it synced.
        calls: What was recorded, in order: the fields of each line.
        inodes: The inode of each path below `before`, and of the directory itself.
        copies: Where the content of synced files lies.
    """

    before: Path
    calls: Sequence[Sequence[str]]
    inodes: dict[str, str]
    copies: Path

    def disk(self, to: Path, moment: int, kept: Kept) -> None:
        """Make the directory as it is when the power is cut behind so many calls.

        Args:
            to: Where; not there yet.
            moment: How many calls were made.
            kept: Which names that were not synced are there.
        """
        chance = random.Random(f"{moment} {kept}")  # the same each time
        _write(self._replayed(moment), to, kept, chance)

    def _replayed(self, moment: int) -> _Node:
        nodes: dict[str, _Node] = {}
        root = self._loaded(self.before, nodes)
        for kind, *rest in self.calls[:moment]:
            if kind in {"create", "mkdir", "link"}:
                inode, above, name = rest
                if above in nodes:
                    if kind != "link":
                        nodes[inode] = _Node(is_file=kind == "create")
                    nodes[above].names[name] = nodes[inode]
            elif kind == "sync":
                inode, copy = rest
                if inode in nodes:
                    node = nodes[inode]
                    node.synced_names = dict(node.names)
                    node.content = (self.copies / copy).read_bytes() if copy != "0" else b""
            elif kind == "remove":
                above, name = rest
                if above in nodes:
                    nodes[above].names.pop(name)
            else:
                above, name, below, last = rest
                if above in nodes and below in nodes:
                    nodes[below].names[last] = nodes[above].names.pop(name)
        return root

    def _loaded(self, path: Path, nodes: dict[str, _Node]) -> _Node:
        inode = self.inodes[str(path.relative_to(self.before))]
        if inode not in nodes:
            nodes[inode] = node = _Node(path.is_file())
            if path.is_dir():
                node.names = {entry.name: self._loaded(entry, nodes) for entry in path.iterdir()}
                node.synced_names = dict(node.names)
            else:
                node.content = path.read_bytes()
        return nodes[inode]


def _write(node: _Node, to: Path, kept: Kept, chance: random.Random) -> None:
    if node.is_file:
        to.write_bytes(node.content)
        return
    to.mkdir()
    keeps = kept is Kept.ALL or (kept is Kept.SOME and chance.random() < 0.5)
    for name, below in sorted((node.names if keeps else node.synced_names).items()):
        _write(below, to / name, kept, chance)


def record(root: Path, work: Path, *words: object) -> Recording:
    """Run the command below a directory, and record what it does there.

    Args:
        root: The directory, in which its paths lead to what it changes.
        work: An empty directory elsewhere, for the record.
        words: The command's.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    before, copies, trace, shim = (work / name for name in ("before", "copies", "trace", "shim.so"))
    options = ["-shared", "-fPIC", "-O1", "-o", str(shim), str(SHIM), "-ldl", "-lpthread"]
    subprocess.run([compiler, *options], check=True, timeout=SECONDS)
    shutil.copytree(root, before)
    inodes = {
        str(path.relative_to(root)): str(path.stat().st_ino) for path in (root, *root.rglob("*"))
    }
    copies.mkdir()
    seen = {
        "LD_PRELOAD": str(shim),
        "POWER_CUT_TRACE": str(trace),
        "POWER_CUT_COPIES": str(copies),
        "POWER_CUT_ROOT": str(root.resolve()),
    }
    ran = subprocess.run(
        [sys.executable, "-c", COMMAND, *map(str, words)],
        env={**os.environ, **seen}, timeout=SECONDS, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    calls = [line.split("\t") for line in trace.read_text().splitlines()]
    return Recording(before, calls, inodes, copies)
