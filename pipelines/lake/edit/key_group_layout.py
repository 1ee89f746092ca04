"""The layout of keyed state and timers in files: by key group, hashed and counted by entry."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.pipelines.lake.edit.pieces import Counts, Piece, Rewritten, Staged
from statelake.pipelines.lake.tables.data_files import (
    DataFileWriter,
    in_order,
    measured_file,
    table_batch,
    table_columns,
    write_data_file,
)
from statelake.pipelines.lake.tables.file_spans import KEY_GROUP, FileSpan, Partitioning
from statelake.pipelines.lake.tables.operator_tables import NO_PARTITION
from statelake.pipelines.lake.tables.records import (
    DataFile,
    OperatorRecord,
    StateRecord,
    TableRecord,
    key_group_records,
)
from statelake.pipelines.lake.tables.table_rows import (
    TableReader,
    TableState,
    open_data_file,
    table_rows,
)
from statelake.pipelines.lake.tables.tables import TableFile, table_directory
from statelake.state_core.errors import EncodeError, KeyGroupError, UnknownHashError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.rewriting.value_migration import validate_rows
from statelake.state_core.formats.writing.rehash import check_key_groups
from statelake.state_core.formats.writing.unified_encode import StateRows, encode_rows
from statelake.state_core.model.key_groups import prefix_bytes
from statelake.state_core.model.measure import Measure
from statelake.state_core.model.snapshot import RowNames
from statelake.state_core.serializers.framework.columns import Cursor


@dataclass(frozen=True)
class KeyGroupLayout:
    """The layout of a table of keyed state, or of an operator's timers; picklable.

    Attributes:
        before: The reader of the snapshot's rows.
        after: The reader of the new rows: the same, except for a type that changes.
    """

    before: TableReader
    after: TableReader

    @classmethod
    def of(cls, lake: str, operator: OperatorRecord, table: TableRecord) -> KeyGroupLayout:
        """Return the layout of a table, with the operator's states in it."""
        rows = table_rows(lake, operator, table)
        states = tuple(enumerate(state for _, state in rows.states))
        rows = replace(rows, units=(), states=states)
        return cls(rows, rows)

    def with_meta_info(self, meta_info: bytes, names: RowNames | None = None) -> KeyGroupLayout:
        """Return the layout for another type of one of the table's states.

        Args:
            meta_info: The state's new meta info.
            names: The names of the fields of its rows; by default those that it has.
        """
        name = self.after.parse(TableState(meta_info))[0].name

        def changed(old: TableState) -> TableState:
            if self.after.parse(old)[0].name != name:
                return old
            return old.with_meta_info(meta_info) if names is None else TableState(meta_info, names)

        states = tuple((index, changed(old)) for index, old in self.after.states)
        return replace(self, after=replace(self.after, states=states))

    @property
    def plain(self) -> bool:
        """Return whether the table was written without the users' decoders of now."""
        return self.before.plain

    @property
    def partitioning(self) -> Partitioning:
        """The distribution of key groups over partitions."""
        return self.after.partitioning

    @property
    def _directory(self) -> Directory:
        return table_directory(self.after.lake, self.after.path)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the new table, including its partition column."""
        (_, state), *_ = self.after.states
        return self.partitioning.table_schema(table_columns(self.after.parse(state)[0]))

    def place(self, span: FileSpan) -> str:
        """Return the name of a part of the table in messages."""
        return f"{self.after.path}, key groups {span.key_groups}"

    def edited_pieces(self, files: Sequence[DataFile], edited: Sequence[TableFile]) -> list[Piece]:
        """Return the pieces of the table whose files differ from the snapshot's.

        A piece extends from the start of one of the snapshot's files to the start of the next. A
        new row may be in any bucket of its piece, or in none: then its key group decides.

        Raises:
            KeyGroupError: A file is in a partition without key groups, or a row has no key group.
        """
        starts = sorted({file.partition for file in files})
        replaced: dict[FileSpan, list[DataFile]] = {}
        staged: dict[FileSpan, list[DataFile]] = {}
        for file in files:
            replaced.setdefault(self._piece_of(file.partition, starts), []).append(file)
        for new in edited:
            # a set: rows of several buckets may be in one piece
            for span in {self._piece_of(part, starts) for part in self._partitions_of(new)}:
                staged.setdefault(span, []).append(_staged(new, span))
        return [
            Piece(span, tuple(replaced.get(span, ())), tuple(staged.get(span, ())), edited=True)
            for span in sorted({**replaced, **staged}, key=lambda span: span.first)
            if _paths(replaced.get(span, ())) != _paths(staged.get(span, ()))
        ]

    def new_pieces(self, files: Sequence[DataFile]) -> list[Piece]:
        """Return the pieces of a table whose rows go to any key group: each replaces its files."""
        starts = sorted({file.partition for file in files})
        if self.partitioning.column == KEY_GROUP:
            starts = list(range(self.after.max_parallelism)) if starts else []
        replaced: dict[FileSpan, list[DataFile]] = {
            self._piece_of(start, starts): [] for start in starts
        }
        for file in files:
            replaced[self._piece_of(file.partition, starts)].append(file)
        return [Piece(span, tuple(inside), ()) for span, inside in replaced.items()]

    def stage(self, states: Sequence[StateRows], spans: Sequence[FileSpan], path: str) -> Staged:
        """Write rows that have new key groups to a file, a row group for each span.

        Args:
            states: The rows, a state at a time.
            spans: The key groups of the new pieces, in order.
            path: The file's path below that of all data.
        """
        kinds = {index: self.after.parse(stored)[0] for index, stored in self.after.states}
        batches = [table_batch(kinds[rows.state], rows.batch) for rows in states if len(rows.batch)]
        if not batches:
            return None
        return self.stage_table(in_order(pa.Table.from_batches(batches)), spans, path)

    def stage_table(self, rows: pa.Table, spans: Sequence[FileSpan], path: str) -> Staged:
        """Write a table in order of key group to a file, as `stage` does."""
        groups = rows.column(KEY_GROUP).to_numpy()
        bounds = np.searchsorted(groups, [span.first for span in spans]).tolist()
        indexes = []
        parts = []
        for index, (first, end) in enumerate(pairwise([*bounds, len(rows)])):
            if first < end:
                indexes.append(index)
                parts.append(rows.slice(first, end - first))
        if not parts:
            return None
        path, size = write_data_file(self._directory, path, rows.schema, parts, whole=True)
        last = self.after.max_parallelism - 1
        return DataFile(path, NO_PARTITION, 0, last, len(rows), size, b""), indexes

    def _partitions_of(self, file: TableFile) -> list[int]:
        """Return the partition of a file; if that is null, the partitions of its rows."""
        if file.partition != NO_PARTITION or self.partitioning.column == KEY_GROUP:
            return [file.partition]
        data_file = DataFile(file.path, NO_PARTITION, 0, 0, file.rows, file.size, b"")
        with open_data_file(self.after.lake, self.after.path, data_file) as opened:
            groups = opened.read(columns=[KEY_GROUP]).column(KEY_GROUP).unique().to_pylist()
        most = self.after.max_parallelism - 1
        wrong = [group for group in groups if group is None or not 0 <= group <= most]
        if wrong:
            raise KeyGroupError(
                f"a row whose {KEY_GROUP} is {wrong[0]}, and it goes from 0 to {most}",
                place=self._directory.uri,
                remedy="for a new key, compute it",
            )
        return sorted({self.partitioning.partition_of(group) for group in groups})

    def _piece_of(self, partition: int, starts: Sequence[int]) -> FileSpan:
        """Return the key groups of the piece of a partition.

        Args:
            partition: The partition.
            starts: The partitions at which the snapshot's files begin, ascending.
        """
        partitioning = self.partitioning
        behind = partitioning.partition_of(self.after.max_parallelism - 1) + 1
        if not 0 <= partition < behind:
            raise KeyGroupError(
                f"rows whose {partitioning.column} is {partition}, and it goes from 0 to"
                f" {behind - 1}",
                place=self._directory.uri,
                remedy="a row must keep its key group; for a new key, compute it",
            )
        if partitioning.column == KEY_GROUP:
            return FileSpan(partition, partition, partition)
        bounds = [0, *starts[1:], behind]
        at = bisect_right(bounds, partition)
        last = min(partitioning.first_of(bounds[at]), self.after.max_parallelism) - 1
        return FileSpan(bounds[at - 1], partitioning.first_of(bounds[at - 1]), last)

    def read(self, piece: Piece) -> list[StateRows]:
        """Return the rows of a piece in order of key group, a state at a time.

        Raises:
            LakeError: A file is missing, or its columns are not the state's.
            KeyGroupError: Rows were moved to another partition.
        """
        table, files = self.before, piece.files
        if piece.staged is not None:
            table, files = self.after, piece.staged
        if piece.row_groups:
            parts = replace(table, units=files)
            return parts.read_parts(piece.row_groups, piece.span.key_groups)
        states = replace(table, units=files).read(piece.span.key_groups)
        if piece.edited:
            stored = sum(file.rows for file in files if file.rows >= 0)
            missing = stored - sum(len(rows.batch) for rows in states)
            if missing > 0:
                raise KeyGroupError(
                    f"{missing} rows in the partition of key groups {piece.span.key_groups} are of"
                    " another",
                    place=table.path,
                    remedy="a row's key group follows from its key, and its file from that: leave"
                    f" the columns {KEY_GROUP} and {self.partitioning.column} as they are",
                )
        return states

    def validate(self, rows: StateRows) -> None:
        """Refuse rows edited into what Flink can't restore.

        Raises:
            EncodeError: A key is null, or occurs more than once.
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

    def write(
        self,
        states: Sequence[StateRows],
        file_span: FileSpan,
        prefix: str,
        *,
        read_back: bool = False,
    ) -> Rewritten:
        """Encode rows as Flink would, measure them, and write them as one file.

        Args:
            states: The span's rows in order of key group, a state at a time.
            file_span: The key groups that the file may hold.
            prefix: The directory of new files, below that of all data.
            read_back: Whether every value is read back from its bytes.

        Raises:
            EncodeError: A value can't be written back to Flink, or comes back as another.
            KeyGroupError: A row is not in the span's key groups.
        """
        kinds = {index: self.after.parse(state)[0] for index, state in self.after.states}
        names = [kind.name for kind in kinds.values()]
        measure = Measure(names, file_span.key_groups)
        writer = DataFileWriter(self._directory, prefix, self.partitioning)
        for rows in states:
            if len(rows.batch):
                entries = encode_rows(rows, prefix_bytes(self.after.max_parallelism))
                _check_within(rows.batch, file_span)
                if read_back:
                    values = entries.value_start.copy(), entries.value_end
                    validate_rows(rows, Cursor(entries.data, *values, entries.place))
                measure.add(entries)
                writer.append(table_batch(kinds[rows.state], rows.batch), file_span.last)
        path, size = writer.close(file_span.last)
        counts = {name: key_group_records(measure.sums(name)) for name in names}
        if not path:
            return Rewritten((), counts)
        groups = file_span.key_groups
        file = measured_file(measure, names, groups, self.partitioning, path, size)
        return Rewritten((file,), counts)

    def recorded(self, operator: OperatorRecord, moved: set[int], counts: Counts) -> OperatorRecord:
        """Return the operator with the new types and counts of the table's states.

        Args:
            operator: The operator's record before the change.
            moved: The key groups that were written again; counts of others stay.
            counts: The new counts of the states.
        """
        path = self.after.path
        states = [
            self._recorded(state, moved, counts) if state.table == path else state
            for state in operator.states
        ]
        return replace(operator, states=states)

    def _recorded(self, state: StateRecord, moved: set[int], counts: Counts) -> StateRecord:
        kept = [key_group for key_group in state.key_groups if key_group.key_group not in moved]
        for _, table_state in self.after.states if self.after != self.before else ():
            new = self.after.parse(table_state)[0]
            if new.name == state.name:
                names = replace(table_state.names, alias=table_state.names.alias or state.alias)
                state = replace(
                    state,
                    meta_info=table_state.meta_info,
                    value_type=new.value_type,
                    ttl=new.with_ttl,
                ).named(names)
        return state.with_key_groups([*kept, *counts.get(state.name, ())])


def _staged(file: TableFile, span: FileSpan) -> DataFile:
    """Return the record of a file that a user wrote, which may have rows of a whole piece."""
    rows = (
        -1 if file.partition == NO_PARTITION else file.rows
    )  # it may also have rows of other pieces
    return DataFile(file.path, file.partition, span.first, span.last, rows, file.size, b"")


def _paths(files: Sequence[DataFile]) -> set[str]:
    return {file.path for file in files}


def _check_within(batch: pa.RecordBatch, span: FileSpan) -> None:
    """Check that rows, which are in order of key group, are in the key groups of their file."""
    groups = batch.column(KEY_GROUP)
    first, last = groups[0].as_py(), groups[len(groups) - 1].as_py()
    if first < span.first or last > span.last:
        raise KeyGroupError(f"rows of key groups {first} to {last}, which are of another file")
