"""Operator state: one subtask's file, beside its keyed state.

::

    i32 version (6; 5 until Flink 1.17), boolean compression (6 only)
    i16 n, n state meta infos             list states: SPLIT_DISTRIBUTE or UNION
    i16 n, n state meta infos             broadcast states
    list state:       its elements; the handle has an offset for each
    broadcast state:  i32 n, n * (key, value); the handle has one offset
    compressed:       one Snappy stream behind the header, flushed before each element, so that
                      an offset is where a chunk begins

Only the state is compressed, never the header; versions up to 5 are read as uncompressed,
regardless of the configuration.

Source: `OperatorBackendSerializationProxy`, `DefaultOperatorStateBackendSnapshotStrategy`,
`OperatorStateRestoreOperation` in `org.apache.flink.runtime.state`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from statelake.state_core.bounds import STATES
from statelake.state_core.errors import StateError, UnsupportedFormatError
from statelake.state_core.files.compression import PlainStream, SnappyStream
from statelake.state_core.files.filesystem import ByteSource
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.meta_info import (
    LEAST_META_BYTES,
    StateMetaInfo,
    read_state_meta_infos,
    write_state_meta_info,
)
from statelake.state_core.formats.metadata.state_files import HeaderCache
from statelake.state_core.kernels.frames import walk_frames
from statelake.state_core.model.handles import OperatorHandle
from statelake.state_core.serializers.framework.columns import I64Array, U8Array

UNCOMPRESSED_VERSION, CURRENT_VERSION = 5, 6
LEAST_CHUNK = 5


@dataclass(frozen=True, slots=True)
class OperatorHeader:
    """The header of an operator state file, and its length in bytes."""

    version: int
    compressed: bool
    lists: tuple[StateMetaInfo, ...]
    broadcasts: tuple[StateMetaInfo, ...]
    size: int = 0


@dataclass(frozen=True, slots=True)
class ElementBounds:
    """The bounds of a state's elements in `OperatorFile.content`; one for a broadcast state."""

    starts: I64Array
    ends: I64Array


def read_operator_header(source: DataInput) -> OperatorHeader:
    """Read the header of a file.

    Raises:
        UnsupportedFormatError: The version is neither 5 nor 6.
    """
    version = source.read_int()
    if version not in (UNCOMPRESSED_VERSION, CURRENT_VERSION):
        raise UnsupportedFormatError(
            f"operator state of version {version}; 5 and 6 (Flink 1.8 to 2.3) are read",
            place=source.place,
            remedy="restore it in the Flink that wrote it, upgrade, and take a new savepoint",
        )
    compressed = source.read_boolean() if version == CURRENT_VERSION else False
    groups: list[tuple[StateMetaInfo, ...]] = []
    for what in ("list states", "broadcast states"):
        count = source.read_short_count(what, LEAST_META_BYTES, STATES)
        groups.append(read_state_meta_infos(source, count, groups[0] if groups else ()))
    return OperatorHeader(version, compressed, groups[0], groups[1], source.position)


def write_operator_header(header: OperatorHeader, out: DataOutput) -> None:
    """Write the header of a file, in its version."""
    out.write_int(header.version)
    if header.version == CURRENT_VERSION:
        out.write_boolean(header.compressed)
    for states in (header.lists, header.broadcasts):
        out.write_short(len(states))
        for state in states:
            write_state_meta_info(state, out)


