"""A bootstrap whose tasks run more than once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statelake import open_snapshot
from statelake.pipelines.bootstrap.bootstrapping import bootstrap
from statelake.pipelines.engine import LocalEngine
from statelake.state_core.files.file_sources import FileSource
from tests.support.engines import Repeating

STATE = {"kind": "value", "type": "String", "source": "rows.parquet"}
SPEC = "operators: {op: {key_type: Long, states: {s: " + str(STATE).replace("'", "") + "}}}\n"


def test_the_savepoint_has_the_files_of_one_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task runs twice, and a third run of it is lost: nothing is left of two of them."""
    rows = pa.table({"key": range(1000), "value": [f"value {n}" for n in range(1000)]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    (tmp_path / "spec.yaml").write_text(SPEC)
    repeating = Repeating(monkeypatch, (FileSource, "read_into"))
    states = {}
    for name, engine in (("calm", LocalEngine()), ("lost", repeating)):
        to = tmp_path / name
        bootstrap(None, tmp_path / "spec.yaml", to, parallelism=3, engine=engine)
        assert len(list(to.iterdir())) == 3 + 1  # a file a subtask, and `_metadata`
        states[name] = open_snapshot(to, uids=["op"]).operator("op").state("s").to_arrow()
    assert repeating.lost
    assert states["lost"].equals(states["calm"])
    assert len(states["calm"]) == 1000
