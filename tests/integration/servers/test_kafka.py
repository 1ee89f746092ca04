"""A real Kafka: the contract of backends, checkpoints in a topic, and what a crash leaves there."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.runtime import STEPS, RunOptions, run_job
from statelake.state_core.errors import CommitError
from statelake.state_core.runtime.commit import (
    ChangelogBackend,
    CheckpointId,
    CheckpointManager,
    CheckpointV2,
    StateBackendFactory,
)
from statelake.state_core.runtime.commit.backends.changelog import Change
from statelake.state_core.runtime.commit.backends.kafka import (
    KafkaChangelogs,
    KafkaCheckpointLog,
    KafkaCluster,
)
from statelake.state_core.runtime.commit.records.records import (
    CHANGELOG_FACTORY,
    SystemStreamPartition,
)
from tests.integration.jvm_server import free_ports
from tests.integration.kafka.broker import KafkaBroker
from tests.integration.s3.proxy import S3Proxy
from tests.state_core.runtime.commit.test_backend_contract import (  # noqa: F401 - they are run here too
    World,
    test_a_restore_is_interrupted,
    test_a_restore_is_interrupted_in_the_middle,
    test_a_restore_replaces_what_is_there,
    test_a_snapshot_is_what_was_flushed,
    test_backups_hold_their_order,
    test_cleaning_up_again_changes_nothing,
    test_markers_of_stores_that_are_others_are_left_alone,
    test_resources_are_made_any_number_of_times,
    test_restores_hold_their_order,
    test_without_a_checkpoint_stores_start_empty,
)
from tests.support.jobs.alert_orders import alerts_module, expected, feed, sink_rows
from tests.support.jobs.commit_tasks import GROUPER, INPUT, Job
from tests.support.jobs.committed_runs import assert_alike

pytestmark = [pytest.mark.kafka, pytest.mark.full, pytest.mark.thinned(2)]

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def cluster(kafka: KafkaBroker) -> KafkaCluster:
    """One node."""
    return KafkaCluster(kafka.servers, {"log_level": 0}, patience=30)


@pytest.fixture
def topic() -> str:
    """A name of its own."""
    return f"t{uuid.uuid4().hex[:12]}-"


@pytest.fixture
def world(cluster: KafkaCluster, topic: str, tmp_path: Path) -> World:
    """The contract's: two stores with a topic each, made by the backend's admin."""
    made = World("changelog in memory", "memory", tmp_path)
    made.prefix = topic
    streams = {f"{topic}{store}-log": 4 for store in ("one", "two")}
    made.factory = ChangelogBackend(KafkaChangelogs(cluster, 10**15), streams=streams)
    made.factory.create_resources()
    return made


@dataclass
class KafkaJob(Job):
    """A job whose checkpoints and changelogs are topics.

    Attributes:
        cluster: Where.
        topic: What their names begin with.
    """

    cluster: KafkaCluster | None = None
    topic: str = ""
    lag: int = HOUR_MS

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.cluster is not None
        self.checkpoints = KafkaCheckpointLog(self.cluster, f"{self.topic}checkpoints")
        self.checkpoints.create()
        self.log = self.checkpoints  # type: ignore[assignment]
        self.cluster.create(f"{self.topic}store", 4, self.lag)

    def factories(self) -> list[StateBackendFactory]:
        """Changelogs in Kafka."""
        assert self.cluster is not None
        kept = [factory for factory in super().factories() if factory.name != CHANGELOG_FACTORY]
        changelogs = KafkaChangelogs(self.cluster, self.lag)
        return [*kept, ChangelogBackend(changelogs, transactional=self.transactional)]


@pytest.fixture
def job(cluster: KafkaCluster, topic: str, tmp_path: Path) -> Iterator[KafkaJob]:
    """A store with a changelog, and a blob store beside."""
    config = {
        "stores.store.changelog": f"kafka.{topic}store",
        "stores.store.backup.factories": "changelog,blob_store",
    }
    with KafkaJob(tmp_path, config, cluster=cluster, topic=topic) as made:
        yield made


def test_commits_are_restored_on_any_host(job: KafkaJob) -> None:
    """Through restarts; what was never committed is undone in the topic, from either backend."""
    expected: dict[str, str] = {}
    for number in range(4):
        stores = {"stores.store.restore.factory": "blob_store" if number % 2 else "changelog"}
        task = job.task(f"host{number}", **stores)
        assert task.content() == expected
        task.put(**{f"key{number}": "1", "all": str(number)})
        expected = task.content()
        task.commit()
        task.put(all="never committed", lost="never committed", key0=None)
        for log in task.started.commits.backups[CHANGELOG_FACTORY]._logs.values():  # type: ignore[attr-defined]
            log.flush()
    assert job.task("last", **{"stores.store.restore.factory": "changelog"}).content() == expected


@pytest.mark.parametrize(("transactional", "value"), [(True, "1"), (False, "2")])
def test_transactional_or_not(job: KafkaJob, transactional: bool, value: str) -> None:
    """A restore ends at the marker, or with the topic."""
    job.transactional = transactional
    only = {"stores.store.backup.factories": "changelog"}
    task = job.task(**only)
    task.put(a="1")
    task.commit()
    task.put(a="2")
    task.started.commits.backups[CHANGELOG_FACTORY].snapshot(CheckpointId(9, 9))
    for host in ("host", "elsewhere"):
        assert job.task(host, **only).content() == {"a": value}


def test_a_changelog_that_kafka_may_have_compacted_is_restored_to_its_end(
    job: KafkaJob, caplog: pytest.LogCaptureFixture
) -> None:
    """After nine tenths of its lag, with a warning, as Samza does."""
    only = {"stores.store.backup.factories": "changelog"}
    task = job.task(**only)
    task.put(a="1")
    task.commit()
    task.put(a="2")
    task.started.commits.backups[CHANGELOG_FACTORY].snapshot(CheckpointId(9, 9))
    job.lag = 0
    assert job.task("elsewhere", **only).content() == {"a": "2"}
    assert "may be compacted before 0 by now" in caplog.text


def test_versions_of_records_in_a_topic(job: KafkaJob) -> None:
    """Both are written, either is read, and restores the same."""
    both = {"checkpoint.write.versions": "1,2", "stores.store.restore.factory": "changelog"}
    task = job.task(**both)
    task.put(a="1")
    task.commit()
    for read in ("1", "2", "2,1"):
        again = job.task("elsewhere", **both, **{"checkpoint.read.versions": read})
        assert again.content() == {"a": "1"}
        assert again.offset == 0


def test_a_topic_is_a_checkpoint_log(cluster: KafkaCluster, topic: str) -> None:
    """Records come in their order; a manager goes on where it was."""
    log = KafkaCheckpointLog(cluster, topic)
    log.create()
    log.create()
    reading = CheckpointManager(log, GROUPER)
    assert reading.read_last("task") is None
    for number in range(1, 4):
        record = CheckpointV2(CheckpointId(number, 0), {INPUT: str(number)})
        CheckpointManager(log, GROUPER).write("task", record)
        assert reading.read_last("task") == record
    offsets = [change.offset for change in log.read()]
    assert offsets == [0, 1, 2]
    assert [change.offset for change in log.read(1)] == [2]
    assert list(log.read(2)) == []
    assert min(change.appended_at for change in log.read()) > 1_700_000_000_000


def test_a_topic_is_a_changelog(cluster: KafkaCluster, topic: str) -> None:
    """With puts and deletes, offsets that go on in another process, and partitions apart."""
    changelogs = KafkaChangelogs(cluster)
    changelogs.create(topic, 2)
    first, second = (SystemStreamPartition("kafka", topic, number) for number in range(2))
    log = changelogs.open(first)
    assert log.newest() is None
    assert list(log.read()) == []
    for number in range(2500):
        log.append(b"%d" % number, None if number % 5 == 0 else b"x" * 10)
    log.flush()
    assert log.newest() == 2499
    log.close()
    log = changelogs.open(first)
    log.append(b"", b"")
    log.flush()
    assert log.newest() == 2500
    changes = list(log.read(3, 2400))
    assert [change.offset for change in changes] == list(range(3, 2401))
    assert changes[2] == Change(5, b"5", None)
    assert list(log.read(2500)) == [Change(2500, b"", b"")]
    assert changelogs.open(second).newest() is None


def test_resources(cluster: KafkaCluster, topic: str) -> None:
    """A topic with another number of partitions, or none, is found out before a task runs."""
    changelogs = KafkaChangelogs(cluster)
    admin = ChangelogBackend(changelogs, streams={topic: 3})
    with pytest.raises(CommitError, match="it has 0 partitions, and 3 are needed"):
        admin.validate_resources()
    admin.create_resources()
    admin.create_resources()
    admin.validate_resources()
    with pytest.raises(CommitError, match="it has 3 partitions, and 4 are needed"):
        ChangelogBackend(changelogs, streams={topic: 4}).validate_resources()


def test_without_kafka_it_is_said_which_topic(topic: str) -> None:
    """Nobody listens: every call ends with an error of ours."""
    (port,) = free_ports(1)
    nobody = KafkaCluster(f"127.0.0.1:{port}", {"log_level": 0}, patience=1)
    log = KafkaCheckpointLog(nobody, topic)
    changelog = KafkaChangelogs(nobody).open(SystemStreamPartition("kafka", topic, 0))
    changelog.append(b"key", b"value")
    for call in (
        lambda: log.append(b"key", b"message"), lambda: list(log.read()), changelog.newest,
        changelog.flush, log.create, lambda: nobody.partitions(topic),
    ):  # fmt: skip
        with pytest.raises(CommitError, match=f"topic {topic}: Kafka fails"):
            call()
    changelog.close()


class EndError(BaseException):
    """What no code catches: the run is interrupted."""


def test_runs_commit_to_topics_and_to_blobs_in_s3(
    kafka: KafkaBroker, s3: S3Proxy, tmp_path: Path
) -> None:
    """Each run is interrupted at another step, and made good; all is as if none ever was.

    It is restored from the topics, the blobs and the lake in turn, at another parallelism and on
    the other backend; each of them alone has the state, entry by entry.
    """
    data, lake = tmp_path / "data", tmp_path / "lake"
    job = alerts_module().alerts(str(data))
    job.name = f"alerts {uuid.uuid4().hex[:8]}"
    blobs = s3.location(f"tests/{uuid.uuid4().hex[:12]}")
    commit_to = (f"changelog=kafka://{kafka.servers}", f"blob={blobs}")
    for part, step in enumerate(STEPS[:-1]):

        def observe(done: str, step: str = step) -> None:
            if done == step:
                raise EndError

        feed(data, part)
        options = RunOptions(
            parallelism=1 + part % 3, backend=("heap", "rocksdb")[part % 2], engine="local",
            commit_to=commit_to,
            restore_from=("changelog", "blob", "lake")[part % 3], observe=observe,
        )  # fmt: skip
        with pytest.raises(EndError):
            run_job(job, Catalog(lake), options)
        done = run_job(job, Catalog(lake), replace(options, observe=lambda _: None))
        assert (done.run, done.resumed) == (part + 1, True)
    assert assert_alike(job, lake, commit_to) > 0
    rows = sink_rows(data / "alerts")
    told = sorted((row["customer"], row["rule"], row["spent"]) for row in rows)
    assert told == sorted(expected(range(len(STEPS) - 1))[0])
