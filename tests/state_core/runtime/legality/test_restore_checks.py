"""Declared jobs against what a snapshot holds: what is refused, lost, migrated, or as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake import NewKeyedState, open_snapshot
from statelake.state_core.formats.layout.meta_info import (
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    USER_KEY_SERIALIZER,
    VALUE_SERIALIZER,
    BackendStateType,
    StateMetaInfo,
    serializer_entry,
)
from statelake.state_core.model.key_groups import operator_id_of_uid
from statelake.state_core.runtime.declarations import (
    JobDeclaration,
    ListStateDeclaration,
    RedistributionMode,
    RedistributionStrategy,
    StateDeclaration,
    StateDeclarations,
    StreamKind,
    TypeDescriptor,
)
from statelake.state_core.runtime.declarations.findings import Severity
from statelake.state_core.runtime.legality.restore_checks import _Check, check_restore
from statelake.state_core.runtime.legality.stored_states import StoredState, held_operators
from statelake.state_core.serializers.framework.compatibility import unknown
from statelake.state_core.serializers.type_spec import parse_type
from tests.support.jobs.declared_jobs import KINDS, OPERATORS
from tests.support.savepoints.golden_cases import golden_cases
from tests.support.savepoints.held_by_snapshots import (
    ALL,
    check,
    declared,
    encoded,
    held,
    held_state,
    moving,
    said,
    with_ttl,
)

G, NK, K, B = StreamKind
SPLIT, UNION = RedistributionStrategy
of = StateDeclarations


def test_what_was_declared_restores() -> None:
    """A snapshot of the very job says nothing at all."""
    assert check(declared(*ALL), held(*map(held_state, ALL))) == []


@pytest.mark.parametrize("before", ALL, ids=lambda case: case.name)
@pytest.mark.parametrize("after", ALL, ids=lambda case: case.name)
def test_a_state_stays_what_it_is(before: StateDeclaration, after: StateDeclaration) -> None:
    """Another kind, strategy or place is a fault whose remedy is what the snapshot holds."""
    before = replace(before, name="s")
    now = replace(after, name="s")
    found = check(declared(now), held(held_state(before)))
    kinds = [_place(before), _place(now)]
    if kinds[0] == kinds[1]:
        assert {finding.rule for finding in found} <= {"type"}
        return
    (one,) = found
    keyed = all(kind.startswith("keyed") for kind in kinds)
    assert (one.severity, one.state) == (Severity.FAULT, "s")
    assert one.rule == ("kind" if keyed else "redistribution")
    assert all(kind in one.problem for kind in kinds)
    lists = all(kind.endswith("list") and not kind.startswith("keyed") for kind in kinds)
    assert (f"redistribute_by {kinds[0][:5]}" if lists else kinds[0]) in one.remedy


def _place(declared: StateDeclaration) -> str:
    if declared.kind == "broadcast":
        return "broadcast"
    if (
        isinstance(declared, ListStateDeclaration)
        and declared.mode is RedistributionMode.REDISTRIBUTABLE
    ):
        return f"{declared.redistribution_strategy.value} list"
    return f"keyed {declared.kind}"


TYPES = [
    ("Long", "Long", ""),
    ("Long", "String", "fault"),
    ("Tuple2<Long, Long>", "Tuple2<Long, String>", "fault"),
    (
        {"pojo": "P", "fields": {"a": "long"}},
        {"pojo": "P", "fields": {"a": "long", "b": "Long"}},
        "warning",
    ),
    ({"pojo": "P", "fields": {"a": "long"}}, {"pojo": "P", "fields": {"a": "String"}}, "fault"),
    (
        {"enum": "E", "constants": ["A"]},
        {"enum": "E", "constants": ["A", "B"]},
        "",
    ),
]
MAKERS = {
    "value": lambda type_: of.value_state("s", type_),
    "list": lambda type_: of.list_state("s", type_),
    "map": lambda type_: of.map_state("s", "String", type_),
    "reducing": lambda type_: of.reducing_state("s", type_, "operator:add"),
    "aggregating": lambda type_: of.aggregating_state("s", "a:b", type_),
    "split": lambda type_: moving("s", type_, SPLIT),
    "union": lambda type_: moving("s", type_, UNION),
    "broadcast": lambda type_: of.broadcast_state("s", "String", type_),
    "broadcast key": lambda type_: of.broadcast_state("s", type_, "String"),
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize(("before", "after", "severity"), TYPES)
def test_a_types_change_is_judged_by_its_serializer(
    kind: str, before: Any, after: Any, severity: str
) -> None:
    """As it is, migrated (a warning) or refused, in the value, element or key of every kind."""
    found = check(declared(MAKERS[kind](after)), held(held_state(MAKERS[kind](before))))
    assert said(found) == ([(severity, "type", "s")] if severity else [])


def test_a_maps_user_key_never_evolves() -> None:
    """Entries are found by its bytes; the same change in a broadcast state's key migrates."""
    before, after = TYPES[3][:2]
    old, new = of.map_state("s", before, "Long"), of.map_state("s", after, "Long")
    (found,) = check(declared(new), held(held_state(old)))
    assert (found.fault, found.rule) == (True, "type")
    assert "never evolves" in found.problem


