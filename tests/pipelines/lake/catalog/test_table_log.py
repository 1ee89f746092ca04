"""A table's log is read and written where it was opened, whatever its path leads to by then."""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable

from pipelines.lake.tables import delta_commit, table_log
from pipelines.lake.tables.delta_commit import DeltaCommit, until_committed
from pipelines.lake.tables.tables import create_table, open_table
from state_core.errors import DamagedLakeError, LakeError, MissingFileError, UnsafePathError
from state_core.files.filesystem import Directory

ROWS = pa.table({"number": pa.array([1, 2], pa.int64())})
linux = pytest.mark.skipif(sys.platform != "linux", reason="descriptors of directories have paths")


REFUSED = "The operation lacked the necessary privileges to complete - 403 Forbidden"
ASKED_OFTEN = "in 2.8s, after 10 retries, max_retries\n  \x1b[31m↳\x1b[0m 10, retry_timeout"


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds before a store is asked again, without them."""
    waited: list[float] = []
    clock = SimpleNamespace(sleep=waited.append, time=time.time)
    for module in (table_log, delta_commit):  # other threads of this process wait as ever
        monkeypatch.setattr(module, "time", clock)
    return waited


@pytest.mark.parametrize(
    ("problem", "tries", "remedy"),
    [
        (REFUSED, 1, "check the credentials, and what they allow"),
        (ASKED_OFTEN, 1, "whether the store can be reached"),
        ("error decoding response body", 4, "whether the store can be reached, and try again"),
    ],
)
def test_a_log_that_a_store_does_not_give(
    problem: str, tries: int, remedy: str, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What may pass is tried again; who may not read is told so at once."""
    opened = Mock(side_effect=OSError(problem))
    monkeypatch.setattr(table_log, "DeltaTable", opened)
    with pytest.raises(LakeError, match=remedy):
        open_table(Directory("s3://bucket/table?region=us-east-1").confined())
    assert (opened.call_count, len(waits)) == (tries, tries - 1)


@pytest.mark.parametrize(
    ("problem", "tries", "remedy"),
    [
        (REFUSED, 1, "check the credentials, and what they allow"),
        (ASKED_OFTEN, 1, "whether the store can be reached"),
        ("connection closed before message completed", 4, "see whether its log is whole"),
    ],
)
def test_a_commit_that_a_store_does_not_take(
    problem: str, tries: int, remedy: str, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same; the log is looked at each time, as the commit may be there."""
    directory = Directory("s3://bucket/table?region=us-east-1").confined()
    made = DeltaCommit(directory, ROWS.schema, None, CommitProperties(max_commit_retries=0))
    look = Mock(side_effect=MissingFileError("no such file"))
    monkeypatch.setattr(directory, "read", look)
    table = Mock(**{"version.return_value": 3})
    table.create_write_transaction.side_effect = OSError(problem)
    with pytest.raises(DamagedLakeError, match=remedy):
        until_committed(lambda: made.write(table), directory)
    assert table.create_write_transaction.call_count == look.call_count == tries
    assert len(waits) == tries - 1


def change(directory: Directory) -> DeltaCommit:
    """A commit of two rows."""
    made = DeltaCommit(directory, ROWS.schema, None, CommitProperties(max_commit_retries=0))
    made.add_rows("part-00000-a.parquet", ROWS)
    return made


def content(directory: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def table(tmp_path: Path) -> Directory:
    """A table of one version, beside another that is a victim's."""
    for name in ("table", "victim"):
        create_table(Directory(tmp_path / name).confined(), ROWS.schema)
    return Directory(tmp_path).confined().child("table")


@linux
@pytest.mark.parametrize("versions", [1, 101], ids=["a version", "a checkpoint"])
def test_a_table_that_becomes_a_link(versions: int, table: Directory, tmp_path: Path) -> None:
    """Versions and checkpoints come to the table that was opened, and none to the other."""
    opened = open_table(table)
    assert opened is not None
    commit = change(table)
    commit.write(opened)  # its file is on the disk by now
    opened.update_incremental()
    before = content(tmp_path / "victim")
    (tmp_path / "table").rename(tmp_path / "moved")
    (tmp_path / "table").symlink_to("victim")
    for _ in range(versions):
        commit.write(opened)
        opened.update_incremental()
    assert opened.version() == versions + 1
    assert content(tmp_path / "victim") == before
    assert DeltaTable(tmp_path / "moved").version() == versions + 1
    checkpoints = list((tmp_path / "moved" / "_delta_log").glob("*.checkpoint.parquet"))
    assert len(checkpoints) == versions // 100
    with pytest.raises(UnsafePathError):
        open_table(table)


def test_a_log_that_is_a_link_is_not_made(tmp_path: Path) -> None:
    """Nothing is written behind it."""
    create_table(Directory(tmp_path / "victim").confined(), ROWS.schema)
    before = content(tmp_path / "victim")
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "_delta_log").symlink_to(tmp_path / "victim" / "_delta_log")
    directory = Directory(tmp_path).confined().child("table")
    with pytest.raises(UnsafePathError):
        create_table(directory, ROWS.schema)
    assert content(tmp_path / "victim") == before


def test_a_log_that_vanishes(table: Directory, tmp_path: Path) -> None:
    """It is damage of the lake, told with the table's place and not with one of our own."""
    opened = open_table(table)
    assert opened is not None
    commit = change(table)
    for path in (tmp_path / "table" / "_delta_log").iterdir():
        path.unlink()
    with pytest.raises(DamagedLakeError, match="no version can be added") as raised:
        until_committed(lambda: commit.write(opened), table)
    assert "statelake-log" not in str(raised.value)
    assert table.uri in str(raised.value)
    assert open_table(table) is None


def test_a_damaged_log_is_told_by_its_own_path(table: Directory, tmp_path: Path) -> None:
    """Whatever path delta-rs was given."""
    log = tmp_path / "table" / "_delta_log" / "00000000000000000000.json"
    log.write_text('{"metaData": 1}\n')
    with pytest.raises(LakeError) as raised:
        open_table(table)
    assert "statelake-log" not in str(raised.value)


def test_nothing_is_left_behind(
    table: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that nobody uses any more has no directory of its own, nor one that is damaged."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    opened = open_table(table)
    assert list((tmp_path / "tmp").iterdir()) if sys.platform == "linux" else True
    with pytest.raises(DamagedLakeError):
        open_table(table, 7)
    del opened
    gc.collect()
    assert list((tmp_path / "tmp").iterdir()) == []
