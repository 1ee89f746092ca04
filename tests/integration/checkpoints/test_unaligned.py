"""Unaligned checkpoints of real Flink through the lake, and back into real Flink.

Every record in flight that is carried is processed, once, at whatever parallelism Flink restores
the savepoint; those that are left out are the ones that are missing, and no others.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.requests.imports import Import
from statelake.state_core.formats.channels import channels_of, records_in_flight
from statelake.state_core.model.handles import InlineHandle
from tests.integration.flink.backlogs import checkpoint_of_backlog
from tests.integration.flink.oracle import FlinkOracle
from tests.support.savepoints.backlogs import (
    RECORDS,
    UIDS,
    next_number,
    numbers_in_flight,
    numbers_seen,
    unpack_backlog,
)

pytestmark = [pytest.mark.flink, pytest.mark.full]

ALL = Counter(range(RECORDS))
FILES = "execution.checkpointing.unaligned.max-subtasks-per-channel-state-file"


def exported(checkpoint: Path, tmp_path: Path, **options: Any) -> Path:
    """The checkpoint, through a lake."""
    lake = Catalog(tmp_path / "lake")
    import_snapshot(
        lake, str(checkpoint), "job", Import(uids=UIDS), snapshot_id="s", engine="local"
    )
    target = tmp_path / "exported"
    export_snapshot(lake, "job", "s", target, engine="local", **options)
    return target


def processed(flink: FlinkOracle, savepoint: Path, parallelism: int) -> Counter[int]:
    """The numbers that the job has seen at its end, before the savepoint and after it."""
    lines = flink.restore("backlog", savepoint, keys=RECORDS, parallelism=parallelism)
    return Counter(number for line in lines for number in line["numbers"])


@pytest.mark.parametrize(("version", "parallelism"), [(None, 2), (4, 3)])
def test_no_record_is_lost(
    parallelism: int, version: int | None, flink: FlinkOracle, tmp_path: Path
) -> None:
    """In a version of `_metadata` that has merged handles, and in one that has not."""
    checkpoint = unpack_backlog("flink-2.3.0", tmp_path / "golden")
    savepoint = exported(checkpoint, tmp_path, metadata_version=version)
    assert processed(flink, savepoint, parallelism) == ALL


@pytest.mark.parametrize("parallelism", [2, 3])
def test_no_record_of_flink_1_is_lost(
    parallelism: int, old_flink: FlinkOracle, flink: FlinkOracle, tmp_path: Path
) -> None:
    """Restored by the Flink that took the checkpoint, and by the next one."""
    savepoint = exported(unpack_backlog("flink-1.20.0", tmp_path / "golden"), tmp_path)
    assert processed(old_flink, savepoint, parallelism) == ALL
    assert processed(flink, savepoint, parallelism) == ALL


@pytest.mark.parametrize("name", ["flink-1.20.0", "flink-2.3.0"])
def test_what_is_left_out_is_lost(name: str, flink: FlinkOracle, tmp_path: Path) -> None:
    """Exactly these records, at another parallelism."""
    checkpoint = unpack_backlog(name, tmp_path / "golden")
    in_flight = numbers_in_flight(open_snapshot(checkpoint, uids=UIDS))
    savepoint = exported(checkpoint, tmp_path, drop_channel_state=True, parallelism=3)
    assert processed(flink, savepoint, 3) == ALL - in_flight


@pytest.mark.full
@pytest.mark.parametrize(
    "options",
    [
        {"backend": "rocksdb", "parallelism": 3, FILES: 1},
        {"backend": "hashmap", "parallelism": 2, "inline": 1 << 20},
        {"backend": "hashmap", "parallelism": 4, "taskmanager.memory.segment-size": "32kb"},
    ],
    ids=["file-each", "inline", "large-buffers"],
)
def test_other_checkpoints(options: dict[str, Any], flink: FlinkOracle, tmp_path: Path) -> None:
    """Channel state in a file for each subtask, within `_metadata`, with all that was sent."""
    checkpoint = checkpoint_of_backlog(flink, tmp_path / "written", **options)
    snapshot = open_snapshot(checkpoint)
    channels = channels_of(snapshot)
    in_flight = numbers_in_flight(snapshot)
    assert numbers_seen(snapshot) + in_flight == Counter(range(next_number(snapshot)))
    records = records_in_flight(channels)
    assert sum(operator.records for operator in records) == in_flight.total() > 0
    streams = {
        handle.stream
        for operator in snapshot.metadata.operators
        for subtask in (operator.subtasks or {}).values()
        for handle in (*subtask.inputs, *subtask.outputs)
    }
    if "inline" in options:
        assert all(isinstance(stream, InlineHandle) for stream in streams)
    if FILES in options:
        assert len(streams) > 3
    savepoint = exported(checkpoint, tmp_path)
    for parallelism in (options["parallelism"], 2, 5):
        assert processed(flink, savepoint, parallelism) == ALL
    (tmp_path / "again").mkdir()
    savepoint = exported(checkpoint, tmp_path / "again", drop_channel_state=True, parallelism=2)
    assert processed(flink, savepoint, 2) == ALL - in_flight