def test_states_of_version_two_register_their_parts() -> None:
    """An element, or user key and value, each on its own; they restore by the same rules."""
    long, text = serializer_entry(parse_type("Long")), serializer_entry(parse_type("String"))
    void = serializer_entry(parse_type("VoidNamespace"))
    for declaration, parts in (
        (of.list_state("s", int), {VALUE_SERIALIZER: long}),
        (of.map_state("s", str, int), {VALUE_SERIALIZER: long, USER_KEY_SERIALIZER: text}),
        (of.value_state("s", int), {VALUE_SERIALIZER: long}),
    ):
        meta = StateMetaInfo(
            "s",
            BackendStateType.KEY_VALUE_V2,
            {KEYED_STATE_TYPE: declaration.kind.upper()},
            {NAMESPACE_SERIALIZER: void, **parts},
        )
        assert check(declared(declaration), held(StoredState(encoded(meta)))) == []
    other = of.map_state("s", int, int)
    meta = replace(
        meta,
        options={KEYED_STATE_TYPE: "MAP"},
        serializers=meta.serializers | {USER_KEY_SERIALIZER: text},
    )
    assert said(check(declared(other), held(StoredState(encoded(meta))))) == [
        ("fault", "type", "s")
    ]


def test_a_namespace_is_no_declared_states() -> None:
    """A window's state can't become that of a process function."""
    windowed = NewKeyedState("s", (), "value", "Long", namespace="TimeWindow")
    meta = StoredState(encoded(windowed.meta_info(parse_type("String"))))
    (found,) = check(declared(of.value_state("s", int)), held(meta))
    assert (found.fault, found.rule) == (True, "type")
    assert "namespace" in found.problem


def test_a_kind_that_is_not_told_is_not_compared() -> None:
    """Old savepoints do not say what a keyed state was; its type is compared as ever."""
    state = of.reducing_state("s", int, "operator:add")
    meta = replace(held_state(state).meta, options={KEYED_STATE_TYPE: "UNKNOWN"})
    assert check(declared(state), held(StoredState(encoded(meta)))) == []
    other = check(declared(of.value_state("s", str)), held(StoredState(encoded(meta))))
    assert said(other) == [("fault", "type", "s")]
    folding = replace(meta, options={KEYED_STATE_TYPE: "FOLDING"})
    aggregating = of.aggregating_state("s", "a:b", int)
    assert said(check(declared(aggregating), held(StoredState(encoded(folding))))) == [
        ("fault", "kind", "s")
    ]


