"""Check of each subtask's operator state, element by element.

A file is split at the offsets of its handle, so that one bad element, or one bad Snappy
chunk, does not hide the others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from statelake.state_core.errors import CorruptSnapshotError, StateError, UnknownSerializerError
from statelake.state_core.files.compression import IDENTIFIER, SnappyStream
from statelake.state_core.files.filesystem import ByteSource, InlineSource
from statelake.state_core.files.wire import DataOutput
from statelake.state_core.formats.layout.meta_info import DISTRIBUTION_MODE, StateMetaInfo
from statelake.state_core.formats.metadata.checkpoint_metadata import OperatorMetadata
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.formats.operator_state.operator_file import (
    OperatorFile,
    OperatorHeader,
    header_of,
    write_operator_header,
)
from statelake.state_core.formats.operator_state.operator_states import (
    OperatorLayout,
    operator_layout,
)
from statelake.state_core.integrity.findings import FaultKind, Findings, Place, most_frequent
from statelake.state_core.integrity.keyed_sources import open_stream_of
from statelake.state_core.model.handles import OperatorHandle, PartitionOffsets
from statelake.state_core.serializers.framework.columns import Cursor
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer, undecoded


@dataclass
class OperatorPart:
    """The sound part of one subtask's operator state.

    Attributes:
        subtask: Its index.
        handle: Its handle.
        header: The header of its file; None if it can't be read.
        elements: Each state's sound elements as bytes; a copy of a broadcast state is one element.
        copies: The entries of each broadcast state, as bytes.
        faulty: States whose meta info is wrong.
        unknown: Whether its types are unknown, and nothing else is wrong.
    """

    subtask: int
    handle: OperatorHandle
    header: OperatorHeader | None = None
    elements: dict[str, list[bytes]] = field(default_factory=dict)
    copies: dict[str, frozenset[tuple[bytes, bytes]]] = field(default_factory=dict)
    faulty: set[str] = field(default_factory=set)
    unknown: bool = False


def examine_operator_states(
    operator: OperatorMetadata, label: str, files: StateFiles, findings: Findings
) -> list[OperatorPart]:
    """Check the operator state of all subtasks."""
    parts = []
    for index, subtask in sorted((operator.subtasks or {}).items()):
        handle = subtask.managed_operator
        if handle is None or handle.stream is None or not handle.states:
            continue
        part = OperatorPart(index, handle)
        parts.append(part)
        where = Place(label, index)
        source = open_stream_of(handle.stream, files, where, findings)
        if source is None:
            _lose(part, where, "its file can't be opened", findings)
            continue
        try:
            part.header = header_of(source, handle, files.heads)
        except UnknownSerializerError as error:
            part.unknown = True
            findings.skip(where, f"operator state: {error.problem}")
            continue
        except StateError as error:
            findings.fault(FaultKind.HEADER, where, error.within("operator state"))
            _lose(part, where, error.problem, findings)
            continue
        _Taken(part, source, where, findings).run()
    _compare_types(parts, label, findings)
    _compare_copies(parts, label, findings)
    return parts


def _lose(part: OperatorPart, where: Place, why: str, findings: Findings) -> None:
    for name, offsets in part.handle.states.items():
        findings.lose(replace(where, state=name), why, entries=len(offsets.offsets))


class _Taken:
    """A file, split into elements."""

    def __init__(
        self, part: OperatorPart, source: ByteSource, where: Place, findings: Findings
    ) -> None:
        assert part.header is not None  # noqa: S101 - by the caller
        self.part = part
        self.header = part.header
        self.source = source
        self.where = where
        self.findings = findings
        self.begin = self.header.size + (len(IDENTIFIER) if self.header.compressed else 0)

    def run(self) -> None:
        """Check each state's elements."""
        declared = {state.name: state for state in (*self.header.lists, *self.header.broadcasts)}
        offsets = {}
        for name, listed in self.part.handle.states.items():
            if name in declared:
                offsets[name] = self._offsets(name, listed)
                continue
            self._fault(name, f"{len(listed.offsets)} elements of a state that the header lacks")
            self._lose(name, "the header does not declare it", len(listed.offsets))
        everything = sorted({at for starts in offsets.values() for at in starts})
        bounds = [*everything, self.source.size]
        ends = dict(pairwise(bounds))
        if bounds[0] > self.begin:
            problem = f"{bounds[0] - self.begin} bytes before the first element"
            self._fault("", problem, at=self.begin)
        for name, starts in offsets.items():
            self._state(declared[name], self._pieces(name, starts, ends))

    def _offsets(self, name: str, listed: PartitionOffsets) -> list[int]:
        """Return the offsets that are possible."""
        good = []
        for at in listed.offsets:
            if self.begin <= at <= self.source.size and not (
                at == self.source.size and self._cut_off()
            ):
                good.append(at)
                continue
            self._fault(name, f"an element at offset {at}, where no state is", at=at)
            self._lose(name, f"its offset {at} leads nowhere", 1)
        for at, times in Counter(good).items():
            if times == 1:
                continue
            count = times - 1
            self._fault(name, f"{count + 1} elements at offset {at}", at=at)
            self._lose(name, f"another element is at offset {at} too", count)
        return list(dict.fromkeys(good))

    def _cut_off(self) -> bool:
        stream = self.part.handle.stream
        return stream is not None and stream.size > self.source.size

    def _pieces(
        self, name: str, offsets: list[int], ends: dict[int, int]
    ) -> list[tuple[int, bytes]]:
        """Return elements as bytes, each with its offset."""
        pieces = []
        for at in offsets:
            end = ends.get(at, at)
            if not self.header.compressed:
                data = np.empty(end - at, np.uint8)
                self.source.read_into(at, data)
                pieces.append((at, data.tobytes()))
                continue
            try:
                pieces.append((at, _decompressed(self.source, at, end)))
            except StateError as error:
                self.findings.fault(
                    FaultKind.OPERATOR_STATE, replace(self.where, state=name), error, 1
                )
                self._lose(name, error.problem, 1)
        return pieces

    def _state(self, info: StateMetaInfo, pieces: list[tuple[int, bytes]]) -> None:
        """Decode a state's elements, all at once or, if that fails, in ever smaller parts."""
        try:
            with undecoded():
                layout = operator_layout(info)
        except StateError as error:
            fault = CorruptSnapshotError(error.problem, place=self.source.name, remedy=error.remedy)
            self.findings.fault(FaultKind.HEADER, replace(self.where, state=info.name), fault)
            self.part.faulty.add(info.name)
            self._lose(info.name, error.problem, len(pieces))
            return
        mode = self.part.handle.states[info.name].mode
        if mode is not layout.mode:
            declared = info.options[DISTRIBUTION_MODE]
            self._fault(info.name, f"{mode.name} in `_metadata`, and {declared} in its file")
        if isinstance(layout.value, OpaqueSerializer):
            place = Place(self.where.operator, None, info.name)
            self.findings.skip(place, f"elements of {layout.value.name}, which are not decoded")
        elements = self.part.elements.setdefault(info.name, [])
        pending = [(0, len(pieces))] if pieces else []
        while pending:
            low, high = pending.pop()
            try:
                self._decode(info, layout, pieces[low:high])
            except StateError as error:
                if high - low > 1:
                    middle = (low + high) // 2
                    pending += [(middle, high), (low, middle)]
                    continue
                where = replace(self.where, state=info.name)
                self.findings.fault(FaultKind.OPERATOR_STATE, where, error, 1)
                self._lose(info.name, error.problem, 1, len(pieces[low][1]))
                continue
            elements += [data for _, data in pieces[low:high]]
        self.findings.checked.elements += len(elements)

    def _decode(
        self, info: StateMetaInfo, layout: OperatorLayout, pieces: list[tuple[int, bytes]]
    ) -> None:
        data = np.frombuffer(b"".join(piece for _, piece in pieces), np.uint8)
        lengths = np.array([len(piece) for _, piece in pieces], np.int64)
        bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))

        def place(position: int) -> str:
            index = min(int(np.searchsorted(bounds, position, side="right")) - 1, len(pieces) - 1)
            at, within = pieces[index][0], position - int(bounds[index])
            if self.header.compressed:
                return f"{self.source.name}, element at offset {at}, byte {within} of it"
            return f"{self.source.name}, offset {at + within}"

        if layout.key is None:
            cursor = Cursor(data, bounds[:-1].copy(), bounds[1:].copy(), place)
            layout.value.decode(cursor)
            cursor.check_at_end()
            return
        maps = self.part.copies
        for at, raw in pieces:
            maps[info.name] = layout.entries(_alone(info, layout, raw, self.source, at), info.name)

    def _fault(self, name: str, problem: str, *, at: int | None = None) -> None:
        place = self.source.name if at is None else f"{self.source.name}, offset {at}"
        error = CorruptSnapshotError(
            problem,
            place=place,
            remedy="`_metadata` and this file do not belong together, or one is damaged",
        )
        self.findings.fault(FaultKind.OPERATOR_STATE, replace(self.where, state=name), error)

    def _lose(self, name: str, why: str, entries: int, size: int | None = None) -> None:
        self.findings.lose(replace(self.where, state=name), why, entries=entries, size=size)


