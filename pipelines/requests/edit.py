"""Requests for changes of a snapshot as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from statelake.pipelines.requests.request import Request, given, option, refuse
from statelake.pipelines.requests.shared import INEXACT, Noted, Tried, parse_age, time_option

# options of other changes, which are not changes themselves
WITH_OTHERS = frozenset(("bootstrap_servers", "stream_arn", "at", "inexact"))


class Changes(Request):
    """The changes of the operators and states of a snapshot, under their old names."""

    rename_uid: Mapping[str, str] = option("Give an operator a uid.", "OPERATOR UID", default=())
    drop_operator: Sequence[str] = option("Drop an operator.", "OPERATOR", default=())
    keep_operator: Sequence[str] = option("Drop all operators but these.", "OPERATOR", default=())
    drop_state: Sequence[str] = option(
        "Drop a state, or all /timers.", "OPERATOR/STATE", default=()
    )
    purge: Mapping[str, str] = option(
        "Delete the rows that match: DuckDB's SQL over the table's columns; of a list the elements,"
        " if it says `element`.",
        "OPERATOR/STATE PREDICATE", default=(),
    )  # fmt: skip
    expire: Mapping[str, timedelta] = option(
        "Delete the entries that have expired: 90s, 15min, 12h, 7d.", "OPERATOR/STATE TTL",
        default=(), parse=parse_age,
    )  # fmt: skip
    keep_keys: Mapping[str, str] = option(
        "Delete all keys but those that the file lists, one a line.", "OPERATOR FILE", default=()
    )
    move_positions: Mapping[str, str] = option(
        "Have a KafkaSource or KinesisStreamsSource of that uid go on where an old"
        " FlinkKafkaConsumer or FlinkKinesisConsumer stood.",
        "OPERATOR UID", default=(),
    )  # fmt: skip
    stream_arn: Sequence[str] = option(
        "The ARN of a stream of Kinesis, for that.", "ARN", default=()
    )
    at: datetime | None = time_option(
        "The time for --expire; by default when the snapshot was taken, as `snapshots` lists."
    )
    inexact: bool = option(INEXACT, default=False, more=True)


class Edit(Changes):
    """The same, and what names other snapshots, offsets and partitions."""

    merge: Sequence[str] = option("Add another's operators.", "[JOB:]SNAPSHOT", default=())
    set_offsets: Sequence[str] = option(
        "Have Kafka's partitions read from there, or a log of Flink CDC"
        " (binlog-split=FILE:POSITION, stream-split=LSN); a file has one a line.",
        "TOPIC:PARTITION=OFFSET|FILE", default=(),
    )  # fmt: skip
    offsets_from_timestamp: datetime | None = time_option(
        "Have them read from where they stood then, as the brokers say."
    )
    bootstrap_servers: str | None = option("Kafka's brokers, for that.", "HOST:PORT", default=None)
    drop_partitions: Sequence[str] = option(
        "Take partitions of Kafka out of a source that does not subscribe to them any more.",
        "TOPIC[:PARTITION]", default=(),
    )  # fmt: skip

    @property
    def is_empty(self) -> bool:
        """Return whether nothing changes."""
        return not any(value for name, value in vars(self).items() if name not in WITH_OTHERS)

    def check_fields(self) -> None:
        """Refuse what contradicts each other, or goes with nothing that is given."""
        if self.drop_operator and self.keep_operator:
            refuse("give either --drop-operator or --keep-operator")
        if self.set_offsets and self.offsets_from_timestamp:
            refuse("give either --set-offsets or --offsets-from-timestamp")
        if (self.offsets_from_timestamp is None) != (self.bootstrap_servers is None):
            refuse("--offsets-from-timestamp and --bootstrap-servers go together")
        if self.stream_arn and not self.move_positions:
            refuse("--stream-arn goes with --move-positions")


class SaveEdit(Noted, Tried):
    """The new snapshot of an edit."""


class EditSnapshot(Edit):
    """Changes of a snapshot, of which another one is made."""

    name: str = given("The id of the new snapshot.", kw_only=False)
