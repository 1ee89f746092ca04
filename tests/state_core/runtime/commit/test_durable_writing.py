"""Files that are whole on the disk, whatever the file system grants."""

from __future__ import annotations

import errno
import fcntl
import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.runtime.commit import PosixDisk
from statelake.state_core.runtime.commit.stores import durable_writing
from statelake.state_core.runtime.commit.stores.durable_writing import BLOCK

CONTENT = bytes(range(256)) * (3 * BLOCK // 256) + b"the end"


def write_file(target: Path, chunks: list[bytes]) -> None:
    """Write a whole file as a host's disk does."""
    PosixDisk(target.parent).create(target.name, chunks)


@given(
    size=st.sampled_from(
        [0, 1, 4095, 4096, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 99]
    ),
    cuts=st.lists(st.integers(0, 2 * BLOCK + 99), max_size=6),
)
def test_any_content_in_any_pieces(
    tmp_path_factory: pytest.TempPathFactory, size: int, cuts: list[int]
) -> None:
    """A block's bounds leave no trace in the file."""
    target = tmp_path_factory.mktemp("any") / "file"
    bounds = sorted({0, size, *(cut for cut in cuts if cut < size)})
    write_file(target, [CONTENT[start:end] for start, end in pairwise(bounds)])
    assert target.read_bytes() == CONTENT[:size]


def test_what_was_there_is_gone(tmp_path: Path) -> None:
    """A longer file leaves nothing behind."""
    target = tmp_path / "file"
    write_file(target, [CONTENT])
    write_file(target, [b"short"])
    assert target.read_bytes() == b"short"


def test_a_file_system_that_refuses_direct_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so when it is asked: the file is written through the cache."""
    real = fcntl.fcntl

    def refuse(file: int, command: int, value: int = 0) -> int:
        if command == fcntl.F_SETFL and value & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no direct writing")
        return real(file, command, value)

    monkeypatch.setattr(durable_writing.fcntl, "fcntl", refuse)
    write_file(tmp_path / "file", [CONTENT])
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_file_system_that_refuses_too_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It grants direct writing and then takes none: what is left goes through the cache."""
    real = os.write
    refused = []

    def write(file: int, data: memoryview) -> int:
        if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT:
            refused.append(len(data))
            raise OSError(errno.EINVAL, "no direct writing")
        return real(file, data[:70_000])

    monkeypatch.setattr(durable_writing.os, "write", write)
    write_file(tmp_path / "file", [CONTENT])
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert refused


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said, and not taken for a refusal."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(durable_writing.os, "write", full)
    with pytest.raises(OSError, match="no space left"):
        write_file(tmp_path / "file", [CONTENT])
