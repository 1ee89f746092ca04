"""Check whether a declared job would restore from a snapshot, without losing state.

`legality` checks a job against the rules alone; this module checks it against the states of a
savepoint or of the lake. It is a fault if Flink refuses, or accepts and loses state, such as a
state that begins empty because its content is of another form. An accepted surprise is a warning.

Source: `DefaultOperatorStateBackend` (modes, compatibility), `StateAssignmentOperation`
(parallelism, missing operators); keyed state as in `formats.layout.state_compatibility`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from statelake.state_core.formats.layout.meta_info import (
    BackendStateType,
    StateMetaInfo,
)
from statelake.state_core.formats.layout.state_compatibility import OperatorSchema, check_operators
from statelake.state_core.formats.writing.new_states import NewKeyedState
from statelake.state_core.model.key_groups import operator_id_of_uid
from statelake.state_core.printable import bytes_text
from statelake.state_core.runtime.declarations.findings import Finding, Severity
from statelake.state_core.runtime.declarations.jobs import (
    JobDeclaration,
    OperatorDeclaration,
    StreamKind,
)
from statelake.state_core.runtime.declarations.states import (
    StateDeclaration,
)
from statelake.state_core.runtime.legality.stored_states import HeldOperator, StoredState
from statelake.state_core.serializers.framework.compatibility import Compatibility, Verdict
from statelake.state_core.serializers.type_spec import parse_type

UNION_LIMIT = 256 << 20
VOID_NAMESPACE = "VoidNamespace"
_LISTS = ("SPLIT list", "UNION list")
_LOST = "Flink looks for it elsewhere, and the state begins empty"


def check_restore(
    job: JobDeclaration,
    stored: Iterable[HeldOperator],
    *,
    allow_missing: bool = False,
    union_limit: int = UNION_LIMIT,
) -> list[Finding]:
    """Check a declared job against the snapshot that it is to restore.

    Args:
        job: The declaration.
        stored: The operators of the snapshot.
        allow_missing: Whether an operator may be missing (`--allowNonRestoredState`).
        union_limit: The size in bytes, over all subtasks, above which a UNION list gets a warning.
    """
    operators = {operator.operator_id: operator for operator in stored}
    findings: list[Finding] = []
    for operator in job.operators:
        before = operators.pop(operator_id_of_uid(operator.uid), None)
        if before is not None:
            findings += _Check(operator, before, union_limit).findings()
        elif operator.declared:
            problem = "the snapshot has no state of it, and it begins with none"
            remedy = "if it should, look for another uid"
            severity = Severity.WARNING
            findings.append(
                Finding(severity, "new_operator", operator.uid, problem, remedy, operator.function)
            )
    return findings + [
        _gone(operator, allow_missing) for operator in operators.values() if operator.states
    ]


def _gone(operator: HeldOperator, allowed: bool) -> Finding:
    names = ", ".join(repr(state.meta.name) for state in operator.states)
    return Finding(
        Severity.WARNING if allowed else Severity.FAULT,
        "missing_operator",
        operator.label,
        f"the job has no such operator, and the snapshot has its states {names}",
        "declare it, or restore with --allowNonRestoredState, which drops them",
    )


@dataclass(frozen=True)
class _Check:
    """An operator, both declared and in the snapshot."""

    operator: OperatorDeclaration
    stored: HeldOperator
    union_limit: int

    def findings(self) -> Iterator[Finding]:
        """Yield all findings, those about the whole operator first."""
        yield from self.parallelism()
        yield from self.key()
        declared = {declaration.name: declaration for declaration, _ in self.operator.declared}
        by_name: dict[str, list[StoredState]] = {}
        for state in self.stored.states:
            by_name.setdefault(state.meta.name, []).append(state)
        for name, declaration in declared.items():
            yield from self.state(declaration, by_name.get(name, []))
        for name, several in by_name.items():
            if name not in declared:
                for state in several:
                    yield from self.undeclared(name, state)

    def parallelism(self) -> Iterator[Finding]:
        """Check the max parallelism, which never changes."""
        count, groups = self.operator.parallelism, self.stored.max_parallelism
        if count is not None and count > groups:
            problem = f"a parallelism of {count}, and the snapshot has {groups} key groups"
            yield self.fault("parallelism", problem, f"make it {groups} at most, or rehash")
        declared = self.operator.max_parallelism
        if declared is not None and declared != groups:
            problem = f"a maximum parallelism of {declared}, and the snapshot's is {groups}"
            yield self.fault("max_parallelism", problem, f"leave it at {groups}, or rehash")

    def key(self) -> Iterator[Finding]:
        """Check the key serializer: entries are found by the bytes of their key."""
        before, after = self.stored.key, self.operator.key_type
        if before is None or StreamKind.KEYED not in self.operator.inputs:
            return
        if after is None:
            problem = f"the key's type is not declared, and not compared with {before.type_name}"
            yield self.warning("key", problem, "declare the operator's key")
            return
        (result,) = check_operators(
            [OperatorSchema("", before)], [OperatorSchema("", after.snapshot())]
        )
        yield from self.judged("key", result.result, "write the state anew, by its new key")

    def state(self, declared: StateDeclaration, stored: list[StoredState]) -> Iterator[Finding]:
        """Check one declared state against those of its name."""
        key, new = self.stored.key or parse_type("Void"), declared.new_state()
        meta = new.meta_info(key) if isinstance(new, NewKeyedState) else new.meta_info()
        form = meta.form
        same = [state for state in stored if state.form in (form, "keyed unknown")]
        same = [state for state in same if state.keyed == form.startswith("keyed")]
        if same:
            yield from self.same(declared, meta, same[0])
        elif stored:
            yield self.changed(declared, stored[0], form)
        else:
            problem = f"the snapshot has no {form} state of that name, and it begins empty"
            yield self.warning(
                "new_state", problem, "if it should not, look for its name", declared
            )

    def changed(self, declared: StateDeclaration, stored: StoredState, form: str) -> Finding:
        """Return the fault of another kind, another redistribution, or another form of state."""
        problem = f"{stored.form} state in the snapshot, declared as {form} state"
        remedy = f"declare it as {stored.form} state, or give the new one another name"
        if stored.keyed and form.startswith("keyed"):
            return self.fault("kind", f"{problem}: a state keeps its kind", remedy, declared)
        if stored.form in _LISTS and form in _LISTS:
            how = stored.form.removesuffix(" list")
            remedy = f"redistribute_by {how}, or give the new one another name"
            return self.fault("redistribution", f"{problem}: Flink refuses", remedy, declared)
        return self.fault("redistribution", f"{problem}: {_LOST}", remedy, declared)

    def same(
        self, declared: StateDeclaration, meta: StateMetaInfo, stored: StoredState
    ) -> Iterator[Finding]:
        """Check the types of a state, and the rules of its kind."""
        remedy = "declare the type that it has, or migrate the state first"
        yield from self.judged("type", self.types(meta, stored), remedy, declared)
        if stored.form == "UNION list":
            yield from self.union(declared, stored)
        if stored.disagreeing:
            who = ", ".join(map(str, stored.disagreeing))
            problem = f"its copies differ, those of the subtasks {who} from the first"
            remedy = "let one subtask's copy count: the broadcast side wrote unlike things"
            yield self.warning("identical", problem, remedy, declared)

    def types(self, meta: StateMetaInfo, stored: StoredState) -> Compatibility:
        """Return the compatibility of the serializers."""
        pair = stored.meta, meta
        if stored.keyed:
            key = self.stored.key or parse_type("Void")
            old, new = (OperatorSchema("", key, {meta.name: each}) for each in pair)
        else:
            old, new = (
                OperatorSchema("", None, operator_states={meta.name: each}) for each in pair
            )
        (*_, result) = check_operators([old], [new])
        return result.result

    def union(self, declared: StateDeclaration, stored: StoredState) -> Iterator[Finding]:
        """Check the size of a UNION list, which every subtask gets in full."""
        count = self.operator.parallelism or self.stored.parallelism
        total = stored.state_bytes * count
        if count > 1 and total >= self.union_limit:
            problem = (
                f"{stored.elements:,} elements of {bytes_text(stored.state_bytes)} go to each of"
                f" {count} subtasks: {stored.elements * count:,} elements of {bytes_text(total)} on"
                " restore"
            )
            remedy = "keep what a subtask needs and drop the rest, or use SPLIT"
            yield self.warning("union_memory", problem, remedy, declared)

    def undeclared(self, name: str, stored: StoredState) -> Iterator[Finding]:
        """Check a state that is not declared; timers never are."""
        if stored.meta.kind is BackendStateType.PRIORITY_QUEUE:
            return
        keyed = {StreamKind.KEYED, StreamKind.GLOBAL} & set(self.operator.inputs)
        if stored.keyed and not keyed:
            problem = f"{stored.form} state over {self.operator.streams}: nothing restores it"
            fate = "the next savepoint is without it"
        else:
            problem = f"{stored.form} state that is not declared"
            fate = "it is restored and kept, and nobody reads it"
        yield Finding(
            Severity.WARNING,
            "extra_state",
            self.operator.uid,
            f"{problem}; {fate}",
            "declare it, or drop it from the snapshot",
            self.operator.function,
            name,
        )

    def judged(
        self, rule: str, result: Compatibility, remedy: str, state: StateDeclaration | None = None
    ) -> Iterator[Finding]:
        """Yield a finding for a compatibility of serializers."""
        reasons = "; ".join(map(str, result.reasons))
        if result.verdict is Verdict.INCOMPATIBLE:
            yield self.fault(rule, reasons, remedy, state)
        elif result.verdict is Verdict.UNKNOWN:
            yield self.warning(rule, f"not known from the snapshot: {reasons}", "", state)
        elif result.verdict is Verdict.COMPATIBLE_AFTER_MIGRATION:
            yield self.warning(rule, f"migrated on restore: {reasons}", "", state)

    def fault(
        self, rule: str, problem: str, remedy: str, state: StateDeclaration | None = None
    ) -> Finding:
        """Return a finding that stops the restore, or loses state."""
        return Finding.of(Severity.FAULT, rule, self.operator, problem, remedy, state)

    def warning(
        self, rule: str, problem: str, remedy: str, state: StateDeclaration | None = None
    ) -> Finding:
        """Return a finding that deserves a look."""
        return Finding.of(Severity.WARNING, rule, self.operator, problem, remedy, state)
