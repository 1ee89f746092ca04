"""Create the first state of a new job from tables and a spec.

::

    from statelake.pipelines.bootstrap.bootstrapping import bootstrap

    bootstrap(None, "bootstrap.yaml", "savepoints/first")
    bootstrap(spark, "bootstrap.yaml", "savepoints/first", sources={"orders": a_data_frame})

The result is a savepoint and, if a lake is given, its snapshot. Sources in files are read by Arrow,
in slices that run here or on Spark. DataFrames, queries and Spark SQL are evaluated by Spark, whose
tasks sort their rows by key group where they are. Either way the savepoint is assembled key group
by key group, so that it may be larger than memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pyarrow as pa

from statelake.pipelines.bootstrap.bootstrap_columns import RowPlan, expressions_in
from statelake.pipelines.bootstrap.bootstrap_slice import ArrowRows, FileRows, mapped_batches
from statelake.pipelines.bootstrap.bootstrap_spec import (
    MODES,
    OperatorSpec,
    StateSpec,
    read_bootstrap_spec,
)
from statelake.pipelines.bootstrap.sources import (
    BootstrapSource,
    SourcePiece,
    find_source,
    lake_table,
    pieces_of,
)
from statelake.pipelines.engine import Engine, LocalEngine, Progress
from statelake.pipelines.engine_choice import choose_engine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.tables.names import check_names
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.pipelines.requests.bootstrap import WatchedBootstrap
from statelake.pipelines.requests.imports import Import
from statelake.pipelines.requests.request import asks, given
from statelake.state_core.errors import ConflictError, EncodeError, StateError, UnreadableTableError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.operator_state.operator_states import operator_layout
from statelake.state_core.formats.writing.new_snapshot import WrittenSnapshot, write_snapshot
from statelake.state_core.formats.writing.new_states import (
    NewKeyedState,
    NewOperator,
    NewOperatorState,
)
from statelake.state_core.printable import Printed, Table, bytes_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Task = TypeVar("Task")
Result = TypeVar("Result")
StateRows: TypeAlias = "FileRows | ArrowRows | Any"

SOURCE_KEYS = {
    "path": ("path", "format", "delimiter", "version"),
    "lake": ("lake", "job", "snapshot", "state"),
    "sql": ("sql",),
}
URI = "://"


@dataclass(frozen=True)
class BootstrapResult(Printed):
    """The result of a bootstrap.

    Attributes:
        written: The savepoint.
        record: The snapshot in the lake; None if there is none.
        engine: The engine that read files.
    """

    JSON = ("*written", "engine", "snapshot_id=record.snapshot_id")

    written: WrittenSnapshot
    record: SnapshotRecord | None
    engine: str

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: lines, and the table of states."""
        written = self.written
        entries = sum(state.entries for state in written.states)
        yield (
            f"wrote {written.path}: {entries:,} entries in {written.files} files,"
            f" {bytes_text(written.size)}, _metadata version {written.metadata_version}"
        )
        yield Table.of("", ("<operator", "<state", "<kind", ">entries:,"), written.states)
        if self.record is not None:
            yield f"imported as {self.record.snapshot_id} of {self.record.job}"
        yield f"start the job with: flink run -s {written.path} ..."


class BootstrapInto(WatchedBootstrap):
    """A savepoint of tables, and the lake that gets it."""

    lake: Catalog | None = given(
        "The lake into which the savepoint is imported; None for none of them.", default=None
    )
    job: str = given("The job's name in the lake.", default="")
    snapshot_id: str | None = given("The snapshot's id in the lake.", default=None)


@asks(BootstrapInto)
def bootstrap(spark: SparkSession | None, request: BootstrapInto) -> BootstrapResult:
    """Write the first savepoint of a new job.

    Without a session, `spark`, one is opened if a source needs it. Sources of a spec that is a
    mapping may be DataFrames, Arrow tables, or functions of a session. On a local disk the
    directory may have the same savepoint, of a bootstrap that was interrupted before its import.

    Raises:
        EncodeError: The spec is not valid, or a row does not fit its state; with the place.
        KeyGroupError: A parallelism out of range, or a key whose hash can't be derived.
        ConflictError: The lake has such a snapshot.
    """
    lake = request.lake
    if lake is not None:
        _check_lake(lake, request.job, request.snapshot_id)
    read = read_bootstrap_spec(_given(request.spec))
    directory = Directory(read.directory)
    run = _Bootstrap(spark, directory, request.sources or {}, request.engine, request.progress)
    run.inexact = request.inexact
    operators = [
        replace(
            operator,
            parallelism=request.parallelism or operator.parallelism,
            max_parallelism=request.max_parallelism or operator.max_parallelism,
        )
        for operator in read.operators
    ]
    new_operators = run.operators(operators)
    written = write_snapshot(
        request.to, new_operators, compression=request.compression,
        metadata_version=request.metadata_version,
        operator_state_version=request.operator_state_version, run=run.map,
        again=lake is not None,
    )  # fmt: skip
    record = None
    if lake is not None:
        uids = [operator.uid for operator in operators]
        record = import_snapshot(
            lake, os.fspath(request.to), request.job,
            Import(uids=uids, note=f"bootstrapped from {read.name}"),
            snapshot_id=request.snapshot_id, engine=run.engine, progress=request.progress,
        ).record  # fmt: skip
    return BootstrapResult(written, record, run.engine.name)


