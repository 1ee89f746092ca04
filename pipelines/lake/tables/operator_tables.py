"""Tables of operator state: written by an import, and read again.

A table is not partitioned. Each file has the elements of the subtasks `first` to `last` of its
record, in order; a broadcast state is one file with one copy. A file is not written again if the
previous snapshot has one with the same content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter

import pyarrow as pa

from statelake.pipelines.lake.tables.data_files import write_data_file
from statelake.pipelines.lake.tables.names import new_folder, operator_table
from statelake.pipelines.lake.tables.records import (
    DataFile,
    OperatorStateRecord,
    SnapshotRecord,
    SubtaskRecord,
)
from statelake.pipelines.lake.tables.table_rows import as_columns, open_data_file
from statelake.pipelines.lake.tables.tables import table_directory
from statelake.state_core.formats.operator_state.operator_reader import parse_operator_state
from statelake.state_core.formats.reader import open_snapshot
from statelake.state_core.model.entries import by_size
from statelake.state_core.model.snapshot import Operator, OperatorState, OperatorStatePart

PIECE_BYTES = 64 << 20
NO_PARTITION = -1


@dataclass(frozen=True)
class SubtaskSpan:
    """Some subtasks of one operator state, for one file of its table.

    Attributes:
        operator_id: The operator.
        state: The state.
        table: The path of its table.
        first: The first subtask.
        last: The last one.
        known: The fingerprint of the previous snapshot's file of the same subtasks.
    """

    operator_id: str
    state: str
    table: str
    first: int
    last: int
    known: bytes = b""


@dataclass(frozen=True)
class OperatorTask:
    """A task: import some pieces."""

    source: str
    allow_external: tuple[str, ...]
    lake: str
    attempt: str
    pieces: tuple[SubtaskSpan, ...]


@dataclass
class SubtaskSpanResult:
    """The result of a piece: its file, without a path if it was not written, and its subtasks."""

    piece: SubtaskSpan
    file: DataFile
    subtasks: list[SubtaskRecord] = field(default_factory=list)
    disagreeing: list[int] = field(default_factory=list)


def operator_table_paths(job: str, operators: Iterable[Operator]) -> dict[tuple[str, str], str]:
    """Return the table of each operator state, by operator id and name."""
    return {
        (operator.operator_id, state.name): operator_table(job, operator.label, state.name)
        for operator in operators
        for state in operator.operator_states
    }


def reusable_files(
    operators: Iterable[Operator], previous: SnapshotRecord | None
) -> dict[str, list[DataFile]]:
    """Return the previous snapshot's files of tables whose types are the same."""
    if previous is None:
        return {}
    now = {
        (operator.operator_id, state.name): state
        for operator in operators
        for state in operator.operator_states
    }
    files = {}
    for operator in previous.operators:
        versions = {table.path: table.units for table in operator.tables}
        for state in operator.operator_states:
            if parse_operator_state(state.meta_info)[0] == now.get(
                (operator.operator_id, state.name)
            ):
                files[state.table] = versions[state.table]
    return files


def plan_operator_tasks(
    operators: Iterable[Operator],
    tables: dict[tuple[str, str], str],
    previous: dict[str, list[DataFile]],
) -> list[tuple[SubtaskSpan, ...]]:
    """Cut all operator states into pieces, and group small ones.

    Args:
        operators: The snapshot's operators.
        tables: The table of each operator id and state.
        previous: The files of the previous snapshot's tables with the same types.
    """
    pieces: list[tuple[SubtaskSpan, int]] = []
    for operator in operators:
        for state in operator.operator_states:
            path = tables[operator.operator_id, state.name]
            fingerprints = {
                (file.first, file.last): file.fingerprint for file in previous.get(path, [])
            }
            for first, last, weight in _ranges(state):
                mark = fingerprints.get((first, last), b"")
                piece = SubtaskSpan(operator.operator_id, state.name, path, first, last, mark)
                pieces.append((piece, weight))
    tasks = by_size(pieces, itemgetter(1), PIECE_BYTES)
    return [tuple(piece for piece, _ in task) for task in tasks]


