"""A chain of retained checkpoints: one job at several moments, and what Flink says of each.

The job is `chain` of `tests/integration/flink/java/ChainJobs.java`: between two checkpoints keys
come, are written over, grow, shrink, go, and come back. `golden_chain` is one that was kept.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.support.savepoints.expected_contents import held_lines
from tests.support.savepoints.golden_cases import GOLDEN

__all__ = [
    "STATES",
    "Chain",
    "Moment",
    "differences",
    "golden_chain",
    "pack",
    "vanished",
]

ARCHIVE = GOLDEN / "chain" / "chain.tar.xz"
EXPECTED = "expected.json"
TIMERS = "_timer_state/event_user-timers"
STATES = ("count", "due", "log", "notes", TIMERS)


@dataclass(frozen=True)
class Moment:
    """A snapshot of the job.

    Attributes:
        snapshot: Its directory.
        held: What Flink prints of it, less the keys that hold nothing.
    """

    snapshot: Path
    held: list[Any]


@dataclass(frozen=True)
class Chain:
    """Checkpoints in their order; then savepoints of the last one's moment, native and canonical.

    Attributes:
        directory: All files are in it.
        checkpoints: The generations.
        savepoints: By format.
    """

    directory: Path
    checkpoints: list[Moment]
    savepoints: dict[str, Moment]

    @property
    def moments(self) -> list[Moment]:
        """All of them."""
        return [*self.checkpoints, *self.savepoints.values()]


def opened(directory: Path) -> Chain:
    """The chain in a directory: `checkpoints/chk-N`, `native`, `canonical`, and `expected`."""
    expected = json.loads((directory / EXPECTED).read_text("utf-8"))

    def moment(name: str) -> Moment:
        return Moment(directory / name, held_lines(expected[name]))

    names = sorted(
        (entry for entry in expected if "/" in entry), key=lambda name: int(name.split("-")[1])
    )
    savepoints = {name: moment(name) for name in expected if "/" not in name}
    return Chain(directory, [moment(name) for name in names], savepoints)


def golden_chain(to: Path) -> Chain:
    """The golden chain, unpacked into a directory that is not there yet."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(to, filter="data")
    return opened(to)


def pack(places: list[Path], expected: list[list[Any]], to: Path) -> Chain:
    """Copy a chain whole to another place, and remove it where Flink wrote it.

    Args:
        places: The checkpoints, then a native and a canonical savepoint.
        expected: What Flink prints of each.
        to: A directory that is not there yet.
    """
    *checkpoints, native, canonical = places
    shutil.copytree(checkpoints[0].parent, to / "checkpoints")
    shutil.copytree(native, to / "native")
    shutil.copytree(canonical, to / "canonical")
    names = [
        *(f"checkpoints/{checkpoint.name}" for checkpoint in checkpoints),
        "native",
        "canonical",
    ]
    shown = dict(zip(names, expected, strict=True))
    (to / EXPECTED).write_text(json.dumps(shown, sort_keys=True), "utf-8")
    for gone in {checkpoints[0].parent, native, canonical}:
        shutil.rmtree(gone)
    return opened(to)


def entries(held: list[Any]) -> dict[str, dict[Any, Any]]:
    """The entries of each state, as Flink tells them: a list is one, a map has one a user key."""
    found: dict[str, dict[Any, Any]] = {name: {} for name in STATES}
    for line in held:
        key = line["key"]
        if "timer" in line:
            found[TIMERS][key, line["timer"]] = None
            continue
        for name in ("count", "due", "log"):
            if line[name] not in (None, []):
                found[name][key] = line[name]
        for user_key, note in line["notes"].items():
            found["notes"][key, user_key] = note
    return found


def differences(earlier: Moment, later: Moment) -> dict[str, tuple[int, int, int]]:
    """Entries that were added, removed and changed, by state."""
    before, after = entries(earlier.held), entries(later.held)
    return {
        name: (
            len(after[name].keys() - before[name].keys()),
            len(before[name].keys() - after[name].keys()),
            sum(
                after[name][key] != before[name][key]
                for key in before[name].keys() & after[name].keys()
            ),
        )
        for name in STATES
    }


def vanished(chain: Chain) -> set[str]:
    """Keys that a checkpoint holds, and the next one does not."""
    keys = [{line["key"] for line in checkpoint.held} for checkpoint in chain.checkpoints]
    return {key for before, after in pairwise(keys) for key in before - after}
