"""`scan` of 2,000 checkpoints in a store: few requests, in seconds."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import obstore
import pytest
from obstore.store import S3Store

import statelake as sl
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
    begun = time.perf_counter()
    found = sl.scan(s3.location(at))
    seconds = time.perf_counter() - begun
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
    assert seconds < 10
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
    assert (asked["POST"], asked["LIST"]) == (1, 2)
    files = {path for path, _ in Directory(location).files_below()}
    assert files == tree.files.keys() - set(left)
    assert all(each.restorable for each in sl.scan(location).snapshots)
