"""Checkpoints: the id, the record in two versions, and the key of a record in the log.

A `CheckpointV1` has only offsets, of inputs and changelogs together. A `CheckpointV2` separates the
two, and has an opaque marker for each state backend and each store: the offset of a changelog, the
id of a blob, the id of a snapshot.

Spec: Samza's SEP-28; as in Samza 1.8.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import total_ordering
from typing import ClassVar, TypeAlias

import msgspec

from statelake.state_core.errors import CheckpointRecordError

# the names under which Samza's own classes find their markers in a record
CHANGELOG_FACTORY = "org.apache.samza.storage.KafkaChangelogStateBackendFactory"
BLOB_STORE_FACTORY = "org.apache.samza.storage.blobstore.BlobStoreStateBackendFactory"
# of records of runs: its marker is the id of a snapshot of the lake
SNAPSHOT_FACTORY = "statelake.snapshot"

CHECKPOINT_TYPES = {1: "checkpoint", 2: "checkpoint-v2"}
"""The type in a record's key, by the version of the record."""

StateCheckpointMarkers: TypeAlias = Mapping[str, Mapping[str, str]]
"""Backend factory -> store -> opaque marker."""

_ID = re.compile(r"(\d{1,19})-(\d{1,19})", re.ASCII)
_NANOS_OF_A_MILLI = 1_000_000


@total_ordering
@dataclass(frozen=True, slots=True)
class CheckpointId:
    """The id of a commit: the time when it began. Ids of one task are unique, and increase.

    Attributes:
        millis: Milliseconds since 1970.
        nanos: A number that distinguishes ids of one millisecond.
    """

    millis: int
    nanos: int

    @classmethod
    def create(cls, nanoseconds: int, after: CheckpointId | None = None) -> CheckpointId:
        """Return the id of a commit that begins now.

        Args:
            nanoseconds: The time, in nanoseconds since 1970.
            after: The task's previous id: even if the clock went back, the new id is greater.
        """
        checkpoint_id = cls(*divmod(nanoseconds, _NANOS_OF_A_MILLI))
        if after is not None and checkpoint_id <= after:
            following = after.millis * _NANOS_OF_A_MILLI + after.nanos + 1
            return cls(*divmod(following, _NANOS_OF_A_MILLI))
        return checkpoint_id

    @classmethod
    def parse(cls, text: str) -> CheckpointId:
        """Parse the text of an id, `millis-nanos`.

        Raises:
            CheckpointRecordError: The text is not an id.
        """
        match = _ID.fullmatch(text)
        if not match:
            raise CheckpointRecordError(
                f"{text!r} is no checkpoint id", remedy="one is `millis-nanos`, as 1700000000000-42"
            )
        return cls(int(match[1]), int(match[2]))

    def __lt__(self, other: CheckpointId) -> bool:
        return (self.millis, self.nanos) < (other.millis, other.nanos)

    def __str__(self) -> str:
        return f"{self.millis}-{self.nanos}"


@dataclass(frozen=True, slots=True, order=True)
class SystemStreamPartition:
    """One partition of one stream of one system.

    Attributes:
        system: The system, such as `kafka`; without dots, since records join the three by them.
        stream: The stream, such as a topic; may contain dots.
        partition: The number of the partition.
        key_bucket: The part of a split partition that a task has; otherwise -1.
    """

    system: str
    stream: str
    partition: int
    key_bucket: int = -1

    def __post_init__(self) -> None:
        if not self.system or "." in self.system or not self.stream or self.partition < 0:
            raise CheckpointRecordError(
                f"{self.system!r}, {self.stream!r}, {self.partition} is no partition of a stream",
                remedy="a system has a name without dots, a stream a name, and partitions count "
                "from 0",
            )

    def __str__(self) -> str:
        bucket = "" if self.key_bucket == -1 else f", {self.key_bucket}"
        return f"SystemStreamPartition [{self.system}, {self.stream}, {self.partition}{bucket}]"


@dataclass(frozen=True, slots=True)
class ChangelogMarker:
    """The marker of a changelog: the end of a checkpoint's state in it.

    Attributes:
        changelog: The partition of the changelog.
        offset: The offset of the last change; None if the changelog was empty.
    """

    changelog: SystemStreamPartition
    offset: str | None


@dataclass(frozen=True, slots=True)
class CheckpointV1:
    """Offsets of inputs and of changelogs together; a changelog's is `checkpoint id:offset`.

    Attributes:
        offsets: The offsets by partition; None for a partition without one.
        markers: None: only version 2 has them.
    """

    offsets: Mapping[SystemStreamPartition, str | None] = field(default_factory=dict)
    markers: ClassVar[StateCheckpointMarkers] = {}

    version = 1

    def changelog_offset(
        self, changelog: SystemStreamPartition
    ) -> tuple[CheckpointId, str | None] | None:
        """Return the checkpoint and the offset of a changelog; None if it has no offset.

        Raises:
            CheckpointRecordError: The offset is an input's.
        """
        written = self.offsets.get(changelog)
        if written is None:
            return None
        identifier, separator, offset = written.partition(":")
        if not separator or not offset or ":" in offset:
            raise CheckpointRecordError(
                f"{written!r} is no offset of a changelog",
                place=str(changelog),
                remedy="it is `checkpoint id:offset` if transactional state was on when written",
            )
        return CheckpointId.parse(identifier), None if offset == "null" else offset


@dataclass(frozen=True, slots=True)
class CheckpointV2:
    """Offsets of inputs, and markers of state.

    Attributes:
        id: The id of the commit.
        input_offsets: The last processed offset, by partition.
        markers: The marker of each store, by backend.
    """

    id: CheckpointId
    input_offsets: Mapping[SystemStreamPartition, str] = field(default_factory=dict)
    markers: StateCheckpointMarkers = field(default_factory=dict)

    version = 2

    @property
    def offsets(self) -> Mapping[SystemStreamPartition, str]:
        """The offsets of the inputs, as in every version of a checkpoint."""
        return self.input_offsets


Checkpoint: TypeAlias = CheckpointV1 | CheckpointV2


class CheckpointLogKey(msgspec.Struct, frozen=True):
    """The key of a record in a checkpoint log, which keeps the last record of each key.

    Attributes:
        grouper: The class that assigns partitions to tasks: offsets depend on it.
        task: The task's name.
        type: `checkpoint` or `checkpoint-v2`; others may occur, and are skipped.
    """

    grouper: str = msgspec.field(name="systemstreampartition-grouper-factory")
    task: str = msgspec.field(name="taskName")
    type: str

    def __post_init__(self) -> None:
        if not self.grouper:
            raise CheckpointRecordError(f"the key of task {self.task!r} names no grouper")

    @property
    def version(self) -> int | None:
        """The version of records of this type; None if it is not known here."""
        return next(
            (version for version, name in CHECKPOINT_TYPES.items() if name == self.type), None
        )
