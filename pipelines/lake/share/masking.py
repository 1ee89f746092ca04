"""Mask columns: one rule for a value, or for a nested part of it.

A part is named by steps: the fields of structs, and `[]` for the elements of a list, or for the
entries of a map, which have a `key` and a `value`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from statelake.pipelines.lake.share.ciphers import Cipher
from statelake.pipelines.shown import from_plain
from statelake.state_core.errors import EncodeError
from statelake.state_core.nested import ELEMENTS, Steps, changed, is_list, leaf_types

FORMAT, HASH, NULL, CONSTANT, KEEP = "format", "hash", "null", "constant", "keep"
ALL_COLUMNS = ""
_KEEPS_APART = (FORMAT, HASH)


@dataclass(frozen=True)
class MaskRule:
    """The rule of a column, or of a part of it.

    Attributes:
        column: The column: `key`, `namespace`, `user_key` or `value`; empty for all of a state.
        steps: The path to the part; empty for all of it.
        how: `format`, `hash`, `null`, `constant` or `keep`.
        constant: The replacement, as `statelake dump` prints it.
    """

    column: str
    steps: tuple[str, ...]
    how: str
    constant: Any = None

    @property
    def needs_secret(self) -> bool:
        """Return whether masked values depend on a secret."""
        return self.how in _KEEPS_APART

    def __str__(self) -> str:
        return "".join(
            step if step == ELEMENTS else f".{step}" for step in (self.column, *self.steps)
        )[1:]


def check_rule(rule: MaskRule, kind: pa.DataType, *, apart: bool = False) -> None:
    """Refuse a rule that does not fit a type.

    Args:
        rule: The rule.
        kind: The type of its column.
        apart: Whether different values must stay different, as keys must.

    Raises:
        EncodeError: There is no such part, or it can't be masked in that way.
    """
    within_key = apart
    for at, step in enumerate(rule.steps):
        if pa.types.is_struct(kind) and kind.get_field_index(step) >= 0:
            kind = kind.field(step).type
        elif step == ELEMENTS and pa.types.is_map(kind):
            kind = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
            within_key = rule.steps[at + 1 : at + 2] in ((), ("key",))
        elif step == ELEMENTS and is_list(kind):
            kind = kind.value_type
        else:
            raise EncodeError(
                f"there is no {step!r} in a value of type {_words(kind)}",
                remedy="`statelake inspect` and `statelake dump` show the parts of a value",
            )
    if rule.how == KEEP:
        return
    if within_key and rule.how not in _KEEPS_APART:
        raise EncodeError(
            f"masked keys must stay different, unlike with {rule.how}",
            remedy="mask them by format or hash",
        )
    if rule.how == CONSTANT:
        try:
            from_plain(rule.constant, kind)
        except ValueError as error:
            raise EncodeError(
                f"{rule.constant!r} is not a valid {kind} ({error})",
                remedy="write constants as `statelake dump` prints values",
            ) from error
    if rule.how in _KEEPS_APART:
        for _, leaf in leaf_types(kind):
            if _masker(leaf, rule.how) is None:
                raise EncodeError(
                    f"a value of type {_words(leaf)} can't be masked by {rule.how}",
                    remedy="name the fields that can be, or use null, a constant, or (for numbers "
                    "and times) format",
                )


def masked(column: pa.Array, rule: MaskRule, cipher: Cipher) -> pa.Array:
    """Return a column with the part of its values masked that a rule names. Nulls stay null.

    Args:
        column: A column of a type that `check_rule` has accepted.
        rule: The rule.
        cipher: The cipher for formats and hashes.
    """
    depth = len(rule.steps)

    def change(steps: Steps, part: pa.Array) -> pa.Array | None:
        kind = part.type
        if steps[:depth] != rule.steps:
            return None if steps == rule.steps[: len(steps)] else part
        if rule.how == NULL:
            return pa.nulls(len(part), kind)
        if rule.how == CONSTANT:
            constant = pa.scalar(from_plain(rule.constant, kind), kind)
            return pc.if_else(part.is_valid(), constant, pa.scalar(None, kind))
        if pa.types.is_nested(kind):
            return None
        distinct = part.dictionary_encode()  # distinct values, one after another
        masker = _masker(kind, rule.how)
        assert masker is not None  # noqa: S101 - `check_rule` has looked
        return masker(distinct.dictionary, cipher).take(distinct.indices)

    return changed(column, change)


def _words(kind: pa.DataType) -> str:
    return "a boolean" if pa.types.is_boolean(kind) else f"{kind}"


# ----------------------------------------------------------------------------- values of each type

_Masker = Callable[[pa.Array, Cipher], pa.Array]


def _masker(kind: pa.DataType, how: str) -> _Masker | None:
    """Return the function that masks distinct values of a leaf type; None if there is none."""
    if pa.types.is_null(kind):
        return lambda column, _: column
    for is_kind, maskers in _MASKERS:
        if is_kind(kind):
            return maskers.get(how)
    return None


def _each(change: Callable[[Any, Cipher], Any]) -> _Masker:
    """Return a masker that changes each value as a Python object."""

    def masker(column: pa.Array, cipher: Cipher) -> pa.Array:
        return pa.array([change(value, cipher) for value in column.to_pylist()], column.type)

    return masker


def _wrapped(column: pa.Array, cipher: Cipher) -> pa.Array:
    bits = column.type.bit_width
    return pa.array([cipher.wrapped(value, bits) for value in column.to_pylist()], column.type)


def _floating(column: pa.Array, cipher: Cipher) -> pa.Array:
    bits = column.type.bit_width
    return pa.array([cipher.floating(value, bits) for value in column.to_pylist()], column.type)


def _decimal(column: pa.Array, cipher: Cipher) -> pa.Array:
    scale = column.type.scale
    masked = [
        Decimal(cipher.unscaled(int(value.scaleb(scale)))).scaleb(-scale)
        for value in column.to_pylist()
    ]
    return pa.array(masked, column.type)


def _in_micros(column: pa.Array, change: Callable[[int], int]) -> pa.Array:
    """Mask times of any unit as microseconds."""
    bits = pa.int32() if column.type.bit_width == 32 else pa.int64()
    unit = {"s": 1_000_000, "ms": 1000}.get(column.type.unit, 1)
    parts = 1000 if column.type.unit == "ns" else 1
    micros = []
    for value in column.cast(bits).to_pylist():
        units, rest = divmod(value, parts)
        micros.append(change(units * unit) // unit * parts + rest)
    return pa.array(micros, bits).cast(column.type)


def _moments(column: pa.Array, cipher: Cipher) -> pa.Array:
    return _in_micros(column, cipher.moment)


def _times(column: pa.Array, cipher: Cipher) -> pa.Array:
    return _in_micros(column, cipher.time)


def _days(column: pa.Array, cipher: Cipher) -> pa.Array:
    days = [cipher.day(value) for value in column.cast(pa.int32()).to_pylist()]
    return pa.array(days, pa.int32()).cast(column.type)


_octets = _each(lambda value, cipher: cipher.octets(value))
_MASKERS: tuple[tuple[Callable[[pa.DataType], bool], dict[str, _Masker]], ...] = (
    (
        pa.types.is_string,
        {
            FORMAT: _each(lambda value, cipher: cipher.text(value)),
            HASH: _each(lambda value, cipher: cipher.digest(value.encode()).hex()),
        },
    ),
    (
        pa.types.is_binary,
        {FORMAT: _octets, HASH: _each(lambda value, cipher: cipher.digest(value))},
    ),
    (pa.types.is_fixed_size_binary, {FORMAT: _octets}),
    (
        pa.types.is_signed_integer,
        {FORMAT: _each(lambda value, cipher: cipher.integer(value)), HASH: _wrapped},
    ),
    (pa.types.is_floating, {FORMAT: _floating}),
    (pa.types.is_decimal, {FORMAT: _decimal}),
    (pa.types.is_timestamp, {FORMAT: _moments}),
    (pa.types.is_date32, {FORMAT: _days}),
    (pa.types.is_time, {FORMAT: _times}),
)
