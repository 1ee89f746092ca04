"""Real Flink restores what `statelake bootstrap` made of files and a spec, at another parallelism.

The jobs and their rows are those of `test_bootstrap`; here every state goes through a file of its
own and a line of YAML.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import yaml

from statelake import NewOperator
from tests.integration.flink.oracle import FlinkOracle, sorted_lines
from tests.integration.restores.test_bootstrap import JOBS, KEYS
from tests.support.command import run

pytestmark = [pytest.mark.flink, pytest.mark.full, pytest.mark.thinned(2)]

TIMERS = "_timer_state/"


def save(table: Any, to: Path, name: str) -> str:
    """A table as a file: flat ones by turns CSV and JSON lines, others Parquet."""
    assert isinstance(table, pa.Table)
    if any(pa.types.is_nested(field.type) for field in table.schema):
        pyarrow.parquet.write_table(table, to / f"{name}.parquet", row_group_size=20)
        return f"{name}.parquet"
    if len(name) % 2:
        pyarrow.csv.write_csv(table, to / f"{name}.csv")
        return f"{name}.csv"
    lines = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in table.to_pylist())
    (to / f"{name}.jsonl").write_text(lines, "utf-8")
    return f"{name}.jsonl"


def spec_of(operator: NewOperator, to: Path) -> dict[str, Any]:
    """The spec that says what the operator says."""
    spec: dict[str, Any] = {
        "key_type": operator.key, "states": {}, "timers": {}, "operator_states": {},
        "max_parallelism": operator.max_parallelism,
    }  # fmt: skip
    for state in operator.states:
        if state.kind == "timers":
            domain, _, service = state.name.removeprefix(TIMERS).partition("_")
            source = save(state.rows, to, f"{domain}-timers")
            spec["timers"][f"{domain}/{service}"] = {"source": source}
            continue
        part = {"kind": state.kind, "type": state.value, "source": save(state.rows, to, state.name)}
        if state.kind == "map":
            part["user_key_type"] = state.user_key
        if state.with_ttl:
            part["ttl"] = "ttl"
        spec["states"][state.name] = part
    for other in operator.operator_states:
        part = {"kind": other.mode, "type": other.value}
        part["source"] = save(other.rows, to, f"{other.name}-rows")
        if other.key:
            part["key_type"] = other.key
        spec["operator_states"][other.name] = part
    return {"operators": {operator.uid: {name: value for name, value in spec.items() if value}}}


@pytest.mark.parametrize("case", JOBS)
def test_flink_holds_what_the_files_held(case: str, flink: FlinkOracle, tmp_path: Path) -> None:
    """Every value of every key, every timer, every subtask's lists."""
    operator, lines = JOBS[case](3, 128)
    spec = tmp_path / "spec.yaml"
    spec.write_text(yaml.safe_dump(spec_of(operator, tmp_path), allow_unicode=True), "utf-8")
    compress = ("--compression", "snappy") if case in ("kinds", "mixed") else ()
    ran = run("bootstrap", spec, "--to", tmp_path / "sp", "--parallelism", 3, *compress)
    assert ran.code == 0, ran.err
    after = flink.restore(case, tmp_path / "sp", keys=KEYS, parallelism=3, backend="rocksdb")
    assert sorted_lines(after) == sorted_lines(lines)


def test_an_older_flink_restores_it(old_flink: FlinkOracle, tmp_path: Path) -> None:
    """Flink 1.20, with the versions of then."""
    operator, lines = JOBS["mixed"](2, 128)
    spec = tmp_path / "spec.yaml"
    spec.write_text(yaml.safe_dump(spec_of(operator, tmp_path), allow_unicode=True), "utf-8")
    ran = run(
        "bootstrap", spec, "--to", tmp_path / "sp", "--parallelism", 2, "--metadata-version", 4,
        "--operator-state-version", 5,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    after = old_flink.restore("mixed", tmp_path / "sp", keys=KEYS, parallelism=2, backend="hashmap")
    assert sorted_lines(after) == sorted_lines(lines)
