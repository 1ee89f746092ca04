"""State of Flink SQL's joins of more than two tables at once: each input has its types."""

from __future__ import annotations

import lzma
from pathlib import Path

from statelake import open_snapshot
from statelake.state_core.model.snapshot import StateKind
from tests.support.savepoints.golden_cases import GOLDEN


def test_each_input_is_a_map_of_rows(tmp_path: Path) -> None:
    """Rows by their unique key, or how often each is there if they have none."""
    packed = (GOLDEN / "multijoin" / "multijoin.metadata.xz").read_bytes()
    (tmp_path / "_metadata").write_bytes(lzma.decompress(packed))
    joins = [
        {state.name: state for state in operator.keyed_states}
        for operator in open_snapshot(tmp_path).operators
        if operator.name.startswith("MultiJoin")
    ]
    assert len(joins) == 3
    inputs = {f"multi-join-input-{number}" for number in range(3)}
    for states in joins:
        assert set(states) == inputs
        for state in states.values():
            assert state.kind is StateKind.MAP
            assert state.key_type == "RowData<BIGINT>"
            assert state.user_key_type.startswith("RowData<")
    values = {state.value_type for states in joins for state in states.values()}
    assert {"Integer", "RowData<BIGINT>", "RowData<BIGINT, DECIMAL(20, 2)>"} <= values | {
        state.user_key_type for states in joins for state in states.values()
    }
    rows = [state.to_arrow().num_rows for states in joins for state in states.values()]
    assert sorted(rows) == [5, 5, 5, 20, 20, 24, 24, 24, 24]
