"""The tables of operator state in an edit: read, checked, rewritten, and counted by subtask.

A list's elements have a subtask and a position; a broadcast state has one copy, for all
subtasks. The new files have no fingerprint, so the next import writes them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.pipelines.lake.edit.pieces import Counts, Piece, Rewritten
from statelake.pipelines.lake.tables.data_files import write_data_file
from statelake.pipelines.lake.tables.file_spans import FileSpan
from statelake.pipelines.lake.tables.names import new_folder
from statelake.pipelines.lake.tables.operator_tables import NO_PARTITION, read_operator_rows
from statelake.pipelines.lake.tables.records import (
    DataFile,
    OperatorRecord,
    OperatorStateRecord,
    SubtaskRecord,
)
from statelake.pipelines.lake.tables.tables import TableFile, table_directory
from statelake.state_core.errors import EncodeError
from statelake.state_core.formats.operator_state.operator_reader import parse_operator_state
from statelake.state_core.formats.operator_state.operator_states import ElementRows
from statelake.state_core.formats.rewriting.value_migration import validate_rows


@dataclass(frozen=True)
class SubtaskLayout:
    """The layout of the table of one operator state; picklable.

    Attributes:
        plain: Always true, since users' decoders are never used for operator state.
        lake: The lake's location.
        parallelism: The operator's parallelism.
        before: The state in the snapshot.
        after: The state with the new type of its values.
    """

    plain: ClassVar[bool] = True

    lake: str
    parallelism: int
    before: OperatorStateRecord
    after: OperatorStateRecord

    def with_meta_info(self, meta_info: bytes) -> SubtaskLayout:
        """Return the layout for another type of a list's elements or a broadcast state's values."""
        value_type = parse_operator_state(meta_info)[0].value_type
        return replace(self, after=replace(self.before, meta_info=meta_info, value_type=value_type))

    @property
    def broadcast(self) -> bool:
        """Return whether this is a broadcast state, of which every subtask has a full copy."""
        return bool(self.after.key_type)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the new table."""
        return parse_operator_state(self.after.meta_info)[0].schema

    def place(self, span: FileSpan) -> str:
        """Return how messages name this part of the table."""
        return f"{self.after.table}, subtasks {span.first} to {span.last}"

    def edited_pieces(self, files: Sequence[DataFile], edited: Sequence[TableFile]) -> list[Piece]:
        """Return the whole table as one piece: an element may have moved to any subtask."""
        span = FileSpan(NO_PARTITION, 0, 0 if self.broadcast else self.parallelism - 1)
        staged = tuple(
            DataFile(file.path, NO_PARTITION, span.first, span.last, file.rows, file.size, b"")
            for file in edited
        )
        return [Piece(span, tuple(files), staged, edited=True)]

    def read(self, piece: Piece) -> list[ElementRows]:
        """Return all rows of a piece; those of a list by subtask and position.

        Raises:
            LakeError: A file is missing, or its columns are not the state's.
        """
        state, files = self.before, piece.files
        if piece.staged is not None:
            state, files = self.after, piece.staged
        layout = parse_operator_state(state.meta_info)[1]
        return [ElementRows(state.name, layout, read_operator_rows(self.lake, state, files))]

    def validate(self, rows: ElementRows) -> None:
        """Refuse edited rows that Flink can't restore.

        Raises:
            EncodeError: Two elements of a list have the same place, or one has none.
        """
        if self.broadcast:
            return
        subtasks, positions = rows.batch.column("subtask"), rows.batch.column("position")
        if subtasks.null_count or positions.null_count:
            raise EncodeError(
                "an element without a subtask or position", remedy="give every row both"
            )
        _check_within(subtasks, 0, self.parallelism - 1)
        places = np.stack([subtasks.to_numpy().astype(np.int64), positions.to_numpy()])
        # rows are read in order, so that equal places are neighbours
        doubled = np.flatnonzero((places[:, 1:] == places[:, :-1]).all(axis=0))
        if doubled.size:
            subtask, position = places[:, doubled[0]].tolist()
            raise EncodeError(
                f"two elements at position {position} of subtask {subtask}",
                remedy="give each element its own position; gaps are allowed",
            )

    def write(
        self, states: Sequence[ElementRows], span: FileSpan, prefix: str, *, read_back: bool = False
    ) -> Rewritten:
        """Write one state: see `KeyGroupLayout.write`."""
        (rows,) = states
        if read_back:
            validate_rows(rows)
        batch = rows.batch
        lengths = pc.binary_length(rows.layout.encode(batch)).to_numpy()
        if self.broadcast:  # one copy, which is encoded in one piece
            counts = [SubtaskRecord(0, len(batch), int(lengths.sum()))]
        else:
            _check_within(batch.column("subtask"), span.first, span.last)
            indexes = batch.column("subtask").to_numpy()
            counts = [
                SubtaskRecord(
                    subtask,
                    int((indexes == subtask).sum()),
                    int(lengths[indexes == subtask].sum()),
                )
                for subtask in np.unique(indexes).tolist()
            ]
        if not len(batch):
            return Rewritten((), {rows.name: counts})
        name = f"{new_folder(prefix)}/subtask-{span.first:05d}"
        directory = table_directory(self.lake, self.after.table)
        path, size = write_data_file(directory, name, rows.layout.schema, [batch])
        file = DataFile(path, span.partition, span.first, span.last, len(batch), size, b"")
        return Rewritten((file,), {rows.name: counts})

    def recorded(self, operator: OperatorRecord, moved: set[int], counts: Counts) -> OperatorRecord:
        """Return the operator with one state's new counts: see `KeyGroupLayout.recorded`."""
        state = self.after
        if moved:
            counted, before = counts[state.name], state.subtasks
            if self.broadcast:
                subtasks = [replace(counted[0], subtask=each.subtask) for each in before]
            else:
                subtasks = [*counted, *(each for each in before if each.subtask not in moved)]
            state = replace(state.with_subtasks(subtasks), disagreeing=[])
        states = [
            state if operator_state.table == state.table else operator_state
            for operator_state in operator.operator_states
        ]
        return replace(operator, operator_states=states)


def _check_within(subtasks: pa.Array, first: int, last: int) -> None:
    """Check that elements are at the subtasks of their file."""
    if len(subtasks) and not first <= pc.min(subtasks).as_py() <= pc.max(subtasks).as_py() <= last:
        raise EncodeError(
            f"an element has a subtask that does not exist; subtasks are {first} to {last}",
            remedy="use one of these; `statelake export --parallelism` changes their number",
        )
