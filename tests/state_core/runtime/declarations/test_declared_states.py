"""Declared states: what can be said, what is refused, and what is the same as what."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from statelake.state_core.errors import DeclarationError, StateError
from statelake.state_core.runtime.declarations import (
    BroadcastStateDeclaration,
    FunctionReference,
    ListStateDeclaration,
    RedistributionMode,
    RedistributionStrategy,
    StateDeclaration,
    StateDeclarations,
    StateTtlConfig,
    StateVisibility,
    StreamKind,
    TypeDescriptor,
    UpdateType,
    declare_operator,
)
from statelake.state_core.runtime.declarations.states import KINDS

NONE, REDISTRIBUTABLE, IDENTICAL = RedistributionMode
SPLIT, UNION = RedistributionStrategy


class Average:
    """An aggregate function whose hints say its types."""

    def create_accumulator(self) -> tuple[int, int]:
        """Of nothing."""
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        """One more."""
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        """The average."""
        return accumulator[0] / accumulator[1]

    def merge(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        """Both."""
        return a[0] + b[0], a[1] + b[1]


class Silent:
    """An aggregate function without hints."""

    def create_accumulator(self) -> Any:
        """Of whatever type."""


def larger(a: int, b: int) -> int:
    """A reduce function."""
    return max(a, b)


SHORTCUTS: list[tuple[StateDeclaration, str, RedistributionMode]] = [
    (StateDeclarations.value_state("s", int), "value", NONE),
    (StateDeclarations.list_state("s", str), "list", NONE),
    (StateDeclarations.map_state("s", str, int), "map", NONE),
    (StateDeclarations.reducing_state("s", int, larger), "reducing", NONE),
    (StateDeclarations.aggregating_state("s", Average), "aggregating", NONE),
    (StateDeclarations.broadcast_state("s", str, int), "broadcast", IDENTICAL),
]


@pytest.mark.parametrize(
    ("declared", "kind", "mode"), SHORTCUTS, ids=[shortcut[1] for shortcut in SHORTCUTS]
)
def test_every_kind_has_a_shortcut(
    declared: StateDeclaration, kind: str, mode: RedistributionMode
) -> None:
    """Its kind and its mode are those of the spec; it has a hash, and a text for people."""
    assert (declared.kind, declared.redistribution_mode) == (kind, mode)
    assert type(declared) is KINDS[kind]
    assert hash(declared) == hash(declared)
    assert str(declared) == f"{kind} state 's' ({mode.value})"


def test_the_shortcuts_are_all_kinds() -> None:
    """None is forgotten."""
    assert {kind for _, kind, _ in SHORTCUTS} == set(KINDS)


def test_shortcuts_are_what_builders_build() -> None:
    """A builder without options says the same as the shortcut."""
    of = StateDeclarations
    assert of.value_state_builder("s", int).build() == of.value_state("s", "Long")
    assert of.list_state_builder("s", str).build() == of.list_state("s", "String")
    assert of.map_state_builder("s", str, int).build() == of.map_state("s", "String", "Long")
    assert of.reducing_state_builder("s", int, larger).build() == of.reducing_state(
        "s", int, f"{__name__}:larger"
    )
    assert of.broadcast_state_builder("s", str, int).build() == of.broadcast_state("s", str, int)
    assert of.map_state_builder("s", str, int).build_broadcast() == of.broadcast_state(
        "s", str, int
    )


@pytest.mark.parametrize("strategy", RedistributionStrategy)
def test_a_list_moves_if_it_is_said_how(strategy: RedistributionStrategy) -> None:
    """`redistribute_by` makes it redistributable; without it, the strategy means nothing."""
    built = StateDeclarations.list_state_builder("s", str).redistribute_by(strategy).build()
    assert (built.mode, built.redistribution_strategy) == (REDISTRIBUTABLE, strategy)
    still = StateDeclarations.list_state_builder("s", str).redistribute_by(strategy)
    none = still.redistribute_with_mode(NONE).build()
    assert none == StateDeclarations.list_state("s", str)


def test_a_list_is_never_identical() -> None:
    """Nothing would keep it so; the message says what would."""
    with pytest.raises(DeclarationError, match=r"UNION.*broadcast state"):
        StateDeclarations.list_state_builder("s", str).redistribute_with_mode(IDENTICAL)


def test_builders_are_values() -> None:
    """What is made from a builder does not change it."""
    builder = StateDeclarations.list_state_builder("s", str)
    builder.redistribute_by(UNION)
    assert builder.build() == ListStateDeclaration("s", TypeDescriptor.of("String"))


def test_time_to_live_is_of_keyed_state() -> None:
    """A duration takes Flink's defaults; state that moves can't have it."""
    built = (
        StateDeclarations.value_state_builder("s", int).with_state_ttl(timedelta(days=1)).build()
    )
    assert built.ttl == StateTtlConfig(
        86_400_000, UpdateType.ON_CREATE_AND_WRITE, StateVisibility.NEVER_RETURN_EXPIRED
    )
    moving = StateDeclarations.list_state_builder("s", int).redistribute_by(SPLIT)
    with pytest.raises(DeclarationError, match="REDISTRIBUTABLE state can't have a time to live"):
        moving.with_state_ttl(timedelta(days=1))
    kept = StateDeclarations.map_state_builder("s", int, int).with_state_ttl(timedelta(days=1))
    with pytest.raises(DeclarationError, match="IDENTICAL state can't have a time to live"):
        kept.broadcast()
    for none in (0, -1, True):
        with pytest.raises(DeclarationError, match="time to live"):
            StateTtlConfig(none)


def test_an_aggregate_functions_hints_are_its_types() -> None:
    """What is given goes before what the hints say."""
    made = StateDeclarations.aggregating_state("s", Average)
    assert (made.accumulator_type.name, str(made.in_type), str(made.out_type)) == (
        "Tuple2<Long, Long>",
        "Long",
        "Double",
    )
    given = StateDeclarations.aggregating_state_builder(
        "s", f"{__name__}:Average", "Row<Long>", in_type="int", out_type=float
    ).build()
    assert given.function == made.function
    assert (given.accumulator_type.name, str(given.in_type)) == ("Row<Long>", "Integer")
    with pytest.raises(DeclarationError, match=r"type of its accumulator.*accumulator_type"):
        StateDeclarations.aggregating_state("s", Silent)


@pytest.mark.parametrize(
    ("name", "words"),
    [("", "has no name"), ("_timer_state/x", "timers"), ("\0" * 32768, "65535 bytes")],
)
def test_names_that_no_state_can_have_are_refused(name: str, words: str) -> None:
    """Flink writes names with 16 bits of length, and U+0000 takes two bytes there."""
    with pytest.raises(DeclarationError, match=words):
        StateDeclarations.value_state(name, int)
    assert StateDeclarations.value_state("\0" * 32767, int).name == "\0" * 32767


def test_a_declaration_is_of_a_kind() -> None:
    """The base alone declares nothing."""
    with pytest.raises(DeclarationError, match="declares no state"):
        StateDeclaration("s")


@pytest.mark.parametrize("given", [larger, operator.add, max, Average, Average.add])
def test_functions_are_found_again_by_name(given: Callable[..., Any]) -> None:
    """A reference resolves to the very object."""
    reference = FunctionReference.of(given, "")
    assert reference.resolve() == given
    assert FunctionReference.of(str(reference), "") == reference


@pytest.mark.parametrize(
    "given", [lambda a, _: a, Average(), "os", "os:", ":x", "a b:c", "os:path:join", "1:x"]
)
def test_functions_without_a_name_are_refused(given: object) -> None:
    """A lambda, an instance, and text that names nothing."""
    with pytest.raises(DeclarationError, match=r"has no name|names no function"):
        FunctionReference.of(given, "")  # type: ignore[arg-type]


def test_a_function_inside_a_function_is_refused() -> None:
    """It could not be imported by the worker that needs it."""

    def inner(a: int, _: int) -> int:
        return a

    with pytest.raises(DeclarationError, match="top level"):
        FunctionReference.of(inner, "")


def test_a_function_that_another_took_the_name_of_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its name would give the other; and what runs as a script is no module for anyone else."""
    first = larger
    monkeypatch.setattr(sys.modules[__name__], "larger", max)
    with pytest.raises(DeclarationError, match=r"larger of .* can't be found by its name"):
        FunctionReference.of(first, "")
    monkeypatch.undo()
    monkeypatch.setattr(larger, "__module__", "__main__")
    with pytest.raises(DeclarationError, match="larger of __main__ can't be found"):
        FunctionReference.of(larger, "")


