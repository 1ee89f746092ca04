"""Rows of a snapshot's tables, read from their files."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from statelake.pipelines.lake.tables.data_files import table_columns
from statelake.pipelines.lake.tables.file_spans import KEY_GROUP, Partitioning
from statelake.pipelines.lake.tables.parquet_bounds import open_parquet, parquet_input
from statelake.pipelines.lake.tables.parquet_seals import check_end, check_whole
from statelake.pipelines.lake.tables.records import (
    DataFile,
    OperatorRecord,
    StateRecord,
    TableRecord,
    by_span,
)
from statelake.pipelines.lake.tables.tables import table_directory
from statelake.state_core.errors import LakeError, MissingFileError, StateError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.layout.keyed_states import check_names, parse_keyed_state
from statelake.state_core.formats.writing.unified_encode import StateRows, encode_rows
from statelake.state_core.model.entries import by_size
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.key_groups import prefix_bytes
from statelake.state_core.model.measure import Measure
from statelake.state_core.model.snapshot import NO_NAMES, KeyedState, RowNames, StateKind
from statelake.state_core.nested import parts_of, with_types
from statelake.state_core.serializers.framework.columns import I64Array
from statelake.state_core.serializers.framework.opaque_values import DECODED

FETCHED_BYTES = 16 << 20
LOG = logging.getLogger(__name__)


class TableState(NamedTuple):
    """A state of a table: its meta info, as Flink wrote it, and the names of its rows' fields."""

    meta_info: bytes
    names: RowNames = NO_NAMES

    def with_meta_info(self, meta_info: bytes) -> TableState:
        """Return the state with other types, and without the names of rows that have others."""
        try:
            check_names(meta_info, self.names)
        except StateError:
            return TableState(meta_info, RowNames(self.names.key))
        return TableState(meta_info, self.names)


@dataclass(frozen=True)
class TableReader:
    """A picklable reader of one table of a snapshot.

    Attributes:
        lake: The lake's location.
        path: The table's path.
        partitioning: Its partitioning.
        key_serializer: The snapshot of the key serializer, as Flink wrote it.
        states: Each state in it, with its id in a savepoint's header.
        units: Its files.
        plain: Whether it was written without the users' decoders of now.
        flink: The major version of the Flink that wrote it, if its types depend on that, or 0.
    """

    lake: str
    path: str
    partitioning: Partitioning
    key_serializer: bytes
    states: tuple[tuple[int, TableState], ...]
    units: tuple[DataFile, ...]
    plain: bool = False
    flink: int = 0

    @property
    def max_parallelism(self) -> int:
        """The operator's maximum parallelism."""
        return self.partitioning.max_parallelism

    @cached_property
    def found_as_written(self) -> dict[str, bool]:
        """Return whether each file that was compared with its seal has one: it is done once."""
        return {}

    @cached_property
    def files_by_span(self) -> dict[tuple[int, int], list[DataFile]]:
        """The files of exactly some key groups, or the one that has them as a part."""
        files = by_span(self.units)
        return files | {part.span: [file] for file in self.units for part in file.parts}

    def parse(self, state: TableState) -> tuple[KeyedState, KeyedLayout]:
        """Return a state of the table, and the layout of its rows."""
        return parse_keyed_state(
            state.meta_info,
            self.key_serializer,
            without_decoders=self.plain,
            flink=self.flink,
            names=state.names,
        )

    def only(self, state: StateRecord) -> TableReader:
        """Return the reader of one of its states."""
        mine = tuple(each for each in self.states if each[1].meta_info == state.meta_info)
        return replace(self, states=mine)

    def measured(self, key_groups: KeyGroupRange) -> tuple[TableReader, Measure]:
        """Return a reader whose rows an empty measure takes, for the fingerprints of files."""
        rows = replace(self, states=tuple(enumerate(state for _, state in self.states)))
        return rows, Measure([self.parse(state)[0].name for _, state in self.states], key_groups)

    def within(self, key_groups: KeyGroupRange) -> TableReader:
        """Return the reader of only the files that may hold these key groups."""
        files = tuple(
            file
            for file in self.units
            if file.last >= key_groups.first and file.first <= key_groups.last
        )
        return replace(self, units=files)

    def read(self, key_groups: KeyGroupRange) -> list[StateRows]:
        """Read the rows of these key groups, in order of key group, a state at a time."""
        columns = table_columns(self.parse(self.states[0][1])[0])
        tables = [
            read_data_file(self.lake, self.path, file, columns, self.partitioning)
            for file in self.within(key_groups).units
        ]
        return self._states(tables, key_groups)

    def read_parts(
        self, row_groups: Sequence[Sequence[int]], key_groups: KeyGroupRange
    ) -> list[StateRows]:
        """Read some row groups of each file, as `read` does; the files have all columns."""
        columns = table_columns(self.parse(self.states[0][1])[0])
        tables = []
        for data_file, chosen in zip(self.units, row_groups, strict=True):
            with open_data_file(self.lake, self.path, data_file) as file:
                tables.append(_cast(file.read_row_groups(chosen, columns=columns.names), columns))
        return self._states(tables, key_groups)

    def _states(self, tables: Sequence[pa.Table], key_groups: KeyGroupRange) -> list[StateRows]:
        parsed = [(index, *self.parse(table_state)) for index, table_state in self.states]
        if not tables:
            return []
        rows = pa.concat_tables(tables)
        rows = rows_of_groups(rows, key_groups)
        states = []
        for index, state, layout in parsed:
            mine = rows_of_queue(rows, state).select(layout.schema.names).combine_chunks()
            states += [
                StateRows(index, state.name, layout, batch)
                for batch in mine.to_batches()
                if len(batch)
            ]
        return states


