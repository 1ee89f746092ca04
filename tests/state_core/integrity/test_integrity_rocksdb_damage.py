"""RocksDB's own files, damaged: the states that they hold are named, all others are read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from statelake.state_core.formats.keyed.rocksdb.rocksdb_native import RocksDBKeyedFile
from statelake.state_core.integrity import Fault, check_snapshot
from statelake.state_core.integrity.checking import check_and_keep
from statelake.state_core.model.handles import RelativeHandle, StreamHandle
from tests.support.judging import said, salvaged
from tests.support.lakes import entries, golden
from tests.support.savepoints.damaged import Damaged, damaged

KINDS = "kinds-rocksdb-native-p2-m128-flink2.3.0"
OF_FIRST = range(64)


def tables(damaged: Damaged) -> list[Path]:
    """The table files of the first subtask."""
    handle = damaged.rocksdb(0)
    named = sorted((*handle.shared, *handle.private))
    return [path_of(damaged, stream) for name, stream in named if name.endswith(".sst")]


def path_of(damaged: Damaged, stream: StreamHandle | None) -> Path:
    """Where a file lies."""
    assert isinstance(stream, RelativeHandle)
    return damaged.path / stream.path


def states_of(faults: tuple[Fault, ...]) -> set[str]:
    """The states that are named."""
    return {fault.where.state for fault in faults if fault.where.state}


def flip(damaged: Damaged, path: Path, at: int) -> None:
    """Change a byte of a file."""

    def change(data: bytearray) -> None:
        data[at % len(data)] ^= 0x5A

    damaged.change(path, change)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("at", [5, 300, -400, -1])
@pytest.mark.parametrize("number", [0, 3])
def test_a_byte_of_a_table(number: int, at: int, tmp_path: Path) -> None:
    """At most one state is touched, if it is not where nothing is read: its key groups are told."""
    one = damaged(golden(KINDS), tmp_path / "damaged", "kinds")
    flip(one, tables(one)[number], at)
    report = check_snapshot(one.path)
    assert {subtask for _, subtask, _ in said(report)} == {0}
    assert len(states_of(report.faults)) <= 1
    done = salvaged(one, *OF_FIRST)
    lost = states_of(report.faults)
    before, after = entries(one.origin), entries(tmp_path / "salvaged")
    assert {key[1] for key, rows in before.items() if rows != after.get(key)} <= lost
    assert {loss.where.state for loss in done.lost} == lost


def test_several_tables(tmp_path: Path) -> None:
    """Two states, each with its fault, and the file of each is named."""
    one = damaged(golden(KINDS), tmp_path / "damaged", "kinds")
    flip(one, tables(one)[1], 5)
    flip(one, tables(one)[4], 5)
    report = check_snapshot(one.path)
    assert len(states_of(report.faults)) == 2
    for table in (tables(one)[1], tables(one)[4]):
        assert any(table.name in str(fault) for fault in report.faults)
    salvaged(one, *OF_FIRST)


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    """The file, and the one state that was in it."""
    one = damaged(golden(KINDS), tmp_path / "damaged", "kinds")
    tables(one)[2].unlink()
    report = check_snapshot(one.path)
    assert said(report)[0] == ("file", 0, None)
    assert len(states_of(report.faults)) == 1
    salvaged(one, *OF_FIRST)


@pytest.mark.parametrize("name", ["MANIFEST", "CURRENT"])
def test_what_names_the_tables(name: str, tmp_path: Path) -> None:
    """Without it nobody knows what the tables are: one fault, and the subtask is lost."""
    one = damaged(golden(KINDS), tmp_path / "damaged", "kinds")
    handle = one.rocksdb(0)
    stream = next(s for n, s in (*handle.shared, *handle.private) if n.startswith(name))
    flip(one, path_of(one, stream), 4)
    report = check_snapshot(one.path)
    assert said(report) == [("file", 0, None)]
    done = salvaged(one, *OF_FIRST)
    assert [loss.where.subtask for loss in done.lost] == [0]


def test_a_meta_file_that_is_not_there(tmp_path: Path) -> None:
    """Without it nobody knows what the states are."""
    one = damaged(golden(KINDS), tmp_path / "damaged", "kinds")
    path_of(one, one.rocksdb(0).meta).unlink()
    report = check_snapshot(one.path)
    assert said(report) == [("file", 0, None)]
    salvaged(one, *OF_FIRST)


def test_a_local_name_that_leads_out(tmp_path: Path) -> None:
    """A file that would be put elsewhere is not."""
    one = damaged(golden(KINDS), tmp_path / "damaged", "kinds")
    handle = one.rocksdb(0)
    first, *rest = handle.private
    one.set_keyed(0, replace(handle, private=(("../../x.sst", first[1]), *rest)))
    report = check_snapshot(one.path)
    assert said(report) == [("file", 0, None)]
    assert "a RocksDB file called" in report.faults[0].problem
    salvaged(one, *OF_FIRST)


def test_sound_files_are_opened_strictly() -> None:
    """What is lenient is only for files of which something is known to be wrong."""
    examined = check_and_keep(golden(KINDS).snapshot)
    found = [source.file for held in examined.operators for source in held.keyed.values()]
    assert len(found) == 2
    assert all(isinstance(file, RocksDBKeyedFile) and not file.database.lenient for file in found)
