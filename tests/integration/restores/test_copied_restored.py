"""Real Flink starts from copies of checkpoints, with the originals gone, and goes on from there."""

from __future__ import annotations

import posixpath
import shutil
from collections import Counter
from pathlib import Path

import pytest

import statelake as sl
from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata
from statelake.state_core.formats.metadata.stream_map import streams_of
from statelake.state_core.model.handles import FileHandle
from tests.integration.flink.change_logs import changelog_options
from tests.integration.flink.oracle import FlinkOracle
from tests.support.savepoints.backlogs import RECORDS, unpack_backlog
from tests.support.savepoints.expected_contents import held_lines, same_lines

pytestmark = [pytest.mark.flink, pytest.mark.full]

KEYS, ALL_KEYS = 40, 70
MERGED = {
    "execution.checkpointing.file-merging.enabled": "true",
    "execution.checkpointing.file-merging.across-checkpoint-boundary": "true",
}


def restores_copies(
    flink: FlinkOracle, tmp_path: Path, log: str = "", *, at_once: bool = False, **options: str
) -> set[str]:
    """Copy two checkpoints, and let Flink restore them, and go on, without what it wrote itself.

    Args:
        flink: The Flink.
        tmp_path: Where everything is.
        log: How often the state is written where changes are logged; empty if they are not.
        at_once: Whether they are copied as checkpoints of one job.
        options: Of Flink's.

    Returns:
        The directories of the files of a checkpoint that goes on from a claimed copy.
    """
    written, to, after = (tmp_path / name for name in ("written", "copies", "next"))
    written_options = {**options, **(changelog_options(written, log) if log else {})}
    places = flink.checkpoints(
        "chain", written, keys=KEYS, generations=2, backend="rocksdb", **written_options
    )
    again = {"keys": ALL_KEYS, "backend": "rocksdb"}
    expected = [held_lines(flink.restore("chain", place, **again)) for place in places]
    copies = [to / place.name for place in places]
    if at_once:
        assert len(sl.copy_checkpoints(places[0].parent, to).copied) >= len(places)
    else:
        for place, copy in zip(places, copies, strict=True):
            assert sl.copy_snapshot(place, copy).files > 0
    shutil.rmtree(written)
    for copy, lines in zip(copies, expected, strict=True):
        same_lines(held_lines(flink.restore("chain", copy, **again)), lines)
    after_options = {**options, **(changelog_options(after, log) if log else {})}
    (next_one,) = flink.checkpoints(
        "chain", after, keys=KEYS, generations=1, first=2, backend="rocksdb", **after_options,
        **{
            "execution.state-recovery.path": copies[-1].as_uri(),
            "execution.state-recovery.claim-mode": "CLAIM",
        },
    )  # fmt: skip
    lines = held_lines(flink.restore("chain", next_one, **again))
    with pytest.raises(AssertionError):
        same_lines(lines, expected[-1])
    metadata = read_metadata((next_one / "_metadata").read_bytes())
    second = tmp_path / "second"
    sl.copy_snapshot(next_one, second, allow_external=[str(to)])
    shutil.rmtree(after)
    shutil.rmtree(to)
    same_lines(held_lines(flink.restore("chain", second, **again)), lines)
    return {
        posixpath.dirname(stream.uri)
        for stream in streams_of(metadata)
        if isinstance(stream, FileHandle)
    }


def test_an_incremental_checkpoint(flink: FlinkOracle, tmp_path: Path) -> None:
    """With the files of earlier ones."""
    assert restores_copies(flink, tmp_path)


def test_an_incremental_checkpoint_of_flink_1(old_flink: FlinkOracle, tmp_path: Path) -> None:
    """Copied with the one before it, and once what they share."""
    assert restores_copies(old_flink, tmp_path, at_once=True)


def test_a_checkpoint_of_merged_files(flink: FlinkOracle, tmp_path: Path) -> None:
    """With segments of files that several checkpoints share."""
    restores_copies(flink, tmp_path, at_once=True, **MERGED)


def test_a_checkpoint_with_a_log_of_changes(flink: FlinkOracle, tmp_path: Path) -> None:
    """The next one goes on with the log in the copy: its handles are no relative ones."""
    directories = restores_copies(flink, tmp_path, log="10 min")
    assert any(each.startswith(f"file:{tmp_path}/copies/") for each in directories)


def test_records_in_flight(flink: FlinkOracle, tmp_path: Path) -> None:
    """Each record in the channels of an unaligned checkpoint is processed, once."""
    checkpoint = unpack_backlog("flink-2.3.0", tmp_path / "written")
    copy = tmp_path / "copy"
    sl.copy_snapshot(checkpoint, copy)
    shutil.rmtree(tmp_path / "written")
    lines = flink.restore("backlog", copy, keys=RECORDS, parallelism=2)
    numbers = Counter(number for line in lines for number in line["numbers"])
    assert numbers == Counter(range(RECORDS))
