"""Keys as text, the state of one key in a snapshot, and the sizes of keys.

A key is written as `statelake dump` prints it, in every command that takes keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from statelake.pipelines.shown import (
    cell_text,
    from_plain,
    json_text,
    plain,
    plain_rows,
    state_head,
    state_title,
)
from statelake.state_core.errors import EncodeError, OversizedError, StateError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.layout.keyed_layout import KEY, KEY_GROUP, RAW_KEY
from statelake.state_core.formats.layout.keys import TIMESTAMP_BYTES, encode_key
from statelake.state_core.formats.printed_rows import printed_column
from statelake.state_core.model.key_groups import EncodedKey, SearchKey
from statelake.state_core.model.snapshot import KeyedState, Operator, Snapshot, StateKind
from statelake.state_core.nested import leaf_types
from statelake.state_core.printable import Table, json_value
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.exact_values import exact_values

if TYPE_CHECKING:
    from statelake.state_core.formats.key_weights import StateWeights

_EXACT_KEY_START = re.compile(r'\s*["{\[]|\s*[-+]?\d')  # a number, a time, or a row with one
KEY_LINES = "give a text file with a key a line"

_COLUMNS = {
    "namespace": "namespace", "user_key": "user key", "timestamp": "fires", "value": "value",
    "ttl": "last access", "raw_key": "raw_key", "raw_value": "raw_value",
}  # fmt: skip

SHOWN_KEY = 60
MOST_DIGITS = 100  # of a decimal
SHOWN_TYPES = 5
# examples of keys by type, for messages
_EXAMPLES: tuple[tuple[Callable[[pa.DataType], bool], Any], ...] = (
    (pa.types.is_boolean, True),
    (pa.types.is_integer, 42),
    (pa.types.is_floating, 1.5),
    (pa.types.is_decimal, "12.50"),
    (pa.types.is_date, "2026-11-21"),
    (pa.types.is_timestamp, "2026-11-21T13:03:00"),
    (pa.types.is_time, "13:03:00"),
    (pa.types.is_binary, "AAEC"),
)


@dataclass(frozen=True)
class OwnedKey:
    """A key of an operator, given as text.

    Attributes:
        owner: The operator.
        whole: The key, with all that its column can't hold.
        sought: What is looked up.
    """

    owner: Operator
    whole: Any
    sought: SearchKey


@dataclass(frozen=True)
class KeyRows:
    """The state of a key in one operator.

    Attributes:
        operator: Its uid or id.
        key_type: The Java type of its keys.
        key: The key, as JSON has it.
        key_group: The key group of the key; None if its hash can't be derived, so that all key
            groups are read.
        batches: The rows, one state after the other; read when they are consumed.
    """

    operator: str
    key_type: str
    key: Any
    key_group: int | None
    batches: Iterator[tuple[KeyedState, pa.RecordBatch | pa.Table]]


def key_text(key: object) -> str:
    """Return a key as `statelake dump` prints it; text is returned as it is."""
    value = key.as_py() if isinstance(key, pa.Scalar) else key
    return value if isinstance(value, str) else json_text(plain(value))


def with_lost_errors(key_rows: KeyRows, lost: Callable[[StateError], None]) -> KeyRows:
    """Return the same rows; an error after the last row is passed to `lost`, not raised."""

    def batches() -> Iterator[tuple[KeyedState, pa.RecordBatch | pa.Table]]:
        try:
            yield from key_rows.batches
        except OversizedError:
            raise
        except StateError as error:
            lost(error)

    return replace(key_rows, batches=batches())


def printed_rows(key_rows: KeyRows) -> Iterator[dict[str, Any]]:
    """Yield the rows of a key as they are printed, as JSON values."""
    for state, batch in key_rows.batches:
        yield from plain_rows(state_head(key_rows.operator, state), batch, state.layout)


def key_table(key_rows: KeyRows, limit: int) -> Table:
    """Return the rows of a key as a table for people.

    Args:
        key_rows: The rows, which are consumed.
        limit: The number of rows to show.
    """
    shown: list[dict[str, Any]] = []
    count = 0
    for row in printed_rows(key_rows):
        count += 1
        if count <= limit:
            shown.append(row)
    group = "" if key_rows.key_group is None else f", key group {key_rows.key_group}"
    names = [name for name in _COLUMNS if any(row.get(name) is not None for row in shown)]
    return Table(
        f"{key_rows.operator}, keyed by {key_rows.key_type}: {json_text(key_rows.key)}{group}",
        ["<state", "<kind", *(f"<{_COLUMNS[name]}" for name in names)],
        [
            [
                state_title(row["state"], row.get("alias", "")),
                row["kind"],
                *(cell_text(name, row.get(name)) for name in names),
            ]
            for row in shown
        ],
        count - len(shown),
    )


def weights_json(name: str, weights: StateWeights, lives: Iterable[str] = ()) -> dict[str, Any]:
    """Return the heaviest keys of a state as JSON can hold them.

    Args:
        name: The state.
        weights: The sizes of its keys.
        lives: The texts of the times to live of its `expiries`.
    """
    return {
        "state": name,
        "kind": weights.layout.kind.value,
        "keys": weights.keys,
        "entries": weights.entries,
        "bytes": weights.size,
        "heaviest": json_value(weights.heaviest()),
        "busiest": json_value(weights.busiest()),
        "longest": json_value(weights.longest()),
        "ttl": [
            {"time_to_live": text, "gone_entries": gone.entries, "gone_bytes": gone.size}
            for text, gone in zip(lives, weights.expiries, strict=False)
        ],
    }


def lines_of(content: Callable[[], bytes], place: str, remedy: str) -> list[tuple[str, str]]:
    """Return the non-blank lines of a text, each with its place.

    Args:
        content: Reads the text.
        place: Its place, for messages.
        remedy: The expected content, for messages.

    Raises:
        EncodeError: It can't be read, or is not valid UTF-8.
    """
    try:
        text = content().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise EncodeError(f"it can't be read ({error})", place=place, remedy=remedy) from error
    return [
        (f"{place}:{number}", line.removesuffix("\r"))
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip()
    ]


def key_from_text(text: str, key: TypeSerializer, place: str = "") -> Any:
    """Parse a key from text, as a Python value for Arrow.

    The text is JSON as `statelake dump` prints keys. A JSON string (also for bytes, decimals, dates
    and times) may be without quotes, unless it begins with one. Of a row with one column, as in
    Flink SQL `GROUP BY shop`, the value is enough.

    Args:
        text: The text.
        key: The key serializer.
        place: The text's place, for messages.

    Raises:
        EncodeError: The text is not a key of that type.
    """
    try:
        return _read_key(text, key.arrow_type)
    except (ValueError, RecursionError) as error:
        raise EncodeError(
            f"{_short(text)} is not a key of type {key.name} ({error})",
            place=place,
            remedy=f"write keys as `statelake dump` prints them, such as {_example_text(key)}",
        ) from error


def _read_key(text: str, kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind) and kind.num_fields == 1 and not _is_object(text):
        column = kind.field(0)
        absent = text == "null" and not _is_text(column.type)
        value = None if absent else _read_key(text, column.type)
        return {column.name: value}
    if _is_text(kind) and not text.startswith('"'):
        value = _as_plain(text, kind)
    else:
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            raise ValueError("it is not JSON") from None
    key = from_plain(value, kind)
    if key is None:
        raise ValueError("a key is never null in Flink")
    return key


def _as_plain(text: str, kind: pa.DataType) -> str:
    """Return text in the form of `plain`; SQL may write times and decimals differently."""
    if pa.types.is_timestamp(kind) and text[10:11] == " ":
        return f"{text[:10]}T{text[11:]}"
    if pa.types.is_decimal(kind):
        with suppress(ArithmeticError), localcontext() as context:
            context.prec = MOST_DIGITS
            number = Decimal(text)
            same = number.quantize(Decimal(1).scaleb(-kind.scale))
            return str(same) if same == number else text
    return text


def _is_object(text: str) -> bool:
    """Return whether a text is a JSON object: a complete row, not the value of its column."""
    try:
        return text.lstrip().startswith("{") and isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def find_exact_key(owner: Operator, key: TypeSerializer, text: str) -> OwnedKey | None:
    """Return the key with a printed form that no column can hold; None without such a key.

    The text can't be converted to the key's bytes, so that the keys of all key groups are read.

    Args:
        owner: The operator.
        key: Its key serializer.
        text: The text, as `find` and `top` print keys.

    Raises:
        SnapshotError: No readable state has the key, and some states are unreadable.
    """
    if not (_may_be_inexact(key.arrow_type) and _EXACT_KEY_START.match(text)):
        return None
    wanted: list[Any] = [text]
    with suppress(ValueError, RecursionError):
        wanted.append(json.loads(text))
    lost: StateError | None = None
    for state in owner.keyed_states:
        if RAW_KEY not in state.schema.names:
            continue
        try:
            odd = _exact_key_in(owner, state, key, wanted)
        except OversizedError:
            raise
        except StateError as error:  # other states may have the key
            lost = lost or error.within(f"state {state.name!r}")
            continue
        if odd is not None:
            return odd
    if lost is not None:
        raise lost
    return None


def _exact_key_in(
    owner: Operator, state: KeyedState, key: TypeSerializer, wanted: Sequence[Any]
) -> OwnedKey | None:
    """Return the first key of a state that no column can hold and whose form is in `wanted`."""
    at = TIMESTAMP_BYTES if state.kind is StateKind.TIMERS else 0
    for batch in state.batches(columns=[KEY_GROUP, KEY, RAW_KEY]):
        rows = batch.filter(batch.column(RAW_KEY).is_valid())
        keys = printed_column(state.layout, rows, KEY, RAW_KEY)
        for row, each in enumerate(keys):
            if plain(each) in wanted:
                source = DataInput(rows.column(RAW_KEY)[row].as_py()[at:])
                with exact_values():
                    key.read(source)
                group, value = (rows.column(name)[row].as_py() for name in (KEY_GROUP, KEY))
                encoded = EncodedKey(bytes(source.data[: source.position]), group)
                return OwnedKey(owner, each, SearchKey(value, encoded))
    return None


def _may_be_inexact(kind: pa.DataType) -> bool:
    """Return whether a type may have keys that its column can't represent."""
    leaves = (leaf for _, leaf in leaf_types(kind))
    return any(pa.types.is_decimal(leaf) or pa.types.is_temporal(leaf) for leaf in leaves)


