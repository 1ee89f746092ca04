"""Files of changes one by one: what they take of the system, and what they cost to read."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

import numpy as np
import pytest

from state_core.errors import SnapshotError
from state_core.files.compression import compress_snappy
from state_core.files.copies import Copies
from state_core.files.filesystem import InlineSource
from state_core.formats.keyed.change_files import ChangeFile

DESCRIPTORS = "/proc/self/fd"


def change_set(*changes: tuple[int, Sequence[bytes]]) -> bytes:
    """A change set of key groups and their changes."""
    pieces = [len(changes).to_bytes(4, "big")]
    for group, of_group in changes:
        pieces += [len(of_group).to_bytes(4, "big"), group.to_bytes(4, "big", signed=True)]
        for change in of_group:
            pieces += [len(change).to_bytes(4, "big"), change]
    return b"".join(pieces)


def compressed_log(number: int, copies: Copies) -> ChangeFile:
    """A compressed log whose only change is of the key group of that number."""
    content = change_set((number, [b"\1\0\0"]))
    data = b"\1" + bytes(compress_snappy(content))
    return ChangeFile(InlineSource(f"log-{number}", data), copies)


def test_copies_of_many_logs_are_one_open_file() -> None:
    """However many compressed logs a checkpoint has; each reads what is its own."""
    copies, before = Copies(), len(os.listdir(DESCRIPTORS))
    logs = [compressed_log(number, copies) for number in range(100)]
    assert len(os.listdir(DESCRIPTORS)) == before + 1
    assert [log.runs(0).groups.tolist() for log in logs] == [[number] for number in range(100)]
    with pytest.raises(SnapshotError, match="wanted"):
        logs[0].content.read_into(logs[0].content.size, np.empty(1, np.uint8))


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EMFILE])
def test_no_room_for_a_copy(fault: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said of which log, and what to do; there is room again, and nothing is amiss."""
    copies = Copies()
    compressed_log(1, copies)

    def refuse(*_: object) -> int:
        raise OSError(fault, os.strerror(fault))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", refuse)
        with pytest.raises(SnapshotError, match=os.strerror(fault)) as told:
            compressed_log(2, copies)
    assert (told.value.place, "TMPDIR" in told.value.remedy) == ("log-2", True)
    assert compressed_log(3, copies).runs(0).groups.tolist() == [3]
