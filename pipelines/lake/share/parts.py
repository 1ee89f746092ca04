"""The leaf parts of a column, and the serializer of each.

The rule of each part is chosen before anything is written: it is the nearest one that includes the
part, and a part without a rule is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from statelake.pipelines.lake.share.masking import (
    ALL_COLUMNS,
    CONSTANT,
    FORMAT,
    HASH,
    KEEP,
    NULL,
    MaskRule,
    check_rule,
)
from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataOutput
from statelake.state_core.nested import ELEMENTS, Steps, is_list
from statelake.state_core.serializers.basic.enums import EnumSerializer
from statelake.state_core.serializers.basic.values import ConstantSerializer
from statelake.state_core.serializers.composite.wrappers import (
    SingletonSerializer,
    TimeWindowSerializer,
)
from statelake.state_core.serializers.contents.avro_messages import AvroMessages
from statelake.state_core.serializers.contents.json_texts import JSON, Leaf
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.kryo.columns import EnumColumn, JsonColumn
from statelake.state_core.serializers.sql.binary.sections import EMPTY_ROW

OURS = "statelake.state_core.serializers."
MOST_WRAPPERS = 64
_ENUMS = (EnumSerializer, EnumColumn)
_OF_ONE_VALUE = (SingletonSerializer, ConstantSerializer)
_HASHED = "0f" * 16  # an example of a hash


@dataclass(frozen=True)
class Part:
    """A leaf part of a column.

    Attributes:
        steps: The path to it from its column.
        kind: Its type in the column.
        writer: Its serializer; None if only the enclosing one writes it.
        role: Its role if its only possible rule is `keep`, such as the branch of a union; otherwise
            empty.
    """

    steps: Steps
    kind: pa.DataType
    writer: object
    role: str = ""

    def refusal(self, rule: MaskRule) -> str:
        """Return why it can't follow a rule, as its kind; empty if it can."""
        how = rule.how
        if how == CONSTANT and isinstance(self.writer, _ENUMS):
            constants = self._constants
            known = not constants or rule.constant in constants or rule.steps != self.steps
            return "" if known else "an enum without that constant"
        if how not in (FORMAT, HASH):
            return ""
        if isinstance(self.writer, _ENUMS):
            return "an enum"
        of_contents = isinstance(self.writer, Leaf) and self.writer.kind == JSON
        if of_contents or isinstance(self.writer, JsonColumn):
            return "JSON of any class"
        if self.role:
            return self.role
        if how == HASH and pa.types.is_string(self.kind) and not _writes(self.writer, _HASHED):
            return f"a text of {getattr(self.writer, 'name', 'its own form')}"
        return ""

    @property
    def advice(self) -> Any:
        """A rule that the part can follow, as a suggestion."""
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
        """The constants of an enum; empty if they are not known."""
        names: Sequence[str] = getattr(self.writer, "constants", ())
        return names


@dataclass(frozen=True)
class ColumnParts:
    """A column of a state, and its serializer.

    Attributes:
        name: Its name.
        kind: Its type.
        writer: The serializer of its values, or of the elements of a list of them.
        apart: Whether different values must stay different, as keys must.
    """

    name: str
    kind: pa.DataType
    writer: TypeSerializer
    apart: bool = False

    @property
    def says_nothing(self) -> bool:
        """Return whether its type has only one value."""
        return not self.parts

    @property
    def parts(self) -> list[Part]:
        """The leaf parts of the column."""
        if self.writer.arrow_type != self.kind and is_list(self.kind):
            return list(_parts(self.writer, self.kind.value_type, (ELEMENTS,)))
        return list(_parts(self.writer, self.kind, ()))


@dataclass(frozen=True)
class Settled:
    """The rules of a column's parts.

    Attributes:
        rules: Its rules; empty if one rule keeps all of it.
        unnamed: The parts without a rule.
        parts: The number of its parts.
    """

    rules: tuple[MaskRule, ...]
    unnamed: list[Part]
    parts: int


