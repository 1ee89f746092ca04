"""Entries are counted and hashed by state and key group."""

from __future__ import annotations

import numpy as np
import pytest

from statelake.state_core.errors import CorruptSnapshotError
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.measure import Measure


def entries(states: list[int], groups: list[int]) -> Entries:
    """Entries with a key and a value of two bytes each."""
    starts = np.arange(len(states), dtype=np.int64) * 4
    return Entries(
        np.arange(4 * len(states), dtype=np.uint8), np.array(states, np.int16),
        np.array(groups, np.int64), starts, starts + 2, starts + 2, starts + 4,
        lambda at: f"offset {at}",
    )  # fmt: skip


def test_entries_are_counted_by_state_and_key_group() -> None:
    """In key groups that do not begin with 0."""
    measure = Measure(["first", "second"], KeyGroupRange(4, 6))
    measure.add(entries([0, 1, 1], [4, 6, 6]))
    assert measure.counts("first").tolist() == [1, 0, 0]
    assert measure.counts("second").tolist() == [0, 0, 2]
    assert measure.sizes("second").tolist() == [0, 0, 8]


@pytest.mark.parametrize("fingerprints", [True, False])
@pytest.mark.parametrize(
    ("state", "group"), [(0, 3), (0, 7), (1, 3), (2, 4), (-1, 6), (0, -(1 << 62))]
)
def test_entries_of_other_states_or_key_groups_are_told(
    state: int, group: int, fingerprints: bool
) -> None:
    """Instead of being counted as others', or written where nothing of the sums is."""
    measure = Measure(["first", "second"], KeyGroupRange(4, 6), fingerprints=fingerprints)
    with pytest.raises(CorruptSnapshotError, match=f"offset 4: .*state {state} .*group {group},"):
        measure.add(entries([0, state], [4, group]))
    assert not measure.counts("first").any()
