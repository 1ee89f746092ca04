"""The new types of states, as a user gives them: in a small YAML, JSON or Python file.

::

    states:
      customers/customer:                     # operator uid / state name
        type: {pojo: com.acme.Customer, fields: {id: Long, name: String, full_name: String}}
        expressions:                          # only for what Flink can't convert
          full_name: concat(old.first, ' ', old.last)
      rules/rules:                            # operator state: a list's elements, or the values
        type: Long                            # of a broadcast state, whose keys stay

A Python file has the same as a module-level `states`, and may register serializers and decoders:
it is loaded as a plugin. One state alone may be given without its name, as `type` and
`expressions`.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from statelake.pipelines.lake.tables.records import AnyState, OperatorRecord, SnapshotRecord
from statelake.pipelines.yaml_lines import read_yaml
from statelake.state_core.errors import (
    DeclarationError,
    EncodeError,
    IncompatibleError,
    NotFoundError,
    StateError,
    did_you_mean,
)
from statelake.state_core.files.wire import DataOutput
from statelake.state_core.formats.layout.keyed_states import has_ttl, value_snapshot
from statelake.state_core.formats.layout.meta_info import parse_state_meta_info
from statelake.state_core.formats.rewriting.value_migration import resolve_element
from statelake.state_core.serializers.composite.evolution import resolve_decoded
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import (
    Compatibility,
    Verdict,
    as_is,
    migrate,
)
from statelake.state_core.serializers.framework.plugins import load_plugin
from statelake.state_core.serializers.framework.registry import write_serializer_snapshot
from statelake.state_core.serializers.type_spec import TypeSpec, parse_type


@dataclass(frozen=True)
class ValueChange:
    """The change of one state.

    Attributes:
        operator: The operator's uid or id.
        state: The state's name.
        value: The new type of its values: a list's elements, or the values of a map or a
            broadcast state, whose keys stay.
        expressions: By field, DuckDB's SQL over the old value, which is named `old`; the empty
            field stands for the whole value.
        spec: The text of `value`, if it was given as one. It says more than the snapshot: whether
            a new field is `int` or `Integer`, and so begins as 0 or as null.
    """

    operator: str
    state: str
    value: TypeSerializerSnapshot
    expressions: Mapping[str, str] = field(default_factory=dict)
    spec: TypeSpec | None = None

    def digest(self) -> str:
        """The digest of the change, which differs for another state, type or expression."""
        value = DataOutput()
        write_serializer_snapshot(self.value, value)
        said = [
            self.operator,
            self.state,
            value.to_bytes().hex(),
            dict(self.expressions),
            self.spec,
        ]
        text = json.dumps(said, sort_keys=True, default=str)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class TtlChange:
    """The switch of one keyed state's time to live.

    Attributes:
        operator: The operator's uid or id.
        state: The state's name.
        on: Whether the state is to have times of last access.
        last_access: The times it gets: `now`, `taken_at`, or the values' field that has them.
    """

    operator: str
    state: str
    on: bool
    last_access: str = "now"
    expressions: ClassVar[Mapping[str, str]] = {}

    def digest(self) -> str:
        """The digest of the change; of all times `now` it is the same."""
        said = ["ttl", self.operator, self.state, self.on, self.last_access if self.on else ""]
        return hashlib.sha256(json.dumps(said).encode("utf-8", "surrogatepass")).hexdigest()


Change: TypeAlias = "ValueChange | TtlChange"


def digest_of(changes: Sequence[Change]) -> str:
    """Return the digest of several changes, in any order; of a single one its own."""
    digests = sorted(change.digest() for change in changes)
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def is_needed(change: Change, result: Compatibility) -> bool:
    """Return whether a change has an effect on a state of known compatibility."""
    return bool(change.expressions) or result.verdict is not Verdict.COMPATIBLE_AS_IS


def resolve_changes(
    record: SnapshotRecord, changes: Sequence[Change]
) -> list[tuple[Change, OperatorRecord, AnyState, Compatibility]]:
    """Return each change with its state, and the compatibility of the old values.

    Raises:
        NotFoundError: The snapshot has no such state.
        IncompatibleError: A state is given two types, or its time to live twice; or it is operator
            state, which has none.
    """
    resolved = [(change, *resolve_change(record, change)) for change in changes]
    tables = Counter((type(change), state.table) for change, _, state, _ in resolved)
    for change, operator, state, _ in resolved:
        if tables[type(change), state.table] > 1:
            what = "two types are" if isinstance(change, ValueChange) else "its TTL is twice"
            raise IncompatibleError(
                f"{what} given for it",
                place=f"state {operator.label}/{state.name}",
                remedy="name each state once, by its operator's uid or by its id",
            )
    return resolved


def resolve_change(
    record: SnapshotRecord, change: Change
) -> tuple[OperatorRecord, AnyState, Compatibility]:
    """Return the state of a change, and the compatibility of its old values.

    If a keyed and an operator state have the same name, it is the keyed one. There, a user's
    decoder makes possible what Flink refuses.

    Raises:
        NotFoundError: The snapshot has no such state.
        IncompatibleError: The time to live of operator state.
    """
    for operator in record.operators:
        if change.operator not in (operator.uid, operator.operator_id):
            continue
        for state in operator.states:
            if state.name == change.state and state.kind != "timers":
                info = parse_state_meta_info(state.meta_info, f"state {state.name!r}")
                if isinstance(change, TtlChange):
                    return operator, state, _resolve_switch(change, has_ttl(info))
                return operator, state, resolve_decoded(change.value, value_snapshot(info))
        for operator_state in operator.operator_states:
            if operator_state.name == change.state:
                if isinstance(change, TtlChange):
                    raise IncompatibleError(
                        "operator state has no time to live in Flink",
                        place=f"state {operator.label}/{operator_state.name}",
                        remedy="only keyed state can have it",
                    )
                resolved = resolve_element(operator_state.meta_info, change.value)
                return operator, operator_state, resolved
    names = [
        f"{operator.label}/{state.name}"
        for operator in record.operators
        for state in operator.all_states
    ]
    wanted = f"{change.operator}/{change.state}"
    raise NotFoundError(
        f"snapshot {record.snapshot_id} has no state {wanted}",
        remedy=f"it has: {', '.join(names) or 'none'}{did_you_mean(wanted, names)}",
    )


def _resolve_switch(change: TtlChange, is_on: bool) -> Compatibility:
    """Return what a switch does to a state that has time to live, or has not."""
    if change.on == is_on:
        return as_is()
    forms = ("with time to live", "without time to live")
    rule = f"last access is {change.last_access}" if change.on else "times of last access go"
    return migrate(forms[change.on], forms[not change.on], rule)


def read_ttl(ttl: str | Sequence[str], last_access: str = "now") -> list[TtlChange]:
    """Return the switches of time to live that a command asks for.

    Args:
        ttl: Each `operator/state=on` or `operator/state=off`.
        last_access: The times that values get: `now`, `taken_at`, or a field of the values.

    Raises:
        DeclarationError: One has another form.
    """
    switches = []
    for text in [ttl] if isinstance(ttl, str) else ttl:
        name, _, switch = text.rpartition("=")
        operator, _, state = name.partition("/")
        if switch not in ("on", "off") or not operator or not state:
            raise DeclarationError(
                f"{text!r} does not switch a state's TTL",
                remedy="write OPERATOR/STATE=on, or OPERATOR/STATE=off",
            )
        switches.append(TtlChange(operator, state, switch == "on", last_access))
    return switches


def read_changes(to: str | Sequence[str], state: str | Sequence[str] = ()) -> list[ValueChange]:
    """Return the changes that files describe.

    Args:
        to: The files, `.yaml`, `.yml`, `.json` or `.py`. A Python file is run.
        state: Only these states, each `operator/state`: of the only file; or as many as there are
            files, one of each.

    Raises:
        DeclarationError: There are several files, and not as many states.
        EncodeError: A file is not valid; the message names the place in it.
    """
    paths = [to] if isinstance(to, str) else list(to)
    named = [name for name in ([state] if isinstance(state, str) else state) if name]
    if len(paths) > 1 and len(named) not in (0, len(paths)):
        raise DeclarationError(
            f"{len(paths)} files and {len(named)} states",
            remedy="name one state for each file, in their order, or no state at all",
        )
    if len(paths) > 1 and named:
        return [_changes_of(path, [name])[0] for path, name in zip(paths, named, strict=True)]
    return [change for path in paths for change in _changes_of(path, named)]


def _changes_of(path: str, named: Sequence[str]) -> list[ValueChange]:
    """Return the changes of a file, of all its states or of those named."""
    states = _states(path, _load(path), named)
    for name in named:
        if name not in states:
            raise EncodeError(
                f"no change of {name} is given",
                place=path,
                remedy=f"it has: {', '.join(states)}{did_you_mean(name, states)}",
            )
    return [_change(path, name, states[name]) for name in dict.fromkeys(named or states)]


def _load(path: str) -> Mapping[str, Any]:
    remedy = "give a YAML or Python file that says what each state is to become"
    if not path.endswith(".py"):
        return read_yaml(path, "states", remedy)[0]
    try:
        return vars(load_plugin(path))
    except (OSError, ValueError, RecursionError) as error:
        raise EncodeError(
            f"it can't be read ({' '.join(str(error).split())})", place=path, remedy=remedy
        ) from error


def _states(path: str, content: Mapping[str, Any], named: Sequence[str]) -> Mapping[str, Any]:
    states = content.get("states")
    if states is None and "type" in content and named:
        one = {name: content[name] for name in ("type", "expressions") if name in content}
        return dict.fromkeys(named, one)
    if not isinstance(states, Mapping) or not states:
        raise EncodeError("no state is given", place=path, remedy="add `states:`")
    return states


def _change(path: str, name: str, fields: Any) -> ValueChange:
    operator, _, state = str(name).partition("/")
    if not isinstance(fields, Mapping) or "type" not in fields or not state:
        raise EncodeError(
            f"states: {name}: not of the form operator/state: {{type: ...}}", place=path
        )
    try:
        value = parse_type(fields["type"])
    except StateError as error:
        raise error.within(f"{path}, {name}") from error
    expressions = fields.get("expressions") or {}
    if isinstance(expressions, str):
        expressions = {"": expressions}
    if not isinstance(expressions, Mapping):
        raise EncodeError(f"{name}: `expressions` is no mapping of fields to SQL", place=path)
    asked = {name: str(text) for name, text in expressions.items()}
    return ValueChange(operator, state, value, asked, fields["type"])
