"""The Spark data source `flink_savepoint`: keyed state of a snapshot as a DataFrame.

Each slice of key groups is a partition, read on the executors straight into Arrow batches. Only the
selected parts are read: an operator, a state, columns and key groups are chosen by options. With
`spark.sql.python.filterPushdown.enabled`, and the option `pruneByFilter`, a filter on `key_group`,
or one that fixes `key`, prunes key groups too: a key's group follows from its hash.

The option exists because Spark 4.2 keeps the plan of a Python data source for one filter, and uses
it for every other use of the same loaded DataFrame, whose rows would then be missing. With the
option, load a DataFrame anew for each filter.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from statelake.pipelines.lake.query.table_names import IS_EXACT
from statelake.state_core.errors import NotFoundError, SnapshotError, StateError
from statelake.state_core.formats.layout.keyed_states import parse_keyed_state
from statelake.state_core.formats.reader import open_snapshot
from statelake.state_core.model.entries import entries_of_state, plan_slices
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.key_groups import key_groups_of_hashes
from statelake.state_core.model.snapshot import KeyedState, Operator, StateKind
from statelake.state_core.serializers.framework.plugins import load_plugin

KEY_GROUP = "key_group"
DEFAULT_SLICE_BYTES = str(32 << 20)
WORKER = "pyspark.worker_util"  # imported in Spark's workers
HIDE_TRACE = "SPARK_HIDE_TRACEBACK"
_RANGE = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?")


@contextmanager
def _without_trace() -> Iterator[None]:
    """Have Spark report an error of ours by its sentence, without the trace of its worker.

    A worker of Spark's ends with the first error, so that it hides no other's trace.
    """
    try:
        yield
    except StateError:
        if WORKER in sys.modules:
            os.environ[HIDE_TRACE] = "1"
        raise


def register(session: SparkSession) -> None:
    """Register `spark.read.format("flink_savepoint")` with a session.

    Spark finds the format by itself if statelake is installed in the `python3` of its PATH, or in
    PYSPARK_PYTHON. Registered, it runs in this process's Python anyway, unless PYSPARK_PYTHON names
    another; on a cluster the cluster decides.
    """
    context = getattr(session, "sparkContext", None)
    if context is None:  # Spark Connect runs the Python of its server
        session.dataSource.register(FlinkSavepointDataSource)
        return
    before = context.pythonExec
    if "PYSPARK_PYTHON" not in os.environ and (context.master or "").startswith("local"):
        context.pythonExec = sys.executable
    try:
        session.dataSource.register(FlinkSavepointDataSource)
    finally:
        context.pythonExec = before


class FlinkSavepointDataSource(DataSource):
    """The data source of `spark.read.format("flink_savepoint")`.

    Options:
        path: The savepoint or checkpoint; the argument of `load`.
        operator: Uid, name or id; optional if only one operator has keyed state.
        state: The state; optional if there is only one beside timers.
        columns: The columns, separated by commas; by default all but the exact bytes (`raw_key`,
            `raw_value`) of values that a column can't hold. `is_exact` is true for a row that
            has no such bytes.
        keyGroups: The key groups: `17`, or `0-63`, or several separated by commas.
        uids: Operator uids to recognise (Flink < 2.0), separated by commas.
        allowExternal: Directories elsewhere that handles may lead to, separated by commas.
        plugins: Modules or files that register your serializers and decoders.
        sliceBytes: The approximate number of state bytes of a partition.
        pruneByFilter: `true` if the DataFrame is used with one filter only (see the module).
    """

    @classmethod
    def name(cls) -> str:
        """The format's name, `flink_savepoint`."""
        return "flink_savepoint"

    @_without_trace()
    def schema(self) -> StructType:
        """The state's columns."""
        return from_arrow_schema(_Selection.of(self.options).schema)

    @_without_trace()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the state, with the columns of `schema` if the user gave one."""
        return FlinkSavepointReader({**self.options, "columns": ",".join(schema.names)})


@dataclass(frozen=True)
class _Selection:
    """Selects by options, whose names Spark passes in lower case."""

    operator: Operator
    state: KeyedState
    schema: pa.Schema
    key_groups: tuple[KeyGroupRange, ...]

    @classmethod
    def of(cls, options: Any) -> _Selection:
        path = options.get("path")
        if not path:
            raise NotFoundError("no path given", remedy='use .load("path of a savepoint")')
        for named in _listed(options, "plugins"):
            load_plugin(named)
        snapshot = open_snapshot(
            path, allow_external=_listed(options, "allowexternal"),
            uids=_listed(options, "uids"), partial=True,
        )  # fmt: skip
        wanted = options.get("operator") or None
        unread = snapshot.problems_of(wanted, options.get("state") or None, keyed=True)
        if unread:  # state of others closes nothing
            raise SnapshotError(unread[0])
        keyed = [each for each in snapshot.operators if each.keyed_states]
        if wanted is not None:
            operator = snapshot.operator(wanted)
        elif len(keyed) == 1:
            operator = keyed[0]
        else:
            labels = ", ".join(each.label for each in keyed) or "none"
            raise NotFoundError(
                f"{path} has {len(keyed)} operators with keyed state",
                remedy=f'choose one with .option("operator", ...): {labels}',
            )
        state = _state(operator, options.get("state"))
        every = [name for name in state.schema.names if not name.startswith("raw_")]
        names = _listed(options, "columns") or tuple(every)
        fields = {field.name: field for field in (pa.field(IS_EXACT, pa.bool_()), *state.schema)}
        unknown = [name for name in names if name not in fields]
        if unknown:
            raise NotFoundError(
                f"state {state.name!r} has no column {unknown[0]!r}",
                remedy=f"it has: {', '.join([*state.schema.names, IS_EXACT])}",
            )
        schema = pa.schema([fields[name] for name in names])
        key_groups = _ranges(options.get("keygroups"), operator.max_parallelism)
        return cls(operator, state, schema, key_groups)


def _state(operator: Operator, name: str | None) -> KeyedState:
    if name:
        return operator.state(name)
    every = operator.keyed_states
    states = [each for each in every if each.kind is not StateKind.TIMERS]
    if len(states) == 1:
        return states[0]
    timers = f" and {len(every) - len(states)} queues of timers" if operator.timers else ""
    names = ", ".join(each.name for each in (*states, *operator.timers)) or "none"
    raise NotFoundError(
        f"operator {operator.label} has {len(states)} states{timers}",
        remedy=f'choose one with .option("state", ...): {names}',
    )


def _listed(options: Any, name: str) -> tuple[str, ...]:
    text = options.get(name) or ""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _ranges(text: str | None, max_parallelism: int) -> tuple[KeyGroupRange, ...]:
    if not text:
        return ()
    ranges = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise NotFoundError(f"keyGroups {text!r}", remedy="write 17, or 0-63, or 3,8-11")
        span = KeyGroupRange(int(match[1]), int(match[2] or match[1]))
        if not span.first <= span.last < max_parallelism:
            raise NotFoundError(
                f"there are no key groups {part.strip()}",
                remedy=f"the operator has 0-{max_parallelism - 1}",
            )
        ranges.append(span)
    return tuple(ranges)


def _slice_bytes(text: str) -> int:
    if not text.strip().isdecimal():
        raise NotFoundError(f"sliceBytes {text!r}", remedy="write a number of bytes")
    return int(text)


@dataclass
class _SavepointSlice(InputPartition):
    """One partition: key groups of one file."""

    file: int
    first: int
    last: int


class _PushFilters:
    """Descriptor of `pushFilters`, which hides the method from Spark.

    Spark refuses a reader whose class overrides the method while push-down is off, though it
    would not call it; it looks at `__func__` to tell. It is only called while push-down is on.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: FlinkSavepointReader) -> None:
        self.reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Prune key groups by filters that fix them; Spark still applies every filter itself."""
        if str(self.reader.options.get("prunebyfilter", "")).lower() == "true":
            for filter_ in filters:
                self.reader.prune(filter_)
        return filters


class FlinkSavepointReader(DataSourceReader):
    """A reader of one state; only its options are pickled for the executors."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self.wanted: set[int] | None = None
        selection = _Selection.of(options)
        if selection.key_groups:
            inside = (
                range(key_group.first, key_group.last + 1) for key_group in selection.key_groups
            )
            self._keep({group for groups in inside for group in groups})
        # an attribute, not a method: see `_PushFilters`
        object.__setattr__(self, "pushFilters", _PushFilters(self))

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "wanted": self.wanted}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def _keep(self, groups: set[int]) -> None:
        self.wanted = groups if self.wanted is None else self.wanted & groups

    def prune(self, one: Filter) -> None:
        """Leave out key groups that the filter rules out."""
        column = getattr(one, "attribute", ())
        selection = _Selection.of(self.options)
        if column == (KEY_GROUP,):
            groups = np.arange(selection.operator.max_parallelism)
            kept = _matching(one, groups)
            if kept is not None:
                self._keep(set(kept.tolist()))
        elif column == ("key",) and isinstance(one, EqualTo | EqualNullSafe | In):
            values = list(one.value) if isinstance(one, In) else [one.value]
            groups_of_keys = _groups_of(selection, values)
            if groups_of_keys is not None:
                self._keep(groups_of_keys)

    @_without_trace()
    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each slice of key groups that may hold selected rows."""
        selection = _Selection.of(self.options)
        files = [file for file, _ in selection.state.files]
        size = _slice_bytes(self.options.get("slicebytes", DEFAULT_SLICE_BYTES))
        slices = []
        for plan_slice in plan_slices(files, size):
            groups = range(plan_slice.key_groups.first, plan_slice.key_groups.last + 1)
            if self.wanted is None or any(group in self.wanted for group in groups):
                slices.append(
                    _SavepointSlice(
                        plan_slice.file, plan_slice.key_groups.first, plan_slice.key_groups.last
                    )
                )
        return slices

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a slice, a window at a time."""
        if isinstance(partition, _SavepointSlice):
            with _without_trace():
                yield from self._rows(partition)

    def _rows(self, partition: _SavepointSlice) -> Iterator[pa.RecordBatch]:
        selection = _Selection.of(self.options)
        file, state = selection.state.files[partition.file]
        for first, last in self._wanted_runs(partition):
            for mine in entries_of_state(file, state, KeyGroupRange(first, last)):
                if len(mine):
                    batch = _with_exact(file.decode(state, mine), selection.schema)
                    yield batch.select(selection.schema.names)

    def _wanted_runs(self, partition: _SavepointSlice) -> Iterator[tuple[int, int]]:
        if self.wanted is None:
            yield partition.first, partition.last
            return
        for group in range(partition.first, partition.last + 1):
            if group in self.wanted:
                yield group, group


