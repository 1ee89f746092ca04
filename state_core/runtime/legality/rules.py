"""The states that a function may declare and access: FLIP-433's tables as data.

`ONE_INPUT` and `TWO_INPUTS` are the only place of these rules: the checks at build (`check_job`)
and at run time (`access`, `refusal`), the messages of both, and `docs/legality.md` are derived from
them.

Source: FLIP-433, "The Legitimacy of State Declaration and Access".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, IntEnum

from statelake.state_core.errors import LegalityError
from statelake.state_core.runtime.declarations.findings import Finding, Severity
from statelake.state_core.runtime.declarations.jobs import (
    InputSide,
    JobDeclaration,
    OperatorDeclaration,
    StreamKind,
    sides_of,
)
from statelake.state_core.runtime.declarations.states import RedistributionMode, StateDeclaration


class Cell(Enum):
    """A table's value for a side and a mode."""

    NO = ""
    YES = "✓"
    READ_ONLY = "✓ RO"
    IN_APPLY = "✓ ¹"


class Access(IntEnum):
    """The access that a side has to a state."""

    NONE = 0
    READ = 1
    WRITE = 2


FAULT = Severity.FAULT
NO, YES, RO, IN_APPLY = Cell.NO, Cell.YES, Cell.READ_ONLY, Cell.IN_APPLY
G, NK, K, B = StreamKind
NONE, REDISTRIBUTABLE, IDENTICAL = RedistributionMode

ONE_INPUT: Mapping[tuple[StreamKind, ...], tuple[Cell, ...]] = {
    #        NONE  REDISTRIBUTABLE  IDENTICAL
    (G,):   (YES,  YES,             NO),
    (NK,):  (NO,   YES,             NO),
    (K,):   (YES,  YES,             NO),
    (B,):   (NO,   NO,              NO),
}  # fmt: skip

TWO_INPUTS: Mapping[tuple[StreamKind, ...], tuple[Cell, ...]] = {
    #          first side:                          second side:
    #          NONE       REDISTRIBUTABLE  IDENTICAL  NONE  REDISTRIBUTABLE  IDENTICAL
    (K, K):   (YES,       YES,             NO,        YES,  YES,             NO),
    (NK, NK): (NO,        YES,             NO,        NO,   YES,             NO),
    (G, G):   (YES,       YES,             NO,        YES,  YES,             NO),
    (B, K):   (IN_APPLY,  IN_APPLY,        YES,       YES,  YES,             RO),
    (B, NK):  (NO,        IN_APPLY,        YES,       NO,   YES,             RO),
}  # fmt: skip

TABLES = {**ONE_INPUT, **TWO_INPUTS}

HOW_TO_DECLARE = {
    NONE: "a value, list, map, reducing or aggregating state",
    REDISTRIBUTABLE: "a list state with redistribute_by SPLIT or UNION",
    IDENTICAL: "a broadcast state",
}
_WHY_NOT = {
    NONE: "state of mode NONE belongs to a partition that stays whole, and can only be accessed"
    " over a Keyed or a Global stream",
    REDISTRIBUTABLE: "a Broadcast stream is a side input only: it never stands alone",
    IDENTICAL: "state of mode IDENTICAL is kept the same by a Broadcast stream, and none is an"
    " input",
}


def cell(inputs: tuple[StreamKind, ...], side: InputSide, mode: RedistributionMode) -> Cell:
    """Return the tables' value; `NO` for inputs that they do not have.

    Raises:
        LegalityError: These inputs have no such side.
    """
    if side not in sides_of(inputs):
        raise LegalityError(f"{_streams(inputs)} has no side {side.name}")
    row = TABLES.get(inputs)
    if row is None:
        return NO
    modes = len(RedistributionMode)
    return row[sides_of(inputs).index(side) * modes + list(RedistributionMode).index(mode)]


