"""One contract over every state backend, on every kind of disk and storage."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import CommitOrderError, RestoreInterruptedError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.runtime.commit import (
    BlobStoreBackend,
    ChangelogBackend,
    CheckpointId,
    CheckpointV2,
    FileChangelogs,
    FileSystemBlobStore,
    PosixDisk,
    StateBackendFactory,
    SystemStreamPartition,
    TaskBackupManager,
    TaskContext,
    TaskStores,
)
from tests.support.covering import pairs
from tests.support.jobs.commit_world import Pool
from tests.support.jobs.doubles import (
    MemoryBackend,
    MemoryBlobStore,
    MemoryChangelogs,
    MemoryDisk,
    segments,
)

pytestmark = pytest.mark.thinned(2, by=pairs)

Content = dict[bytes, bytes]
STORES = ("one", "two")
BACKENDS: dict[str, Callable[[Path], StateBackendFactory]] = {
    "memory": lambda _: MemoryBackend(),
    "blob store in memory": lambda _: BlobStoreBackend(MemoryBlobStore()),
    "blob store of files": lambda path: BlobStoreBackend(FileSystemBlobStore(Directory(path))),
    "blob store that keeps 3": lambda _: BlobStoreBackend(MemoryBlobStore(), keep=3, threads=1),
    "changelog in memory": lambda _: ChangelogBackend(MemoryChangelogs(), compact_every=3),
    "changelog of files": lambda path: ChangelogBackend(
        FileChangelogs(path, segment_bytes=100), compact_every=3
    ),
}
DISKS: dict[str, Callable[[Path], PosixDisk]] = {
    "memory": lambda _: MemoryDisk(),
    "files": PosixDisk,
}
changes = st.lists(
    st.tuples(
        st.sampled_from(STORES),
        st.binary(max_size=3),
        st.none() | st.binary(max_size=20),
    ),
    max_size=12,
)


class World:
    """One backend, and hosts for a task."""

    prefix = ""

    def __init__(self, backend: str, disk: str, path: Path) -> None:
        self.path = path
        self.disk = disk
        self.factory = BACKENDS[backend](path / "remote")
        self.hosts = count()
        self.now = count(1_700_000_000_000_000_000, 1_000_000)

    def host(self, stores: tuple[str, ...] = STORES) -> TaskContext:
        """A new host, with nothing on its disk."""
        disk = DISKS[self.disk](self.path / f"host{next(self.hosts)}")
        pool = Pool(random.Random(1))
        return TaskContext(
            "job", "1", "Partition 3",
            TaskStores(disk, "Partition 3", [segments(store) for store in stores]),
            pool, pool.wait, lambda: next(self.now),
            {
                store: SystemStreamPartition("kafka", f"{self.prefix}{store}-log", 3)
                for store in stores
            },
        )  # fmt: skip

    def begin(self, context: TaskContext, last: CheckpointV2 | None = None) -> TaskBackupManager:
        """A backup that may take a snapshot."""
        manager = self.factory.backup_manager(context, context.stores.names)
        manager.init(last)
        return manager

    def commit(
        self, context: TaskContext, manager: TaskBackupManager, meanwhile: Callable[[], None]
    ) -> CheckpointV2:
        """Everything up to the record."""
        identifier = CheckpointId.create(next(self.now))
        context.stores.flush()
        context.stores.checkpoint(identifier)
        fixed = manager.snapshot(identifier)
        uploading = manager.upload(identifier, fixed)
        meanwhile()
        context.wait(uploading, 1)
        return CheckpointV2(identifier, {}, {self.factory.name: uploading.result()})

    def clean(self, context: TaskContext, manager: TaskBackupManager, record: CheckpointV2) -> None:
        """What follows the record."""
        cleaning = manager.clean_up(record.id, record.markers[self.factory.name])
        context.wait(cleaning, 1)
        cleaning.result()

    def restored(self, context: TaskContext, record: CheckpointV2 | None) -> dict[str, Content]:
        """What a restore makes of a record."""
        manager = self.factory.restore_manager(context, context.stores.names)
        manager.init(record)
        manager.restore()
        manager.close()
        return content(context)


def content(context: TaskContext) -> dict[str, Content]:
    """What the stores hold."""
    return {name: dict(context.stores.open(name).items()) for name in context.stores.names}


def apply(context: TaskContext, done: list[tuple[str, bytes, bytes | None]]) -> None:
    """Process."""
    for store, key, value in done:
        if value is None:
            context.stores.open(store).delete(key)
        else:
            context.stores.open(store).put(key, value)


@pytest.fixture(params=DISKS)
def disk(request: pytest.FixtureRequest) -> str:
    """Each kind of disk."""
    return str(request.param)


@pytest.fixture(params=BACKENDS)
def world(request: pytest.FixtureRequest, disk: str, tmp_path: Path) -> Iterator[World]:
    """Each backend on each disk, with nothing in it."""
    return World(request.param, disk, tmp_path)


@pytest.mark.parametrize("backend", BACKENDS)
@given(rounds=st.lists(st.tuples(changes, changes, st.booleans()), max_size=5), more=changes)
def test_any_commit_is_restored_on_any_host(
    backend: str,
    rounds: list[tuple[list[tuple[str, bytes, bytes | None]], ...]],
    more: list[tuple[str, bytes, bytes | None]],
) -> None:
    """As it was when it began: what is processed meanwhile and after is not in it."""
    import tempfile  # noqa: PLC0415 - each example has a directory of its own

    with tempfile.TemporaryDirectory() as path:
        world = World(backend, "memory", Path(path))
        context = world.host()
        manager = world.begin(context)
        record: CheckpointV2 | None = None
        expected: dict[str, Content] = {store: {} for store in STORES}
        for before, meanwhile, moves in rounds:
            apply(context, before)
            expected = content(context)
            record = world.commit(context, manager, partial(apply, context, meanwhile))
            world.clean(context, manager, record)
            assert world.restored(world.host(), record) == expected
            if moves:
                manager.close()
                context = world.host()
                assert world.restored(context, record) == expected
                manager = world.begin(context, record)
        apply(context, more)
        assert world.restored(world.host(), record) == expected


def test_a_snapshot_is_what_was_flushed(world: World) -> None:
    """However late the upload runs."""
    context = world.host()
    manager = world.begin(context)
    apply(context, [("one", b"a", b"1"), ("two", b"b", b"2")])
    record = world.commit(
        context, manager, lambda: apply(context, [("one", b"a", b"9"), ("one", b"c", b"9")])
    )
    assert world.restored(world.host(), record) == {"one": {b"a": b"1"}, "two": {b"b": b"2"}}
    assert set(record.markers[world.factory.name]) == set(STORES)


def test_cleaning_up_again_changes_nothing(world: World) -> None:
    """By the same manager, by another one, and when it is the first thing that one does."""
    context = world.host()
    manager = world.begin(context)
    record = None
    for number in range(6):
        apply(context, [("one", b"a", b"%d" % number), ("two", b"%d" % number, b"x")])
        record = world.commit(context, manager, lambda: None)
        world.clean(context, manager, record)
        world.clean(context, manager, record)
    assert record is not None
    expected = content(context)
    manager.close()
    context = world.host()
    assert world.restored(context, record) == expected
    again = world.begin(context, record)
    for _ in range(2):
        world.clean(context, again, record)
    assert world.restored(world.host(), record) == expected


def test_markers_of_stores_that_are_others_are_left_alone(world: World) -> None:
    """A manager of one store restores and cleans up that one."""
    context = world.host()
    manager = world.begin(context)
    apply(context, [("one", b"a", b"1"), ("two", b"b", b"2")])
    record = world.commit(context, manager, lambda: None)
    world.clean(context, manager, record)
    narrow = world.host(("one",))
    assert world.restored(narrow, record) == {"one": {b"a": b"1"}}
    world.clean(narrow, world.begin(narrow, record), record)
    assert world.restored(world.host(), record)["two"] == {b"b": b"2"}


def test_a_restore_replaces_what_is_there(world: World) -> None:
    """What the working directory holds is of work that was never committed."""
    context = world.host()
    manager = world.begin(context)
    apply(context, [("one", b"a", b"1")])
    record = world.commit(context, manager, lambda: None)
    apply(context, [("one", b"a", b"2"), ("two", b"b", b"2")])
    context.stores.flush()
    assert world.restored(context, record) == {"one": {b"a": b"1"}, "two": {}}


def test_without_a_checkpoint_stores_start_empty(world: World) -> None:
    """As nothing was ever committed."""
    assert world.restored(world.host(), None) == {"one": {}, "two": {}}


def test_a_restore_is_interrupted(world: World) -> None:
    """Before a byte more is restored; the next one restores everything."""
    context = world.host()
    manager = world.begin(context)
    apply(context, [("one", b"%d" % number, b"x" * 100) for number in range(500)])
    record = world.commit(context, manager, lambda: None)
    elsewhere = world.host()
    restoring = world.factory.restore_manager(elsewhere, STORES)
    restoring.init(record)
    restoring.interrupt()
    with pytest.raises(RestoreInterruptedError):
        restoring.restore()
    restoring.close()
    assert not content(elsewhere)["one"]
    assert len(world.restored(elsewhere, record)["one"]) == 500


def test_a_restore_is_interrupted_in_the_middle(world: World) -> None:
    """From another thread, while it runs: it ends at the next mebibyte or some hundred changes."""
    context = world.host()
    manager = world.begin(context)
    apply(context, [("one", b"%d" % number, b"x" * 10_000) for number in range(400)])
    record = world.commit(context, manager, lambda: None)
    elsewhere = world.host()
    restoring = world.factory.restore_manager(elsewhere, STORES)
    restoring.init(record)
    checks, reached, go_on = count(1), Event(), Event()
    original = restoring._check

    def check() -> None:
        if next(checks) == 3:
            reached.set()
            go_on.wait(30)
        original()

    restoring._check = check  # type: ignore[method-assign]
    errors: list[BaseException] = []

    def run() -> None:
        try:
            restoring.restore()
        except RestoreInterruptedError as error:
            errors.append(error)

    thread = Thread(target=run)
    thread.start()
    assert reached.wait(30)
    restoring.interrupt()
    go_on.set()
    thread.join(30)
    assert len(errors) == 1
    # nothing was done behind the third look, but for the one of each other thread
    assert next(checks) <= 4 + 8


def test_backups_hold_their_order(world: World) -> None:
    """Every call out of turn is refused, and says which one."""
    context = world.host()
    manager = world.factory.backup_manager(context, STORES)
    one, two = CheckpointId(1, 0), CheckpointId(2, 0)
    for early in (
        lambda: manager.snapshot(one), lambda: manager.upload(one, {}),
        lambda: manager.clean_up(one, {}),
    ):  # fmt: skip
        with pytest.raises(CommitOrderError, match="it is new"):
            early()
    manager.init(None)
    with pytest.raises(CommitOrderError, match="`init` was called"):
        manager.init(None)
    with pytest.raises(CommitOrderError, match="no snapshot of 1-0"):
        manager.upload(one, {})
    context.stores.flush()
    context.stores.checkpoint(one)
    fixed = manager.snapshot(one)
    with pytest.raises(CommitOrderError, match="no snapshot of 2-0"):
        manager.upload(two, fixed)
    uploading = manager.upload(one, fixed)
    with pytest.raises(CommitOrderError, match="no snapshot of 1-0"):
        manager.upload(one, fixed)
    if not uploading.done():
        for hasty in (lambda: manager.snapshot(two), lambda: manager.clean_up(one, {})):
            with pytest.raises(CommitOrderError, match="has not ended"):
                hasty()
    context.wait(uploading, 1)
    manager.close()
    manager.close()
    with pytest.raises(CommitOrderError, match="it is closed"):
        manager.snapshot(two)


def test_restores_hold_their_order(world: World) -> None:
    """`init`, `restore`, `close`, each once but for the last."""
    manager = world.factory.restore_manager(world.host(), STORES)
    with pytest.raises(CommitOrderError, match="`restore` was called, but it is new"):
        manager.restore()
    manager.init(None)
    with pytest.raises(CommitOrderError, match="`init` was called"):
        manager.init(None)
    manager.restore()
    with pytest.raises(CommitOrderError, match="it is restored"):
        manager.restore()
    manager.close()
    manager.close()


def test_resources_are_made_any_number_of_times(world: World) -> None:
    """And are found to be there."""
    admin = world.factory
    for _ in range(2):
        admin.create_resources()
        admin.validate_resources()
    assert world.restored(world.host(), None) == {"one": {}, "two": {}}
