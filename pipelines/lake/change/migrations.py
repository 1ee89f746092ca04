"""One snapshot's migration and its outcome: what the command and Dagster's backfill both run.

A run over many is resumed by running it again: what was migrated before is left alone, and
an error is the outcome of its snapshot and of no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from statelake.pipelines.engine import Engine, Progress
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.change.changes import (
    Change,
    ValueChange,
    by_expressions,
    digest_of,
    is_needed,
    read_changes,
    read_ttl,
    resolve_changes,
)
from statelake.pipelines.lake.change.field_words import apply_words
from statelake.pipelines.lake.change.kryo_upgrading import (
    LATER,
    NewTypes,
    Upgraded,
    new_types,
    plan_kryo_upgrade,
    upgrade_kryo,
)
from statelake.pipelines.lake.change.migrating import (
    Example,
    example_of,
    migrate_snapshot,
    refuse_disagreeing,
    value_type,
)
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.tables.records import AnyState, SnapshotRecord
from statelake.pipelines.requests.changes import Migrate, Upgrade
from statelake.pipelines.shown import json_text, plain
from statelake.pipelines.times import Times
from statelake.state_core.errors import ConflictError, IncompatibleError, StateError
from statelake.state_core.formats.keyed.rocksdb.rocksdb_native import RocksDBKeyedFile
from statelake.state_core.formats.keyed.unified_file import UnifiedKeyedFile
from statelake.state_core.model.snapshot import Snapshot
from statelake.state_core.printable import Printed, Table
from statelake.state_core.serializers.framework.compatibility import Compatibility, worst_of
from statelake.state_core.serializers.framework.opaque_values import undecoded
from statelake.state_core.serializers.type_differences import type_differences
from statelake.state_core.serializers.type_spec import type_text

DRY_RUN = "a dry run: nothing was changed"


@dataclass(frozen=True)
class StatePlan:
    """The effect of a migration on one state.

    Attributes:
        state: The state, `operator/state`.
        entries: The number of its values, all of which are written anew; 0 if it stays as it is.
        words: The differences of the types, and the expressions.
        example: A value before and after; None if there is no value, or it stays as it is.
    """

    state: str
    entries: int
    words: list[str]
    example: Example | None = None


@dataclass(frozen=True)
class Outcome:
    """The result of one snapshot.

    Attributes:
        snapshot: The snapshot that was to be migrated.
        made: The snapshot with the new type; itself if nothing had to be done.
        outcome: `migrated`, `migrated before`, `compatible as it is`, `failed`; of a preview, the
            verdict, or `compatible by expression`.
        entries: How many values were migrated.
        why: The reasons of the verdict, or the error.
        times: Where time went, of what was migrated.
        plan: Of a preview, the plan of each state.
    """

    snapshot: str
    made: str
    outcome: str
    entries: int = 0
    why: str = ""
    times: Times | None = None
    plan: Sequence[StatePlan] = ()

    @property
    def failed(self) -> bool:
        """Return whether the snapshot was not migrated, or could not be."""
        return self.outcome in ("failed", "incompatible", "unknown")


@dataclass(frozen=True)
class Migrations(Printed):
    """The results of several snapshots.

    Attributes:
        states: The migrated states, each `operator/state`.
        outcomes: The result of each snapshot.
        dry_run: Whether nothing was changed.
    """

    JSON = "outcomes"

    states: list[str]
    outcomes: list[Outcome]
    dry_run: bool

    @property
    def failed(self) -> bool:
        """Return whether one of them failed."""
        return any(outcome.failed for outcome in self.outcomes)

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: lines and tables."""
        columns = ("<snapshot", "<made", "<outcome", ">values=entries:,", "<why")
        title = f"{', '.join(self.states)} of {len(self.outcomes)} snapshots"
        yield Table.of(title, columns, self.outcomes)
        for outcome in self.outcomes:
            for state in outcome.plan:
                yield f"{outcome.snapshot}, {state.state}: {state.entries:,} values"
                yield from (f"  {words}" for words in state.words)
                if state.example is not None:
                    yield f"  such as {json_text(plain(state.example.before))}"
                    yield f"       now {json_text(plain(state.example.after))}"
        if self.dry_run:
            yield DRY_RUN


def not_migrated(lake: Catalog, job: str, suffix: str) -> list[str]:
    """Return the snapshots of a job that are not the results of migrations with a suffix.

    Those of invalid rows are among them, so that their error is reported.

    Raises:
        NotFoundError: There is no such job.
        DamagedLakeError: Rows can't be read, and nothing says whose they are.
    """
    records, bad = lake.listed(job)
    if not (records or bad):
        lake.snapshot(job, "")  # says which jobs there are
    names = [
        record.snapshot_id
        for record in records
        if record.origin != "migrate" or record.snapshot_id != f"{record.parent}{suffix}"
    ]
    for row in bad:
        if not row.snapshot_id:
            raise row.error
        names.append(row.snapshot_id)
    return names


