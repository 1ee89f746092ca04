"""The rewrite engine: what any transform may rely on, whichever kind of state it rewrites."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from statelake import open_snapshot
from statelake.pipelines.engine import Progress
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.change.changes import ValueChange
from statelake.pipelines.lake.change.migrating import migrate_snapshot
from statelake.pipelines.lake.edit.committing import commit_snapshot
from statelake.pipelines.lake.edit.editing import SnapshotEdit, edit_snapshot
from statelake.pipelines.lake.edit.pieces import Rows
from statelake.pipelines.lake.edit.rewriting import (
    ChildSnapshot,
    Derivation,
    TableChange,
    Transform,
    derive,
    kept_rows,
    layout_of,
    pieces_of,
)
from statelake.pipelines.lake.tables.file_spans import FileSpan
from statelake.pipelines.lake.tables.records import OperatorRecord, SnapshotRecord, TableRecord
from statelake.state_core.errors import ConflictError, EncodeError, KeyGroupError, StateError
from statelake.state_core.formats.operator_state.operator_states import ElementRows
from statelake.state_core.model.snapshot import Operator
from statelake.state_core.serializers.type_spec import parse_type
from tests.support.lakes import (
    KINDS,
    assert_shown,
    assert_whole,
    edit,
    exported,
    golden,
    import_as,
    import_golden,
    unit_paths,
)
from tests.support.savepoints.evolving_operators import NEW_HOLDERS, old_job_lake
from tests.support.savepoints.evolving_savepoints import NEW_TYPES, evolving_savepoint

OPERATOR = golden("operator-hashmap-canonical-p2-m128-flink2.3.0").snapshot


class Elsewhere:
    """An engine whose tasks and results go as bytes, as to other processes."""

    name = "elsewhere"
    repeats = True

    def __init__(self) -> None:
        self.tasks = 0

    def map(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], progress: Progress | None = None
    ) -> list[Any]:
        """As `Engine.map`."""
        self.tasks += len(tasks)
        return [_copied(_copied(function)(_copied(task))) for task in tasks]


def _copied(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """A lake with keyed state and timers of one job, and operator state of another."""
    lake = import_golden(Catalog(tmp_path / "lake"), ("s", KINDS))
    import_as(lake, OPERATOR, "s", "rules")
    return lake


class OfAll(Derivation):
    """A transform of every table."""

    def __init__(self, lake: Catalog, transform: Transform) -> None:
        self.lake = lake
        self.transform = transform

    def change(self, operator: OperatorRecord, table: TableRecord) -> TableChange | None:
        """Transform all rows."""
        layout = layout_of(self.lake, operator, table)
        return TableChange(layout, pieces_of(table), [self.transform])


def rewritten(lake: Catalog, transform: Transform, job: str = "orders") -> SnapshotRecord:
    """Put all rows of a job's snapshot `s` through a transform, as snapshot `made`."""
    child = ChildSnapshot(lake, job, "s", "made", engine=Elsewhere())
    return derive(child, child.parent_record, OfAll(lake, transform)).record


@dataclass(frozen=True)
class Every(Transform):
    """Every second row goes, of some states; all states if none is named."""

    keeps_unchanged = True

    states: tuple[str, ...] = ()
    step: int = 2

    def apply(self, rows: Rows) -> Rows:
        """The first row stays."""
        if self.states and rows.name not in self.states:
            return rows
        return kept_rows(rows, pa.array([i % self.step == 0 for i in range(len(rows.batch))]))


