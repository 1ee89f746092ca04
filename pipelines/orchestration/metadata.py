"""The metadata of a snapshot in the Dagster UI: counts, sizes, a picture, a preview."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import dagster as dg
import numpy as np
import pyarrow as pa

from statelake.pipelines.engine import spark_ui
from statelake.pipelines.lake.catalog.unmanaged_state import KEYED, unmanaged_keyed_sizes
from statelake.pipelines.lake.tables.describing import describe_recorded
from statelake.pipelines.lake.tables.operator_tables import read_operator_rows
from statelake.pipelines.lake.tables.records import OperatorRecord, SnapshotRecord, StateRecord
from statelake.pipelines.lake.tables.table_rows import group_sizes, table_rows
from statelake.pipelines.report.drawing import commit_charts, key_group_chart
from statelake.pipelines.runtime.commit_measures import CommitReport, total
from statelake.pipelines.shown import (
    RAW,
    as_markdown,
    bytes_text,
    json_text,
    plain,
    typed_row,
)
from statelake.state_core.formats.operator_state.operator_reader import parse_operator_state
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.printable import Table, part_of, printable, public_location

if TYPE_CHECKING:
    from statelake.pipelines.lake.catalog.catalog import Catalog
    from statelake.pipelines.lake.catalog.dropping import DropResult
    from statelake.pipelines.lake.change.migrations import UpgradeOutcome
    from statelake.pipelines.lake.export.exporting import ExportResult
    from statelake.pipelines.lake.export.rescaling import OperatorPlan
    from statelake.pipelines.lake.ingest.importing import ImportResult
    from statelake.pipelines.lake.verify.lake_checking import LakeReport
    from statelake.pipelines.sql_jobs.sql_upgrades import SqlUpgrade
    from statelake.state_core.formats.reader import Snapshot
    from statelake.state_core.formats.rewriting.recompression import Recompression
    from statelake.state_core.runtime.commit.logs.checkpoint_migrating import MigratedLog

PREVIEW_ROWS = 5
SHOWN_SUBTASKS = 32
SHOWN_FILES = 100
MOST_OF_A_TYPE = 1000  # characters: types of rows nest
DRAWN_OPERATORS = 12  # the largest ones
DRAWN_TABLES = 30  # the same

Metadata = dict[str, Any]

# by the class of a result the parts that its metadata shows: `a=b` shows `b` under the name `a`,
# `a|none` the word in place of an empty text; what is None is left out
SHOWN: dict[str, tuple[str, ...]] = {
    "AuditResult": (
        "clean", "files searched=files", "bytes searched=file_bytes",
        "bytes unpacked=unpacked_bytes", "rows left=rows", "record=record.number",
        "digest of the record=record.digest",
    ),
    "DropResult": ("files removed=files", "freed (bytes)=freed_bytes", "snapshots=dropped"),
    "ErasurePlan": ("rows", "files", "file bytes=file_bytes", "states=table"),
    "ExportResult": (
        "savepoint=path", "_metadata version=metadata_version", "files", "size (bytes)=size",
    ),
    "LakeReport": ("files", "bytes=size", "files without a digest=without_digest"),
    "Outcome": ("outcome", "made", "values migrated=entries", "why|the types are the same"),
    "RescaleResult": ("outcome", "why", "savepoint", "snapshot", "steps=table"),
    "RunResult": (
        "run", "runs", "records in=records", "rows out=rows",
        "snapshot=snapshot_id|none: nothing was new", "begun before=resumed",
        "records a second=records_per_second", "state bytes=state_bytes", "seconds", "read",
        "not read yet=lag", "watermark",
    ),
    "SqlUpgrade": ("made|nothing", "to be accepted=refused"),
    "UpgradeOutcome": ("made|nothing", "states=table"),
    "Verification": ("entries restored=entries", "state restored (bytes)=size", "faults"),
}  # fmt: skip

# the columns of all tables; others are fields of keys and values
COLUMNS = {
    "key_group": "The key group of the key, which decides its subtask",
    "key_group_bucket": "The partition: the first bucket of key groups of a file",
    "key": "The key, as the job's key selector returns it",
    "namespace": "The namespace: a window, or null outside of windows",
    "value": "The value, or one element of operator state",
    "user_key": "The key within a map state",
    "ttl": "The time of the last access, in milliseconds since 1970 (state with a time to live)",
    "timestamp": "The time at which the timer fires, in milliseconds since 1970",
    "subtask": "The subtask that has the element",
    "position": "The position of the element in its subtask's list",
}


def savepoint_metadata(snapshot: Snapshot) -> Metadata:
    """Return the metadata of a savepoint or checkpoint, as far as it can be read."""
    described = snapshot.describe(key_groups=False)
    unread = "\n".join(f"- {printable(problem)}" for problem in described.problems)
    rows = [
        (operator.label, operator.name, operator.parallelism, operator.max_parallelism,
         bytes_text(operator.total_bytes), ", ".join(state.name for state in operator.keyed_states))
        for operator in described.operators
    ]  # fmt: skip
    columns = ("operator", "name", "parallelism", "max parallelism", "size", "keyed states")
    states = [
        dg.TableColumn(_state_column(operator.label, state.name), _short(state.value_type or ""))
        for operator in described.operators
        for state in operator.states
    ]
    return {
        "dagster/column_schema": dg.TableSchema(states),
        "location": dg.MetadataValue.path(public_location(snapshot.location)),
        "kind": described.kind_text,
        "checkpoint id": described.checkpoint_id,
        "_metadata version": described.metadata_version,
        "compression": described.compression,
        "size (bytes)": described.total_bytes,
        "operators": dg.MetadataValue.md(markdown_table(columns, rows)),
        **({"could not be read": dg.MetadataValue.md(unread)} if unread else {}),
    }


def tables_metadata(lake: Catalog, done: ImportResult) -> Metadata:
    """Return the metadata of a snapshot in the lake."""
    record = done.record
    versions = {table.path: table.version for table in record.tables}
    rows = [
        (state.table, versions[state.table], state.kind, state.value_type, f"{state.entries:,}",
         bytes_text(state.state_bytes))
        for state in record.all_states
    ]  # fmt: skip
    columns = ("table", "version", "kind", "value", "entries", "bytes")
    metadata: Metadata = {
        "outcome": "imported" if done.new else "imported before",
        "dagster/row_count": record.entries,
        "state (bytes)": record.state_bytes,
        "written (bytes)": record.written_bytes,
        "files written": done.written_files,
        "files kept from the previous snapshot": done.kept_files,
        "lake": dg.MetadataValue.path(lake.directory.uri),
        "tables": dg.MetadataValue.md(markdown_table(columns, rows)),
        "preview": dg.MetadataValue.md(_preview(lake, record.operators)),
    }
    sizes = unmanaged_keyed_sizes(record).items()
    if sizes:
        lines = [f"operator {label}: {bytes_text(size)}, without tables" for label, size in sizes]
        metadata[KEYED] = faults_list(lines)
    keyed = [operator for operator in record.operators if operator.states]
    for operator in sorted(keyed, key=lambda each: -each.state_bytes)[:DRAWN_OPERATORS]:
        described = describe_recorded(operator)
        name = f"key groups of {printable(described.label)}"
        chart = key_group_chart(described.sizes, described.parallelism)
        metadata[name] = dg.MetadataValue.md(chart.markdown(name))
    return metadata


def _state_column(operator: str, state: str) -> str:
    """Return the name of a state among the columns of a savepoint."""
    return printable(f"{operator}/{state}")


def _short(type_: str) -> str:
    return printable(type_[:MOST_OF_A_TYPE])


def table_metadata(
    lake: Catalog, record: SnapshotRecord, savepoint: dg.AssetKey
) -> dict[str, Metadata]:
    """Return the metadata of each table of a snapshot, by its path below the lake.

    Args:
        lake: The lake.
        record: The snapshot.
        savepoint: The asset whose states are in the tables.
    """
    metadata = {}
    by_size = sorted(
        (-sum(file.size for file in table.units), table.path) for table in record.tables
    )
    drawn = {path for _, path in by_size[:DRAWN_TABLES]}
    for operator in record.operators:
        for table in operator.tables:
            states = operator.states_in(table)
            keyed = [state for state in states if isinstance(state, StateRecord)]
            stored = lake.table(table.path)
            schema = pa.schema(stored.require(table.version).schema())
            of_table: Metadata = {
                "dagster/column_schema": _column_schema(schema),
                "dagster/column_lineage": _column_lineage(
                    schema, savepoint, [_state_column(operator.label, each.name) for each in states]
                ),
                "dagster/row_count": sum(state.entries for state in states),
                "dagster/uri": stored.uri,
                "dagster/table_name": table.path,
                "state (bytes)": sum(state.state_bytes for state in states),
                "files (bytes)": sum(file.size for file in table.units),
                "files": len(table.units),
                "version": table.version,
                "operator": printable(operator.label),
                "parallelism": operator.parallelism,
            }
            if keyed and table.path in drawn:
                sizes = group_sizes(keyed, operator.max_parallelism)
                chart = key_group_chart(sizes, operator.parallelism)
                picture = chart.markdown(f"key groups of {table.path}")
                of_table["key groups"] = dg.MetadataValue.md(picture)
            metadata[table.path] = of_table
    return metadata


def _column_schema(schema: pa.Schema) -> dg.TableSchema:
    return dg.TableSchema(
        [
            dg.TableColumn(
                printable(field.name),
                _short(str(field.type)),
                description=_described(field.name),
                constraints=dg.TableColumnConstraints(nullable=field.nullable),
            )
            for field in schema
        ]
    )


def _described(column: str) -> str | None:
    if column.startswith(RAW):
        return f"The exact bytes of {printable(column.removeprefix(RAW))}, unless it has them"
    return COLUMNS.get(column)


def _column_lineage(
    schema: pa.Schema, savepoint: dg.AssetKey, states: list[str]
) -> dg.TableColumnLineage:
    """Return the lineage of a table: each column is of the states that the table has."""
    origins = [dg.TableColumnDep(savepoint, state) for state in states]
    return dg.TableColumnLineage({printable(field.name): origins for field in schema})


def metadata_of(result: object) -> Metadata:
    """Return the metadata of a result: those of its parts that `SHOWN` names."""
    metadata: Metadata = {}
    for entry in SHOWN[type(result).__name__]:
        named, _, nothing = entry.partition("|")
        name, _, path = named.rpartition("=")
        value = part_of(result, path)
        if path == "path":
            value = dg.MetadataValue.path(public_location(value))
        elif isinstance(value, Table):
            value = printed_table(value)
        elif isinstance(value, list):
            value = faults_list(value)
        elif isinstance(value, str):
            value = printable(value) or nothing
        if value is not None:
            metadata[name or path] = value
    return metadata


def compression_metadata(done: Recompression) -> Metadata:
    """Return the metadata of a savepoint that was compressed or decompressed."""
    return {
        "savepoint": dg.MetadataValue.path(public_location(done.path)),
        "compression": done.compression,
        "content (bytes)": int(sum(state.content_bytes for state in done.states)),
        "stored (bytes)": int(sum(state.after_bytes for state in done.states)),
        "states": printed_table(done.table),
    }


def export_metadata(done: ExportResult) -> Metadata:
    """Return the metadata of an export."""
    command = f"flink run -s {public_location(done.path)} ..."
    return {**metadata_of(done), "restore it with": command}


def _preview(lake: Catalog, operators: list[OperatorRecord]) -> str:
    """Return a few rows of every table."""
    parts = []
    for operator in operators:
        for state in operator.operator_states:
            files = operator.table_of(state).units[:1]
            batch = read_operator_rows(lake.location, state, files)
            _, layout = parse_operator_state(state.meta_info)
            parts.append(f"**{as_markdown(state.table)}**\n\n{_first_rows(batch, layout)}")
        for table in operator.keyed_tables:
            if not table.units:
                continue
            file = table.units[0]
            reader = table_rows(lake.location, operator, table)
            parts += [
                f"**{as_markdown(table.path)}** ({as_markdown(rows.name)})\n\n"
                f"{_first_rows(rows.batch, rows.layout)}"
                for rows in reader.read(KeyGroupRange(file.first, file.last))
            ]
    return "\n\n".join(parts)


def _first_rows(batch: pa.RecordBatch, layout: Any) -> str:
    first = range(min(len(batch), PREVIEW_ROWS))
    shown = [typed_row(batch.slice(at, 1), layout) for at in first]
    names = list(dict.fromkeys(name for row in shown for name in row))
    names = names or [name for name in batch.schema.names if not name.startswith(RAW)]
    return markdown_table(names, [[_cell(row.get(name)) for name in names] for row in shown])


def _cell(value: Any) -> str:
    shown = plain(value)
    return shown if isinstance(shown, str) else json_text(shown)


def plan_metadata(plans: list[OperatorPlan]) -> Metadata:
    """Return the metadata of a plan."""
    metadata: Metadata = {}
    for plan in plans:
        name = printable(plan.operator)
        metadata[f"{name}: subtasks"] = printed_table(plan.table("", SHOWN_SUBTASKS))
        metadata[f"{name}: parallelism"] = f"{plan.old[0]} → {plan.new[0]}"
        metadata[f"{name}: max parallelism"] = f"{plan.old[1]} → {plan.new[1]}"
        metadata[f"{name}: skew"] = float(np.round(plan.skew, 4))
    return metadata


def upgrade_metadata(done: UpgradeOutcome | SqlUpgrade) -> Metadata:
    """Return the metadata of an upgrade: also whether this run made it, and not one before it."""
    outcome = {"outcome": "upgraded before" if done.before else "upgraded"} if done.made else {}
    return outcome | metadata_of(done)


def sql_upgrade_metadata(done: SqlUpgrade) -> Metadata:
    """Return the metadata of an upgrade of a Flink SQL job to a changed query."""
    operators = printed_table(done.table("", ">entries:,", "<why=reasons"))
    return upgrade_metadata(done) | {"operators": operators}


def spark_metadata() -> Metadata:
    """Return a link to the UI of this process's Spark, if there is one."""
    address = spark_ui()
    return {"Spark UI": dg.MetadataValue.url(address)} if address else {}


