"""`check_snapshot`: find every fault of a savepoint or checkpoint, not only the first."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from statelake.state_core.errors import CorruptSnapshotError, StateError
from statelake.state_core.files.file_sources import Workers
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.channels import channels_among, read_channels
from statelake.state_core.formats.contradictions import find_contradictions, label_of
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    check_properties,
    major_version,
    read_metadata,
)
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.formats.metadata.stream_map import streams_of
from statelake.state_core.formats.reader import METADATA_FILE, snapshot_directory
from statelake.state_core.integrity.findings import (
    Checked,
    Fault,
    FaultKind,
    Findings,
    Loss,
    Place,
    Unchecked,
)
from statelake.state_core.integrity.keyed_entries import Keeper, examine
from statelake.state_core.integrity.keyed_sources import KeyedSource
from statelake.state_core.integrity.operators import (
    OperatorExamined,
    open_operator,
)
from statelake.state_core.model.channels import Channel
from statelake.state_core.model.handles import (
    KeyGroupRange,
    StreamHandle,
)
from statelake.state_core.model.key_groups import operator_id_of_uid
from statelake.state_core.printable import Printed, bytes_text, count_text

Progress = Callable[[int, int], None]
SHOWN = 200  # the largest number of faults in text


@dataclass(frozen=True)
class IntegrityReport(Printed):
    """The result of a check.

    Attributes:
        location: The snapshot's location.
        faults: All faults.
        unchecked: The parts that could not be checked.
        checked: The amount that was checked.
    """

    JSON = ("location", "faults", "not_checked=unchecked", "checked")

    location: str
    faults: tuple[Fault, ...]
    unchecked: tuple[Unchecked, ...]
    checked: Checked

    @property
    def sound(self) -> bool:
        """Return whether the snapshot has no faults."""
        return not self.faults

    @property
    def verdict(self) -> str:
        """Return the number of faults in words, or `sound`; noting entries that are not located."""
        unread = any(each.unread for each in self.unchecked)
        faults = count_text(len(self.faults), "fault") if self.faults else "sound"
        return f"{faults}{' as far as it can be read' if unread else ''}"

    def lines(self) -> Iterator[str]:
        """Yield the text form: lines and tables."""
        checked = self.checked
        yield (
            f"{self.verdict}: {checked.handles} handles, {checked.files} files,"
            f" {bytes_text(checked.size)}, {checked.key_groups} key groups; {checked.entries}"
            f" entries ({checked.values} values decoded, {checked.hashed} keys hashed),"
            f" {checked.elements} elements of operator state"
        )
        for fault in self.faults[:SHOWN]:
            yield from ("", f"{fault.kind.value}  {fault.where}")
            many = fault.entries is not None and fault.entries > 1
            place = fault.place.removeprefix(f"{self.location}/")
            yield f"    {fault.problem}" + (f" ({fault.entries} entries)" if many else "")
            if place:
                yield f"    {place}"
            yield f"    -> {fault.remedy}"
        if len(self.faults) > SHOWN:
            yield f"... and {len(self.faults) - SHOWN} more: --json lists all"
        if self.faults or self.unchecked:
            yield ""
        for skipped in self.unchecked:
            yield f"not checked: {skipped}"


@dataclass
class Examined:
    """A checked snapshot: its faults, and its readable part."""

    directory: Directory
    files: StateFiles
    findings: Findings = field(default_factory=Findings)
    metadata: CheckpointMetadata | None = None
    operators: list[OperatorExamined] = field(default_factory=list)
    channels_sound: bool = True

    @property
    def report(self) -> IntegrityReport:
        """Return the report of the check."""
        findings = self.findings
        return IntegrityReport(
            self.directory.uri, tuple(findings.faults), tuple(findings.unchecked), findings.checked
        )

    @property
    def losses(self) -> list[Loss]:
        """Return the parts that a salvage loses."""
        return self.findings.losses


def check_snapshot(
    savepoint: str | os.PathLike[str],
    *,
    allow_external: Iterable[str] = (),
    uids: Iterable[str] = (),
    threads: int | None = None,
    progress: Progress | None = None,
) -> IntegrityReport:
    """Read a complete snapshot, and report every fault.

    Args:
        savepoint: The snapshot's directory or its `_metadata` file, as a path or a URI.
        allow_external: Other directories to which its handles may lead.
        uids: Operator uids to recognise: before Flink 2.0 a snapshot holds only their hashes.
        threads: The number of threads; by default that of the cores.
        progress: Called with (done, total) after each slice of keyed state.

    Raises:
        NotASnapshotError: The location has no `_metadata`.
    """
    return check_and_keep(
        savepoint, allow_external, uids, threads=threads, progress=progress
    ).report


def check_and_keep(
    location: str | os.PathLike[str],
    allow_external: Iterable[str] = (),
    uids: Iterable[str] = (),
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    keeper: Callable[[KeyedSource], Keeper] | None = None,
) -> Examined:
    """Check a snapshot as `check_snapshot` does, and return its faults and its readable part.

    Args:
        location: As there.
        allow_external: As there.
        uids: As there.
        threads: As there.
        progress: As there.
        keeper: Returns the keeper of the sound entries of one slice of one subtask's keyed state.
    """
    directory = snapshot_directory(location)
    examined = Examined(directory, StateFiles(directory, tuple(allow_external)))
    findings = examined.findings
    path = examined.files.metadata_path
    try:
        metadata = read_metadata(examined.files.metadata(), path)
    except StateError as error:
        findings.fault(FaultKind.METADATA, Place(), error)
        return examined
    examined.metadata = metadata
    examined.files.heads.flink = major_version(metadata.version)
    uid_of = {operator_id_of_uid(uid): uid for uid in uids}
    _check_metadata(metadata, uid_of, path, findings)
    for state in metadata.operators:
        label = label_of(state, uid_of)
        examined.operators.append(open_operator(state, label, examined.files, findings))
    labels = {operator.state.operator_id: operator.label for operator in examined.operators}
    examined.channels_sound = examine_channels(metadata, labels, examined.files, findings)
    _read_entries(examined, threads or os.cpu_count() or 1, progress, keeper)
    findings.checked.files = len(set(map(_named, streams_of(metadata))))
    return examined


def _check_metadata(
    metadata: CheckpointMetadata, uid_of: Mapping[str, str], path: str, findings: Findings
) -> None:
    try:
        check_properties(metadata)
    except StateError as error:
        findings.fault(FaultKind.METADATA, Place(), error.within(path))
    for find_contradiction in find_contradictions(metadata.operators, uid_of):
        where = Place(
            find_contradiction.operator,
            find_contradiction.subtask,
            "",
            find_contradiction.key_groups,
        )
        findings.fault(
            FaultKind(find_contradiction.kind), where, find_contradiction.error.within(path)
        )
    for master in metadata.masters:
        findings.skip(Place(), f"state of master hook {master.name!r}, {len(master.data)} bytes")


def _read_entries(
    examined: Examined,
    threads: int,
    progress: Progress | None,
    keeper: Callable[[KeyedSource], Keeper] | None,
) -> None:
    """Examine all keyed state, slice by slice."""
    jobs: list[tuple[KeyedSource, KeyGroupRange, int | None, Keeper | None]] = []
    timers: dict[int, OperatorExamined] = {}
    for operator in examined.operators:
        for index, source in operator.keyed.items():
            for key_groups, state in source.slices():
                kept = keeper(source) if keeper is not None else None
                if kept is not None:
                    operator.keepers.setdefault(index, []).append(kept)
                jobs.append((source, key_groups, state, kept))
        for source in operator.timers.values():
            for key_groups, state in source.slices():
                timers[len(jobs)] = operator
                jobs.append((source, key_groups, state, None))

    def run(job: tuple[KeyedSource, KeyGroupRange, int | None, Keeper | None]) -> Findings:
        try:
            return examine(*job)
        finally:
            if job[-1] is not None:
                job[-1].close()

    # waits for keepers, which write into a directory that is deleted afterwards
    with Workers(threads) if keeper is None else ThreadPoolExecutor(threads) as pool:
        for done, findings in enumerate(pool.map(run, jobs)):
            if done in timers:
                _note_timers(timers[done], jobs[done][0], findings)
            examined.findings.add(findings)
            if progress is not None:
                progress(done + 1, len(jobs))
    blamed = {(fault.where.operator, fault.where.subtask) for fault in examined.findings.faults}
    for source in {id(job[0]): job[0] for job in jobs}.values():
        where = source.where
        if source.suspect is not None and (where.operator, where.subtask) not in blamed:
            examined.findings.fault(FaultKind.FILE, where, source.suspect)


def _note_timers(operator: OperatorExamined, source: KeyedSource, findings: Findings) -> None:
    """Note damaged timers. Raw state is used completely or not at all, so all of it is lost."""
    findings.losses.clear()
    subtask = source.where.subtask
    if not findings.faults or subtask is None or subtask in operator.damaged_timers:
        return
    operator.damaged_timers.add(subtask)
    findings.lose(source.where, "its timers on the heap: " + findings.faults[0].problem)


# --------------------------------------------------------------------------- streams


def _named(stream: StreamHandle) -> str:
    return str(getattr(stream, "path", getattr(stream, "uri", ""))) or METADATA_FILE


def examine_channels(
    metadata: CheckpointMetadata, labels: Mapping[str, str], files: StateFiles, findings: Findings
) -> bool:
    """Note the faults of channel state, and return whether it has none.

    Args:
        metadata: The snapshot's `_metadata`.
        labels: The labels of operators, by their ids.
        files: The snapshot's files.
        findings: Collects the findings.
    """
    channels = channels_among(metadata.operators, files.open, labels)
    noted: set[str] = set()
    places: set[tuple[str, str]] = set()
    for channel in channels:
        findings.checked.size += channel.size
        where = Place(channel.operator, channel.subtask)
        try:
            _refuse_twice(channel, places)
            channel.buffers()
        except StateError as error:
            if str(error) not in noted:
                noted.add(str(error))
                findings.fault(FaultKind.FILE, where, error)
    findings.checked.handles += len({channel.file for channel in channels})
    if noted:
        for channel in channels:
            where = Place(channel.operator, channel.subtask)
            findings.lose(where, "records in flight: some are damaged", size=channel.size)
        return False
    for elements in read_channels(channels):
        where = Place(elements.channel.operator)
        if elements.separable:
            findings.skip(where, "values of records in flight, whose type snapshots do not have")
        else:
            findings.skip(where, "records in flight that can't be separated")
    return True


def _refuse_twice(channel: Channel, places: set[tuple[str, str]]) -> None:
    """Refuse a duplicate channel, as Flink does, since the order of its buffers is unknown."""
    place = channel.operator_id, channel.place
    if place in places:
        raise CorruptSnapshotError(
            "a channel that is named twice",
            place=channel.place,
            remedy="Flink does not restore it: take another checkpoint, or salvage this one",
        )
    places.add(place)