def keys_in(
    snapshot: Snapshot,
    text: str,
    *,
    operator: str | None = None,
    state: str | None = None,
    unread: list[tuple[Operator, StateError]] | None = None,
) -> list[OwnedKey]:
    """Return a key as each operator has it that can have it.

    Args:
        snapshot: The snapshot: a savepoint, a checkpoint, or one of a lake.
        text: The key as text, for `key_from_text`.
        operator: Only of this operator: its uid, name or id.
        state: Only of operators with a keyed state of that name.
        unread: Receives the operators in which the text can't be searched, with the error; without
            it, the error is raised.

    Raises:
        EncodeError: No operator can have that key.
        NotFoundError: There is no such operator or state, or no keyed state at all.
    """
    keys: list[OwnedKey] = []
    types: dict[str, TypeSerializer] = {}
    for owner in snapshot.keyed_operators(operator, state):
        key = owner.keyed_states[0].layout.key
        types[key.name] = key
        try:
            value = key_from_text(text, key)
        except EncodeError:
            try:
                odd = find_exact_key(owner, key, text)
            except StateError as error:
                if unread is None or isinstance(error, OversizedError):
                    raise
                unread.append((owner, error))
                continue
            keys += [] if odd is None else [odd]
        else:
            encoded = encode_key(key, value, owner.max_parallelism)
            keys.append(OwnedKey(owner, value, SearchKey(value, encoded)))
    if not keys and not unread:
        raise _no_key(text, types)
    return keys