def _decompressed(source: ByteSource, start: int, end: int) -> bytes:
    stream = SnappyStream(source, start, end)
    blocks = []
    while True:
        block = np.empty(1 << 16, np.uint8)
        count = stream.read_into(block)
        blocks.append(block[:count].tobytes())
        if count < block.size:
            return b"".join(blocks)


def _alone(
    info: StateMetaInfo, layout: OperatorLayout, data: bytes, source: ByteSource, at: int
) -> OperatorFile:
    """Return a file that contains only one copy of a broadcast state."""
    header = OperatorHeader(5, compressed=False, lists=(), broadcasts=(info,))
    handle = OperatorHandle({info.name: PartitionOffsets(layout.mode, (0,))})
    return OperatorFile(InlineSource(f"{source.name}, from offset {at} on", data), header, handle)


# --------------------------------------------------------------------------- between subtasks


def _encoded(header: OperatorHeader, without: set[str]) -> dict[str, bytes]:
    """Return each state's meta info as bytes that can be compared."""
    encoded = {}
    for state in (*header.lists, *header.broadcasts):
        out = DataOutput()
        write_operator_header(
            OperatorHeader(5, compressed=False, lists=(state,), broadcasts=()), out
        )
        if state.name not in without:
            encoded[state.name] = out.to_bytes()
    return encoded


