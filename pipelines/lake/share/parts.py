"""The parts of a column that nothing is nested in, and what writes each of them.

A rule of a mask is settled for each part before anything is written: the nearest one that holds it
says what becomes of it, and a part that no rule holds is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa

from statelake.pipelines.lake.share.masking import (
    ALL_COLUMNS,
    CONSTANT,
    ELEMENTS,
    FORMAT,
    HASH,
    KEEP,
    NULL,
    MaskRule,
    check_rule,
)
from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataOutput
from statelake.state_core.serializers.avro.schema_types import AvroEnum
from statelake.state_core.serializers.basic.enums import EnumSerializer
from statelake.state_core.serializers.basic.values import ConstantSerializer
from statelake.state_core.serializers.composite.namespaces import (
    SingletonSerializer,
    TimeWindowSerializer,
)
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.kryo.columns import EnumColumn, JsonColumn
from statelake.state_core.serializers.sql.binary.sections import EMPTY_ROW

Steps: TypeAlias = tuple[str, ...]
OURS = "statelake.state_core.serializers."
MOST_WRAPPERS = 64
_ENUMS = (EnumSerializer, AvroEnum, EnumColumn)
_OF_ONE_VALUE = (SingletonSerializer, ConstantSerializer)
_HASHED = "0f" * 16  # what a hash looks like


@dataclass(frozen=True)
class Part:
    """A part that nothing is nested in.

    Attributes:
        steps: What leads to it from its column.
        kind: Its type in the column.
        writer: What writes it; None if only what it stands in does.
        role: What it says that can be kept alone: the branch of a union. Empty for any other.
    """

    steps: Steps
    kind: pa.DataType
    writer: object
    role: str = ""

    def refusal(self, rule: MaskRule) -> str:
        """What it is, where that can't follow a rule; empty if it can."""
        how = rule.how
        if how == CONSTANT and isinstance(self.writer, _ENUMS):
            constants = self._constants
            known = not constants or rule.constant in constants or rule.steps != self.steps
            return "" if known else "an enum without that constant"
        if how not in (FORMAT, HASH):
            return ""
        if isinstance(self.writer, _ENUMS):
            return "an enum"
        if isinstance(self.writer, JsonColumn):
            return "JSON of any class"
        if self.role:
            return self.role
        if how == HASH and pa.types.is_string(self.kind) and not _writes(self.writer, _HASHED):
            return f"a text of {getattr(self.writer, 'name', 'its own form')}"
        return ""

    @property
    def advice(self) -> Any:
        """A rule that it can follow."""
        if self.role:
            return KEEP
        try:
            check_rule(MaskRule("", (), FORMAT), self.kind)
        except EncodeError:
            return {CONSTANT: False} if pa.types.is_boolean(self.kind) else None
        if not self.refusal(MaskRule("", self.steps, FORMAT)):
            return FORMAT
        return {CONSTANT: self._constants[0]} if self._constants else KEEP

    @property
    def _constants(self) -> Sequence[str]:
        """The constants of an enum; nothing where they are not known."""
        names: Sequence[str] = getattr(self.writer, "constants", ())
        return names or getattr(self.writer, "symbols", ())


@dataclass(frozen=True)
class ColumnParts:
    """A column of a state, and what writes it.

    Attributes:
        name: Its name.
        kind: Its type.
        writer: The serializer of its values, or of the elements of a list of them.
        apart: Whether what is different has to stay so, as keys have to.
    """

    name: str
    kind: pa.DataType
    writer: TypeSerializer
    apart: bool = False

    @property
    def says_nothing(self) -> bool:
        """Whether its type has one value alone."""
        return not self.parts

    @property
    def parts(self) -> list[Part]:
        """All that it is made of."""
        if self.writer.arrow_type != self.kind and pa.types.is_list(self.kind):
            return list(_parts(self.writer, self.kind.value_type, (ELEMENTS,)))
        return list(_parts(self.writer, self.kind, ()))


@dataclass(frozen=True)
class Settled:
    """What becomes of a column.

    Attributes:
        rules: What is done to it; nothing if all of it is kept by one rule.
        unnamed: The parts that no rule holds.
        parts: How many parts it has.
    """

    rules: tuple[MaskRule, ...]
    unnamed: list[Part]
    parts: int


def settle(rules: Sequence[MaskRule], column: ColumnParts) -> Settled:
    """Find the rule of each part of a column: the nearest that holds it.

    Raises:
        EncodeError: A rule names no part, or a part can't follow its rule.
    """
    if column.says_nothing:
        return Settled((), [], 0)
    said = {rule.steps: rule for rule in rules if rule.column in (ALL_COLUMNS, column.name)}
    said |= {rule.steps: rule for rule in rules if rule.column == column.name}
    said = {steps: replace(rule, column=column.name) for steps, rule in said.items()}
    settled: list[MaskRule] = []
    unnamed: list[Part] = []
    parts = column.parts
    _settle(said, (), None, parts, settled, unnamed)
    for rule in said.values():  # that there is such a part
        check_rule(replace(rule, how=KEEP), column.kind)
    for rule in settled:
        if rule.how == KEEP:
            continue
        for part in parts:
            if part.steps[: len(rule.steps)] == rule.steps and part.refusal(rule):
                raise _refused(replace(rule, steps=part.steps), part.refusal(rule))
        check_rule(rule, column.kind, apart=column.apart)
    whole = [rule.steps for rule in settled if rule.how == KEEP] == [()]
    return Settled(() if whole else tuple(settled), unnamed, len(parts))


