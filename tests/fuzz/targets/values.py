"""Serializers out of a snapshot, and values of theirs: as columns and back, and one by one."""

from __future__ import annotations

import base64
import json
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.basic.numbers import LongSerializer
from statelake.state_core.serializers.composite.wrappers import VoidNamespaceSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.opaque_values import restore_bounded, restore_key
from statelake.state_core.serializers.framework.plugins import forget_declarations
from statelake.state_core.serializers.framework.registry import (
    read_serializer_snapshot,
    write_serializer_snapshot,
)
from statelake.state_core.serializers.kryo.decoding import declare_classes
from statelake.state_core.serializers.kryo.snapshot import KryoSerializerSnapshot
from statelake.state_core.serializers.kryo.wire import KryoVersion
from tests.fuzz.targets import Fuzzing, chosen, seeded
from tests.support.savepoints.golden_cases import GOLDEN
from tests.support.savepoints.kryo_jobs import EVENT, kryo_vectors

__all__ = ["fuzz_kryo", "fuzz_serializers"]

KINDS = (StateKind.VALUE, StateKind.LIST, StateKind.MAP)
KEY = bytes(7) + b"\x01\0"  # a Long, and the namespace that is none


def fuzz_serializers(_: Path) -> Fuzzing:
    """A serializer's snapshot, and a value in each kind of state."""
    pairs = sorted(set(_vectors()), key=len)
    seeds = [
        (n % len(KINDS), len(snapshot).to_bytes(2, "big") + snapshot + value)
        for n, (snapshot, value) in enumerate(pairs)
    ]
    return Fuzzing(seeded(seeds), _read_pair)


def fuzz_kryo(_: Path) -> Fuzzing:
    """Values of Kryo's in the columns of their class, and as the other Flink would write them."""
    forms: list[tuple[KryoSerializerSnapshot, TypeSerializer, KryoVersion]] = []
    seeds = []
    for flink in (1, 2):
        forget_declarations()
        declare_classes({**EVENT, "flink": flink})
        for vector in kryo_vectors(flink).values():
            snapshot = read_serializer_snapshot(DataInput(bytes.fromhex(vector["snapshot"])))
            assert isinstance(snapshot, KryoSerializerSnapshot)
            seeds.append((len(forms), bytes.fromhex(vector["value"])))
            forms.append((snapshot, restore_bounded(snapshot), KryoVersion(flink)))

    def run(data: bytes) -> None:
        form, value = chosen(data, len(forms))
        snapshot, serializer, version = forms[form]
        _as_columns(StateKind.VALUE, serializer, value)
        values = snapshot.values(version)
        item = values.read(value)
        for other in KryoVersion:
            values.write(item, other)

    return Fuzzing(seeded(seeds), run)


def _vectors() -> Iterator[tuple[bytes, bytes]]:
    """Snapshots and values that Flink wrote."""
    for name in ("libraries", "scala", "flinkx-1.2.4", "flinkx-2.2.4"):
        for line in _lines(name):
            for value in line.get("values", ()):
                yield bytes.fromhex(line["snapshot"]), bytes.fromhex(value["bytes"])
    for line in _lines("pojo"):
        for value in line.get("values", ())[:3]:
            yield _unpacked(line["old"]), bytes.fromhex(value)
    for line in _lines("compatibility"):
        for name in ("old_snapshot", "new_snapshot"):
            yield bytes.fromhex(line.get(name, "")), bytes(12)
    for line in _lines("table"):
        if "snapshot" in line:
            yield _unpacked(line["snapshot"]), bytes(24)


def _lines(name: str) -> list[dict[str, object] | dict[str, list[str]]]:
    path = GOLDEN / "vectors" / f"{name}.jsonl"
    packed = path.with_name(f"{path.name}.xz")
    data = lzma.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()
    return [json.loads(line) for line in data.decode().splitlines()]


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def _read_pair(data: bytes) -> None:
    kind, rest = chosen(data, len(KINDS))
    size = int.from_bytes(rest[:2], "big")
    snapshot = read_serializer_snapshot(DataInput(rest[2 : 2 + size]))
    value = rest[2 + size :]
    out = DataOutput()
    write_serializer_snapshot(snapshot, out)
    assert snapshot.type_name
    serializer = restore_bounded(snapshot)
    restore_key(snapshot)
    _as_columns(KINDS[kind], serializer, value)
    _one_by_one(serializer, value)


def _as_columns(kind: StateKind, serializer: TypeSerializer, value: bytes) -> None:
    """What is decoded is encoded to the same bytes."""
    user_key = LongSerializer() if kind is StateKind.MAP else None
    key = KEY + bytes(8) if user_key else KEY
    whole = b"\0" + value if user_key else value
    layout = KeyedLayout(kind, LongSerializer(), VoidNamespaceSerializer(), serializer, user_key)
    batch = layout.decode(_entries([(key, whole), (key, whole)]))
    batch.validate(full=True)
    batch.to_pylist()
    assert layout.value_writer(batch).to_binary().to_pylist() == [whole, whole]


def _entries(pairs: list[tuple[bytes, bytes]]) -> Entries:
    parts = [part for pair in pairs for part in pair]
    bounds = np.cumsum([0, *map(len, parts)]).astype(np.int64)
    return Entries(
        np.frombuffer(b"".join(parts), np.uint8),
        np.zeros(len(pairs), np.int16),
        np.zeros(len(pairs), np.int64),
        bounds[:-1:2].copy(),
        bounds[1::2].copy(),
        bounds[1::2].copy(),
        bounds[2::2].copy(),
        lambda position: f"byte {position}",
    )


def _one_by_one(serializer: TypeSerializer, data: bytes) -> None:
    serializer.skip(DataInput(data))
    value = serializer.read(DataInput(data))
    serializer.hash_code_at(DataInput(data))
    try:
        serializer.write(value, DataOutput())
    except EncodeError:
        return
