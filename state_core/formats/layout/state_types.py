"""The types of a snapshot's states as text, to be committed beside a job's code, and compared.

The text is the YAML that a migration and a check of compatibility read. Beside the type of each
state's values it has what a migration leaves as it is: the kind, the type of a map's keys, the
namespace, time to live, and the key of each operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from statelake.state_core.formats.layout.keyed_states import as_key_value, value_snapshot
from statelake.state_core.formats.layout.meta_info import (
    KEY_SERIALIZER,
    NAMESPACE_SERIALIZER,
    VALUE_SERIALIZER,
    BackendStateType,
    StateMetaInfo,
)
from statelake.state_core.formats.layout.state_compatibility import OperatorSchema, named_operators
from statelake.state_core.printable import Printed, printable
from statelake.state_core.serializers.composite.collections import MapSerializerSnapshot
from statelake.state_core.serializers.composite.wrappers import TtlSerializerSnapshot
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.type_differences import short_text, type_differences
from statelake.state_core.serializers.type_spec import TypeSpec, parse_type, type_text

HEAD = (
    "# Types of state, for `statelake migrate --to` and `statelake check compatibility --against`.",
    "# A POJO's field that is int in its class is Integer here: a snapshot has no difference.",
)
VOID = "VoidNamespace"
HELD = ("kind", "map_key", "namespace", "ttl")  # what a migration leaves as it is
INEXPRESSIBLE = "no text for it: it stays as it is"


@dataclass(frozen=True)
class StateType:
    """The types of one state.

    Attributes:
        state: Its name.
        kind: Its form, as in declarations: `keyed value`, `UNION list`, `broadcast`.
        type: The type of its values; None if it can't be written as text.
        type_name: The same in Java's syntax.
        map_key: The type of the keys of a map or broadcast state; None for other states, or if it
            can't be written as text.
        namespace: The type of its namespaces; None for no namespaces, or if it can't be written.
        ttl: Whether each value has the time of its last access.
    """

    state: str
    kind: str
    type: TypeSpec | None
    type_name: str
    map_key: TypeSpec | None = None
    namespace: TypeSpec | None = None
    ttl: bool = False

    @classmethod
    def of(cls, info: StateMetaInfo) -> StateType:
        """Return the types of a state that is not a queue of timers."""
        form = info.form
        value = value_snapshot(info)
        plain = as_key_value(info)
        stored = _snapshot(plain, VALUE_SERIALIZER)
        key, inner = _snapshot(plain, KEY_SERIALIZER), stored
        if form == "keyed map" and isinstance(stored, MapSerializerSnapshot):
            key, inner = stored.nested
        elif form == "keyed list" and stored is not None:
            inner = getattr(stored, "nested", (stored,))[0]
        namespace = _snapshot(plain, NAMESPACE_SERIALIZER)
        if namespace is not None and namespace.type_name == VOID:
            namespace = None
        return cls(
            info.name,
            form,
            type_text(value),
            value.type_name,
            None if key is None else type_text(key),
            None if namespace is None else type_text(namespace),
            isinstance(inner, TtlSerializerSnapshot),
        )

    def entry(self) -> dict[str, Any]:
        """Return its entry in the YAML."""
        parts = {"type": self.type} | {name: getattr(self, name) or None for name in HELD}
        return {name: value for name, value in parts.items() if value is not None}


def _snapshot(info: StateMetaInfo, role: str) -> TypeSerializerSnapshot | None:
    entry = info.serializers.get(role)
    return None if entry is None else entry.snapshot


@dataclass(frozen=True)
class OperatorTypes:
    """The types of an operator's states.

    Attributes:
        operator: The operator's uid, or otherwise its id.
        key: The type of its keys; None without keyed state, or if it can't be written as text.
        key_name: The same in Java's syntax; empty without keyed state.
        states: The types of its states.
    """

    operator: str
    key: TypeSpec | None
    key_name: str
    states: tuple[StateType, ...]

    def written(self) -> list[StateType]:
        """Return the states that the YAML has: with text, and the first of each name."""
        first = {state.state: state for state in reversed(self.states) if state.type is not None}
        return [state for state in self.states if first.get(state.state) is state]


@dataclass(frozen=True)
class StateTypes(Printed):
    """The types of a snapshot's states.

    Attributes:
        operators: The operators that have state with types.
        problems: Why the types of other state are not known.
    """

    JSON = ("operators", "problems?")

    operators: tuple[OperatorTypes, ...] = field(default=())
    problems: tuple[str, ...] = ()

    def content(self) -> dict[str, Any]:
        """Return what the YAML has, without its comments."""
        keys = {each.operator: each.key for each in self.operators if each.key is not None}
        states = {
            f"{operator.operator}/{state.state}": state.entry()
            for operator in self.operators
            for state in operator.written()
        }
        return {"keys": keys, "states": states}

    def lines(self) -> Iterator[str]:
        """Yield the lines of the YAML."""
        yield from HEAD
        yield from (f"# ? not known: {printable(problem)}" for problem in self.problems)
        content = self.content()
        for operator in self.operators:
            name = operator.operator
            if operator.key_name and operator.key is None:
                yield f"# {printable(name)} is keyed by {operator.key_name}, {INEXPRESSIBLE}"
            for state in operator.states:
                if state not in operator.written():
                    why = INEXPRESSIBLE if state.type is None else "a second state of that name"
                    shown = printable(f"{name}/{state.state}")
                    yield f"# {shown} is {state.kind} of {printable(state.type_name)}, {why}"
        yield from _dumped({part: value for part, value in content.items() if value})

    def to_yaml(self) -> str:
        """Return the YAML."""
        return "".join(f"{line}\n" for line in self.lines())


def _dumped(content: Mapping[str, Any]) -> list[str]:
    import yaml  # noqa: PLC0415 - only here

    text: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)
    if printable(text.replace("\n", "")) != text.replace("\n", ""):
        text = yaml.safe_dump(content, sort_keys=False, width=100)
    return list(text.splitlines())


def types_of(schemas: Iterable[OperatorSchema], operators: Iterable[str] = ()) -> StateTypes:
    """Return the types of operators' states by name, timers left out.

    Args:
        schemas: The operators.
        operators: Only these, by uid or id; all by default.

    Raises:
        NotFoundError: There is no such operator with state.
    """
    stateful = [each for each in schemas if each.states or each.operator_states]
    types = []
    for schema in named_operators(stateful, list(operators)):
        infos = [*schema.states.values(), *schema.operator_states.values()]
        states = tuple(
            StateType.of(info)
            for info in sorted(infos, key=lambda info: info.name)
            if info.kind is not BackendStateType.PRIORITY_QUEUE
        )
        if states:
            label = schema.operator_id if "/" in schema.label else schema.label
            key = schema.key
            types.append(
                OperatorTypes(
                    label,
                    None if key is None else type_text(key),
                    "" if key is None else key.type_name,
                    states,
                )
            )
    return StateTypes(tuple(sorted(types, key=lambda each: each.operator)))


def typed_states(schemas: Iterable[OperatorSchema]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the types of each state but timers, in the words of `types_of`, and its serializers.

    Args:
        schemas: The operators.

    Returns:
        By operator id and state, for `StateDescription.types`.
    """
    typed = {}
    for schema in schemas:
        for info in (*schema.states.values(), *schema.operator_states.values()):
            if info.kind is BackendStateType.PRIORITY_QUEUE:
                continue
            state = StateType.of(info)
            words = state.entry() if state.type is not None else {"type": None} | state.entry()
            typed[schema.operator_id, info.name] = words | {
                "type_name": state.type_name,
                "serializers": {
                    role.removesuffix("_SERIALIZER").lower(): entry.snapshot.java_class
                    for role, entry in info.serializers.items()
                },
            }
    return typed