def is_as_written(directory: Directory, data_file: DataFile) -> bool:
    """Compare a file with its seal.

    In a store only its size and its footer are compared: all else would be a download, of bytes
    that the store has checksums of.

    Returns:
        Whether it has a seal, or is in a store.

    Raises:
        MissingFileError, OSError, ArrowException: It is damaged, or can't be read.
    """
    with directory.open_input(data_file.path) as file:
        if directory.local:
            return check_whole(file)
        check_end(file, data_file.size)
        return True


def sound_files(directory: Directory, files: Iterable[DataFile]) -> list[DataFile]:
    """Return those files whose seal says that they are as they were written."""
    sound = []
    for file in files:
        try:
            if is_as_written(directory, file):
                sound.append(file)
        except (StateError, OSError, pa.ArrowException) as error:  # noqa: PERF203 - each has its own
            LOG.warning("%s: written anew (%s)", directory.full(file.path), error)
    return sound


def is_undamaged(rows: TableReader, key_groups: KeyGroupRange, fingerprint: bytes) -> bool:
    """Return whether the files of these key groups have what was written into them.

    Files of earlier versions of statelake, which have no seal, are read.

    Raises:
        StateError, OSError, ArrowException: A file is damaged, or can't be read.
    """
    checked = rows.found_as_written
    for file in rows.files_by_span.get((key_groups.first, key_groups.last), ()):
        if file.path not in checked:
            checked[file.path] = is_as_written(table_directory(rows.lake, rows.path), file)
        if not checked[file.path]:
            return has_fingerprint(rows, key_groups, fingerprint)
    return True


def has_fingerprint(rows: TableReader, key_groups: KeyGroupRange, fingerprint: bytes) -> bool:
    """Read the files of these key groups; return whether their rows have this fingerprint.

    Raises:
        StateError, OSError, ArrowException: A file is damaged, or can't be read.
    """
    files = tuple(rows.files_by_span.get((key_groups.first, key_groups.last), ()))
    numbered, measure = replace(rows, units=files).measured(key_groups)
    for state_rows in numbered.read(key_groups):
        measure.add(encode_rows(state_rows, prefix_bytes(rows.max_parallelism)))
    return measure.fingerprint(measure.states, key_groups) == fingerprint


def read_data_file(
    lake: str, path: str, data_file: DataFile, columns: pa.Schema, partitioning: Partitioning
) -> pa.Table:
    """Read the rows of one file, with the state's types.

    Raises:
        LakeError: The file is missing, or its columns are not the state's.
    """
    names = partitioning.file_schema(columns).names
    with open_data_file(lake, path, data_file, read_all=True) as file:
        table = file.read(columns=names)
    place = table_directory(lake, path).full(data_file.path)
    return typed_rows(table, data_file, columns, partitioning, place)


def null_counts(file: pq.ParquetFile) -> dict[str, int]:
    """Return the number of nulls of each column, by its path; without columns of unknown number."""
    counts: dict[str, int] = {}
    for group in range(file.metadata.num_row_groups):
        row_group = file.metadata.row_group(group)
        for at in range(row_group.num_columns):
            column = row_group.column(at)
            if column.is_stats_set and column.statistics.has_null_count:
                name = column.path_in_schema
                counts[name] = counts.get(name, 0) + column.statistics.null_count
    return counts


