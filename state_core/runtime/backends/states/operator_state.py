"""Operator (non-keyed) state of one subtask: split and union lists, and broadcast maps.

It is small, and kept in memory, as bytes; a snapshot copies references and writes a file in Flink's
format. When a job restarts, `assign_operator_state` assigns elements of old subtasks to new ones,
and the backend reads only those.

Source: `DefaultOperatorStateBackend`, `PartitionableListState`, `HeapBroadcastState`,
`StateAssignmentOperation` in `org.apache.flink.runtime`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from statelake.state_core.errors import IncompatibleError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.layout.meta_info import (
    BackendStateType,
    StateMetaInfo,
)
from statelake.state_core.formats.layout.state_compatibility import check_operator_state
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.formats.operator_state.operator_file import (
    CURRENT_VERSION,
    OperatorFile,
    OperatorHeader,
    open_operator_file,
)
from statelake.state_core.formats.operator_state.operator_states import (
    OperatorLayout,
    encode_operator_file,
    operator_layout,
)
from statelake.state_core.formats.writing.new_states import NewOperatorState
from statelake.state_core.model.handles import OperatorHandle, RelativeHandle
from statelake.state_core.model.redistribution import StateShare, plan_operator_state
from statelake.state_core.runtime.backends.states.registry import same_info
from statelake.state_core.runtime.backends.states.snapshots import SnapshotTask
from statelake.state_core.runtime.backends.states.states import (
    Entries,
    put_all,
    refuse_null,
    written,
)
from statelake.state_core.serializers.composite.evolution import migrate_value
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.compatibility import Verdict


@dataclass
class _StoredState:
    """One stored state: its elements, or a broadcast state's entries, as bytes."""

    info: StateMetaInfo
    layout: OperatorLayout
    elements: list[bytes] = field(default_factory=list)
    entries: dict[bytes, bytes] = field(default_factory=dict)
    restored: bool = False

    def encoded(self) -> list[bytes]:
        """Return its elements as in a file; all entries of a broadcast state are one element."""
        if self.layout.key is None:
            return self.elements.copy()
        pairs = b"".join(part for pair in self.entries.items() for part in pair)
        return [len(self.entries).to_bytes(4, "big") + pairs]


class OperatorListState:
    """A list state of this subtask.

    Args:
        stored: The stored elements.
    """

    def __init__(self, stored: _StoredState) -> None:
        self._stored = stored

    @property
    def name(self) -> str:
        """The name of the state."""
        return self._stored.info.name

    def get(self) -> list[Any]:
        """Return the elements."""
        read = self._stored.layout.value.read
        return [read(DataInput(element, self.name)) for element in self._stored.elements]

    def add(self, value: Any) -> None:
        """Append an element.

        Raises:
            EncodeError: The element is null, or of another type.
        """
        self._stored.elements.append(self._element(value))

    def add_all(self, values: Iterable[Any]) -> None:
        """Append elements."""
        self._stored.elements += [self._element(value) for value in values]

    def update(self, values: Iterable[Any]) -> None:
        """Replace the list."""
        self._stored.elements = [self._element(value) for value in values]

    def clear(self) -> None:
        """Remove all elements."""
        self._stored.elements = []

    def _element(self, value: Any) -> bytes:
        refuse_null(value, self.name)
        return written(self._stored.layout.value, value)


