"""`statelake channels`: what it prints of checkpoints of real Flink, and what it refuses."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.requests.imports import Import
from statelake.state_core.formats.channels import channels_of, records_in_flight
from tests.support.command import run
from tests.support.lakes import KINDS
from tests.support.savepoints.backlogs import BACKLOGS, UIDS, numbers_in_flight, unpack_backlog

NEW = "flink-2.3.0"
KNOWN = [word for uid in UIDS for word in ("--uid", uid)]


@pytest.mark.parametrize("name", BACKLOGS)
def test_a_lake_says_what_the_checkpoint_says(name: str, tmp_path: Path) -> None:
    """Channel by channel, and record by record; uids that were given go with tables alone."""
    checkpoint = unpack_backlog(name, tmp_path / "flink")
    lake = Catalog(tmp_path / "lake")
    import_snapshot(
        lake, str(checkpoint), "job", Import(uids=UIDS), snapshot_id="s", engine="local"
    )
    places = (checkpoint, *KNOWN), ("--lake", lake.location, "--job", "job")
    channels, again = (run("channels", *place, "--json").json["channels"] for place in places)
    assert [row | {"operator": ""} for row in again] == [row | {"operator": ""} for row in channels]
    of_pairs = ("--records", "--like", "seen/last", "--operator", "seen")
    lines, again = (run("channels", *place, *of_pairs).out for place in places)
    assert lines == again
    assert len(lines.splitlines()) > 40


def test_channels_are_counted(tmp_path: Path) -> None:
    """Each with its buffers, bytes and records, and what of a record lies elsewhere."""
    checkpoint = unpack_backlog(NEW, tmp_path)
    snapshot = open_snapshot(checkpoint)
    rows = run("channels", checkpoint, "--json").json["channels"]
    for found in records_in_flight(channels_of(snapshot)):
        mine = [row for row in rows if row["operator"] == found.operator]
        assert len(mine) == found.channels
        for name, count in (
            ("buffers", found.buffers), ("bytes", found.size), ("records", found.records),
            ("other_elements", found.others),
        ):  # fmt: skip
            assert sum(row[name] for row in mine) == count
    assert "statelake channels" in run("inspect", checkpoint).out
    shown = run("channels", checkpoint).out
    total = numbers_in_flight(snapshot).total()
    assert f"{total:,} records in flight" in shown
    assert "received, gate 0, channel 1" in shown
    assert "to send, partition 0, subpartition 1" in shown
    assert "begins a record: " in shown
    assert "ends a record: " in shown


def test_records_are_printed(tmp_path: Path) -> None:
    """By the type that is given, or that of a state's values, or as bytes."""
    checkpoint = unpack_backlog(NEW, tmp_path)
    seen = ("channels", checkpoint, "--operator", "seen", "--records")
    typed = run(*seen, "--type", "Tuple2<Long, String>").out
    assert typed == run(*seen, "--like", "seen/last").out
    lines = [json.loads(line) for line in typed.splitlines()]
    (watermark, *_) = [line for line in lines if line["element"] != "record"]
    assert watermark["element"] == "watermark"
    assert "value" not in watermark
    for line in lines:
        if line["element"] == "record":
            assert line["timestamp"] == line["value"]["f0"] * 1000
    as_bytes = [json.loads(line) for line in run(*seen).out.splitlines()]
    assert [line | {"value": 0} for line in as_bytes] == [line | {"value": 0} for line in lines]
    assert len(run(*seen, "--limit", 3).out.splitlines()) == 3


def test_what_no_column_holds_is_printed_as_bytes(tmp_path: Path) -> None:
    """Beside the value, if there is one: nothing is left out."""
    checkpoint = unpack_backlog(NEW, tmp_path)
    texts = ("channels", checkpoint, "--operator", "texts", "--records")
    lines = [json.loads(line) for line in run(*texts, "--type", "Date").out.splitlines()]
    assert not any("raw_value" in line for line in lines)
    file = max(checkpoint.iterdir(), key=lambda path: path.stat().st_size)
    shown = json.loads(run(*texts, "--limit", 1).out)
    before = shown["timestamp"].to_bytes(8, "big", signed=True)
    number = base64.b64decode(shown["value"])
    after = (1 << 62).to_bytes(8, "big")  # Java has that date, Arrow has not
    data = file.read_bytes()
    assert data.count(before + number) == 1
    file.write_bytes(data.replace(before + number, before + after))
    (line,) = map(json.loads, run(*texts, "--type", "Date", "--limit", 1).out.splitlines())
    assert "value" not in line
    assert base64.b64decode(line["raw_value"]) == after


def test_what_it_refuses(tmp_path: Path) -> None:
    """Each with what to do."""
    checkpoint = unpack_backlog(NEW, tmp_path)
    for options, code, message in (
        (("--operator", "nobody"), 3, "these have: numbers, seen, times, texts"),
        (("--records", "--type", "Long"), 3, "give the type that the sending operator emits"),
        (("--records", "--like", "seen/none"), 3, "has no keyed state 'none'"),
        (("--records", "--like", "seen"), 3, "no operator ''"),
        (("--type", "Long"), 2, "say what --records prints"),
        (("--records", "--type", "Long", "--like", "seen/last"), 2, "either --type or --like"),
    ):
        ran = run("channels", checkpoint, *options)
        assert ran.code == code
        assert message in ran.err
    assert run("channels", KINDS).out == "nothing is in flight\n"