def _with_exact(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Add the column `is_exact` if the schema has it: whether a row has no exact bytes."""
    if IS_EXACT not in schema.names or IS_EXACT in batch.schema.names:
        return batch
    exact = pa.repeat(pa.scalar(True), len(batch))
    for name in batch.schema.names:
        if name.startswith("raw_"):
            exact = pc.and_(exact, batch.column(name).is_null())
    return batch.append_column(IS_EXACT, exact)


_COMPARISONS = {
    EqualTo: np.equal,
    EqualNullSafe: np.equal,
    GreaterThan: np.greater,
    GreaterThanOrEqual: np.greater_equal,
    LessThan: np.less,
    LessThanOrEqual: np.less_equal,
}


def _matching(condition: Filter, groups: Any) -> Any:
    """Return the key groups that a filter admits, or None if it does not restrict them."""
    if isinstance(condition, In):
        return groups[np.isin(groups, list(condition.value))]
    compare = _COMPARISONS.get(type(condition))
    value = getattr(condition, "value", None)
    return None if compare is None or value is None else groups[compare(groups, value)]


def _groups_of(selection: _Selection, values: list[Any]) -> set[int] | None:
    """Return the key groups of keys, or None if equal keys for Spark can be in others."""
    file, _ = selection.state.files[0]
    _, layout = parse_keyed_state(selection.state.meta_info, file.key_serializer)
    kind = layout.key.arrow_type
    # -0.0 equals 0.0 and 1.0 equals 1.00 for Spark, and for Java's hash they don't
    if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return None
    # a column shows this character for text that it can't hold
    if any(isinstance(value, str) and "\ufffd" in value for value in values):
        return None
    try:
        codes = layout.key.hash_codes(pa.array(values, kind))
    except (StateError, TypeError, ValueError, OverflowError):
        return None
    return set(key_groups_of_hashes(codes, selection.operator.max_parallelism).tolist())