def migrate_several(
    lake: Catalog,
    job: str,
    snapshots: Sequence[str],
    request: Migrate,
    engine: Engine | str = "auto",
    progress: Progress | None = None,
) -> Migrations:
    """Migrate the named snapshots, or all that are not migrated yet.

    Words apply to the types that each snapshot has. An error ends the migration of named snapshots;
    of all, it is the result of its snapshot.
    """
    outcomes = []
    states: dict[str, None] = {}
    changes: list[Change] = [
        *read_changes(request.to, request.state), *read_ttl(request.ttl, request.last_access)
    ]  # fmt: skip
    for name in dict.fromkeys(snapshots) or not_migrated(lake, job, request.suffix):
        try:
            own = (
                apply_words(request, lake.snapshot(job, name), changes)
                if request.has_words
                else changes
            )
            states |= {f"{change.operator}/{change.state}": None for change in own}
            outcome = (
                preview_migration(lake, job, name, *own, inexact=request.inexact)
                if request.dry_run
                else migrate_one(
                    ChildSnapshot(
                        lake, job, name, f"{name}{request.suffix}", request.note, engine=engine,
                        progress=progress,
                    ),
                    *own, inexact=request.inexact,
                )
            )  # fmt: skip
        except StateError as error:
            if snapshots or request.dry_run:
                raise
            if not lake.has(job, name):  # another has dropped it meanwhile
                continue
            outcome = Outcome(name, "", "failed", 0, str(error))
        outcomes.append(outcome)
    return Migrations(list(states), outcomes, request.dry_run)


def preview_migration(
    lake: Catalog, job: str, snapshot_id: str, *changes: Change, inexact: bool = False
) -> Outcome:
    """Return the outcome that a migration would have; of several states the worst."""
    record = lake.snapshot(job, snapshot_id)
    resolved = resolve_changes(record, changes)
    entries = sum({state.table: state.entries for _, _, state, _ in resolved}.values())
    for change, operator, state, result in resolved:
        if is_needed(change, result):
            try:
                refuse_disagreeing(operator, state)
            except IncompatibleError as error:
                return Outcome(snapshot_id, "", "incompatible", entries, str(error))
    by_flink = worst_of(
        result for change, _, _, result in resolved if result.usable or not change.expressions
    )
    worst = worst_of(by_expressions(change, result) for change, _, _, result in resolved)
    settled = worst.usable or not by_flink.usable
    verdict = by_flink.verdict.text if settled else "compatible by expression"
    why = "; ".join(map(str, worst.reasons))
    works = verdict not in ("incompatible", "unknown")
    plan = [
        StatePlan(
            f"{operator.label}/{state.name}",
            state.entries if needed else 0,
            _words_of(change, state, result),
            example_of(lake, record, operator, state, change, inexact=inexact)
            if needed and works and isinstance(change, ValueChange)
            else None,
        )
        for change, operator, state, result in resolved
        for needed in [is_needed(change, result)]
    ]
    return Outcome(snapshot_id, "", verdict, entries, why, plan=plan)


def _words_of(change: Change, state: AnyState, result: Compatibility) -> list[str]:
    """Return what a change does, in words, as far as both types have text."""
    if not isinstance(change, ValueChange):
        return [str(reason) for reason in result.reasons]
    before, after = type_text(value_type(state.meta_info)), change.spec or type_text(change.value)
    if not before or not after:
        return [f"{name or 'value'}: {sql}" for name, sql in change.expressions.items()]
    return list(type_differences(before, after, "", change.expressions))


def migrate_one(child: ChildSnapshot, *changes: Change, inexact: bool = False) -> Outcome:
    """Migrate one snapshot, unless that was done before: all states that are named, or none.

    Raises:
        IncompatibleError: The old values can't become the new ones.
        ConflictError: There is a snapshot of the new id that something else made.
    """
    parent, name = child.parent, child.snapshot_id

    def before() -> Outcome:
        refuse_other_origin(child.lake, child.job, name, parent, changes)
        return Outcome(parent, name, "migrated before")

    if child.exists and _needed(child.parent_record, changes):
        return before()
    try:
        done = migrate_snapshot(child, *changes, inexact=inexact)
    except ConflictError:
        if not child.exists:
            raise
        return before()  # another has made it meanwhile
    if done.record.snapshot_id == parent:
        return Outcome(parent, parent, "compatible as it is")
    why = "; ".join(str(reason) for reason in done.result.reasons)
    return Outcome(parent, name, "migrated", done.entries, why, done.times)


def _needed(record: SnapshotRecord, changes: Sequence[Change]) -> bool:
    """Return whether changes apply to a snapshot."""
    resolved = resolve_changes(record, changes)
    return any(is_needed(change, result) for change, _, _, result in resolved)