@pytest.mark.parametrize(("job", "source"), [("orders", KINDS), ("rules", OPERATOR)])
def test_a_transform_drops_rows_of_any_state(
    job: str, source: Path, lake: Catalog, tmp_path: Path
) -> None:
    """Keyed state, timers, lists and broadcasts; the catalog counts what is left."""
    before = lake.snapshot(job, "s")
    made = rewritten(lake, Every(), job)
    assert 0 < made.entries < before.entries
    assert 0 < made.state_bytes < before.state_bytes
    exported(lake, "made", tmp_path / "out", job)
    again = import_as(Catalog(tmp_path / "other"), tmp_path / "out", "again", job)
    for mine, theirs in zip(made.operators, again.operators, strict=True):
        assert [replace(state, table="") for state in mine.states] == [
            replace(state, table="") for state in theirs.states
        ]
        for left, found in zip(mine.operator_states, theirs.operator_states, strict=True):
            assert (left.elements, left.state_bytes) == (found.elements, found.state_bytes)
            assert left.subtasks == found.subtasks
    fingerprints = [
        {unit.first: unit.fingerprint for op in record.operators for t in op.keyed_tables
         for unit in t.units}
        for record in (made, again)
    ]  # fmt: skip
    assert fingerprints[0] == fingerprints[1]
    assert_whole(lake)
    assert _rows(open_snapshot(source).operators) > _rows(open_snapshot(tmp_path / "out").operators)


def _rows(operators: Sequence[Operator]) -> int:
    keyed = sum(len(state.to_arrow()) for operator in operators for state in operator.keyed_states)
    return keyed + sum(
        len(s.to_arrow()) for operator in operators for s in operator.operator_states
    )


@pytest.mark.parametrize("job", ["orders", "rules"])
def test_files_that_lose_nothing_are_shared(job: str, lake: Catalog) -> None:
    """Of either kind of state; what is not touched keeps its counts."""
    before = lake.snapshot(job, "s")
    assert rewritten(lake, Every(("nothing",)), job).operators == before.operators
    assert_shown(lake, "s", job)


def test_one_state_of_a_shared_table(lake: Catalog) -> None:
    """Two queues of timers lie in the same files: only one loses rows."""
    queues = [s for op in lake.snapshot("orders", "s").operators for s in op.states
              if s.kind == "timers"]  # fmt: skip
    made = rewritten(lake, Every((queues[0].name,), step=10**9))
    left = {s.name: s for op in made.operators for s in op.states}
    assert left[queues[0].name].entries < queues[0].entries
    assert left[queues[1].name] == queues[1]
    assert_whole(lake)


@dataclass(frozen=True)
class Foreseeing(Transform):
    """Knows without reading that rows stay or go."""

    stay: bool

    def foresee(self, unit: FileSpan) -> bool | None:
        """Of all units alike."""
        return self.stay

    def apply(self, rows: Rows) -> Rows:
        """Never called with rows."""
        assert not len(rows.batch)
        return rows


@pytest.mark.parametrize("job", ["orders", "rules"])
@pytest.mark.parametrize("stay", [True, False])
def test_what_is_foreseen_is_not_read(job: str, stay: bool, lake: Catalog) -> None:
    """Files stay as they are, or go, and may be damaged."""
    before = lake.snapshot(job, "s")
    for path in unit_paths(before):
        Path(lake.location, path).write_bytes(b"damaged")
    made = rewritten(lake, Foreseeing(stay), job)
    if stay:
        assert made.operators == before.operators
    else:
        assert unit_paths(made) == set()
        assert made.entries == 0
        assert [[s.name for s in operator.states] for operator in made.operators] == [
            [s.name for s in operator.states] for operator in before.operators
        ]


@dataclass(frozen=True)
class Moving(Transform):
    """Puts rows elsewhere, as no transform may."""

    column: str
    by: int

    def apply(self, rows: Rows) -> Rows:
        """Every row's key group or subtask is another."""
        names = rows.batch.schema.names
        if self.column not in names:
            return rows
        at = names.index(self.column)
        field = rows.batch.schema.field(at)
        moved = pc.add(rows.batch.column(at), self.by).cast(field.type)
        return replace(rows, batch=rows.batch.set_column(at, field, moved))


@pytest.mark.parametrize(
    ("job", "transform", "kind", "said"),
    [
        (
            "orders",
            Moving("key_group", 1),
            KeyGroupError,
            r"kinds/\w+, key groups \d+-\d+: rows of",
        ),
        (
            "rules",
            Moving("subtask", 7),
            EncodeError,
            r"subtasks 0 to \d: an element has a subtask that",
        ),
    ],
)
def test_no_row_moves(
    job: str, transform: Transform, kind: type[StateError], said: str, lake: Catalog
) -> None:
    """Between key groups or out of a file's subtasks: it is refused, and the lake is as it was."""
    with pytest.raises(kind, match=said):
        rewritten(lake, transform, job)
    assert_shown(lake, "s", job)
    assert_whole(lake)


