"""Lives of a task that end in every way, with disks lost and uploads late: all from one seed.

A `Schedule` is a row of lives of one task. In each, the task starts somewhere with some
configuration, processes, commits, and ends: in peace, by a failure, or killed at one operation.
Processing goes on between any two operations of an upload.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property

from statelake.state_core.errors import StateError
from statelake.state_core.runtime.commit import (
    BlobStoreBackend,
    ChangelogBackend,
    CheckpointId,
    CheckpointManager,
    CheckpointV2,
    CommitDecision,
    CommitSettings,
    StateBackendFactory,
    SystemStreamPartition,
    TaskCommit,
    TaskContext,
    TaskStart,
    TaskStores,
)
from statelake.state_core.runtime.commit.backends.blob_backend import read_index
from statelake.state_core.runtime.commit.backends.blob_store import folder_of
from statelake.state_core.runtime.commit.records.records import (
    BLOB_STORE_FACTORY,
    CHANGELOG_FACTORY,
)
from statelake.state_core.runtime.commit.records.serdes import (
    read_checkpoint_v1,
    read_checkpoint_v2,
    read_key,
    upgrade,
)
from statelake.state_core.runtime.commit.records.snapshot_index import reachable_blobs
from tests.support.jobs.commit_steps import STEPS
from tests.support.jobs.commit_world import Fate, KilledError, Pool, Remote
from tests.support.jobs.doubles import (
    MemoryDisk,
    changelogs_of,
    checkpoints_in,
    in_memory,
    parse_settings,
    segments,
)

Content = dict[str, dict[bytes, bytes]]

INPUT = SystemStreamPartition("kafka", "orders", 3)
GROUPER = "org.apache.samza.container.grouper.stream.GroupByPartitionFactory"
TASK = "Partition 3"
KEYS = [b"a", b"b", b"c", b"d", b"e"]


@dataclass(frozen=True)
class Plan:
    """How one life is configured."""

    persistent: dict[str, bool]
    config: dict[str, str]
    keep: int = 1
    transactional: bool = True
    retain_existing: bool = True

    @cached_property
    def settings(self) -> CommitSettings:
        """As the task reads it."""
        return parse_settings(self.config, self.persistent)

    def factories(self, remote: Remote) -> list[StateBackendFactory]:
        """All backends; the order is that of asking."""
        return [
            BlobStoreBackend(remote.blobs, self.keep, threads=1),
            ChangelogBackend(
                remote.changelogs,
                transactional=self.transactional,
                retain_existing=self.retain_existing,
                compact_every=4,
            ),
            remote.copies,
        ]

    def context(self, remote: Remote, disk: MemoryDisk, pool: Pool) -> TaskContext:
        """The task on a host."""
        specs = [
            segments(name) if kept else in_memory(name) for name, kept in self.persistent.items()
        ]
        return TaskContext(
            "job", "1", TASK, TaskStores(disk, TASK, specs), pool, pool.wait, remote.nanos,
            changelogs_of(self.config, 3),
        )  # fmt: skip

    def checkpoints(self, remote: Remote) -> CheckpointManager:
        """The log, read from its start."""
        return checkpoints_in(remote.log, GROUPER, self.config)


class Life:
    """One start of a task, and what it does until its end.

    Attributes:
        content: What the stores should hold.
        offset: Of the last message.
    """

    def __init__(self, schedule: Schedule, plan: Plan, host: int, fate: Fate) -> None:
        self.schedule, self.plan = schedule, plan
        self.remote, self.rng = schedule.remote, schedule.rng
        self.fate = self.remote.fate = fate
        self.pool = Pool(self.rng)
        self.disk = self.remote.hosts[host]
        self.context = plan.context(self.remote, self.disk, self.pool)
        self.content: Content = {}
        self.offset = -1
        self.commits: TaskCommit
        self._busy = False

    def start(self) -> None:
        """Restore, and compare with what was committed."""
        expected, offset = self.schedule.expected(self.plan, self.disk)
        started = TaskStart(
            self.context,
            self.plan.settings,
            self.plan.checkpoints(self.remote),
            self.plan.factories(self.remote),
            observer=self.fate.step,
        ).start()
        stores = self.context.stores
        found = {name: dict(stores.open(name).items()) for name in stores.names}
        assert found == expected, (found, expected, started.restored)
        assert started.offsets == ({} if offset is None else {INPUT: str(offset)})
        self.content = {name: dict(content) for name, content in expected.items()}
        self.offset = -1 if offset is None else offset
        self.commits = started.commits
        last = started.commits.last
        for name in stores.persistent:
            assert stores.marked(name) <= ({last.id} if last else set())
        self.fate.between = self._between

    def process(self) -> None:
        """One message."""
        self.offset += 1
        if self.rng.random() < 0.1:  # stores write to their files when they like to
            busy, self._busy = self._busy, True
            for name in self.content:
                self.context.stores.open(name).flush()
            self._busy = busy
        store = self.rng.choice(list(self.content))
        key = self.rng.choice(KEYS)
        if self.rng.random() < 0.3:
            self.context.stores.open(store).delete(key)
            self.content[store].pop(key, None)
        else:
            value = b"%d" % self.offset
            self.context.stores.open(store).put(key, value)
            self.content[store][key] = value

    def commit(self) -> CommitDecision:
        """Ask for a commit."""
        content = {name: dict(content) for name, content in self.content.items()}
        offset = self.offset
        self._busy = True
        try:
            decision = self.commits.commit({INPUT: str(offset)} if offset >= 0 else {})
        finally:
            self._busy = False
        if decision is not CommitDecision.SKIP:
            identifier = self.commits._last_id
            assert identifier is not None
            assert identifier not in self.schedule.committed
            self.schedule.committed[identifier] = (content, offset if offset >= 0 else None)
        return decision

    def live(self, actions: int) -> None:
        """Do this and that, and end in peace or not."""
        for _ in range(actions):
            choice = self.rng.random()
            self.commits.raise_if_failed()
            if choice < 0.45:
                self.process()
            elif choice < 0.6:
                self.commit()
            elif choice < 0.9 and self.pool.waiting:
                self.pool.step()
            else:
                self.remote.now += self.rng.randrange(40) * 1_000_000
        if self.rng.random() < 0.5:
            self._busy = True
            self.commits.wait()
            self._busy = False
            if self.rng.random() < 0.5:
                self.commit()
                self.commits.wait()
        self.commits.raise_if_failed()
        if self.rng.random() < 0.5:
            self.commits.close()

    def _between(self) -> None:
        if not self._busy and self.rng.random() < 0.15:
            self.process()


class Schedule:
    """Some lives of one task, all from one seed.

    Attributes:
        remote: What outlives the hosts.
        committed: What the stores held, and the last offset, when the commit of an id began.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.remote = Remote()
        self.committed: dict[CheckpointId, tuple[Content, int | None]] = {}
        self.ended: list[str] = []

    def run(self) -> None:
        """All lives, and then one that nothing happens to, on either host."""
        self._choose()
        for _ in range(self.rng.randint(1, 4)):
            self._life(self.plan(), self._fate())
            self.remote.now += self.rng.choice([0, 1, 60_000]) * 1_000_000
        for host in (0, 1):
            plan = self.plan()
            life = Life(self, plan, host, Fate())
            life.start()
            self.check_every_marker(plan)
            self.check_blobs(plan)
            life.commits.close()

    def plan(self) -> Plan:
        """A configuration that may follow any other of this schedule."""
        config = dict(self._config)
        for store, persistent in self._persistent.items():
            names = ["changelog", "memory", *(["blob_store"] if persistent else [])]
            backup = self.rng.sample(names, self.rng.randint(1, len(names)))
            if self._migrating and "changelog" not in backup:
                backup.append("changelog")
            config[f"stores.{store}.backup.factories"] = ",".join(backup)
            if self.rng.random() < 0.7:
                config[f"stores.{store}.restore.factory"] = self.rng.choice(names)
            config[f"stores.{store}.changelog"] = f"kafka.{store}-changelog"
        if self._migrating:
            config["checkpoint.write.versions"] = "1,2"
            config["checkpoint.read.versions"] = self.rng.choice(["1", "2", "2,1"])
            if config["checkpoint.read.versions"] == "1":
                for store in self._persistent:
                    config[f"stores.{store}.restore.factory"] = "changelog"
        return Plan(
            self._persistent, config, self._keep, self._transactional, self._retain_existing
        )

    def last(self, plan: Plan) -> CheckpointV2 | None:
        """The last record that a plan reads, found without the code that is tested."""
        by_version: dict[int, CheckpointV2] = {}
        for record in self.remote.log.records:
            version = read_key(record.key).version
            changelogs = changelogs_of(plan.config, 3)
            if version == 1:
                by_version[1] = upgrade(read_checkpoint_v1(record.message), changelogs)
            elif version == 2:
                by_version[2] = read_checkpoint_v2(record.message)
        return next(
            (
                by_version[read_version]
                for read_version in plan.checkpoints(self.remote).read_versions
                if read_version in by_version
            ),
            None,
        )

    def expected(self, plan: Plan, disk: MemoryDisk) -> tuple[Content, int | None]:
        """What a start with this plan on this host has to restore."""
        last = self.last(plan)
        changelogs = changelogs_of(plan.config, 3)

        def whole(store: str) -> dict[bytes, bytes]:
            changes = (
                self.remote.changelogs.changes.get(changelogs[store], [])
                if store in changelogs
                else []
            )
            said = {key: value for _, key, value in changes}
            return {key: value for key, value in said.items() if value is not None}

        if last is None:
            return {
                store: whole(store) if plan.retain_existing else {} for store in plan.persistent
            }, None
        content, offset = self.committed[last.id]
        if plan.transactional:
            return content, offset
        content = dict(content)
        stores = plan.context(self.remote, disk, Pool(self.rng)).stores
        for store, store_settings in plan.settings.stores.items():
            if store_settings.restore != CHANGELOG_FACTORY and last.id in stores.marked(store):
                continue
            order = [
                store_settings.restore,
                *(factory.name for factory in plan.factories(self.remote)),
            ]
            having = [name for name in order if store in last.markers.get(str(name), {})]
            if having[0] == CHANGELOG_FACTORY:
                content[store] = whole(store)
        return content, offset

    def check_every_marker(self, plan: Plan) -> None:
        """Every marker of the last record alone restores what was committed, on an empty host."""
        last = self.last(plan)
        if last is None or not plan.transactional:
            return
        content = self.committed[last.id][0]
        for factory in plan.factories(self.remote):
            for store in last.markers.get(factory.name, {}):
                context = plan.context(self.remote, MemoryDisk(), Pool(self.rng))
                manager = factory.restore_manager(context, [store])
                manager.init(last)
                manager.restore()
                manager.close()
                found = dict(context.stores.open(store).items())
                assert found == content[store], (factory.name, store, found, content[store])

    def check_blobs(self, plan: Plan) -> None:
        """After a start no blob is there for nothing, but for those that will expire."""
        last = self.last(plan)
        backed_up = plan.settings.backed_up_by(BLOB_STORE_FACTORY)
        markers = {} if last is None else last.markers.get(BLOB_STORE_FACTORY, {})
        for store, marker in markers.items():
            if store not in backed_up:
                continue
            needed: set[str] = set()
            blob: str | None = marker
            for _ in range(plan.keep):
                if blob is None or blob not in self.remote.blobs.blobs:
                    break
                index = read_index(self.remote.blobs, blob)
                needed |= {blob, *reachable_blobs(index.directory)}
                blob = index.previous
            prefix = folder_of(marker).rpartition("/")[0]
            left = [blob_id for blob_id in self.remote.blobs.list(prefix) if blob_id not in needed]
            expiring = self.remote.blobs.expiring(prefix)
            assert all(folder_of(blob_id) in expiring for blob_id in left), (store, left, expiring)
            assert needed <= set(self.remote.blobs.blobs)
            assert not {folder_of(blob_id) for blob_id in needed} & set(expiring)

    def _choose(self) -> None:
        rng = self.rng
        self._persistent = {f"store{at}": rng.random() < 0.8 for at in range(rng.randint(1, 2))}
        self._migrating = rng.random() < 0.2
        self._keep = rng.choice([1, 1, 2, 3])
        self._transactional = rng.random() < 0.8
        self._retain_existing = rng.random() < 0.5
        self._config = {
            "task.max.commit.delay": str(rng.choice([0, 20, 1000])),
            "task.commit.timeout.ms": "1000",
        }

    def _fate(self) -> Fate:
        rng = self.rng
        how = rng.random()
        if how < 0.5:
            return Fate(int(rng.expovariate(1 / 60)) + 1, late=rng.random() < 0.5)
        if how < 0.7:
            return Fate(fail_at=int(rng.expovariate(1 / 60)) + 1)
        if how < 0.9:
            return Fate(kill_before=(rng.choice(STEPS).name, rng.randint(1, 3)))
        return Fate()

    def _life(self, plan: Plan, fate: Fate) -> None:
        host = self.rng.randrange(2)
        if self.rng.random() < 0.1:
            self.remote.hosts[host].contents.clear()
        life = Life(self, plan, host, fate)
        try:
            life.start()
            life.live(self.rng.randrange(60))
        except KilledError:
            self.ended.append("killed")
        except (OSError, StateError):
            if not fate.failed:
                raise
            self.ended.append("failed")
        else:
            self.ended.append("ended")
        finally:
            fate.between = lambda: None
            self.remote.fate = Fate()
