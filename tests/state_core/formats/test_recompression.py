"""Savepoints written again compressed, or not: the same entries, elements and everything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from statelake import open_snapshot
from statelake.state_core.errors import SnapshotError, UnsupportedFormatError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.metadata.checkpoint_metadata import CheckpointMetadata
from statelake.state_core.formats.rewriting import recompression
from statelake.state_core.formats.rewriting.recompression import recompress_snapshot
from statelake.state_core.formats.writing import writer
from tests.support.lakes import entries, files_of, golden, raw_savepoint
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

CANONICAL = [golden_case for golden_case in golden_cases() if "canonical" in golden_case.name]


def elements(savepoint: Path) -> list[tuple[str, str, list[list[bytes]]]]:
    """The elements of every operator state, subtask by subtask."""
    return [
        (operator.operator_id, state.name, [part.encoded() for part in state.parts])
        for operator in open_snapshot(savepoint).operators
        for state in operator.operator_states
    ]


@pytest.mark.parametrize("compression", ["snappy", "none"])
@pytest.mark.parametrize("case", CANONICAL, ids=lambda case: case.name)
def test_the_same_state(case: GoldenCase, compression: str, tmp_path: Path) -> None:
    """Every entry and element is there, in the frames that were asked for; so is all else."""
    done = recompress_snapshot(case.snapshot, tmp_path / "out", compression)
    before, after = open_snapshot(case.snapshot), open_snapshot(done.path)
    assert entries(tmp_path / "out") == entries(case.snapshot)
    assert elements(tmp_path / "out") == elements(case.snapshot)
    held = [f for operator in after.operators for f in operator.keyed_files]
    assert {file.compressed for file in held} <= {compression == "snappy"}
    for old, new in zip(before.operators, after.operators, strict=True):
        assert (old.operator_id, old.parallelism, old.max_parallelism, old.coordinator_bytes) == (
            new.operator_id, new.parallelism, new.max_parallelism, new.coordinator_bytes,
        )  # fmt: skip
    assert (after.checkpoint_id, after.metadata_version) == (
        before.checkpoint_id, max(3, before.metadata_version),
    )  # fmt: skip


@pytest.mark.parametrize("case", CANONICAL[:4], ids=lambda case: case.name)
def test_there_and_back(case: GoldenCase, tmp_path: Path) -> None:
    """Compressed twice is compressed once, and what is stored adds up to what was written."""
    once = recompress_snapshot(case.snapshot, tmp_path / "a", "snappy")
    twice = recompress_snapshot(tmp_path / "a", tmp_path / "b", "snappy")
    contents = [
        sorted(file.stat().st_size for file in (tmp_path / name).iterdir()) for name in ("a", "b")
    ]
    assert contents[0] == contents[1]
    for first, second in zip(once.states, twice.states, strict=True):
        assert first.after_bytes == pytest.approx(second.before_bytes)
        assert first.content_bytes == pytest.approx(second.content_bytes)
        assert first.ratio == pytest.approx(first.content_bytes / first.after_bytes)


@pytest.mark.parametrize("complete", [True, False])
def test_who_is_interrupted_leaves_a_store_with_a_whole_savepoint_or_none(
    complete: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files stay if `_metadata`, which names them, is there already."""
    store = MemoryFileSystem()
    monkeypatch.setattr(writer, "Directory", lambda place: Directory(place, store))
    target = writer.SavepointDirectory(f"/interrupted-{complete}")
    part = f"{target.attempt}part"
    target.directory.write(part, b"state")
    write = Directory.write

    def interrupted(directory: Directory, path: str, content: bytes) -> None:
        if complete:
            write(directory, path, content)
        raise KeyboardInterrupt

    monkeypatch.setattr(type(target.directory), "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        target.commit(CheckpointMetadata(3, 1, []))
    target.abandon()
    stored = sorted(path.rpartition("/")[2] for path in store.find(target.target.root))
    assert stored == (sorted([part, "_metadata"]) if complete else [])


def test_windows_are_framed_as_one_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key group that is cut into windows reads as one that is not."""
    source = golden("types-hashmap-canonical-p2-m128-flink2.3.0").snapshot
    monkeypatch.setattr(recompression, "WINDOW_BYTES", 64)
    recompress_snapshot(source, tmp_path / "a", "snappy")
    assert entries(tmp_path / "a") == entries(source)
    recompress_snapshot(tmp_path / "a", tmp_path / "b", "none")
    assert entries(tmp_path / "b") == entries(source)


def test_raw_state_is_copied(tmp_path: Path) -> None:
    """What only the job can read is there, byte for byte."""
    source = raw_savepoint(tmp_path / "raw")
    recompress_snapshot(source, tmp_path / "out", "snappy")
    opaque = files_of(source)["opaque"]
    assert opaque in files_of(tmp_path / "out").values()


def test_a_native_snapshot_is_refused(tmp_path: Path) -> None:
    """A backend's own format is not written; what to do instead is said, and nothing is left."""
    source = golden("kinds-rocksdb-native-p2-m128-flink2.3.0").snapshot
    with pytest.raises(UnsupportedFormatError, match="import it into a lake and export it"):
        recompress_snapshot(source, tmp_path / "out", "snappy")
    assert list(tmp_path.iterdir()) == []


def test_refusals(tmp_path: Path) -> None:
    """An unknown codec, and a directory that has something in it."""
    source = CANONICAL[0].snapshot
    with pytest.raises(UnsupportedFormatError, match="no codec 'zip'; choose one of: snappy"):
        recompress_snapshot(source, tmp_path / "out", "zip")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(SnapshotError, match="not empty"):
        recompress_snapshot(source, tmp_path / "out", "snappy")
