"""The new types of states, as a user gives them: in a small YAML, JSON or Python file.

::

    states:
      customers/customer:                     # operator uid / state name
        type: {pojo: com.acme.Customer, fields: {id: Long, name: String, full_name: String}}
        expressions:                          # only for what Flink can't convert
          full_name: concat(old.first, ' ', old.last)
      rules/rules:                            # operator state: a list's elements, or the values
        type: Long                            # of a broadcast state, whose keys stay

`drop: [FIELD]` lets fields go that the new type does not have. What `statelake types` prints has
more, which no migration changes and which is held to the snapshot: of a state its `kind`,
`map_key`, `namespace` and `ttl`, and at the top the `keys` of operators. Any other entry is
refused.

A Python file has the same as a module-level `states`, and may register serializers and decoders:
it is loaded as a plugin. One state alone may be given without its name, as `type` and
`expressions`.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa

from statelake.pipelines.lake.catalog.unmanaged_state import refuse_unmanaged_keyed
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
from statelake.state_core.formats.layout.meta_info import (
    StateMetaInfo,
    parse_key_serializer,
    parse_state_meta_info,
)
from statelake.state_core.formats.layout.state_types import HELD, StateType
from statelake.state_core.formats.rewriting.ttl_switch import times_in
from statelake.state_core.formats.rewriting.value_migration import resolve_element
from statelake.state_core.nested import column_path, field_path
from statelake.state_core.serializers.composite.evolution import resolve_decoded
from statelake.state_core.serializers.composite.pojo_compatibility import FIELD_GONE
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import (
    Compatibility,
    Reason,
    Verdict,
    as_is,
    migrate,
)
from statelake.state_core.serializers.framework.plugins import load_plugin
from statelake.state_core.serializers.framework.registry import write_serializer_snapshot
from statelake.state_core.serializers.type_differences import mentions
from statelake.state_core.serializers.type_spec import TypeSpec, parse_type, type_text

ENTRIES = ("type", "expressions", "drop", *HELD)  # of a state in a file

NOW, TAKEN_AT = "now", "taken_at"
BY_EXPRESSION = "by an expression"


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
        drops: The fields that may be lost, by path; None if any may.
        expected: What the file has of the state that a migration leaves as it is, as in `HELD`,
            and its operator's `key`.
    """

    operator: str
    state: str
    value: TypeSerializerSnapshot
    expressions: Mapping[str, str] = field(default_factory=dict)
    spec: TypeSpec | None = None
    drops: frozenset[str] | None = None
    expected: Mapping[str, Any] = field(default_factory=dict)

    def digest(self) -> str:
        """The digest of the change, which differs for another state, type or expression."""
        value = DataOutput()
        write_serializer_snapshot(self.value, value)
        identity = [
            self.operator,
            self.state,
            value.to_bytes().hex(),
            dict(self.expressions),
            self.spec,
        ]
        text = json.dumps(identity, sort_keys=True, default=str)
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
    last_access: str = NOW
    expressions: ClassVar[Mapping[str, str]] = {}

    @property
    def from_field(self) -> bool:
        """Return whether a field of the values has the times."""
        return self.on and self.last_access not in (NOW, TAKEN_AT)

    def digest(self) -> str:
        """The digest of the change; of all times `now` it is the same."""
        identity = ["ttl", self.operator, self.state, self.on, self.last_access if self.on else ""]
        return hashlib.sha256(json.dumps(identity).encode("utf-8", "surrogatepass")).hexdigest()


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


def by_expressions(change: Change, result: Compatibility) -> Compatibility:
    """Return the same verdict, whose reasons say where an expression gives the new values."""

    def told(reason: Reason) -> Reason:
        path, names = f"{reason.path}.", change.expressions
        given = any(path.startswith(f"{name}." if name else "") for name in names)
        return replace(reason, rule=BY_EXPRESSION) if given else reason

    return replace(result, reasons=tuple(map(told, result.reasons)))


def resolve_changes(
    record: SnapshotRecord, changes: Sequence[Change]
) -> list[tuple[Change, OperatorRecord, AnyState, Compatibility]]:
    """Return each change with its state, and the compatibility of the old values.

    Raises:
        NotFoundError: The snapshot has no such state.
        IncompatibleError: A state is given two types, or its time to live twice; or it is operator
            state, which has none.
    """
    switches = {(c.operator, c.state): c.on for c in changes if isinstance(c, TtlChange)}
    resolved = [(c, *resolve_change(record, _without_switch(c, switches))) for c in changes]
    tables = Counter((type(change), state.table) for change, _, state, _ in resolved)
    for change, operator, state, _ in resolved:
        if tables[type(change), state.table] > 1:
            what = "two types are" if isinstance(change, ValueChange) else "its TTL is twice"
            raise IncompatibleError(
                f"{what} given for it",
                place=f"state {operator.label}/{state.name}",
                remedy="name each state once, by its operator's uid or by its id",
            )
    types = {
        state.table: change.value
        for change, _, state, _ in resolved
        if isinstance(change, ValueChange)
    }
    for change, operator, state, result in resolved:
        name = f"{operator.label}/{state.name}"
        if isinstance(change, ValueChange):
            _refuse_losses(change, name, result, _values_of(state).arrow_type)
        elif change.from_field and is_needed(change, result):
            given = types.get(state.table)
            value = _values_of(state) if given is None else given.restore_serializer()
            try:
                times_in(pa.array([], value.arrow_type), change.last_access)
            except StateError as error:
                raise error.within(f"state {name}") from error
    return resolved


