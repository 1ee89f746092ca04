"""The current key, and the key bytes of entries.

Under one key group an entry's key is `key [length] namespace [length]`, as in the unified format;
the lengths are present only if neither part is of fixed size. The bytes of the current key are
computed once for all states.

Source: `org.apache.flink.runtime.state.SerializedCompositeKeyBuilder`, `InternalKeyContextImpl`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from statelake.state_core.errors import KeyGroupError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout, trailer_sizes
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.key_groups import key_group_of
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import Cursor, I64Array

LOCATED_KEYS = 1 << 14  # keys whose bytes are cached, as keys recur


class KeyContext:
    """The current key of a subtask's states.

    Args:
        serializer: The serializer of keys.
        max_parallelism: The number of key groups.
        key_groups: The key groups of this subtask.

    Attributes:
        key: The current key.
        group: Its key group; -1 before the first key.
        encoded: Its bytes.
    """

    __slots__ = ("_by_bytes", "_located", "encoded", "group", "key", "key_groups",
                 "max_parallelism", "serializer")  # fmt: skip

    def __init__(
        self, serializer: TypeSerializer, max_parallelism: int, key_groups: KeyGroupRange
    ) -> None:
        self.serializer = serializer
        self.max_parallelism = max_parallelism
        self.key_groups = key_groups
        self.key: Any = None
        self.group = -1
        self.encoded = b""
        self._located: dict[Any, tuple[int, bytes]] = {}
        # the hash of Flink SQL's rows is computed from their bytes
        self._by_bytes = type(serializer).hash_code_at is not TypeSerializer.hash_code_at

    def set(self, key: Any) -> None:
        """Set the current key.

        Raises:
            KeyGroupError: The key is null, belongs to another subtask, or has no hash known here.
            EncodeError: The key is not of the backend's key type.
        """
        group, encoded = self.locate(key)
        self.key, self.group, self.encoded = key, group, encoded

    def locate(self, key: Any) -> tuple[int, bytes]:
        """Return the key group and the bytes of a key.

        Raises:
            KeyGroupError: The key is null, belongs to another subtask, or has no hash known here.
        """
        plain = type(key) is str or type(key) is int  # equal ones have the same bytes
        if plain and (located := self._located.get(key)) is not None:
            return located
        if key is None:
            raise KeyGroupError("the key is null", remedy="pass one: no key in Flink is null")
        out = DataOutput()
        self.serializer.write(key, out)
        encoded = out.to_bytes()
        code = (
            self.serializer.hash_code_at(DataInput(encoded, "key"))
            if self._by_bytes
            else self.serializer.hash_code(key)
        )
        group = key_group_of(code, self.max_parallelism)
        if group not in self.key_groups:
            raise KeyGroupError(
                f"key {key!r} is in key group {group}, and this subtask has {self.key_groups}",
                remedy="send every key to the subtask that owns its key group",
            )
        if plain:
            if len(self._located) == LOCATED_KEYS:
                self._located.clear()
            self._located[key] = group, encoded
        return group, encoded


def composite_key(key: bytes, namespace: bytes, *, ambiguous: bool) -> bytes:
    """Return the key bytes of entries with a key and a namespace."""
    if not ambiguous:
        return key + namespace
    return key + _trailer(len(key)) + namespace + _trailer(len(namespace))


def _trailer(length: int) -> bytes:
    return length.to_bytes(max(1, (length.bit_length() + 7) // 8), "little")


def split_key(layout: KeyedLayout, composite: bytes) -> tuple[Any, Any]:
    """Return key and namespace from an entry's key bytes."""
    source = DataInput(composite, "key")
    parts = []
    for serializer in (layout.key, layout.namespace):
        start = source.position
        if serializer.self_delimiting:
            parts.append(serializer.read(source))
        else:  # the namespace is of fixed size then
            data = source.read_bytes(source.remaining - layout.namespace.wire_length)
            parts.append(serializer.read(DataInput(data, "key")))
        if layout.ambiguous:
            source.read_bytes(len(_trailer(source.position - start)))
    return parts[0], parts[1]


def key_parts(layout: KeyedLayout, entries: Entries) -> tuple[I64Array, I64Array, I64Array]:
    """Return the end of each entry's key, and the start and end of its namespace.

    A length may follow each; a map's user key comes last.
    """
    key, namespace = layout.key.wire_length, layout.namespace.wire_length
    if key > 0 and namespace > 0:
        ends = entries.key_start + key
        return ends, ends, ends + namespace
    if namespace > 0 and layout.user_key is None:
        ends = entries.key_end - namespace
        return ends, ends, entries.key_end
    cursor = Cursor(entries.data, entries.key_start.copy(), entries.key_end, entries.place)
    bounds = []
    for part in (layout.key, layout.namespace):
        start = cursor.position.copy()
        part.decode(cursor)
        bounds += [start, cursor.position.copy()]
        if layout.ambiguous:
            cursor.position += trailer_sizes(cursor.position - start)
    return bounds[1], bounds[2], bounds[3]


def namespace_ends(layout: KeyedLayout, entries: Entries) -> I64Array:
    """Return the start of a map's user key in the key bytes of each entry."""
    if layout.user_key is None or layout.opaque_key:
        return entries.key_end
    _, starts, ends = key_parts(layout, entries)
    return ends + trailer_sizes(ends - starts) if layout.ambiguous else ends


def runs_of_groups(groups: npt.NDArray[Any]) -> Iterator[tuple[int, int, int]]:
    """Yield each run of one key group, with its first row and the one behind its last."""
    cuts = np.flatnonzero(groups[1:] != groups[:-1]) + 1
    bounds = [0, *cuts.tolist(), len(groups)] if len(groups) else [0]
    for start, end in pairwise(bounds):
        yield int(groups[start]), start, end
