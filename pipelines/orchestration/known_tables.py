"""The tables of a job when definitions are made, from its lake or a savepoint."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from statelake.pipelines.lake.ingest.import_targets import tables_of
from statelake.pipelines.lake.tables.names import operator_table
from statelake.pipelines.orchestration.resources import Locations
from statelake.pipelines.orchestration.savepoints import newest_savepoint
from statelake.state_core.errors import StateError
from statelake.state_core.formats.reader import open_snapshot
from statelake.state_core.model.snapshot import Snapshot, StateKind
from statelake.state_core.printable import printable

if TYPE_CHECKING:
    from statelake.pipelines.lake.tables.records import SnapshotRecord

LOG = logging.getLogger(__name__)
MOST_TABLES = 500  # of one job, in the catalog before they are materialized; then there are all


def find_tables(locations: Locations) -> dict[str, str]:
    """Find the tables of a job: of its newest snapshot in the lake, or of its newest savepoint.

    What can't be read gives none, and a warning: other jobs can be used all the same, and tables
    come into the catalog when they are materialized.

    Returns:
        By the path of each table below the lake, a sentence that describes it.
    """
    try:
        record = locations.open_lake().catalog.latest(locations.job_name)
        if record is not None:
            tables = recorded_tables(record)
        else:
            name = newest_savepoint(locations)
            opened = None if name is None else open_snapshot(locations.savepoint(name))
            tables = {} if opened is None else _expected_tables(locations.job_name, opened)
    except (StateError, OSError) as error:
        LOG.warning("the tables of job %r are not known yet: %s", locations.job_name, error)
        return {}
    return dict(sorted(tables.items())[:MOST_TABLES])


def recorded_tables(record: SnapshotRecord) -> dict[str, str]:
    """Return the tables of a snapshot: by path, a sentence that describes each."""
    return {
        state.table: _described(state.kind, state.name, operator.label, state.value_type)
        for operator in record.operators
        for state in operator.all_states
    }


def _expected_tables(job: str, snapshot: Snapshot) -> dict[str, str]:
    """Return the tables that an import of a savepoint would create in a new lake."""
    tables: dict[str, str] = {}
    for operator in snapshot.operators:
        for path, (name, *_) in tables_of(job, operator).items():
            state = operator.state(name)
            tables[path] = _described(state.kind.value, name, operator.label, state.value_type)
        for part in operator.operator_states:
            path = operator_table(job, operator.label, part.name)
            kind = part.mode.name.lower()
            tables[path] = _described(kind, part.name, operator.label, part.value_type)
    return tables


def _described(kind: str, state: str, operator: str, value_type: str) -> str:
    if kind == StateKind.TIMERS.value:
        return printable(f"The timers of operator {operator!r}")
    kind = kind.replace("_", " ")
    return printable(f"The {kind} state {state!r} of operator {operator!r}: {value_type[:200]}")
