"""The common base of keyed files: a header that describes the states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from statelake.state_core.bounds import COLUMNS_IN_ALL, Budget
from statelake.state_core.errors import OversizedError, StateError, UnwalkableError
from statelake.state_core.files.file_sources import ByteSource
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.layout.keyed_states import (
    describe_state,
    layout_of,
    walking_layout,
    with_row_names,
)
from statelake.state_core.formats.layout.meta_info import (
    KeyedHeader,
    StateMetaInfo,
    read_keyed_header,
)
from statelake.state_core.model.entries import Entries, StoredSpan
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.key_groups import EncodedKey
from statelake.state_core.model.snapshot import NO_NAMES, KeyedState, RowNames
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.opaque_values import (
    count_columns,
    finding_ends,
    restore_key,
    undecoded,
    written_by,
)


@dataclass(frozen=True)
class FileHeader:
    """The states in a file's header, worked out once for all files with the same header.

    Attributes:
        header: The header of the files.
        budget: The rest of what the snapshot may declare.
        flink: The major version of the Flink that wrote it; 0 if it is not known.
        names: The names of the fields of rows, by state; empty without a plan of Flink SQL.
    """

    header: KeyedHeader
    budget: Budget | None = None
    flink: int = 0
    names: Mapping[str, RowNames] = field(default_factory=dict)

    @cached_property
    def key(self) -> TypeSerializer:
        """The key serializer."""
        key_names = next((each.key for each in self.names.values()), ())
        with written_by(self.flink):
            return restore_key(with_row_names(self.header.key_serializer.snapshot, key_names))

    @cached_property
    def readable(self) -> tuple[tuple[KeyedLayout, KeyedState] | StateError, ...]:
        """Each state's layout and description, or the error for a state that can't be read."""
        states: list[tuple[KeyedLayout, KeyedState] | StateError] = []
        for state in self.header.states:
            if states and isinstance(states[-1], OversizedError):
                states.append(states[-1])  # it would cost as much
            else:
                states.append(self._readable(state))
        return tuple(states)

    def _readable(self, state: StateMetaInfo) -> tuple[KeyedLayout, KeyedState] | StateError:
        try:
            layout = self.layout(state)
            if self.budget is not None:
                columns = count_columns(layout.schema)
                self.budget.spend(COLUMNS_IN_ALL, columns, f"state {state.name!r}")
            return layout, describe_state(state, layout, self.names.get(state.name, NO_NAMES))
        except StateError as error:
            return error

    def layout(self, state: StateMetaInfo) -> KeyedLayout:
        """Return the layout of the entries of one state."""
        with written_by(self.flink):
            return layout_of(state, self.key, self.names.get(state.name, NO_NAMES))

    def walking(self) -> tuple[KeyedLayout, ...]:
        """Return the layouts in which parts by Kryo know where they end, if their class is known.

        They are for formats without lengths, also where decoders are ignored.
        """
        key = self.header.key_serializer.snapshot
        with written_by(self.flink), finding_ends():
            return tuple(
                walking_layout(state, layout, key)
                for state, layout in zip(self.header.states, self.layouts, strict=True)
            )

    def without_decoders(self, walking: tuple[KeyedLayout, ...]) -> tuple[KeyedLayout, ...]:
        """Return the layouts in which values of Kryo are bytes; empty if those for walking are.

        Keys and namespaces are those for walking: an entry is found by them, whatever its value.
        """
        with undecoded():
            bare = tuple(
                replace(
                    layout_of(state, self.key, self.names.get(state.name, NO_NAMES)),
                    key=walker.key,
                    namespace=walker.namespace,
                )
                for state, walker in zip(self.header.states, walking, strict=True)
            )
        same = all(
            _ends(layout) == _ends(other) and layout.schema == other.schema
            for layout, other in zip(bare, walking, strict=True)
        )
        return () if same else bare

    @cached_property
    def layouts(self) -> tuple[KeyedLayout, ...]:
        """The layout of each state's entries."""
        return tuple(layout for layout, _ in self._all())

    @cached_property
    def states(self) -> tuple[KeyedState, ...]:
        """Its states, by id."""
        return tuple(state for _, state in self._all())

    def _all(self) -> Iterator[tuple[KeyedLayout, KeyedState]]:
        for state in self.readable:
            if isinstance(state, StateError):
                raise copy(state)
            yield state


