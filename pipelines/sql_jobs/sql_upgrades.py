"""The upgrade of a Flink SQL job whose query changed: the verdict, and the new snapshot.

The verdict says of each operator and column what the new job finds, beside what Flink would do by
itself. Nothing is made of what is lost, unknown or ambiguous, unless each is accepted by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from statelake.pipelines.engine import Engine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.change.sql_operators import Identity, with_numbers_of
from statelake.pipelines.lake.change.sql_upgrading import (
    OLD,
    NoUids,
    OperatorUpgrade,
    SqlUpgradePlan,
    plan_sql_upgrade,
    upgrade_sql,
)
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.pipelines.requests.changes import CheckSql, UpgradeSql
from statelake.pipelines.sql_jobs.sql_scripts import SqlPlans
from statelake.state_core.errors import (
    ConflictError,
    EncodeError,
    IncompatibleError,
    NotFoundError,
)
from statelake.state_core.formats.reader import open_snapshot
from statelake.state_core.plans.handling import Handling, flink_handling
from statelake.state_core.plans.matches import Fate
from statelake.state_core.plans.matching import match_plans
from statelake.state_core.plans.plan import read_plan
from statelake.state_core.plans.states import NodeStates
from statelake.state_core.printable import Printed, Table

NOT_KNOWN = Handling("")
OTHER_IDS = Handling("refuses: cannot map it; with --allowNonRestoredState begins empty")
PARTLY, FILTER, LOST = "partly", "filter", "lost="
MOST_TITLE = 100


@dataclass(frozen=True)
class ColumnVerdict:
    """The upgrade of a column: its name, its fate, and the reason if it is not kept."""

    name: str
    fate: str
    why: str = ""


@dataclass(frozen=True)
class OperatorVerdict:
    """The upgrade of the state of an operator.

    Attributes:
        operator: The operator of the new job, or of the old one if none goes on from it.
        query: Flink's description of it.
        goes_on_from: The old operator; empty if no operator goes on from it, or it is new.
        fate: The worst fate of its state and columns.
        entries: The entries that the old operator has.
        why: Reasons, each a sentence.
        columns: Its columns.
        left_out: What the old operator held and the new one does not.
        flink: What Flink does by itself; empty if that is not known.
        flink_wrong: Whether Flink by itself would run on, with wrong results.
    """

    operator: str
    query: str
    goes_on_from: str
    fate: str
    entries: int
    why: list[str] = field(default_factory=list)
    columns: list[ColumnVerdict] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    flink: str = ""
    flink_wrong: bool = False

    @property
    def reasons(self) -> list[str]:
        """All reasons, also those of its columns."""
        return [*self.why, *(f"`{c.name}` {c.fate}: {c.why}" for c in self.columns if c.why)]


@dataclass(frozen=True)
class SqlUpgrade(Printed):
    """The verdict on the upgrade of a snapshot, and what was made.

    Attributes:
        snapshot: The snapshot.
        made: The snapshot or savepoint from which the new job goes on; empty if none was made.
        operators: The verdict on each operator with state.
        refused: What stands in the way, with the word that accepts it; empty if nothing does.
        dry_run: Whether this is only a verdict.
        before: Whether it was made before, by the same upgrade.
    """

    JSON = ("snapshot", "made", "operators", "refused")

    snapshot: str
    made: str
    operators: list[OperatorVerdict]
    refused: list[str] = field(default_factory=list)
    dry_run: bool = False
    before: bool = False

    @property
    def keeps(self) -> bool:
        """Return whether nothing is lost, unknown, or counted by another filter."""
        bad = (Fate.FILTER.value, Fate.UNKNOWN.value, Fate.LOST.value)
        return all(each.fate not in bad for each in self.operators)

    @property
    def right(self) -> bool:
        """Return whether nothing is lost, and Flink by itself gives no wrong results in silence."""
        return self.keeps and not any(each.flink_wrong for each in self.operators)

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: lines and tables."""
        now = f", now {self.made}" if self.made else ""
        now += " (upgraded before)" if self.before else ""
        yield self.table(f"{self.snapshot}{now}", ">entries:,")
        if not any(each.reasons for each in self.operators):
            yield "the new job goes on as if it had run from the beginning"
        yield from self.details()

    def table(self, title: str, *more: str) -> Table:
        """Return the operators as a table, with more columns behind those of their state."""
        columns = ("<operator", "<goes on from:-", "<state=fate", *more, "<Flink by itself=flink")
        return Table.of(title, columns, self.operators)

    def details(self) -> Iterator[str]:
        """Yield the reasons, and what stands in the way."""
        for each in self.operators:
            left_out = ", ".join(each.left_out)
            details = [*each.reasons, *([f"left out: {left_out}"] if left_out else [])]
            if details:
                yield f"{each.operator} {each.query}"
                yield from (f"  {detail}" for detail in details)
        for refusal in self.refused:
            yield f"to be accepted: {refusal}" if self.dry_run else f"refused: {refusal}"
        if self.refused and not self.dry_run:
            yield "nothing was made"


