"""Sinks: the state of writers, and the pending commits of committers.

A committer has the committables of each request of each subtask of each checkpoint. Of others than
Kafka see `committables`.

These are only read, never written. A file in progress, and one to be committed, depend on their
file system, and stay bytes.

Source: `SinkWriterOperator`, `CommittableCollectorSerializer`; `KafkaWriterStateSerializer` and
`KafkaCommittableSerializer` in `org.apache.flink.connector.kafka.sink`; of files,
`FileWriterBucketStateSerializer`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from statelake.state_core.connectors.committables import (
    ICEBERG_STATE,
    PAIMON_VERSIONS,
    read_delta,
    read_delta_table,
    read_iceberg,
    read_iceberg_checkpoints,
    read_paimon,
    read_pulsar,
)
from statelake.state_core.connectors.elements import Element, StateElement, readable_elements
from statelake.state_core.connectors.records import (
    BYTES,
    INT,
    LONG,
    SHORT,
    UTF,
    VERSIONED,
    Code,
    Sized,
    VersionedList,
    among,
    many,
    optional,
    record,
)
from statelake.state_core.errors import SnapshotError, StateError
from statelake.state_core.files.filesystem import ConfinedDirectory, Directory
from statelake.state_core.files.wire import DataInput
from statelake.state_core.model.snapshot import Snapshot
from statelake.state_core.printable import Printed, Table
from statelake.state_core.serializers.framework.base import TypeSerializer

WRITER_STATE = "writer_raw_states"
COMMITTER_STATE = "streaming_committer_raw_states"
SINK_STATES = (WRITER_STATE, COMMITTER_STATE, ICEBERG_STATE)
_MAGIC = 0xB91F252C - (1 << 32)
_BUCKET_MAGIC, _BUCKET_VERSION = 0x1E764B79, 3
_REQUEST_STATES = ("received", "retry", "failed", "committed")
_OWNERSHIPS = ("implicit by subtask id", "explicit by writer state")
SHOWN = 1000  # commits of one sink, to people
_KNOWN = Code({-1: None}, others=True)
# the state of writers of Kafka, by its version; of a bucket of files; and of committers
_WRITERS = {
    1: record(transactional_id_prefix=UTF),
    2: record(
        transactional_id_prefix=UTF, owned_subtask=_KNOWN, owned_subtasks=_KNOWN,
        ownership=Code(_OWNERSHIPS),
        precommitted=many(record(transactional_id=UTF, checkpoint=LONG)),
    ),
}  # fmt: skip
_BUCKET = record(
    magic=among(_BUCKET_MAGIC), version=among(1), bucket=BYTES, path=UTF, created_ms=LONG,
    in_progress=optional(VERSIONED),
)  # fmt: skip


def _members(*kinds: TypeSerializer) -> VersionedList:
    """Return a list of any version, from 0 on."""
    return VersionedList(dict(enumerate(map(Sized, kinds))), first=True)


_REQUESTS = _members(record(version=INT, data=BYTES, retries=INT, state=Code(_REQUEST_STATES)))
_SUBTASKS = _members(
    record(requests=_REQUESTS, committables=INT, drained=INT, failed=INT),
    record(number=INT, requests=_REQUESTS, committables=INT, drained=INT, failed=INT),
    record(number=INT, requests=_REQUESTS, committables=INT, failed=INT),
)
_CHECKPOINTS = _members(
    record(checkpoint=LONG, subtasks=_SUBTASKS),
    record(checkpoint=LONG, parallelism=INT, subtasks=_SUBTASKS),
)
_COMMITTER = record(magic=among(_MAGIC), checkpoints=_CHECKPOINTS)
_KAFKA = record(epoch=SHORT, producer_id=LONG, transactional_id=UTF)

Value = TypeVar("Value")
Row = dict[str, Any]


@dataclass(frozen=True)
class Sink(Printed):
    """A sink's state in a snapshot.

    Attributes:
        operator_id: The operator's id.
        operator: The operator's uid, or otherwise its id.
        writers: A row for the state of each writer.
        to_commit: A row for each committable.
        problems: Why not all of its state can be read.
    """

    JSON = ("operator_id", "operator", "writers", "to_commit", "problems?")

    operator_id: str
    operator: str
    writers: tuple[Row, ...]
    to_commit: tuple[Row, ...]
    problems: tuple[str, ...] = ()

    def looked_up(self, directory: str) -> Sink:
        """Return the sink, with `there` for each manifest of Iceberg below a directory.

        It is true if the manifest is there, and false if not. Others are not looked for, and no
        link is followed.

        Args:
            directory: The directory of a table or of a warehouse.
        """
        inside = Directory(directory).confined()
        rows = tuple(
            row
            if row.get("manifest") is None
            else row | {"there": _is_there(inside, row["manifest"])}
            for row in self.to_commit
        )
        return replace(self, to_commit=rows)

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: the table of pending committables."""
        yield from self._table()
        yield from (f"? not all is known: {problem}" for problem in self.problems)

    def _table(self) -> Iterator[str | Table]:
        names = list(dict.fromkeys(name for row in self.to_commit for name in row))
        title = f"{self.operator}: sink"
        title += f", {len(self.writers):,} writers" if self.writers else ""
        if not names:
            yield title
            return
        yield Table(
            f"{title}, {len(self.to_commit):,} to commit",
            [f"<{name.replace('_', ' ')}" for name in names],
            [
                ["-" if row.get(name) is None else str(row[name]) for name in names]
                for row in self.to_commit[:SHOWN]
            ],
            max(0, len(self.to_commit) - SHOWN),
        )


