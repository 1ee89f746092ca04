"""Change a snapshot as a whole: operators renamed, dropped, merged in; states dropped or purged.

The result is a new snapshot, and the old one stays. What only renames or leaves out rewrites no
table: the new snapshot names the same files. What purges rewrites the files that lose rows, and
merging from another job copies files, since every job keeps and drops its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from pipelines.engine import Engine, Progress, choose_engine
from pipelines.lake.catalog.attempts import Attempt, recover_attempts
from pipelines.lake.catalog.catalog import Lake
from pipelines.lake.catalog.unmanaged_state import carried_metadata
from pipelines.lake.edit.merging import merge_operators, merged_tables, union_of_operators
from pipelines.lake.edit.purging import Purge, Staging, purge_table
from pipelines.lake.tables.names import check_names
from pipelines.lake.tables.records import OperatorRecord, SnapshotRecord
from state_core.errors import ConflictError, NotFoundError
from state_core.formats.metadata.checkpoint_metadata import write_metadata
from state_core.model.operator_ids import operator_id_of_uid

__all__ = ["EditResult", "SnapshotEdit", "StateChange", "edit_snapshot"]

TIMERS = "timers"


@dataclass(frozen=True)
class SnapshotEdit:
    """What is to be changed. Operators go by uid or id, states by `operator/state`.

    Attributes:
        rename: The new uid of operators.
        drop_operators: Operators that go.
        keep_operators: Operators that stay while all others go; empty for all.
        drop_states: States that go; `operator/timers` stands for all timers.
        merge: Other snapshots whose operators come in, as job and id.
        purge: By state, a Spark SQL predicate of rows that go.
        expire: By state, the time to live after whose end entries go.
        at: When it is asked what has expired; by default when the snapshot was taken.
    """

    rename: Mapping[str, str] = field(default_factory=dict)
    drop_operators: Sequence[str] = ()
    keep_operators: Sequence[str] = ()
    drop_states: Sequence[str] = ()
    merge: Sequence[tuple[str, str]] = ()
    purge: Mapping[str, str] = field(default_factory=dict)
    expire: Mapping[str, timedelta] = field(default_factory=dict)
    at: datetime | None = None


@dataclass(frozen=True)
class StateChange:
    """What an edit did to one state: entries and bytes, before and after.

    Attributes:
        operator: Its operator, as it is called now.
        state: The state.
        entries: Before and after.
        state_bytes: Before and after.
    """

    operator: str
    state: str
    entries: tuple[int, int]
    state_bytes: tuple[int, int]


@dataclass(frozen=True)
class EditResult:
    """The new snapshot, and the states whose content it does not share with the old one."""

    record: SnapshotRecord
    changes: list[StateChange]


def edit_snapshot(
    lake: Lake,
    job: str,
    parent: str,
    snapshot_id: str,
    edit: SnapshotEdit,
    *,
    staging: Staging | None = None,
    note: str = "",
    engine: Engine | str = "auto",
    progress: Progress | None = None,
) -> EditResult:
    """Register an edited snapshot: merges first, then what is dropped, purged, and renamed.

    Args:
        lake: The lake.
        job: The job.
        parent: The snapshot to edit.
        snapshot_id: What the new one is to be called.
        edit: What changes.
        staging: Evaluates predicates; needed where there are some.
        note: Kept with it.
        engine: `auto`, `spark`, `local`, or an engine.
        progress: Told of finished files.

    Raises:
        NotFoundError: An operator or state is not there.
        ConflictError: The id is taken, two operators would have one uid, or an operator that is
            merged in is there already.
        EncodeError: A row can't be carried over; nothing was registered.
    """
    check_names(job, snapshot_id)
    record = lake.snapshot(job, parent)
    if lake.has(job, snapshot_id):
        raise ConflictError(
            f"job {job!r} has a snapshot {snapshot_id!r} already", remedy="choose another id"
        )
    recover_attempts(lake, job)
    chosen = choose_engine(engine, record.state_bytes) if isinstance(engine, str) else engine
    paths = [table.path for operator in record.operators for table in operator.tables]
    for other, one in edit.merge:
        paths += merged_tables(job, lake.snapshot(other, one))
    lake.check_tables(paths)
    near = [one for other, one in edit.merge if other == job]
    with ExitStack() as stack:
        for other, one in edit.merge:
            if other != job:  # nobody drops it while its files are copied
                stack.enter_context(Attempt(lake, other, "", [], leans_on=[one]))
        attempt = stack.enter_context(
            Attempt(lake, job, snapshot_id, paths, leans_on=[parent, *near])
        )
        work = _Edit(lake, lake.snapshot(job, parent), edit, attempt, chosen, progress)
        made = work.run(snapshot_id, staging, note)
        lake.append(made)
    return EditResult(made, work.changes())


class _Edit:
    def __init__(
        self, lake: Lake, record: SnapshotRecord, edit: SnapshotEdit, attempt: Attempt,
        engine: Engine, progress: Progress | None,
    ) -> None:  # fmt: skip
        self.lake = lake
        self.record = record
        self.edit = edit
        self.attempt = attempt
        self.engine = engine
        self.progress = progress
        self.metadata = carried_metadata(record)
        self.operators = list(record.operators)
        self.carried = list(record.carried)
        self.before: dict[tuple[str, str], tuple[int, int]] = {}
        self.labels: dict[str, str] = {}
        self.passes = 0
        self.renamed: dict[str, str] = {}
        self.written = 0

    def run(self, snapshot_id: str, staging: Staging | None, note: str) -> SnapshotRecord:
        """Everything in its order, and the record of what came of it."""
        self._merge()
        self.before = _sizes(self.operators)
        self.labels = {one.operator_id: one.label for one in self.operators}
        self._leave_out_operators()
        self._leave_out_states()
        self._purge(staging)
        self._rename()
        made = self.record.followed_by(snapshot_id, "edit", self.operators, self.written, note)
        return replace(made, metadata=write_metadata(self.metadata), carried=self.carried)

    def changes(self) -> list[StateChange]:
        """The states that are not as they were, the dropped ones too."""
        after = _sizes(self.operators)
        labels = {one.operator_id: one.label for one in self.operators}
        found = []
        for (operator_id, state), held in self.before.items():
            renamed = self.renamed.get(operator_id, operator_id)
            now = after.get((renamed, state), (0, 0))
            if now != held:
                label = labels.get(renamed, self.labels[operator_id])
                found.append(StateChange(label, state, (held[0], now[0]), (held[1], now[1])))
        return found

    def _merge(self) -> None:
        for job, snapshot_id in self.edit.merge:
            other = self.lake.snapshot(job, snapshot_id)
            theirs = carried_metadata(other).operators
            self.metadata.operators = union_of_operators(
                (self.metadata.operators, {one.operator_id for one in self.operators}),
                (theirs, {one.operator_id for one in other.operators}),
            )
            operators, written = merge_operators(
                self.lake, self.record.job, other, self.attempt.token
            )
            self.written += written
            self.operators += operators
            known = {one.blob for one in self.carried}
            self.carried += [one for one in other.carried if one.blob not in known]

    def _leave_out_operators(self) -> None:
        going = {self._id(one) for one in self.edit.drop_operators}
        if self.edit.keep_operators:
            kept = {self._id(one) for one in self.edit.keep_operators}
            going |= {one.operator_id for one in self.metadata.operators} - kept
        self.operators = [one for one in self.operators if one.operator_id not in going]
        self.metadata.operators = [
            one for one in self.metadata.operators if one.operator_id not in going
        ]

    def _leave_out_states(self) -> None:
        for wanted in self.edit.drop_states:
            operator, state = self._find(wanted)
            left = without_state(operator, state)
            for table in left.tables:
                held = {one.name for one in operator.states if one.table == table.path}
                if held - {one.name for one in left.states}:  # other timers in the same table
                    left = self._purged(left, table.path, Purge(), None)
            self._replace(left)

    def _purge(self, staging: Staging | None) -> None:
        at = self.edit.at or self.record.taken_at
        purges = {name: Purge(predicate=text) for name, text in self.edit.purge.items()}
        for name, lived in self.edit.expire.items():
            limit = int((at - lived).timestamp() * 1000)
            purges[name] = replace(purges.get(name, Purge()), expired_until=limit)
        for wanted, purge in purges.items():
            operator, state = self._find(wanted)
            for path in tables_of(operator, state):
                operator = self._purged(operator, path, purge, staging)
            self._replace(operator)

    def _purged(
        self, operator: OperatorRecord, path: str, purge: Purge, staging: Staging | None
    ) -> OperatorRecord:
        self.passes += 1
        made, written = purge_table(
            self.lake, operator, path, purge, staging, (self.attempt.token, self.passes),
            self.engine, self.progress,
        )  # fmt: skip
        self.written += written
        return made

    def _replace(self, made: OperatorRecord) -> None:
        self.operators = [
            made if one.operator_id == made.operator_id else one for one in self.operators
        ]

    def _rename(self) -> None:
        for old, new in self.edit.rename.items():
            operator_id, renamed = self._id(old), operator_id_of_uid(new)
            self.renamed[operator_id] = renamed
            if any(one.operator_id == renamed for one in self.metadata.operators):
                raise ConflictError(
                    f"there is an operator with uid {new!r}", remedy="choose another uid"
                )
            self.metadata.operators = [
                replace(one, operator_id=renamed, uid=new)
                if one.operator_id == operator_id
                else one
                for one in self.metadata.operators
            ]
            self.operators = [
                replace(one, operator_id=renamed, uid=new)
                if one.operator_id == operator_id
                else one
                for one in self.operators
            ]

    def _id(self, wanted: str) -> str:
        """The id of an operator, with state or without."""
        labels = {one.operator_id: one.label for one in self.operators}
        for one in self.metadata.operators:
            if wanted in (one.uid, one.operator_id, labels.get(one.operator_id)):
                return one.operator_id
        known = [
            labels.get(one.operator_id) or one.uid or one.operator_id
            for one in self.metadata.operators
        ]
        raise NotFoundError(
            f"snapshot {self.record.snapshot_id} has no operator {wanted!r}",
            remedy=f"it has: {', '.join(known) or 'none'}",
        )

    def _find(self, wanted: str) -> tuple[OperatorRecord, str]:
        """The operator and the state of `operator/state`."""
        for operator in self.operators:
            for label in (operator.uid, operator.operator_id):
                state = wanted.removeprefix(f"{label}/")
                if label and state != wanted and state in state_names(operator):
                    return operator, state
        known = [f"{one.label}/{name}" for one in self.operators for name in state_names(one)]
        raise NotFoundError(
            f"snapshot {self.record.snapshot_id} has no state {wanted!r}",
            remedy=f"it has: {', '.join(known) or 'none'}",
        )


def state_names(operator: OperatorRecord) -> list[str]:
    """What its states go by; `timers` stands for all its timers."""
    names = [state.name for state in operator.states]
    names += [state.name for state in operator.operator_states]
    return [*names, TIMERS] if any(one.kind == TIMERS for one in operator.states) else names


def tables_of(operator: OperatorRecord, state: str) -> list[str]:
    """The tables of a state."""
    keyed = [
        one.table
        for one in operator.states
        if one.name == state or (state == TIMERS and one.kind == TIMERS)
    ]
    others = [one.table for one in operator.operator_states if one.name == state]
    return list(dict.fromkeys(keyed or others))


def without_state(operator: OperatorRecord, state: str) -> OperatorRecord:
    """The operator without a state, and without tables that no other state has."""
    keyed = [
        one
        for one in operator.states
        if one.name != state and not (state == TIMERS and one.kind == TIMERS)
    ]
    others = operator.operator_states
    if len(keyed) == len(operator.states):
        others = [one for one in others if one.name != state]
    paths = {one.table for one in keyed} | {one.table for one in others}
    tables = [one for one in operator.tables if one.path in paths]
    return replace(operator, states=keyed, operator_states=others, tables=tables)


def _sizes(operators: Sequence[OperatorRecord]) -> dict[tuple[str, str], tuple[int, int]]:
    """Entries and bytes, by operator id and state."""
    keyed = {
        (one.operator_id, state.name): (state.entries, state.state_bytes)
        for one in operators
        for state in one.states
    }
    others = {
        (one.operator_id, state.name): (state.elements, state.state_bytes)
        for one in operators
        for state in one.operator_states
    }
    return others | keyed
