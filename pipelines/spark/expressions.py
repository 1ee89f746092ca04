"""New values by Spark SQL over the old ones: a migration that is more than promotion."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.edit.changes import ValueChange
from statelake.pipelines.lake.edit.migrating import ValueStaging
from statelake.pipelines.lake.edit.rewriting import STAGED
from statelake.pipelines.lake.tables.records import OperatorRecord, TableRecord
from statelake.pipelines.lake.tables.table_rows import parse_recorded
from statelake.pipelines.lake.tables.tables import DATA_DIRECTORY
from statelake.pipelines.spark.object_stores import spark_path
from statelake.state_core.errors import EncodeError, IncompatibleError
from statelake.state_core.formats.layout.keyed_states import with_value_bytes
from statelake.state_core.formats.operator_state.operator_reader import parse_operator_state

__all__ = ["expression_staging", "value_expression"]

PART = "part"


def expression_staging(session: SparkSession, lake: Catalog) -> ValueStaging:
    """What computes expressions of changes on Spark, table by table.

    It raises an `EncodeError` for an expression that Spark does not understand, or that fails.
    """

    def stage(
        operator: OperatorRecord, table: TableRecord, change: ValueChange, token: str
    ) -> Mapping[int, str]:
        opened = lake.table(table.path)
        value, part = _new_value(operator, table, change)
        table_path = spark_path(session, opened.checked_directory(table))
        source = f"delta.`{table_path}` VERSION AS OF {table.version}"
        rows = session.sql(f"SELECT *, value AS old FROM {source}")  # noqa: S608 - our own table
        kept = [f"`{name}`" for name in rows.columns if name not in ("value", "old")]
        path = f"{DATA_DIRECTORY}/{token}/{STAGED}"
        opened.directory.checked_path(path)  # as Spark writes there by its path
        target = spark_path(session, opened.directory.child(path))
        try:
            staged = rows.selectExpr(*kept, f"{value} AS value", f"{part} AS {PART}")
            staged.write.partitionBy(PART).parquet(target)
        except PySparkException as error:
            raise EncodeError(
                f"the expression fails: {str(error).strip().splitlines()[0]}",
                place=f"state {change.operator}/{change.state}",
                remedy="give Spark SQL over `old` whose result the new type can hold",
            ) from error
        return {
            int(name.rpartition("=")[2]): f"{path}/{name}"
            for name in opened.directory.names(path)
            if "=" in name
        }

    return stage


def _new_value(
    operator: OperatorRecord, table: TableRecord, change: ValueChange
) -> tuple[str, str]:
    """SQL for the new value of a row, and for what parts the rows."""
    for operator_state in operator.operator_states:
        if operator_state.table == table.path:
            old = parse_operator_state(operator_state.meta_info)[1]
            new = parse_operator_state(with_value_bytes(operator_state.meta_info, change.value))[1]
            types = old.value.arrow_type, new.value.arrow_type
            value = value_expression(*types, change.expressions)
            return value, "subtask" if old.key is None else "0"
    (state,) = (keyed for keyed in operator.states if keyed.table == table.path)
    old_type = parse_recorded(operator, state).schema.field("value").type
    new_type = change.value.restore_serializer().arrow_type
    if state.kind == "list" and pa.types.is_list(old_type):
        value = value_expression(old_type.value_type, new_type, change.expressions)
        return f"transform(value, old -> {value})", table.partition_by
    return value_expression(old_type, new_type, change.expressions), table.partition_by


def value_expression(old: pa.DataType, new: pa.DataType, expressions: Mapping[str, str]) -> str:
    """One SQL expression for the whole new value.

    A field without an expression is the old field of its name.

    Args:
        old: The old value's type.
        new: The new value's.
        expressions: By field; the empty name stands for the whole value.

    Raises:
        IncompatibleError: A field is named that there is not, or one is left out that the old
            value does not have.
    """
    if "" in expressions:
        return _cast(expressions[""], new)
    if not pa.types.is_struct(new):
        raise IncompatibleError(
            "an expression by field, for a value without fields", remedy="give one for the value"
        )
    names = [field.name for field in new]
    unknown = sorted(set(expressions) - set(names))
    if unknown:
        raise IncompatibleError(
            f"an expression for field {unknown[0]!r}, which the new type has not",
            remedy=f"its fields are: {', '.join(names)}",
        )
    before = {field.name for field in old} if pa.types.is_struct(old) else set()
    parts = []
    for field in new:
        if field.name not in expressions and field.name not in before:
            raise IncompatibleError(
                f"field {field.name!r} is new and has no expression",
                remedy="give one; NULL or a constant will do",
            )
        text = expressions.get(field.name, f"old.`{field.name}`")
        parts.append(f"'{field.name}', {_cast(text, field.type)}")
    struct = f"named_struct({', '.join(parts)})"
    return f"CASE WHEN old IS NULL THEN NULL ELSE {struct} END"


def _cast(expression: str, target: pa.DataType) -> str:
    return f"CAST(({expression}) AS {from_arrow_type(target).simpleString()})"
