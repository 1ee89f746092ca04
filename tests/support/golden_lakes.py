"""Lakes of each format, as the statelake of then wrote them, and what they held.

`python -m tests.support.golden_lakes NUMBER` writes those of the format that this tree writes.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statelake import Lake, NewKeyedState, NewOperator, NewOperatorState, write_snapshot
from statelake.pipelines.lake.tables import file_spans as units
from tests.support.lakes import tiny_pieces
from tests.support.savepoints.golden_cases import GOLDEN

FORMATS = tuple(sorted(int(path.stem.split("-")[1]) for path in (GOLDEN / "lakes").glob("*.json")))
JOB, HOT, ENTRIES, ERASED = "orders", 7, 200, 5


def golden_lake(number: int, to: Path) -> Path:
    """Unpack the lake of a format into a directory, and return its path."""
    with tarfile.open(GOLDEN / "lakes" / f"format-{number}.tar.xz") as archive:
        archive.extractall(to, filter="data")
    return to / "lake"


def said_of(number: int) -> Any:
    """What the lake of a format held when it was written, as `held` says it."""
    return json.loads((GOLDEN / "lakes" / f"format-{number}.json").read_text("utf-8"))


def held(location: Path, exports: Path) -> dict[str, Any]:
    """By snapshot: the rows of each state, sorted, and digests of the files of an export."""
    job = Lake(location).job(JOB, engine="local")
    said: dict[str, Any] = {}
    for record in job.snapshots():
        snapshot = job[record.snapshot_id]
        (operator,) = snapshot.operators
        rows = {
            state.name: sorted(
                json.dumps([value for value in row.values() if value is not None])
                for row in state.to_arrow().to_pylist()
            )
            for state in (*operator.keyed_states, *operator.operator_states)
        }
        snapshot.export(exports / record.snapshot_id)
        said[record.snapshot_id] = {
            "rows": rows,
            "exported": sorted(
                hashlib.sha256(path.read_bytes()).hexdigest()
                for path in (exports / record.snapshot_id).iterdir()
                if path.name != "_metadata"
            ),
            "holds": [hold.reason for hold in record.holds],
            "erased": record.erased,
        }
    return said


def _savepoint(root: Path, *, later: bool) -> Path:
    """One key has most entries of a map, so that several tasks import it."""
    count = 20 + 4 * later
    hot = {
        "key": [HOT] * ENTRIES + list(range(count)),
        "user_key": list(range(ENTRIES + count)),
        "value": [f"value {number}" for number in range(ENTRIES + count)],
    }
    few = {"key": list(range(count)), "value": [number * (1 + later) for number in range(count)]}
    states = (
        NewKeyedState("count", pa.table(few), value="Long"),
        NewKeyedState("hot", pa.table(hot), kind="map", user_key="Long", value="String"),
        NewKeyedState.timers(
            "event", pa.table({"key": few["key"], "timestamp": list(range(count))})
        ),
    )
    others = (
        NewOperatorState("offsets", pa.table({"value": [1, 2, 3 + later]}), "split", "Long"),
        NewOperatorState(
            "rules", pa.table({"key": ["a", "b"], "value": [1, 2]}), "broadcast", "Long", "String"
        ),
    )
    write_snapshot(root, [NewOperator("counter", "Long", states, others, 2, 128)])
    return root


def write(number: int) -> None:
    """Write a lake into `golden/lakes`, and what it holds beside it."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "gethostname", lambda: "host")
        patch.setattr(os, "getpid", lambda: 1)
        patch.setattr(units, "SLICE_BYTES", 1)
        root = Path(name)
        job = Lake(root / "lake").job(JOB, engine="local")
        for day in ("monday", "tuesday"):
            _savepoint(root / day, later=day == "tuesday")
            with tiny_pieces(2000):
                job.import_snapshot(str(root / day), day, uids=["counter"])
        job["monday"].edit("fewer").purge("counter/count", "value < 3").save()
        Lake(root / "lake").erase("request-1", keys=[ERASED]).execute(by="someone")
        job["tuesday"].hold("the auditors")
        golden = GOLDEN / "lakes"
        golden.mkdir(exist_ok=True)
        told = json.dumps(held(root / "lake", root / "exports"), indent=1)
        (golden / f"format-{number}.json").write_text(told + "\n", "utf-8")
        with tarfile.open(golden / f"format-{number}.tar.xz", "w:xz") as archive:
            archive.add(root / "lake", "lake", filter=_anonymous)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    entry.uname = entry.gname = ""
    return None if entry.name.endswith("_statelake/reserve") else entry


if __name__ == "__main__":
    write(int(sys.argv[1]))