def refuse_other_origin(
    lake: Catalog, job: str, made: str, parent: str, changes: Sequence[Change]
) -> None:
    """Raise unless a snapshot is what changes made of its parent.

    Snapshots of older lakes do not say what was applied: of these the type of the state tells, as
    long as there are no expressions.

    Raises:
        ConflictError: It is of another origin, or made by another change.
    """
    record = lake.snapshot(job, made)
    why = ""
    if record.origin != "migrate":
        why = f"it is {record.origin} of {record.parent}" if record.parent else "it was imported"
    elif record.parent != parent:
        why = f"it was made of {record.parent}"
    elif record.applied and record.applied != digest_of(changes):
        why = "another migration made it: of another state, or by another file"
    elif not record.applied and (
        any(change.expressions for change in changes) or _needed(record, changes)
    ):
        why = "it does not say which migration made it"
    if why:
        raise ConflictError(
            f"job {job!r} has a snapshot {made!r} already, which is not what this migration makes"
            f" of {parent!r}: {why}",
            remedy="choose another --suffix, or drop that snapshot first; name all states of one"
            " migration in one command",
        )


@dataclass(frozen=True)
class UpgradeOutcome(Printed):
    """The upgrade of a snapshot of Flink 1 to Flink 2.

    Attributes:
        snapshot: The snapshot.
        made: The snapshot, or the savepoint, that Flink 2 restores; empty if none was made.
        states: The upgrade of each state with Kryo in it; if it was done before, those alone that
            stayed as they were.
        dry_run: Whether only the plan was asked for.
        before: Whether it was done before.
    """

    JSON = ("snapshot", "made", "states")

    snapshot: str
    made: str
    states: list[Upgraded]
    dry_run: bool = False
    before: bool = False

    @property
    def complete(self) -> bool:
        """Return whether Flink 2 restores all states afterwards."""
        return all(state.left in ("", LATER) for state in self.states)

    @property
    def restorable(self) -> bool:
        """Return whether Flink 2 restores all states already."""
        return all(state.left == LATER for state in self.states)

    @property
    def table(self) -> Table:
        """The states, as people read them."""
        now = f", now {self.made}" if self.made else ""
        title = f"{self.snapshot}: {len(self.states)} states that Flink 2 can't restore{now}"
        columns = ("<state=label", "<values=outcome", ">entries:,", "<types, or why not=words")
        return Table.of(title, columns, self.states)

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: lines and tables."""
        if self.before and not self.states:
            yield f"{self.made} is there already: {self.snapshot} was upgraded before"
            return
        if self.restorable:
            copied = f"; {self.made} has the same state" if self.made else ""
            yield f"{self.snapshot}: nothing was found that Flink 2 can't restore{copied}"
            return
        yield self.table
        if self.dry_run:
            yield DRY_RUN
        elif not self.made:
            yield (
                "nothing was made, as not all of it can be upgraded: --partly leaves these states"
                " as they are"
            )


def values_as_bytes(snapshot: Callable[[], Snapshot]) -> AbstractContextManager[None]:
    """Return a context in which values of Kryo are bytes, which are imported much faster.

    It changes nothing if keys need their decoders, or if values have no other end than their own.

    Args:
        snapshot: Opens the snapshot that is imported in the context.
    """
    with undecoded():
        plain = _keys_of(snapshot())
    return undecoded() if plain == _keys_of(snapshot()) else nullcontext()


def _keys_of(snapshot: Snapshot) -> list[object]:
    """Return the types of all keys, and what says that values have no end."""
    files = [file for operator in snapshot.operators for file in operator.keyed_files]
    if not all(isinstance(file, (RocksDBKeyedFile, UnifiedKeyedFile)) for file in files):
        return [object()]
    return [
        (state.key_type, state.namespace_type, state.user_key_type)
        for operator in snapshot.operators
        for state in operator.keyed_states
    ]


def upgrade_one(child: ChildSnapshot, request: Upgrade) -> UpgradeOutcome:
    """Make a snapshot that Flink 2 restores of one that Flink 1 wrote, unless there is one.

    Raises:
        EncodeError: The declared types of the new job can't be parsed.
        ConflictError: There is a snapshot of the new id that something else made.
    """
    parent = child.parent
    new = new_types(request.to_flink, request.collection, request.like)
    if request.dry_run:
        plan = plan_kryo_upgrade(child.lake, child.parent_record, new)
        return UpgradeOutcome(parent, "", plan, dry_run=True)
    if child.exists:
        return _upgraded_before(child, new)
    try:
        record, states = upgrade_kryo(child, new=new, partly=request.partly)
    except ConflictError:
        if not child.exists:
            raise
        return _upgraded_before(child, new)  # another has made it meanwhile
    made_id = record.snapshot_id if record.snapshot_id != parent else ""
    return UpgradeOutcome(parent, made_id, states)


def _upgraded_before(child: ChildSnapshot, new: NewTypes) -> UpgradeOutcome:
    """Return the outcome of an upgrade that was done before, with the states that it left.

    Raises:
        ConflictError: Something else made the snapshot.
    """
    parent, name = child.parent, child.snapshot_id
    made = child.lake.snapshot(child.job, name)
    plan = plan_kryo_upgrade(child.lake, made, new, is_made=True)
    states = [state for state in plan if state.left != LATER]
    complete = all(state.left for state in states)
    if made.parent != parent or made.origin != "migrate" or not complete:
        raise child.taken_error("this upgrade")
    return UpgradeOutcome(parent, name, states, before=True)
