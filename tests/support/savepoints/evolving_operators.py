"""Operator state under `golden/evolving`, and what its types become in the job's new version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.tables.records import OperatorStateRecord, SnapshotRecord
from statelake.pipelines.lake.verify.compatibility import check_against
from statelake.state_core.formats.reader import Snapshot
from statelake.state_core.serializers.framework.compatibility import Verdict
from tests.support.lakes import import_as
from tests.support.savepoints.evolving_savepoints import (
    FOLDER,
    NEW_TYPES,
    REFUSED_TYPES,
    evolving_savepoint,
    plain,
)
from tests.support.savepoints.operator_contents import state_of

__all__ = [
    "HOLDERS",
    "MIGRATED_HOLDERS",
    "NEW_HOLDERS",
    "OLD_HOLDERS",
    "REFUSED_HOLDERS",
    "judged",
    "old_job_lake",
    "recorded",
    "settled_lines",
    "subtask_lines",
    "verdicts_of_flink",
]

HOLDERS = ("addresses", "labels", "depots", "places")


def _types(types: dict[str, Any]) -> dict[str, Any]:
    """The type of each state's elements or values; that of the keys of `places` can't be given."""
    address = types["order"]["fields"]["address"]
    return {"addresses": address, "labels": types["labels"], "depots": address}


NEW_HOLDERS, REFUSED_HOLDERS = _types(NEW_TYPES), _types(REFUSED_TYPES)


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / name).read_text("utf-8").splitlines()]


def settled_lines(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line a subtask, in their order, with sorted what has no order that is settled."""
    found = []
    for line in sorted(lines, key=lambda row: int(row["subtask"])):
        ordered = {name: sorted(line[name], key=json.dumps) for name in HOLDERS[1:] if name in line}
        found.append({**line, **ordered})
    return [json.loads(json.dumps(row, sort_keys=True)) for row in found]


OLD_HOLDERS = settled_lines(_lines("operator-old.jsonl"))
MIGRATED_HOLDERS = settled_lines(_lines("operator-migrated.jsonl"))


def old_job_lake(work: Path) -> Catalog:
    """A lake with the old job's savepoint, called `old`, and nothing else."""
    made = Catalog(work / "lake")
    import_as(made, evolving_savepoint("operator-old", work / "old"), "old")
    return made


def subtask_lines(snapshot: Snapshot) -> list[dict[str, Any]]:
    """What each subtask of the job gets of a snapshot at its parallelism."""
    lines: list[dict[str, Any]] = [{"subtask": index, "addresses": []} for index in range(2)]
    for row in state_of(snapshot, "addresses").to_arrow().to_pylist():
        lines[row["subtask"]]["addresses"].append(plain(row["value"]))
    labels = [
        plain(value) for value in state_of(snapshot, "labels").to_arrow()["value"].to_pylist()
    ]
    for line in lines:
        line["labels"] = labels
        for name in ("depots", "places"):
            part = state_of(snapshot, name).parts[line["subtask"]]
            rows = part.decode().to_pylist()
            line[name] = [[plain(row["key"]), plain(row["value"])] for row in rows]
    return settled_lines(json.loads(json.dumps(lines, sort_keys=True)))


def verdicts_of_flink(version: str, *, with_keys: bool = True) -> dict[str, str]:
    """The verdict on each state, the worse of those on key and value, of these classes."""
    told = json.loads((FOLDER / "operator-verdicts.json").read_text("utf-8"))[version]
    found: dict[str, Verdict] = {}
    for name, verdict in told.items():
        state = name.removesuffix(" key")
        if state == name or with_keys:
            one = Verdict[verdict.upper()]
            found[state] = max(one, found.get(state, one))
    return {state: verdict.text for state, verdict in found.items()}


def recorded(record: SnapshotRecord, name: str) -> OperatorStateRecord:
    """What the catalog says of an operator state."""
    (found,) = (
        operator_state
        for operator in record.operators
        for operator_state in operator.operator_states
        if operator_state.name == name
    )
    return found


def judged(lake: Catalog, snapshot: str, against: Path) -> dict[str, str]:
    """`statelake check compatibility --against`, by operator state."""
    found = check_against(lake.snapshot("orders", snapshot), str(against), allow_missing=True)
    return {
        verdict.state: verdict.result.verdict.text for verdict in found if verdict.state in HOLDERS
    }
