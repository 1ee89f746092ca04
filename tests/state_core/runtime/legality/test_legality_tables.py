"""Every cell of the two tables, legal and illegal, at build and at run time.

The expectation is written here a second time, as the specification has it, and compared with what
the checks do: a table that is changed by mistake fails.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from statelake.state_core.errors import LegalityError
from statelake.state_core.runtime.declarations import (
    InputSide,
    RedistributionMode,
    RedistributionStrategy,
    StateDeclaration,
    StateDeclarations,
    StreamKind,
    declare_operator,
)
from statelake.state_core.runtime.declarations.findings import Finding
from statelake.state_core.runtime.legality.rules import (
    TABLES,
    TWO_INPUTS,
    Access,
    access,
    cell,
    check_operator,
    refusal,
)
from tests.support.jobs.legality_page import document

G, NK, K, B = StreamKind
ONE = """
    Global     | x | x |
    Non-Keyed  |   | x |
    Keyed      | x | x |
    Broadcast  |   |   |
"""
TWO = """
    K + K   | x | x |   | x | x |
    NK + NK |   | x |   |   | x |
    G + G   | x | x |   | x | x |
    B + K   | 1 | 1 | x | x | x | r
    B + NK  |   | 1 | x |   | x | r
"""
SIDES = {1: (InputSide.ONLY,), 2: (InputSide.FIRST, InputSide.SECOND)}
KINDS = {kind.short: kind for kind in StreamKind} | {kind.value: kind for kind in StreamKind}
STATES: dict[RedistributionMode, list[StateDeclaration]] = {
    RedistributionMode.NONE: [
        StateDeclarations.value_state("s", int),
        StateDeclarations.list_state("s", int),
        StateDeclarations.map_state("s", int, int),
        StateDeclarations.reducing_state("s", int, "operator:add"),
        StateDeclarations.aggregating_state("s", "a:b", int),
    ],
    RedistributionMode.REDISTRIBUTABLE: [
        StateDeclarations.list_state_builder("s", int).redistribute_by(strategy).build()
        for strategy in RedistributionStrategy
    ],
    RedistributionMode.IDENTICAL: [StateDeclarations.broadcast_state("s", int, int)],
}
Inputs = tuple[StreamKind, ...]


def expected() -> dict[tuple[Inputs, InputSide, RedistributionMode], str]:
    """What the specification says: `x`, `1` inside apply only, `r` read only, or nothing."""
    found = {}
    for line in filter(str.strip, (ONE + TWO).splitlines()):
        name, *cells = (part.strip() for part in line.split("|"))
        inputs = tuple(KINDS[part] for part in name.split(" + "))
        cells += [""] * (3 * len(inputs) - len(cells))
        wanted = [(side, mode) for side in SIDES[len(inputs)] for mode in RedistributionMode]
        found |= {
            (inputs, side, mode): said for (side, mode), said in zip(wanted, cells, strict=True)
        }
    return found


EXPECTED = expected()
CELLS = [
    pytest.param(
        *cell, said, id=f"{'+'.join(i.short for i in cell[0])}-{cell[1].name}-{cell[2].value}"
    )
    for cell, said in EXPECTED.items()
]
ROWS = sorted({entry[0] for entry in EXPECTED}, key=str)


def faults(inputs: Inputs, state: StateDeclaration, side: InputSide | None = None) -> list[Finding]:
    """What is said of one function with one state, for a side or for all."""
    states = [state] if side in (None, InputSide.ONLY) else []
    return check_operator(
        declare_operator(
            "u",
            "F",
            inputs,
            states,
            first_states=[state] if side is InputSide.FIRST else [],
            second_states=[state] if side is InputSide.SECOND else [],
        )
    )


def test_all_cells_are_expected() -> None:
    """Twelve cells of one input and thirty of two: the tables have no row besides."""
    assert len(EXPECTED) == 4 * 3 + 5 * 6
    assert {entry[0] for entry in EXPECTED} == set(TABLES)


@pytest.mark.parametrize(("inputs", "side", "mode", "said"), CELLS)
def test_a_cell_at_build(
    inputs: Inputs, side: InputSide, mode: RedistributionMode, said: str
) -> None:
    """A state of every kind, declared for that side alone, is a fault where the cell is blank."""
    for state in STATES[mode]:
        found = faults(inputs, state, side)
        assert [finding.rule for finding in found] == ([] if said else ["mode"])
        for finding in found:
            assert (finding.operator, finding.function, finding.state) == ("u", "F", "s")
            assert finding.streams in finding.problem
            assert mode.value in finding.problem
            assert "keep" in finding.remedy


@pytest.mark.parametrize(("inputs", "side", "mode", "said"), CELLS)
def test_a_cell_at_run_time(
    inputs: Inputs, side: InputSide, mode: RedistributionMode, said: str
) -> None:
    """Write, read, or nothing, outside and inside of `apply_to_all_partitions`."""
    wanted = {
        "": (Access.NONE, Access.NONE),
        "x": (Access.WRITE, Access.WRITE),
        "1": (Access.NONE, Access.WRITE),
        "r": (Access.READ, Access.READ),
    }[said]
    found = access(inputs, side, mode), access(inputs, side, mode, in_apply_to_all=True)
    assert found == wanted


@pytest.mark.parametrize(("inputs", "side", "mode", "said"), CELLS)
def test_a_refusal_says_why(
    inputs: Inputs, side: InputSide, mode: RedistributionMode, said: str
) -> None:
    """An error exactly where the access does not reach, with a way out for each."""
    (state, *_) = STATES[mode]
    operator = declare_operator("u", "F", inputs, [state])
    for wanted, within in product((Access.READ, Access.WRITE), (False, True)):
        error = refusal(operator, side, state, wanted, in_apply_to_all=within)
        assert (error is None) == (access(inputs, side, mode, within) >= wanted)
        if error is None:
            continue
        assert error.place == "operator 'u' (F), state 's'"
        assert mode.value in error.problem
        remedy = {
            "": "keep",
            "1": "inside apply_to_all_partitions",
            "r": "let the broadcast side write it",
        }[said]
        assert remedy in error.remedy


@pytest.mark.parametrize("inputs", ROWS)
@pytest.mark.parametrize("mode", RedistributionMode)
def test_a_state_for_all_sides_needs_one(inputs: Inputs, mode: RedistributionMode) -> None:
    """`uses_states` alone is a fault only if neither side could touch the state."""
    legal = any(EXPECTED[inputs, side, mode] for side in SIDES[len(inputs)])
    for state in STATES[mode]:
        assert (not faults(inputs, state)) == legal


@pytest.mark.parametrize("inputs", ROWS)
@pytest.mark.parametrize("mode", RedistributionMode)
def test_every_remedy_is_legal(inputs: Inputs, mode: RedistributionMode) -> None:
    """What a message proposes, the check accepts: other modes here, other inputs for this mode."""
    for fault in faults(inputs, STATES[mode][0]):
        here, _, kept = fault.remedy.rpartition(f"keep {mode.value} over ")
        for other in RedistributionMode:
            proposed = f"({other.value})" in here
            assert proposed == (not faults(inputs, STATES[other][0]))
        for name in kept.split(", "):
            proposed_inputs = tuple(KINDS[short] for short in name.split(" + "))
            assert not faults(proposed_inputs, STATES[mode][0])


PAIRS = [pair for pair in product(StreamKind, repeat=2) if pair not in TWO_INPUTS]


@pytest.mark.parametrize("inputs", [(), *PAIRS, (K, K, K)])
def test_inputs_without_a_row_are_refused(inputs: Inputs) -> None:
    """With the pairs that there are, or with the right order where it is only that."""
    (found,) = check_operator(declare_operator("u", "F", inputs, STATES[RedistributionMode.NONE]))
    assert found.rule == "inputs"
    if inputs in ((K, B), (NK, B)):
        assert found.remedy == f"the broadcast input comes first: B + {inputs[0].short}"
    else:
        assert "K + K, NK + NK, G + G, B + K, B + NK" in found.remedy


def test_a_side_that_is_not_there_is_no_question() -> None:
    """One input has no second side; that is a mistake of the caller, not an answer."""
    with pytest.raises(LegalityError, match="Keyed has no side SECOND"):
        cell((K,), InputSide.SECOND, RedistributionMode.NONE)
    with pytest.raises(LegalityError, match=r"K \+ K has no side ONLY"):
        access((K, K), InputSide.ONLY, RedistributionMode.NONE)


def test_the_documentation_is_what_the_tables_say() -> None:
    """`docs/legality.md` is generated."""
    path = Path(__file__).parents[4] / "docs" / "legality.md"
    assert path.read_text("utf-8") == document()