class BroadcastState:
    """A map of which every subtask has the same copy, as long as all change it in the same way.

    Args:
        stored: The stored entries.
    """

    def __init__(self, stored: _StoredState) -> None:
        assert stored.layout.key is not None  # noqa: S101 - of every broadcast state
        self.stored = stored
        self._key: TypeSerializer = stored.layout.key

    @property
    def name(self) -> str:
        """The name of the state."""
        return self.stored.info.name

    def get(self, key: Any) -> Any:
        """Return the value of a key; None without a value."""
        data = self.stored.entries.get(written(self._key, key))
        return None if data is None else self._value(data)

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key."""
        self.stored.entries[written(self._key, key)] = written(self.stored.layout.value, value)

    def put_all(self, entries: Entries) -> None:
        """Set many values."""
        put_all(self.put, entries)

    def remove(self, key: Any) -> None:
        """Remove a key."""
        self.stored.entries.pop(written(self._key, key), None)

    def contains(self, key: Any) -> bool:
        """Return whether the key exists."""
        return written(self._key, key) in self.stored.entries

    def entries(self) -> list[tuple[Any, Any]]:
        """Return all keys and values."""
        return [
            (self._key.read(DataInput(key, self.name)), self._value(value))
            for key, value in self.stored.entries.items()
        ]

    def clear(self) -> None:
        """Remove all keys."""
        self.stored.entries = {}

    def _value(self, data: bytes) -> Any:
        return self.stored.layout.value.read(DataInput(data, self.name))


@dataclass(frozen=True)
class AssignedElements:
    """The elements of an old subtask that a new one gets.

    Attributes:
        handle: The handle of the old subtask.
        elements: The range of elements of each state: the first, and the one behind the last.
    """

    handle: OperatorHandle
    elements: Mapping[str, tuple[int, int]]


def assign_operator_state(
    handles: Sequence[OperatorHandle | None], parallelism: int
) -> list[list[AssignedElements]]:
    """Return the elements that every new subtask gets, by the mode of each state.

    Args:
        handles: The handles of the old subtasks, in their order.
        parallelism: The new parallelism.
    """
    before = [
        {}
        if handle is None
        else {
            name: StateShare(part.mode, len(part.offsets)) for name, part in handle.states.items()
        }
        for handle in handles
    ]
    assigned = []
    for states in plan_operator_state(before, parallelism):
        by_handle: dict[int, dict[str, tuple[int, int]]] = {}
        for name, slices in states.items():
            for slice_ in slices:
                by_handle.setdefault(slice_.subtask, {})[name] = slice_.first, slice_.last
        assigned.append(
            [
                AssignedElements(handle, elements)
                for subtask, elements in sorted(by_handle.items())
                if (handle := handles[subtask]) is not None
            ]
        )
    return assigned


class OperatorStateBackend:
    """The operator state of one subtask.

    Args:
        compressed: Whether snapshots are compressed.
    """

    def __init__(self, *, compressed: bool = False) -> None:
        self.compressed = compressed
        self._states: dict[str, _StoredState] = {}

    @property
    def names(self) -> list[str]:
        """The names of all states, including restored ones that were not requested yet."""
        return list(self._states)

    def state(self, declared: NewOperatorState) -> OperatorListState | BroadcastState:
        """Return a list, split or given to every subtask in full; or a broadcast state, a map.

        Raises:
            IncompatibleError: The restored state is not compatible.
        """
        stored = self._registered(declared)
        return OperatorListState(stored) if stored.layout.key is None else BroadcastState(stored)

    def snapshot(self, directory: Directory) -> SnapshotTask[OperatorHandle | None]:
        """Take a snapshot of the current state, which is written when the returned task is run."""
        states = [(state.info, state.encoded()) for state in self._states.values()]
        return SnapshotTask(lambda: self._written(states, directory), states.clear)

    def restore(self, assigned: Iterable[AssignedElements], files: StateFiles) -> None:
        """Append elements of old subtasks.

        Raises:
            SnapshotError: A file can't be read.
        """
        for share in assigned:
            if share.handle.stream is None:
                continue
            file = open_operator_file(files.open(share.handle.stream), share.handle, files.heads)
            for info in file.states:
                stored = self._states.setdefault(
                    info.name, _StoredState(info, operator_layout(info), restored=True)
                )
                if info.name in share.elements:
                    _load(stored, file, *share.elements[info.name])

    def _written(
        self, states: list[tuple[StateMetaInfo, list[bytes]]], directory: Directory
    ) -> OperatorHandle | None:
        if not states:
            return None
        kinds = BackendStateType.OPERATOR, BackendStateType.BROADCAST
        lists, broadcasts = ([state for state in states if state[0].kind is kind] for kind in kinds)
        header = OperatorHeader(
            CURRENT_VERSION,
            self.compressed,
            tuple(info for info, _ in lists),
            tuple(info for info, _ in broadcasts),
        )
        data, offsets = encode_operator_file(
            header,
            [
                (info, pa.array(elements, pa.large_binary()))
                for info, elements in (*lists, *broadcasts)
            ],
        )
        name = str(uuid.uuid4())
        with directory.open_output(name) as file:
            file.write(data)
        return OperatorHandle(offsets, RelativeHandle(name, len(data)))

    def _registered(self, declared: NewOperatorState) -> _StoredState:
        info = declared.meta_info()
        stored = self._states.get(info.name)
        if stored is None:
            stored = self._states[info.name] = _StoredState(info, operator_layout(info))
        elif not same_info(stored.info, info):
            self._succeed(stored, info)
        stored.restored = False
        return stored

    def _succeed(self, stored: _StoredState, info: StateMetaInfo) -> None:
        """Convert a restored state to the requested one."""
        place = f"state {info.name!r}"
        if not stored.restored:
            raise IncompatibleError(
                "it was requested before with another mode or type",
                place=place,
                remedy="a state keeps its mode and its types while it is used",
            )
        result = check_operator_state(stored.info, info)
        if not result.usable:
            raise IncompatibleError("; ".join(map(str, result.reasons)), place=place)
        layout = operator_layout(info)
        if result.verdict is not Verdict.COMPATIBLE_AS_IS:
            _migrate(stored, layout)
        stored.info, stored.layout = info, layout


def _load(stored: _StoredState, file: OperatorFile, first: int, last: int) -> None:
    """Append the elements of a file."""
    elements = file.elements(stored.info.name)
    bounds = zip(
        elements.starts[first:last].tolist(), elements.ends[first:last].tolist(), strict=True
    )
    if stored.layout.key is None:
        stored.elements += [file.content[start:end].tobytes() for start, end in bounds]
        return
    for _ in bounds:
        batch = stored.layout.decode(file, stored.info.name, 0)
        stored.entries.update(stored.layout.pairs(batch))


def _migrate(stored: _StoredState, layout: OperatorLayout) -> None:
    """Read everything with the old serializers, and write it with the new ones."""
    value = stored.layout.value, layout.value
    stored.elements = [_moved(*value, element) for element in stored.elements]
    if stored.layout.key is not None and layout.key is not None:
        key = stored.layout.key, layout.key
        stored.entries = {
            _moved(*key, old_key): _moved(*value, old_value)
            for old_key, old_value in stored.entries.items()
        }


def _moved(old: TypeSerializer, new: TypeSerializer, data: bytes) -> bytes:
    return written(new, migrate_value(old, new, old.read(DataInput(data, "operator state"))))