def test_what_only_code_could_say_is_a_warning() -> None:
    """A serializer whose rules are elsewhere neither passes in silence nor stops the job."""
    state = of.value_state("s", int)
    judge = _Check(declared(state), held(), 0)
    (found,) = judge.judged("type", unknown("a", "b", "the class decides"), "remedy", state)
    assert (found.severity, found.state, found.remedy) == (Severity.WARNING, "s", "")
    assert found.problem == "not known from the snapshot: a → b: the class decides"


def test_time_to_live_comes_and_goes_by_migration() -> None:
    """Both ways are warnings."""
    plain, timed = of.value_state("s", int), with_ttl(of.value_state("s", int))
    for before, after in ((plain, timed), (timed, plain)):
        found = check(declared(after), held(held_state(before)))
        assert said(found) == [("warning", "type", "s")]
        assert "time to live" in found[0].problem


def test_a_key_keeps_its_bytes() -> None:
    """Another type is a fault, even one that could be migrated; an undeclared one is a warning."""
    state = of.value_state("s", int)
    snapshot = held(held_state(state))
    assert said(check(declared(state, key=int), snapshot)) == [("fault", "key", "")]
    assert said(check(declared(state, key=None), snapshot)) == [("warning", "key", "")]
    assert check(declared(state, inputs=G, key=None), snapshot) == []
    before, after = TYPES[3][:2]
    old = replace(
        held(held_state(state)),
        key_serializer=serializer_entry(parse_type(before)).encoded,
    )
    (found,) = check(declared(state, key=after), old)
    assert (found.rule, found.fault) == ("key", True)
    assert "a key never evolves" in found.problem


def test_key_groups_are_as_many_as_they_were() -> None:
    """A parallelism above them, or another maximum."""
    state = of.value_state("s", int)
    snapshot = held(held_state(state))
    assert check(declared(state, parallelism=128, max_parallelism=128), snapshot) == []
    found = check(declared(state, parallelism=129, max_parallelism=256), snapshot)
    assert said(found) == [("fault", "parallelism", ""), ("fault", "max_parallelism", "")]
    assert "make it 128 at most" in found[0].remedy


def test_states_that_are_new_or_no_longer_declared() -> None:
    """Both are warnings: one begins empty, the other is kept and never read; timers are neither."""
    old, new = of.value_state("old", int), of.value_state("new", int)
    timers = NewKeyedState.timers("event", ())
    queue = StoredState(encoded(timers.meta_info(parse_type("String"))))
    found = check(declared(new), held(held_state(old), queue))
    assert said(found) == [("warning", "new_state", "new"), ("warning", "extra_state", "old")]
    assert "kept" in found[1].problem
    (lost,) = check(declared(inputs=NK, key=None), held(held_state(old), queue))
    assert "the next savepoint is without it" in lost.problem


def test_operators_that_are_new_or_gone() -> None:
    """A new one is a warning; one that is gone is a fault, unless that is allowed."""
    state = of.value_state("s", int)
    gone = held(held_state(state), uid="gone")
    found = check(declared(state), gone)
    assert said(found) == [("warning", "new_operator", ""), ("fault", "missing_operator", "")]
    assert [finding.operator for finding in found] == ["u", "gone"]
    assert "'s'" in found[1].problem
    allowed = check(declared(state), gone, allow_missing=True)
    assert [finding.severity for finding in allowed] == [Severity.WARNING] * 2
    assert check(declared(), held(uid="stateless", key="")) == []


def test_an_operator_is_found_by_the_hash_of_its_uid() -> None:
    """Before Flink 2.0, a snapshot holds no uids."""
    state = of.value_state("s", int)
    unnamed = replace(held(held_state(state)), label=operator_id_of_uid("u"))
    assert check(declared(state), unnamed) == []


