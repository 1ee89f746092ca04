"""The records of a checkpoint log, decoded, for every kind of log."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from statelake.state_core.errors import NotFoundError
from statelake.state_core.extras import require_extra
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.printable import Printed, Table, age_text
from statelake.state_core.runtime.commit import (
    Changelogs,
    CheckpointLog,
    FileChangelogs,
    FileCheckpointLog,
)
from statelake.state_core.runtime.commit.records.checkpoint_reading import TaskRecord, record_of
from statelake.state_core.runtime.commit.records.records import (
    BLOB_STORE_FACTORY,
    CHANGELOG_FACTORY,
    SNAPSHOT_FACTORY,
)

KAFKA = "kafka://"
SHORT = {
    BLOB_STORE_FACTORY: "blob_store", CHANGELOG_FACTORY: "changelog", SNAPSHOT_FACTORY: "lake",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LastCheckpoints(Printed):
    """The last checkpoint of each task, in each version.

    Attributes:
        records: The checkpoints, by task and version.
        at: The time at which ages are measured, in milliseconds since 1970.
    """

    records: list[TaskRecord]
    at: int

    def to_json(self) -> list[dict[str, Any]]:
        """Return them as JSON can hold them."""
        return [
            {
                "task": each.task,
                "grouper": each.key.grouper,
                "version": each.checkpoint.version,
                "checkpoint": None if each.id is None else str(each.id),
                "offset": each.record.offset,
                "appended_at": each.record.appended_at,
                "age_ms": self.at - each.record.appended_at,
                "markers": each.backends,
                "run": each.run,
                "snapshot": each.snapshot or None,
            }
            for each in self.records
        ]

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: lines and tables."""
        tasks = f"{len({(each.key.grouper, each.task) for each in self.records})} tasks"
        if all(each.snapshot for each in self.records):
            columns = ("<task", ">run", "<snapshot", "<backends", "<checkpoint", ">age")
            yield Table(tasks, columns, [
                (each.task, str(each.run or ""), each.snapshot,
                 ", ".join(SHORT.get(name, name) for name in each.backends), str(each.id),
                 age_text(self.at - each.record.appended_at))
                for each in self.records
            ])  # fmt: skip
            return
        rows = [
            (each.task, str(each.checkpoint.version), str(each.id or ""),
             age_text(self.at - each.record.appended_at),
             "; ".join(f"{SHORT.get(name, name)}: {', '.join(stores)}"
                       for name, stores in each.backends.items()),
             str(each.record.offset))
            for each in self.records
        ]  # fmt: skip
        columns = ("<task", ">version", "<checkpoint", ">age", "<markers", ">offset")
        yield Table(tasks, columns, rows)


def open_log(location: str) -> CheckpointLog:
    """Open the log at a place: a directory, or `kafka://HOST:PORT/TOPIC`.

    Raises:
        NotFoundError: There is no log at the location.
    """
    if location.startswith(KAFKA):
        return _topic(location)
    directory = Directory(location)
    if any(name.endswith(".record") for name in directory.names()):
        return FileCheckpointLog(directory)
    raise NotFoundError(
        "no checkpoint log: not a directory of records",
        place=directory.uri,
        remedy="name the directory that has the records in it",
    )


def open_changelogs(location: str) -> Changelogs:
    """Return the changelogs of a cluster, `kafka://HOST:PORT`, or of a directory."""
    if not location.startswith(KAFKA):
        return FileChangelogs(location)
    changelogs: Changelogs = _kafka().KafkaChangelogs(
        _cluster(location.removeprefix(KAFKA).strip("/"))
    )
    return changelogs


def _topic(location: str) -> CheckpointLog:
    servers, _, topic = location.removeprefix(KAFKA).partition("/")
    if not servers or not topic:
        raise NotFoundError(f"{location!r} names no topic", remedy=f"{KAFKA}HOST:PORT/TOPIC")
    log: CheckpointLog = _kafka().KafkaCheckpointLog(_cluster(servers), topic)
    return log


def _cluster(servers: str) -> Any:
    return _kafka().KafkaCluster(servers, {"log_level": 0})


def _kafka() -> Any:
    require_extra("kafka")
    return importlib.import_module("statelake.state_core.runtime.commit.backends.kafka")


def read_records(log: CheckpointLog) -> list[TaskRecord]:
    """Return every checkpoint of a known version, in the order of the log.

    Raises:
        CheckpointRecordError: A record is broken.
    """
    records = (record_of(record) for record in log.read())
    return [record for record in records if record is not None]


def last_records(
    records: Iterable[TaskRecord], tasks: Iterable[str] = ()
) -> dict[tuple[str, str], dict[int, TaskRecord]]:
    """Return the last record of each version, by grouper and task.

    Args:
        records: In the order of the log.
        tasks: Only these; all by default.

    Raises:
        NotFoundError: A task has no record.
    """
    wanted = set(tasks)
    versions_by_task: dict[tuple[str, str], dict[int, TaskRecord]] = {}
    for record in records:
        if not wanted or record.task in wanted:
            versions = versions_by_task.setdefault((record.key.grouper, record.task), {})
            versions[record.checkpoint.version] = record
    missing = sorted(wanted - {task for _, task in versions_by_task})
    if missing:
        named = ", ".join(map(repr, missing))
        raise NotFoundError(f"no record of task {named}", remedy="list the log's tasks")
    return dict(sorted(versions_by_task.items(), key=lambda item: (item[0][1], item[0][0])))
