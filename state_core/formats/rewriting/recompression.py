"""Rewrite a canonical savepoint compressed or uncompressed, with the same entries.

Only streams are rewritten: one for each key group of keyed state, one for each operator state.
Other state is copied. Memory is bounded by a window, regardless of the size of key groups. An
export with another compression needs room for all tables, takes nearly twice the time, and has no
sizes of single states.

A key group's stream contains the entries of all states, so each state is assigned its share of
bytes and time by its share of the content.
"""

from __future__ import annotations

import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import UnsupportedFormatError
from statelake.state_core.files.compression import codec_named, open_stream
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.files.wire import DataOutput
from statelake.state_core.formats.keyed.keyed_files import open_keyed
from statelake.state_core.formats.keyed.unified_file import UnifiedFile, UnifiedKeyedFile
from statelake.state_core.formats.metadata.checkpoint_metadata import OperatorMetadata, SubtaskState
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.formats.metadata.stream_map import map_streams
from statelake.state_core.formats.operator_state.operator_file import (
    CURRENT_VERSION,
    OperatorFile,
    OperatorHeader,
    write_operator_header,
)
from statelake.state_core.formats.operator_state.operator_reader import open_operator_files
from statelake.state_core.formats.operator_state.operator_states import encode_operator_file
from statelake.state_core.formats.reader import open_snapshot, snapshot_directory
from statelake.state_core.formats.writing.writer import (
    KeyedPart,
    SavepointDirectory,
    keyed_handle,
    write_keyed_part,
)
from statelake.state_core.model.handles import (
    InlineHandle,
    KeyGroupsHandle,
    KeyGroupsKind,
    OperatorHandle,
    RelativeHandle,
    StreamHandle,
)
from statelake.state_core.model.measure import I64Array, measure_operator
from statelake.state_core.model.snapshot import Operator
from statelake.state_core.printable import Printed, Table, bytes_text

WINDOW_BYTES = 64 * 65536  # whole chunks, so that windows are framed like one stream
Progress = Callable[[int, int], None]


@dataclass
class StateCompression:
    """The result for one state.

    Attributes:
        operator: Its operator's uid or id.
        state: Its name.
        content_bytes: The uncompressed bytes.
        before_bytes: The bytes that were stored before.
        after_bytes: The bytes that are stored now.
        seconds: The time for reading and writing it.
    """

    operator: str
    state: str
    content_bytes: float = 0
    before_bytes: float = 0
    after_bytes: float = 0
    seconds: float = 0

    @property
    def ratio(self) -> float:
        """Ratio of content to stored bytes: above 1 is smaller."""
        return self.content_bytes / self.after_bytes if self.after_bytes else 1.0

    def add(self, content: float, before: float, after: float, seconds: float) -> None:
        """Add a part of its bytes and of its time."""
        self.content_bytes += content
        self.before_bytes += before
        self.after_bytes += after
        self.seconds += seconds