def settle(rules: Sequence[MaskRule], column: ColumnParts) -> Settled:
    """Find the rule of each part of a column: the nearest that includes it.

    Raises:
        EncodeError: A rule names no part, or a part can't follow its rule.
    """
    if column.says_nothing:
        return Settled((), [], 0)
    by_steps = {rule.steps: rule for rule in rules if rule.column in (ALL_COLUMNS, column.name)}
    by_steps |= {rule.steps: rule for rule in rules if rule.column == column.name}
    by_steps = {steps: replace(rule, column=column.name) for steps, rule in by_steps.items()}
    settled: list[MaskRule] = []
    unnamed: list[Part] = []
    parts = column.parts
    _settle(by_steps, (), None, parts, settled, unnamed)
    for rule in by_steps.values():  # require that there is such a part
        check_rule(replace(rule, how=KEEP), column.kind)
    for rule in settled:
        if rule.how == KEEP:
            continue
        for part in parts:
            if part.steps[: len(rule.steps)] == rule.steps and part.refusal(rule):
                raise _refused(replace(rule, steps=part.steps), part.refusal(rule))
        check_rule(rule, column.kind, apart=column.apart)
    keeps_all = [rule.steps for rule in settled if rule.how == KEEP] == [()]
    return Settled(() if keeps_all else tuple(settled), unnamed, len(parts))


def _refused(rule: MaskRule, what: str) -> EncodeError:
    return EncodeError(
        f"{rule} is {what}, which can't be masked by {rule.how}",
        remedy="give it a rule of its own: keep, or null or a constant if it is no key",
    )


def _settle(
    by_steps: Mapping[Steps, MaskRule],
    steps: Steps,
    above: MaskRule | None,
    parts: Sequence[Part],
    settled: list[MaskRule],
    unnamed: list[Part],
) -> None:
    """Settle the rules of the parts below some steps."""
    rule = by_steps.get(steps, above)
    within = [each for each in by_steps if len(each) > len(steps) and each[: len(steps)] == steps]
    if rule is not None and within and rule.how in (NULL, CONSTANT):
        raise EncodeError(
            f"{by_steps[within[0]]} has a rule of its own, but is within a part with the rule "
            f"{rule.how}",
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
        _settle(by_steps, (*steps, step), rule, deeper, settled, unnamed)


# ------------------------------------------------------------------------ what writes which part


def _parts(writer: object, kind: pa.DataType, steps: Steps) -> Iterator[Part]:
    """Yield all leaf parts of a type, with their serializers as far as these are known."""
    writer = _unwrapped(writer, kind)
    if kind in (pa.null(), EMPTY_ROW) or isinstance(writer, _OF_ONE_VALUE):
        return
    if not pa.types.is_nested(kind):
        yield Part(steps, kind, writer)
    elif pa.types.is_struct(kind):
        writers = _writers_of_fields(writer, kind)
        ours = type(writer).__module__.startswith(OURS)
        window = isinstance(writer, TimeWindowSerializer)
        role = "a bound of a window" if window else "the index of the field that is used"
        role = "the number of its schema" if isinstance(writer, AvroMessages) else role
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
    """Return the serializer inside its wrappers: nullability, a section, a decoder."""
    for _ in range(MOST_WRAPPERS):
        inner = [each for _, each in _members(writer) if each.arrow_type == kind]
        if not inner:
            break
        writer = inner[0]
    return writer


def _writers_of_fields(writer: object, kind: pa.StructType) -> dict[str, object]:
    """Return the serializers of a struct's fields, by name, or by their order from the end."""
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
    """Return the serializers nested in one, with the names of the attributes."""
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
    """Return whether a serializer accepts a value; true for an unknown serializer."""
    if not isinstance(writer, TypeSerializer):
        return True
    try:
        writer.write(value, DataOutput())
    except EncodeError:
        return False
    return True
