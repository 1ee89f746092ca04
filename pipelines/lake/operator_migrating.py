"""An operator state's table under a new type of its elements, or of a broadcast state's values.

Subtasks, positions and a broadcast state's keys stay. The lake has one copy of a broadcast state:
where those of the subtasks differ, nobody has said which of them counts, and nothing is migrated.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.engine import Engine, Progress
from pipelines.lake.catalog import Lake
from pipelines.lake.changes import ValueChange
from pipelines.lake.operator_changes import count_subtasks
from pipelines.lake.operator_tables import read_operator_rows, write_operator_unit
from pipelines.lake.records import (
    OperatorRecord,
    OperatorStateRecord,
    StateRecord,
    SubtaskRecord,
    UnitRecord,
)
from pipelines.lake.rewriting import RewrittenUnit, TableRewriting, ValueStaging
from pipelines.lake.tables import table_directory
from state_core.errors import ConflictError, IncompatibleError, StateError
from state_core.formats.operator_migration import (
    element_layout,
    exact_elements,
    migrate_elements,
    validate_elements,
    with_element_bytes,
)
from state_core.formats.operator_reader import parse_operator_state
from state_core.serializers.type_spec import TypeSpec

__all__ = ["OperatorMigration", "refuse_disagreeing"]


def refuse_disagreeing(operator: OperatorRecord, state: StateRecord | OperatorStateRecord) -> None:
    """Raise where a migration would settle which copy of a broadcast state counts.

    Raises:
        IncompatibleError: The copies of some subtasks are not the one in the table.
    """
    if isinstance(state, OperatorStateRecord) and state.disagreeing:
        who = ", ".join(map(str, state.disagreeing))
        raise IncompatibleError(
            f"the copies of the subtasks {who} differ from the first one's, which is the only one"
            " in the lake",
            place=f"state {operator.label}/{state.name}",
            remedy="if that one is right, say so first: rewrite its table (UPDATE ... SET value ="
            " value), commit it, and migrate what comes of that",
        )


@dataclass(frozen=True)
class _Task:
    """Some files of the table, and where the rows with new values are, if SQL made them."""

    lake: str
    state: OperatorStateRecord
    meta_info: bytes
    spec: TypeSpec | None
    units: tuple[RewrittenUnit, ...]
    attempt: str


@dataclass
class _Result:
    """A rewritten file: its bytes of state in all, and of a list by subtask."""

    unit: UnitRecord
    state_bytes: int
    subtasks: list[SubtaskRecord] = field(default_factory=list)


class OperatorMigration:
    """The migration of one operator state.

    Args:
        lake: The lake.
        operator: The operator.
        state: Its state.
        change: The new type.
        token: Of the attempt.
    """

    def __init__(
        self, lake: Lake, operator: OperatorRecord, state: OperatorStateRecord,
        change: ValueChange, token: str,
    ) -> None:  # fmt: skip
        self.lake = lake
        self.operator = operator
        self.state = state
        self.change = change
        self.rewriting = TableRewriting(lake, operator, state.table, token)
        self.meta_info = with_element_bytes(state.meta_info, change.value)

    def run(
        self, engine: Engine, staging: ValueStaging | None, progress: Progress | None
    ) -> tuple[OperatorRecord, int]:
        """The operator with the migrated state, and the bytes that were written."""
        if self.change.expressions:
            self.rewriting.stage(staging)
        tasks = [
            _Task(
                self.lake.location,
                self.state,
                self.meta_info,
                self.change.spec,
                units,
                self.rewriting.token,
            )
            for units in self.rewriting.slices()
        ]
        results = [one for done in engine.map(_migrate_slice, tasks, progress) for one in done]
        units = [one.unit for one in results]
        migrated, _ = parse_operator_state(self.meta_info)
        tables = self.rewriting.replace_files(units, migrated.schema, None)
        state = replace(
            self._counted(results), value_type=migrated.value_type, meta_info=self.meta_info
        )
        states = [state if one is self.state else one for one in self.operator.operator_states]
        written = sum(one.size for one in units)
        return replace(self.operator, operator_states=states, tables=tables), written

    def _counted(self, results: list[_Result]) -> OperatorStateRecord:
        """The state with the bytes that it has now; its elements are as many as they were."""
        if not results:
            return self.state
        size = sum(one.state_bytes for one in results)
        subtasks = [one for result in results for one in result.subtasks]
        if self.state.key_type:
            subtasks = [replace(one, state_bytes=size) for one in self.state.subtasks]
        return replace(self.state, state_bytes=size, subtasks=subtasks)


def _migrate_slice(task: _Task) -> list[_Result]:
    """Rewrite some files, one after the other."""
    return [_migrate_unit(task, unit, staged) for unit, staged in task.units]


def _migrate_unit(task: _Task, held: UnitRecord, staged: tuple[UnitRecord, ...]) -> _Result:
    """Rewrite one file."""
    name = task.state.name
    place = f"{task.state.table}, subtasks {held.first} to {held.last}"
    layout = element_layout(task.meta_info, task.spec)
    try:
        rows = _migrated_rows(task, held, staged)
        validate_elements(rows, layout, name)
        lengths = pc.binary_length(layout.encode(rows)).to_numpy()
    except StateError as error:
        raise error.within(place) from error
    if len(rows) != held.rows:
        raise ConflictError(f"{held.rows} rows became {len(rows)}", place=place)
    directory = table_directory(task.lake, task.state.table)
    path, size = write_operator_unit(
        directory, f"{task.attempt}/subtask-{held.first:05d}", layout.schema, [rows]
    )
    unit = replace(held, path=path, size=size, fingerprint=b"")
    subtasks = [] if layout.key is not None else count_subtasks(rows, lengths)
    return _Result(unit, int(lengths.sum()), subtasks)


def _migrated_rows(task: _Task, held: UnitRecord, staged: tuple[UnitRecord, ...]) -> pa.RecordBatch:
    """A file's rows with their new values: as Flink carries them over, or those that SQL made."""
    old, layout = element_layout(task.state.meta_info), element_layout(task.meta_info, task.spec)
    rows = read_operator_rows(task.lake, task.state, [held])
    if not staged:
        return migrate_elements(rows, old, layout, task.state.name)
    exact = exact_elements(rows, old)
    if exact:  # an expression sees typed columns only: values that these can't hold would be lost
        raise IncompatibleError(
            f"{exact} values that only their exact bytes hold, which an expression would not see",
            remedy="edit or delete these rows first (WHERE raw_value IS NOT NULL)",
        )
    return read_operator_rows(task.lake, replace(task.state, meta_info=task.meta_info), staged)