def prune_metadata(done: DropResult) -> Metadata:
    """Return the metadata of snapshots that were dropped."""
    return {"dropped": len(done.dropped), "kept": len(done.kept), **metadata_of(done)}


def log_migration_metadata(done: MigratedLog) -> Metadata:
    """Return the metadata of a checkpoint log's migration."""
    return {**Counter(task.outcome for task in done.tasks), "tasks": printed_table(done.table)}


def commits_metadata(reports: Iterable[CommitReport], now: int) -> Metadata:
    """Return the metadata of the cost of commits.

    Args:
        reports: The reports, in order.
        now: The time in milliseconds since 1970.
    """
    listed = list(reports)
    metadata: Metadata = dict(total(listed))
    if not listed:
        return metadata
    times = sorted({report.reported_at for report in listed})
    together = {at: total(report for report in listed if report.reported_at == at) for at in times}
    counts = {name: [together[at][name] for at in times] for name in metadata}
    hours = [(at - now) / 3_600_000 for at in times]
    charts = commit_charts(hours, counts)
    drawn = [chart.markdown(name) for name, chart in charts.items()]
    metadata["over time"] = dg.MetadataValue.md("\n\n".join(drawn))
    tasks = sorted({report.task for report in listed})
    columns = ("task", "commits", "skipped", "blocked", "snapshot ms", "upload ms", "sent", "saved")
    rows = []
    for task in tasks:
        sums = total(report for report in listed if report.task == task)
        names = ("commits", "commits_skipped", "commits_blocked", "snapshot_ms", "upload_ms")
        sizes = (bytes_text(sums[name]) for name in ("bytes_sent", "bytes_saved"))
        rows.append((task, *(f"{sums[name]:,}" for name in names), *sizes))
    metadata["tasks"] = dg.MetadataValue.md(markdown_table(columns, rows))
    return metadata


