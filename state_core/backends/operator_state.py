"""The operator (non-keyed) state of one subtask: lists that are split or united, broadcast maps.

Elements and entries are kept as their bytes, so that what is restored and not touched is written
back exactly; a broadcast state remembers the values that it has read. What every subtask is to have
after a rescale is decided before (`state_core.redistribution`): here a subtask gets its own.

Source: `DefaultOperatorStateBackend`, `PartitionableListState`, `HeapBroadcastState` in
`org.apache.flink.runtime.state`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from state_core.backends.snapshots import SnapshotTarget
from state_core.backends.states import written
from state_core.declarations.states import (
    BroadcastStateDeclaration,
    ListStateDeclaration,
    RedistributionMode,
    StateDeclaration,
)
from state_core.errors import DeclarationError, IncompatibleError
from state_core.filesystem import Directory
from state_core.formats.meta_info import BackendStateType, StateMetaInfo
from state_core.formats.new_states import NewOperatorState, TypeOf
from state_core.formats.operator_file import (
    CURRENT_VERSION,
    OperatorFile,
    OperatorHeader,
    open_operator_file,
)
from state_core.formats.operator_states import (
    OperatorLayout,
    encode_operator_file,
    operator_layout,
)
from state_core.formats.state_files import StateFiles
from state_core.handles import OperatorHandle, RelativeHandle
from state_core.serializers.base import TypeSerializer
from state_core.serializers.compatibility import Verdict
from state_core.wire import DataInput

__all__ = ["BroadcastState", "OperatorListState", "OperatorStateBackend"]


class OperatorListState:
    """A list of a subtask, which moves when the job is rescaled."""

    def __init__(self, name: str, serializer: TypeSerializer) -> None:
        self.name = name
        self.serializer = serializer
        self.elements: list[bytes] = []

    def get(self) -> list[Any]:
        """All elements, in order."""
        return [_read(self.serializer, one, self.name) for one in self.elements]

    def add(self, value: Any) -> None:
        """Append an element."""
        self.elements.append(written(self.serializer, value))

    def add_all(self, values: Iterable[Any]) -> None:
        """Append elements."""
        self.elements += [written(self.serializer, one) for one in values]

    def update(self, values: Iterable[Any]) -> None:
        """Let these be the elements."""
        self.elements = [written(self.serializer, one) for one in values]

    def clear(self) -> None:
        """Let there be none."""
        self.elements = []

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def __len__(self) -> int:
        return len(self.elements)

    def encoded(self) -> pa.LargeBinaryArray:
        """The elements as they stand in a file."""
        return pa.array(self.elements, pa.large_binary())

    def load(self, elements: list[bytes]) -> None:
        """Begin with elements of a file."""
        self.elements = elements

    def migrate(self, layout: OperatorLayout) -> None:
        """Write every element as another serializer does."""
        values = self.get()
        self.serializer = layout.value
        self.update(values)


class BroadcastState:
    """A map of which every subtask has the same copy."""

    def __init__(self, name: str, key: TypeSerializer, value: TypeSerializer) -> None:
        self.name = name
        self.key = key
        self.value = value
        self._held: dict[bytes, bytes] = {}
        self._read: dict[bytes, tuple[Any, Any]] = {}

    def get(self, user_key: Any) -> Any:
        """The value of a key; None if there is none."""
        found = self._entry(written(self.key, user_key))
        return None if found is None else found[1]

    def put(self, user_key: Any, value: Any) -> None:
        """Set the value of a key."""
        encoded = written(self.key, user_key)
        self._held[encoded] = written(self.value, value)
        self._read.pop(encoded, None)

    def put_all(self, entries: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        """Set the values of several keys."""
        for user_key, value in entries.items() if isinstance(entries, Mapping) else entries:
            self.put(user_key, value)

    def remove(self, user_key: Any) -> None:
        """Let a key be gone; nothing happens if it is."""
        encoded = written(self.key, user_key)
        self._held.pop(encoded, None)
        self._read.pop(encoded, None)

    def contains(self, user_key: Any) -> bool:
        """Whether there is a key."""
        return written(self.key, user_key) in self._held

    def entries(self) -> list[tuple[Any, Any]]:
        """All entries, in the order in which they came."""
        return [self._known(encoded) for encoded in self._held]

    def keys(self) -> list[Any]:
        """All keys."""
        return [key for key, _ in self.entries()]

    def values(self) -> list[Any]:
        """All values."""
        return [value for _, value in self.entries()]

    def clear(self) -> None:
        """Let there be none."""
        self._held, self._read = {}, {}

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return iter(self.entries())

    def __len__(self) -> int:
        return len(self._held)

    def encoded(self) -> pa.LargeBinaryArray:
        """The state as the one element that it is in a file."""
        entries = b"".join(part for pair in self._held.items() for part in pair)
        return pa.array([len(self._held).to_bytes(4, "big") + entries], pa.large_binary())

    def load(self, elements: list[bytes]) -> None:
        """Begin with the element of a file."""
        self.clear()
        for data in elements:
            source = DataInput(data, f"state {self.name!r}")
            for _ in range(source.read_int()):
                start = source.position
                self.key.skip(source)
                middle = source.position
                self.value.skip(source)
                self._held[data[start:middle]] = data[middle : source.position]
            if source.remaining:
                raise source.fault("bytes behind the last entry of a broadcast state")

    def migrate(self, layout: OperatorLayout) -> None:
        """Write every entry as other serializers do."""
        entries = self.entries()
        self.clear()
        self.key, self.value = layout.key or self.key, layout.value
        self.put_all(entries)

    def _entry(self, encoded: bytes) -> tuple[Any, Any] | None:
        return self._known(encoded) if encoded in self._held else None

    def _known(self, encoded: bytes) -> tuple[Any, Any]:
        found = self._read.get(encoded)
        if found is None:
            key = _read(self.key, encoded, self.name)
            found = self._read[encoded] = key, _read(self.value, self._held[encoded], self.name)
        return found


class OperatorStateBackend:
    """The list and broadcast states of one subtask.

    Args:
        compressed: Whether snapshots are compressed.
    """

    def __init__(self, *, compressed: bool = False) -> None:
        self.compressed = compressed
        self._states: dict[str, OperatorListState | BroadcastState] = {}
        self._infos: dict[str, StateMetaInfo] = {}

    def list_state(self, name: str, value: TypeOf, mode: str = "split") -> OperatorListState:
        """A list, made if there is none of its name.

        Args:
            name: Its name.
            value: The type of its elements.
            mode: `split` or `union`.

        Raises:
            IncompatibleError: What was restored can't become it.
        """
        found = self._state(NewOperatorState(name, (), mode, value).meta_info())
        assert isinstance(found, OperatorListState)  # noqa: S101 - by its mode
        return found

    def broadcast_state(self, name: str, key: TypeOf, value: TypeOf) -> BroadcastState:
        """A broadcast map, likewise."""
        found = self._state(NewOperatorState(name, (), "broadcast", value, key).meta_info())
        assert isinstance(found, BroadcastState)  # noqa: S101 - by its mode
        return found

    def declared(self, declaration: StateDeclaration) -> OperatorListState | BroadcastState:
        """The state of a declaration that is redistributed.

        Raises:
            DeclarationError: It is of mode `NONE`, which is keyed state.
            IncompatibleError: What was restored can't become it.
        """
        name = declaration.name
        if isinstance(declaration, BroadcastStateDeclaration):
            return self.broadcast_state(
                name, declaration.key_type.snapshot(), declaration.value_type.snapshot()
            )
        lists = isinstance(declaration, ListStateDeclaration)
        if not lists or declaration.redistribution_mode is RedistributionMode.NONE:
            raise DeclarationError("keyed state is no operator state", place=declaration.place)
        assert isinstance(declaration, ListStateDeclaration)  # noqa: S101 - as just seen
        mode = declaration.redistribution_strategy.value.lower()
        return self.list_state(name, declaration.type.snapshot(), mode)

    # ------------------------------------------------------------------------- snapshots

    def restore(self, handle: OperatorHandle, directory: Directory | StateFiles) -> None:
        """Begin with what a handle holds; before any state is asked for.

        Raises:
            SnapshotError: The file can't be read.
        """
        files = directory if isinstance(directory, StateFiles) else StateFiles(directory)
        if handle.stream is None:
            return
        file = open_operator_file(files.open(handle.stream), handle)
        for info in file.states:
            self._infos[info.name] = info
            self._states[info.name] = made = _made(info)
            if info.name in handle.states:
                made.load(_elements(file, info.name))

    def snapshot(self, target: SnapshotTarget) -> OperatorHandle | None:
        """Write all states to a file of their own; nothing if there are none."""
        if not self._states:
            return None
        infos = list(self._infos.values())
        lists = tuple(one for one in infos if one.kind is BackendStateType.OPERATOR)
        broadcasts = tuple(one for one in infos if one.kind is BackendStateType.BROADCAST)
        header = OperatorHeader(CURRENT_VERSION, self.compressed, lists, broadcasts)
        states = [(one, self._states[one.name].encoded()) for one in (*lists, *broadcasts)]
        data, offsets = encode_operator_file(header, states)
        name = str(uuid.uuid4())
        with target.directory.open_output(name) as file:
            file.write(data)
        return OperatorHandle(offsets, RelativeHandle(name, len(data)))

    def _state(self, info: StateMetaInfo) -> OperatorListState | BroadcastState:
        held = self._infos.get(info.name)
        if held is None:
            self._states[info.name] = _made(info)
            self._infos[info.name] = info
        elif held != info:
            self._succeed(held, info)
        return self._states[info.name]

    def _succeed(self, held: StateMetaInfo, info: StateMetaInfo) -> None:
        """Let a restored state be what it is asked to be."""
        place = f"state {info.name!r}"
        if (held.kind, held.options) != (info.kind, info.options):
            raise IncompatibleError(
                "it is redistributed in another way than the snapshot says",
                place=place,
                remedy="declare it as it was, or under another name",
            )
        worst = Verdict.COMPATIBLE_AS_IS
        for which, entry in info.serializers.items():
            result = entry.snapshot.resolve_schema_compatibility(held.serializers[which].snapshot)
            if not result.usable:
                raise IncompatibleError(
                    f"its {which.lower().replace('_', ' ')} can't be restored as it is declared",
                    place=place,
                    remedy="declare the type that the snapshot has",
                )
            worst = max(worst, result.verdict)
        if worst is not Verdict.COMPATIBLE_AS_IS:
            self._states[info.name].migrate(operator_layout(info))
        self._infos[info.name] = info


def _made(info: StateMetaInfo) -> OperatorListState | BroadcastState:
    layout = operator_layout(info)
    if layout.key is not None:
        return BroadcastState(info.name, layout.key, layout.value)
    return OperatorListState(info.name, layout.value)


def _elements(file: OperatorFile, state: str) -> list[bytes]:
    """The bytes of each element of a state."""
    found = file.elements(state)
    content = np.ascontiguousarray(file.content).data
    bounds = zip(found.starts.tolist(), found.ends.tolist(), strict=True)
    return [bytes(content[start:end]) for start, end in bounds]


def _read(serializer: TypeSerializer, data: bytes, state: str) -> Any:
    return serializer.read(DataInput(data, f"state {state!r}"))
