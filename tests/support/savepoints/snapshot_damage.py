"""Golden snapshots in one piece, damaged in any place, and read to the last value."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st

from statelake import open_snapshot
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    read_metadata,
    write_metadata,
)
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.formats.operator_state.operator_file import open_operator_file
from statelake.state_core.formats.operator_state.operator_states import operator_layout
from statelake.state_core.model.handles import FileHandle, InlineHandle, RelativeHandle
from tests.support.savepoints.golden_cases import GoldenCase

__all__ = [
    "cut_or_moved",
    "damages",
    "inlined",
    "read_everything",
    "some_damage",
    "streams_replaced",
]

# names of classes, as in the snapshots of serializers
_NAME = re.compile(rb"(?:[a-z]\w*\.)+[A-Z][\w$]*|\w+\$\w+")
LENGTHS = (2**31 - 1, -(2**31), -1, 0, 1, 65536, 2**24, 2**30)


def read_everything(snapshot: Path) -> int:
    """Open a snapshot, read every entry of every state, and say how many there were."""
    opened = open_snapshot(snapshot)
    count = 0
    for operator in opened.operators:
        for state in operator.keyed_states:
            table = state.to_arrow(threads=1)
            table.validate(full=True)
            count += len(table)
    files = StateFiles(Directory(snapshot))
    for owner in opened.metadata.operators:
        for index, subtask in (owner.subtasks or {}).items():
            handle = subtask.managed_operator
            if handle is None or handle.stream is None:
                continue
            file = open_operator_file(files.open(handle.stream), handle)
            for meta_info in file.states:
                batch = operator_layout(meta_info).decode(file, meta_info.name, index)
                batch.validate(full=True)
                count += len(batch)
    return count


def streams_replaced(value: Any, change: Callable[[Any], Any]) -> Any:
    """Metadata, or a part of it, with every file handle replaced by another."""
    if isinstance(value, RelativeHandle | FileHandle):
        return change(value)
    if isinstance(value, dict):
        return {key: streams_replaced(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(streams_replaced(item, change) for item in value)
    if is_dataclass(value) and not isinstance(value, type | InlineHandle):
        names = [field.name for field in fields(value)]
        return replace(
            value, **{name: streams_replaced(getattr(value, name), change) for name in names}
        )
    return value


def inlined(golden: GoldenCase) -> bytes:
    """A `_metadata` file that holds all state of the snapshot itself."""
    files = StateFiles(Directory(golden.snapshot))

    def inline(handle: RelativeHandle | FileHandle) -> InlineHandle:
        source = files.open(handle)
        data = np.empty(source.size, np.uint8)
        source.read_into(0, data)
        return InlineHandle("", data.tobytes())

    metadata = read_metadata((golden.snapshot / "_metadata").read_bytes())
    found = streams_replaced(metadata, inline)
    assert isinstance(found, CheckpointMetadata)
    return write_metadata(found)


def damages(size: int) -> st.SearchStrategy[Callable[[bytes], bytes]]:
    """Ways to damage so many bytes: single bytes, numbers, gaps, repetitions, the end cut off."""
    places = st.integers(0, max(0, size - 1))
    lengths = st.sampled_from(LENGTHS).map(lambda number: number.to_bytes(4, "big", signed=True))
    over = st.tuples(places, st.binary(min_size=1, max_size=3) | lengths).map(
        lambda held: lambda data: data[: held[0]] + held[1] + data[held[0] + len(held[1]) :]
    )
    cut = places.map(lambda at: lambda data: data[:at])
    short = st.integers(1, 9)
    gap = st.tuples(places, short).map(
        lambda held: lambda data: data[: held[0]] + data[held[0] + held[1] :]
    )
    more = st.tuples(places, st.binary(min_size=1, max_size=9)).map(
        lambda held: lambda data: data[: held[0]] + held[1] + data[held[0] :]
    )
    copied = st.tuples(places, places, st.integers(1, 60)).map(
        lambda held: (
            lambda data: (
                data[: held[0]] + data[held[1] : held[1] + held[2]] + data[held[0] + held[2] :]
            )
        )
    )
    one = over | over | cut | gap | more | copied
    return st.lists(one, min_size=1, max_size=3).map(_in_turn)


def _in_turn(changes: list[Callable[[bytes], bytes]]) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        for change in changes:
            data = change(data)
        return data

    return change


def some_damage(data: bytes, random: Random) -> bytes:
    """A snapshot of which a byte is another one, or a number: anywhere, or beside a class's name.

    Half of the damage is beside a name, and there in each copy of it, so that no copies disagree.
    """
    if random.random() < 0.5:
        return _with_other(data, random.randrange(len(data)), random)
    name = random.choice(list(_NAME.finditer(data)))
    begin, end = max(0, name.start() - 8), name.end() + 16
    near = data[begin:end]
    return data.replace(near, _with_other(near, random.randrange(len(near)), random))


def cut_or_moved(data: bytes, random: Random) -> bytes:
    """A snapshot that is cut off, has a gap, or has bytes of another place, or more of them."""
    at, size = random.randrange(len(data)), random.randint(1, 9)
    kind = random.randrange(4)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + data[at + size :]
    if kind == 2:
        return data[:at] + random.randbytes(size) + data[at:]
    start, count = random.randrange(len(data)), random.randint(1, 60)
    return data[:at] + data[start : start + count] + data[at + count :]


def _with_other(data: bytes, at: int, random: Random) -> bytes:
    """The same bytes but for one, or for a number of four."""
    size = len(data) - at
    kind = random.randrange(4)
    if kind == 0:
        new = random.choice(LENGTHS).to_bytes(4, "big", signed=True)[:size]
    elif kind == 1:
        new = bytes([data[at] ^ 1 << random.randrange(8)])
    else:
        new = bytes([random.randrange(256)])
    return data[:at] + new + data[at + len(new) :]