@contextmanager
def open_data_file(
    lake: str, path: str, data_file: DataFile, *, read_all: bool = False
) -> Iterator[pq.ParquetFile]:
    """Open one file of a table, until the context ends.

    Args:
        lake: The lake's location.
        path: The table's path.
        data_file: The file.
        read_all: Whether all of it will be read, which needs fewer requests to an object store.

    Raises:
        LakeError: It is missing, can't be read, or does not have the rows of its record.
        OversizedError: It unpacks to more than its bytes allow.
    """
    directory = table_directory(lake, path)
    try:
        with _opened(directory, data_file, read_all=read_all) as source:
            place = directory.full(data_file.path)
            file = open_parquet(source, place, pre_buffer=directory.is_object_store)
            if data_file.rows not in (-1, file.metadata.num_rows):
                raise LakeError(
                    f"{file.metadata.num_rows} rows, and the catalog says {data_file.rows}",
                    place=place,
                    remedy="restore the file from a backup of the lake",
                )
            yield file
    except (MissingFileError, OSError, pa.ArrowException) as error:
        raise LakeError(
            f"a file of the table can't be read ({error})",
            place=directory.full(data_file.path),
            remedy="only `statelake drop` may remove files: restore it from a backup of the lake",
        ) from error


def _opened(directory: Directory, file: DataFile, *, read_all: bool) -> pa.NativeFile:
    """Open a file; one that is small and in an object store is fetched at once."""
    if read_all and directory.is_object_store and file.size <= FETCHED_BYTES:
        return parquet_input(directory.read(file.path))
    return directory.open_input(file.path)


def typed_rows(
    table: pa.Table, file: DataFile, columns: pa.Schema, partitioning: Partitioning, place: str
) -> pa.Table:
    """Return rows of a file with the state's columns and types.

    Args:
        table: The rows as read.
        file: The file.
        columns: Some or all columns of the table, including the key group.
        partitioning: The table's partitioning.
        place: The file's path, for messages.

    Raises:
        LakeError: The columns are not the state's.
    """
    if partitioning.column == KEY_GROUP:  # which only the log has
        groups = pa.repeat(pa.scalar(file.partition, pa.int32()), len(table))
        table = table.append_column(KEY_GROUP, groups)
    return as_columns(table, columns, place)


def as_columns(table: pa.Table, columns: pa.Schema, place: str) -> pa.Table:
    """Return rows with exactly the columns and types of a state.

    Raises:
        LakeError: Their columns are not the state's.
    """
    missing = set(columns.names) - set(table.schema.names)
    if missing:
        raise LakeError(f"column {min(missing)!r} is missing", place=place)
    try:
        return _cast(_renamed(table.select(columns.names), columns), columns)
    except pa.ArrowException as error:
        raise LakeError(
            f"its columns are not those of the state ({' '.join(str(error).split())})",
            place=place,
            remedy="if it was imported with decoders of yours, name them: --plugins, --kryo, or"
            " STATELAKE_PLUGINS; if by an earlier statelake, import it again",
        ) from error


def _cast(table: pa.Table, columns: pa.Schema) -> pa.Table:
    """Return rows with other types of columns that hold the same.

    Raises:
        ArrowException: They do not: also text where there should be bytes, which Arrow itself would
            make of it without a word.
    """
    for field, wanted in zip(table.schema, columns, strict=True):
        if pa.types.is_string(field.type) and pa.types.is_binary(wanted.type):
            raise pa.ArrowInvalid(f"{field.name} is {field.type}, and should be {wanted.type}")
    return table.cast(columns)


def _renamed(table: pa.Table, columns: pa.Schema) -> pa.Table:
    """Return rows of a file whose rows of Flink SQL have no names, with those of the state."""
    for at, column in enumerate(table.schema):
        kind = _renamed_type(column.type, columns.field(column.name).type)
        if kind != column.type:
            chunks = [chunk.view(kind) for chunk in table.column(at).chunks]
            table = table.set_column(at, column.with_type(kind), pa.chunked_array(chunks, kind))
    return table


