"""An editor that collects changes of a snapshot, and makes them together."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from statelake.pipelines.requests.edit import Changes, EditSnapshot, SaveEdit
from statelake.pipelines.requests.request import asks
from statelake.state_core.errors import DeclarationError
from statelake.state_core.printable import printable

if TYPE_CHECKING:
    from statelake.pipelines.api.jobs import Job
    from statelake.pipelines.api.snapshots import LakeSnapshot
    from statelake.pipelines.lake.edit.edit_results import EditResult
    from statelake.pipelines.lake.edit.rewriting import ChildSnapshot


class SnapshotEditor:
    """Changes of a snapshot, which `save` makes. Each method adds one, and returns the editor.

    Names are those before the changes. Merges are made first, then drops, purges and renames.

    Args:
        parent: The snapshot.
        request: The id of the new snapshot, and its first changes.
    """

    def __init__(self, parent: LakeSnapshot, request: EditSnapshot) -> None:
        from statelake.pipelines.lake.edit.editing import SnapshotEdit

        self.parent = parent
        self.name = request.name
        self.changes = SnapshotEdit(**request.words(Changes))
        if request.set_offsets:
            self.set_offsets(*request.set_offsets)
        self.drop_partitions(*request.drop_partitions)
        for text in request.merge:
            job, _, snapshot = text.rpartition(":")
            self.merge(snapshot, job=job or None)
        if request.offsets_from_timestamp is not None and request.bootstrap_servers is not None:
            self.offsets_from_timestamp(request.offsets_from_timestamp, request.bootstrap_servers)

    def __repr__(self) -> str:
        return f"<SnapshotEditor {printable(self.name)} of {printable(self.parent.location)}>"

    def _add(self, what: str, *more: object) -> Self:
        changed: dict[str, Any] = {what: [*getattr(self.changes, what), *more]}
        self.changes = replace(self.changes, **changed)
        return self

    def _put(self, what: str, name: str, value: object) -> Self:
        given = getattr(self.changes, what)
        if name in given:
            raise DeclarationError(f"{what} names {name} twice", remedy="give it once")
        changed: dict[str, Any] = {what: {**given, name: value}}
        self.changes = replace(self.changes, **changed)
        return self

    def rename_uid(self, operator: str, uid: str) -> Self:
        """Give an operator a uid."""
        return self._put("rename_uid", operator, uid)

    def drop_operator(self, *operators: str) -> Self:
        """Drop operators."""
        return self._add("drop_operator", *operators)

    def keep_operator(self, *operators: str) -> Self:
        """Drop all operators but these."""
        return self._add("keep_operator", *operators)

    def drop_state(self, *states: str) -> Self:
        """Drop states, each `operator/state`; `operator/timers` stands for all timers."""
        return self._add("drop_state", *states)

    def merge(self, snapshot: str, *, job: str | None = None) -> Self:
        """Add the operators of another snapshot, of this job or of another."""
        other = self.parent.job if job is None else self.parent.job.lake.job(job)
        return self._add("merge", (other.name, other[snapshot].name))

    def purge(self, state: str, predicate: str) -> Self:
        """Delete the rows of a state (`operator/state`) of which a predicate in SQL is true."""
        return self._put("purge", state, predicate)

    def expire(self, state: str, ttl: timedelta) -> Self:
        """Delete the entries of a state that have expired at a time to live; see `at`."""
        return self._put("expire", state, ttl)

    def keep_keys(self, operator: str, file: str) -> Self:
        """Delete all keys of an operator except those in a file, which has one on each line."""
        return self._put("keep_keys", operator, file)

    def set_offsets(self, *offsets: str) -> Self:
        """Set the offsets from which Kafka's partitions, and the logs of Flink CDC, are read.

        Args:
            offsets: `topic:partition=offset`, or files with one on each line; for Flink CDC
                `binlog-split=FILE:POSITION` or `stream-split=LSN`.
        """
        from statelake.pipelines.lake.catalog.recorded_sources import read_new_offsets

        return self._add("set_offsets", *read_new_offsets(offsets))

    def drop_partitions(self, *partitions: str) -> Self:
        """Remove partitions of Kafka from a source that no longer subscribes to them.

        Args:
            partitions: `topic:partition`, or `topic` for all of its partitions.
        """
        from statelake.state_core.connectors.offsets import parse_partition

        return self._add("drop_partitions", *map(parse_partition, partitions))

    def move_positions(self, operator: str, uid: str) -> Self:
        """Give the positions of an old source, which is dropped, to a new one.

        Args:
            operator: A `FlinkKafkaConsumer`, which becomes a `KafkaSource`, or a
                `FlinkKinesisConsumer`, which becomes a `KinesisStreamsSource`; see `stream_arn`.
            uid: The new source's uid.
        """
        return self._put("move_positions", operator, uid)

    def stream_arn(self, *arns: str) -> Self:
        """Add the ARNs of Kinesis streams, of which old sources have only the names."""
        return self._add("stream_arn", *arns)

    def offsets_from_timestamp(self, time: datetime, bootstrap_servers: str) -> Self:
        """Set the offsets of Kafka's partitions to those at a time, as the brokers report them."""
        from statelake.pipelines.lake.catalog.recorded_sources import offsets_at

        job = self.parent.job
        offsets = offsets_at(job.lake.catalog, job.name, self.parent.name, bootstrap_servers, time)
        return self._add("set_offsets", *offsets)

    def inexact(self) -> Self:
        """Evaluate predicates on columns even where these can't represent a value exactly."""
        self.changes = replace(self.changes, inexact=True)
        return self

    def at(self, time: datetime) -> Self:
        """Set the time at which expiry is evaluated; by default the time of the snapshot."""
        self.changes = replace(self.changes, at=time)
        return self

    @asks(SaveEdit)
    def save(self, request: SaveEdit) -> EditResult:
        """Make the new snapshot; the old one stays.

        Raises:
            NoMatchError: No row is purged or has expired, and nothing else would change.
        """
        from statelake.pipelines.lake.edit.editing import edit_snapshot

        child = child_of(self.parent.job, self.parent.name, self.name, **vars(request))
        return edit_snapshot(child, self.changes)


def child_of(
    job: Job, parent: str, name: str, note: str = "", *, dry_run: bool = False
) -> ChildSnapshot:
    """Return a snapshot that is to be made from one of a job's, as the job makes it."""
    from statelake.pipelines.lake.edit.rewriting import ChildSnapshot

    return ChildSnapshot(
        job.lake.catalog, job.name, parent, name, note, dry_run, job.engine, job.progress
    )
