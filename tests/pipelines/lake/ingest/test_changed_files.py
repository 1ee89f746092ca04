"""Files that change, shrink or vanish while they are imported: an error that names the file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.state_core.errors import ChangedFileError, SnapshotError
from tests.support.engines import Interrupted
from tests.support.lakes import WORDS, entries, exported

JOB = "orders"


def replaced(file: Path) -> None:
    """Another file, as long as the one before."""
    data = file.read_bytes()
    file.unlink()
    file.write_bytes(data[::-1])


def shortened(file: Path) -> None:
    """The same file, cut off."""
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size // 2)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("change", [replaced, shortened, Path.unlink])
def test_a_file_is_not_what_it_was(
    change: Callable[[Path], None], when: str, tmp_path: Path
) -> None:
    """The import names it, and leaves no snapshot; when it is put right, the import comes through.

    A file that is gone when all of it was read is missed by nobody.
    """
    source, lake = tmp_path / "savepoint", Catalog(tmp_path / "lake")
    shutil.copytree(WORDS, source)
    file = max(source.iterdir(), key=lambda path: path.stat().st_size)
    engine = Interrupted(**{when: lambda: change(file)})
    if (when, change) == ("after", Path.unlink):
        import_snapshot(lake, str(source), JOB, snapshot_id="one", engine=engine)
    else:
        with pytest.raises(SnapshotError, match=str(file)) as told:
            import_snapshot(lake, str(source), JOB, snapshot_id="one", engine=engine)
        assert isinstance(told.value, ChangedFileError) == (change != Path.unlink)
        assert not lake.exists() or lake.summaries(JOB) == []
        shutil.copy(WORDS / file.name, file)
        import_snapshot(lake, str(source), JOB, snapshot_id="one")
    assert exported(lake, "one", tmp_path / "export") == entries(WORDS)