def _renamed_type(kind: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """Return a type in which the fields `f0`, `f1`, ... of rows have the names of another."""
    parts, others = parts_of(kind), parts_of(wanted)
    if kind == wanted or len(parts) != len(others) or kind.id != wanted.id:
        return kind
    pairs = zip(parts, others, strict=True)
    inner = [_renamed_type(field.type, other.type) for (_, field), (_, other) in pairs]
    if not pa.types.is_struct(kind):
        return with_types(kind, inner) if inner else kind
    plain = [field.name for field in kind] == [f"f{at}" for at in range(kind.num_fields)]
    names = [field.name for field in (wanted if plain else kind)]
    return pa.struct(
        [
            field.with_name(name).with_type(each)
            for field, name, each in zip(kind, names, inner, strict=True)
        ]
    )


def rows_of_groups(rows: pa.Table, key_groups: KeyGroupRange) -> pa.Table:
    """Return rows of these key groups only, by key group and then in the order of the files."""
    groups = rows.column(KEY_GROUP).to_numpy()
    inside = (groups >= key_groups.first) & (groups <= key_groups.last)
    if not inside.all():
        rows = rows.filter(pa.array(inside))
        groups = groups[inside]
    if len(groups) and np.any(groups[1:] < groups[:-1]):
        rows = rows.take(pa.array(np.argsort(groups, kind="stable")))
    return rows


def rows_of_queue(rows: pa.Table, state: KeyedState) -> pa.Table:
    """Return the rows of one queue from a table of timers; all rows of other tables."""
    if state.kind is not StateKind.TIMERS:
        return rows
    domain, service = state.timer_service
    mine = pc.and_(
        pc.equal(rows.column("domain"), domain), pc.equal(rows.column("service"), service)
    )
    return rows.filter(mine)


def table_rows(lake: str, operator: OperatorRecord, table: TableRecord) -> TableReader:
    """Return the reader of a table of a snapshot.

    Raises:
        LakeError: The values would be written with another type than that of the import.
    """
    # the index of a state is its id in the header of a savepoint
    states = [pair for pair in enumerate(operator.states) if pair[1].table == table.path]
    for _, state in states:
        if is_decoded_otherwise(operator, state):
            now = parse_keyed_state(state.meta_info, operator.key_serializer)[0].value_type
            raise LakeError(
                f"its values are {state.value_type}, and would be written as {now}",
                place=f"state {operator.label}/{state.name}",
                remedy="if it was imported with decoders of yours, name them: --plugins, --kryo, or"
                " STATELAKE_PLUGINS; the same file for --kryo as then",
            )
    hows = [_how(operator, state) for _, state in states]
    return TableReader(
        lake,
        table.path,
        Partitioning(operator.max_parallelism, table.partition_by),
        operator.key_serializer,
        tuple(
            (index, TableState(state.meta_info, operator.names_of(state)))
            for index, state in states
        ),
        tuple(table.units),
        any(how.plain for how in hows),
        max(how.flink for how in hows),
    )


class _How(NamedTuple):
    """The settings by which the types of a table are restored, as in `TableReader`."""

    plain: bool
    flink: int


_HOWS = (_How(False, 0), _How(False, 1), _How(False, 2), _How(True, 0))  # the first one fits mostly


def parse_recorded(operator: OperatorRecord, state: StateRecord) -> KeyedState:
    """Return a state with the types of its table, perhaps without the decoders of now."""
    return _parsed(operator, state, _how(operator, state))


def is_decoded_otherwise(operator: OperatorRecord, state: StateRecord) -> bool:
    """Return whether a state's values were decoded in another way than now or without decoders."""
    if DECODED not in state.value_type:
        return False
    now = _parsed(operator, state, _how(operator, state))
    return now.value_type != state.value_type


def _how(operator: OperatorRecord, state: StateRecord) -> _How:
    """Return how the recorded types are restored; with the decoders of now if in no way."""
    recorded = (
        operator.key_type, state.namespace_type, state.value_type, state.user_key_type,
    )  # fmt: skip
    fitting = (how for how in _HOWS if _types(_parsed(operator, state, how)) == recorded)
    return next(fitting, _HOWS[0])


def _parsed(operator: OperatorRecord, state: StateRecord, how: _How) -> KeyedState:
    return parse_keyed_state(
        state.meta_info,
        operator.key_serializer,
        without_decoders=how.plain,
        flink=how.flink,
        names=operator.names_of(state),
    )[0]


def _types(state: KeyedState) -> tuple[str, str, str, str]:
    return state.key_type, state.namespace_type, state.value_type, state.user_key_type


def group_sizes(states: Sequence[StateRecord], max_parallelism: int) -> I64Array:
    """Return the bytes of some states in each key group."""
    sizes = np.zeros(max_parallelism, np.int64)
    for state in states:
        for key_group in state.key_groups:
            sizes[key_group.key_group] += key_group.state_bytes
    return sizes


def chunks_of(
    sizes: I64Array, key_groups: KeyGroupRange, chunk_bytes: int
) -> Iterator[KeyGroupRange]:
    """Cut key groups into ranges of about `chunk_bytes` of state.

    Args:
        sizes: The bytes of all key groups, from 0 on.
        key_groups: The key groups to cut.
        chunk_bytes: The size of a range, which only a single key group may exceed.
    """
    groups = range(key_groups.first, key_groups.last + 1)
    for chunk in by_size(groups, lambda group: int(sizes[group]), chunk_bytes):
        yield KeyGroupRange(chunk[0], chunk[-1])
