"""A table's log is read and written where it was opened, whatever its path leads to by then."""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError
from obstore.exceptions import AlreadyExistsError, GenericError

from statelake.pipelines.lake.tables import delta_commit, table_log
from statelake.pipelines.lake.tables.delta_commit import DeltaCommit, until_committed
from statelake.pipelines.lake.tables.log_entries import check_entry, log_entry
from statelake.pipelines.lake.tables.table_log import write_checkpoint
from statelake.pipelines.lake.tables.tables import create_table, open_table
from statelake.state_core.errors import (
    DamagedLakeError,
    LakeError,
    MissingFileError,
    SnapshotError,
    UnreadableTableError,
    UnsafePathError,
)
from statelake.state_core.files.filesystem import Directory
from tests.support.steps import do_at

ROWS = pa.table({"number": pa.array([1, 2], pa.int64())})


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


STORE = "s3://bucket/table?region=us-east-1&anonymous=true"


@pytest.fixture
def opened(tmp_path: Path) -> DeltaTable:
    """A table of one version."""
    return create_table(Directory(tmp_path / "copy").confined(), ROWS.schema)


class Store:
    """A store that writes what has no name yet, and may break off before or behind that."""

    def __init__(self, patch: pytest.MonkeyPatch, *breaks: str) -> None:
        self.objects: dict[str, bytes] = {}
        self.asked = 0
        self._breaks = list(breaks)
        patch.setattr(obstore, "put", self.put)

    def put(self, _: object, path: str, data: bytes, *, mode: str) -> None:
        """As `obstore.put`; of each break its way, and what it is told."""
        assert mode == "create"
        self.asked += 1
        way, _, problem = self._breaks.pop(0).partition(": ") if self._breaks else ("", "", "")
        if way == "before":
            raise GenericError(problem)
        if path in self.objects:
            raise AlreadyExistsError(path)
        self.objects[path] = data
        if way == "behind":
            raise GenericError(problem)

    def commit(self, table: DeltaTable) -> int:
        """Commit behind a table's version: the version that it became."""
        directory = Directory(STORE).confined()
        made = DeltaCommit(directory, ROWS.schema, None, CommitProperties(max_commit_retries=0))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(directory, "read", self.read)
            patch.setattr(directory, "is_file", self.objects.__contains__)
            return made.write(table)

    def read(self, path: str) -> bytes:
        """The bytes of an object."""
        if path not in self.objects:
            raise MissingFileError(path)
        return self.objects[path]


