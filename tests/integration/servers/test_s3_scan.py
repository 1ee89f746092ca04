"""`scan` of 2,000 checkpoints in a store: few requests, in seconds; `orphans` and `copy` there."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import S3Store

import statelake as sl
from statelake.state_core.errors import SnapshotError
from statelake.state_core.files.filesystem import Directory
from tests.integration.s3.proxy import BUCKET, KEY, SECRET, S3Proxy
from tests.integration.s3.relay import Relay
from tests.support.command import run
from tests.support.savepoints.checkpoint_trees import LIGHT, MadeTree, made_tree

pytestmark = [pytest.mark.s3, pytest.mark.full]

JOBS, EACH = 20, 100
A_SNAPSHOT = 1.2  # requests, besides listings


@pytest.fixture
def relay(s3: S3Proxy) -> Iterator[Relay]:
    """A relay before the store."""
    with Relay(s3.port) as made:
        yield made


def put(tree: MadeTree, s3: S3Proxy, at: str) -> None:
    """Put a tree into the bucket, `_metadata` last, and the oldest first."""
    store = S3Store(
        BUCKET, prefix=at, endpoint=f"http://127.0.0.1:{s3.port}", region="us-east-1",
        access_key_id=KEY, secret_access_key=SECRET, client_options={"allow_http": True},
    )  # fmt: skip

    def put_one(path: str) -> None:
        obstore.put(store, path, tree.files[path][0], use_multipart=False)

    ordered = sorted(tree.files, key=lambda path: (path.endswith("_metadata"), tree.files[path][1]))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put_one, ordered))


def test_two_thousand_checkpoints_in_a_store(s3: S3Proxy, relay: Relay) -> None:
    """Each `_metadata` is read by one request; lengths come from the listing."""
    at = f"scan/{uuid.uuid4().hex[:12]}"
    tree = made_tree(f"s3://{BUCKET}/{at}", JOBS, EACH, families=LIGHT, savepoints=0)
    put(tree, s3, at)
    found = sl.scan(s3.location(at))
    location = relay.through(s3.location(at))
    relay.taken()
    assert sl.scan(location) == found
    traffic = relay.taken()
    asked = traffic.total - traffic.requests["LIST"]
    assert len(found.snapshots) == JOBS * EACH
    assert all(each.restorable for each in found.snapshots)
    assert asked <= A_SNAPSHOT * len(found.snapshots)
    assert traffic.requests["LIST"] <= len(tree.files) // 1000 + 2
    assert traffic.requests["GET"] == asked
    ran = run("scan", location, "--latest", "--sound", "--print-path")
    assert re.fullmatch(f"s3://{BUCKET}/{at}/[0-9a-f]{{32}}/chk-{EACH}\n", ran.out)
    assert relay.taken().requests["GET"] <= 8


def test_orphans_in_a_store(s3: S3Proxy, relay: Relay) -> None:
    """They are deleted by one request, and nothing else is."""
    at = f"orphans/{uuid.uuid4().hex[:12]}"
    tree = made_tree(f"s3a://{BUCKET}/{at}", 1, 3, families=("incremental",))
    left = [f"{tree.snapshots[0].job}/shared/{number}" for number in range(50)]
    tree.files |= dict.fromkeys(left, (b"left", 0.0))
    put(tree, s3, at)
    location = relay.through(s3.location(at))
    none_is_old = sl.orphans(location, no_cluster=True, older_than=timedelta(days=1))
    assert (none_is_old.files, sum(kept.files for kept in none_is_old.kept)) == ((), len(left))
    time.sleep(1.1)  # the store knows seconds
    relay.taken()
    age = timedelta(milliseconds=1)
    done = sl.orphans(location, no_cluster=True, older_than=age, delete=True)
    assert sorted(file.path for file in done.files) == sorted(left)
    assert done.deleted == len(left)
    asked = relay.taken().requests
    assert (asked["POST"], asked["LIST"]) == (1, 5)  # and again before anything is deleted
    files = {path for path, _ in Directory(location).files_below()}
    assert files == tree.files.keys() - set(left)
    assert all(each.restorable for each in sl.scan(location).snapshots)


@pytest.mark.parametrize("family", ["incremental", "merged", "changelog"])
def test_copies_from_store_to_store(family: str, s3: S3Proxy, relay: Relay, tmp_path: Path) -> None:
    """With the originals gone each is restorable, has the same bytes, and is copied once."""
    at, to = (f"copy/{uuid.uuid4().hex[:12]}" for _ in range(2))
    tree = made_tree(f"s3://{BUCKET}/{at}", 1, 3, families=(family,), savepoints=0)
    put(tree, s3, at)
    job = tree.snapshots[0].job
    source, target = f"{at}/{job}", relay.through(s3.location(f"{to}/{job}"))
    relay.taken()
    done = sl.copy_checkpoints(s3.location(source), target)
    asked = relay.taken().requests
    files = {path for path, _ in Directory(target).files_below()}
    assert files == {path.partition("/")[2] for path in tree.files}
    assert asked["PUT"] == len(files) + len(done.copied)  # and what says that it is copied
    assert asked["LIST"] <= 2 + len(done.copied) * 2
    again = sl.copy_checkpoints(s3.location(source), target)
    assert (again.copied, again.complete) == ((), 3)
    assert relay.taken().requests["PUT"] == 0
    one = sl.copy_snapshot(f"{s3.location(source)}".replace("?", "/chk-2?"), tmp_path / "local")
    assert one.bytes == done.copied[1].bytes
    Directory(s3.location(at)).delete_tree()
    assert {each.state for each in sl.scan(target).snapshots} == {"restorable"}
    assert [each.checkpoint_id for each in sl.scan(target).snapshots] == [3, 2, 1]
    for path, data in ((path, data) for path, (data, _) in tree.files.items()):
        if not path.endswith("_metadata"):
            assert (
                Directory(s3.location(f"{to}/{path}")).child("..").read(path.rpartition("/")[2])
                == data
            )
    back = sl.copy_snapshot(tmp_path / "local", s3.location(f"{to}/back"))
    assert back.bytes == one.bytes
    assert sl.scan(tmp_path / "local").snapshots[0].restorable
    assert sl.scan(s3.location(f"{to}/back")).snapshots[0].restorable
    assert sl.check_integrity(s3.location(f"{to}/back")).sound


def test_a_copy_to_a_store_that_fails_at_any_file_goes_on(
    s3: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No `_metadata` is there before all else is."""
    at = f"copy/{uuid.uuid4().hex[:12]}"
    tree = made_tree(f"s3://{BUCKET}/{at}", 1, 1, families=("incremental",), savepoints=0)
    put(tree, s3, at)
    source = s3.location(f"{at}/{tree.snapshots[0].path}")
    written, left = Directory.write_pieces, 0

    def failing(self: Directory, path: str, pieces: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise SnapshotError("no answer", place=path)
        written(self, path, pieces)

    monkeypatch.setattr(Directory, "write_pieces", failing)
    for writes in (0, 1, 5, len(tree.files) - 2):
        target = s3.location(f"{at}-{writes}")
        left = 1 + writes  # the first says that it is copied
        with pytest.raises(SnapshotError, match="no answer"):
            sl.copy_snapshot(source, target, threads=2)
        there = {path for path, _ in Directory(target).files_below()}
        assert (len(there), "_metadata" in there) == (1 + writes, False)
        left = 1 + len(tree.files)
        assert sl.copy_snapshot(source, target).kept_files == writes
        assert sl.scan(target).snapshots[0].restorable
