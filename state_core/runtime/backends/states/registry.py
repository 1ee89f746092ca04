"""The states of a backend: requested by functions, or restored.

A restored state that was not requested yet stays, with its meta info, and is in the next snapshot.
When it is requested, its serializers are compared as in Flink: they are refused, or used unchanged,
or every value is read by the old one and written by the new one.

Source: `StateSerializerProvider`, `HeapKeyedStateBackend.createState`,
`RocksDBKeyedStateBackend.updateRestoredStateMetaInfo` and `migrateStateValues`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from statelake.state_core.errors import IncompatibleError, StateError
from statelake.state_core.files.wire import DataOutput
from statelake.state_core.formats.layout.keyed_layout import RAW_VALUE, TTL, KeyedLayout
from statelake.state_core.formats.layout.keyed_states import layout_of
from statelake.state_core.formats.layout.meta_info import (
    KeyedHeader,
    SerializerEntry,
    StateMetaInfo,
    write_state_meta_info,
)
from statelake.state_core.formats.layout.state_compatibility import OperatorSchema, check_operators
from statelake.state_core.formats.rewriting.value_migration import migrate_rows
from statelake.state_core.formats.writing.unified_encode import StateRows, encode_rows
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.runtime.backends.states.configuration import BackendConfiguration
from statelake.state_core.runtime.backends.states.tables import (
    ListTable,
    MapTable,
    Table,
    ValueTable,
    entries_of_pairs,
)
from statelake.state_core.runtime.backends.states.timer_queues import TimerElements
from statelake.state_core.runtime.backends.states.ttl import access_times
from statelake.state_core.serializers.framework.compatibility import Compatibility, Verdict
from statelake.state_core.serializers.framework.opaque_values import as_key, undecoded

BATCH_ROWS = 1 << 16


@dataclass
class RegisteredState:
    """A registered state.

    Attributes:
        info: Its meta info, as in snapshots.
        layout: The layout of its entries.
        table: The table of its entries.
        restored: Whether it was restored, and not requested by a function yet.
    """

    info: StateMetaInfo
    layout: KeyedLayout
    table: Table
    restored: bool = False


class Storage(Protocol):
    """A storage of tables."""

    def create_table(self, name: str, layout: KeyedLayout) -> ValueTable | MapTable:
        """Create a table for a state."""

    def create_queue(self, table: Any) -> TimerElements:
        """Create a queue over a table of timers."""

    def close(self) -> None:
        """Close the storage."""


class StateRegistry:
    """The states of a backend by name, in the order of the header.

    Args:
        configuration: Keys, key groups, and the clock, whose time values get that had none before.
        storage: The storage of tables.
    """

    def __init__(self, configuration: BackendConfiguration, storage: Storage) -> None:
        self.configuration = configuration
        self.key = configuration.key_entry
        with as_key():
            self.key_serializer = self.key.snapshot.restore_serializer()
        self.storage = storage
        self.states: dict[str, RegisteredState] = {}

    def __iter__(self) -> Iterator[RegisteredState]:
        return iter(self.states.values())

    @property
    def header(self) -> KeyedHeader:
        """The header of a snapshot."""
        return KeyedHeader(False, self.key, tuple(state.info for state in self))

    def restore(self, info: StateMetaInfo) -> RegisteredState:
        """Return the state of a snapshot's meta info, created if its name is new."""
        state = self.states.get(info.name)
        if state is None:
            with undecoded():
                layout = layout_of(info, self.key_serializer)
            table: Any = self.storage.create_table(info.name, layout)
            if layout.kind is StateKind.LIST:
                table = ListTable(table)
            state = self.states[info.name] = RegisteredState(info, layout, table, restored=True)
        return state

    def register(self, info: StateMetaInfo) -> RegisteredState:
        """Return the state of a function's meta info, registered if it is new.

        Raises:
            IncompatibleError: A state restored or registered before is not compatible.
        """
        state = self.states.get(info.name)
        if state is None:
            state = self.restore(info)
            state.restored = False
            return state
        if same_info(state.info, info):
            state.restored = False
            return state
        return self._succeed(state, info)

    def check_key(self, key: SerializerEntry) -> None:
        """Refuse a snapshot with keys of another type.

        Raises:
            IncompatibleError: The key serializer is another one.
        """
        self._verdict(OperatorSchema("", key.snapshot), OperatorSchema("", self.key.snapshot))

    def _succeed(self, old: RegisteredState, info: StateMetaInfo) -> RegisteredState:
        """Convert a state to the requested one."""
        before = OperatorSchema("", self.key.snapshot, {info.name: old.info})
        after = OperatorSchema("", self.key.snapshot, {info.name: info})
        verdict = self._verdict(before, after)
        layout = layout_of(info, self.key_serializer)
        if verdict is not Verdict.COMPATIBLE_AS_IS:
            # where Flink would use a reconfigured serializer, the same values are rewritten here
            self._migrate(old, layout)
        old.info, old.layout, old.restored = info, layout, False
        return old

    def _verdict(self, old: OperatorSchema, new: OperatorSchema) -> Verdict:
        worst = Verdict.COMPATIBLE_AS_IS
        for check_operator in check_operators([old], [new]):
            if not check_operator.result.usable:
                raise IncompatibleError(
                    f"it can't be restored as it is declared: {_why(check_operator.result)}",
                    place=f"state {check_operator.state!r}" if check_operator.state else "the key",
                    remedy="declare the type that the snapshot has, or migrate the snapshot first",
                )
            worst = max(worst, check_operator.result.verdict)
        return worst

    def _migrate(self, state: RegisteredState, layout: KeyedLayout) -> None:
        """Read every value with the old serializers, and write it with the new ones."""
        name = state.info.name
        for group in self.configuration.key_groups:
            for entries in table_entries(state.table, group):
                try:
                    moved = self._migrated(state, layout, entries)
                except StateError as error:
                    raise error.within(f"state {name!r}, key group {group}") from error
                state.table.load(moved)

    def _migrated(self, state: RegisteredState, layout: KeyedLayout, entries: Entries) -> Entries:
        rows = StateRows(0, state.info.name, state.layout, state.layout.decode(entries))
        old = replace(state.layout, with_ttl=layout.with_ttl)
        if state.layout.with_ttl != layout.with_ttl:
            batch = _with_times(old, rows.batch, self.configuration.clock())
            rows = StateRows(0, rows.name, old, batch)
        assert layout.value is not None  # noqa: S101 - timers have no value that could change
        return encode_rows(migrate_rows(rows, layout.value), 0)


def same_info(first: StateMetaInfo, second: StateMetaInfo) -> bool:
    """Return whether two meta infos are the same in a snapshot."""
    written = []
    for info in (first, second):
        out = DataOutput()
        write_state_meta_info(info, out)
        written.append(out.to_bytes())
    return written[0] == written[1]


def _why(result: Compatibility) -> str:
    reasons = [
        f"{reason.path or 'it'}: {reason.old} to {reason.new}, {reason.rule}"
        for reason in result.reasons
    ]
    return "; ".join(reasons) or result.verdict.text


def _with_times(layout: KeyedLayout, batch: pa.RecordBatch, now: int) -> pa.RecordBatch:
    """Return the rows with times of last access, or without them."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    if layout.with_ttl:
        columns[TTL] = access_times(layout, columns["value"], now)
    columns[RAW_VALUE] = pa.nulls(len(batch), pa.binary())
    schema = layout.schema
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def table_entries(table: Table, group: int) -> Iterator[Entries]:
    """Yield the entries of a key group, many at a time; those already yielded may change."""
    pairs = list(table.items(group))
    for first in range(0, len(pairs), BATCH_ROWS):
        yield entries_of_pairs(0, group, pairs[first : first + BATCH_ROWS])
