"""Verdicts on operator state: by mode and serializers, as Flink's `DefaultOperatorStateBackend`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from statelake import NewOperatorState, open_snapshot
from statelake.state_core.formats.layout.state_compatibility import (
    OperatorSchema,
    check_operators,
    operator_schema,
)
from statelake.state_core.serializers.framework.compatibility import Verdict
from tests.support.savepoints.golden_cases import GOLDEN, GoldenCase, golden_cases
from tests.support.savepoints.held_by_snapshots import encoded
from tests.support.savepoints.kryo_savepoint import kryo_snapshot

POJO = {"pojo": "P", "fields": {"a": "long"}}
WIDER = {"pojo": "P", "fields": {"a": "long", "b": "Long"}}
OTHER = {"pojo": "P", "fields": {"a": "String"}}
ENUMS = [{"enum": "E", "constants": constants} for constants in (["A", "B"], ["B", "A"], ["A"])]
CASES = golden_cases("operator")


def schema(mode: str, value: Any, key: Any = "", name: str = "s") -> OperatorSchema:
    """An operator with one operator state."""
    made = NewOperatorState(name, (), mode, value, key).meta_info()
    return operator_schema("u", b"", [encoded(made)])


def judged(old: OperatorSchema, new: OperatorSchema) -> tuple[Verdict, list[str], str]:
    """The only verdict: its paths and its first rule."""
    (found,) = check_operators([old], [new])
    assert (found.operator, found.state) == ("u", "s")
    reasons = found.result.reasons
    return (
        found.result.verdict,
        [reason.path for reason in reasons],
        reasons[0].rule if reasons else "",
    )


TYPES = [
    ("Long", "Long", Verdict.COMPATIBLE_AS_IS, ""),
    (ENUMS[0], ENUMS[1], Verdict.COMPATIBLE_WITH_RECONFIGURED_SERIALIZER, ""),
    (POJO, WIDER, Verdict.COMPATIBLE_AFTER_MIGRATION, ".b"),
    ("Long", "String", Verdict.INCOMPATIBLE, ""),
    (POJO, OTHER, Verdict.INCOMPATIBLE, ".a"),
]


@pytest.mark.parametrize(("old", "new", "verdict", "path"), TYPES)
@pytest.mark.parametrize("mode", ["split", "union"])
def test_a_lists_element_is_judged_by_its_serializer(
    mode: str, old: Any, new: Any, verdict: Verdict, path: str
) -> None:
    """It may be migrated, since it is read into memory."""
    found = judged(schema(mode, old), schema(mode, new))
    paths = [] if verdict is Verdict.COMPATIBLE_AS_IS else [f"element{path}"]
    assert found[:2] == (verdict, paths)


@pytest.mark.parametrize(("old", "new", "verdict", "path"), TYPES)
def test_a_broadcast_states_key_and_value_are_both_judged(
    old: Any, new: Any, verdict: Verdict, path: str
) -> None:
    """Its key, too, may be migrated: entries are put into a new map."""
    paths = [] if verdict is Verdict.COMPATIBLE_AS_IS else [path]
    of_value = judged(schema("broadcast", old, "String"), schema("broadcast", new, "String"))
    assert of_value[:2] == (verdict, [f"value{number}" for number in paths])
    of_key = judged(schema("broadcast", "String", old), schema("broadcast", "String", new))
    assert of_key[:2] == (verdict, [f"key{number}" for number in paths])
    both = judged(schema("broadcast", "Long", old), schema("broadcast", "String", new))
    assert both[0] is Verdict.INCOMPATIBLE
    assert set(both[1]) == {"value", *(f"key{number}" for number in paths)}


@pytest.mark.parametrize(("old", "new"), [("split", "union"), ("union", "split")])
def test_a_list_keeps_its_mode(old: str, new: str) -> None:
    """Flink compares the modes, whatever the types."""
    verdict, paths, rule = judged(schema(old, "Long"), schema(new, "Long"))
    assert (verdict, paths) == (Verdict.INCOMPATIBLE, [""])
    assert "Flink refuses" in rule


@pytest.mark.parametrize("mode", ["split", "union"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_list_and_a_broadcast_state_of_one_name_are_two(mode: str, turned: bool) -> None:
    """Flink looks for each in a map of its own, and refuses nothing: the state is lost."""
    pair = schema(mode, "Long"), schema("broadcast", "Long", "Long")
    old, new = reversed(pair) if turned else pair
    verdict, _, rule = judged(old, new)
    assert verdict is Verdict.INCOMPATIBLE
    assert "begins empty" in rule
    assert "next snapshot" in rule


FORMS = {"SPLIT list": "split", "UNION list": "union", "broadcast": "broadcast"}


@pytest.mark.parametrize("before", FORMS)
@pytest.mark.parametrize("after", FORMS)
def test_forms_are_judged_by_what_flinks_backend_does(before: str, after: str) -> None:
    """Kept, refused, or begun empty in silence; and then the next snapshot holds neither."""
    lines = (GOLDEN / "vectors" / "restore.jsonl").read_text("utf-8").splitlines()
    told = [json.loads(line) for line in lines]
    (line,) = (line for line in told if (line.get("before"), line.get("after")) == (before, after))
    old, new = (
        schema(FORMS[form], "Long", "Long" if form == "broadcast" else "")
        for form in (before, after)
    )
    verdict, _, rule = judged(old, new)
    if line.get("found"):
        assert verdict is Verdict.COMPATIBLE_AS_IS
        return
    assert verdict is Verdict.INCOMPATIBLE
    assert ("Flink refuses" in rule) == ("refused" in line)
    if "refused" not in line:
        assert (line["found"], line["next"]) in ((0, 0), (0, 2))  # of one element that was added


def test_what_is_not_asked_for_any_more_is_kept() -> None:
    """And what is new is not spoken of."""
    found = judged(schema("split", "Long"), schema("union", "Long", name="t"))
    assert found[:2] == (Verdict.COMPATIBLE_AS_IS, [])


def test_what_only_code_could_say_is_unknown() -> None:
    """A serializer of Kryo."""
    kryo = schema("split", kryo_snapshot())
    assert judged(kryo, kryo)[0] is Verdict.UNKNOWN


def test_an_operator_that_is_gone_is_a_fault() -> None:
    """Be all its state operator state, or what only the operator understands."""
    bare = OperatorSchema("u", None, others=("raw state",))
    for old, held in ((schema("union", "Long"), "1 states"), (bare, "raw state")):
        (found,) = check_operators([old], [])
        assert (found.fault, found.state) == (True, "")
        assert found.result.reasons[0].old == held
        (found,) = check_operators([old], [], allow_missing=True)
        assert not found.fault
    assert check_operators([OperatorSchema("u", None)], []) == []


@pytest.mark.parametrize("golden", CASES, ids=lambda case: case.name)
def test_real_operator_state_follows_itself(golden: GoldenCase) -> None:
    """Every state of Flink's own savepoints, one verdict each."""
    schemas = [
        operator_schema(
            operator.label, b"", [state.meta_info for state in operator.operator_states]
        )
        for operator in open_snapshot(golden.snapshot).operators
    ]
    found = check_operators(schemas, schemas)
    assert {"split", "offsets", "union", "rules"} <= {verdict.state for verdict in found}
    assert {verdict.result.verdict for verdict in found} == {Verdict.COMPATIBLE_AS_IS}
