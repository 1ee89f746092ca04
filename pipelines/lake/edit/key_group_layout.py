"""How keyed state and timers lie in files: by key group, hashed and counted entry by entry."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.lake.edit.pieces import Counts, Piece, Rewritten
from pipelines.lake.tables.records import (
    OperatorRecord,
    StateRecord,
    TableRecord,
    UnitRecord,
    key_group_records,
)
from pipelines.lake.tables.table_rows import TableRows, table_rows
from pipelines.lake.tables.tables import TableFile, table_directory
from pipelines.lake.tables.unit_writer import UnitWriter, table_batch, table_columns
from pipelines.lake.tables.units import KEY_GROUP, Partitioning, Unit
from state_core.errors import EncodeError, KeyGroupError, UnknownHashError
from state_core.files.filesystem import Directory
from state_core.formats.writing.rehash import check_key_groups
from state_core.formats.writing.unified_encode import StateRows, encode_rows
from state_core.model.key_groups import prefix_bytes
from state_core.model.measure import Measure

__all__ = ["KeyGroupLayout"]


@dataclass(frozen=True)
class KeyGroupLayout:
    """A table of keyed state, or one that the timers of an operator share; picklable.

    Attributes:
        before: What reads the snapshot's rows.
        after: What reads the rows as they are to be: the same, but for a type that changes.
    """

    before: TableRows
    after: TableRows

    @classmethod
    def of(cls, lake: str, operator: OperatorRecord, table: TableRecord) -> KeyGroupLayout:
        """The layout of a table, with the states that the operator has there."""
        states = [state for state in operator.states if state.table == table.path]
        ids = {state.name: index for index, state in enumerate(states)}
        rows = replace(table_rows(lake, operator, table, ids), units=())
        return cls(rows, rows)

    def with_meta_info(self, meta_info: bytes) -> KeyGroupLayout:
        """The layout when the values of the table's one state have another type."""
        ((index, _),) = self.before.states
        return replace(self, after=replace(self.before, states=((index, meta_info),)))

    @property
    def plain(self) -> bool:
        """Whether the table is without the decoders of users that there are now."""
        return self.before.plain

    @property
    def partitioning(self) -> Partitioning:
        """How key groups are spread over partitions."""
        return Partitioning(self.after.max_parallelism)

    @property
    def _directory(self) -> Directory:
        return table_directory(self.after.lake, self.after.path)

    @property
    def schema(self) -> pa.Schema:
        """The columns that the table is to have, its partition column among them."""
        (_, meta_info), *_ = self.after.states
        return self.partitioning.table_schema(table_columns(self.after.parse(meta_info)[0]))

    def place(self, unit: Unit) -> str:
        """How messages name a part of the table."""
        return f"{self.after.path}, key groups {unit.key_groups}"

    def edited_pieces(
        self, files: Sequence[UnitRecord], edited: Sequence[TableFile]
    ) -> list[Piece]:
        """The partitions in which the table's files are not the snapshot's any more.

        Raises:
            KeyGroupError: A file is in a partition that no key group has.
        """
        before = {file.path: file.partition for file in files}
        now = {file.path: file.partition for file in edited}
        pieces = []
        for partition in sorted({(before | now)[path] for path in before.keys() ^ now.keys()}):
            unit = self._unit_of(partition)
            staged = tuple(
                UnitRecord(file.path, partition, unit.first, unit.last, file.rows, file.size, b"")
                for file in edited
                if file.partition == partition
            )
            replaced = tuple(file for file in files if file.partition == partition)
            pieces.append(Piece(unit, replaced, staged, edited=True))
        return pieces

    def _unit_of(self, partition: int) -> Unit:
        """All key groups of a partition."""
        every = range(self.after.max_parallelism)
        groups = [group for group in every if self.partitioning.partition_of(group) == partition]
        if not groups:
            last = self.partitioning.partition_of(every[-1])
            column = self.partitioning.column
            raise KeyGroupError(
                f"rows whose {column} is {partition}, and it goes from 0 to {last}",
                place=self._directory.uri,
                remedy="a row must keep its key group; for a new key, compute it",
            )
        return Unit(partition, groups[0], groups[-1])

    def read(self, piece: Piece) -> list[StateRows]:
        """The rows of a piece in order of key group, a state at a time.

        Raises:
            LakeError: A file is missing, or its columns are not the state's.
            KeyGroupError: A user moved rows to another partition.
        """
        table, files = self.before, piece.files
        if piece.staged is not None:
            table, files = self.after, piece.staged
        states = replace(table, units=files).read(piece.unit.key_groups)
        if piece.edited:
            stored = sum(file.rows for file in files if file.rows >= 0)
            missing = stored - sum(len(rows.batch) for rows in states)
            if missing > 0:
                raise KeyGroupError(
                    f"{missing} rows in the partition of key groups {piece.unit.key_groups} are of"
                    " another",
                    place=table.path,
                    remedy="a row's key group follows from its key: leave the column as it is",
                )
        return states

    def validate(self, rows: StateRows) -> None:
        """Refuse rows edited into what Flink can't restore.

        Raises:
            EncodeError: A key is null, or there more than once.
            KeyGroupError: A key is not in its key group, as far as its hash is known.
        """
        key, raw_key = rows.batch.column("key"), rows.batch.column("raw_key")
        if pc.any(pc.and_(key.is_null(), raw_key.is_null())).as_py():
            raise EncodeError(
                f"state {rows.name!r} has a key that is null", remedy="a key is never null in Flink"
            )
        keys = rows.layout.key_writer(rows.batch).to_binary()
        if pc.count_distinct(keys).as_py() != len(keys):
            counts = pc.value_counts(keys)
            doubled = counts.filter(pc.greater(counts.field("counts"), 1))[0]["values"]
            shown = key[pc.index(keys, doubled).as_py()].as_py()
            raise EncodeError(
                f"state {rows.name!r} has key {shown!r} more than once",
                remedy="keep one row of each key, namespace and user key",
            )
        with suppress(UnknownHashError):
            check_key_groups(rows, self.after.max_parallelism)

    def write(self, states: Sequence[StateRows], unit: Unit, prefix: str) -> Rewritten:
        """Encode rows as Flink would, measure them, and write them as one file.

        Args:
            states: The unit's rows in order of key group, a state at a time.
            unit: What the file may hold.
            prefix: The directory of new files, below that of all data.

        Raises:
            EncodeError: A value can't be written back to Flink.
            KeyGroupError: A row is not of the unit.
        """
        kinds = {index: self.after.parse(meta_info)[0] for index, meta_info in self.after.states}
        names = [kind.name for kind in kinds.values()]
        measure = Measure(names, unit.key_groups)
        writer = UnitWriter(self._directory, prefix, self.partitioning)
        for rows in states:
            if len(rows.batch):
                entries = encode_rows(rows, prefix_bytes(self.after.max_parallelism))
                _check_within(rows.batch, unit)
                measure.add(entries)
                writer.append(table_batch(kinds[rows.state], rows.batch), unit)
        path, size = writer.close(unit)
        counts = {name: key_group_records(measure, name) for name in names}
        if not path:
            return Rewritten((), counts)
        count = measure.rows(names, unit.key_groups)
        content = measure.fingerprint(names, unit.key_groups)
        file = UnitRecord(path, unit.partition, unit.first, unit.last, count, size, content)
        return Rewritten((file,), counts)

    def recorded(self, operator: OperatorRecord, moved: set[int], counts: Counts) -> OperatorRecord:
        """The operator with types and counts of the table's states as they are now.

        Args:
            operator: As it was.
            moved: The key groups that were written again; others count as before.
            counts: What the states have there now.
        """
        path = self.after.path
        states = [
            self._recorded(state, moved, counts) if state.table == path else state
            for state in operator.states
        ]
        return replace(operator, states=states)

    def _recorded(self, state: StateRecord, moved: set[int], counts: Counts) -> StateRecord:
        kept = [key_group for key_group in state.key_groups if key_group.key_group not in moved]
        if self.after != self.before:  # its one state has another type
            ((_, meta_info),) = self.after.states
            value_type = self.after.parse(meta_info)[0].value_type
            state = replace(state, meta_info=meta_info, value_type=value_type)
        return state.with_key_groups([*kept, *counts.get(state.name, ())])


def _check_within(batch: pa.RecordBatch, unit: Unit) -> None:
    """Rows, which are in order of key group, stay in the key groups of their file."""
    groups = batch.column(KEY_GROUP)
    first, last = groups[0].as_py(), groups[len(groups) - 1].as_py()
    if first < unit.first or last > unit.last:
        raise KeyGroupError(f"rows of key groups {first} to {last}, which are of another file")