def _ends(layout: KeyedLayout) -> bool:
    """Return whether values know where they end."""
    return layout.value is None or layout.value.self_delimiting


def read_head(source: DataInput) -> FileHeader:
    """Read the head of a keyed state file."""
    return FileHeader(read_keyed_header(source), source.budget)


@dataclass(frozen=True)
class HeadedFile(ABC):
    """The common base of keyed files: a header that describes the states.

    Attributes:
        name: The file's path.
        head: The file's header, worked out.
        key_groups: The key groups that its handle claims.
        max_parallelism: The number of key groups.
        decoders: The layouts by which states are decoded that are not their own, by id.
    """

    name: str
    head: FileHeader
    key_groups: KeyGroupRange
    max_parallelism: int
    decoders: Mapping[int, KeyedLayout] = field(
        default_factory=dict, kw_only=True, compare=False, repr=False
    )

    @property
    def header(self) -> KeyedHeader:
        """The file's header."""
        return self.head.header

    @property
    def compressed(self) -> bool:
        """Return whether its key groups are compressed."""
        return self.header.compressed

    @property
    def is_spread_evenly(self) -> bool:
        """False: the file has the position of each key group."""
        return False

    @property
    def key_serializer(self) -> bytes:
        """The snapshot of the key serializer."""
        return self.header.key_serializer.encoded

    @property
    def layouts(self) -> tuple[KeyedLayout, ...]:
        """The layout of each state's entries."""
        try:
            return self.head.layouts
        except StateError as error:
            raise error.within(self.name) from error

    @property
    def states(self) -> tuple[KeyedState, ...]:
        """Its states, by id."""
        return self.head.states

    def decode(
        self, state: int, entries: Entries, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Return entries of one state as typed columns: all columns, or those named."""
        try:
            layout = self.decoders.get(state) or self.layouts[state]
            return layout.decode(entries, columns)
        except StateError as error:
            raise error.within(f"state {self.states[state].name!r}") from error

    def encode_key(self, key: object) -> EncodedKey:
        """Return a key as its serializer writes it, with its key group."""
        from statelake.state_core.formats.layout.keys import encode_key  # noqa: PLC0415

        return encode_key(self.head.key, key, self.max_parallelism)

    def stored_spans(self, key_groups: KeyGroupRange) -> Iterable[StoredSpan] | None:
        """Return None: it is not known where the bytes of some key groups are."""
        return None

    @abstractmethod
    def group_bytes(self) -> list[tuple[int, int]]:
        """Return key groups that have data, ascending, with their bytes as stored."""

    @abstractmethod
    def entries(self, key_groups: KeyGroupRange | None = None) -> Iterator[Entries]:
        """Yield all entries of some key groups."""

    def entries_of_key(
        self, key: EncodedKey, states: Collection[int] | None = None
    ) -> Iterator[Entries]:
        """Yield the entries of one key, of all states or of some, one state at a time."""
        return self._of_key(self.entries(key.key_groups), key, states)

    def _of_key(
        self, batches: Iterator[Entries], key: EncodedKey, states: Collection[int] | None
    ) -> Iterator[Entries]:
        from statelake.state_core.formats.layout.keys import rows_of_key  # noqa: PLC0415

        try:
            for entries in batches:
                for state in np.unique(entries.state_of).tolist():
                    if states is None or state in states:
                        of_state = entries.of_state(state)
                        rows = rows_of_key(self.layouts[state], of_state, key)
                        if rows.size:
                            yield of_state.take(rows)
        except UnwalkableError as error:
            if states is None or any(self.states[each].name in error.states for each in states):
                raise


@dataclass(frozen=True, slots=True)
class KeyGroupSpan:
    """The position of one key group's bytes in the file."""

    group: int
    start: int
    end: int


@dataclass(frozen=True)
class SpannedFile(HeadedFile):
    """A keyed file that knows where each key group is.

    Attributes:
        source: The file's bytes.
        spans: Its key groups that have data, ascending.
    """

    source: ByteSource
    spans: tuple[KeyGroupSpan, ...]

    def group_bytes(self) -> list[tuple[int, int]]:
        """Return key groups and their bytes as stored."""
        return [(span.group, span.end - span.start) for span in self.spans]

    def stored_spans(self, key_groups: KeyGroupRange) -> Iterator[StoredSpan]:
        """Yield where the bytes of some key groups are."""
        for span in self.spans:
            if span.group in key_groups:
                yield StoredSpan(span.group, self.source, span.start, span.end)
