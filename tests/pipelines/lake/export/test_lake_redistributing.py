"""Operator state for another parallelism: what each subtask gets is what Flink gives it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.requests.imports import Import
from statelake.state_core.errors import LakeError
from statelake.state_core.formats.reader import Snapshot
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases
from tests.support.savepoints.operator_contents import (
    OPERATOR_CASES,
    UIDS,
    assert_dealt_out,
    by_subtask,
    copies,
    state_of,
)

PARALLELISMS = (1, 2, 3, 4, 5, 7)


def exported(golden: GoldenCase, to: Path, **options: Any) -> Snapshot:
    """The case, through a lake, as a savepoint."""
    lake = Catalog(to / "lake")
    import_snapshot(lake, os.fspath(golden.snapshot), "rules", Import(uids=UIDS), snapshot_id="s")
    export_snapshot(lake, "rules", "s", to / "savepoint", **options)
    return open_snapshot(to / "savepoint", uids=UIDS)


@pytest.mark.parametrize("parallelism", PARALLELISMS)
@pytest.mark.parametrize("golden", OPERATOR_CASES, ids=lambda case: case.name)
def test_each_subtask_has_what_flink_gives_it(
    golden: GoldenCase, parallelism: int, tmp_path: Path
) -> None:
    """Split state to the element; union state once in all; a broadcast copy for everyone."""
    snapshot = exported(golden, tmp_path, parallelism=parallelism)
    assert_dealt_out(snapshot, golden, parallelism)


@pytest.mark.parametrize("golden", golden_cases("operator"), ids=lambda case: case.name)
def test_an_unchanged_parallelism_changes_nothing(golden: GoldenCase, tmp_path: Path) -> None:
    """Every subtask has its own elements, in their order, union state too."""
    before, after = open_snapshot(golden.snapshot, uids=UIDS), exported(golden, tmp_path)
    for name in ("split", "offsets", "union"):
        old, new = state_of(before, name), state_of(after, name)
        assert by_subtask(old) == by_subtask(new)
        assert (old.mode, old.value_type, old.schema) == (new.mode, new.value_type, new.schema)
        assert old.meta_info == new.meta_info
    assert list(copies(state_of(before, "rules"))) == list(copies(state_of(after, "rules")))
    assert state_of(after, "rules").disagreeing() == []


@pytest.mark.parametrize("compression", ["snappy", "none"])
@pytest.mark.parametrize(("version", "written"), [(None, 6), (5, 5)])
@pytest.mark.parametrize("golden", OPERATOR_CASES, ids=lambda case: case.name)
def test_versions_and_compression(
    golden: GoldenCase, version: int | None, written: int, compression: str, tmp_path: Path
) -> None:
    """Version 6 is compressed if that is asked for; 5, which has no word for it, never is."""
    snapshot = exported(
        golden, tmp_path, parallelism=5, compression=compression, operator_state_version=version
    )
    with_state = [operator for operator in snapshot.operators if operator.operator_states]
    assert {operator.operator_state_version for operator in with_state} == {written}
    assert snapshot.compression == (compression if written > 5 else "none")
    original = state_of(open_snapshot(golden.snapshot, uids=UIDS), "split").to_arrow()
    again = state_of(snapshot, "split").to_arrow()
    assert sorted(again["value"].to_pylist()) == sorted(original["value"].to_pylist())
    assert isinstance(again, pa.Table)


def test_a_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    """The message names the file, as of keyed state; Arrow's own error would not."""
    exported(OPERATOR_CASES[0], tmp_path)
    lake = Catalog(tmp_path / "lake")
    operators = lake.snapshot("rules", "s").operators
    owner = next(each for each in operators if each.operator_states)
    state = next(each for each in owner.operator_states if each.name == "split")
    (file,) = owner.table_of(state).units
    path = tmp_path / "lake" / state.table / file.path
    rows = pq.ParquetFile(path).read()
    words = pa.array(["none"] * len(rows))
    at = rows.schema.get_field_index("subtask")
    pq.write_table(rows.set_column(at, "subtask", words), path)
    with pytest.raises(LakeError, match="columns are not those of the state") as refused:
        export_snapshot(lake, "rules", "s", tmp_path / "again", engine="local")
    assert refused.value.place == str(path)
