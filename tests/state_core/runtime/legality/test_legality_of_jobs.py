"""A job's faults: all of them at once, each with its place and its way out."""

from __future__ import annotations

import pytest

from statelake.state_core.errors import LegalityError
from statelake.state_core.runtime.declarations import (
    InputSide,
    JobDeclaration,
    OperatorDeclaration,
    RedistributionStrategy,
    StateDeclarations,
    StreamKind,
    declare_operator,
)
from statelake.state_core.runtime.legality.rules import (
    Access,
    check_job,
    check_operator,
    refusal,
    require_legal,
)

G, NK, K, B = StreamKind
COUNT = StateDeclarations.value_state("count", int)
RULES = StateDeclarations.broadcast_state("rules", str, str)
OFFSETS = (
    StateDeclarations.list_state_builder("offsets", int)
    .redistribute_by(RedistributionStrategy.UNION)
    .build()
)
LEGAL = JobDeclaration(
    "orders",
    (
        declare_operator("source", "Source", NK, [OFFSETS]),
        declare_operator("count", "Count", K, [COUNT], key=str, parallelism=4, max_parallelism=8),
        declare_operator("match", "Match", [B, K], [COUNT], first_states=[RULES], key=str),
        declare_operator("split", "Split", NK, [OFFSETS], outputs=2),
        declare_operator("total", "Total", G, [COUNT], parallelism=1),
    ),
)


def rules(operator: OperatorDeclaration) -> list[str]:
    """The rules that an operator breaks."""
    return [finding.rule for finding in check_operator(operator)]


def test_a_legal_job_passes() -> None:
    """One input, two, two outputs."""
    assert check_job(LEGAL) == []
    require_legal(LEGAL)


def test_all_faults_are_said_at_once() -> None:
    """In the order of the operators, each with operator, function, state, streams and remedy."""
    job = JobDeclaration(
        "orders",
        (
            declare_operator("a", "Source", NK, [COUNT, RULES]),
            declare_operator("b", "Match", [K, B]),
            declare_operator("c", "Count", K, [COUNT], parallelism=9, max_parallelism=8),
            declare_operator("c", "Again", K, [RULES]),
        ),
    )
    found = check_job(job)
    assert [(finding.rule, finding.operator, finding.state) for finding in found] == [
        ("uid", "c", ""),
        ("mode", "a", "count"),
        ("mode", "a", "rules"),
        ("inputs", "b", ""),
        ("parallelism", "c", ""),
        ("mode", "c", "rules"),
    ]
    assert all(finding.fault and finding.remedy for finding in found)
    assert all(finding.function for finding in found[1:])
    with pytest.raises(LegalityError) as caught:
        require_legal(job)
    text = str(caught.value)
    assert text.startswith("job 'orders': 6 faults. (1) ")
    assert all(str(finding) in text for finding in found)


def test_one_fault_is_one_sentence() -> None:
    """With the place in front and the legal alternative behind."""
    job = JobDeclaration("j", (declare_operator("a", "Source", NK, [COUNT]),))
    with pytest.raises(LegalityError) as caught:
        require_legal(job)
    assert str(caught.value) == (
        "operator 'a' (Source), state 'count': a value state of mode NONE over Non-Keyed: state of"
        " mode NONE belongs to a partition that stays whole, and can only be accessed over a Keyed"
        " or a Global stream; declare a list state with redistribute_by SPLIT or UNION"
        " (REDISTRIBUTABLE), or keep NONE over Global, Keyed"
    )


def test_a_name_is_declared_in_one_way() -> None:
    """The same declaration for two sides is one; another of the same name is a fault."""
    other = StateDeclarations.value_state("count", str)
    same = declare_operator("u", "F", [K, K], first_states=[COUNT], second_states=[COUNT])
    assert rules(same) == []
    differs = declare_operator("u", "F", [K, K], first_states=[COUNT], second_states=[other])
    assert rules(differs) == ["name"]
    (found,) = check_operator(declare_operator("u", "F", K, [COUNT, other]))
    assert (found.rule, found.state) == ("name", "count")
    assert "2 declarations" in found.problem


def test_what_is_wrong_without_any_state() -> None:
    """A key where none is, a partition that can't be divided, a side that is not there."""
    assert rules(declare_operator("u", "F", NK, key=str)) == ["key"]
    assert rules(declare_operator("u", "F", [B, NK], key=str)) == ["key"]
    assert rules(declare_operator("u", "F", [B, K], key=str)) == []
    assert rules(declare_operator("u", "F", [G, G], parallelism=2)) == ["parallelism"]
    assert rules(declare_operator("u", "F", K, second_states=[COUNT])) == ["side"]


def test_a_state_is_declared_before_it_is_used() -> None:
    """At run time, another state of that name is as good as none."""
    operator = declare_operator("u", "F", [K, K], [COUNT], first_states=[OFFSETS])
    assert refusal(operator, InputSide.SECOND, COUNT, Access.WRITE) is None
    other = StateDeclarations.value_state("count", str)
    error = refusal(operator, InputSide.FIRST, other, Access.READ)
    assert error is not None
    assert "not declared" in str(error)
    assert refusal(operator, InputSide.FIRST, OFFSETS, Access.WRITE) is None
    error = refusal(operator, InputSide.SECOND, OFFSETS, Access.READ)
    assert str(error) == (
        "operator 'u' (F), state 'offsets': the state is not declared for the second input;"
        " it is for the first input"
    )


def test_a_finding_is_plain_data() -> None:
    """For JSON."""
    (found,) = check_operator(declare_operator("u", "F", NK, [RULES]))
    plain = found.to_json()
    assert (plain["severity"], plain["rule"], plain["streams"]) == ("fault", "mode", "Non-Keyed")
    assert set(map(type, plain.values())) == {str}