def lake_metadata(report: LakeReport) -> Metadata:
    """Return the metadata of a check of the lake: each damaged file with its snapshots."""
    columns = ("<file=path", "<problem", "<snapshots", "<where it can be had again=sources")
    damaged = Table.of("", columns, report.damaged[:SHOWN_FILES])
    return {
        **metadata_of(report),
        "damaged files": len(report.damaged),
        "damaged": printed_table(damaged),
    }


def faults_list(faults: Iterable[object]) -> dg.MetadataValue:
    """Return faults as a list."""
    lines = [f"- {as_markdown(str(fault))}" for fault in faults]
    return dg.MetadataValue.md("\n".join(lines) or "none")


def printed_table(table: Table) -> dg.MetadataValue:
    """Return a table of a result."""
    columns = [column[1:] for column in table.columns]
    return dg.MetadataValue.md(markdown_table(columns, table.rows) if table.rows else "none")


def markdown_table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a table; a cell is a value, or a list of several lines."""
    names = [as_markdown(name) for name in columns]
    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    lines += ["| " + " | ".join(map(_shown, row)) + " |" for row in rows]
    return "\n".join(lines)


def _shown(cell: Any) -> str:
    lines = cell if isinstance(cell, list) else [cell]
    return "<br>".join(as_markdown(str(line)) for line in lines)