def test_a_reference_is_its_own() -> None:
    """Given again, it is kept."""
    reference = FunctionReference("os", "getpid")
    assert FunctionReference.of(reference, "") is reference


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no.such.module:x", "can't be imported"),
        ("os:no_such_name", "no such name"),
    ],
)
def test_what_a_reference_names_may_be_gone(text: str, words: str) -> None:
    """The message says which half is."""
    with pytest.raises(DeclarationError, match=words):
        FunctionReference.of(text, "").resolve()


def test_a_function_is_asked_whether_it_is_one() -> None:
    """Before the first value reaches it."""
    assert FunctionReference.of(larger, "").reduce_function()(1, 2) == 2
    aggregate = FunctionReference.of(Average, "").aggregate_function()
    assert aggregate.get_result(aggregate.add(4, aggregate.create_accumulator())) == 4.0
    with pytest.raises(DeclarationError, match="is not callable"):
        FunctionReference.of("os:sep", "").reduce_function()
    for text in ("os:sep", f"{__name__}:Silent"):
        with pytest.raises(DeclarationError, match="no aggregate function"):
            FunctionReference.of(text, "").aggregate_function()
    with pytest.raises(DeclarationError, match="without arguments"):
        FunctionReference.of("builtins:memoryview", "").aggregate_function()


