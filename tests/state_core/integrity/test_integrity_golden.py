"""What real Flink wrote is sound: every golden snapshot, every format, every release."""

from __future__ import annotations

from pathlib import Path

import pytest

from statelake import open_snapshot
from statelake.state_core.integrity import check_snapshot, salvage_snapshot
from tests.support.lakes import entries
from tests.support.savepoints.checkpoint_chains import golden_chain
from tests.support.savepoints.expected_contents import contents_of, same_lines, tables_of
from tests.support.savepoints.golden_cases import GOLDEN, GoldenCase, golden_cases
from tests.support.savepoints.kryo_jobs import jdk_savepoint
from tests.support.savepoints.kryo_savepoint import KRYO_STATES, kryo_savepoint

pytestmark = pytest.mark.thinned(3)

CASES = [pytest.param(golden_case, id=golden_case.name) for golden_case in golden_cases()]
OLD = sorted(path.parent for path in (GOLDEN / "old").rglob("_metadata"))


@pytest.mark.parametrize("golden", CASES)
def test_all_of_it_is_checked(golden: GoldenCase) -> None:
    """No fault, and every entry was decoded and hashed: nothing but a coordinator's is left out."""
    report = check_snapshot(golden.snapshot)
    assert report.faults == ()
    assert report.sound
    checked = report.checked
    held = sum(len(entry) for entry in entries(golden.snapshot).values())
    assert checked.entries == checked.hashed == held
    assert checked.values <= held
    assert checked.handles > 0 < checked.size
    assert all("coordinator" in unchecked.why for unchecked in report.unchecked)


@pytest.mark.parametrize("golden", CASES)
def test_a_salvage_of_it_is_a_copy(golden: GoldenCase, tmp_path: Path) -> None:
    """Whatever the format was: the same entries, nothing lost, and sound."""
    done = salvage_snapshot(golden.snapshot, tmp_path / "salvaged")
    assert done.lost == ()
    assert entries(tmp_path / "salvaged") == entries(golden.snapshot)
    report = check_snapshot(tmp_path / "salvaged")
    assert report.sound
    assert (report.checked.entries, report.checked.elements) == (done.entries, done.elements)
    assert [path.name for path in tmp_path.iterdir()] == ["salvaged"]


@pytest.mark.parametrize("snapshot", OLD, ids=[path.parent.name for path in OLD])
def test_old_releases(snapshot: Path, tmp_path: Path) -> None:
    """Flink 1.8 to 1.17: sound, and so is a copy; raw timers are carried."""
    report = check_snapshot(snapshot)
    assert report.sound
    done = salvage_snapshot(snapshot, tmp_path / "salvaged")
    assert done.lost == ()
    again = check_snapshot(tmp_path / "salvaged")
    assert again.sound
    assert again.checked.entries == report.checked.entries > 0
    assert [unchecked.why for unchecked in again.unchecked] == [
        unchecked.why for unchecked in report.unchecked
    ]


@pytest.mark.full
def test_a_chain_of_incremental_checkpoints(tmp_path: Path) -> None:
    """Files that generations share, with what was deleted: sound, and saved as Flink saw them."""
    chain = golden_chain(tmp_path / "chain")
    for moment in chain.moments:
        report = check_snapshot(moment.snapshot)
        assert report.sound
        target = tmp_path / f"salvaged-{moment.snapshot.name}"
        assert salvage_snapshot(moment.snapshot, target).lost == ()
        same_lines(contents_of("chain", tables_of(open_snapshot(target))), moment.held)


def test_what_only_kryo_can_read(tmp_path: Path) -> None:
    """Values of Kryo's are no fault but listed, state by state, and saved as they are."""
    source = kryo_savepoint(tmp_path / "savepoint")
    report = check_snapshot(source)
    assert report.sound
    assert {unchecked.where.state for unchecked in report.unchecked} == set(KRYO_STATES)
    assert all("which are not decoded" in unchecked.why for unchecked in report.unchecked)
    assert report.checked.hashed == report.checked.entries > report.checked.values > 0
    assert salvage_snapshot(source, tmp_path / "salvaged").lost == ()
    assert entries(tmp_path / "salvaged") == entries(source)


@pytest.mark.parametrize("name", ["pojos-1.20", "pojos-native-1.20"])
def test_kryo_within_other_types(name: str, tmp_path: Path) -> None:
    """Every value is decoded, as by other commands: `_metadata` tells which Flink wrote it."""
    report = check_snapshot(jdk_savepoint(tmp_path / name, name))
    assert report.sound
    assert report.checked.entries == report.checked.values == 170
