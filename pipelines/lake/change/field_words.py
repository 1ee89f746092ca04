"""New types of states in words: fields added, renamed, dropped, and values of another type.

::

    customers/customer.country=String        add a field, whose default is SQL
    customers/customer.name=full_name        rename one
    customers/customer.balance               drop one
    customers/customer.points=Long           change its type; without a field, that of the value

Words apply to the type that a file gives to the state, or else to the type that it has, so that no
word has to repeat what stays. A field of a POJO in a POJO is named by its path, `address.zip`.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import yaml

from statelake.pipelines.lake.catalog.unmanaged_state import refuse_unmanaged_keyed
from statelake.pipelines.lake.change.changes import Change, ValueChange, value_before
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.pipelines.requests.changes import Migrate
from statelake.pipelines.requests.request import options_of
from statelake.state_core.errors import (
    DeclarationError,
    IncompatibleError,
    NotFoundError,
    StateError,
    did_you_mean,
)
from statelake.state_core.nested import column_path, field_path
from statelake.state_core.serializers.composite.evolution import resolve_decoded
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.type_differences import initial_value, short_text
from statelake.state_core.serializers.type_spec import TypeSpec, parse_type, type_text

FORMS = {each.name: each.placeholder for each in options_of(Migrate)}


def apply_words(
    request: Migrate, record: SnapshotRecord, given: Sequence[Change] = ()
) -> list[Change]:
    """Return the changes of a snapshot's states, those that were given otherwise included.

    Raises:
        NotFoundError: There is no such state or field.
        DeclarationError: Words are not of their form, or a type can't be parsed; or there are
            defaults, and not as many as added fields.
        IncompatibleError: The type of a state can't be written as text.
    """
    defaults = request.default
    if defaults and len(defaults) != len(request.add_field):
        raise DeclarationError(
            f"{len(defaults)} defaults for {len(request.add_field)} added fields",
            remedy="give one --default for each --add-field, in their order, or none;"
            " --expression STATE.FIELD=SQL is for one of them",
        )
    drafts = _Drafts(record, [each for each in given if isinstance(each, ValueChange)])
    for index, word in enumerate(request.add_field):
        draft, path, text = drafts.of("add_field", word)
        draft.add(path, _type(text, word), defaults[index] if defaults else "")
    for word in request.rename_field:
        draft, path, name = drafts.of("rename_field", word)
        draft.rename(path, name)
    for word in request.drop_field:
        draft, path, _ = drafts.of("drop_field", word)
        draft.drop(path)
    for word in request.change:
        draft, path, text = drafts.of("change", word)
        draft.change(path, _type(text, word))
    for word in request.expression:
        draft, path, text = drafts.of("expression", word)
        draft.expressions[path] = text
    return [
        *drafts.changes(),
        *(each for each in given if not isinstance(each, ValueChange)),
    ]


def _type(text: str, word: str) -> TypeSpec:
    """Return a type as text; a mapping is YAML in braces."""
    try:
        spec: TypeSpec = yaml.safe_load(text) if text.startswith("{") else text
        parse_type(spec)
    except StateError as error:
        raise error.within(word) from error
    except yaml.YAMLError as error:
        raise DeclarationError(f"{text!r} is no type, and no YAML", place=word) from error
    return spec


@dataclass
class _Draft:
    """The new type of one state, as words change it."""

    name: str
    change_of: ValueChange
    before: TypeSerializerSnapshot
    spec: Any
    drops: set[str] = field(default_factory=set)
    added: dict[str, TypeSpec] = field(default_factory=dict)
    expressions: dict[str, str] = field(default_factory=dict)

    def add(self, path: str, spec: TypeSpec, default: str) -> None:
        """Add a field."""
        fields, name = self._fields(path)
        if name in fields:
            raise DeclarationError(
                f"there is a field {path!r} of {short_text(fields[name])} already",
                place=f"state {self.name}",
                remedy="--change gives it another type",
            )
        fields[name] = self.added[path] = spec
        if default:
            self.expressions[path] = default

    def rename(self, path: str, name: str) -> None:
        """Rename a field, which keeps its values."""
        parent = self._holder(path)
        fields, old = parent["fields"], self._known(path)
        if name in fields:
            raise DeclarationError(f"there is a field {name!r} already", place=f"state {self.name}")
        parent["fields"] = {name if each == old else each: fields[each] for each in fields}
        above = parent.get("declared_in", {})
        if old in above:
            above[name] = above.pop(old)
        self.expressions[f"{path[: -len(old)]}{name}"] = self._sql(path)

    def drop(self, path: str) -> None:
        """Drop a field, which a file may have left out already."""
        parent = self._holder(path)
        name = path.rpartition(".")[2]
        if name not in parent["fields"] and not self.is_from_file:
            self._known(path)
        parent["fields"].pop(name, None)
        parent.get("declared_in", {}).pop(name, None)
        self.drops.add(path)

    def change(self, path: str, spec: TypeSpec) -> None:
        """Give a field or the whole value another type: by SQL if Flink would not convert it."""
        if path:
            name = self._known(path)
            self._holder(path)["fields"][name] = spec
        else:
            self.spec = spec
        old = _part(self.before, path)
        if old is None or not resolve_decoded(parse_type(spec), old).usable:
            self.expressions.setdefault(path, self._sql(path))

    @property
    def kind(self) -> pa.DataType:
        """The type of the old values in their column."""
        return self.before.restore_serializer().arrow_type

    def _sql(self, path: str) -> str:
        """Return a path into the old value as SQL."""
        parts = column_path(self.kind, path).split(".") if path else []
        return "old" + "".join(f"[{literal(part)}]" for part in parts)

    @property
    def is_from_file(self) -> bool:
        """Return whether a file gives the type."""
        return self.change_of.spec is not None

    def result(self) -> ValueChange:
        """Return the change."""
        given = self.change_of
        expressions = {**given.expressions, **self.expressions}
        if expressions and "" not in expressions:
            for path, spec in self.added.items():
                expressions.setdefault(path, initial_value(spec))
        try:
            value = parse_type(self.spec)
        except StateError as error:
            raise error.within(f"state {self.name}") from error
        drops = frozenset(self.drops) | (given.drops or frozenset())
        return replace(given, value=value, spec=self.spec, expressions=expressions, drops=drops)

    def _holder(self, path: str) -> dict[str, Any]:
        """Return the POJO that has, or is to have, the field of a path."""
        spec = self.spec
        for name in path.split(".")[:-1]:
            spec = spec["fields"].get(name) if _is_pojo(spec) else None
        if not _is_pojo(spec):
            where = path.rpartition(".")[0]
            raise IncompatibleError(
                f"{f'its field {where!r}' if where else 'its value'} has no fields that words"
                f" can change: it is {short_text(spec) if spec is not None else 'not there'}",
                place=f"state {self.name}",
                remedy="words change fields of POJOs; print the type with `statelake types`, change"
                " it, and give the file as --to",
            )
        holder: dict[str, Any] = spec
        return holder

    def _fields(self, path: str) -> tuple[dict[str, Any], str]:
        return self._holder(path)["fields"], path.rpartition(".")[2]

    def _known(self, path: str) -> str:
        fields, name = self._fields(path)
        if name not in fields:
            raise NotFoundError(
                f"state {self.name} has no field {path!r}",
                remedy=f"it has: {', '.join(fields)}{did_you_mean(name, list(fields))}",
            )
        return name


def _is_pojo(spec: Any) -> bool:
    return isinstance(spec, dict) and "pojo" in spec


def _part(snapshot: TypeSerializerSnapshot, path: str) -> TypeSerializerSnapshot | None:
    """Return the serializer snapshot of a field; None if it can't be found."""
    for name in path.split(".") if path else ():
        entries = getattr(getattr(snapshot, "pojo", None), "fields", ())
        value = next((entry.value for entry in entries if entry.name == name), None)
        if value is None or value.snapshot is None:
            return None
        snapshot = value.snapshot
    return snapshot


