"""Damaged and hostile snapshots: data or an error of ours, and memory as the file warrants."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statelake import open_snapshot
from statelake.state_core.errors import StateError
from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata, write_metadata
from tests.support.covering import values
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases
from tests.support.savepoints.snapshot_damage import LENGTHS, damages, inlined, read_everything

pytestmark = pytest.mark.thinned(8, by=values)

# RocksDB's files have tests of their own (test_rocksdb_damage.py): its own code reads them
READ_HERE = [
    golden_case
    for golden_case in golden_cases()
    if golden_case.facts["format"] == "canonical" or golden_case.facts["backend"] == "hashmap"
]
LARGEST = 32 << 20  # windows, blocks and tables of rows take some 10 MiB, whatever the file
CUTS = 24

every_case = pytest.mark.parametrize("golden", READ_HERE, ids=lambda case: case.name)


@cache
def whole(golden: GoldenCase) -> bytes:
    """The case as one file."""
    return inlined(golden)


def put(directory: Path, data: bytes) -> Path:
    """A snapshot that is this `_metadata` file."""
    (directory / "_metadata").write_bytes(data)
    return directory


def check_message(error: StateError) -> None:
    """One line that can be printed, which names a place and ends in what to do."""
    text = str(error)
    assert "\n" not in text
    assert text.encode()
    assert error.place
    assert error.remedy
    assert text.startswith(error.place.encode("unicode_escape").decode()[:20])


@every_case
def test_one_file_reads_as_many_do(golden: GoldenCase, tmp_path: Path) -> None:
    """Inlined, the undamaged snapshot is the same: what is damaged below is real."""
    assert read_everything(put(tmp_path, whole(golden))) == read_everything(golden.snapshot) > 0


@every_case
def test_files_that_were_cut_off(golden: GoldenCase, tmp_path: Path) -> None:
    """Any of the snapshot's files cut anywhere: the file that is too short is named."""
    copied = tmp_path / "snapshot"
    copied.mkdir()
    for path in golden.snapshot.iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    for path in copied.iterdir():
        data = path.read_bytes()
        for at in range(0, len(data), max(1, len(data) // CUTS)):
            path.write_bytes(data[:at])
            if path.name == "_metadata" and at >= len(data) - len(read_metadata(data).properties):
                open_snapshot(copied)  # what is cut off is only said for people
                continue
            with pytest.raises(StateError) as found:
                read_everything(copied)
            check_message(found.value)
            assert path.name in str(found.value)
        path.write_bytes(data)


@every_case
@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
@pytest.mark.full
def test_damaged_anywhere(golden: GoldenCase, tmp_path: Path, data: st.DataObject) -> None:
    """Bytes changed, taken out, put in, or moved, in metadata, headers and entries alike."""
    good = whole(golden)
    damage: Callable[[bytes], bytes] = data.draw(damages(len(good)))
    try:
        read_everything(put(tmp_path, damage(good)))
    except StateError as error:
        check_message(error)


@every_case
@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_state_damaged_behind_good_metadata(
    golden: GoldenCase, tmp_path: Path, data: st.DataObject
) -> None:
    """The same in a state file only, whose handle says the damaged size: nothing stops it early."""
    metadata = read_metadata(whole(golden))
    held = [
        stream
        for operator in metadata.operators
        for subtask in (operator.subtasks or {}).values()
        for handle in (subtask.managed_keyed, subtask.managed_operator)
        if (stream := getattr(handle, "stream", None)) is not None
    ]
    stream = data.draw(st.sampled_from(held))
    damage = data.draw(damages(len(stream.data)))
    object.__setattr__(stream, "data", damage(stream.data))
    try:
        read_everything(put(tmp_path, write_metadata(metadata)))
    except StateError as error:
        check_message(error)


@every_case
@pytest.mark.full
def test_lengths_that_lie(golden: GoldenCase, tmp_path: Path) -> None:
    """Huge and negative numbers anywhere: memory stays in proportion to the file."""
    good = whole(golden)
    read_everything(put(tmp_path, good))
    usual = pa.default_memory_pool()
    arrow = pa.proxy_memory_pool(usual)  # counts what this test takes alone
    peaks = []
    tracemalloc.start()
    pa.set_memory_pool(arrow)
    try:
        for turn, at in enumerate(range(8, len(good) - 4, max(1, len(good) // CUTS))):
            number = LENGTHS[turn % 2 * 3].to_bytes(4, "big", signed=True)
            if turn % 4:
                number = LENGTHS[-1 - turn % 3].to_bytes(4, "big", signed=True)
            tracemalloc.reset_peak()
            with suppress(StateError):
                read_everything(put(tmp_path, good[:at] + number + good[at + 4 :]))
            peaks.append(tracemalloc.get_traced_memory()[1])
    finally:
        pa.set_memory_pool(usual)
        tracemalloc.stop()
    assert max(peaks) < LARGEST
    assert arrow.max_memory() < 4 * LARGEST
