"""Unaligned checkpoints in a lake: what is carried, refused and left out when one is exported."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.recorded_channels import recorded_channels
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.share.sampling import Sample
from statelake.pipelines.lake.share.sharing import SharedForm
from statelake.pipelines.requests.imports import Import
from statelake.state_core.errors import UnsupportedFormatError
from statelake.state_core.formats.channels import channels_of, records_in_flight
from tests.support.command import run
from tests.support.savepoints.backlogs import (
    BACKLOGS,
    UIDS,
    numbers_in_flight,
    numbers_seen,
    unpack_backlog,
)

every_backlog = pytest.mark.parametrize("name", BACKLOGS)


def imported(name: str, tmp_path: Path) -> tuple[Catalog, Path]:
    """A lake with the checkpoint, and that."""
    checkpoint = unpack_backlog(name, tmp_path / "flink")
    lake = Catalog(tmp_path / "lake")
    import_snapshot(
        lake, str(checkpoint), "job", Import(uids=UIDS), snapshot_id="s", engine="local"
    )
    return lake, checkpoint


def channels_in(snapshot: Path) -> list[Any]:
    """All channels with what is in them."""
    return [
        (channel.operator_id, channel.received, channel.subtask, channel.gate, channel.channel,
         channel.size, channel.buffers())
        for channel in channels_of(open_snapshot(snapshot))
    ]  # fmt: skip


@every_backlog
@pytest.mark.parametrize("version", [None, 3, 4, 5, 6])
def test_records_in_flight_are_carried(name: str, version: int | None, tmp_path: Path) -> None:
    """To the byte, by channel, in every version of `_metadata`; and they lie in the lake once."""
    lake, checkpoint = imported(name, tmp_path)
    record = lake.snapshot("job", "s")
    (file,) = {channel.file for channel in recorded_channels(lake.directory, record)}
    assert file
    assert len(record.carried) == 1
    target = tmp_path / "out"
    done = export_snapshot(lake, "job", "s", target, metadata_version=version, engine="local")
    assert done.left_out == []
    assert channels_in(target) == channels_in(checkpoint)
    assert numbers_seen(open_snapshot(target, uids=UIDS)) == numbers_seen(
        open_snapshot(checkpoint, uids=UIDS)
    )


@pytest.mark.parametrize(
    "shape", [{"parallelism": 3}, {"max_parallelism": 256}, {"parallelism": 1}], ids=str
)
def test_they_are_not_moved(shape: dict[str, int], tmp_path: Path) -> None:
    """Which subtask is to get a record is not in a snapshot; the error says what can be done."""
    lake, _ = imported("flink-2.3.0", tmp_path)
    with pytest.raises(UnsupportedFormatError, match="records in flight, which only Flink") as told:
        export_snapshot(lake, "job", "s", tmp_path / "out", engine="local", **shape)  # type: ignore[arg-type]
    assert "--drop-channel-state" in told.value.remedy
    assert not (tmp_path / "out").exists()


@every_backlog
def test_they_are_left_out_if_that_is_said(name: str, tmp_path: Path) -> None:
    """It is said how many records of which operator are lost, and any parallelism will do."""
    lake, checkpoint = imported(name, tmp_path)
    snapshot = open_snapshot(checkpoint, uids=UIDS)
    target = tmp_path / "out"
    done = export_snapshot(
        lake, "job", "s", target, drop_channel_state=True, parallelism=3, max_parallelism=64,
        engine="local",
    )  # fmt: skip
    exported = open_snapshot(target, uids=UIDS)
    assert channels_of(exported) == []
    assert exported.operator("seen").parallelism == 3
    assert numbers_seen(exported) == numbers_seen(snapshot)
    found = records_in_flight(channels_of(snapshot))
    assert len(done.left_out) == len(found) == 4
    said = [re.match(r"([\d,]+) records \(([\d,]+) bytes\) in flight at", x) for x in done.left_out]
    counts = [(int(x[1].replace(",", "")), int(x[2].replace(",", ""))) for x in said if x]
    assert counts == [(operator.records, operator.size) for operator in found]
    assert sum(count for count, _ in counts) == numbers_in_flight(snapshot).total()


def test_what_the_command_says(tmp_path: Path) -> None:
    """Of a checkpoint, with no lake: the error, and the warning."""
    checkpoint = unpack_backlog("flink-2.3.0", tmp_path / "flink")
    words = ("export", checkpoint, "--to", tmp_path / "out", "--parallelism", 4)
    refused = run(*words)
    assert refused.code == 3
    assert "--drop-channel-state" in refused.err
    done = run(*words, "--drop-channel-state")
    assert (done.code, done.err) == (0, "")
    assert "left out: 61 records (8,214 bytes) in flight at operator seen: the job" in done.out
    assert run("channels", tmp_path / "out").out == "nothing is in flight\n"
    done = run("export", checkpoint, "--to", tmp_path / "again", "--json")
    assert done.json["left_out"] == []
    assert len(run("channels", tmp_path / "again", "--json").json["channels"]) == 12


def test_a_sample_is_without_them(tmp_path: Path) -> None:
    """They are of all keys: refused with a sample, unless they are left out."""
    lake, _ = imported("flink-2.3.0", tmp_path)
    sharing = SharedForm(Sample(0.5, 1))
    with pytest.raises(UnsupportedFormatError, match="there is the channel state of"):
        export_snapshot(lake, "job", "s", tmp_path / "out", sharing=sharing, engine="local")
    done = export_snapshot(
        lake, "job", "s", tmp_path / "out", sharing=sharing, drop_channel_state=True,
        engine="local",
    )  # fmt: skip
    assert len(done.left_out) == 4


def test_a_plan_says_that_they_are_in_the_way(tmp_path: Path) -> None:
    """What `rescale` shows is not what `export` would then do."""
    lake, _ = imported("flink-2.3.0", tmp_path)
    words = ("plan-rescale", "--lake", lake.location, "--job", "job", "--snapshot", "s")
    assert "--drop-channel-state" in run(*words, "--parallelism", 3).out


def test_channels_that_can_not_be_read_are_left_out(tmp_path: Path) -> None:
    """What is lost is then not known, which is said."""
    checkpoint = unpack_backlog("flink-2.3.0", tmp_path / "flink")
    file = max(checkpoint.iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(file.read_bytes())
    data[:4] = b"\0\0\0\1"
    file.write_bytes(data)
    done = run(
        "export", checkpoint, "--to", tmp_path / "out", "--drop-channel-state", "--json"
    )  # fmt: skip
    (left_out,) = done.json["left_out"]
    assert left_out.startswith("all records in flight, which can't be counted: channel state of v")
