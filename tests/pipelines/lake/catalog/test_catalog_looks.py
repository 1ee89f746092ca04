"""Looks at a catalog: little is fetched, and nothing that is old is shown."""

from __future__ import annotations

import copy
import os
import pickle
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statelake.pipelines.lake.catalog import catalog_reader
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.catalog_reader import CatalogReader
from statelake.pipelines.lake.tables.tables import create_table
from statelake.state_core.errors import MissingFileError, UnsafePathError
from statelake.state_core.files.filesystem import ConfinedDirectory, Directory, FileSource


@pytest.fixture
def directory(tmp_path: Path) -> ConfinedDirectory:
    """A directory that is taken for one of an object store."""
    made = Directory(tmp_path / "table").confined()
    made.is_object_store = True
    return made


def test_a_lake_travels_between_processes(tmp_path: Path) -> None:
    """Pickled or copied it is the same lake, seen anew."""
    lake = Catalog(tmp_path)
    for again in (pickle.loads(pickle.dumps(lake)), copy.deepcopy(lake)):  # noqa: S301
        assert again.location == lake.location
        assert not again.exists()


def test_what_was_looked_at_last_is_kept(
    directory: ConfinedDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many bytes as there may be; the file that was not looked at for longest goes."""
    fetched = Counter[str]()

    def counted(self: ConfinedDirectory, path: str) -> FileSource:
        fetched[path] += 1
        return FileSource(self, path, 0, self.size(path))

    monkeypatch.setattr(type(directory), "source", counted)
    tables = {name: pa.table({"name": [name] * 100}) for name in "abcd"}
    monkeypatch.setattr(catalog_reader, "MOST_BYTES", 3 * tables["a"].nbytes)
    looks = CatalogReader(directory)
    directory.create()
    for name, table in tables.items():
        pq.write_table(table, directory.full(name))
    for name in "abcadab":
        with looks.opened(name, name) as rows:
            assert rows == tables[name]
    assert fetched == {"a": 1, "b": 2, "c": 1, "d": 1}


def test_a_file_on_a_disk_that_is_another_one_is_read_again(tmp_path: Path) -> None:
    """Or is refused, if it is a link now."""
    directory = Directory(tmp_path).confined()
    looks = CatalogReader(directory)
    for value in (1, 1, 22):
        pq.write_table(pa.table({"value": [value] * value}), tmp_path / "rows")
        with looks.opened("rows", "rows") as rows:
            assert rows.column("value").to_pylist() == [value] * value
    (tmp_path / "rows").rename(tmp_path / "elsewhere")
    (tmp_path / "rows").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafePathError), looks.opened("rows", "rows"):
        pass
    (tmp_path / "rows").unlink()
    with pytest.raises(MissingFileError), looks.opened("rows", "rows"):
        pass


def test_a_log_that_was_replaced_within_a_second(directory: ConfinedDirectory) -> None:
    """Times of S3 are whole seconds: another table of the same version is seen by its size."""
    entry = Path(directory.full("_delta_log/00000000000000000000.json"))
    looks = CatalogReader(directory)
    for names in (["old"], ["new", "longer"]):
        directory.delete_tree("_delta_log")
        create_table(directory, pa.schema([(name, pa.int64()) for name in names]))
        os.utime(entry, (1_000_000, 1_000_000))
        table = looks.newest()
        assert table is not None
        assert [field.name for field in table.schema().fields] == names


def test_a_log_on_a_disk_is_opened_again_if_a_file_of_it_is_another_one(tmp_path: Path) -> None:
    """As long as none is, there is one table; a log of the same names and sizes is another one."""
    directory = Directory(tmp_path / "table").confined()
    looks = CatalogReader(directory)
    assert looks.newest() is None
    create_table(directory, pa.schema([("old", pa.int64())]))
    table = looks.newest()
    assert table is not None
    assert looks.newest() is table
    (tmp_path / "table" / "_delta_log").rename(tmp_path / "away")
    assert looks.newest() is None
    create_table(directory, pa.schema([("new", pa.int64())]))
    entry, old = (
        folder / "00000000000000000000.json"
        for folder in (tmp_path / "table" / "_delta_log", tmp_path / "away")
    )
    os.utime(entry, ns=(old.stat().st_atime_ns, old.stat().st_mtime_ns))
    assert entry.stat().st_size == old.stat().st_size
    table = looks.newest()
    assert table is not None
    assert table.schema().fields[0].name == "new"
