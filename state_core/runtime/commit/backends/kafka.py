"""Kafka for checkpoints and changelogs: in Samza's topics, so that each can read the other's.

The checkpoint topic has one partition, and a changelog as many as there are tasks; both are
compacted. Kafka compacts at any time, also in front of a marker if a key was written again behind
it; but not before `min.compaction.lag.ms`: until then a checkpoint is restored exactly.

Spec: SEP-28; `confluent-kafka` is needed only here, and is in the extra `kafka`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from threading import Lock
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from statelake.state_core.errors import CommitError
from statelake.state_core.runtime.commit.backends.changelog import Change, Changelog, never_cancel
from statelake.state_core.runtime.commit.records.checkpoint_log import LogRecord
from statelake.state_core.runtime.commit.records.records import SystemStreamPartition

SECONDS = 60.0
FETCHED = 1000
FOUR_HOURS_MS = 4 * 3600 * 1000
PAUSE = 0.05
LOOK = 0.5
# errors of brokers for a topic that was just created, or whose leader has just changed
_SOON = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})
_UNKNOWN = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - its name
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - its name
    }
)
_REMEDY = "see whether the brokers are up and know the topic; then try again, or restart the task"


class KafkaCluster:
    """A Kafka cluster, and the settings of its clients.

    Args:
        servers: `host:port`, several separated by commas.
        options: More settings of librdkafka, such as those of security.
        patience: Seconds to wait for an answer.
    """

    def __init__(
        self, servers: str, options: Mapping[str, Any] | None = None, patience: float = SECONDS
    ) -> None:
        self.options = {"bootstrap.servers": servers, **(options or {})}
        self.patience = patience

    def producer(self) -> Producer:
        """Return a producer of ordered records, which all in-sync replicas acknowledge."""
        milliseconds = int(self.patience * 1000)
        return Producer(
            {
                **self.options,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": milliseconds,
            }
        )

    def create(self, topic: str, partitions: int, compaction_lag: int = FOUR_HOURS_MS) -> None:
        """Create a compacted topic unless it exists.

        Args:
            topic: The name of the topic.
            partitions: The number of partitions.
            compaction_lag: Milliseconds before records are compacted.

        Raises:
            CommitError: The topic can't be created.
        """
        config = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(compaction_lag)}
        new_topic = NewTopic(topic, num_partitions=partitions, config=config)
        admin = AdminClient(self.options)  # keeps the client alive until its requests end
        try:
            admin.create_topics([new_topic])[topic].result(self.patience)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self.failed(topic, error) from error
        except FutureTimeoutError as error:
            raise self.failed(topic, "no answer in time") from error
        for number in range(partitions):  # not every broker knows a new partition at once
            self.ends(topic, number, _SOON | _UNKNOWN)

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic; 0 if it does not exist.

        Raises:
            CommitError: No broker answers.
        """
        try:
            described = AdminClient(self.options).list_topics(topic, self.patience).topics[topic]
        except KafkaException as error:
            raise self.failed(topic, error) from error
        return 0 if described.error is not None else len(described.partitions)

    def ends(self, topic: str, partition: int, passing: frozenset[int] = _SOON) -> tuple[int, int]:
        """Return the first offset of a partition, and the one behind its last.

        Args:
            topic: The topic.
            partition: The partition's number.
            passing: Codes of errors to wait out.

        Raises:
            CommitError: No broker answers, or the partition does not exist.
        """
        consumer = self._consumer()
        topic_partition = TopicPartition(topic, partition)
        begun = time.monotonic()
        try:
            while True:
                try:
                    offsets = consumer.get_watermark_offsets(topic_partition, timeout=self.patience)
                except KafkaException as error:
                    late = time.monotonic() - begun > self.patience
                    if late or error.args[0].code() not in passing:
                        raise self.failed(topic, error) from error
                    time.sleep(PAUSE)
                    continue
                if offsets is None:
                    raise self.failed(topic, "no answer in time")
                return int(offsets[0]), int(offsets[1])
        finally:
            consumer.close()

    def offsets_at(
        self, partitions: Collection[tuple[str, int]], milliseconds: int
    ) -> dict[tuple[str, int], int]:
        """Return the offsets of partitions at a time: of their first records from then on.

        Args:
            partitions: Topics and numbers.
            milliseconds: The time, since 1970.

        Returns:
            The offset of each; behind the last record if all are earlier.

        Raises:
            CommitError: No broker answers, or the partition does not exist.
        """
        consumer = self._consumer()
        topic_partitions = [
            TopicPartition(topic, number, milliseconds) for topic, number in partitions
        ]
        try:
            answers = (
                consumer.offsets_for_times(topic_partitions, timeout=self.patience)
                if topic_partitions
                else []
            )
        except KafkaException as error:
            raise self.failed(topic_partitions[0].topic, error) from error
        finally:
            consumer.close()
        offsets = {}
        for each in answers:
            if each.error is not None:
                raise self.failed(each.topic, each.error)
            place = each.topic, each.partition
            offsets[place] = each.offset if each.offset >= 0 else self.ends(*place)[1]
        return offsets

    def read(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        waiting: Callable[[], None] = never_cancel,
    ) -> Iterator[Message]:
        """Yield the records from one offset to another, both included, as far as they exist.

        Args:
            topic: The topic.
            partition: The partition's number.
            start: The first offset.
            end: The last offset.
            waiting: Called twice a second while no data arrives; may raise to cancel.

        Raises:
            CommitError: The partition can't be read.
        """
        first, behind = self.ends(topic, partition)
        last = min(end, behind - 1)
        if max(start, first) > last:
            return
        consumer = self._consumer()
        try:
            consumer.assign([TopicPartition(topic, partition, max(start, first))])
            while True:
                first_one = self._first(consumer, topic, waiting)
                # `consume` alone would wait for the whole requested number
                for message in (first_one, *consumer.consume(FETCHED, 0)):
                    error = message.error()
                    if error is not None:
                        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
                            return
                        raise self.failed(topic, error)
                    offset = message.offset()
                    if offset is not None and offset > last:
                        return
                    yield message
                    if offset == last:
                        return
        except KafkaException as error:
            raise self.failed(topic, error) from error
        finally:
            consumer.close()

    def _first(self, consumer: Consumer, topic: str, waiting: Callable[[], None]) -> Message:
        begun = time.monotonic()
        while True:
            message = consumer.poll(LOOK)
            if message is not None:
                return message
            waiting()
            if time.monotonic() - begun > self.patience:
                raise self.failed(topic, "no record in time")

    def failed(self, topic: str, why: object) -> CommitError:
        """Return the error of a topic that can't be used."""
        return CommitError(f"Kafka fails: {why}", place=f"topic {topic}", remedy=_REMEDY)

    def _consumer(self) -> Consumer:
        # the client's library requires a group, which is never joined
        return Consumer(
            {
                **self.options,
                "group.id": "statelake",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
            }
        )


