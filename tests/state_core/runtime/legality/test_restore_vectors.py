"""Every form of state restored as every form: what Flink's own backends do, and what we say."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from statelake.state_core.runtime.declarations import (
    RedistributionStrategy,
    StateDeclaration,
    StateDeclarations,
)
from statelake.state_core.runtime.declarations.findings import Finding
from tests.support.savepoints.golden_cases import GOLDEN
from tests.support.savepoints.held_by_snapshots import check, declared, held, held_state, moving

OF = StateDeclarations
FORMS: dict[str, StateDeclaration] = {
    "keyed value": OF.value_state("s", int),
    "keyed list": OF.list_state("s", int),
    "keyed map": OF.map_state("s", int, int),
    "keyed reducing": OF.reducing_state("s", int, "operator:add"),
    "keyed aggregating": OF.aggregating_state("s", "acme:Sum", int),
    "SPLIT list": moving("s", int, RedistributionStrategy.SPLIT),
    "UNION list": moving("s", int, RedistributionStrategy.UNION),
    "broadcast": OF.broadcast_state("s", int, int),
}


@cache
def lines() -> tuple[dict[str, Any], ...]:
    """The golden file."""
    text = (GOLDEN / "vectors" / "restore.jsonl").read_text("utf-8")
    return tuple(json.loads(line) for line in text.splitlines())


def found(before: str, after: str) -> list[Finding]:
    """What we say of it."""
    return check(declared(FORMS[after]), held(held_state(FORMS[before])))


PAIRS = [(before, after) for before in FORMS for after in FORMS]


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_a_form_restored_as_another(before: str, after: str) -> None:
    """Kept: nothing is said. Refused, or begun empty in silence: a fault that says which."""
    (line,) = (
        line for line in lines() if (line.get("before"), line.get("after")) == (before, after)
    )
    if line.get("found") == 1:
        assert found(before, after) == []
        return
    (one,) = found(before, after)
    assert one.fault
    if "refused" in line:
        assert "a state keeps its kind" in one.problem or "Flink refuses" in one.problem
        assert "begins empty" not in one.problem
    else:
        assert line["found"] == 0
        assert "the state begins empty" in one.problem


@pytest.mark.parametrize("form", FORMS)
def test_a_state_that_nobody_declares_is_kept(form: str) -> None:
    """Restored, and in the next snapshot again: a warning."""
    (line,) = (line for line in lines() if line.get("undeclared") == form)
    assert line["kept"]
    (one,) = check(declared(), held(held_state(FORMS[form])))
    assert (one.fault, one.rule) == (False, "extra_state")
    assert "it is restored and kept" in one.problem


def test_no_line_is_left_out() -> None:
    """Eight forms as eight, and eight that are left alone."""
    assert len(lines()) == 8 * 8 + 8