@pytest.mark.parametrize(
    ("problem", "tries"),
    [
        (REFUSED, 1),
        ("in 2.8s, after 10 retries, max_retries: 10, retry_timeout: 180s", 1),
        ("connection closed before message completed", 4),
    ],
)
def test_a_commit_that_a_store_does_not_take(
    problem: str, tries: int, opened: DeltaTable, waits: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """What may pass is tried again; who may not write is told so at once."""
    store = Store(monkeypatch, *[f"before: {problem}"] * 4)
    with pytest.raises(SnapshotError, match="credentials, and whether the store can be reached"):
        store.commit(opened)
    assert (store.asked, len(waits)) == (tries, tries - 1)
    assert store.objects == {}


def test_a_commit_whose_answer_is_lost(
    opened: DeltaTable, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found in the log by its own token: neither done twice nor taken for another's."""
    store = Store(monkeypatch, "behind: connection closed", "before: connection closed")
    assert store.commit(opened) == 1
    assert (store.asked, len(waits), list(store.objects)) == (3, 2, [log_entry(1)])
    lasting = Store(monkeypatch, f"behind: {REFUSED}")
    assert lasting.commit(opened) == 1
    assert lasting.asked == 1


def test_another_commit_in_a_store_is_not_taken_for_its_own(
    opened: DeltaTable, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the answer of the first try was lost, too."""
    store = Store(monkeypatch)
    store.commit(opened)
    before = dict(store.objects)
    again = Store(monkeypatch, "before: connection closed")
    again.objects = store.objects
    with pytest.raises(CommitFailedError):
        again.commit(opened)
    assert again.objects == before
    assert len(waits) == 1


def change(directory: Directory) -> DeltaCommit:
    """A commit of two rows."""
    made = DeltaCommit(directory, ROWS.schema, None, CommitProperties(max_commit_retries=0))
    made.add_rows("part-00000-a.parquet", ROWS)
    return made


def added(table: DeltaTable) -> list[dict[str, Any]]:
    """The files of a table, as its log has them."""
    files: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return files


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


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_table_that_becomes_a_link(
    when: str, table: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a version nor a checkpoint comes to what it leads to."""
    opened = open_table(table)
    assert opened is not None
    commit = change(table)
    before = content(tmp_path / "victim")
    monkeypatch.setattr(delta_commit, "CHECKPOINT_EVERY", 1)

    def swap() -> None:
        (tmp_path / "table").rename(tmp_path / "moved")
        (tmp_path / "table").symlink_to("victim")

    do_at(monkeypatch, (DeltaCommit, "_put", when, 1), swap)
    with pytest.raises(UnsafePathError) if when == "before" else nullcontext():
        commit.write(opened)
    assert content(tmp_path / "victim") == before
    assert DeltaTable(tmp_path / "moved").version() == (0 if when == "before" else 1)
    with pytest.raises(UnsafePathError):
        open_table(table)


def sidecar_table(root: Path, sidecar: str) -> Path:
    """The log of a table of two versions, whose checkpoint names a further file."""
    log = root / "table" / "_delta_log"
    written = DeltaTable(root / "table")
    written.create_write_transaction([], "append", written.schema())
    written.update_incremental()
    written.create_checkpoint()
    actions = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    protocol = {
        "minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"],
    }  # fmt: skip
    (metadata,) = [action for action in actions if "metaData" in action]
    lines = [
        {"checkpointMetadata": {"version": 1}}, {"protocol": protocol}, metadata,
        {"sidecar": {"path": sidecar, "sizeInBytes": 1, "modificationTime": 1}},
    ]  # fmt: skip
    (log / f"{1:020}.checkpoint.{uuid.uuid4()}.json").write_text("\n".join(map(json.dumps, lines)))
    return log


def refused(table: Directory, said: str) -> None:
    """Nothing opens the table; what is said names what is wrong."""
    with pytest.raises((UnreadableTableError, UnsafePathError), match=said):
        open_table(table)
    with pytest.raises((UnreadableTableError, UnsafePathError), match=said):
        create_table(table, ROWS.schema)


@pytest.mark.parametrize("place", ["{root}/victim.parquet", "file://{root}/victim.parquet", "a"])
def test_checkpoints_that_name_further_files_are_refused(
    place: str, table: Directory, tmp_path: Path
) -> None:
    """Wherever these are, and whatever the checkpoint is called."""
    log = sidecar_table(tmp_path, place.format(root=tmp_path))
    refused(table, "another kind")
    for path in log.glob("*.checkpoint.*.json"):
        path.unlink()
    assert open_table(table) is not None
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    actions = pq.read_table(checkpoint)
    at = actions.schema.get_field_index("sidecar")
    field = actions.schema.field(at)
    named = {"path": place, "sizeInBytes": 1, "modificationTime": 1}
    rows = pa.array([named] + [None] * (len(actions) - 1), field.type)
    pq.write_table(actions.set_column(at, field, rows), checkpoint)
    refused(table, "names further files")


def fifo(path: Path) -> None:
    """A pipe into which nobody writes."""
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        (f"{1:020}.json", fifo),
        (f"{1:020}.json", Path.mkdir),
        ("_last_checkpoint", fifo),
        ("_last_checkpoint", Path.mkdir),
        (f"{0:020}.checkpoint.parquet", fifo),
        (f"{0:020}.checkpoint.parquet", Path.mkdir),
        (f"{0:020}.crc", fifo),
        ("_sidecars", fifo),
        ("_anything", Path.mkdir),
    ],
)
def test_what_is_no_file_in_a_log_is_refused(
    name: str, make: Callable[[Path], None], table: Directory, tmp_path: Path
) -> None:
    """By its name, and nobody waits for it."""
    make(tmp_path / "table" / "_delta_log" / name)
    refused(table, name)


