"""A real HDFS: what holds in S3 holds here, files, commits, savepoints and lakes."""

from __future__ import annotations

import pickle
import shutil
import uuid
from pathlib import Path

import pytest

import statelake as sl
from statelake.state_core.errors import SnapshotError
from statelake.state_core.files.filesystem import Directory
from tests.integration.hdfs.cluster import Hdfs
from tests.integration.servers import test_s3_lake
from tests.integration.servers.test_s3 import (  # noqa: F401 - they are run here too
    test_a_damaged_savepoint_is_salvaged,
    test_a_directory,
    test_a_directory_is_made_again_of_its_location,
    test_a_file_that_is_replaced_by_one_as_long,
    test_a_log_is_compacted_while_others_append,
    test_a_savepoint_is_read_checked_and_recompressed,
    test_a_target_that_failed_can_be_used_again,
    test_blobs,
    test_concurrent_appends_lose_nothing,
    test_rows_become_a_savepoint,
)
from tests.integration.servers.test_s3_lake import (  # noqa: F401 - they are run here too
    test_a_bootstrap,
    test_a_catalog_has_one_snapshot_of_a_name,
    test_a_source_is_one_file,
    test_commands,
    test_operator_state,
    test_savepoints_by_schedule,
    test_there_and_back,
)
from tests.support.savepoints.checkpoint_trees import made_tree

pytestmark = [pytest.mark.hdfs, pytest.mark.full]


@pytest.fixture
def directory(hdfs: Hdfs) -> Directory:
    """A directory of its own."""
    return Directory(hdfs.location(f"tests/{uuid.uuid4().hex[:12]}"))


@pytest.mark.nightly
def test_runs_of_the_example(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in S3: each of their many small files takes HDFS some tenths of a second."""
    test_s3_lake.test_runs_of_the_example(directory, monkeypatch)


def test_a_file_has_its_name_when_it_is_closed(directory: Directory) -> None:
    """Before, readers see the one that was there, or none."""
    directory.write("a", b"before")
    file = directory.open_output("a")
    file.write(b"behind")
    assert directory.read("a") == b"before"
    file.close()
    assert directory.read("a") == b"behind"
    assert directory.names() == ["a"]


def test_its_file_system_travels(directory: Directory) -> None:
    """To another process, as Arrow's own do."""
    directory.write("a", b"1")
    filesystem = pickle.loads(pickle.dumps(directory.filesystem))  # noqa: S301 - our own
    assert filesystem == directory.filesystem
    assert filesystem.open_input_file(directory.full("a")).read() == b"1"


def test_what_is_refused_is_said_in_one_line(directory: Directory) -> None:
    """Without the stack of the name node."""
    directory.write("a", b"1")
    with pytest.raises(SnapshotError, match="not a directory") as refused:
        directory.write("a/b", b"2")
    assert "\n" not in str(refused.value)
    assert "\\n" not in str(refused.value)


def test_a_copy_goes_on(hdfs: Hdfs, directory: Directory, tmp_path: Path) -> None:
    """Where a killed one left a file under its temporary name; and back, with the original gone."""
    tree = made_tree(f"file:{tmp_path}/flink", 1, 1, families=("incremental",), savepoints=0)
    tree.write(tmp_path / "flink")
    (one,) = tree.snapshots
    for name in (next(iter(one.beside)), "_metadata"):
        directory.write(f"{name}.0123456789abcdef.part", b"half")
    to = hdfs.location(directory.root.strip("/"))
    done = sl.copy_snapshot(tmp_path / "flink" / one.path, to)
    assert (done.kept_files, len(directory.files_below())) == (0, done.files + 1)
    assert sl.copy_snapshot(tmp_path / "flink" / one.path, to).was_complete
    shutil.rmtree(tmp_path / "flink")
    assert sl.scan(to).snapshots[0].restorable
    sl.copy_snapshot(to, tmp_path / "back")
    directory.delete_tree()
    assert sl.scan(tmp_path / "back").snapshots[0].restorable


def test_a_name_node_that_is_not_there() -> None:
    """An error of ours that names the place."""
    with pytest.raises(SnapshotError, match=r"hdfs://127\.0\.0\.1:1/x"):
        Directory("hdfs://127.0.0.1:1/x").exists()