def sink_of(operator_id: str, operator: str, elements: Sequence[StateElement]) -> Sink | None:
    """Return an operator as a sink; None if it has no state of a sink.

    Args:
        operator_id: The operator's id.
        operator: The operator's label.
        elements: The elements of the operator's states in `SINK_STATES`.
    """
    if not elements:
        return None
    writers, to_commit = [], []
    for element in elements:
        if element.state == WRITER_STATE:
            writers.append({"subtask": element.subtask} | _writer(element.data))
        else:
            read = _iceberg if element.state == ICEBERG_STATE else _committer
            to_commit += [{"subtask": element.subtask} | row for row in read(element.data)]
    return Sink(operator_id, operator, tuple(writers), tuple(to_commit))


def sinks_of(snapshot: Snapshot) -> list[Sink]:
    """Return the sinks of a savepoint or checkpoint.

    Raises:
        SnapshotError: The snapshot's operator state can't be read.
    """
    sinks = []
    for operator in snapshot.operators:
        elements, problems = readable_elements(operator, SINK_STATES, partial=snapshot.partial)
        sink = sink_of(operator.operator_id, operator.label, elements)
        if sink is None and problems:
            sink = Sink(operator.operator_id, operator.label, (), ())
        if sink is not None:
            sinks.append(replace(sink, problems=tuple(problems)))
    return sinks


def _is_there(directory: ConfinedDirectory, path: str) -> bool | None:
    """Return whether there is a file; None if it is not below the directory."""
    place = re.sub(r"^file:(//)?(?=/)", "", path)
    anchor = directory.full().rstrip("/") + "/"
    if not place.startswith(anchor):
        return None
    try:
        return directory.is_file(place.removeprefix(anchor))
    except SnapshotError:  # a link, or a path that leads above
        return None


def _whole(read: Callable[[DataInput], Value], data: bytes) -> Value | None:
    """Return a value that takes all of some bytes; None if the bytes are not such a value."""
    source = DataInput(data)
    try:
        value = read(source)
    except StateError:
        return None
    return value if source.remaining == 0 else None


def _writer(data: bytes) -> Row:
    element = Element.read(data)
    if element is None:
        return {"version": None, "bytes": len(data)}
    if element.version in _WRITERS:
        row = _whole(_WRITERS[element.version].read, element.data)
    else:
        row = _whole(_read_bucket, element.data) if element.version == _BUCKET_VERSION else None
    return {"version": element.version} | (row or {"bytes": len(element.data)})


def _read_bucket(source: DataInput) -> Row:
    row: Row = _BUCKET.read(source)
    name, handle = row["bucket"], row["in_progress"]
    if int.from_bytes(name[:4], "little") != len(name) - 4:
        raise source.fault("no bucket's name")
    return {
        "bucket": name[4:].decode("utf-8", "replace"),
        "path": row["path"],
        "created_ms": row["created_ms"],
        "in_progress_handle_bytes": None if handle is None else len(handle["data"]),
    }


def _iceberg(data: bytes) -> list[Row]:
    rows = _whole(read_iceberg_checkpoints, data)
    return [{"bytes": len(data)}] if rows is None else rows


def _committer(data: bytes) -> list[Row]:
    element = Element.read(data)
    if element is None:
        return [{"version": None, "bytes": len(data)}]
    version, rows = element.version, None
    if version == 2:
        rows = _whole(_read_committer, element.data)
    elif version in PAIMON_VERSIONS:
        rows = _whole(lambda source: read_paimon(version, source), element.data)
    if rows is None:
        return [{"version": element.version, "bytes": len(element.data)}]
    return rows


def _read_committer(source: DataInput) -> list[Row]:
    _, checkpoints = _COMMITTER.read(source)["checkpoints"]
    return [
        {"checkpoint": checkpoint["checkpoint"]} | row
        for checkpoint in checkpoints
        for subtask in checkpoint["subtasks"][1]
        for request in subtask["requests"][1]
        for row in _committables(request, request.pop("data"))
    ]


def _committables(request: Row, data: bytes) -> list[Row]:
    for read in _COMMITTABLES if request["version"] == 1 else ():
        committables = _whole(read, data)
        if committables is not None:
            return [request | one for one in committables]
    return [request | {"bytes": len(data)}]


def _read_kafka(source: DataInput) -> list[Row]:
    row = _KAFKA.read(source)
    return [{name: row[name] for name in reversed(row)}]


# by their first bytes, and because all bytes have to be read, only one of them can succeed
_COMMITTABLES = (read_delta, read_delta_table, _read_kafka, read_iceberg, read_pulsar)
