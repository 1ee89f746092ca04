"""What subtasks get of operator state: `expected-at-p<N>.jsonl` of the golden case `operator`.

Flink printed what each subtask of the job got after a restore at that parallelism. The lists of a
subtask are compared as they would be by a reader who does not know their order, which Flink leaves
to the order of the old subtasks' files in a hash map; union state is the same for everyone, and
written once; a broadcast state has a copy for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from statelake.state_core.formats.reader import Snapshot
from statelake.state_core.model.snapshot import OperatorState
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

__all__ = ["OPERATOR_CASES", "UIDS", "assert_dealt_out", "by_subtask", "copies", "state_of"]

UIDS = ("opstate", "rules")
OPERATOR_CASES = [
    golden_case
    for golden_case in golden_cases("operator")
    if (golden_case.folder / "expected-at-p1.jsonl").exists()
]


def state_of(snapshot: Snapshot, name: str) -> OperatorState:
    """The state of that name, whose operator it is."""
    (found,) = (
        state
        for operator in snapshot.operators
        for state in operator.operator_states
        if state.name == name
    )
    return found


def plain(value: Any) -> Any:
    """A value as `expected.jsonl` has it: tuples are lists."""
    return [value["f0"], value["f1"]] if isinstance(value, dict) else value


def by_subtask(state: OperatorState) -> dict[int, list[Any]]:
    """The elements of each subtask that has some."""
    found: dict[int, list[Any]] = {}
    for row in state.to_arrow().to_pylist():
        found.setdefault(row["subtask"], []).append(plain(row["value"]))
    return found


def copies(state: OperatorState) -> Iterator[dict[str, Any]]:
    """Each subtask's copy of a broadcast state."""
    for part in state.parts:
        rows = part.decode().to_pylist()
        yield {row["key"]: row["value"] for row in rows}


def assert_dealt_out(snapshot: Snapshot, golden: GoldenCase, parallelism: int) -> None:
    """Assert that each subtask has what Flink gives it at that parallelism."""
    expected = golden.expected(f"expected-at-p{parallelism}.jsonl")
    wanted = {line["subtask"]: line for line in expected if "split" in line}
    assert len(wanted) == parallelism
    for name in ("split", "offsets"):
        held = by_subtask(state_of(snapshot, name))
        for subtask, line in wanted.items():
            assert sorted(held.get(subtask, [])) == sorted(line[name])
    union = by_subtask(state_of(snapshot, "union"))
    united = sorted(element for elements in union.values() for element in elements)
    assert all(united == sorted(line["union"]) for line in wanted.values())
    (rules, *others) = [line["rules"] for line in expected if "rules" in line]
    assert all(other == rules for other in others)
    found = list(copies(state_of(snapshot, "rules")))
    assert len(found) == parallelism
    assert all(content == rules for content in found)
