"""The heaviest keys of a snapshot of the lake, by the bytes that Flink would write."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from statelake.pipelines.engine import Progress
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.tables.records import OperatorRecord
from statelake.pipelines.lake.tables.table_rows import chunks_of, group_sizes, table_rows
from statelake.state_core.formats.key_weights import Expiry, StateWeights
from statelake.state_core.formats.writing.unified_encode import encode_rows
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.key_groups import prefix_bytes

CHUNK_BYTES = 64 << 20


def weigh_recorded(
    lake: Catalog,
    operator: OperatorRecord,
    most: int,
    *,
    wanted: Collection[str] | None = None,
    until: Sequence[int] = (),
    progress: Progress | None = None,
) -> dict[str, StateWeights]:
    """Return the heaviest keys of each keyed state of an operator, including timers.

    Files are read some key groups at a time, and rows are encoded as in Flink: the result is that
    of `weigh_operator` for an exported savepoint.

    Args:
        lake: The lake.
        operator: The operator.
        most: The number of keys, and of lists or maps, to return for each state.
        wanted: The names of the states; all by default.
        until: Times in milliseconds since 1970, for `StateWeights.expiries`.
        progress: Called with (done, total) after each table.

    Raises:
        LakeError: A file can't be read.
    """
    groups = KeyGroupRange(0, operator.max_parallelism - 1)
    prefix = prefix_bytes(operator.max_parallelism)
    weights: dict[str, StateWeights] = {}
    tables = [table_rows(lake.location, operator, table) for table in operator.keyed_tables]
    for number, table in enumerate(tables, 1):
        states = [keyed for keyed in operator.states if keyed.table == table.path]
        sizes = group_sizes(states, operator.max_parallelism)
        names = {keyed.name for keyed in states if wanted is None or keyed.name in wanted}
        for _, table_state in table.states:
            described, layout = table.parse(table_state)
            if described.name in names:
                times = [Expiry(time) for time in until]
                weights[described.name] = StateWeights(layout, most, times)
        for chunk in chunks_of(sizes, groups, CHUNK_BYTES) if names else ():
            for rows in table.read(chunk):
                if rows.name in names:
                    weights[rows.name].add(encode_rows(rows, prefix))
        for name in names:
            weights[name].close()
        if progress is not None:
            progress(number, len(tables))
    return {keyed.name: weights[keyed.name] for keyed in operator.states if keyed.name in weights}