class Constant(Every):
    """Says that it keeps the count, and does not."""

    keeps_unchanged = False
    keeps_count = True


@pytest.mark.parametrize(
    ("job", "said"), [("orders", r"key groups \d+-\d+: \d+ rows became"), ("rules", "rows became")]
)
def test_a_count_that_has_to_stay(job: str, said: str, lake: Catalog) -> None:
    """A transform that may lose nothing and does is a mistake."""
    with pytest.raises(ConflictError, match=said):
        rewritten(lake, Constant(), job)
    assert_whole(lake)


def test_values_of_operator_state_change(lake: Catalog, tmp_path: Path) -> None:
    """A transform sees a list's elements and a broadcast state's entries as typed columns."""
    rewritten(lake, Twice("split"), "rules")
    exported(lake, "made", tmp_path / "out", "rules")
    before, after = (
        open_snapshot(path).operator("opstate").operator_state("split").to_arrow().to_pylist()
        for path in (OPERATOR, tmp_path / "out")
    )
    assert [row | {"value": row["value"] * 2} for row in before] == after


@dataclass(frozen=True)
class Twice(Transform):
    """The numbers of one operator state doubled."""

    state: str

    def apply(self, rows: Rows) -> Rows:
        """Other states stay."""
        if not isinstance(rows, ElementRows) or rows.name != self.state:
            return rows
        at = rows.batch.schema.get_field_index("value")
        doubled = pc.multiply(rows.batch.column(at), 2).cast(rows.batch.schema.field(at).type)
        return replace(rows, batch=rows.batch.set_column(at, rows.batch.schema.field(at), doubled))


@pytest.mark.full
def test_every_operation_goes_to_other_processes(tmp_path: Path) -> None:
    """Tasks and results of all of them are picklable, and nothing is lost on the way."""
    engine, lake = Elsewhere(), Catalog(tmp_path / "lake")
    import_as(lake, KINDS, "s")
    edit(lake, "orders/keyed/kinds/total").delete("key_group < 64")
    assert commit_snapshot(ChildSnapshot(lake, "orders", "s", "less", engine=engine)).changed
    keys = tmp_path / "keys.txt"
    rows = open_snapshot(KINDS).operator("kinds").state("session").to_arrow()
    keys.write_text(str(rows.column("key")[0]), "utf-8")
    wanted = SnapshotEdit(
        keep_keys={"kinds": str(keys)}, expire={"kinds/session": timedelta(days=9999)},
        purge={"kinds/total": "key IN (SELECT key FROM kinds.name) AND key_group(key, 128) < 9"},
    )  # fmt: skip
    assert edit_snapshot(ChildSnapshot(lake, "orders", "s", "one", engine=engine), wanted).changes
    import_as(lake, evolving_savepoint("old-rocksdb", tmp_path / "old"), "old", "shop")
    spec = NEW_TYPES["order"]
    change = ValueChange("evolving", "order", parse_type(spec), spec=spec)
    assert migrate_snapshot(
        ChildSnapshot(lake, "shop", "old", "new", engine=engine), change
    ).entries
    holders = old_job_lake(tmp_path / "holders")
    spec = NEW_HOLDERS["addresses"]
    change = ValueChange("holders", "addresses", parse_type(spec), spec=spec)
    assert migrate_snapshot(
        ChildSnapshot(holders, "orders", "old", "new", engine=engine), change
    ).entries
    change = ValueChange("kinds", "name", parse_type("Long"), {"": "length(old) + key"})
    assert migrate_snapshot(
        ChildSnapshot(lake, "orders", "s", "lengths", engine=engine), change
    ).entries
    assert engine.tasks > 4
    assert_whole(lake)
    assert_whole(holders)
