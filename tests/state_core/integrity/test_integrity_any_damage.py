"""Any damage anywhere: a report, never another error; and what was not damaged is saved."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statelake.state_core.integrity import IntegrityReport, check_snapshot, salvage_snapshot
from tests.support.judging import check_sound, said, salvaged
from tests.support.lakes import golden
from tests.support.savepoints.damaged import Damaged, damaged
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases
from tests.support.savepoints.snapshot_damage import damages, inlined

pytestmark = pytest.mark.thinned(3)

ALWAYS = (
    "kinds-hashmap-canonical", "kinds-hashmap-native", "kinds-rocksdb-native",
    "operator-hashmap-canonical-snappy-p3-m128-flink2", "wordcount-rocksdb-canonical-snappy",
)  # fmt: skip
EVERY = [
    pytest.param(
        golden_case,
        id=golden_case.name,
        marks=() if golden_case.name.startswith(ALWAYS) else pytest.mark.full,
    )
    for golden_case in golden_cases()
]
KEYED = [
    "wordcount-hashmap-canonical-p2-m128-flink1.20.0",
    "wordcount-hashmap-native-p2-m128-flink2.3.0",
    "wordcount-rocksdb-canonical-snappy-p2-m128-flink2.3.0",
    "kinds-hashmap-canonical-p2-m128-flink2.3.0",
]
FILES = [
    "kinds-rocksdb-native-p2-m128-flink2.3.0",
    "operator-hashmap-canonical-p2-m128-flink2.3.0",
]
anything = settings(suppress_health_check=list(HealthCheck), deadline=None)


@cache
def in_one_file(case: GoldenCase) -> bytes:
    """The snapshot as a `_metadata` that holds all state."""
    return inlined(case)


def emptied(directory: Path) -> Path:
    """The directory, with nothing in it."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    return directory


@pytest.mark.parametrize("case", EVERY)
@anything
@given(data=st.data())
@pytest.mark.full
def test_metadata_and_state_in_one(case: GoldenCase, tmp_path: Path, data: st.DataObject) -> None:
    """Metadata, headers, entries: whatever is damaged, what is salvaged is sound."""
    whole = in_one_file(case)
    place = emptied(tmp_path / "damaged")
    (place / "_metadata").write_bytes(data.draw(damages(len(whole)))(whole))
    report = check_snapshot(place)
    said(report)
    shutil.rmtree(tmp_path / "salvaged", ignore_errors=True)
    done = salvage_snapshot(place, tmp_path / "salvaged")
    assert said(done.integrity) == said(report)
    if done.path is not None:
        check_sound(tmp_path / "salvaged", done)
        assert done.entries == report.checked.entries or done.lost


@pytest.mark.parametrize("name", KEYED)
@anything
@given(data=st.data())
@pytest.mark.full
def test_nothing_is_lost_outside_a_damaged_key_group(
    name: str, tmp_path: Path, data: st.DataObject
) -> None:
    """Some key groups are damaged: no other is in the report, and all of the others is saved."""
    for old in ("damaged", "salvaged"):
        shutil.rmtree(tmp_path / old, ignore_errors=True)
    one = damaged(golden(name), tmp_path / "damaged")
    count = data.draw(st.integers(1, 3))
    places = [(subtask, group) for subtask in (0, 1) for group in one.groups(subtask)]
    chosen = data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=count, unique=True))
    for subtask, group in chosen:
        _damage(one, subtask, group, data)
    report = check_snapshot(one.path)
    assert told(report) <= set(chosen)
    salvaged(one, *(group for _, group in chosen), told=False)


def told(report: IntegrityReport) -> set[tuple[int | None, int]]:
    """The subtasks and key groups with faults."""
    said(report)
    places = [fault.where for fault in report.faults]
    assert all(place.key_groups for place in places)
    return {
        (place.subtask, group)
        for place in places
        if place.key_groups is not None
        for group in range(place.key_groups.first, place.key_groups.last + 1)
    }


def _damage(damaged: Damaged, subtask: int, group: int, data: st.DataObject) -> None:
    """Damage a key group, and leave at least a byte: one of none is no key group."""
    begin, end = damaged.span(subtask, group)
    change = data.draw(damages(end - begin))
    damaged.change_group(subtask, group, lambda held: change(bytes(held)) or b"\0")


@pytest.mark.parametrize("name", FILES)
@anything
@given(data=st.data())
@pytest.mark.full
def test_any_file(name: str, tmp_path: Path, data: st.DataObject) -> None:
    """Any one file of a snapshot of many."""
    for old in ("damaged", "salvaged"):
        shutil.rmtree(tmp_path / old, ignore_errors=True)
    one = damaged(golden(name), tmp_path / "damaged")
    path = data.draw(st.sampled_from(sorted(one.path.iterdir())))
    path.write_bytes(data.draw(damages(path.stat().st_size))(path.read_bytes()))
    report = check_snapshot(one.path)
    done = salvage_snapshot(one.path, tmp_path / "salvaged")
    assert said(done.integrity) == said(report)
    if done.path is not None:
        check_sound(tmp_path / "salvaged", done)