@dataclass(frozen=True)
class Recompression(Printed):
    """The result of a rewrite.

    Attributes:
        path: The savepoint.
        compression: `snappy` or `none`.
        states: The sizes of each state, keyed or not.
    """

    path: str
    compression: str
    states: list[StateCompression] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        states = [asdict(state) | {"ratio": round(state.ratio, 3)} for state in self.states]
        return {"path": self.path, "compression": self.compression, "states": states}

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: a line, and the table of states."""
        before = sum(state.before_bytes for state in self.states)
        after = sum(state.after_bytes for state in self.states)
        yield (
            f"wrote {self.path}, compression {self.compression}:"
            f" {bytes_text(int(after))} of state, {bytes_text(int(before))} before"
        )
        yield self.table

    @property
    def table(self) -> Table:
        """The table of states: sizes, ratio, speed."""
        rows = [
            (state.operator, state.state, bytes_text(int(state.content_bytes)),
             bytes_text(int(state.after_bytes)), f"{state.ratio:.2f}",
             f"{bytes_text(int(state.content_bytes / state.seconds))}/s" if state.seconds else "")
            for state in self.states
        ]  # fmt: skip
        return Table("", ("<operator", "<state", ">content", ">stored", ">ratio", ">speed"), rows)


def recompress_snapshot(
    location: str | os.PathLike[str],
    to: str | os.PathLike[str],
    compression: str = "snappy",
    *,
    allow_external: Iterable[str] = (),
    progress: Progress | None = None,
) -> Recompression:
    """Rewrite a canonical savepoint with another compression.

    Args:
        location: The savepoint.
        to: A directory that does not exist yet.
        compression: `snappy` or `none`.
        allow_external: Other directories to which its handles may lead.
        progress: Called with (done, total) after each file.

    Raises:
        UnsupportedFormatError: The snapshot is not canonical, or the codec is unknown.
        SnapshotError: The snapshot can't be read, or the target can't be written.
    """
    if compression != "none":
        codec_named(compression)
    snapshot = open_snapshot(location, allow_external=allow_external)
    files = StateFiles(snapshot_directory(location), tuple(allow_external))
    target = SavepointDirectory(to)
    work = _Recompression(files, target.directory, compression, progress)
    metadata = replace(snapshot.metadata, version=max(snapshot.metadata.version, 3))
    work.total = sum(len(operator.subtasks or {}) for operator in metadata.operators)
    try:
        metadata.operators = [
            work.operator(state, operator)
            for state, operator in zip(metadata.operators, snapshot.operators, strict=True)
        ]
        metadata = map_streams(metadata, work.copy)
        path = target.commit(metadata)
    except BaseException:
        target.abandon()
        raise
    return Recompression(path, compression, list(work.states.values()))


class _Recompression:
    def __init__(
        self, files: StateFiles, target: Directory, compression: str, progress: Progress | None
    ) -> None:
        self.files = files
        self.target = target
        self.compressed = compression != "none"
        self.progress = progress
        self.states: dict[tuple[str, str], StateCompression] = {}
        self.written: set[str] = set()
        self.done = self.total = 0

    def operator(self, state: OperatorMetadata, operator: Operator) -> OperatorMetadata:
        """Rewrite one operator's files."""
        if state.subtasks is None:
            return state
        sizes = {}
        if operator.keyed_files:
            sizes = {name: of for name, (_, of) in measure_operator(operator).items()}
        operator_files = open_operator_files(state, self.files)
        subtasks = {}
        for index, subtask in state.subtasks.items():
            recompressed = replace(subtask)
            if index in operator_files:
                recompressed.managed_operator = self._operator_file(operator_files[index], operator)
            self._keyed(recompressed, state, operator, sizes)
            subtasks[index] = recompressed
            self.done += 1
            if self.progress is not None:
                self.progress(self.done, self.total)
        return replace(state, subtasks=subtasks)

    def _keyed(
        self,
        subtask: SubtaskState,
        state: OperatorMetadata,
        operator: Operator,
        sizes: dict[str, I64Array],
    ) -> None:
        handle = subtask.managed_keyed
        if handle is None:
            return
        if not isinstance(handle, KeyGroupsHandle) or handle.kind is not KeyGroupsKind.SAVEPOINT:
            raise UnsupportedFormatError(
                "state in a backend's own format, which is not compressed as a savepoint is",
                place=f"operator {operator.label}",
                remedy="import it into a lake and export it, which writes a canonical savepoint",
            )
        opened = open_keyed(handle, self.files, state.max_parallelism)
        if not isinstance(opened, UnifiedKeyedFile):
            return  # the key group is empty
        part = self._keyed_file(opened.file, operator, sizes)
        subtask.managed_keyed = keyed_handle(part, opened.key_groups)
        self.written.add(part.name)

    def _keyed_file(
        self, file: UnifiedFile, operator: Operator, sizes: dict[str, I64Array]
    ) -> KeyedPart:
        """Rewrite every key group's stream of a file; each state has a share of its bytes."""
        began, content = time.perf_counter(), Counter[int]()
        part = write_keyed_part(
            self.target, file.header, _windows(file, content), compressed=self.compressed
        )
        spent = (time.perf_counter() - began) / max(1, content.total())
        before = {span.group: span.end - span.start for span in file.spans}
        bounds = pairwise([*part.offsets.values(), part.size])
        rows = np.array(
            [
                (size, before[group], end - start, spent * size)
                for (group, size), (start, end) in zip(content.items(), bounds, strict=True)
            ]
        )
        groups = list(content)
        total = np.maximum(1, sum(of[groups] for of in sizes.values()))
        for name, of in sizes.items() if groups else ():
            self._state(operator, name).add(*(of[groups] / total @ rows).tolist())
        return part

    def _operator_file(self, file: OperatorFile, operator: Operator) -> OperatorHandle:
        """Rewrite one subtask's operator state, as version 6, since 5 has no compression."""
        began = time.perf_counter()
        version = CURRENT_VERSION if self.compressed else file.header.version
        header = replace(file.header, version=version, compressed=self.compressed)
        states = []
        for state in file.states:
            places = file.elements(state.name)
            bounds = zip(places.starts.tolist(), places.ends.tolist(), strict=True)
            elements = [file.content[start:end].tobytes() for start, end in bounds]
            states.append((state, pa.array(elements, pa.large_binary())))
        data, offsets = encode_operator_file(header, states)
        name = str(uuid.uuid4())
        with self.target.open_output(name) as out:
            out.write(data)
        self.written.add(name)
        spent = time.perf_counter() - began
        total = sum(len(element.as_py()) for _, elements in states for element in elements) or 1
        written = len(data) - _header_size(header)
        for state, elements in states:
            content = sum(len(element.as_py()) for element in elements)
            share = content / total
            before = share * (file.source.size - file.header.size)
            self._state(operator, state.name).add(content, before, share * written, share * spent)
        return OperatorHandle(offsets, RelativeHandle(name, len(data)))

    def _state(self, operator: Operator, name: str) -> StateCompression:
        key = (operator.operator_id, name)
        return self.states.setdefault(key, StateCompression(operator.label, name))

    def copy(self, handle: StreamHandle) -> StreamHandle:
        """Copy a stream of neither keyed nor operator state."""
        if isinstance(handle, InlineHandle):
            return handle
        if isinstance(handle, RelativeHandle) and handle.path in self.written:
            return handle
        source = self.files.open(handle)
        name = str(uuid.uuid4())
        with self.target.open_output(name) as out:
            for at in range(0, source.size, WINDOW_BYTES):
                block = np.empty(min(WINDOW_BYTES, source.size - at), np.uint8)
                source.read_into(at, block)
                out.write(block.data)
        self.written.add(name)
        return RelativeHandle(name, source.size)


def _header_size(header: OperatorHeader) -> int:
    out = DataOutput()
    write_operator_header(header, out)
    return len(out)


def _windows(file: UnifiedFile, sizes: Counter[int]) -> Iterator[tuple[int | None, memoryview]]:
    """Yield the content of key groups for `write_keyed_part`, and count its bytes."""
    window = np.empty(WINDOW_BYTES, np.uint8)
    for span in file.spans:
        stream = open_stream(file.source, span.start, span.end, compressed=file.header.compressed)
        while count := stream.read_into(window):
            yield None if span.group in sizes else span.group, window[:count].data
            sizes[span.group] += count
