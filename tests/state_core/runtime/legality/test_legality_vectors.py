"""What Flink 2.3's DataStream V2 says of declared states, against our tables.

Every difference has a name: it is one of `FLINK_DIFFERENCES`, and none of those is without effect.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from statelake.state_core.errors import DeclarationError
from statelake.state_core.runtime.declarations import (
    ListStateDeclaration,
    RedistributionMode,
    RedistributionStrategy,
    StateDeclaration,
    StateDeclarations,
    StreamKind,
    declare_operator,
)
from statelake.state_core.runtime.legality.rules import (
    ONE_INPUT,
    TWO_INPUTS,
    check_operator,
)
from tests.support.jobs.legality_page import FLINK_DIFFERENCES
from tests.support.savepoints.golden_cases import GOLDEN

B = StreamKind.BROADCAST
OF = StateDeclarations
LISTS = OF.list_state_builder("s", int)
OURS: dict[str, StateDeclaration] = {
    "valueState": OF.value_state("s", int),
    "listState": OF.list_state("s", int),
    "mapState": OF.map_state("s", int, int),
    "reducingState": OF.reducing_state("s", int, "operator:add"),
    "aggregatingState": OF.aggregating_state("s", "acme:Sum", int),
    "listStateBuilder.redistributeBy(SPLIT)": LISTS.redistribute_by(
        RedistributionStrategy.SPLIT
    ).build(),
    "listStateBuilder.redistributeBy(UNION)": LISTS.redistribute_by(
        RedistributionStrategy.UNION
    ).build(),
    "listStateBuilder.redistributeWithMode(NONE)": LISTS.redistribute_with_mode(
        RedistributionMode.NONE
    ).build(),
    "listStateBuilder.redistributeWithMode(REDISTRIBUTABLE)": LISTS.redistribute_with_mode(
        RedistributionMode.REDISTRIBUTABLE
    ).build(),
    "mapStateBuilder.buildBroadcast": OF.map_state_builder("s", int, int).build_broadcast(),
}
# a list that is IDENTICAL: ours can't be declared at all
REFUSED = "listStateBuilder.redistributeWithMode(IDENTICAL)"
OUTPUTS = {"TwoOutputStreamProcessFunction": 2}


@cache
def lines() -> tuple[dict[str, Any], ...]:
    """The golden file."""
    text = (GOLDEN / "vectors" / "legality.jsonl").read_text("utf-8")
    return tuple(json.loads(line) for line in text.splitlines())


def answers() -> list[dict[str, Any]]:
    """What Flink says when a job is built."""
    return [line for line in lines() if "legal" in line]


def inputs_of(line: dict[str, Any]) -> tuple[StreamKind, ...]:
    """The broadcast input first, which Flink takes from either end."""
    kinds = [StreamKind(input_) for input_ in line["inputs"]]
    return tuple(sorted(kinds, key=lambda kind: kind is not B))


def test_declarations_are_of_the_same_modes() -> None:
    """Each shortcut and builder, and how a list moves; a list that is IDENTICAL is refused here."""
    modes = {line["declared"]: line for line in lines() if "mode" in line}
    assert modes.keys() == OURS.keys() | {REFUSED}
    for name, ours in OURS.items():
        assert ours.redistribution_mode.value == modes[name]["mode"]
        if isinstance(ours, ListStateDeclaration):
            assert ours.redistribution_strategy.value == modes[name]["strategy"]
    assert modes[REFUSED]["mode"] == "IDENTICAL"
    with pytest.raises(DeclarationError, match="can't be IDENTICAL"):
        LISTS.redistribute_with_mode(RedistributionMode.IDENTICAL)


def test_every_pair_of_streams_that_flink_connects_is_in_the_tables() -> None:
    """And no other; a Broadcast stream alone has no method to process it."""
    assert {inputs_of(answer) for answer in answers()} == {*ONE_INPUT, *TWO_INPUTS} - {(B,)}


def test_every_answer_is_ours_or_a_named_difference() -> None:
    """Eighteen methods with eleven declarations each; the differences are all used, and right."""
    assert len(answers()) == 18 * 11
    known = {
        (flink_difference.inputs, flink_difference.mode): False
        for flink_difference in FLINK_DIFFERENCES
        if flink_difference.at_build
    }
    for answer in answers():
        if answer["declared"] == REFUSED:
            continue
        inputs, state = inputs_of(answer), OURS[answer["declared"]]
        outputs = OUTPUTS.get(answer["function"], 1)
        ours = not check_operator(declare_operator("u", "F", inputs, [state], outputs=outputs))
        if ours != answer["legal"]:
            which = (inputs, state.redistribution_mode)
            assert which in known, answer
            known[which] = True
            assert ours
            assert answer["said"] == f"Unexpected Redistribution Mode {which[1].value}"
    assert all(known.values())


def test_a_list_that_is_identical_is_judged_by_its_mode() -> None:
    """As a broadcast state is: what is refused here is not about streams."""
    by_place = {
        (
            answer["declared"],
            str(answer["inputs"]),
            answer["function"],
            answer["keyed_outputs"],
        ): answer["legal"]
        for answer in answers()
    }
    alike = [
        (legal, by_place[("mapStateBuilder.buildBroadcast", *rest)])
        for (name, *rest), legal in by_place.items()
        if name == REFUSED
    ]
    assert len(alike) == 18
    assert all(left == other for left, other in alike)


def test_only_a_record_of_a_partition_reaches_state() -> None:
    """The footnote of the second table: elsewhere there is `applyToAllPartitions`, and no more."""
    contexts = [line for line in lines() if "context" in line]
    with_state = {context["method"] for context in contexts if context["state_manager"]}
    assert with_state == {
        "processRecord",
        "processRecordFromFirstInput",
        "processRecordFromSecondInput",
        "processRecordFromNonBroadcastInput",
        "onProcessingTimer",
    }
    assert all(
        context["state_manager"] != context["apply_to_all_partitions"] for context in contexts
    )
    (side,) = (
        context for context in contexts if context["method"] == "processRecordFromBroadcastInput"
    )
    assert side["context"] == "NonPartitionedContext"
