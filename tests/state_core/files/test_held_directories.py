"""Directories of living and of dead processes: told by the system's locks alone."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from statelake.state_core.files import held_directories
from statelake.state_core.files.held_directories import (
    EXPORT_PREFIX,
    LOG_PREFIX,
    SQL_PREFIX,
    HeldDirectory,
    held_temporary,
    left_directories,
    left_exports,
    remove_left,
    stale_temporary_directories,
)

HOLDER = """
import sys
from statelake.state_core.files.held_directories import HeldDirectory
held = HeldDirectory(sys.argv[1], ".part")
print(held.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a directory, until it is killed."""
    words = [sys.executable, "-c", HOLDER, f"{tmp_path}/to."]
    with subprocess.Popen(words, stdin=-1, stdout=-1, text=True) as process:
        yield process
        process.kill()


def test_only_what_a_dead_process_held_is_left(
    tmp_path: Path, other: subprocess.Popen[str]
) -> None:
    """Neither what this process holds, nor what another does while it lives."""
    assert other.stdout is not None
    theirs = other.stdout.readline().strip()
    Path(theirs, "file").write_text("theirs")
    ours = HeldDirectory(f"{tmp_path}/to.", ".part")
    assert left_directories(f"{tmp_path}/to.", ".part") == []
    assert not remove_left(theirs)
    assert not remove_left(ours.path)
    other.kill()
    other.wait()
    assert left_directories(f"{tmp_path}/to.", ".part") == [theirs]
    assert remove_left(theirs)
    assert [str(path) for path in tmp_path.iterdir()] == [ours.path]


def test_unfinished_savepoints_of_dead_processes_are_found(tmp_path: Path) -> None:
    """Whatever was to be written there; other names, and what is held, stay."""
    held, released = (HeldDirectory(f"{tmp_path}/{name}.", ".part") for name in ("here", "gone"))
    for name in ("monday", "monday.part", "monday.0000000g.part", ".00000000.part"):
        (tmp_path / name).mkdir()
    released.release()
    assert left_exports(str(tmp_path)) == [released.path]
    assert left_exports(f"{tmp_path}/no") == []
    held.release()


def test_what_is_released_may_be_removed(tmp_path: Path) -> None:
    """And what is named otherwise, is a file or is a link never is."""
    held = HeldDirectory(f"{tmp_path}/to.", ".part")
    for name in ("to.0000000g.part", "to.00000000", "other.00000000.part"):
        (tmp_path / name).mkdir()
    (tmp_path / "to.00000000.part").write_text("a file")
    (tmp_path / "to.11111111.part").symlink_to(tmp_path / "to.00000000")
    held.release()
    assert left_directories(f"{tmp_path}/to.", ".part") == [held.path]


def test_a_directory_that_was_taken_for_left_at_once_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its making and its locking another process may remove it."""
    lock, tries = held_directories._held, []

    def late(path: str) -> int | None:
        tries.append(path)
        if len(tries) == 1:
            assert remove_left(path)
        return lock(path)

    monkeypatch.setattr(held_directories, "_held", late)
    held = HeldDirectory(f"{tmp_path}/to.")
    assert len(tries) == 2
    assert [str(path) for path in tmp_path.iterdir()] == [held.path]
    assert left_directories(f"{tmp_path}/to.") == []


def test_without_locks_nothing_is_taken_for_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS, which locks no directory."""

    def refused(*_: object) -> None:
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr(held_directories.fcntl, "flock", refused)
    held = HeldDirectory(f"{tmp_path}/to.")
    held.release()
    assert left_directories(f"{tmp_path}/to.") == []
    assert Path(held.path).is_dir()


def test_temporary_directories_of_dead_processes_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of exports, logs and queries; one that is used with `with` is removed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with held_temporary(EXPORT_PREFIX) as directory:
        Path(directory, "file").write_text("")
        assert stale_temporary_directories() == []
    assert list(tmp_path.iterdir()) == []
    dead = [held_temporary(prefix) for prefix in (EXPORT_PREFIX, LOG_PREFIX, SQL_PREFIX)]
    for held in dead:
        held.release()
    assert stale_temporary_directories() == [held.path for held in dead]
    assert stale_temporary_directories(LOG_PREFIX) == [dead[1].path]
