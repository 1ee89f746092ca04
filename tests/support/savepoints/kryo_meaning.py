"""What a savepoint with values of Kryo says, whichever Kryo wrote it."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from statelake import open_snapshot
from statelake.pipelines.lake.change.migrating import value_type
from statelake.state_core.errors import StateError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.layout.keyed_states import (
    is_queue,
    key_parts,
    parse_keyed_state,
)
from statelake.state_core.formats.reader import Snapshot
from statelake.state_core.formats.rewriting.kryo_parts import KryoPart, PartSnapshot, replaced
from statelake.state_core.formats.rewriting.value_migration import TTL_BYTES, rewrite_entry
from statelake.state_core.model.snapshot import KeyedState, Operator, OperatorState
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.opaque_values import undecoded, written_by
from statelake.state_core.serializers.kryo.graph import Item
from statelake.state_core.serializers.kryo.snapshot import KryoSerializerSnapshot
from statelake.state_core.serializers.kryo.wire import KryoVersion

__all__ = ["states_that_differ", "values_said"]

MOST = 50_000  # parts of an object, which may be shared
AS_LIST = "java.util.Arrays$ArrayList"  # Kryo 5 does not write the class of its array


def _meaning_of(item: Item | None) -> object:
    """An object without its references: what is within itself is a number of levels."""
    left, within = MOST, list[Item]()

    def walk(part: Any) -> object:
        nonlocal left
        left -= 1
        assert left, "too many parts"
        if isinstance(part, Item):
            for levels, outer in enumerate(reversed(within)):
                if outer is part:
                    return levels, ...
            within.append(part)
            extra = None if part.java_class == AS_LIST else walk(part.extra)
            found = part.java_class, walk(part.value), extra
            within.pop()
            return found
        if isinstance(part, list | tuple):
            return tuple(map(walk, part))
        if isinstance(part, dict):
            return tuple((name, walk(part[name])) for name in sorted(part))
        if isinstance(part, float):
            return "NaN" if part != part else struct.pack(">d", part)  # noqa: PLR0124 - a NaN
        return type(part), part

    return walk(item)


class _Parts:
    """Values of a type, whose parts by Kryo are read, and all else stays bytes.

    Args:
        snapshot: The type.
        version: The Kryo that wrote them.
    """

    def __init__(self, snapshot: TypeSerializerSnapshot, version: KryoVersion) -> None:
        self.parts: list[KryoPart] = []

        def change(kryo: KryoSerializerSnapshot, path: str) -> TypeSerializerSnapshot:
            self.parts.append(KryoPart(path, kryo, version))
            return PartSnapshot(self.parts[-1])

        with undecoded(), written_by(version.value):
            self.serializer = replaced(snapshot, change).restore_serializer()

    def next(self, source: DataInput) -> object:
        """What the next value says."""
        at = source.position
        self.serializer.read(source)
        said: list[object] = []
        noted = [(*each, part.path) for part in self.parts for each in part.noted]
        for start, end, item, path in sorted(noted, key=lambda each: each[:2]):
            said += [bytes(source.data[at:start]), path, _meaning_of(item)]
            at = end
        for part in self.parts:
            part.noted.clear()
        return [*said, bytes(source.data[at : source.position])]

    def whole(self, value: Any) -> object:
        """What a value of a column says, which is bytes if Kryo has a part in it."""
        return self.next(DataInput(value)) if isinstance(value, bytes) and self.parts else value


def states_that_differ(old: Path, new: Path, uids: Iterable[str] = ()) -> list[str]:
    """The states of which an upgraded savepoint does not say what that of Flink 1 does.

    Args:
        old: That of Flink 1. Only the keys of maps are by Kryo, of those that are upgraded.
        new: The upgraded one, in which collections stay Kryo's.
        uids: The uids of operators.
    """
    with undecoded():
        before, after = (_states(open_snapshot(each, uids=uids)) for each in (old, new))
        return [
            name
            for name in before.keys() | after.keys()
            if name not in before or name not in after or _differ(before[name], after[name])
        ]


def _states(snapshot: Snapshot) -> dict[str, tuple[Operator, KeyedState | OperatorState]]:
    found: dict[str, tuple[Operator, KeyedState | OperatorState]] = {}
    for operator in snapshot.operators:
        for keyed in operator.keyed_states:
            found[f"{operator.operator_id}/{keyed.name}"] = operator, keyed
        for held in operator.operator_states:
            found[f"{operator.operator_id}/{held.name}, not keyed"] = operator, held
    return found


def _differ(
    old: tuple[Operator, KeyedState | OperatorState],
    new: tuple[Operator, KeyedState | OperatorState],
) -> bool:
    if old[1].meta_info == new[1].meta_info:
        return _said(*old, None) != _said(*new, None)
    return _said(*old, KryoVersion.FLINK_1) != _said(*new, KryoVersion.FLINK_2)


def _said(
    operator: Operator, state: KeyedState | OperatorState, version: KryoVersion | None
) -> Counter[str] | str:
    """What each row says, with the bytes that are not Kryo's; the problem if it can't be read."""
    try:
        if version is None:
            rows = state.to_arrow().to_pylist()
        elif isinstance(state, KeyedState):
            rows = _of_keyed(operator, state, version)
        else:
            rows = _rows(state.to_arrow(), state.meta_info, version)
            value = _Parts(value_type(state.meta_info), version)
            rows = [{**row, "value": value.whole(row["value"])} for row in rows]
    except StateError as error:
        return error.problem
    return Counter(map(repr, rows))


def _rows(table: pa.Table, meta_info: bytes, version: KryoVersion) -> list[dict[str, Any]]:
    """The rows, with the keys of a map."""
    rows: list[dict[str, Any]] = table.to_pylist()
    for name, snapshot in key_parts(meta_info).items():
        parts, column = _Parts(snapshot, version), name if name in table.schema.names else "key"
        for row in rows:
            row[column] = parts.whole(row[column])
    return rows


def _of_keyed(operator: Operator, state: KeyedState, version: KryoVersion) -> list[dict[str, Any]]:
    table = state.to_arrow(threads=1).combine_chunks()
    rows = _rows(table, state.meta_info, version)
    if is_queue(state.meta_info) or not rows:
        return rows
    key = operator.keyed_files[0].key_serializer
    _, layout = parse_keyed_state(state.meta_info, key, without_decoders=True)
    (batch,) = table.to_batches()
    stored = layout.value_writer(batch).to_binary().to_pylist()
    said = values_said(stored, layout, value_type(state.meta_info), version)
    return [
        {**row, "value": value, "raw_value": None, "ttl": None}
        for row, value in zip(rows, said, strict=True)
    ]


def values_said(
    stored: list[bytes], layout: KeyedLayout, value: TypeSerializerSnapshot, version: KryoVersion
) -> list[list[object]]:
    """What values of a state say, each with its time of last access.

    Args:
        stored: The bytes of each.
        layout: The state's layout.
        value: The type of its values.
        version: The Kryo that wrote them.
    """
    parts, all_said = _Parts(value, version), list[list[object]]()
    for data in stored:
        said = list[object]()

        def note(source: DataInput, said: list[object] = said) -> bytes:
            said += source.read_bytes(TTL_BYTES * layout.with_ttl), parts.next(source)
            return b""

        said.append(rewrite_entry(DataInput(data), layout.kind, note))
        all_said.append(said)
    return all_said
