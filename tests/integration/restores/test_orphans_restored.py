"""Real Flink restores every checkpoint that is left where `orphans` deleted what nobody needs."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from random import Random
from threading import Timer
from typing import Any

import pytest

from tests.integration.flink.oracle import FlinkError, FlinkOracle
from tests.support.command import run
from tests.support.savepoints.expected_contents import held_lines, same_lines

pytestmark = [pytest.mark.flink, pytest.mark.full]

KEYS, ALL_KEYS = 40, 60
LONG_AGO = time.time() - 30 * 86_400
FORMS: tuple[dict[str, Any], ...] = (
    {"backend": "rocksdb"},
    {"backend": "rocksdb", "execution.checkpointing.file-merging.enabled": "true"},
    {
        "backend": "rocksdb",
        "execution.checkpointing.file-merging.enabled": "true",
        "execution.checkpointing.file-merging.across-checkpoint-boundary": "true",
    },
    {"backend": "hashmap"},
)


def killed(root: Path, after: float, **form: object) -> None:
    """Let a job write checkpoints, and kill its Flink after some seconds."""
    with FlinkOracle("2.3.0") as own:
        timer = Timer(after, own.process.kill)
        timer.start()
        with pytest.raises(FlinkError):
            own.checkpoints("chain", root, keys=KEYS, generations=500, **form)
        timer.cancel()


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 20))]
)
def test_what_is_left_is_restored(flink: FlinkOracle, tmp_path: Path, seed: int) -> None:
    """One job ends well, another's Flink is killed; and some checkpoints are deleted by hand."""
    random = Random(seed)
    form = FORMS[seed % len(FORMS)]
    root = tmp_path / "flink"
    savepoints = random.choice(("", "NATIVE", "NATIVE CANONICAL"))
    places = flink.checkpoints(
        "chain", root, keys=KEYS, generations=random.randint(3, 6), savepoints=savepoints, **form
    )
    killed(root, random.uniform(4, 7), **form)
    sound = {each.parent for each in root.glob("*/chk-*/_metadata")}
    for gone in random.sample(sorted(sound), random.randint(1, len(sound) - 1)):
        shutil.rmtree(gone)  # what it alone had in `shared` stays
    left = sorted({*places, *sound} - {each for each in {*places, *sound} if not each.exists()})
    options = {"keys": ALL_KEYS, "backend": form["backend"]}
    expected = [held_lines(flink.restore("chain", each, **options)) for each in left]
    files = [each for each in root.rglob("*") if each.is_file()]
    for file in files:
        os.utime(file, (LONG_AGO, LONG_AGO))
    words = ("orphans", root, "--no-cluster", "--older-than", "7d")
    listed = [root / each["path"] for each in json.loads(run(*words, "--json").out)["files"]]
    assert run(*words, "--yes").code == 0
    assert not any(each.exists() for each in listed)
    assert len([each for each in root.rglob("*") if each.is_file()]) == len(files) - len(listed)
    for each, lines in zip(left, expected, strict=True):
        same_lines(held_lines(flink.restore("chain", each, **options)), lines)
    # nothing is left in directories of checkpoints that never completed
    for directory in root.glob("*/chk-*"):
        assert directory in left or not any(directory.rglob("*"))