@dataclass(frozen=True)
class OperatorFile:
    """One subtask's operator state, opened.

    Attributes:
        source: Its bytes.
        header: The header, which describes its states.
        handle: The handle, with the offsets of its elements.
    """

    source: ByteSource
    header: OperatorHeader
    handle: OperatorHandle

    @property
    def states(self) -> tuple[StateMetaInfo, ...]:
        """List states, then broadcast states."""
        return (*self.header.lists, *self.header.broadcasts)

    @cached_property
    def _frames(self) -> tuple[I64Array, I64Array]:
        """The starts of compressed chunks in the file, and of their content in `content`."""
        raw = np.empty(self.source.size - self.header.size, np.uint8)
        self.source.read_into(self.header.size, raw)
        room = raw.size // LEAST_CHUNK + 1
        starts, contents = np.empty(room, np.int64), np.empty(room, np.int64)
        count = int(walk_frames(raw, starts, contents))
        if count < 0:
            raise DataInput(b"", self.source.name).fault(
                f"no Snappy chunk at offset {self.header.size - 1 - count}"
            )
        begin = np.concatenate((np.zeros(1, np.int64), np.cumsum(contents[:count])))
        return starts[:count] + self.header.size, begin

    @cached_property
    def content(self) -> U8Array:
        """All state behind the header, decompressed, in memory, as it is in the backend."""
        end = self.source.size
        size = int(self._frames[1][-1]) if self.header.compressed else end - self.header.size
        out = np.empty(size, np.uint8)
        kind = SnappyStream if self.header.compressed else PlainStream
        kind(self.source, self.header.size, end).read_into(out)
        return out

    @cached_property
    def _offsets(self) -> dict[str, I64Array]:
        """The start of each state's elements in the file."""
        states = self.handle.states
        return {name: np.array(part.offsets, np.int64) for name, part in states.items()}

    @cached_property
    def _bounds(self) -> I64Array:
        """The starts of all elements in `content`, ascending, and its end."""
        everything = np.sort(np.concatenate([np.empty(0, np.int64), *self._offsets.values()]))
        bounds = np.append(self._within(everything), self.content.size)
        alike = np.flatnonzero((np.diff(bounds) == 0) & (bounds[1:] < self.content.size))
        if alike.size:
            raise DataInput(b"", self.source.name).fault(
                f"two elements at offset {int(everything[alike[0]])}"
            )
        return bounds

    def _within(self, offsets: npt.NDArray[np.int64]) -> I64Array:
        """Return positions in the file as positions in `content`."""
        if not self.header.compressed:
            positions = offsets - self.header.size
        else:
            chunks, begin = self._frames
            which = np.searchsorted(chunks, offsets)
            known = which < len(chunks)
            known[known] = chunks[which[known]] == offsets[known]
            positions = np.where(known, begin[np.minimum(which, len(begin) - 1)], -1)
        bad = np.flatnonzero((positions < 0) | (positions > self.content.size))
        if bad.size:
            raise DataInput(b"", self.source.name).fault(
                f"an element at offset {int(offsets[bad[0]])}, where no state is"
            )
        return positions.astype(np.int64)

    def elements(self, state: str) -> ElementBounds:
        """Return the bounds of a state's elements; a broadcast state is one element.

        Raises:
            CorruptSnapshotError: An offset leads outside the state.
        """
        starts = self._within(self._offsets.get(state, np.empty(0, np.int64)))
        bounds = self._bounds
        ends = bounds[np.searchsorted(bounds[:-1], starts, side="right")]
        return ElementBounds(starts, ends)

    def place(self, position: int) -> str:
        """Return the name of a position in `content`."""
        what = "decompressed byte" if self.header.compressed else "offset"
        at = position if self.header.compressed else position + self.header.size
        return f"{self.source.name}, {what} {at}"


def open_operator_file(
    source: ByteSource, handle: OperatorHandle, heads: HeaderCache | None = None
) -> OperatorFile:
    """Open one subtask's operator state.

    Args:
        source: The file's bytes.
        handle: The handle, with the offsets of its elements.
        heads: The headers of the snapshot's files, to share equal ones.

    Raises:
        SnapshotError: The file can't be read.
    """
    try:
        header = header_of(source, handle, heads or HeaderCache())
    except StateError as error:
        raise error.within("operator state") from error
    return OperatorFile(source, header, handle)


def header_of(source: ByteSource, handle: OperatorHandle, heads: HeaderCache) -> OperatorHeader:
    """Read the header of a file, which ends at the first element.

    Raises:
        SnapshotError: The header can't be read.
    """
    offsets = (at for state in handle.states.values() for at in state.offsets)
    end = min((at for at in offsets if at > 0), default=source.size)
    return heads.read(source, end, read_operator_header)