@dataclass(frozen=True)
class StateTypeDifference:
    """A difference of a state in two files of types.

    Attributes:
        state: The state, `operator/state`; or the operator, if its key differs.
        words: The difference, as a sentence without a period.
    """

    state: str
    words: str


class TypeDifferences(Printed, list[StateTypeDifference]):
    """The differences of two files of types."""

    JSON = ("differences=.",)

    def lines(self) -> Iterator[str]:
        """Yield the text form: lines and tables."""
        for each in self:
            yield f"`{each.state}`: {each.words}"
        if not self:
            yield "no difference"


def differences_of(old: Mapping[str, Any], new: Mapping[str, Any]) -> TypeDifferences:
    """Return the differences of two files of types.

    Args:
        old: The content of the old file.
        new: The content of the new file.

    Raises:
        EncodeError: A type can't be parsed.
    """
    diffs = TypeDifferences()
    keys, states = (
        [content.get(name) or {} for content in (old, new)] for name in ("keys", "states")
    )
    for operator, key in keys[0].items():
        if operator in keys[1]:
            words = type_differences(_valid(key), _valid(keys[1][operator]))
            diffs += [
                StateTypeDifference(operator, f"key: {each}: no key migrates") for each in words
            ]
    for name, entry in states[1].items():
        if name not in states[0]:
            diffs.append(StateTypeDifference(name, f"added, {short_text(_valid(entry['type']))}"))
    for name, entry in states[0].items():
        if name in states[1]:
            diffs += [StateTypeDifference(name, words) for words in _words(entry, states[1][name])]
        else:
            diffs.append(StateTypeDifference(name, f"removed, {short_text(_valid(entry['type']))}"))
    return diffs


def _words(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    yield from type_differences(_valid(old["type"]), _valid(new["type"]))
    for name in HELD:
        before, after = old.get(name), new.get(name)
        if name == "ttl":
            if bool(before) != bool(after):
                yield "with time to live" if after else "without time to live"
        elif before != after and None not in (before, after):
            shown = [
                each if name == "kind" else short_text(_valid(each)) for each in (before, after)
            ]
            yield f"{name}: {shown[0]} to {shown[1]}"


def _valid(spec: Any) -> TypeSpec:
    """Return a type, once it is parsed."""
    valid: TypeSpec = spec
    parse_type(valid)
    return valid
