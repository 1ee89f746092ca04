"""States as Arrow: any columns and key groups, as a table or stream, for other libraries too."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow import fs

from statelake import KeyGroupRange, open_snapshot
from statelake.state_core.errors import NotFoundError
from statelake.state_core.model.handles import ranges_of
from statelake.state_core.model.snapshot import KeyedState, OperatorState
from tests.support.lakes import golden
from tests.support.savepoints.golden_cases import golden_cases

pytestmark = pytest.mark.thinned(12)

STATES = [
    pytest.param(state, id=f"{case.name}-{operator.label}-{state.name}")
    for case in golden_cases()
    if case.name.startswith(("kinds-", "wordcount-hashmap", "types-hashmap"))
    for operator in open_snapshot(case.snapshot).operators
    for state in operator.keyed_states
]


@pytest.fixture
def count(wordcount: Path) -> KeyedState:
    """A value state of 300 keys."""
    (operator,) = (op for op in open_snapshot(wordcount).operators if op.keyed_states)
    return operator.keyed_states[0]


@pytest.mark.parametrize("state", STATES)
def test_any_columns_in_any_order_are_those_of_the_whole(state: KeyedState) -> None:
    """Decoding some columns gives what decoding all of them and selecting gives."""
    whole = state.to_arrow(threads=1)
    names = state.schema.names
    for columns in ([names[-1]], names[::-1], ["key_group"], ["key"], names[2:4]):
        selected = repr(whole.select(columns).to_pylist())  # NaN equals itself only as text
        assert repr(state.to_arrow(columns=columns, threads=2).to_pylist()) == selected
        assert repr(state.to_batch_reader(columns=columns).read_all().to_pylist()) == selected


def test_a_column_that_is_not_there_is_named(count: KeyedState) -> None:
    """The error says which columns there are."""
    with pytest.raises(NotFoundError, match=r"no column 'nothing'; there are: key_group, key, "):
        count.to_arrow(columns=["key", "nothing"])
    with pytest.raises(NotFoundError, match="nothing"):
        count.to_batch_reader(columns=["nothing"])


@pytest.mark.parametrize(
    "key_groups",
    [7, KeyGroupRange(3, 90), range(40), {1, 2, 3, 60, 127}, [5, 4, 99], [], [500]],
    ids=str,
)
def test_key_groups_are_one_a_range_or_any_number(
    count: KeyedState, key_groups: int | KeyGroupRange | list[int]
) -> None:
    """The rows are those of the key groups named, and no others."""
    if isinstance(key_groups, KeyGroupRange):
        wanted = list(range(key_groups.first, key_groups.last + 1))
    else:
        wanted = [key_groups] if isinstance(key_groups, int) else list(key_groups)
    whole = count.to_arrow(threads=1)
    expected = whole.filter(pc.is_in(whole["key_group"], pa.array(wanted, pa.int32())))
    for table in (
        count.to_arrow(key_groups),
        count.to_arrow(key_groups=key_groups, threads=1),
        count.to_batch_reader(key_groups=key_groups).read_all(),
    ):
        assert table.sort_by("key").equals(expected.sort_by("key"))


def test_key_groups_become_ascending_ranges() -> None:
    """Neighbours are put together, duplicates count once."""
    assert ranges_of([9, 3, 4, 5, 3]) == [KeyGroupRange(3, 5), KeyGroupRange(9, 9)]
    assert ranges_of([]) == []


def test_other_libraries_take_a_state_as_it_is(count: KeyedState) -> None:
    """PyArrow, Polars and DuckDB read a state without being told what it is."""
    table = count.to_arrow()
    assert pa.table(count).equals(table)
    assert pl.DataFrame(count)["key"].to_list() == table["key"].to_pylist()
    rows = duckdb.sql("SELECT count(*), sum(key_group) FROM count").fetchall()
    assert rows == [(300, pc.sum(table["key_group"]).as_py())]


def test_a_snapshot_opens_in_any_file_system_of_arrow_or_fsspec(
    wordcount: Path, count: KeyedState
) -> None:
    """A path within a file system that the caller has opened."""
    below = fs.SubTreeFileSystem(str(wordcount.parents[1]), fs.LocalFileSystem())
    path = f"{wordcount.parent.name}/{wordcount.name}"
    memory = MemoryFileSystem()
    memory.put(str(wordcount), "/savepoint", recursive=True)
    for location, filesystem in (
        (path, below),
        ("/savepoint", memory),
        (wordcount, fs.LocalFileSystem()),
    ):
        snapshot = open_snapshot(location, filesystem=filesystem)
        (operator,) = (op for op in snapshot.operators if op.keyed_states)
        assert operator.keyed_states[0].to_arrow().equals(count.to_arrow())


def test_operator_state_is_read_the_same_way() -> None:
    """Columns by name, a stream, and Arrow's interface, for lists and broadcast states alike."""
    snapshot = golden("operator-hashmap-canonical-p2-m128-flink2.3.0").snapshot
    states: list[OperatorState] = [
        state
        for operator in open_snapshot(snapshot).operators
        for state in operator.operator_states
    ]
    assert states
    for state in states:
        whole = state.to_arrow()
        assert state.to_arrow(columns=["value"]).equals(whole.select(["value"]))
        assert pa.table(state).equals(whole)
        with pytest.raises(NotFoundError, match="no column 'nothing'"):
            state.to_arrow(columns=["nothing"])