def _without_switch(change: Change, switches: Mapping[tuple[str, str], bool]) -> Change:
    """Return a change without a check of the old TTL, if a switch sets the TTL of the file."""
    if isinstance(change, TtlChange) or "ttl" not in change.expected:
        return change
    if switches.get((change.operator, change.state)) is not change.expected["ttl"]:
        return change
    expected = {name: value for name, value in change.expected.items() if name != "ttl"}
    return replace(change, expected=expected)


def _values_of(state: AnyState) -> TypeSerializer:
    """Return the serializer of a state's values, as they are."""
    info = parse_state_meta_info(state.meta_info, f"state {state.name!r}")
    return value_snapshot(info).restore_serializer()


def _refuse_losses(change: ValueChange, name: str, result: Compatibility, old: pa.DataType) -> None:
    """Refuse a change that loses a field of the old type that no change names.

    A field that an expression names, by its column, is not lost, nor is one below a value that has
    an expression.

    Raises:
        IncompatibleError: A field is lost.
    """
    if change.drops is None or "" in change.expressions:
        return
    named = [field_path(old, path) for path in (*change.drops, *change.expressions)]
    lost = [
        reason.path
        for reason in result.reasons
        if reason.rule == FIELD_GONE
        and not any(_within(reason.path, path) for path in named)
        and not any(
            mentions(sql, column_path(old, reason.path).rpartition(".")[2])
            for sql in change.expressions.values()
        )
    ]
    if lost:
        raise IncompatibleError(
            f"the new type lacks {', '.join(map(repr, lost))}, whose values would be lost",
            place=f"state {name}",
            remedy=f"if they are to go, say --drop-field {name}.{lost[0]}, or in the file"
            f" `drop: [{', '.join(lost)}]`; otherwise add them to the type",
        )


def _within(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}.")


def resolve_change(
    record: SnapshotRecord, change: Change
) -> tuple[OperatorRecord, AnyState, Compatibility]:
    """Return the state of a change, and the compatibility of its old values.

    If a keyed and an operator state have the same name, it is the keyed one. There, a user's
    decoder makes possible what Flink refuses.

    Raises:
        NotFoundError: The snapshot has no such state.
        UnsupportedFormatError: It is keyed state of an operator that is kept as bytes.
        IncompatibleError: The time to live of operator state.
    """
    for operator in record.operators:
        if change.operator not in operator.labels:
            continue
        for state in operator.states:
            if state.name == change.state and state.kind != "timers":
                info = parse_state_meta_info(state.meta_info, f"state {state.name!r}")
                if isinstance(change, TtlChange):
                    return operator, state, _resolve_switch(change, has_ttl(info))
                _refuse_unlike(change, operator, info)
                return operator, state, resolve_decoded(change.value, value_snapshot(info))
        for operator_state in operator.operator_states:
            if operator_state.name == change.state:
                if isinstance(change, TtlChange):
                    raise IncompatibleError(
                        "operator state has no time to live in Flink",
                        place=f"state {operator.label}/{operator_state.name}",
                        remedy="only keyed state can have it",
                    )
                _refuse_unlike(change, operator, parse_state_meta_info(operator_state.meta_info))
                resolved = resolve_element(operator_state.meta_info, change.value)
                return operator, operator_state, resolved
    names = [
        f"{operator.label}/{state.name}"
        for operator in record.operators
        for state in operator.all_states
    ]
    wanted = f"{change.operator}/{change.state}"
    refuse_unmanaged_keyed(record, wanted)
    raise NotFoundError(
        f"snapshot {record.snapshot_id} has no state {wanted}",
        remedy=f"it has: {', '.join(names) or 'none'}{did_you_mean(wanted, names)}",
    )


def value_before(record: SnapshotRecord, operator: str, state: str) -> TypeSerializerSnapshot:
    """Return the serializer snapshot of a state's values, as the snapshot has them."""
    unchanged = ValueChange(operator, state, parse_type("Void"))
    return value_snapshot(parse_state_meta_info(resolve_change(record, unchanged)[1].meta_info))


