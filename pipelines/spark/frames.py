"""DataFrames as the rows of new states: Spark evaluates them, and its tasks spill the rows.

No row passes through the driver, except for operator state, which fits into one subtask's memory.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.errors import PySparkException, PythonException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from statelake.pipelines.bootstrap.bootstrap_columns import (
    RowPlan,
    SourceBatch,
    expressions_in,
    map_batches,
    source_columns,
    with_expressions,
)
from statelake.pipelines.bootstrap.bootstrap_slice import spill_rows
from statelake.pipelines.bootstrap.sources import BootstrapSource
from statelake.pipelines.spark.object_stores import spark_path
from statelake.pipelines.spark.sql import QUERY_LOGGERS
from statelake.state_core.errors import EncodeError, StateError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.writing.new_rows import SpillTask, batches_of
from statelake.state_core.formats.writing.spills import Spill
from statelake.state_core.serializers.framework.plugins import (
    Plugin,
    loaded_plugins,
    restore_plugins,
)

OUTCOME = "outcome"


def frame_of_files(session: SparkSession, source: BootstrapSource) -> DataFrame:
    """Return files as a DataFrame; CSV stays text.

    Raises:
        EncodeError: Spark can't read them.
    """
    path = spark_path(session, Directory(source.location))
    reader = session.read
    try:
        if source.format == "delta":
            if source.version is not None:
                reader = reader.option("versionAsOf", source.version)
            return reader.format("delta").load(path)
        if source.format == "csv":
            reader = reader.option("header", True).option("sep", source.delimiter)
            return reader.option("multiLine", True).option("escape", '"').csv(path)
        return reader.json(path) if source.format == "json" else reader.parquet(path)
    except PySparkException as error:
        raise EncodeError(_first_line(error), place=source.name) from error


def frame_of_query(session: SparkSession, query: str, place: str) -> DataFrame:
    """Return the result of a query.

    Raises:
        EncodeError: The query is not valid.
    """
    try:
        return session.sql(query)
    except PySparkException as error:
        raise EncodeError(_first_line(error), place=place) from error


@dataclass(frozen=True)
class FrameRows:
    """A state's rows in a DataFrame.

    Attributes:
        plan: The plan of the columns; its Spark SQL is evaluated here.
        frame: The DataFrame.
        source: Its name, for messages.
    """

    plan: RowPlan
    frame: DataFrame
    source: str = "the DataFrame"

    def spill(self, task: SpillTask) -> list[Spill]:
        """Spill each partition on its executor, and return the spills.

        Raises:
            StateError: A task raised it.
        """
        plan, frame = self._evaluated()
        spiller = _Spiller(task, plan, self.source, loaded_plugins())
        with _evaluating(f"{self.plan.place}, {self.source}"):
            rows = frame.mapInArrow(spiller, f"{OUTCOME} binary").collect()
        outcomes = [pickle.loads(row[OUTCOME]) for row in rows]  # noqa: S301 - of our own tasks
        failed = next((outcome for outcome in outcomes if isinstance(outcome, StateError)), None)
        if failed is not None:
            raise failed
        return outcomes

    def batches(self, schema: pa.Schema) -> Iterator[tuple[SourceBatch, pa.RecordBatch]]:
        """Yield all rows on the driver, with the state's rows from them."""
        plan, frame = self._evaluated()
        with _evaluating(", ".join(part for part in (plan.place, self.source) if part)):
            rows = frame.toArrow()
        yield from map_batches(plan, rows.to_batches(), schema, self.source)

    def _evaluated(self) -> tuple[RowPlan, DataFrame]:
        """Return the plan and the frame of its columns, with Spark SQL evaluated."""
        plans = self.plan.columns.values()
        expressions = dict.fromkeys(
            expression.sql for plan in plans for expression in expressions_in(plan)
        )
        names = {sql: f"_expression_{index}" for index, sql in enumerate(expressions)}
        read = {name for plan in plans for name in source_columns(plan)}
        missing = sorted(read - set(self.frame.columns))
        if missing:
            raise EncodeError(
                f"no column {missing[0]!r}",
                place=f"{self.plan.place}, {self.source}",
                remedy=f"it has {', '.join(self.frame.columns)}",
            )
        quoted = [_quoted(column) for column in self.frame.columns if column in read]
        quoted += [f"({sql}) AS {_quoted(name)}" for sql, name in names.items()]
        try:
            frame = self.frame.selectExpr(*quoted) if quoted else self.frame
        except PySparkException as error:
            raise EncodeError(
                _first_line(error), place=f"{self.plan.place}, {self.source}",
                remedy=f"its columns are {', '.join(self.frame.columns)}",
            ) from error  # fmt: skip
        columns = {name: with_expressions(one, names) for name, one in self.plan.columns.items()}
        return replace(self.plan, columns=columns), frame


@dataclass(frozen=True)
class _Spiller:
    """Spills one partition; statelake's errors are returned as results."""

    task: SpillTask
    plan: RowPlan
    source: str
    plugins: tuple[Plugin, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        outcome: Spill | StateError
        try:
            restore_plugins(self.plugins)
            sources = batches_of(batches, self.source)
            rows = map_batches(self.plan, sources, self.task.layout.schema, self.source)
            outcome = spill_rows(self.task, rows)
        except StateError as error:
            outcome = error
        data = pa.array([pickle.dumps(outcome)], pa.binary())
        yield pa.RecordBatch.from_arrays([data], names=[OUTCOME])


@contextmanager
def _evaluating(place: str) -> Iterator[None]:
    """Translate Spark's errors about a row into errors of the specification, except for bugs."""
    for name in QUERY_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    except PythonException:
        raise
    except PySparkException as error:
        raise EncodeError(_first_line(error), place=place) from error


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