@pytest.mark.parametrize(
    ("parallelism", "size", "warned"),
    [(None, 512, True), (None, 511, False), (4, 256, True), (1, 5000, False)],
)
def test_a_union_is_for_everyone(parallelism: int | None, size: int, warned: bool) -> None:
    """Its bytes times the subtasks, declared or else held, against a limit."""
    state = moving("s", str, UNION)
    snapshot = held(held_state(state, elements=3000, state_bytes=size))
    found = check(declared(state, parallelism=parallelism), snapshot, union_limit=1024)
    assert said(found) == ([("warning", "union_memory", "s")] if warned else [])
    if warned:
        count = parallelism or 2
        assert f"3,000 elements of {size} B go to each of {count} subtasks" in found[0].problem
        assert f"{3000 * count:,} elements of 1.0 KiB" in found[0].problem
    split = moving("s", str, SPLIT)
    many = held(held_state(split, elements=3000, state_bytes=1 << 40))
    assert check(declared(split), many) == []


def test_copies_of_a_broadcast_state_should_agree() -> None:
    """It was declared identical, and is not."""
    state = of.broadcast_state("s", str, int)
    found = check(declared(state), held(held_state(state, elements=3, disagreeing=(1, 2))))
    assert said(found) == [("warning", "identical", "s")]
    assert "subtasks 1, 2" in found[0].problem


SPECS = st.sampled_from(["Long", "String", "List<Long>", "Tuple2<Long, String>", "Row<Double>"])
NAMES = st.text(min_size=1, max_size=5)
DECLARED = st.builds(
    lambda name, kind, type_: replace(MAKERS[kind](TypeDescriptor.of(type_)), name=name),
    NAMES,
    st.sampled_from(sorted(MAKERS)),
    SPECS,
)
SEVERAL = st.lists(DECLARED, max_size=4, unique_by=lambda state: state.name)


@given(SEVERAL, SEVERAL)
def test_each_state_is_spoken_of(old: list[StateDeclaration], new: list[StateDeclaration]) -> None:
    """Equal states never, and all others in exactly one finding each, of the right state."""
    found = check(declared(*new), held(*map(held_state, old)))
    before = {state.name: state for state in old}
    after = {state.name: state for state in new}
    for name in before.keys() | after.keys():
        mine = [finding.rule for finding in found if finding.state == name]
        if name not in after:
            assert mine == ["extra_state"]
        elif name not in before:
            assert mine == ["new_state"]
        elif before[name] == after[name]:
            assert mine == []
        else:
            assert mine in (["kind"], ["redistribution"], ["type"])


@pytest.mark.parametrize(
    ("name", "job"), [("kinds", KINDS), ("operator", OPERATORS)], ids=["kinds", "operator"]
)
def test_real_savepoints_are_what_they_were_declared(name: str, job: JobDeclaration) -> None:
    """Those of Flink's own jobs, whichever backend, form and version wrote them."""
    cases = golden_cases(name)
    assert len(cases) >= 3
    for golden in cases:
        snapshot = open_snapshot(
            str(golden.snapshot), uids=[operator.uid for operator in job.operators]
        )
        assert check_restore(job, held_operators(snapshot.operators)) == [], golden.name


def test_a_real_savepoint_against_another_job() -> None:
    """Real bytes, and each kind of change."""
    (kinds,) = KINDS.operators
    states = [state for state in kinds.states if state.name != "items"]
    changed = replace(
        kinds,
        states=(
            *(replace(state, type=TypeDescriptor.of(int)) if state.name == "name" else state
              for state in states if state.name != "scores"),
            of.value_state("scores", "Map<String, Double>"),
            moving("items", "Integer", SPLIT),
        ),
        key_type=TypeDescriptor.of("String"),
        parallelism=129,
    )  # fmt: skip
    golden = golden_cases("kinds", form="canonical")[0]
    snapshot = open_snapshot(str(golden.snapshot))
    found = check(changed, *held_operators(snapshot.operators))
    assert sorted(said(found)) == [
        ("fault", "key", ""),
        ("fault", "kind", "scores"),
        ("fault", "parallelism", ""),
        ("fault", "redistribution", "items"),
        ("fault", "type", "name"),
    ]