def read_pairs(given: str | Sequence[str]) -> dict[int, int]:
    """Return the pairs of nodes that a user gives, `OLD=NEW` each.

    Raises:
        EncodeError: One has another form.
    """
    pairs: dict[int, int] = {}
    for text in [given] if isinstance(given, str) else given:
        old, _, new = text.partition("=")
        if not old.strip().isdecimal() or not new.strip().isdecimal():
            raise EncodeError(
                f"--map {text}", remedy="write the numbers of two nodes, OLD=NEW, such as 5=7"
            )
        if pairs.setdefault(int(old), int(new)) != int(new):
            raise EncodeError(
                f"--map {text}, and {int(old)}={pairs[int(old)]}",
                remedy="an operator's state goes on in one operator: say one pair",
            )
    return pairs


@dataclass(frozen=True)
class SqlChange:
    """The change of a job's SQL, of which a rescale is given the plans.

    Attributes:
        plans: The plans of the job that runs, and of the one that is to go on.
        pairs: Pairs of nodes that the user gives.
        accept: As for `refusals_of`.
        like: A savepoint of the new job, whose types are taken; empty without one.
        no_uids: Whether both jobs run without a compiled plan; `old` if the old one alone does.
        uids: Uids of operators of which a savepoint of Flink 1 has hashes.
    """

    plans: SqlPlans
    pairs: Mapping[int, int] = field(default_factory=dict)
    accept: tuple[str, ...] = ()
    like: str = ""
    no_uids: NoUids = False
    uids: tuple[str, ...] = ()

    def verdict(self) -> SqlUpgrade:
        """Return what becomes of each operator by the plans alone, before there is a savepoint.

        Raises:
            DeclarationError: A plan can't be understood.
            StateError: A script can't be compiled.
        """
        old, new = map(read_plan, self.plans.read())
        match = match_plans(old, new, self.pairs)
        # each old operator may have state; its id is not known, nor that of the new one
        operators = [
            OperatorUpgrade(
                each, {each.old.node.label: Identity("")} if each.old is not None else {},
                fate=each.fate, reasons=each.why,
            )
            for each in match.operators
        ]  # fmt: skip
        plan = SqlUpgradePlan(match, tuple(operators))
        verdicts = verdicts_of(plan, no_uids=self.no_uids)
        return SqlUpgrade("", "", verdicts, refusals_of(plan, self.accept), dry_run=True)

    def upgrade(
        self, lake: Catalog, job: str, snapshot_id: str, *, engine: Engine | str = "auto"
    ) -> SqlUpgrade:
        """Make the snapshot from which the new job goes on, once.

        Raises:
            IncompatibleError: Something stands in the way that the plans alone did not tell.
        """
        request = UpgradeSql(
            *self.plans.read(), map=[f"{old}={new}" for old, new in self.pairs.items()],
            like=self.like, accept=self.accept, no_uids=self.no_uids,
        )  # fmt: skip
        target = f"{snapshot_id}{request.suffix}"
        child = ChildSnapshot(lake, job, snapshot_id, target, request.note, engine=engine)
        done = upgrade_sql_job(child, request)
        refuse_unless_accepted(done)
        return done


def refuse_unless_accepted(verdict: SqlUpgrade) -> None:
    """Refuse a verdict that has something that was not accepted.

    Raises:
        IncompatibleError: There is something.
    """
    if verdict.refused:
        raise IncompatibleError(
            f"the new SQL does not keep all state: {'; '.join(verdict.refused)}",
            remedy="see `check sql`; accept each by the words above, or say which nodes are the"
            " same, --map OLD=NEW",
        )


def judge_sql(record: SnapshotRecord, request: CheckSql) -> SqlUpgradePlan:
    """Return what becomes of each operator of a snapshot.

    Raises:
        DeclarationError: A plan can't be understood.
        IncompatibleError: The snapshot is not of the old plan.
    """
    pairs, old = read_pairs(request.map), read_plan(request.old_plan)
    if not request.no_uids:
        old = with_numbers_of(record, old)
    match = match_plans(old, read_plan(request.new_plan), pairs)
    known = open_snapshot(request.like) if request.like else None
    return plan_sql_upgrade(record, match, known, no_uids=request.no_uids)