def _ranges(state: OperatorState) -> Iterator[tuple[int, int, int]]:
    """Yield the first and last subtask of each piece, and its size."""
    if state.broadcast:
        yield 0, 0, sum(part.size for part in state.parts)
        return
    for at, parts in enumerate(by_size(state.parts, attrgetter("size"), PIECE_BYTES)):
        size = sum(part.size for part in parts)
        yield parts[0].subtask if at else 0, parts[-1].subtask, size


def import_operator_states(task: OperatorTask) -> list[SubtaskSpanResult]:
    """Read pieces and write their files.

    Raises:
        SnapshotError: The snapshot can't be read on this machine.
    """
    snapshot = open_snapshot(task.source, allow_external=task.allow_external)
    states = {
        (operator.operator_id, state.name): state
        for operator in snapshot.operators
        for state in operator.operator_states
    }
    return [
        _import_span(task, piece, states[piece.operator_id, piece.state]) for piece in task.pieces
    ]


def _import_span(task: OperatorTask, piece: SubtaskSpan, state: OperatorState) -> SubtaskSpanResult:
    if state.broadcast:
        parts, copies = state.parts[:1], state.parts
    else:
        parts = copies = tuple(p for p in state.parts if piece.first <= p.subtask <= piece.last)
    mark, sizes = _fingerprint(parts, state.broadcast)
    batches = [part.decode() for part in parts]
    rows = sum(map(len, batches))
    path, written = "", 0
    if rows and mark != piece.known:
        directory = table_directory(task.lake, piece.table)
        name = f"{new_folder(task.attempt)}/subtask-{piece.first:05d}"
        path, written = write_data_file(directory, name, state.schema, batches)
    subtasks = [
        SubtaskRecord(part.subtask, rows if state.broadcast else part.elements, size)
        for part, size in zip(copies, sizes * len(copies) if state.broadcast else sizes,
                              strict=True)
    ]  # fmt: skip
    file = DataFile(path, NO_PARTITION, piece.first, piece.last, rows, written, mark)
    return SubtaskSpanResult(piece, file, subtasks, state.disagreeing())


def _fingerprint(parts: Sequence[OperatorStatePart], broadcast: bool) -> tuple[bytes, list[int]]:
    """Return a digest of the parts' content, and their bytes; of a broadcast's in any order."""
    digest, sizes = hashlib.sha256(), []
    for part in parts:
        elements = part.encoded()
        sizes.append(sum(map(len, elements)))
        digest.update(f"{part.subtask if not broadcast else 0}:{len(elements)};".encode())
        if broadcast:
            elements = [item for pair in sorted(part.contents()) for item in pair]
        for element in elements:
            digest.update(len(element).to_bytes(8, "big"))
            digest.update(element)
    return digest.digest(), sizes


def read_operator_rows(
    lake: str, state: OperatorStateRecord, files: Iterable[DataFile]
) -> pa.RecordBatch:
    """Read the rows of some files of a table; those of a list by subtask and position.

    Raises:
        LakeError: A file is missing, or its columns are not the state's.
    """
    described, _ = parse_operator_state(state.meta_info)
    schema = described.schema
    directory = table_directory(lake, state.table)
    tables = [schema.empty_table()]
    for data_file in files:
        with open_data_file(lake, state.table, data_file, read_all=True) as file:
            table = file.read(columns=schema.names)
        tables.append(as_columns(table, schema, directory.full(data_file.path)))
    rows = pa.concat_tables(tables)
    if not described.broadcast:
        rows = rows.sort_by([("subtask", "ascending"), ("position", "ascending")])
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema)


def describe_operator_states(
    operator: Operator,
    tables: dict[tuple[str, str], str],
    results: Iterable[SubtaskSpanResult],
) -> list[OperatorStateRecord]:
    """Return the records of an operator's states, from the results of their pieces."""
    records = []
    by_state: dict[str, list[SubtaskSpanResult]] = {}
    for result in results:
        if result.piece.operator_id == operator.operator_id:
            by_state.setdefault(result.piece.state, []).append(result)
    for state in operator.operator_states:
        pieces = by_state.get(state.name, [])
        records.append(
            OperatorStateRecord(
                name=state.name,
                mode=state.mode.name,
                table=tables[operator.operator_id, state.name],
                value_type=state.value_type,
                key_type=state.key_type,
                meta_info=state.meta_info,
                disagreeing=[index for piece in pieces for index in piece.disagreeing],
            ).with_subtasks(subtask for piece in pieces for subtask in piece.subtasks)
        )
    return records
