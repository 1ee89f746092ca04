"""Checkpoints in the backends' own formats, as Flink writes them, of working state of ours.

The product writes the unified format alone; its readers of the other two are tested with these.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rocksdict import Checkpoint

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.compression import compress_snappy
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.layout.meta_info import write_keyed_header
from statelake.state_core.formats.writing.writer import KeyedPart, keyed_handle
from statelake.state_core.kernels.encode import copy_pieces, write_values_heads
from statelake.state_core.kernels.skip import UNKNOWN, count_delimited, locate_delimited
from statelake.state_core.model.handles import (
    FileHandle,
    IncrementalHandle,
    KeyedHandle,
    KeyGroupsKind,
    RelativeHandle,
    StreamHandle,
)
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.runtime.backends import KeyedStateBackend
from statelake.state_core.runtime.backends.rocksdb import RocksDBStorage
from statelake.state_core.runtime.backends.states.keys import key_parts
from statelake.state_core.runtime.backends.states.states import stored_serializer
from statelake.state_core.runtime.backends.states.tables import DELIMITER, ListTable, entries_of
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import I64Array, U8Array
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer

__all__ = ["native_checkpoint"]


def native_checkpoint(
    backend: KeyedStateBackend, directory: Directory, shared: Directory | None = None
) -> KeyedHandle | None:
    """A checkpoint in the backend's own format; of RocksDB its tables may go to another directory.

    Values that only their own class can walk can't be read back from the heap's format: with such
    a state the unified one is written, as Flink does.
    """
    if not backend.registry.states:
        return None
    for state in backend.registry:
        if isinstance(state.table, ListTable):
            state.table.flush()
    if isinstance(backend.storage, RocksDBStorage):
        return _rocksdb(backend, backend.storage, directory, shared)
    if not all(_walkable(state.layout) for state in backend.registry):
        return backend.snapshot(directory).run()
    return _heap(backend, directory)


def _rocksdb(
    backend: KeyedStateBackend, storage: RocksDBStorage, directory: Directory,
    shared: Directory | None,
) -> IncrementalHandle:  # fmt: skip
    """Files of RocksDB, and a meta file with the header."""
    of_all: list[tuple[str, StreamHandle | None]] = []
    own: list[tuple[str, StreamHandle | None]] = []
    with tempfile.TemporaryDirectory(dir=storage.directory) as parent:
        Checkpoint(storage.database.database).create_checkpoint(f"{parent}/files")
        for path in sorted(Path(parent, "files").iterdir()):
            if path.name == "rocksdict-config.json":
                continue
            is_shared = shared is not None and path.suffix == ".sst"
            target = shared if shared is not None and is_shared else directory
            name, size = str(uuid.uuid4()), path.stat().st_size
            with path.open("rb") as source, target.open_output(name) as file:
                shutil.copyfileobj(source, file)
            if is_shared:
                of_all.append((path.name, FileHandle(f"file:{target.full(name)}", size)))
            else:
                own.append((path.name, RelativeHandle(name, size)))
    out, meta, key_groups = DataOutput(), str(uuid.uuid4()), backend.configuration.key_groups
    write_keyed_header(backend.registry.header, out)
    directory.write(meta, out.to_bytes())
    return IncrementalHandle(
        1, str(uuid.uuid4()), key_groups.first, len(key_groups), RelativeHandle(meta, len(out)),
        tuple(of_all), tuple(own), len(out), str(uuid.uuid4()),
    )  # fmt: skip


def _heap(backend: KeyedStateBackend, directory: Directory) -> KeyedHandle:
    """Flink's heap format.

    ::

        keyed header
        each key group of the range, empty ones too:
            i32 key group
            each state: i16 id, i32 count, its entries [a Snappy stream a state, if compressed]:
                key-value state:  namespace, key, value; lists and maps whole, with their counts
                timers:           the timer
    """
    compressed, part = backend.configuration.compressed, KeyedPart(str(uuid.uuid4()))
    head = DataOutput()
    write_keyed_header(replace(backend.registry.header, compressed=compressed), head)
    key_groups = backend.configuration.key_groups
    with directory.open_output(part.name) as file:
        file.write(head.to_bytes())
        for index, group in enumerate(range(key_groups.first, key_groups.last + 1)):
            part.offsets[group] = file.tell()
            file.write(group.to_bytes(4, "big"))
            for number, state in enumerate(backend.registry):
                table: Any = state.table
                entries = (table.table if isinstance(table, ListTable) else table).groups[index]
                piece = number.to_bytes(2, "big") + len(entries).to_bytes(4, "big")
                piece += _native(state.layout, entries).tobytes()
                file.write(compress_snappy(piece) if compressed else piece)
        part.size = file.tell()
    handle = keyed_handle(part, key_groups)
    return replace(handle, kind=KeyGroupsKind.NATIVE, handle_id=str(uuid.uuid4()))


def _walkable(layout: KeyedLayout) -> bool:
    """Whether the ends of entries are known from their bytes."""
    value = layout.stored_value()
    parts = [layout.key, layout.namespace, layout.user_key, layout.value]
    return not isinstance(value, OpaqueSerializer) and all(
        part is None or part.self_delimiting for part in parts
    )


def _native(layout: KeyedLayout, entries: dict[bytes, Any]) -> U8Array:
    """The entries of a key group's dictionary."""
    keys = list(entries)
    if layout.kind is StateKind.TIMERS:
        return np.frombuffer(b"".join(keys), np.uint8)
    if layout.kind is StateKind.MAP:
        plain = replace(layout, user_key=None)  # keys without user keys
        return _entries(plain, keys, [_whole(user_map) for user_map in entries.values()])
    values = list(entries.values())
    if layout.kind is StateKind.LIST:
        values = _counted(stored_serializer(layout), values)
    return _entries(layout, keys, values)


