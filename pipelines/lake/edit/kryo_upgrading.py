"""Kryo 1 to 2: a snapshot of Flink 1 becomes one whose Kryo values Flink 2 reads.

Every state whose values (elements, a map's values) are Kryo's is rewritten, all in one snapshot.
What stays as Flink 1 wrote it is named: values of classes whose form is not known, Kryo within
other types, keys and namespaces, and records in flight, whatever they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from statelake.pipelines.engine import Engine, Progress
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.unmanaged_state import carried_metadata
from statelake.pipelines.lake.edit.migrating import refuse_disagreeing, value_type
from statelake.pipelines.lake.edit.pieces import Rows
from statelake.pipelines.lake.edit.rewriting import (
    Derivation,
    TableChange,
    Transform,
    derive,
    layout_of,
    pieces_of,
)
from statelake.pipelines.lake.tables.records import (
    AnyState,
    OperatorRecord,
    SnapshotRecord,
    StateRecord,
    TableRecord,
)
from statelake.state_core.formats.layout.keyed_states import with_value_bytes
from statelake.state_core.formats.rewriting.kryo_upgrade import upgrade_rows
from statelake.state_core.serializers.kryo.decoding import is_declared
from statelake.state_core.serializers.kryo.snapshot import KryoSerializerSnapshot
from statelake.state_core.serializers.kryo.wire import KryoVersion

NAME = KryoSerializerSnapshot.java_class.encode()
LATER = "Flink 2 wrote it"
IN_FLIGHT = "records in flight"
UNKNOWN = "no snapshot says whether they are Kryo's: export with --drop-channel-state"


@dataclass(frozen=True)
class Upgraded:
    """The upgrade of a state with values of Kryo.

    Attributes:
        operator: The operator's uid or id.
        state: The state.
        entries: The state's entries.
        left: Why it stays as Flink 1 wrote it; empty if it is rewritten.
    """

    operator: str
    state: str
    entries: int
    left: str = ""


@dataclass(frozen=True)
class KryoUpgrade(Transform):
    """Rewrite values of Kryo as Flink 2 writes them.

    Attributes:
        meta_info: The state as Flink 1 wrote it.
    """

    keeps_count = True

    meta_info: bytes

    def apply(self, rows: Rows) -> Rows:
        """Rewrite the values."""
        before = value_type(self.meta_info)
        assert isinstance(before, KryoSerializerSnapshot)  # noqa: S101 - as it was planned
        return upgrade_rows(rows, before)


def plan_kryo_upgrade(record: SnapshotRecord) -> list[Upgraded]:
    """Return the planned upgrade of each state of a snapshot that has Kryo in it."""
    plan = [
        Upgraded(operator.label, state.name, state.entries, _why_left(operator, state))
        for operator in record.operators
        for state in operator.all_states
        if NAME in state.meta_info or _has_kryo_keys(operator, state)
    ]
    if all(upgrade.left == LATER for upgrade in plan):
        return plan
    labels = {operator.operator_id: operator.label for operator in record.operators}
    return plan + [
        Upgraded(labels.get(operator.operator_id, operator.operator_id), IN_FLIGHT, 0, UNKNOWN)
        for operator in carried_metadata(record).operators
        if any(subtask.inputs or subtask.outputs for subtask in (operator.subtasks or {}).values())
    ]


def upgrade_kryo(
    lake: Catalog,
    job: str,
    parent: str,
    snapshot_id: str,
    *,
    note: str = "",
    engine: Engine | str = "auto",
    progress: Progress | None = None,
) -> tuple[SnapshotRecord, list[Upgraded]]:
    """Register a new snapshot whose values of Kryo are as Flink 2 writes them.

    Args:
        lake: The lake.
        job: The job.
        parent: The snapshot of Flink 1.
        snapshot_id: The name of the new one.
        note: Kept with it.
        engine: `auto`, `spark`, `local`, or an engine.
        progress: Called with (done, total) after each task of a table.

    Returns:
        The new snapshot, or the old one if there is nothing to rewrite; and the upgrade of each
        state with Kryo in it.

    Raises:
        ConflictError: The id is taken.
        StateError: A value can't be decoded; nothing was registered.
    """
    record = lake.snapshot(job, parent)
    plan = plan_kryo_upgrade(record)
    states = {(state.operator, state.state) for state in plan if not state.left}
    if not states:
        return record, plan
    paths = [
        state.table
        for operator in record.operators
        for state in operator.all_states
        if (operator.label, state.name) in states
    ]
    done = derive(
        lake, job, record, snapshot_id, _Upgrade(lake, states), note=note, paths=paths,
        engine=engine, progress=progress,
    )  # fmt: skip
    return done.record, plan


class _Upgrade(Derivation):
    """The upgrade of some states, which are given by operator and name."""

    origin = "migrate"

    def __init__(self, lake: Catalog, states: set[tuple[str, str]]) -> None:
        self.lake = lake
        self.states = states

    def change(self, operator: OperatorRecord, table: TableRecord) -> TableChange | None:
        """Return the change of a table if its state is upgraded."""
        for state in operator.states_in(table):
            if (operator.label, state.name) in self.states:
                refuse_disagreeing(operator, state)
                before = value_type(state.meta_info)
                assert isinstance(before, KryoSerializerSnapshot)  # noqa: S101 - as it was planned
                after = with_value_bytes(state.meta_info, before.for_flink_2())
                layout = layout_of(self.lake, operator, table).with_meta_info(after)
                return TableChange(layout, pieces_of(table), [KryoUpgrade(state.meta_info)])
        return None


def _has_kryo_keys(operator: OperatorRecord, state: AnyState) -> bool:
    return isinstance(state, StateRecord) and NAME in operator.key_serializer


def _why_left(operator: OperatorRecord, state: AnyState) -> str:
    """Return why a state with Kryo in it is not rewritten; empty if it is."""
    if _has_kryo_keys(operator, state):
        return "its keys are Kryo's, and entries are found by the bytes of their keys"
    value = value_type(state.meta_info)
    if not isinstance(value, KryoSerializerSnapshot) or state.meta_info.count(NAME) > 1:
        return "Kryo is within another type, or in keys"
    decoder = value.decoder()
    if KryoVersion.FLINK_2 in (value.kryo, decoder and decoder.values.version):
        return LATER
    if not is_declared():
        return "nothing is said of its form: say `flink: 1` and the classes in a file for --kryo"
    if decoder is None:
        return f"the form of {value.type_class} is not known: declare it in a file for --kryo"
    return ""
