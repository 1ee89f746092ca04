"""`statelake compress`, and Flink's own word for it wherever a snapshot is written."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.orchestration.definitions import definitions
from statelake.state_core.errors import EncodeError
from statelake.state_core.files.compression import COMPRESSION_KEY, configured_compression
from tests.support.command import run
from tests.support.lakes import KINDS, WINDOWS, entries, import_as


@pytest.mark.parametrize(
    ("options", "compression"),
    [
        ((), "snappy"),
        (("--compression", "none"), "none"),
        (("--conf", f"{COMPRESSION_KEY}=true"), "snappy"),
        (("--conf", f"{COMPRESSION_KEY}=false"), "none"),
    ],
)
def test_what_is_asked_for(options: tuple[str, ...], compression: str, tmp_path: Path) -> None:
    """The savepoint is as said, with the figures of each state."""
    ran = run("compress", KINDS, "--to", tmp_path / "out", *options, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json["compression"] == compression == open_snapshot(tmp_path / "out").compression
    assert {state["state"] for state in ran.json["states"]} == {
        state for _, state in entries(KINDS)
    }
    assert all(state["content_bytes"] > 0 < state["after_bytes"] for state in ran.json["states"])
    assert entries(tmp_path / "out") == entries(KINDS)


def test_for_people(tmp_path: Path) -> None:
    """A line, and a table with ratio and speed."""
    ran = run("compress", WINDOWS, "--to", tmp_path / "out")
    assert ran.code == 0
    assert "compression snappy" in ran.out
    assert "ratio" in ran.out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--conf", COMPRESSION_KEY), "not of the form KEY=VALUE"),
        (("--conf", f"{COMPRESSION_KEY}=maybe"), "true or false"),
        (("--conf", "state.backend=rocksdb"), "has no meaning"),
        (("--conf", f"{COMPRESSION_KEY}=true", "--compression", "none"), "say one of them"),
    ],
)
def test_what_can_not_be(options: tuple[str, ...], said: str, tmp_path: Path) -> None:
    """It is told, and nothing is written."""
    ran = run("compress", KINDS, "--to", tmp_path / "out", *options)
    assert ran.code == 3
    assert said in ran.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("value", "compression"), [("true", "snappy"), ("false", "none")])
def test_an_export_understands_it(value: str, compression: str, tmp_path: Path) -> None:
    """The same key for `statelake export`."""
    lake = Catalog(tmp_path / "lake")
    import_as(lake, WINDOWS, "s")
    ran = run(
        "export", "--lake", lake.location, "--job", "orders", "--snapshot", "s", "--to",
        tmp_path / "out", "--conf", f"{COMPRESSION_KEY}={value}",
    )  # fmt: skip
    assert ran.code == 0
    assert open_snapshot(tmp_path / "out").compression == compression


def test_a_dagster_job(tmp_path: Path) -> None:
    """The op writes it, and shows what became of each state."""
    config = {
        "savepoint": str(KINDS), "to": str(tmp_path / "out"),
        "flink_conf": {COMPRESSION_KEY: "false"},
    }  # fmt: skip
    done = definitions.resolve_job_def("compress_savepoint").execute_in_process(
        dg.RunConfig(ops={"compress": {"config": config}}), raise_on_error=True
    )
    assert done.success
    assert open_snapshot(tmp_path / "out").compression == "none"


def test_nothing_said() -> None:
    """Then the other option holds, or nothing."""
    assert configured_compression({}) is None
    assert configured_compression({}, "snappy") == "snappy"
    with pytest.raises(EncodeError, match="has no meaning"):
        configured_compression({"x": "y"})
