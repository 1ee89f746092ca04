"""What a check of a snapshot holds in memory, whatever number of key groups are damaged."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from statelake.state_core.formats.keyed import unified_file
from statelake.state_core.integrity import check_snapshot
from tests.support.lakes import golden
from tests.support.savepoints.damaged import damaged

PLAIN = "wordcount-hashmap-canonical-p2-m128-flink1.20.0"
SNAPPY = "wordcount-rocksdb-canonical-snappy-p2-m128-flink2.3.0"


@pytest.mark.parametrize("name", [PLAIN, SNAPPY])
def test_a_key_group_is_forgotten_with_its_fault(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is read into a window of megabytes: no more than two are there at a time."""
    alive = most = 0

    class Scanner(unified_file._Scanner):
        def __init__(self, *arguments: object) -> None:
            nonlocal alive, most
            super().__init__(*arguments)  # type: ignore[arg-type]
            alive += 1
            most = max(most, alive)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    monkeypatch.setattr(unified_file, "_Scanner", Scanner)
    snapshot = damaged(golden(name), tmp_path / "savepoint")
    for group in snapshot.groups(0):
        snapshot.change_group(0, group, lambda data: data[:-1])
    gc.collect()
    gc.disable()
    try:
        report = check_snapshot(snapshot.path)
    finally:
        gc.enable()
    assert len(report.faults) == len(snapshot.groups(0)) > 30
    assert alive == 0
    assert most <= 2
