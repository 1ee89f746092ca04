"""`docs/legality.md`, from the tables of `state_core.checks.legality`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from statelake.state_core.checks.legality import (
    FLINK_DIFFERENCES,
    HOW_TO_DECLARE,
    ONE_INPUT,
    TWO_INPUTS,
    Cell,
    mode_fault,
)
from statelake.state_core.declarations.jobs import OperatorDeclaration, StreamKind
from statelake.state_core.declarations.states import RedistributionMode

__all__ = ["document"]

HEAD = """\
# Which states a function may declare, and which it may touch

Written by `tests/support/jobs/legality_page.py` from the tables of `state_core.checks.legality`;
a test compares. The rules are those of FLIP-433. `statelake check legality MODULE:JOB` holds a job
against them before it runs.

✓ legal, blank illegal, RO to be read only, ¹ only inside `apply_to_all_partitions`.
"""
ONE = """
## One input

Functions of two outputs are functions of one input. A Broadcast stream is a side input only.

"""
TWO = """
## Two inputs

By the side whose record is processed; the broadcast input is the first. Other pairs can't be
connected. K is Keyed, NK Non-Keyed, G Global, B Broadcast.

"""
DECLARE = """
## What is of which mode

"""
BUILD = """
## When a job is built

A state that no side could ever touch is a fault, and so is a pair of inputs that is in no table.
Further: a name that is declared twice and differently, a uid that two operators have, a key over
streams without one, a state that is declared for an input that is not there, a parallelism above
the maximum parallelism, and one above 1 over a Global stream. All faults of a job are said at
once. What the tables forbid, in the words of the check:

"""
RUN = """
## When a job runs

What one side may do and the other may not is known only then. `access(inputs, side, mode,
in_apply_to_all)` answers it: `NONE`, `READ` or `WRITE`; `refusal` has the message. A state that
`uses_states` does not return is refused as well.
"""
FLINK = """
## What Flink 2.3.0 does otherwise

"""


def document() -> str:
    """Return the text of the whole file."""
    modes = [mode.value for mode in RedistributionMode]
    one = _table(
        ["stream", *modes], ([inputs[0].value, *_cells(row)] for inputs, row in ONE_INPUT.items())
    )
    heads = [f"{side}: {mode}" for side in ("first", "second") for mode in modes]
    two = _table(
        ["inputs", *heads], ([_streams(inputs), *_cells(row)] for inputs, row in TWO_INPUTS.items())
    )
    declare = [f"- {mode.value}: {how}" for mode, how in HOW_TO_DECLARE.items()]
    flink = [f"- {_where(each.inputs, each.mode)}: {each.text}" for each in FLINK_DIFFERENCES]
    parts: tuple[tuple[str, Iterable[str]], ...] = (
        (HEAD, []), (ONE, one), (TWO, two), (DECLARE, declare), (BUILD, _faults()), (RUN, []),
        (FLINK, flink),
    )  # fmt: skip
    return "".join(head + "".join(f"{line}\n" for line in lines) for head, lines in parts)


def _cells(row: Iterable[Cell]) -> list[str]:
    return [cell.value for cell in row]


def _table(heads: list[str], rows: Iterable[list[str]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _faults() -> Iterator[str]:
    for inputs in (*ONE_INPUT, *TWO_INPUTS):
        for mode in RedistributionMode:
            fault = mode_fault(inputs, mode)
            if fault is not None:
                problem, remedy = fault
                yield f"- {mode.value} over {_streams(inputs)}: {problem}; {remedy}"


def _where(inputs: tuple[StreamKind, ...] | None, mode: RedistributionMode) -> str:
    return f"{mode.value} over {_streams(inputs)}" if inputs else mode.value


def _streams(inputs: tuple[StreamKind, ...]) -> str:
    return OperatorDeclaration("-", "", inputs).streams