def _refused(rule: MaskRule, what: str) -> EncodeError:
    return EncodeError(
        f"{rule} is {what}, which can't be masked by {rule.how}",
        remedy="give it a rule of its own: keep, or null or a constant if it is no key",
    )


def _settle(
    said: Mapping[Steps, MaskRule],
    steps: Steps,
    above: MaskRule | None,
    parts: Sequence[Part],
    settled: list[MaskRule],
    unnamed: list[Part],
) -> None:
    """Settle the rules of those parts that some steps lead to."""
    rule = said.get(steps, above)
    within = [each for each in said if len(each) > len(steps) and each[: len(steps)] == steps]
    if rule is not None and within and rule.how in (NULL, CONSTANT):
        raise EncodeError(
            f"{said[within[0]]} is said to become something by itself, within what becomes"
            f" {rule.how}",
            remedy="keep one of the two rules",
        )
    if rule is not None and not within:
        settled.append(replace(rule, steps=steps))
        return
    if rule is None and not within:
        unnamed += parts
        return
    for step in dict.fromkeys(part.steps[len(steps)] for part in parts if part.steps != steps):
        deeper = [part for part in parts if part.steps[len(steps) : len(steps) + 1] == (step,)]
        _settle(said, (*steps, step), rule, deeper, settled, unnamed)


# ------------------------------------------------------------------------ what writes which part


def _parts(writer: object, kind: pa.DataType, steps: Steps) -> Iterator[Part]:
    """All parts of a type, with what writes them, as far as the serializers tell."""
    writer = _unwrapped(writer, kind)
    if kind in (pa.null(), EMPTY_ROW) or isinstance(writer, _OF_ONE_VALUE):
        return
    if not pa.types.is_nested(kind):
        yield Part(steps, kind, writer)
    elif pa.types.is_struct(kind):
        writers = _writers_of_fields(writer, kind)
        ours = type(writer).__module__.startswith(OURS)
        window = isinstance(writer, TimeWindowSerializer)
        role = "a bound of a window" if window else "what says which of the fields is used"
        for field in kind:
            within = writers.get(field.name)
            for part in _parts(within, field.type, (*steps, field.name)):
                yield replace(part, role=role) if ours and (window or within is None) else part
    elif pa.types.is_map(kind):
        for step, column, nested in (
            ("key", "keys", kind.key_type),
            ("value", "items", kind.item_type),
        ):
            of_column = getattr(getattr(writer, column, None), "element", None)
            yield from _parts(getattr(writer, step, of_column), nested, (*steps, ELEMENTS, step))
    else:
        nested = kind.value_type
        within = next((each for _, each in _members(writer) if each.arrow_type == nested), writer)
        yield from _parts(within, nested, (*steps, ELEMENTS))


def _unwrapped(writer: object, kind: pa.DataType) -> object:
    """What writes values of a type within all that wraps it: nullability, a section, a decoder."""
    for _ in range(MOST_WRAPPERS):
        inner = [each for _, each in _members(writer) if each.arrow_type == kind]
        if not inner:
            break
        writer = inner[0]
    return writer


def _writers_of_fields(writer: object, kind: pa.StructType) -> dict[str, object]:
    """What writes the fields of a struct, by their names, or else by their order from the end."""
    members = _members(writer)
    named = {
        name: each
        for name, each in members
        if kind.get_field_index(name) >= 0 and kind.field(name).type == each.arrow_type
    }
    if named:
        return named
    fields = list(kind)[-len(members) :] if members else []
    if [field.type for field in fields] != [each.arrow_type for _, each in members]:
        return {}
    return {field.name: each for field, (_, each) in zip(fields, members, strict=True)}


def _members(writer: object) -> list[tuple[str, Any]]:
    """The writers that one has, and the names under which it has them."""
    return [] if writer is None else list(_flat("", getattr(writer, "__dict__", {})))


def _flat(name: str, value: object, depth: int = 3) -> Iterator[tuple[str, Any]]:
    if hasattr(value, "arrow_type") and not isinstance(value, type):
        yield name, value
    elif depth and isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flat(str(key), each, depth - 1)
    elif depth and isinstance(value, list | tuple):
        if len(value) == 2 and isinstance(value[0], str):
            yield from _flat(value[0], value[1], depth - 1)
        else:
            for each in value:
                yield from _flat("", each, depth - 1)


def _writes(writer: object, value: object) -> bool:
    """Whether a serializer takes a value; one that is not known may."""
    if not isinstance(writer, TypeSerializer):
        return True
    try:
        writer.write(value, DataOutput())
    except EncodeError:
        return False
    return True