def access(
    inputs: tuple[StreamKind, ...],
    side: InputSide,
    mode: RedistributionMode,
    in_apply_to_all: bool = False,
) -> Access:
    """Return the access that processing one side's record has to a state at run time.

    Args:
        inputs: The kinds of the function's inputs, the broadcast one first.
        side: The side whose record is being processed.
        mode: The state's redistribution mode.
        in_apply_to_all: Whether this is inside `apply_to_all_partitions`.

    Raises:
        LegalityError: These inputs have no such side.
    """
    entry = cell(inputs, side, mode)
    if entry is RO:
        return Access.READ
    if entry is YES or (entry is IN_APPLY and in_apply_to_all):
        return Access.WRITE
    return Access.NONE


def refusal(
    operator: OperatorDeclaration,
    side: InputSide,
    state: StateDeclaration,
    wanted: Access,
    in_apply_to_all: bool = False,
) -> LegalityError | None:
    """Return the error for an access at run time; None if it is legal.

    Args:
        operator: The operator of the function.
        side: The side whose record is being processed.
        state: The state to access.
        wanted: The access: to read, or to write.
        in_apply_to_all: Whether this is inside `apply_to_all_partitions`.
    """
    place = f"{operator.label} ({operator.function}), state {state.name!r}"
    declared = [sides for declaration, sides in operator.declared if declaration == state]
    sides = [declared_side for several in declared for declared_side in several]
    if not declared:
        remedy = "return it from uses_states: states are declared before they are used"
        return LegalityError("the state is not declared", place=place, remedy=remedy)
    if side not in sides:
        names = " and ".join(declared_side.value for declared_side in sides)
        problem = f"the state is not declared for {side.value}"
        return LegalityError(problem, place=place, remedy=f"it is for {names or 'none'}")
    mode = state.redistribution_mode
    allowed = access(operator.inputs, side, mode, in_apply_to_all)
    if allowed >= wanted:
        return None
    what = f"a {mode.value} state from {side.value} of {operator.streams}"
    if allowed is Access.READ:
        problem = f"{what} may be read, not written"
        remedy = "let the broadcast side write it: all partitions see the same records there"
    elif cell(operator.inputs, side, mode) is IN_APPLY:
        problem = f"{what} can't be accessed here: no partition is the current one"
        remedy = "access it inside apply_to_all_partitions"
    else:
        problem = f"{what} can't be accessed: {_WHY_NOT[mode]}"
        remedy = _alternative(operator.inputs, mode)
    return LegalityError(problem, place=place, remedy=remedy)


def check_job(job: JobDeclaration) -> list[Finding]:
    """Return every fault of a job, operator by operator; empty if all is legal."""
    uids = Counter(operator.uid for operator in job.operators)
    twice = [
        Finding(
            Severity.FAULT,
            "uid",
            uid,
            f"{count} operators have this uid",
            "give each its own: state is found by it",
        )
        for uid, count in uids.items()
        if count > 1
    ]
    return twice + [finding for operator in job.operators for finding in check_operator(operator)]


def require_legal(job: JobDeclaration) -> None:
    """Refuse a job with faults, naming all of them.

    Raises:
        LegalityError: The job has faults.
    """
    faults = check_job(job)
    if len(faults) == 1:
        only = faults[0]
        raise LegalityError(only.problem, place=only.place, remedy=only.remedy)
    if faults:
        raise LegalityError(f"{len(faults)} faults. {listed(faults)}", place=f"job {job.name!r}")


def listed(findings: Iterable[Finding]) -> str:
    """Return findings as one numbered text."""
    return " ".join(f"({at}) {finding}." for at, finding in enumerate(findings, 1))


def check_operator(operator: OperatorDeclaration) -> list[Finding]:
    """Return every fault of one operator."""
    if operator.inputs not in TABLES:
        known = ", ".join(_streams(table) for table in TABLES if table != (B,))
        swapped = tuple(reversed(operator.inputs))
        remedy = f"the inputs can be: {known}"
        if swapped in TABLES:
            remedy = f"the broadcast input comes first: {_streams(swapped)}"
        problem = f"a function can't have the inputs {operator.streams}"
        return [Finding.of(FAULT, "inputs", operator, problem, remedy)]
    return [*_whole(operator), *_names(operator), *_modes(operator)]


