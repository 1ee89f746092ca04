"""Gather the values of a report from a savepoint, or from a job's snapshot in a lake."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from statelake.pipelines.engine import Progress
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.reading import SnapshotReading
from statelake.pipelines.lake.catalog.unmanaged_state import unmanaged_keyed_messages
from statelake.pipelines.lake.keys.heavy_keys import weigh_recorded
from statelake.pipelines.lake.tables.describing import describe_recorded
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.pipelines.lake.verify.integrity import stored_faults
from statelake.pipelines.report.contents import (
    DETAILED,
    DETAILED_STATES,
    GrowthStep,
    Integrity,
    Report,
    ReportedFault,
)
from statelake.pipelines.requests.reading import SavepointPage
from statelake.pipelines.requests.shared import Reading
from statelake.pipelines.shown import bytes_text
from statelake.state_core.errors import NotASnapshotError, StateError
from statelake.state_core.formats.describing import describe_operator
from statelake.state_core.formats.description import OperatorDescription
from statelake.state_core.formats.key_weights import StateWeights, weigh_readable
from statelake.state_core.formats.reader import open_snapshot, snapshot_directory, with_plan
from statelake.state_core.integrity import IntegrityReport, check_snapshot
from statelake.state_core.model.snapshot import Operator

if TYPE_CHECKING:
    from statelake.pipelines.find.growth import Growth


def savepoint_report(request: SavepointPage) -> Report:
    """Return the report of a savepoint or checkpoint; if it is checked, with the faults.

    All state is read once, or twice for the heaviest keys.

    Raises:
        DeclarationError: The plan is not that of the savepoint's job.
        SnapshotError: The savepoint can't be opened.
    """
    path, check, progress = os.fspath(request.savepoint), request.check, request.progress
    reading = request.words(Reading)
    shown = snapshot_directory(path).uri if "://" in path else path  # without its credentials
    title = shown.rstrip("/").rpartition("/")[2]
    integrity = None
    if check:
        integrity = _integrity(check_snapshot(path, **reading))
    try:
        snapshot = open_snapshot(path, **reading, partial=True)
    except NotASnapshotError:
        raise
    except StateError as error:
        if integrity is None or not integrity.faults:
            raise
        return Report(title, (("Snapshot", shown), ("Can't be opened", str(error))), (), integrity)
    if request.plan is not None:
        snapshot = with_plan(snapshot, request.plan)
    described = snapshot.describe(key_groups=False)
    ordered = sorted(snapshot.operators, key=lambda each: (-each.total_bytes, each.label))
    reported = sorted(described.operators, key=lambda each: (-each.total_bytes, each.label))
    problems = snapshot.problems_of()
    for number, operator in enumerate(ordered[:DETAILED]):
        try:
            reported[number], lost = _describe_with_counts(operator, request.limit)
            problems += operator.problems_among(lost)
            keyed = reported[number].keyed_states
            problems += [each.problem for each in keyed if each.problem and each.name not in lost]
            problems += reported[number].not_located
        except StateError as error:
            if not check:
                raise
            reported[number] = replace(reported[number], problem=str(error))
        problems += [each.problem for each in reported[number].operator_states if each.problem]
        if progress is not None:
            progress(number + 1, min(len(ordered), DETAILED))
    facts = (
        ("Snapshot", shown),
        ("Kind", described.kind_text or "unknown"),
        ("Checkpoint", str(described.checkpoint_id)),
        ("Version of _metadata", str(described.metadata_version)),
        ("Compression", described.compression),
        ("Size as stored", bytes_text(described.total_bytes)),
    )
    listed = () if check else tuple(dict.fromkeys(problems))  # the faults have the same
    return Report(title, facts, tuple(reported), integrity, problems=listed)


def _describe_with_counts(
    operator: Operator, limit: int
) -> tuple[OperatorDescription, Mapping[str, StateError]]:
    """Return an operator with the counts and the heaviest keys of its state.

    Also return the errors of states that can't be read.
    """
    described = describe_operator(operator, schema=True, partial=True)
    lost = {state.name: state.uncounted for state in described.keyed_states if state.uncounted}
    if lost:
        why = f"not all entries of {', '.join(lost)} are found: {next(iter(lost.values()))}"
        described = replace(described, problem=why)
    shown = operator.keyed_states[:DETAILED_STATES]
    names = [state.name for state in shown if state.name not in lost]
    unread: dict[str, StateError] = {}
    weights = weigh_readable(operator, limit, unread, states=names) if limit else {}
    return _with_heaviest(described, weights), unread


def _with_heaviest(
    described: OperatorDescription, weights: Mapping[str, StateWeights]
) -> OperatorDescription:
    states = (
        replace(state, heaviest=tuple(weights[state.name].heaviest()))
        if state.name in weights
        else state
        for state in described.keyed_states
    )
    return replace(described, keyed_states=tuple(states))


def _integrity(report: IntegrityReport) -> Integrity:
    return Integrity(
        tuple(
            ReportedFault(
                fault.kind.value,
                ", ".join(
                    filter(
                        None, (str(fault.where), fault.place.removeprefix(f"{report.location}/"))
                    )
                ),
                fault.problem
                if fault.entries is None or fault.entries < 2
                else f"{fault.problem} ({fault.entries:,} entries)",
                fault.remedy,
            )
            for fault in report.faults
        ),
        tuple(map(str, report.unchecked)),
    )


def lake_report(
    lake: Catalog,
    record: SnapshotRecord,
    limit: int,
    grow: Callable[[], Growth],
    *,
    check: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Return the report of a job's snapshot, and of the growth of the job's state.

    Sizes are from the catalog; tables are only read for the heaviest keys, for faults, and for the
    reason of the growth.

    Args:
        lake: The lake.
        record: The snapshot.
        limit: The number of heaviest keys of each state; 0 for none.
        grow: Returns the growth of the job's state, and its reasons.
        check: Whether to look for faults. Unreadable state is then a part of the report.
        progress: Called with (done, total) after each operator.

    Raises:
        LakeError: A file can't be read, and the snapshot is not checked.
    """
    integrity = None
    if check:
        faults = stored_faults(lake, record)
        integrity = Integrity(tuple(ReportedFault("lake", "", problem, "") for problem in faults))
    ordered = sorted(record.operators, key=lambda each: (-each.state_bytes, each.label))
    reported = []
    for number, operator in enumerate(ordered):
        detailed = number < DETAILED
        described = describe_recorded(operator, schemas=DETAILED_STATES if detailed else 0)
        if limit and detailed:
            try:
                described = _with_heaviest(described, weigh_recorded(lake, operator, limit))
            except StateError as error:
                if not check:
                    raise
                described = replace(described, problem=str(error))
            if progress is not None:
                progress(number + 1, min(len(ordered), DETAILED))
        reported.append(described)
    growth = tuple(
        GrowthStep(
            each.snapshot_id, each.taken_at, each.entries, each.state_bytes, each.written_bytes
        )
        for each in lake.summaries(record.job)
    )
    grown, problem = None, ""
    if len(growth) > 1:
        try:
            grown = grow()
        except StateError as error:  # an error of another snapshot
            problem = str(error)
    SnapshotReading(lake, record).check()  # growth is of a later version of the catalog
    return Report(
        f"{record.job}, {record.snapshot_id}",
        _recorded_facts(record),
        tuple(reported),
        integrity,
        growth,
        record.snapshot_id,
        grown,
        problem,
        () if check else tuple(unmanaged_keyed_messages(record)),
    )


def _recorded_facts(record: SnapshotRecord) -> tuple[tuple[str, str], ...]:
    facts = (
        ("Job", record.job),
        ("Snapshot", record.snapshot_id),
        ("From", record.made_from),
        ("Taken", f"{record.taken_at:%Y-%m-%d %H:%M} UTC"),
        ("Entries", f"{record.entries:,}"),
        ("Bytes of keys and values", bytes_text(record.state_bytes)),
        ("Note", record.note),
    )
    return tuple((name, value) for name, value in facts if value)
