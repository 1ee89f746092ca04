"""Operators and states of a snapshot in the lake, read as those of a savepoint are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import pyarrow as pa

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.reading import SnapshotReading
from statelake.pipelines.lake.tables.data_files import table_columns
from statelake.pipelines.lake.tables.file_spans import KEY_GROUP
from statelake.pipelines.lake.tables.key_rows import QUEUE_COLUMNS, files_with_key, read_key
from statelake.pipelines.lake.tables.operator_tables import read_operator_rows
from statelake.pipelines.lake.tables.records import (
    OperatorRecord,
    OperatorStateRecord,
    SnapshotRecord,
)
from statelake.pipelines.lake.tables.table_rows import (
    TableReader,
    parse_recorded,
    read_data_file,
    rows_of_groups,
    rows_of_queue,
    table_rows,
)
from statelake.state_core.formats.layout.keys import encode_key
from statelake.state_core.formats.operator_state.operator_reader import parse_operator_state
from statelake.state_core.formats.reader import Operator, Snapshot
from statelake.state_core.model.handles import KeyGroupRange, KeyGroups, ranges_of
from statelake.state_core.model.key_groups import SearchKey
from statelake.state_core.model.snapshot import KeyedState, OperatorState, columns_of


@dataclass(frozen=True, repr=False)
class RecordedState(KeyedState):
    """A keyed state whose content is in a table of the lake.

    Attributes:
        lake: The lake.
        record: The snapshot.
        operator_id: The operator.
    """

    lake: Catalog = field(kw_only=True, compare=False)
    record: SnapshotRecord = field(kw_only=True, compare=False)
    operator_id: str = field(kw_only=True)

    def batches(
        self, key_groups: KeyGroups | None = None, *, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the content, file by file; arguments as for `to_arrow`."""

        def read(record: SnapshotRecord) -> Iterator[pa.RecordBatch]:
            for piece in self._pieces(record, key_groups):
                yield from _batches(piece, columns)

        return SnapshotReading(self.lake, self.record).each(read)

    def to_arrow(
        self,
        key_groups: KeyGroups | None = None,
        *,
        columns: Sequence[str] | None = None,
        threads: int | None = None,
    ) -> pa.Table:
        """Return the content as one table, files read by several threads; see `KeyedState`."""
        schema = columns_of(self.schema, columns)

        def read(record: SnapshotRecord) -> pa.Table:
            with ThreadPoolExecutor(threads) as pool:
                read_piece = partial(_batches, columns=columns)
                pieces = list(pool.map(read_piece, self._pieces(record, key_groups)))
            return pa.Table.from_batches([batch for part in pieces for batch in part], schema)

        return SnapshotReading(self.lake, self.record).at_once(read)

    def get(self, key: object) -> pa.Table:
        """Return all that is held for one key, out of the files that may hold it."""
        value = key.as_py() if isinstance(key, pa.Scalar) else key

        def read(record: SnapshotRecord) -> pa.Table:
            table = self._rows(record)
            encoded = encode_key(self.layout.key, value, table.max_parallelism)
            sought = SearchKey(value, encoded)
            tables = [
                rows
                for file in table.units
                if sought.may_be_among(file.first, file.last)
                for _, rows in read_key(table, file, sought)
            ]
            return pa.concat_tables([self.schema.empty_table(), *tables])

        return SnapshotReading(self.lake, self.record).at_once(read)

    def _rows(self, record: SnapshotRecord) -> TableReader:
        """Return what reads the state as a record has it."""
        operator = _operator_in(record, self.operator_id)
        state = next(each for each in operator.states if each.name == self.name)
        rows = table_rows(self.lake.location, operator, operator.table_of(state))
        return rows.only(state)

    def _pieces(
        self, record: SnapshotRecord, key_groups: KeyGroups | None
    ) -> list[tuple[TableReader, KeyGroupRange | None]]:
        """Return each file with the key groups that are wanted of it."""
        rows = self._rows(record)
        every: list[KeyGroupRange | None] = [None]
        if key_groups is not None:
            every = [*ranges_of(key_groups)]
        pieces: list[tuple[TableReader, KeyGroupRange | None]] = []
        for file in sorted(rows.units, key=lambda file: file.first):
            one = replace(rows, units=(file,))
            pieces += [
                (one, wanted)
                for wanted in every
                if wanted is None or (wanted.first <= file.last and wanted.last >= file.first)
            ]
        return pieces


def _batches(
    piece: tuple[TableReader, KeyGroupRange | None], columns: Sequence[str] | None
) -> list[pa.RecordBatch]:
    """Return the rows of one file that are of some key groups."""
    rows, key_groups = piece
    (data_file,) = rows.units
    state, layout = rows.parse(rows.states[0][1])
    wanted = columns_of(layout.schema, columns).names
    needed = pa.schema(
        [each for each in table_columns(state) if each.name in (KEY_GROUP, *QUEUE_COLUMNS, *wanted)]
    )
    typed = read_data_file(rows.lake, rows.path, data_file, needed, rows.partitioning)
    groups = key_groups or KeyGroupRange(0, rows.max_parallelism - 1)
    chosen = rows_of_queue(rows_of_groups(typed, groups), state).select(wanted)
    return list(chosen.to_batches())


