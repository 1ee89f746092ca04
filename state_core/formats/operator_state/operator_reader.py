"""The operator states of an operator, by name, from the handles of its subtasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import pyarrow as pa

from statelake.state_core.bounds import COLUMNS_IN_ALL, Budget
from statelake.state_core.errors import (
    CorruptSnapshotError,
    OversizedError,
    StateError,
    UnsupportedFormatError,
)
from statelake.state_core.files.wire import DataOutput
from statelake.state_core.formats.layout.meta_info import (
    StateMetaInfo,
    parse_state_meta_info,
    write_state_meta_info,
)
from statelake.state_core.formats.metadata.checkpoint_metadata import OperatorMetadata
from statelake.state_core.formats.metadata.state_files import HeaderCache, StateFiles
from statelake.state_core.formats.operator_state.operator_file import (
    OperatorFile,
    open_operator_file,
)
from statelake.state_core.formats.operator_state.operator_states import (
    OperatorLayout,
    operator_layout,
)
from statelake.state_core.model.handles import OperatorHandle
from statelake.state_core.model.snapshot import OperatorState, OperatorStatePart
from statelake.state_core.serializers.framework.opaque_values import count_columns, undecoded
from statelake.state_core.serializers.framework.registry import changes


@dataclass(frozen=True)
class SubtaskPart:
    """One subtask's part of one state: implements `OperatorStatePart`."""

    file: OperatorFile
    state: str
    subtask: int
    layout: OperatorLayout

    @property
    def elements(self) -> int:
        """Return the number of elements of a list; 1 for a broadcast state."""
        return len(self.file.handle.states[self.state].offsets)

    @property
    def size(self) -> int:
        """Return the stored size of its file in bytes."""
        return self.file.source.size

    def decode(self) -> pa.RecordBatch:
        """Return its elements or entries as typed columns."""
        with self._named():
            return self.layout.decode(self.file, self.state, self.subtask)

    def encoded(self) -> list[bytes]:
        """Return each element's bytes; a broadcast state is one element."""
        elements = self.file.elements(self.state)
        data = self.file.content
        bounds = zip(elements.starts.tolist(), elements.ends.tolist(), strict=True)
        return [data[start:end].tobytes() for start, end in bounds]

    def measure(self) -> tuple[int, int]:
        """Return the number of elements, or of entries of a broadcast state, and their bytes."""
        elements = self.file.elements(self.state)
        size = int((elements.ends - elements.starts).sum())
        if self.layout.key is None or not len(elements.starts):
            return len(elements.starts), size
        return self.layout.count(self.file, elements), size

    def contents(self) -> frozenset[tuple[bytes, bytes]]:
        """Return the entries of a broadcast state as bytes, unordered."""
        with self._named():
            return self.layout.entries(self.file, self.state)

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except StateError as error:
            raise error.within(f"operator state {self.state!r}") from error


def open_operator_files(
    operator: OperatorMetadata,
    files: StateFiles,
    pass_over: Callable[[int, OperatorHandle, StateError], None] | None = None,
) -> dict[int, OperatorFile]:
    """Open the operator state file of each subtask that has one.

    Args:
        operator: The operator.
        files: The files of its snapshot.
        pass_over: Called for a file that can't be read, which is then left out.

    Raises:
        SnapshotError: A file can't be read, and `pass_over` is not given.
    """
    opened = {}
    for index, subtask in sorted((operator.subtasks or {}).items()):
        handle = subtask.managed_operator
        if handle is None or handle.stream is None or not handle.states:
            continue
        try:
            opened[index] = open_operator_file(files.open(handle.stream), handle, files.heads)
            if pass_over is not None:
                open_non_keyed({index: opened[index]}, files.heads)
        except StateError as error:
            if pass_over is None or isinstance(error, OversizedError):
                raise error.within(f"subtask {index}") from error
            opened.pop(index, None)
            pass_over(index, handle, error)
    return opened


def open_non_keyed(
    files: Mapping[int, OperatorFile], heads: HeaderCache
) -> tuple[OperatorState, ...]:
    """Return an operator's states: lists first, then broadcasts, each with its subtasks' parts.

    Args:
        files: The operator state file of each subtask.
        heads: The headers of the snapshot's files.

    Raises:
        CorruptSnapshotError: A handle names a state that its file does not declare, or declares
            otherwise.
        UnsupportedFormatError: Two subtasks wrote a state of one name with different types.
    """
    merged: dict[str, OperatorState] = {}
    layouts: dict[str, OperatorLayout] = {}
    parts: dict[str, list[OperatorStatePart]] = {}
    for subtask, file in files.items():
        described = heads.once(file.header, partial(_described, file.states, heads.budget))
        declared = {state.name: state for state in file.states}
        unknown = sorted(set(file.handle.states) - set(declared))
        if unknown:
            raise CorruptSnapshotError(
                f"elements of a state {unknown[0]!r}, which its header does not declare",
                place=file.source.name,
            )
        for name in declared:
            if name not in file.handle.states:
                continue
            state, layout = described[name]
            mode = file.handle.states[name].mode
            if mode is not layout.mode:
                raise CorruptSnapshotError(
                    f"operator state {name!r} is {mode.name} in `_metadata`, and"
                    f" {layout.mode.name} in its file",
                    place=f"subtask {subtask}, {file.source.name}",
                    remedy="`_metadata` and this file do not belong together, or one is damaged",
                )
            first = merged.setdefault(name, state)
            if first is not state and first != state:
                raise UnsupportedFormatError(
                    f"operator state {name!r} has another type here than in another subtask",
                    place=file.source.name,
                    remedy="let the job take a new savepoint, which writes all subtasks alike",
                )
            # all elements of a list are decoded by the first subtask's layout, as in
            # `with_first_decoders`; each copy of a broadcast state by its own, which knows the
            # ends of its entries
            as_first = layouts.setdefault(name, layout)
            layout = as_first if layout.key is None else layout
            parts.setdefault(name, []).append(SubtaskPart(file, name, subtask, layout))
    states = [replace(each, parts=tuple(parts[name])) for name, each in merged.items()]
    return tuple(sorted(states, key=lambda each: each.broadcast))


def _described(
    infos: Iterable[StateMetaInfo], budget: Budget
) -> dict[str, tuple[OperatorState, OperatorLayout]]:
    """Return each state that a header declares, with its layout."""
    described = {}
    for info in infos:
        described[info.name] = parse_operator_state(_encoded(info))
        columns = count_columns(described[info.name][0].schema)
        budget.spend(COLUMNS_IN_ALL, columns, f"operator state {info.name!r}")
    return described


def _encoded(info: StateMetaInfo) -> bytes:
    out = DataOutput()
    write_state_meta_info(info, out)
    return out.to_bytes()


def parse_operator_state(meta_info: bytes) -> tuple[OperatorState, OperatorLayout]:
    """Return a state and its layout from the bytes in a snapshot.

    User decoders are for keyed state only: here values of their classes are bytes.

    Args:
        meta_info: As in `OperatorState.meta_info`.
    """
    return _parse_operator_state(meta_info, changes())


@lru_cache(maxsize=256)
def _parse_operator_state(meta_info: bytes, _changes: int) -> tuple[OperatorState, OperatorLayout]:
    info = parse_state_meta_info(meta_info)
    with undecoded():
        layout = operator_layout(info)
    state = OperatorState(
        info.name,
        layout.mode,
        layout.schema,
        layout.value.name,
        "" if layout.key is None else layout.key.name,
        meta_info,
        layout=layout,
    )
    return state, layout
