"""Declarations travel as JSON: they come back equal, and what is none is refused by its place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import DeclarationError
from statelake.state_core.runtime.declarations import (
    AggregatingStateDeclaration,
    BroadcastStateDeclaration,
    FunctionReference,
    JobDeclaration,
    ListStateDeclaration,
    MapStateDeclaration,
    OperatorDeclaration,
    RedistributionMode,
    RedistributionStrategy,
    ReducingStateDeclaration,
    StateDeclaration,
    StateDeclarations,
    StateTtlConfig,
    StateVisibility,
    StreamKind,
    TypeDescriptor,
    UpdateType,
    ValueStateDeclaration,
    from_json,
    job_from_json,
    to_json,
)

WORDS = st.from_regex(r"[A-Za-z_]\w{0,8}", fullmatch=True)
NAMES = st.text(st.characters(), min_size=1, max_size=12).filter(
    lambda name: not name.startswith("_timer_state/")
)
TYPES = st.recursive(
    st.sampled_from(["String", "Long", "int", "byte[]", "BigDecimal", "Instant", "Void"])
    | st.builds(
        lambda name, constants: {"enum": name, "constants": constants},
        WORDS,
        st.lists(WORDS, min_size=1, max_size=3, unique=True),
    ),
    lambda inner: (
        st.builds(lambda nested: {"list": nested}, inner)
        | st.builds(lambda key, value: {"map": [key, value]}, inner, inner)
        | st.builds(lambda nested: {"row": nested}, st.lists(inner, min_size=1, max_size=3))
        | st.builds(
            lambda name, fields: {"pojo": name, "fields": fields},
            WORDS,
            st.dictionaries(WORDS, inner, min_size=1, max_size=3),
        )
    ),
    max_leaves=5,
).map(TypeDescriptor.of)
FUNCTIONS = st.builds(FunctionReference, WORDS, WORDS)
TTL = st.none() | st.builds(
    StateTtlConfig,
    st.integers(1, 1 << 62),
    st.sampled_from(UpdateType),
    st.sampled_from(StateVisibility),
)
STATES: st.SearchStrategy[StateDeclaration] = st.one_of(
    st.builds(ValueStateDeclaration, NAMES, TYPES, ttl=TTL),
    st.builds(ListStateDeclaration, NAMES, TYPES, ttl=TTL),
    st.builds(
        ListStateDeclaration,
        NAMES,
        TYPES,
        st.just(RedistributionMode.REDISTRIBUTABLE),
        st.sampled_from(RedistributionStrategy),
    ),
    st.builds(MapStateDeclaration, NAMES, TYPES, TYPES, ttl=TTL),
    st.builds(ReducingStateDeclaration, NAMES, TYPES, FUNCTIONS, ttl=TTL),
    st.builds(
        AggregatingStateDeclaration,
        NAMES,
        TYPES,
        FUNCTIONS,
        st.none() | TYPES,
        st.none() | TYPES,
        ttl=TTL,
    ),
    st.builds(BroadcastStateDeclaration, NAMES, TYPES, TYPES),
)
SEVERAL = st.lists(STATES, max_size=2).map(tuple)
OPERATORS = st.builds(
    OperatorDeclaration,
    st.text(min_size=1, max_size=8),
    st.text(max_size=8),
    st.lists(st.sampled_from(StreamKind), max_size=2).map(tuple),
    SEVERAL,
    SEVERAL,
    SEVERAL,
    st.none() | TYPES,
    st.none() | st.integers(1, 1 << 15),
    st.none() | st.integers(1, 1 << 15),
)
JOBS = st.builds(JobDeclaration, st.text(max_size=8), st.lists(OPERATORS, max_size=3).map(tuple))


@given(STATES)
def test_a_state_comes_back(declared: StateDeclaration) -> None:
    """Equal, of equal hash, and the same text again."""
    back = from_json(to_json(declared))
    assert back == declared
    assert hash(back) == hash(declared)
    assert to_json(back) == to_json(declared)
    assert to_json(declared).isascii()


@given(JOBS)
def test_a_job_comes_back(job: JobDeclaration) -> None:
    """With all that its operators say."""
    back = job_from_json(to_json(job))
    assert back == job
    assert to_json(back) == to_json(job)


@given(JOBS, st.data())
def test_a_broken_job_is_refused_or_another(job: JobDeclaration, data: st.DataObject) -> None:
    """Whatever is put in the place of whatever: an equal job, another, or a `DeclarationError`."""
    plain = json.loads(to_json(job))
    path = data.draw(st.lists(st.integers(0, 20), max_size=6))
    junk = data.draw(st.sampled_from([None, 0, -1, "", "x", [], {}, True, 1.5, [[]], {"x": 1}]))
    at: Any = plain
    for step in path:
        if isinstance(at, dict) and at:
            key: Any = sorted(at)[step % len(at)]
        elif isinstance(at, list) and at:
            key = step % len(at)
        else:
            break
        if not isinstance(at[key], dict | list) or step % 3 == 0:
            at[key] = junk
            break
        at = at[key]
    try:
        back = job_from_json(json.dumps(plain))
    except DeclarationError:
        return
    assert job_from_json(to_json(back)) == back


def test_the_text_is_what_the_module_shows() -> None:
    """Names as in the documentation."""
    built = (
        StateDeclarations.list_state_builder("offsets", "Tuple2<String, Long>")
        .redistribute_by(RedistributionStrategy.UNION)
        .build()
    )
    assert json.loads(to_json(built)) == {
        "kind": "list",
        "name": "offsets",
        "redistribution_mode": "REDISTRIBUTABLE",
        "redistribution_strategy": "UNION",
        "type": "Tuple2<String, Long>",
    }


VALUE = {"kind": "value", "name": "s", "type": "Long"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("{", "malformed JSON"),
        ("[" * 100_000, "malformed JSON"),
        ("[]", r"\$: \[\] is no object"),
        ({}, r"\$.kind: null is no kind of state"),
        (VALUE | {"kind": ["value"]}, r"\$.kind"),
        (VALUE | {"typ": "Long"}, r"\"typ\" is not known here.*known are: kind"),
        ({"kind": "value", "name": "s"}, "'type' is missing"),
        (VALUE | {"type": "Lon"}, r"\$.type: Lon is no known type"),
        (VALUE | {"type": ["Long"]}, r"\$.type: \[\"Long\"\] is no type"),
        (VALUE | {"name": 5}, r"\$.name: 5 is not text"),
        (VALUE | {"name": ""}, "has no name"),
        (VALUE | {"redistribution_mode": "IDENTICAL"}, "a value state is NONE"),
        (VALUE | {"ttl": {"millis": True}}, r"\$.ttl.millis: true is not a number"),
        (VALUE | {"ttl": {"millis": 0}}, r"\$.ttl, the time to live 0|\$.ttl: the time to live 0"),
        (VALUE | {"ttl": {"millis": 1, "update_type": "Never"}}, "one of OnCreateAndWrite"),
        (VALUE | {"kind": "reducing", "function": "x"}, r"\$.function: 'x' names no function"),
        (VALUE | {"kind": "list", "redistribution_mode": "IDENTICAL"}, "can't be IDENTICAL"),
    ],
)
def test_what_is_no_declaration_is_refused(data: Any, words: str) -> None:
    """The message names the place in the JSON."""
    with pytest.raises(DeclarationError, match=words):
        from_json(data if isinstance(data, str) else json.dumps(data))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": 2}, "version 2.*1, which can be read"),
        ({"version": None}, "version None"),
        ({"operators": {}}, r"\$.operators: {} is no list"),
        ({"operators": [{"uid": "u"}]}, r"\$.operators\[0\]: 'function' is missing"),
        (
            {"operators": [{"uid": "u", "function": "f", "inputs": ["Keye"]}]},
            r"\$.operators\[0\].inputs\[0\]: \"Keye\" is not known",
        ),
    ],
)
def test_what_is_no_job_is_refused(changes: dict[str, Any], words: str) -> None:
    """Likewise, down to the operator."""
    with pytest.raises(DeclarationError, match=words):
        job_from_json(json.dumps({"version": 1, "name": "j"} | changes))