@pytest.mark.parametrize("name", ["_sidecars", "_staged_commits", "_commits"])
def test_only_empty_directories_of_spark_are_in_a_log(
    name: str, table: Directory, tmp_path: Path
) -> None:
    """Spark makes them, where a table is its own; a link in one would be followed."""
    (tmp_path / "table" / "_delta_log" / name).mkdir()
    assert open_table(table) is not None
    (tmp_path / "table" / "_delta_log" / name / "a.parquet").symlink_to("/etc/passwd")
    refused(table, "further files")


@pytest.mark.parametrize("parts", ["0000000001.0000000001", str(uuid.UUID(int=1))])
def test_checkpoints_of_several_files_are_refused(
    parts: str, table: Directory, tmp_path: Path
) -> None:
    """Nothing but one file with all that it says, which delta-rs and Spark write."""
    log = sidecar_table(tmp_path, "a")
    for path in log.glob("*.checkpoint.*.json"):
        path.unlink()
    (log / f"{1:020}.checkpoint.parquet").rename(log / f"{1:020}.checkpoint.{parts}.parquet")
    refused(table, "another kind")


def test_a_checkpoint_that_unpacks_to_too_much_is_refused(table: Directory, tmp_path: Path) -> None:
    """It is held against its bytes as all of a lake's files are."""
    checkpoint = tmp_path / "table" / "_delta_log" / f"{0:020}.checkpoint.parquet"
    pq.write_table(pa.table({"add": np.zeros(3_000_000, np.int8)}), checkpoint)
    with pytest.raises(DamagedLakeError, match="rows of one file of a lake"):
        open_table(table)


TXN = '{"txn": {"appId": "a", "version": 1}}\n'
TORN = [
    "", '{"commitInfo": {', TXN + '{"add"', TXN + '{"add": {"path": "\\u00', '{"a": [tru',
    '{"a": -1.',
]  # fmt: skip


@pytest.mark.parametrize("torn", TORN)
def test_a_newest_entry_that_was_cut_off(torn: str, table: Directory, tmp_path: Path) -> None:
    """The table is read as before it, and the next commit takes its place."""
    first = open_table(table)
    assert first is not None
    change(table).write(first)
    entry = tmp_path / "table" / log_entry(2)
    entry.write_text(torn, "utf-8")

    def commit() -> int:
        opened = open_table(table)
        assert opened is not None
        assert [file["path"] for file in added(opened)] == ["part-00000-a.parquet"]
        made = DeltaCommit(table, ROWS.schema, None, CommitProperties())
        made.add_rows("part-00000-b.parquet", ROWS)
        return made.write(opened)

    assert until_committed(commit, table) == 3
    after = open_table(table)
    assert after is not None
    names = sorted(file["path"] for file in added(after))
    assert names == ["part-00000-a.parquet", "part-00000-b.parquet"]
    assert all(isinstance(json.loads(line), dict) for line in entry.read_text("utf-8").splitlines())


@pytest.mark.parametrize("torn", TORN)
def test_a_first_entry_that_was_cut_off(torn: str, tmp_path: Path) -> None:
    """There is no table, and it can be made."""
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    (tmp_path / "table" / log_entry(0)).write_text(torn, "utf-8")
    directory = Directory(tmp_path).confined().child("table")
    assert open_table(directory) is None
    made = create_table(directory, ROWS.schema)
    assert change(directory).write(made) == 1
    after = open_table(directory)
    assert after is not None
    assert [file["num_records"] for file in added(after)] == [2]


def own_entry(table: Directory, version: int) -> Path:
    """The path of an entry of ours in a table of two versions."""
    first = open_table(table)
    assert first is not None
    assert change(table).write(first) == version
    return Path(table.full(log_entry(version)))


