"""What a report says, gathered from a savepoint or from a job's snapshot in a lake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from statelake.pipelines.engine import Progress
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.rescaling import group_totals
from statelake.pipelines.lake.keys.heavy_keys import weigh_recorded
from statelake.pipelines.lake.tables.records import (
    OperatorRecord,
    OperatorStateRecord,
    SnapshotRecord,
)
from statelake.pipelines.lake.tables.table_rows import parse_recorded
from statelake.pipelines.lake.verify.integrity import stored_faults
from statelake.pipelines.report.contents import (
    DETAILED,
    DETAILED_STATES,
    GrowthStep,
    Integrity,
    Report,
    ReportedFault,
    ReportedOperator,
    ReportedState,
)
from statelake.pipelines.shown import bytes_text
from statelake.state_core.checks.integrity import IntegrityReport, check_snapshot
from statelake.state_core.errors import NotASnapshotError, StateError
from statelake.state_core.formats import open_snapshot
from statelake.state_core.formats.key_weights import HeavyKey, weigh_operator
from statelake.state_core.formats.reader import snapshot_directory
from statelake.state_core.model.handles import DistributionMode
from statelake.state_core.model.measure import measure_operator
from statelake.state_core.model.operator_state import NonKeyedState
from statelake.state_core.model.snapshot import Operator, Snapshot

__all__ = ["lake_report", "savepoint_report"]

_MODES = {
    DistributionMode.SPLIT_DISTRIBUTE: "split",
    DistributionMode.UNION: "union",
    DistributionMode.BROADCAST: "broadcast",
}


def savepoint_report(
    path: str,
    limit: int,
    *,
    check: bool = False,
    uids: tuple[str, ...] = (),
    allow_external: tuple[str, ...] = (),
    progress: Progress | None = None,
) -> Report:
    """What a savepoint or checkpoint holds. All state is read: once, for the heaviest keys twice.

    Args:
        path: Its directory.
        limit: How many of the heaviest keys of each state; 0 for none.
        check: Whether to look for faults. What can't be read is then a part of the report.
        uids: Operator uids to recognise (Flink < 2.0).
        allow_external: Directories elsewhere that handles may lead to.
        progress: Called with (done, total) after each operator.

    Raises:
        SnapshotError: The savepoint can't be opened, or, unless it is checked, can't be read.
    """
    shown = snapshot_directory(path).uri if "://" in path else path  # which has no credentials
    title = shown.rstrip("/").rpartition("/")[2]
    integrity = None
    if check:
        integrity = _integrity(check_snapshot(path, allow_external=allow_external, uids=uids))
    try:
        snapshot = open_snapshot(path, allow_external=allow_external, uids=uids)
    except NotASnapshotError:
        raise
    except StateError as error:
        if integrity is None or not integrity.faults:
            raise
        return Report(title, (("Snapshot", shown), ("Can't be opened", str(error))), (), integrity)
    ordered = sorted(snapshot.operators, key=lambda each: (-each.total_bytes, each.label))
    reported = list(map(_operator, ordered))
    for number, operator in enumerate(ordered[:DETAILED]):
        try:
            reported[number] = _with_states(reported[number], operator, limit)
        except StateError as error:
            if not check:
                raise
            reported[number] = replace(reported[number], problem=str(error))
        if progress is not None:
            progress(number + 1, min(len(ordered), DETAILED))
    return Report(title, _facts(shown, snapshot), tuple(reported), integrity)


def _facts(location: str, snapshot: Snapshot) -> tuple[tuple[str, str], ...]:
    size = sum(operator.total_bytes for operator in snapshot.operators)
    kind = " ".join(dict.fromkeys(filter(None, (snapshot.format, snapshot.kind))))
    return (
        ("Snapshot", location),
        ("Kind", kind or "unknown"),
        ("Checkpoint", str(snapshot.checkpoint_id)),
        ("Version of _metadata", str(snapshot.metadata_version)),
        ("Compression", snapshot.compression),
        ("Size as stored", bytes_text(size)),
    )


def _operator(operator: Operator) -> ReportedOperator:
    other = (
        ("coordinator", operator.coordinator_bytes),
        ("raw", operator.raw_bytes),
        ("in flight", operator.in_flight_bytes),
    )
    return ReportedOperator(
        operator.label,
        operator.name,
        operator.parallelism,
        operator.max_parallelism,
        operator.total_bytes,
        operator.keyed_states[0].key_type if operator.keyed_states else "",
        len(operator.keyed_states) + len(operator.operator_states),
        other=tuple((what, size) for what, size in other if size),
    )


def _with_states(shown: ReportedOperator, operator: Operator, limit: int) -> ReportedOperator:
    """An operator with what reading its state tells."""
    totals = measure_operator(operator)
    keyed = operator.keyed_states[:DETAILED_STATES]
    weights = (
        weigh_operator(operator, limit, states=[state.name for state in keyed]) if limit else {}
    )
    heaviest = {name: of_state.heaviest() for name, of_state in weights.items()}
    states = [
        ReportedState(
            state.name,
            state.kind.value,
            state.namespace_type,
            _value_type(state.user_key_type, state.value_type),
            _column_type(state.schema),
            state.with_ttl,
            int(totals[state.name][0].sum()),
            int(totals[state.name][1].sum()),
            tuple(heaviest.get(state.name, ())),
        )
        for state in keyed
    ]
    states += [
        _operator_state(state, state.mode, _column_type(state.schema), None)
        for state in operator.operator_states[: DETAILED_STATES - len(keyed)]
    ]
    none = np.zeros(operator.max_parallelism if totals else 0, np.int64)
    return replace(
        shown,
        states=tuple(states),
        entries=sum((entries for entries, _ in totals.values()), none),
        sizes=sum((sizes for _, sizes in totals.values()), none),
    )


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
    *,
    check: bool = False,
    progress: Progress | None = None,
) -> Report:
    """What a snapshot of a job holds, and how the job's state grew.

    Sizes are from the catalog; tables are read for the heaviest keys and for faults alone.

    Args:
        lake: The lake.
        record: The snapshot.
        limit: How many of the heaviest keys of each state; 0 for none.
        check: Whether to look for faults. What can't be read is then a part of the report.
        progress: Called with (done, total) after each operator.

    Raises:
        LakeError: Unless it is checked, a file can't be read.
    """
    integrity = None
    if check:
        faults = stored_faults(lake, record)
        integrity = Integrity(tuple(ReportedFault("lake", "", problem, "") for problem in faults))
    ordered = sorted(record.operators, key=lambda each: (-each.state_bytes, each.label))
    reported = []
    for number, operator in enumerate(ordered):
        heaviest: Mapping[str, list[HeavyKey]] = {}
        problem = ""
        if limit and number < DETAILED:
            try:
                weighed = weigh_recorded(lake, operator, limit)
                heaviest = {name: weights.heaviest() for name, weights in weighed.items()}
            except StateError as error:
                if not check:
                    raise
                problem = str(error)
            if progress is not None:
                progress(number + 1, min(len(ordered), DETAILED))
        shown = _recorded(operator, heaviest if number < DETAILED else None)
        reported.append(replace(shown, problem=problem))
    growth = tuple(
        GrowthStep(
            each.snapshot_id, each.taken_at, each.entries, each.state_bytes, each.written_bytes
        )
        for each in lake.summaries(record.job)
    )
    return Report(
        f"{record.job}, {record.snapshot_id}",
        _recorded_facts(record),
        tuple(reported),
        integrity,
        growth,
        record.snapshot_id,
    )


def _recorded_facts(record: SnapshotRecord) -> tuple[tuple[str, str], ...]:
    origin = f"{record.origin} of {record.parent}" if record.parent else record.format
    facts = (
        ("Job", record.job),
        ("Snapshot", record.snapshot_id),
        ("From", origin),
        ("Taken", f"{record.taken_at:%Y-%m-%d %H:%M} UTC"),
        ("Entries", f"{record.entries:,}"),
        ("Bytes of keys and values", bytes_text(record.state_bytes)),
        ("Note", record.note),
    )
    return tuple((name, value) for name, value in facts if value)


def _recorded(
    operator: OperatorRecord, heaviest: Mapping[str, list[HeavyKey]] | None
) -> ReportedOperator:
    """An operator of a lake; without its states if there are no heaviest keys."""
    shown = ReportedOperator(
        operator.label,
        operator.name,
        operator.parallelism,
        operator.max_parallelism,
        operator.state_bytes,
        operator.key_type,
        len(operator.states) + len(operator.operator_states),
    )
    if heaviest is None:
        return shown
    keyed = operator.states[:DETAILED_STATES]
    states = [
        ReportedState(
            state.name,
            state.kind,
            state.namespace_type,
            _value_type(state.user_key_type, state.value_type),
            _column_type(parse_recorded(operator, state).schema),
            state.ttl,
            state.entries,
            state.state_bytes,
            tuple(heaviest.get(state.name, ())),
        )
        for state in keyed
    ]
    states += [
        _operator_state(state, DistributionMode[state.mode], "", state.state_bytes)
        for state in operator.operator_states[: DETAILED_STATES - len(keyed)]
    ]
    if not operator.states:
        return replace(shown, states=tuple(states))
    entries, sizes = group_totals(operator)
    return replace(shown, states=tuple(states), entries=entries, sizes=sizes)


def _operator_state(
    state: NonKeyedState | OperatorStateRecord,
    mode: DistributionMode,
    column: str,
    size: int | None,
) -> ReportedState:
    values = _value_type(state.key_type, state.value_type)
    return ReportedState(
        state.name, _MODES[mode], "", values, column, with_ttl=False, entries=state.elements,
        size=size,
    )  # fmt: skip


def _value_type(key: str, value: str) -> str:
    return f"{key} → {value}" if key else value


def _column_type(schema: pa.Schema) -> str:
    """The Arrow type of the values; empty for timers, which have none."""
    return str(schema.field("value").type) if "value" in schema.names else ""