def _compare_types(parts: list[OperatorPart], label: str, findings: Findings) -> None:
    """Note states that two subtasks wrote with different types."""
    types = [
        {} if part.header is None else _encoded(part.header, without=part.faulty) for part in parts
    ]
    for name in {name: None for by_name in types for name in by_name}:
        right = most_frequent(by_name[name] for by_name in types if name in by_name)
        for part, by_name in zip(parts, types, strict=True):
            if by_name.get(name, right) == right:
                continue
            error = CorruptSnapshotError(
                "another type or mode than in another subtask",
                remedy="let the job take a new savepoint, which writes all subtasks alike",
            )
            where = Place(label, part.subtask, name)
            findings.fault(FaultKind.HEADER, where, error)
            part.faulty.add(name)
            part.copies.pop(name, None)
            findings.lose(where, error.problem, entries=len(part.elements.pop(name, [])))


def _compare_copies(parts: list[OperatorPart], label: str, findings: Findings) -> None:
    """Note copies of a broadcast state that differ from those of most subtasks."""
    names = {name: None for part in parts for name in part.copies}
    for name in names:
        copies = {part.subtask: part.copies[name] for part in parts if name in part.copies}
        right = most_frequent(copies.values())
        for subtask, copy in copies.items():
            if copy == right:
                continue
            lacking, more = len(right - copy), len(copy - right)
            error = CorruptSnapshotError(
                f"its copy of the broadcast state is not that of most subtasks"
                f" ({lacking} entries lacking, {more} of its own)",
                remedy="let the job take a new savepoint",
            )
            findings.fault(FaultKind.BROADCAST, Place(label, subtask, name), error)
            findings.lose(
                Place(label, subtask, name), "most subtasks have another copy", entries=more
            )
            holder = next(part for part in parts if part.subtask == subtask)
            holder.elements.pop(name, None)