class _Sender:
    """A producer that remembers its first error, and the offset of the last record."""

    def __init__(self, cluster: KafkaCluster, topic: str, partition: int) -> None:
        self.newest: int | None = None
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._producer = cluster.producer()
        self._error: object = None

    def send(self, key: bytes, value: bytes | None) -> None:
        while not self._taken(key, value):
            self._producer.poll(0.1)
        self._producer.poll(0)

    def flush(self) -> None:
        left = self._producer.flush(self._cluster.patience)
        if left or self._error is not None:
            why = self._error or f"{left} records are not acknowledged in time"
            raise self._cluster.failed(self._topic, why)

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(0)

    def _taken(self, key: bytes, value: bytes | None) -> bool:
        try:
            self._producer.produce(
                self._topic, value, key, self._partition, on_delivery=self._delivered
            )
        except BufferError:  # more is pending than the client's buffer can hold
            return False
        return True

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._error = self._error or error
            return
        offset = message.offset()
        if offset is not None and offset >= (self.newest or 0):
            self.newest = offset


class KafkaCheckpointLog:
    """A checkpoint log in a topic of one partition.

    Args:
        cluster: The cluster.
        topic: The topic, such as `__samza_checkpoint_ver_1_for_job_1`.
    """

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self._lock = Lock()
        self._sender: _Sender | None = None

    def create(self) -> None:
        """Create the topic unless it exists."""
        self.cluster.create(self.topic, 1, compaction_lag=0)

    def append(self, key: bytes, message: bytes) -> None:
        """Append a record, and wait until all in-sync replicas have it.

        Raises:
            CommitError: The record may have been appended, or not.
        """
        with self._lock:  # the tasks of a container append at once
            sender = self._sender or _Sender(self.cluster, self.topic, 0)
            self._sender = None  # a failed producer is not used again
            sender.send(key, message)
            sender.flush()
            self._sender = sender

    def read(self, after: int = -1) -> Iterator[LogRecord]:
        """Yield the records behind an offset."""
        for message in self.cluster.read(self.topic, 0, after + 1, 2**63 - 1):
            key, value, offset = message.key(), message.value(), message.offset()
            if value is not None and offset is not None:
                at = message.timestamp()[1]
                yield LogRecord(offset, bytes(key or b""), bytes(value), at)


