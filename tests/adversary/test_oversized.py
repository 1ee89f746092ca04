"""What a snapshot declares costs time and memory in proportion to the bytes that it is made of."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.adversary.makers.scene import Maker, Scene
from tests.adversary.playing import Case, as_parameters, play
from tests.adversary.runner import Runner
from tests.support.savepoints import oversized

pytestmark = pytest.mark.full

SECONDS = 5.0
MEMORY = 500 << 20
COMMANDS = {
    "import": "import {savepoint} --lake {lake} --job j --snapshot s",
    "dump": "dump {savepoint} --limit 1",
    "top": "top {savepoint}",
    "find": "find 1 {savepoint}",
    "get": "get {savepoint} --key 1",
    "expired": "expired {savepoint} --ttl 1h",
    "inspect": "inspect {savepoint}",
}
NOTHING_HELD = {"get": (0, 1, 3), "find": (0, 1, 3)}  # a key that is nowhere is an answer, too
# of what there is too much, as a part of the name says
KINDS = ("share", "nested", "of-nothing", "big", "avro", "properties", "operator", "keyed")


# a Delta table takes some milliseconds to make, as docs/security.md says: of 300 that is tried
MANY_TABLES = {("operators-4000-keyed", "import"), ("keyed-states-1000", "import")}


# by its name, the snapshot that was written last: some take seconds, and each command reads it
_written: dict[str, TemporaryDirectory[str]] = {}


def written(name: str) -> Maker:
    """The snapshot of that name."""

    def make(scene: Scene) -> None:
        if name not in _written:
            _written.clear()
            directory = TemporaryDirectory(prefix="oversized-")
            oversized.CASES[name].write(Path(directory.name))
            _written[name] = directory
        shutil.copytree(_written[name].name, scene.savepoint)

    return make


@as_parameters(
    Case(
        f"{name}/{verb}", written(name), words, code=NOTHING_HELD.get(verb), seconds=SECONDS,
        memory=MEMORY, input=f"{next((kind for kind in KINDS if kind in name), 'else')}/{name}",
    )
    for name in oversized.CASES
    for verb, words in COMMANDS.items()
    if (name, verb) not in MANY_TABLES
)  # fmt: skip
def test_oversized(case: Case, runner: Runner, scene: Scene) -> None:
    """It is done or refused, within five seconds and 500 MB; what is refused leaves nothing."""
    play(case, runner, scene)