def _no_key(text: str, types: dict[str, TypeSerializer]) -> EncodeError:
    """Return the error that a text is not a key of any of the types; of one with the reason."""
    if len(types) == 1:
        try:
            key_from_text(text, next(iter(types.values())))
        except EncodeError as error:
            return error
    shown = [f"{name} (such as {_example_text(key)})" for name, key in types.items()]
    more = f" and {len(shown) - SHOWN_TYPES} more" if len(shown) > SHOWN_TYPES else ""
    return EncodeError(
        f"{_short(text)} is not a key of any operator",
        remedy=f"keys are of type {', '.join(shown[:SHOWN_TYPES])}{more}; write them as"
        " `statelake dump` prints them",
    )


def rows_of_key(
    snapshot: Snapshot, text: str, *, operator: str | None = None, state: str | None = None
) -> list[KeyRows]:
    """Return the state of a key in a snapshot; arguments and errors as for `keys_in`.

    Returns:
        The rows for each operator that can have such a key, which are read when they are consumed.
        If the keys of another operator can't be read, its error is raised after the last rows.
    """
    unread: list[tuple[Operator, StateError]] = []
    rows = [
        KeyRows(
            each.owner.label,
            each.owner.keyed_states[0].key_type,
            plain(each.whole),
            each.sought.encoded.key_group,
            each.owner.rows_of_key(each.sought, state),
        )
        for each in keys_in(snapshot, text, operator=operator, state=state, unread=unread)
    ]
    for owner, error in unread:
        lost = error.within(f"operator {owner.label}")
        if not rows:
            raise lost
        rows[-1] = replace(rows[-1], batches=_then_raise(lost, rows[-1].batches))
    return rows


def _then_raise(
    error: StateError, batches: Iterator[tuple[KeyedState, pa.RecordBatch | pa.Table]]
) -> Iterator[tuple[KeyedState, pa.RecordBatch | pa.Table]]:
    """Yield rows, and then raise an error."""
    yield from batches
    raise error


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_KEY else f"{text[:SHOWN_KEY]}..."


def _is_text(kind: pa.DataType) -> bool:
    """Return whether `plain` makes text of values of that type."""
    others = (
        pa.types.is_nested, pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean,
        pa.types.is_null,
    )  # fmt: skip
    return not any(is_kind(kind) for is_kind in others)


def _example_text(key: TypeSerializer) -> str:
    kind = key.arrow_type
    text = json_text(_example(kind))
    alone = pa.types.is_struct(kind) and kind.num_fields == 1
    return f"{text} or {json_text(_example(kind.field(0).type))}" if alone else text


def _example(kind: pa.DataType) -> Any:
    """Return an example of a value of that type, in the form of `plain`."""
    if pa.types.is_struct(kind):
        return {field.name: _example(field.type) for field in kind}
    if pa.types.is_map(kind):
        key, item = _example(kind.key_type), _example(kind.item_type)
        return {key: item} if _is_text(kind.key_type) else [[key, item]]
    if pa.types.is_nested(kind):
        return [_example(kind.value_type)]
    return next((example for is_kind, example in _EXAMPLES if is_kind(kind)), "text")