class KafkaChangelogs:
    """Changelogs in topics: the stream is the topic, the partition is the task's.

    Args:
        cluster: The cluster.
        compaction_lag: Milliseconds before records are compacted in topics that are created here.
    """

    def __init__(self, cluster: KafkaCluster, compaction_lag: int = FOUR_HOURS_MS) -> None:
        self.cluster = cluster
        self.compaction_lag: int | None = compaction_lag

    def open(self, partition: SystemStreamPartition) -> Changelog:
        """Open one partition, with its own producer."""
        return _KafkaChangelog(self.cluster, partition)

    def create(self, stream: str, partitions: int) -> None:
        """Create a topic unless it exists."""
        self.cluster.create(stream, partitions, self.compaction_lag or 0)

    def validate(self, stream: str, partitions: int) -> None:
        """Check that a topic has a partition for each task.

        Raises:
            CommitError: The topic has fewer or more partitions.
        """
        count = self.cluster.partitions(stream)
        if count != partitions:
            raise CommitError(
                f"it has {count} partitions, and {partitions} are needed",
                place=f"topic {stream}",
                remedy="a changelog has a partition for each task, for good: make it anew",
            )


class _KafkaChangelog:
    def __init__(self, cluster: KafkaCluster, partition: SystemStreamPartition) -> None:
        self._cluster = cluster
        self._topic = partition.stream
        self._partition = partition.partition
        self._sender: _Sender | None = None

    def append(self, key: bytes, value: bytes | None) -> None:
        if self._sender is None:
            self._sender = _Sender(self._cluster, self._topic, self._partition)
        self._sender.send(key, value)

    def flush(self) -> None:
        if self._sender is not None:
            self._sender.flush()

    def newest(self) -> int | None:
        if self._sender is not None and self._sender.newest is not None:
            return self._sender.newest
        end = self._cluster.ends(self._topic, self._partition)[1]
        return end - 1 if end else None

    def read(
        self, start: int = 0, end: int | None = None, waiting: Callable[[], None] = never_cancel
    ) -> Iterator[Change]:
        last = self.newest() if end is None else end
        if last is None:
            return
        for message in self._cluster.read(self._topic, self._partition, start, last, waiting):
            key, value, offset = message.key(), message.value(), message.offset()
            if key is not None and offset is not None:
                yield Change(offset, bytes(key), None if value is None else bytes(value))

    def compact(self, end: int) -> None:
        """Do nothing: Kafka compacts by itself."""

    def close(self) -> None:
        if self._sender is not None:
            self._sender.close()
            self._sender = None
