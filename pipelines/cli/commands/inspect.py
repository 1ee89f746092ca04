"""`statelake inspect`: what is in a snapshot, without decoding it and without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import (
    as_json,
    bytes_text,
    json_option,
    json_text,
    plain,
    print_table,
    tell,
)
from statelake.pipelines.cli.options import Reading, reading_options
from statelake.state_core.formats import open_snapshot
from statelake.state_core.formats.key_weights import heaviest_key
from statelake.state_core.model.measure import measure_operator
from statelake.state_core.model.operator_state import NonKeyedState
from statelake.state_core.model.pieces import CuttableFile
from statelake.state_core.model.redistribution import SubtaskPlan, plan_key_groups, skew_of
from statelake.state_core.model.snapshot import KeyedState, Operator, Snapshot

__all__ = ["inspect"]

AUTO_COUNT_BYTES = 2 << 30
HEAVIEST = 5
SHOWN = 500  # operators, and states of one: reports for people end somewhere
LONGEST_SHOWN = 5000
_MODES = {"SPLIT_DISTRIBUTE": "split", "UNION": "union", "BROADCAST": "broadcast"}


@click.command()
@click.argument("savepoint")
@click.option("--parallelism", type=click.IntRange(min=1), help="What if it ran at this one?")
@click.option(
    "--entries/--no-entries",
    default=None,
    help="Count entries, which walks all state; by default up to 2 GiB.",
)
@click.option("--schema", is_flag=True, help="List the columns of each state, field by field.")
@click.option(
    "--keys", is_flag=True, help="Name the heaviest key of each operator's heaviest key group."
)
@reading_options
@plugins_option
@json_option
def inspect(
    savepoint: str,
    parallelism: int | None,
    entries: bool | None,
    schema: bool,
    keys: bool,
    reading: Reading,
    as_json_: bool,
) -> None:
    """Show what a savepoint or checkpoint holds: operators, states, types, sizes, skew.

    Nothing is decoded but, with --keys, one key of each operator, and nothing in it is executed.
    `statelake top` shows the heaviest keys of all. With --json each operator has the columns
    of Flink's own savepoint_metadata table function under their names, and more.

    \b
    Examples:
      statelake inspect /savepoints/savepoint-5f1e2c-0a1b2c3d4e5f
      statelake inspect /checkpoints/0af3.../chk-21 --parallelism 12
      statelake inspect /savepoints/of-flink-1 --uid counter --uid sessions --schema
      statelake inspect savepoint-5f1e2c-0a1b2c3d4e5f --keys
      statelake inspect s3://bucket/savepoints/sp-1 --json | jq '.operators[]."operator-uid"'
    """
    snapshot = open_snapshot(savepoint, **reading)
    size = sum(operator.total_bytes for operator in snapshot.operators)
    counted = size <= AUTO_COUNT_BYTES if entries is None else entries
    described = [
        _describe(operator, snapshot, counted, parallelism, keys=keys)
        for operator in snapshot.operators
    ]
    if schema:
        for operator, shown in zip(snapshot.operators, described, strict=True):
            _add_columns(shown["keyed_states"], operator.keyed_states)
            _add_columns(shown["operator_states"], operator.operator_states)
    report = {
        "location": snapshot.location,
        "kind": snapshot.kind,
        "format": snapshot.format,
        "metadata_version": snapshot.metadata_version,
        "checkpoint_id": snapshot.checkpoint_id,
        "compression": snapshot.compression,
        "size_bytes": size,
        "operators": described,
    }
    if as_json_:
        as_json(report)
    else:
        _print(report)


def _describe(
    operator: Operator,
    snapshot: Snapshot,
    counted: bool,
    parallelism: int | None,
    *,
    keys: bool,
) -> dict[str, Any]:
    totals = measure_operator(operator) if counted and operator.keyed_files else {}
    weights, estimated = _weights(operator, totals)
    return {
        "checkpoint-id": snapshot.checkpoint_id,
        "operator-name": operator.name or None,
        "operator-uid": operator.uid or None,
        "operator-uid-hash": operator.operator_id,
        "operator-parallelism": operator.parallelism,
        "operator-max-parallelism": operator.max_parallelism,
        "operator-subtask-state-count": operator.subtask_states,
        "operator-coordinator-state-size-in-bytes": operator.coordinator_bytes,
        "operator-total-size-in-bytes": operator.total_bytes,
        "finished": operator.finished,
        "raw_state_bytes": operator.raw_bytes,
        "in_flight_bytes": operator.in_flight_bytes,
        "key_type": operator.keyed_states[0].key_type if operator.keyed_states else None,
        "keyed_states": [
            _describe_state(keyed_state, totals.get(keyed_state.name))
            for keyed_state in operator.keyed_states
        ],
        "operator_states": [
            _describe_operator_state(operator_state) for operator_state in operator.operator_states
        ],
        "key_groups": _describe_groups(weights, totals, estimated)
        | (_describe_key(operator, weights) if keys else {}),
        "subtasks": _describe_subtasks(operator, weights, totals, parallelism),
    }


def _weights(operator: Operator, totals: dict[str, Any]) -> tuple[npt.NDArray[np.int64], bool]:
    """The bytes of each key group, as counted or else as stored; whether those are estimated."""
    weights = np.zeros(operator.max_parallelism, np.int64)
    if totals:
        return np.sum([sizes for _, sizes in totals.values()], axis=0), False
    estimated = False
    for file in operator.keyed_files:
        sizes = file.group_bytes()
        if file.is_spread_evenly:
            estimated = True
            sizes = file.looked_up_bytes() if isinstance(file, CuttableFile) else sizes
        for group, size in sizes:
            weights[group] += size
    return weights, estimated


def _describe_state(
    state: KeyedState, totals: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None
) -> dict[str, Any]:
    description: dict[str, Any] = {
        "name": state.name,
        "kind": state.kind.value,
        "key_type": state.key_type,
        "namespace_type": state.namespace_type,
        "value_type": state.value_type or None,
        "ttl": state.with_ttl,
    }
    if state.user_key_type:
        description["user_key_type"] = state.user_key_type
    if totals is not None:
        entries, sizes = totals
        description["entries"] = int(entries.sum())
        description["bytes"] = int(sizes.sum())
        description["key_groups"] = [
            {"key_group": group, "entries": int(entries[group]), "bytes": int(sizes[group])}
            for group in np.flatnonzero(entries).tolist()
        ]
    return description


def _describe_operator_state(state: NonKeyedState) -> dict[str, Any]:
    description: dict[str, Any] = {
        "name": state.name,
        "mode": state.mode.name,
        "value_type": state.value_type,
        "elements": state.elements,
        "subtasks": len(state.parts),
    }
    return description | ({"key_type": state.key_type} if state.broadcast else {})


def _add_columns(
    described: list[dict[str, Any]], states: Sequence[KeyedState | NonKeyedState]
) -> None:
    """The columns of each state, as `dump` and tables have them."""
    for shown, state in zip(described, states, strict=True):
        columns = [column for column in state.schema if not column.name.startswith("raw_")]
        shown["columns"] = list(map(_describe_column, columns))


def _describe_column(column: pa.Field) -> dict[str, Any]:
    fields = _fields_of(column.type)
    description: dict[str, Any] = {"name": column.name, "type": _type_text(column.type)}
    return description | ({"fields": list(map(_describe_column, fields))} if fields else {})


def _fields_of(kind: pa.DataType) -> list[pa.Field]:
    """What a POJO, a tuple or a row has, be it in a list or a map."""
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_map(kind):
        return _fields_of(kind.key_type) + _fields_of(kind.item_type)
    return _fields_of(kind.value_type) if pa.types.is_nested(kind) else []


def _type_text(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return "struct"
    if pa.types.is_map(kind):
        return f"map<{_type_text(kind.key_type)}, {_type_text(kind.item_type)}>"
    return f"list<{_type_text(kind.value_type)}>" if pa.types.is_nested(kind) else str(kind)


def _describe_groups(
    weights: npt.NDArray[np.int64], totals: dict[str, Any], estimated: bool
) -> dict[str, Any]:
    with_data = np.flatnonzero(weights)
    heaviest = with_data[np.argsort(-weights[with_data], kind="stable")][:HEAVIEST]
    entries = np.sum([counts for counts, _ in totals.values()], axis=0) if totals else None
    return {
        "estimated": estimated,
        "with_data": None if estimated else len(with_data),
        "skew": round(skew_of(weights), 3),
        "heaviest": [
            {"key_group": group, "bytes": int(weights[group])}
            | ({} if entries is None else {"entries": int(entries[group])})
            for group in heaviest.tolist()
        ],
    }


def _describe_key(operator: Operator, weights: npt.NDArray[np.int64]) -> dict[str, Any]:
    """The heaviest key of the key group with the most bytes."""
    key = heaviest_key(operator, int(np.argmax(weights))) if weights.any() else None
    if key is None:
        return {"heaviest_key": None}
    return {
        "heaviest_key": {
            "key_group": key.key_group, "key": plain(key.key), "entries": key.entries,
            "bytes": key.size,
        }
    }  # fmt: skip


def _describe_subtasks(
    operator: Operator,
    weights: npt.NDArray[np.int64],
    totals: dict[str, Any],
    parallelism: int | None,
) -> dict[str, Any]:
    entries = np.sum([counts for counts, _ in totals.values()], axis=0) if totals else weights * 0
    plans: dict[str, list[SubtaskPlan]] = {
        "now": plan_key_groups(entries, weights, operator.parallelism)
    }
    if parallelism is not None and operator.keyed_files:
        plans["then"] = plan_key_groups(entries, weights, parallelism, operator.parallelism)
    return {
        when: {
            "parallelism": len(plan),
            "skew": round(skew_of([subtask.state_bytes for subtask in plan]), 3),
            "subtasks": [dict(vars(subtask)) for subtask in plan],
        }
        for when, plan in plans.items()
    }


def _print(report: dict[str, Any]) -> None:
    kind = " ".join(dict.fromkeys(filter(None, (report["format"], report["kind"]))))
    tell(f"{report['location']}", marked=report["location"])
    tell(
        f"{kind or 'snapshot'}, checkpoint {report['checkpoint_id']}, _metadata version"
        f" {report['metadata_version']}, compression {report['compression']},"
        f" {bytes_text(report['size_bytes'])}"
    )
    tell("")
    operators = []
    for operator in report["operators"][:SHOWN]:
        there = {
            f"{len(operator['keyed_states'])} keyed": operator["keyed_states"],
            f"{len(operator['operator_states'])} operator": operator["operator_states"],
            "coordinator": operator["operator-coordinator-state-size-in-bytes"],
            "raw": operator["raw_state_bytes"],
            "in flight": operator["in_flight_bytes"],
        }
        operators.append(
            (
                _short(operator["operator-uid"] or operator["operator-uid-hash"]),
                _short(operator["operator-name"] or ""),
                str(operator["operator-parallelism"]),
                str(operator["operator-max-parallelism"]),
                bytes_text(operator["operator-total-size-in-bytes"]),
                ", ".join(what for what, held in there.items() if held) or "none",
            )
        )
    columns = ("<uid or id", "<name", ">parallelism", ">key groups", ">size", "<state")
    print_table("operators", columns, operators)
    uids = [
        operator["operator-uid"]
        for operator in report["operators"]
        if operator["keyed_states"] or operator["operator_states"]
    ]
    if not all(uids):
        tell(
            f"{uids.count(None)} of {len(uids)} operators with state have no uid in the snapshot,"
            " which Flink writes since 2.0: give those that the job sets with --uid"
        )
    if any(operator["in_flight_bytes"] for operator in report["operators"]):
        tell("it is unaligned: `statelake channels` shows the records in flight")
    left = SHOWN
    for operator in report["operators"]:
        if left > 0:
            _print_states(operator)
        left -= 1 + len(operator["keyed_states"]) + len(operator["operator_states"])
    if left < 0:
        tell(f"... and more of {len(report['operators'])} operators: --json lists all")


def _column_lines(columns: Iterable[dict[str, Any]], before: str) -> Iterator[str]:
    """A line for each column and field: its whole name and its type."""
    for column in columns:
        name = f"{before}{_short(column['name'])}"
        yield f"  {name}: {column['type']}"
        yield from _column_lines(column.get("fields", ()), f"{name}.")


def _short(name: str) -> str:
    """A name that is no book."""
    return name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}..."


def _print_states(operator: dict[str, Any]) -> None:
    if not operator["keyed_states"] and not operator["operator_states"]:
        return
    label = _short(operator["operator-uid"] or operator["operator-uid-hash"])
    counted = any("entries" in state for state in operator["keyed_states"])
    columns = [
        "<state",
        "<kind",
        "<namespace",
        "<value",
        *((">entries", ">bytes") if counted else ()),
    ]
    key = f", keyed by {_short(operator['key_type'])}" if operator["key_type"] else ""
    states = []
    for state in operator["keyed_states"][:SHOWN]:
        value = _short(state["value_type"] or "")
        if state.get("user_key_type"):
            value = f"{_short(state['user_key_type'])} → {value}"
        numbers = [f"{state['entries']:,}", bytes_text(state["bytes"])] if counted else []
        ttl = " (ttl)" if state["ttl"] else ""
        namespace = _short(state["namespace_type"])
        states.append((_short(state["name"]), state["kind"], namespace, value + ttl, *numbers))
    for state in operator["operator_states"][:SHOWN]:
        value = _short(state["value_type"])
        if "key_type" in state:
            value = f"{_short(state['key_type'])} → {value}"
        blank = [f"{state['elements']:,}", ""] if counted else []
        kind = _MODES[state["mode"]]
        states.append((_short(state["name"]), f"operator, {kind}", "", value, *blank))
    tell("")
    print_table(f"{label}{key}", columns, states)
    for state in (*operator["keyed_states"], *operator["operator_states"])[:SHOWN]:
        lines = _column_lines(state.get("columns", ()), f"{_short(state['name'])}.")
        for line in islice(lines, SHOWN):
            tell(line)
        if next(lines, None) is not None:
            tell("  ... and more: --json lists all")
    groups = operator["key_groups"]
    if groups["heaviest"]:
        heavy = ", ".join(
            f"{row['key_group']} ({bytes_text(row['bytes'])})" for row in groups["heaviest"]
        )
        tell(
            "bytes of key groups are estimated from the indexes of RocksDB's files, --entries"
            f" counts them: skew about {groups['skew']}; heaviest: {heavy}"
            if groups["estimated"]
            else f"{groups['with_data']} of {operator['operator-max-parallelism']} key groups have"
            f" data; skew {groups['skew']}; heaviest: {heavy}"
        )
        key = groups.get("heaviest_key")
        if key is not None:
            tell(
                f"heaviest key of key group {key['key_group']}: {_short(json_text(key['key']))},"
                f" {key['entries']:,} entries, {bytes_text(key['bytes'])}"
            )
        for when, plan in operator["subtasks"].items():
            sizes = [subtask["state_bytes"] for subtask in plan["subtasks"]]
            tell(
                f"{'at' if when == 'now' else 'what if at'} parallelism {plan['parallelism']}:"
                f" {bytes_text(min(sizes))} to {bytes_text(max(sizes))} a subtask,"
                f" skew {plan['skew']}"
            )