def literal(text: str) -> str:
    """Return text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


class _Drafts:
    """The drafts of a snapshot's states, by their names."""

    def __init__(self, record: SnapshotRecord, given: Sequence[ValueChange]) -> None:
        self.record = record
        self.names: dict[str, tuple[str, str]] = {}  # by each name: the operator's label, the state
        for operator in record.operators:
            for state in operator.all_states:
                if getattr(state, "kind", "") != "timers":
                    for label in operator.labels:
                        self.names[f"{label}/{state.name}"] = (operator.label, state.name)
        self.given = {
            self.names.get(f"{each.operator}/{each.state}", (each.operator, each.state)): each
            for each in given
        }
        self.drafts: dict[tuple[str, str], _Draft] = {}

    def of(self, option: str, word: str) -> tuple[_Draft, str, str]:
        """Return the draft that words are about, the field's path, and what is behind `=`.

        The longest name of a state with which they begin counts, as names may have dots.
        """
        path_optional = option in ("change", "expression")
        ends = ".=" if path_optional else "."
        fitting = [
            name for name in self.names if word.startswith(name) and word[len(name) :][:1] in ends
        ]
        fitting = [name for name in fitting if len(word) > len(name)]
        if not fitting:
            refuse_unmanaged_keyed(self.record, word)
            names = sorted(f"{label}/{state}" for label, state in set(self.names.values()))
            raise NotFoundError(
                f"{word!r} begins with no state of snapshot {self.record.snapshot_id}, and is to be"
                f" {FORMS[option]}",
                remedy=f"it has: {', '.join(names) or 'none'}{did_you_mean(word, names)}",
            )
        name = max(fitting, key=len)
        path, equals, text = word[len(name) :].removeprefix(".").partition("=")
        needs = option != "drop_field"
        if bool(equals and text.strip()) != needs or not (path or path_optional):
            raise DeclarationError(f"{word!r} is not {FORMS[option]}")
        draft = self._draft(self.names[name])
        within, dot, last = path.strip().rpartition(".")
        if option == "add_field":  # which may have the name of another field's column
            return draft, f"{field_path(draft.kind, within)}{dot}{last}", text.strip()
        return draft, field_path(draft.kind, path.strip()), text.strip()

    def _draft(self, key: tuple[str, str]) -> _Draft:
        draft = self.drafts.get(key)
        if draft is not None:
            return draft
        name = "/".join(key)
        before = value_before(self.record, *key)
        change = self.given.get(key)
        spec = type_text(before) if change is None else change.spec
        if spec is None:
            raise IncompatibleError(
                f"{before.type_name} has no text, so that words can't change it",
                place=f"state {name}",
                remedy="give its new type as a whole, as --to FILE",
            )
        if change is None:
            change = ValueChange(*key, before)
        made = _Draft(name, change, before, deepcopy(spec))
        self.drafts[key] = made
        return made

    def changes(self) -> list[ValueChange]:
        """Return all changes: those from files first."""
        drafts = dict(self.drafts)
        changed = [
            drafts.pop(key).result() if key in drafts else change
            for key, change in self.given.items()
        ]
        return changed + [draft.result() for draft in drafts.values()]
