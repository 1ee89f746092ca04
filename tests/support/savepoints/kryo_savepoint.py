"""A savepoint with values of Kryo's in every kind of state: no golden job has any.

The job `kinds` with other values: its keys, windows, timers and times of last access stay.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from statelake import open_snapshot
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.keyed.unified_file import UnifiedKeyedFile
from statelake.state_core.formats.layout.keyed_states import layout_of, with_value
from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.formats.writing.writer import (
    SavepointDirectory,
    encoded_groups,
    keyed_handle,
    write_keyed_part,
)
from statelake.state_core.serializers.framework.opaque_values import undecoded
from statelake.state_core.serializers.kryo.containers import AVRO_ARRAY
from statelake.state_core.serializers.kryo.snapshot import KryoSerializerSnapshot
from statelake.state_core.serializers.opaque.optional_map import RawEntry
from tests.support.lakes import KINDS

__all__ = [
    "CAR", "CAR_TYPE", "KRYO_STATES", "car", "car_bytes", "kryo_savepoint", "kryo_snapshot",
    "with_serializers",
]  # fmt: skip

CAR = "com.acme.Car"
CAR_TYPE = pa.struct({"id": pa.int64(), "places": pa.list_(pa.int16())})
KRYO_STATES = ("name", "items", "scores", "session")


def car(number: int) -> dict[str, Any]:
    """The value of that number; its bytes may hold a list's delimiter."""
    return {"id": number, "places": [0x2C2C, number % 100][: number % 3]}


def car_bytes(number: int) -> bytes:
    """The bytes of the value of that number."""
    places = car(number)["places"]
    return struct.pack(f">qB{len(places)}h", number, len(places), *places)


def kryo_snapshot(java_class: str = CAR) -> KryoSerializerSnapshot:
    """A snapshot of Kryo's without registrations, as Flink writes it."""
    out = DataOutput()
    out.write_utf(java_class)
    for _ in range(3):
        out.write_long(0x4F2C69A3D70)
        out.write_int(0)
    made = KryoSerializerSnapshot()
    made.read_snapshot(2, DataInput(out.to_bytes()))
    return made


def kryo_savepoint(to: Path) -> Path:
    """Write the savepoint; values are `car`s of consecutive numbers, in no order."""
    with undecoded():
        _write(to)
    return to


def _write(to: Path) -> None:
    made = SavepointDirectory(to)
    metadata = read_metadata((KINDS / "_metadata").read_bytes())
    operator = open_snapshot(KINDS).operator("kinds")
    (written,) = (
        candidate
        for candidate in metadata.operators
        if candidate.operator_id == operator.operator_id
    )
    numbers = count()
    for subtask, file in enumerate(operator.keyed_files):
        assert isinstance(file, UnifiedKeyedFile)
        key = file.header.key_serializer.snapshot.restore_serializer()
        states = tuple(
            with_value(state, kryo_snapshot()) if state.name in KRYO_STATES else state
            for state in file.header.states
        )
        rows = []
        for entries in file.entries():
            for index, state in enumerate(states):
                held = file.decode(index, entries.of_state(index))
                layout = layout_of(state, key)
                if state.name in KRYO_STATES:
                    held = _with_cars(held, layout.schema, numbers)
                rows.append(StateRows(index, state.name, layout, held))
        header = replace(file.header, states=states)
        groups = encoded_groups([rows], 1)
        part = write_keyed_part(made.directory, header, groups, compressed=False)
        assert written.subtasks is not None
        written.subtasks[subtask].managed_keyed = keyed_handle(part, file.key_groups)
    made.commit(metadata)


def _with_cars(rows: pa.RecordBatch, schema: pa.Schema, numbers: Any) -> pa.RecordBatch:
    """The rows with other values: one, or of a list as many as there were, joined by commas."""
    old = rows.column("value")
    sizes = np.ones(len(rows), int)
    if pa.types.is_list(old.type):
        sizes = np.array([len(value) for value in old.to_pylist()], int)
    values = [b",".join(car_bytes(next(numbers)) for _ in range(size)) for size in sizes]
    columns = {name: rows.column(name) for name in rows.schema.names}
    columns["value"] = pa.array(values, pa.binary())
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


HOLDER = "org.apache.flink.api.common.ExecutionConfig$SerializableSerializer"
AVRO_LIST = (
    "org.apache.flink.api.java.typeutils.runtime.kryo"
    ".Serializers$SpecificInstanceCollectionSerializerForArrayList"
)


def with_serializers(kryo: KryoSerializerSnapshot, **own: str) -> KryoSerializerSnapshot:
    """The snapshot in a job of Flink 1 with Avro that registers serializers of its own, as objects.

    Args:
        kryo: The snapshot.
        own: The class of the serializer, by that of its values, whose dots are `__`; the last one
            is a default serializer besides.
    """
    named = {name.replace("__", "."): serializer for name, serializer in own.items()}
    entries = {name: _object(serializer) for name, serializer in named.items()}
    registered = [
        RawEntry(name, _utf(name), _utf(name) + (2).to_bytes(4, "big") + held)
        for name, held in {AVRO_ARRAY: _object(AVRO_LIST), **entries}.items()
    ]
    others = [entry for entry in kryo.maps[0] if entry.name != AVRO_ARRAY]
    defaults = [RawEntry(name, _utf(name), held) for name, held in entries.items()][-1:]
    return kryo._with(kryo.type_class, (*others, *registered), tuple(defaults))


def _object(serializer: str) -> bytes:
    """The beginning of a `SerializableSerializer` around a serializer, as a Java object."""
    head = bytes.fromhex("aced00057372") + _utf(HOLDER)
    field = bytes.fromhex("410ebe4da2208fb50200014c") + _utf("serializer")
    kind = b"t" + _utf("Lcom/esotericsoftware/kryo/Serializer;") + b"xpsr"
    return head + field + kind + _utf(serializer) + bytes(8) + bytes.fromhex("0200007870")


def _utf(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()