def _whole(operator: OperatorDeclaration) -> Iterator[Finding]:
    """Yield faults of an operator as a whole."""
    if operator.key_type is not None and K not in operator.inputs:
        problem = f"a key, {operator.key_type}, over {operator.streams}, which has no keys"
        yield Finding.of(FAULT, "key", operator, problem, "leave it out, or key the stream")
    count, groups = operator.parallelism, operator.max_parallelism
    if count is not None and count > 1 and G in operator.inputs:
        problem = f"a parallelism of {count} over {operator.streams}, which has one partition"
        yield Finding.of(
            FAULT, "parallelism", operator, problem, "make it 1, or partition the stream"
        )
    if count is not None and groups is not None and count > groups:
        problem = f"a parallelism of {count} above the maximum parallelism of {groups}"
        yield Finding.of(FAULT, "parallelism", operator, problem, f"make it {groups} at most")


def _names(operator: OperatorDeclaration) -> Iterator[Finding]:
    """Yield faults of names and sides: duplicate names, missing sides."""
    seen: dict[str, set[StateDeclaration]] = {}
    for state, sides in operator.declared:
        seen.setdefault(state.name, set()).add(state)
        if not sides:
            problem = f"it is declared for a second input, and {operator.streams} is the only one"
            yield Finding.of(FAULT, "side", operator, problem, "return it from uses_states", state)
    for same in seen.values():
        if len(same) > 1:
            first, *_ = same
            kinds = " and ".join(sorted({str(declaration) for declaration in same}))
            problem = f"{len(same)} declarations of one name differ: {kinds}"
            yield Finding.of(
                FAULT, "name", operator, problem, "a name is unique in its operator", first
            )


def _modes(operator: OperatorDeclaration) -> Iterator[Finding]:
    """Yield states that none of their declared sides can access."""
    for state, sides in operator.declared:
        mode = state.redistribution_mode
        if sides and all(cell(operator.inputs, side, mode) is NO for side in sides):
            problem, remedy = mode_fault(operator.inputs, mode) or ("", "")
            problem = (
                f"a {state.kind} state of mode {mode.value} over {operator.streams}: {problem}"
            )
            yield Finding.of(FAULT, "mode", operator, problem, remedy, state)


def mode_fault(inputs: tuple[StreamKind, ...], mode: RedistributionMode) -> tuple[str, str] | None:
    """Return why these inputs can't access a state of that mode, and a legal alternative.

    None if a side can access it.
    """
    if _legal(inputs, mode):
        return None
    why = _WHY_NOT[REDISTRIBUTABLE if inputs == (B,) else mode]
    return why, _alternative(inputs, mode)


def _alternative(inputs: tuple[StreamKind, ...], mode: RedistributionMode) -> str:
    """Return a legal alternative: another mode over these inputs, or this mode over others."""
    ways = [
        f"{HOW_TO_DECLARE[other]} ({other.value})"
        for other in RedistributionMode
        if _legal(inputs, other)
    ]
    others = [
        _streams(table) for table in TABLES if len(table) == len(inputs) and _legal(table, mode)
    ]
    others = others or [_streams(table) for table in TABLES if _legal(table, mode)]
    here = f"declare {' or '.join(ways)}, or " if ways else ""
    return f"{here}keep {mode.value} over {', '.join(others)}"


def _legal(inputs: tuple[StreamKind, ...], mode: RedistributionMode) -> bool:
    return any(cell(inputs, side, mode) is not NO for side in sides_of(inputs))


def _streams(inputs: tuple[StreamKind, ...]) -> str:
    return OperatorDeclaration("-", "", inputs).streams