def _resolve_switch(change: TtlChange, is_on: bool) -> Compatibility:
    """Return what a switch does to a state that has time to live, or has not."""
    if change.on == is_on:
        return as_is()
    forms = ("with TTL", "without TTL")
    rule = f"last access {change.last_access}" if change.on else "times of last access removed"
    return migrate(forms[change.on], forms[not change.on], rule).under(change.state)


def read_ttl(ttl: str | Sequence[str], last_access: str = NOW) -> list[TtlChange]:
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


def _refuse_unlike(change: ValueChange, operator: OperatorRecord, info: StateMetaInfo) -> None:
    """Refuse a file that says of a state what it is not, and what no migration changes.

    Raises:
        IncompatibleError: The file says another kind, key or namespace, or another time to live.
    """
    if not change.expected:
        return
    actual = asdict(StateType.of(info))
    if "key" in change.expected:
        key = operator.key_serializer and parse_key_serializer(operator.key_serializer).snapshot
        actual["key"] = key and type_text(key)
    for name, expected in change.expected.items():
        if expected != actual[name]:
            switch = f"{change.operator}/{change.state}={'on' if expected else 'off'}"
            remedy = f"switch it with --ttl {switch}, or " if name == "ttl" else ""
            raise IncompatibleError(
                f"its {name} is {actual[name] or 'none'}, and {expected} in the file: a file gives"
                " new types to values alone",
                place=f"state {operator.label}/{info.name}",
                remedy=f"{remedy}leave `{name}` out of the file, or print it again with"
                " `statelake types`",
            )


def read_types(path: str) -> Mapping[str, Any]:
    """Return the content of a file of types, all of whose entries are known.

    Raises:
        EncodeError: The file is not valid.
    """
    content = _load(path)
    for name, entry in _states(path, content, ()).items():
        _change(path, name, entry, content.get("keys"))
    return content


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
    content = _load(path)
    states = _states(path, content, named)
    for name in named:
        if name not in states:
            raise EncodeError(
                f"no change of {name} is given",
                place=path,
                remedy=f"it has: {', '.join(states)}{did_you_mean(name, states)}",
            )
    keys = content.get("keys")
    return [_change(path, name, states[name], keys) for name in dict.fromkeys(named or states)]


def _load(path: str) -> Mapping[str, Any]:
    remedy = "give a YAML or Python file that says what each state is to become"
    if not path.endswith(".py"):
        content = read_yaml(path, "states", remedy)[0]
        _refuse_unknown(path, content, ENTRIES if "type" in content else ("keys", "states"))
        return content
    try:
        return vars(load_plugin(path))
    except (OSError, ValueError, RecursionError) as error:
        raise EncodeError(
            f"it can't be read ({' '.join(str(error).split())})", place=path, remedy=remedy
        ) from error


def _states(path: str, content: Mapping[str, Any], named: Sequence[str]) -> Mapping[str, Any]:
    states = content.get("states")
    if states is None and "type" in content and named:
        one = {name: content[name] for name in ENTRIES if name in content}
        return dict.fromkeys(named, one)
    if not isinstance(states, Mapping) or not states:
        raise EncodeError("no state is given", place=path, remedy="add `states:`")
    return states


def _refuse_unknown(place: str, content: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse an entry of a mapping that is not known.

    Raises:
        EncodeError: There is one.
    """
    for name in content:
        if name not in known:
            raise EncodeError(
                f"`{name}` is no entry here",
                place=place,
                remedy=f"there may be: {', '.join(known)}{did_you_mean(str(name), known)}",
            )


def _change(path: str, name: str, fields: Any, keys: Any) -> ValueChange:
    operator, _, state = str(name).partition("/")
    if not isinstance(fields, Mapping) or "type" not in fields or not state:
        raise EncodeError(
            f"states: {name}: not of the form operator/state: {{type: ...}}", place=path
        )
    _refuse_unknown(f"{path}, {name}", fields, ENTRIES)
    if not isinstance(keys or {}, Mapping):
        raise EncodeError("`keys` is no mapping of operators to types", place=path)
    try:
        value = parse_type(fields["type"])
        expected = {part: fields[part] for part in HELD if fields.get(part) is not None}
        expected |= {"key": keys[operator]} if operator in (keys or {}) else {}
        for part in ("map_key", "namespace", "key"):
            if part in expected:
                expected[part] = type_text(parse_type(expected[part]))
    except StateError as error:
        raise error.within(f"{path}, {name}") from error
    expressions = fields.get("expressions") or {}
    if isinstance(expressions, str):
        expressions = {"": expressions}
    if not isinstance(expressions, Mapping):
        raise EncodeError(f"{name}: `expressions` is no mapping of fields to SQL", place=path)
    drops = fields.get("drop") or []
    if not isinstance(drops, list):
        raise EncodeError(f"{name}: `drop` is no list of fields", place=path)
    texts = {name: str(text) for name, text in expressions.items()}
    return ValueChange(
        operator, state, value, texts, fields["type"], frozenset(map(str, drops)), expected
    )