def test_operators_are_put_in_order() -> None:
    """Sets have no order, and reports should have one."""
    a, b = StateDeclarations.value_state("a", int), StateDeclarations.value_state("b", int)
    made = declare_operator("u", larger, StreamKind.KEYED, {b, a, a}, key=str)
    assert (made.function, made.inputs, made.states) == ("larger", (StreamKind.KEYED,), (a, b))
    assert (made.streams, made.label) == ("Keyed", "operator 'u'")
    two = declare_operator(
        "u", Average(), [StreamKind.BROADCAST, StreamKind.NON_KEYED], first_states=[a]
    )
    assert (two.function, two.streams) == ("Average", "B + NK")
    assert [
        (declaration.name, [side.name for side in sides]) for declaration, sides in two.declared
    ] == [("a", ["FIRST"])]


class Stateful:
    """A process function that says what it uses."""

    def uses_states(self) -> set[StateDeclaration]:
        """One value."""
        return {StateDeclarations.value_state("own", int)}


def test_a_process_function_says_what_it_uses() -> None:
    """What is given instead counts, even if it is nothing; a class has not been asked."""
    (own,) = Stateful().uses_states()
    assert declare_operator("u", Stateful(), StreamKind.KEYED).states == (own,)
    assert declare_operator("u", Stateful(), StreamKind.KEYED).function == "Stateful"
    assert declare_operator("u", Stateful(), StreamKind.KEYED, []).states == ()
    assert declare_operator("u", Stateful, StreamKind.KEYED).states == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"uid": ""}, "has no uid"),
        ({"parallelism": 0}, "parallelism 0 is less than 1"),
        ({"max_parallelism": 32769}, "between 1 and 32768"),
        ({"outputs": 3}, "3 outputs"),
        ({"outputs": 2, "inputs": (StreamKind.KEYED, StreamKind.KEYED)}, "2 outputs and 2 inputs"),
        ({"key": "Strin"}, "operator 'u', key"),
    ],
)
def test_operators_that_can_not_be_are_refused(changes: dict[str, Any], words: str) -> None:
    """Each in one sentence."""
    given = {"uid": "u", "function": "F", "inputs": StreamKind.KEYED} | changes
    with pytest.raises(StateError, match=words):
        declare_operator(**given)


def test_a_broadcast_state_is_no_map_state() -> None:
    """Equal fields of another kind are another declaration."""
    made = StateDeclarations.map_state_builder("s", str, int)
    assert made.build() != made.build_broadcast()
    assert isinstance(made.build_broadcast(), BroadcastStateDeclaration)