def _given(spec: str | os.PathLike[str] | Mapping[str, Any]) -> str | Path | Mapping[str, Any]:
    return spec if isinstance(spec, Mapping) else os.fspath(spec)


def _check_lake(lake: Catalog, job: str, snapshot_id: str | None) -> None:
    """Refuse whatever the import would refuse, before a file is written."""
    check_names(job, snapshot_id)
    if not lake.exists():
        return
    if any(summary.snapshot_id == snapshot_id for summary in lake.summaries(job)):
        raise ConflictError(
            f"job {job} has a snapshot {snapshot_id} already", remedy="choose another --snapshot"
        )


class _Bootstrap:
    def __init__(
        self,
        spark: SparkSession | None,
        directory: Directory,
        sources: Mapping[str, Any],
        engine: Engine | str,
        progress: Progress | None,
    ) -> None:
        self.spark = spark
        self.directory = directory
        self.named = sources
        self.wanted = engine
        self.progress = progress
        self.inexact = False
        self.used: list[Any] = []
        self.engine: Engine = LocalEngine()

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task], /) -> Iterable[Result]:
        return self.engine.map(function, tasks, self.progress)

    def operators(self, specs: Sequence[OperatorSpec]) -> list[NewOperator]:
        """Return the operators with their rows, which are still unread."""
        rows = {
            id(state): self.rows(state)
            for spec in specs for state in (*spec.states, *spec.operator_states)
        }  # fmt: skip
        self.engine = self.chosen()
        return [
            NewOperator(
                spec.uid,
                spec.key_type or "",
                tuple(self.keyed(state, rows[id(state)]) for state in spec.states),
                tuple(self.unkeyed(state, rows[id(state)]) for state in spec.operator_states),
                spec.parallelism,
                spec.max_parallelism,
                spec.name,
            )
            for spec in specs
        ]

    def chosen(self) -> Engine:
        """Return the engine: Spark if a source has needed a session."""
        if self.spark is None or self.wanted == "local" or not isinstance(self.wanted, str):
            return choose_engine(self.wanted)
        from statelake.pipelines.spark.engine import SparkEngine  # noqa: PLC0415 - only when wanted

        return SparkEngine(self.spark)

    def keyed(self, state: StateSpec, rows: StateRows) -> NewKeyedState:
        """Return the new keyed state, or timers."""
        if isinstance(rows, FileRows):
            rows = replace(rows, engine=self.engine)
        namespace = state.types.get("namespace_type", "VoidNamespace")
        if state.kind == "timers":
            return NewKeyedState.timers(state.domain, rows, namespace=namespace, service=state.name)
        return NewKeyedState(
            state.name,
            rows,
            state.kind,
            state.types["type"],
            state.types.get("user_key_type", ""),
            namespace,
            with_ttl="ttl" in state.columns,
        )

    def unkeyed(self, state: StateSpec, rows: StateRows) -> NewOperatorState:
        """Return the new operator state, whose rows are read when they are written."""
        new_state = NewOperatorState(
            state.name, [], state.kind, state.types["type"], state.types.get("key_type", "")
        )
        schema = operator_layout(new_state.meta_info()).schema
        if isinstance(rows, FileRows):
            batches = mapped_batches(rows.plan, rows.pieces, schema)
        else:
            batches = rows.batches(schema)
        return replace(new_state, rows=(made for _, made in batches))

    # ------------------------------------------------------------------------ sources

    def rows(self, state: StateSpec) -> StateRows:
        """Return the source of a state's rows."""
        never = ["key", "timestamp", "ttl", "namespace"]
        if state.kind not in ("map", "broadcast"):
            never.append("value")
        # the writer puts the operator before it, and for operator state the state as well
        place = "" if state.kind in MODES else state.label
        plan = RowPlan(place, state.columns, never_null=tuple(never))
        try:
            return self.source_rows(state, plan, state.source)
        except StateError as error:
            if error.place.startswith(state.place):
                raise
            raise error.within(state.place) from error

    def source_rows(self, state: StateSpec, plan: RowPlan, source: Any) -> StateRows:
        """Return the rows of one source."""
        if isinstance(source, str) and source in self.named:
            return self.source_rows(state, plan, self.named[source])
        if isinstance(source, str | os.PathLike):
            return self.files(state, plan, {"path": os.fspath(source)})
        if isinstance(source, Mapping):
            return self.described(state, plan, source)
        if hasattr(source, "mapInArrow"):
            return self.frame(plan, source, "the DataFrame")
        if callable(source):
            return self.source_rows(
                state, plan, source(self.session(state, "a function as its source"))
            )
        self.refuse_expressions(state, "an Arrow table")
        if hasattr(source, "__arrow_c_stream__") and not isinstance(source, pa.Table):
            if any(used is source for used in self.used):
                raise EncodeError(
                    "an Arrow stream that another state reads as well",
                    remedy="give each state its own, or a pyarrow.Table",
                )
            self.used.append(source)
            source = pa.RecordBatchReader.from_stream(source)
        return ArrowRows(plan, source)

    def described(self, state: StateSpec, plan: RowPlan, source: Mapping[str, Any]) -> StateRows:
        """Return the rows of `{path: ...}`, `{lake: ...}` or `{sql: ...}`."""
        kind = next((name for name in SOURCE_KEYS if name in source), "")
        unknown = [name for name in source if name not in SOURCE_KEYS.get(kind, ())]
        if not kind or unknown:
            problem = f"`{unknown[0]}` in a source" if unknown else "an empty source"
            legal = "; ".join(", ".join(names) for names in SOURCE_KEYS.values())
            raise EncodeError(problem, place="`source`", remedy=f"legal: {legal}")
        if kind == "path":
            return self.files(state, plan, source)
        if kind == "sql":
            session = self.session(state, "{sql: ...} as its source")
            from statelake.pipelines.spark.frames import frame_of_query  # noqa: PLC0415 - only when wanted

            frame = frame_of_query(session, str(source["sql"]), "`source`")
            return self.frame(plan, frame, "the query")
        missing = [name for name in SOURCE_KEYS["lake"] if name not in source]
        if missing:
            raise EncodeError(
                f"a source in a lake without `{missing[0]}`", place="`source`",
                remedy=f"give {', '.join(SOURCE_KEYS['lake'])}",
            )  # fmt: skip
        lake, job, snapshot, name = (str(source[key]) for key in SOURCE_KEYS["lake"])
        table = lake_table(self.located(lake), job, snapshot, name, f"{job}/{snapshot}/{name}")
        return self.read(state, plan, replace(table, inexact=self.inexact))

    def files(self, state: StateSpec, plan: RowPlan, source: Mapping[str, Any]) -> StateRows:
        path = str(source["path"])
        return self.read(state, plan, find_source(self.located(path), path, source))

    def located(self, path: str) -> str:
        """Return a path as relative to the spec."""
        if URI in path:
            return path
        return str(Path(self.directory.full()) / path)

    def read(self, state: StateSpec, plan: RowPlan, source: BootstrapSource) -> StateRows:
        """Return the rows of files, read by Arrow unless the files or the spec need Spark."""
        plan = replace(plan, text=source.text)
        if not self.sql_of(state):
            try:
                pieces: list[SourcePiece] = pieces_of(source)
            except UnreadableTableError:
                if self.wanted == "local":
                    raise
            else:
                return FileRows(plan, pieces, self.engine, self.progress)
        session = self.session(state, "Spark SQL")
        from statelake.pipelines.spark.frames import frame_of_files  # noqa: PLC0415 - only when wanted

        return self.frame(plan, frame_of_files(session, source), source.name)

    def frame(self, plan: RowPlan, frame: DataFrame, name: str) -> StateRows:
        from statelake.pipelines.spark.frames import FrameRows  # noqa: PLC0415 - only when wanted

        return FrameRows(plan, frame, name)

    def sql_of(self, state: StateSpec) -> str:
        """Return the first expression of Spark SQL in a state; empty without one."""
        expressions = (
            expression.sql for plan in state.columns.values() for expression in expressions_in(plan)
        )
        return next(expressions, "")

    def refuse_expressions(self, state: StateSpec, source: str) -> None:
        """Refuse Spark SQL over a source that Spark does not read."""
        if sql := self.sql_of(state):
            raise EncodeError(
                f"Spark SQL ({sql}) over {source}",
                remedy="give a DataFrame, or a source that already has the computed column",
            )

    def session(self, state: StateSpec, what: str) -> SparkSession:
        """Return the session, opened if needed; `what` names in an error why it is needed."""
        if self.spark is None:
            if self.wanted == "local":
                sql = self.sql_of(state)
                raise EncodeError(
                    f"{what}{f' ({sql})' if sql else ''} needs Spark",
                    remedy="choose --engine auto or spark, or name plain columns",
                )
            from statelake.pipelines.spark.session import open_session  # noqa: PLC0415 - only when wanted

            self.spark = open_session()
        return self.spark