def verdicts_of(plan: SqlUpgradePlan, *, no_uids: NoUids = False) -> list[OperatorVerdict]:
    """Return the verdict on each operator, as people read it; without those that have no state."""
    # without uids Flink goes by the topology, of which the nodes' numbers say nothing
    if no_uids:
        handlings = [OTHER_IDS if no_uids == OLD else NOT_KNOWN] * len(plan.operators)
    else:
        handlings = flink_handling(plan.plans)
    verdicts = []
    for each, flink in zip(plan.operators, handlings, strict=True):
        match = each.match
        if match.old is None and match.new is not None and not _has_state(match.new):
            continue
        if (
            not each.entries
            and (each.worst is Fate.KEEPS or not each.operators)
            and not _misses(each)
        ):
            continue
        node = match.node
        verdicts.append(
            OperatorVerdict(
                node.label, _short(node.title),
                match.old.node.label if match.old is not None and match.new is not None else "",
                each.worst.value, each.entries, list(each.reasons),
                [
                    ColumnVerdict(column.column.name, column.fate.value, column.why)
                    for column in match.column_matches
                    if not column.column.is_view
                ],
                sorted({column.name for state in match.states for column in state.left_out}),
                flink.text,
                flink_wrong=flink.wrong,
            )
        )  # fmt: skip
    return verdicts


def _misses(upgrade: OperatorUpgrade) -> bool:
    """Return whether an operator is new, below one that goes on."""
    return upgrade.match.old is None and bool(upgrade.reasons)


def _has_state(states: NodeStates) -> bool:
    return bool(states.states) or states.identity


def _short(text: str) -> str:
    return text if len(text) <= MOST_TITLE else f"{text[:MOST_TITLE]}..."


def refusals_of(plan: SqlUpgradePlan, accept: Sequence[str]) -> list[str]:
    """Return what stands in the way of an upgrade, and was not accepted.

    Args:
        plan: The plan.
        accept: `partly` for what starts now or is null in old rows, `filter`, and `lost=OPERATOR`
            for each operator whose state may be lost.

    Raises:
        EncodeError: A word is not known.
        NotFoundError: There is no such operator.
    """
    for word in accept:
        if word not in (PARTLY, FILTER) and not word.startswith(LOST):
            raise EncodeError(
                f"--accept {word}", remedy=f"accept {PARTLY}, {FILTER} or lost=OPERATOR"
            )
    lost = _losses(accept)
    labels = {label for each in plan.operators for label in each.match.labels}
    for name in lost - labels:
        raise NotFoundError(
            f"no operator {name!r}", remedy=f"there are: {', '.join(sorted(labels))}"
        )
    refused = []
    for each in plan.operators:
        if each.match.labels & lost or not (each.entries or each.operators or _misses(each)):
            continue
        fates = {each.fate, *(column.fate for column in each.match.column_matches)}
        for fate in sorted(fates, key=lambda fate: -fate.rank):
            accepted: str | None = {
                Fate.STARTS_NOW: PARTLY, Fate.NULL: PARTLY, Fate.FILTER: FILTER,
                Fate.LOST: LOST + each.match.label, Fate.UNKNOWN: LOST + each.match.label,
            }.get(fate)  # fmt: skip
            if accepted is not None and accepted not in accept:
                refused.append(f"{each.match.label}: {fate.value}; --accept {accepted}")
    return refused


def _losses(accept: Sequence[str]) -> set[str]:
    """Return the operators whose state may be lost."""
    return {word.removeprefix(LOST) for word in accept if word.startswith(LOST)}


def left_out(plan: SqlUpgradePlan, accept: Sequence[str]) -> SqlUpgradePlan:
    """Return the plan without the state of operators whose loss was accepted."""
    lost = _losses(accept)
    operators = [
        replace(each, operators={}, states=(), folds={})
        if each.match.labels & lost or each.fate is Fate.LOST
        else each
        for each in plan.operators
    ]
    return SqlUpgradePlan(plan.plans, tuple(operators))


def upgrade_sql_job(child: ChildSnapshot, request: UpgradeSql) -> SqlUpgrade:
    """Make a snapshot from which the job of a changed query goes on.

    Raises:
        DeclarationError: A plan can't be understood.
        IncompatibleError: The snapshot is not of the old plan.
        ConflictError: There is a snapshot of the new id that something else made.
    """
    parent, name = child.parent, child.snapshot_id
    plan = judge_sql(child.parent_record, request)
    verdicts = verdicts_of(plan, no_uids=request.no_uids)
    refused = refusals_of(plan, request.accept)
    if request.dry_run or refused:
        return SqlUpgrade(parent, "", verdicts, refused, request.dry_run)
    going_on = left_out(plan, request.accept)

    def before() -> SqlUpgrade:
        made = child.lake.snapshot(child.job, name)
        if made.parent != parent or made.applied != going_on.digest():
            raise child.taken_error("this upgrade")
        return SqlUpgrade(parent, name, verdicts, before=True)

    if child.exists:
        return before()
    try:
        upgrade_sql(child, going_on, inexact=request.inexact)
    except ConflictError:
        if not child.exists:
            raise
        return before()  # another has made it meanwhile
    return SqlUpgrade(parent, name, verdicts)
