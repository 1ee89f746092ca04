"""Real Flink starts from the path that `scan --latest --sound --print-path` prints."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.integration.flink.oracle import FlinkOracle
from tests.support.command import run
from tests.support.savepoints.expected_contents import held_lines, same_lines

pytestmark = [pytest.mark.flink, pytest.mark.full]

KEYS, ALL_KEYS = 40, 60


def test_flink_starts_from_the_newest_sound_one(flink: FlinkOracle, tmp_path: Path) -> None:
    """Of three incremental checkpoints the newest is half-deleted; and none starts once moved."""
    written = tmp_path / "written"
    places = flink.checkpoints("chain", written, keys=KEYS, generations=3, backend="rocksdb")
    options = {"keys": ALL_KEYS, "backend": "rocksdb"}
    expected = held_lines(flink.restore("chain", places[1], **options))
    words = ("scan", tmp_path, "--latest", "--sound", "--print-path")
    assert run(*words).out == f"{places[2]}\n"
    next(path for path in sorted(places[2].iterdir()) if path.name != "_metadata").unlink()
    ran = run(*words)
    assert ran.err.startswith(f"{places[2]} is damaged: ")
    start = Path(ran.out.rstrip("\n"))
    assert start == places[1]
    same_lines(held_lines(flink.restore("chain", start, **options)), expected)
    shutil.move(written, tmp_path / "moved")
    ran = run(*words)
    assert (ran.code, ran.out) == (1, "")
    moved = tmp_path / "moved" / places[1].relative_to(written)
    assert f"{moved} is moved: Flink looks for " in ran.err
    with pytest.raises(RuntimeError, match=r"FileNotFound|does not exist|NoSuchFile"):
        flink.restore("chain", moved, **options)
