"""Incremental RocksDB checkpoints of one job: each generation reads as Flink said it was.

Files are shared between generations, hold what later ones deleted or wrote over, and lie where
no handle says: the chain was copied whole, to a place that Flink never knew.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from statelake import open_snapshot
from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata
from statelake.state_core.model.handles import FileHandle, IncrementalHandle
from tests.support.savepoints.checkpoint_chains import (
    Chain,
    Moment,
    differences,
    golden_chain,
    vanished,
)
from tests.support.savepoints.expected_contents import contents_of, same_lines, tables_of

GENERATIONS = 6


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """The golden chain."""
    return golden_chain(tmp_path_factory.mktemp("chain") / "moved")


def assert_read(moment: Moment) -> None:
    """Assert that a snapshot holds what Flink says of it."""
    same_lines(contents_of("chain", tables_of(open_snapshot(moment.snapshot))), moment.held)


def shared_files(moment: Moment) -> set[str]:
    """The files that a checkpoint shares with others, by the paths that its handles have."""
    metadata = read_metadata((moment.snapshot / "_metadata").read_bytes())
    handles = [
        subtask.managed_keyed
        for operator in metadata.operators
        for subtask in (operator.subtasks or {}).values()
        if subtask.managed_keyed is not None
    ]
    assert len(handles) == 2
    assert all(isinstance(handle, IncrementalHandle) for handle in handles)
    return {
        stream.uri
        for handle in handles
        if isinstance(handle, IncrementalHandle)
        for _, stream in handle.shared
        if isinstance(stream, FileHandle)
    }


@pytest.mark.parametrize("generation", range(GENERATIONS))
def test_each_generation(generation: int, chain: Chain) -> None:
    """Values written over, lists appended to and replaced, maps shrunk, timers moved."""
    assert len(chain.checkpoints) == GENERATIONS
    assert_read(chain.checkpoints[generation])


@pytest.mark.parametrize("form", ["native", "canonical"])
def test_the_savepoints_are_the_last_generation(form: str, chain: Chain) -> None:
    """RocksDB's own files, and the unified format: both are what the last checkpoint is."""
    assert_read(chain.savepoints[form])
    same_lines(chain.savepoints[form].held, chain.checkpoints[-1].held)
    assert open_snapshot(chain.savepoints[form].snapshot).format == form


def test_it_is_a_chain(chain: Chain) -> None:
    """Generations share files, and each changed something of every kind."""
    files = [shared_files(checkpoint) for checkpoint in chain.checkpoints]
    assert all(
        files_of_one & other and files_of_one != other for files_of_one, other in pairwise(files)
    )
    changes = [differences(*pair) for pair in pairwise(chain.checkpoints)]
    for name in ("count", "log", "notes"):
        total = Counter[int]()
        for change in changes:
            total.update(dict(enumerate(change[name])))
        assert all(total[which] > 0 for which in range(3))


def test_deleted_keys_are_gone(chain: Chain) -> None:
    """A key that went is in no table, though files of the checkpoint still have its entries."""
    gone = vanished(chain)
    assert len(gone) > 10
    last = chain.checkpoints[-1]
    held = {line["key"] for line in last.held}
    tables = tables_of(open_snapshot(last.snapshot)).values()
    assert {key for table in tables for key in table["key"].to_pylist()} == held
    forever = gone - held
    assert forever
    shared = b"".join((last.snapshot.parent / "shared" / Path(uri).name).read_bytes()
                      for uri in shared_files(last))  # fmt: skip
    assert any(key.encode() in shared for key in forever)