@dataclass(frozen=True, repr=False)
class RecordedOperatorState(OperatorState):
    """An operator state whose content is in a table of the lake; attributes as above."""

    lake: Catalog = field(kw_only=True, compare=False)
    record: SnapshotRecord = field(kw_only=True, compare=False)
    operator_id: str = field(kw_only=True)

    @property
    def elements(self) -> int:
        """Return the number of elements, or of entries of a broadcast state's copy."""
        return self._held(self.record)[1].elements

    def batches(self, *, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the content, file by file; of a broadcast state, one copy."""

        def read(record: SnapshotRecord) -> Iterator[pa.RecordBatch]:
            operator, state = self._held(record)
            for file in sorted(operator.table_of(state).units, key=lambda file: file.first):
                batch = read_operator_rows(self.lake.location, state, [file])
                yield batch if columns is None else batch.select(list(columns))

        return SnapshotReading(self.lake, self.record).each(read)

    @property
    def state_bytes(self) -> int:
        """The bytes of all elements, or of the entries of a broadcast state's copy."""
        return self._held(self.record)[1].state_bytes

    def disagreeing(self) -> list[int]:
        """Return the subtasks whose copy of a broadcast state differs from the first one."""
        return list(self._held(self.record)[1].disagreeing)

    def _held(self, record: SnapshotRecord) -> tuple[OperatorRecord, OperatorStateRecord]:
        operator = _operator_in(record, self.operator_id)
        return operator, next(s for s in operator.operator_states if s.name == self.name)


def _operator_in(record: SnapshotRecord, operator_id: str) -> OperatorRecord:
    return next(each for each in record.operators if each.operator_id == operator_id)


@dataclass(frozen=True, repr=False)
class RecordedOperator(Operator):
    """An operator whose states are in tables of the lake; attributes as of `RecordedState`."""

    lake: Catalog = field(kw_only=True, compare=False)
    record: SnapshotRecord = field(kw_only=True, compare=False)

    @property
    def key_serializer(self) -> bytes:
        """The snapshot of its key serializer, as Flink wrote it; empty without keyed state."""
        return _operator_in(self.record, self.operator_id).key_serializer

    def rows_of_key(
        self, key: SearchKey, state: str | None = None
    ) -> Iterator[tuple[KeyedState, pa.Table]]:
        """Yield the rows of a key; only files that may hold it are read.

        Raises:
            LakeError: A file can't be read.
            ConflictError: An erasure changed the snapshot after some rows were consumed.
            NotFoundError: The snapshot was dropped meanwhile.
        """

        def read(record: SnapshotRecord) -> Iterator[tuple[KeyedState, pa.Table]]:
            operator = _operator_in(record, self.operator_id)
            for table, file in files_with_key(self.lake.location, operator, key, state):
                yield from read_key(table, file, key)

        return SnapshotReading(self.lake, self.record).each(read)


def recorded_snapshot(lake: Catalog, record: SnapshotRecord) -> Snapshot:
    """Return a snapshot of the lake as one that is opened; nothing but the record is read."""
    return Snapshot(
        f"{record.job}/{record.snapshot_id}",
        record.metadata_version,
        record.checkpoint_id,
        record.kind,
        record.format,
        recorded_operators(lake, record),
    )


def recorded_operators(lake: Catalog, record: SnapshotRecord) -> tuple[Operator, ...]:
    """Return the operators with tables of a snapshot; nothing but the record is read.

    Args:
        lake: The lake.
        record: The snapshot.
    """
    return tuple(_operator(lake, record, operator) for operator in record.operators)


def _operator(lake: Catalog, record: SnapshotRecord, operator: OperatorRecord) -> Operator:
    owner: dict[str, Any] = {"lake": lake, "record": record}
    place = {**owner, "operator_id": operator.operator_id}
    return RecordedOperator(
        operator.operator_id,
        operator.uid,
        operator.name,
        operator.parallelism,
        operator.max_parallelism,
        keyed_states=tuple(
            RecordedState(**_values(parse_recorded(operator, state)), **place)
            for state in operator.states
        ),
        operator_states=tuple(
            RecordedOperatorState(**_values(parse_operator_state(state.meta_info)[0]), **place)
            for state in operator.operator_states
        ),
        operator_state_version=operator.operator_state_version,
        total_bytes=operator.state_bytes,
        node=operator.node,
        query=operator.query,
        **owner,
    )


def _values(state: KeyedState | OperatorState) -> dict[str, Any]:
    return {each.name: getattr(state, each.name) for each in fields(state)}