def test_each_damaged_byte_of_an_own_entry_is_told(table: Directory) -> None:
    """It names the entry, at whichever byte, and no commit comes in its place."""
    entry = own_entry(table, 1)
    data = entry.read_bytes()
    opened = open_table(table, 0)
    assert opened is not None
    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        entry.write_bytes(damaged)
        with pytest.raises(DamagedLakeError, match=f"{1:020d}.json, at offset"):
            open_table(table)
    with pytest.raises(DamagedLakeError, match="at offset"):
        until_committed(lambda: change(table).write(open_table(table) or opened), table)
    with pytest.raises(CommitFailedError):
        change(table).write(opened)
    assert entry.read_bytes() == damaged


def test_an_own_entry_without_its_end_is_damage(table: Directory) -> None:
    """It was on the disk before it had its name, so it can't have been cut off."""
    entry = own_entry(table, 1)
    data = entry.read_bytes()
    for length in range(40, len(data)):
        entry.write_bytes(data[:length])
        with pytest.raises(DamagedLakeError, match="a damaged entry of the log"):
            open_table(table)


@pytest.mark.parametrize("name", ["snapshots", "_statelake/erasure_records"])
def test_nothing_is_cut_off_where_nobody_else_writes(name: str, tmp_path: Path) -> None:
    """An empty entry of the catalog is damage: the snapshots before it are not all there are."""
    directory = Directory(tmp_path).confined().child(name)
    create_table(directory, ROWS.schema)
    entry = own_entry(directory, 1)
    entry.write_bytes(b"")
    with pytest.raises(DamagedLakeError, match="it is empty"):
        open_table(directory)
    assert entry.read_bytes() == b""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"afd": {"path": "a"}}', "'afd' is no action"),
        ('{"add": {"pbth": "a"}}', "without a valid 'path'"),
        ('{"txn": {"appId": "a", "version": 1}, "add": {"path": "a"}}', "not one action"),
        ("5", "not one action"),
        ('{"txn": {"appId": "a", "version": 1]}', "not JSON"),
    ],
)
def test_a_damaged_entry_of_another_engine_is_told(line: str, said: str, table: Directory) -> None:
    """Delta's readers would pass over it."""
    entry = Path(table.full(log_entry(1)))
    entry.write_text(TXN + line)
    with pytest.raises(DamagedLakeError, match=said) as raised:
        open_table(table)
    assert raised.value.place == f"{entry}, at offset {len(TXN) + max(0, line.find(']'))}"


@pytest.mark.parametrize(
    "line",
    [
        '{"domainMetadata": {"domain": "d", "configuration": "{}", "removed": false}}',
        '{"cdc": {"path": "a", "partitionValues": {}, "size": 1, "dataChange": false}}',
        '{"sidecar": {"path": "a", "sizeInBytes": 1, "modificationTime": 1}}',
        '{"checkpointMetadata": {"version": 1}}',
        '{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}, "add": null}',
        '{"commitInfo": {"anything": {"of": ["others"]}}}',
    ],
)
def test_all_actions_of_delta_are_valid(line: str) -> None:
    """Those of other engines, also the ones that nothing here reads."""
    check_entry(f"{TXN}{line}\n".encode(), "an entry")


def test_an_entry_that_counts_as_not_written_is_told(
    table: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody believes that the table is the newest one that there was."""
    entry = Path(table.full(log_entry(1)))
    entry.write_text(TXN + '{"add"')
    assert open_table(table) is not None
    assert f"{entry}, at offset" in caplog.text


@pytest.mark.full
def test_a_damaged_checkpoint_is_not_believed(
    table: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever byte it is: the table is read from its entries, and that is told."""
    own_entry(table, 1)
    write_checkpoint(table)
    checkpoint = Path(table.full(f"_delta_log/{1:020}.checkpoint.parquet"))
    last = Path(table.full("_delta_log/_last_checkpoint"))
    data, said = checkpoint.read_bytes(), last.read_bytes()
    assert DeltaTable(table.uri).version() == 1
    for at in range(0, len(data), 97):
        checkpoint.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        last.write_bytes(said)
        caplog.clear()
        opened = open_table(table)
        assert opened is not None
        assert [file["path"] for file in added(opened)] == ["part-00000-a.parquet"]
        assert f"{checkpoint}: a damaged checkpoint is deleted" in caplog.text
        assert not checkpoint.exists()


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