def _whole(entries: dict[bytes, bytes]) -> bytes:
    """A map with its count in front; its entries are in the final format already."""
    pairs = [part for pair in entries.items() for part in pair]
    return b"".join([len(entries).to_bytes(4, "big"), *pairs])


def _entries(layout: KeyedLayout, keys: list[bytes], values: list[bytes]) -> U8Array:
    """Entries of namespace, key and value, concatenated."""
    entries = entries_of(0, 0, keys, values)
    key_end, namespace, namespace_end = key_parts(layout, entries)
    parts = [
        (namespace, namespace_end),
        (entries.key_start, key_end),
        (entries.value_start, entries.value_end),
    ]
    bounds = np.zeros(len(keys) + 1, np.int64)
    np.cumsum(sum(end - start for start, end in parts), out=bounds[1:])
    out = np.empty(int(bounds[-1]), np.uint8)
    position = bounds[:-1].copy()
    for start, end in parts:
        pieces = np.ascontiguousarray(start), np.ascontiguousarray(end)
        copy_pieces(entries.data, *pieces, out, position)
    return out


def _counted(element: TypeSerializer, lists: list[bytes]) -> list[bytes]:
    """Lists with their counts in front, instead of delimiters in between."""
    program = element.skip_program()
    if program is None:
        return [_counted_slowly(element, list_) for list_ in lists]
    data = np.frombuffer(b"".join(lists), np.uint8)
    bounds = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, lists), np.int64, len(lists)), out=bounds[1:])
    starts, ends = bounds[:-1].copy(), bounds[1:].copy()
    words, counts = np.array(program, np.int32), np.empty(len(lists), np.int64)
    failed = count_delimited(data, starts, ends, words, counts)
    if failed >= 0 or (counts == UNKNOWN).any():
        raise EncodeError(
            f"the ends of the elements in a list of {element.name} are not known",
            remedy="take a savepoint, which keeps lists as they are",
        )
    first = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(counts, out=first[1:])
    element_start, element_end = np.empty(first[-1], np.int64), np.empty(first[-1], np.int64)
    locate_delimited(data, starts, ends, first, words, element_start, element_end)
    return _without_delimiters(data, bounds, first, element_start, element_end)


def _without_delimiters(
    data: U8Array, bounds: I64Array, first: I64Array, starts: I64Array, ends: I64Array
) -> list[bytes]:
    counts = np.diff(first)
    sizes = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(np.diff(bounds) - (counts - 1) + 4, out=sizes[1:])
    out = np.empty(int(sizes[-1]), np.uint8)
    position = sizes[:-1].copy()
    write_values_heads(counts, out, position)
    rows = np.repeat(np.arange(len(counts)), counts)
    # an element moves to the front by the delimiters before it
    place = position[rows] + (starts - bounds[rows]) - (np.arange(len(starts)) - first[rows])
    copy_pieces(data, starts, ends, out, place)
    whole = out.tobytes()
    return [whole[start:end] for start, end in pairwise(sizes.tolist())]


def _counted_slowly(element: TypeSerializer, data: bytes) -> bytes:
    """One list of elements that only their serializer can walk."""
    source, elements = DataInput(data, "list state"), []
    while source.remaining:
        start = source.position
        element.skip(source)
        elements.append(data[start : source.position])
        source.read_bytes(min(len(DELIMITER), source.remaining))
    return len(elements).to_bytes(4, "big") + b"".join(elements)
