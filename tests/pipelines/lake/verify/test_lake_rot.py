"""Damaged bytes in a lake: none is served as another value, none is lost without a word."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from statelake.pipelines.api import Lake
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.erase.audit_records import ERASE, add_record, audit_records
from statelake.pipelines.lake.ingest.import_slice import TableTarget
from statelake.pipelines.lake.tables.names import new_edited_file
from statelake.pipelines.lake.tables.parquet_seals import check_end
from statelake.pipelines.lake.tables.table_log import write_checkpoint
from statelake.pipelines.lake.tables.table_rows import table_rows
from statelake.pipelines.lake.verify import lake_checking
from statelake.pipelines.lake.verify.lake_checking import check_lake
from statelake.state_core.errors import StateError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.model.handles import KeyGroupRange
from tests.support.command import Ran, run
from tests.support.lakes import WORDS, import_as, import_golden, raw_savepoint

FLIPS, READ_EVERY = 300, 10
JOB = "orders"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake with two snapshots of a job, the second of the same savepoint."""
    imports = [(name, WORDS) for name in ("monday", "tuesday")]
    import_golden(Catalog(tmp_path / "lake"), *imports, partitions=1)
    return tmp_path / "lake"


def files(lake: Path, pattern: str) -> list[Path]:
    """The files of a lake that match a pattern."""
    found = sorted(path for path in lake.glob(pattern) if path.is_file())
    assert found
    return found


@contextmanager
def flipped(path: Path, bit: int) -> Iterator[None]:
    """One bit of a file is another one."""
    data = path.read_bytes()
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << (bit % 8)
    path.write_bytes(damaged)
    yield
    path.write_bytes(data)


def newest_entry(lake: Path, table: str = "snapshots") -> Path:
    """The newest entry of a table's log."""
    return files(lake, f"{table}/_delta_log/*.json")[-1]


def ran(lake: Path, *words: str) -> Ran:
    """Run a command on the lake."""
    return run(*words, "--lake", lake)


@pytest.mark.parametrize("change", ["one byte", "another action"])
def test_a_damaged_entry_of_the_catalog_is_told_by_all_commands(
    change: str, lake: Path, tmp_path: Path
) -> None:
    """The older snapshots are not served as all there are, and nothing is written or deleted."""
    entry = newest_entry(lake)
    data = entry.read_bytes()
    at = data.index(b'"add"')
    damaged = data.replace(b'"add"', b'"afd"') if change != "one byte" else (
        data[: at + 1] + b"\x00" + data[at + 2 :]
    )  # fmt: skip
    entry.write_bytes(damaged)
    before = {path: path.read_bytes() for path in files(lake, "**/*")}
    job = ("--job", JOB)
    for words in (
        ("snapshots",),
        ("sql", "select count(*) from statelake.snapshots"),
        ("export", "--to", str(tmp_path / "out"), *job, "--snapshot", "monday"),
        ("import", str(WORDS), *job, "--snapshot", "wednesday"),
        ("drop", *job, "--snapshot", "monday", "--yes"),
        ("lake", "clean", "--yes"),
    ):
        done = ran(lake, *words)
        assert done.code == 3, (words, done)
        assert entry.name in done.err
        assert "at offset 0" in done.err
    assert {path: path.read_bytes() for path in files(lake, "**/*")} == before
    checked = ran(lake, "lake", "check", "--json")
    assert checked.code == 1
    (file,) = checked.json["damaged"]
    assert file["path"] == str(entry.relative_to(lake))


def test_a_damaged_value_is_served_by_no_command(lake: Path, tmp_path: Path) -> None:
    """One bit in a page: reading it is an error that names the file; the check says whose it is."""
    (path,) = files(lake, f"{JOB}/keyed/*/count/_data/**/*.parquet")
    name = str(path.relative_to(lake))
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(1)
    job = ("--job", JOB, "--snapshot", "monday")
    with flipped(path, 8 * (chunk.data_page_offset + chunk.total_compressed_size - 3)):
        for words, code in (
            (("sql", f"select * from {JOB}.counter.count"), 3),
            (("export", "--to", str(tmp_path / "out"), *job), 3),
            (("check", "integrity", *job), 1),
            (("check", "integrity", str(WORDS), *job), 1),
        ):
            done = ran(lake, *words)
            assert done.code == code, (words, done)
            assert path.name in done.out + done.err
        report = check_lake(str(lake))
        (file,) = report.damaged
        assert (file.path, file.snapshots) == (name, ["orders/monday", "orders/tuesday"])
        assert any(source.startswith(f"import {WORDS}") for source in file.sources)
    assert check_lake(str(lake)).sound


def test_an_import_keeps_no_damaged_file(lake: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The file is written anew for the new snapshot, which is sound, and then is the older's."""
    (path,) = files(lake, f"{JOB}/keyed/*/count/_data/**/*.parquet")
    damaged = bytearray(path.read_bytes())
    damaged[100] ^= 1
    path.write_bytes(damaged)
    done = ran(lake, "import", str(WORDS), "--job", JOB, "--snapshot", "wednesday")
    assert done.code == 0
    assert "written anew" in caplog.text
    opened = Lake(lake).job(JOB)
    assert opened["wednesday"].check_integrity() == []
    assert opened["monday"].check_integrity()
    (file,) = check_lake(str(lake)).damaged
    assert file.snapshots == ["orders/monday", "orders/tuesday"]
    assert "has the same rows, for another snapshot" in file.sources[0]


def without_seals(lake: Path) -> None:
    """Make a lake's data files those of an earlier version: without checksums and seals."""
    for path in files(lake, f"{JOB}/keyed/**/_data/**/*.parquet"):
        with path.open("rb") as file:
            rows = pq.read_table(file)
        pq.write_table(rows, path, compression="zstd", use_dictionary=False)


@pytest.mark.parametrize("damage", ["cut off", "another size", "footer", "gone", "none"])
def test_an_import_into_a_store_looks_at_the_ends_of_what_it_keeps(
    damage: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes and footers, in one read of 64 KiB at most; what is damaged there is not kept."""
    catalog = Catalog(lake)
    operator = next(each for each in catalog.latest("orders").operators if each.keyed_tables)
    table = operator.keyed_tables[0]
    rows = table_rows(str(lake), operator, table)
    unit = table.units[0]
    span = KeyGroupRange(unit.first, unit.last)
    target = TableTarget(table.path, "", (), rows)
    file = lake / table.path / unit.path
    data = bytearray(file.read_bytes())
    if damage == "footer":
        data[-60] ^= 1
    file.write_bytes(data[:-100] if damage == "cut off" else data + b"\0" * (damage[0] == "a"))
    if damage == "gone":
        file.unlink()
    reads = []

    def read(source: Any, size: int) -> None:
        reads.append(size)
        check_end(source, size)

    monkeypatch.setattr("statelake.pipelines.lake.tables.table_rows.check_end", read)
    monkeypatch.setattr(
        "statelake.pipelines.lake.tables.table_rows.table_directory", _as_in_a_store
    )
    assert target.keeps(span, unit.fingerprint) is (damage == "none")
    assert reads == [unit.size] * (damage != "gone")


def _as_in_a_store(lake: str, path: str) -> Directory:
    directory = Directory(Path(lake, path))
    directory.local = False
    return directory


def test_files_of_before_are_checked_by_their_fingerprints(
    lake: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A value that is another one is told, though nothing in the file says so."""
    record = Catalog(lake).snapshot(JOB, "tuesday")
    (path,) = files(lake, f"{JOB}/keyed/*/count/_data/**/*.parquet")
    with path.open("rb") as file:
        rows = pq.read_table(file)
    at = rows.schema.get_field_index("value")
    values = rows.column(at).to_pylist()
    values[3] += 1
    changed = rows.set_column(at, rows.schema.field(at), [values])
    pq.write_table(changed, path, compression="zstd", use_dictionary=False)
    faults = Lake(lake).job(JOB)["tuesday"].check_integrity()
    name = f"{record.tables[0].path}/{record.tables[0].units[0].path}"
    assert faults == [f"{name}: its rows are not those of its fingerprint"]
    problems = {file.path: file.problem for file in check_lake(str(lake)).damaged}
    assert list(problems) == [name]
    done = ran(lake, "import", str(WORDS), "--job", JOB, "--snapshot", "wednesday")
    assert done.code == 0
    assert "its rows are not those of its fingerprint" in caplog.text
    assert Lake(lake).job(JOB)["wednesday"].check_integrity() == []


def test_whole_files_of_before_are_kept(lake: Path) -> None:
    """Their rows have the fingerprints, so an import does not write them again."""
    data = {path: path.stat().st_size for path in files(lake, f"{JOB}/keyed/**/*.parquet")}
    record = Catalog(lake).snapshot(JOB, "tuesday")
    without_seals(lake)
    assert import_as(Catalog(lake), WORDS, "wednesday").tables == record.tables
    assert data.keys() == set(files(lake, f"{JOB}/keyed/**/*.parquet"))


def test_a_check_that_was_stopped_goes_on(lake: Path, tmp_path: Path) -> None:
    """Files that were found whole are not read again, and at the end nothing is left."""
    resume = tmp_path / "checked"
    done: list[int] = []

    def stop(so_far: int, _: int) -> None:
        done.append(so_far)
        if len(done) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_lake(str(lake), resume, stop)
    assert len(resume.read_text("utf-8").splitlines()) == 3
    report = check_lake(str(lake), resume)
    assert report.sound
    assert report.files == check_lake(str(lake)).files
    assert not resume.exists()


def test_what_is_missing_is_told(lake: Path) -> None:
    """A file that a snapshot has, and an entry between others."""
    (path,) = files(lake, f"{JOB}/keyed/*/count/_data/**/*.parquet")
    entry = files(lake, "snapshots/_delta_log/*.json")[1]
    for gone in (path, entry):
        gone.unlink()
        missing = [
            file.path for file in check_lake(str(lake)).damaged if file.problem == "it is not there"
        ]
        assert missing == [str(gone.relative_to(lake))]


def test_what_a_command_had_not_finished_is_no_damage(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a file that no log names: its writer was killed, or is at it; others are damaged."""
    row = files(lake, "snapshots/job=orders/*")[0]
    unit = files(lake, "orders/**/_data/*/*/*.parquet")[0]
    next_version = int(newest_entry(lake).stem) + 1
    for place in (
        row.with_name(new_edited_file(next_version)), row.with_name(new_edited_file(1)),
        unit.parents[1].with_name("0123456789abcdef") / unit.parent.name / unit.name,
    ):  # fmt: skip
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(row.read_bytes()[:-30])
    assert check_lake(str(lake)).sound
    for named in (row, unit):
        whole = named.read_bytes()
        named.write_bytes(whole[:-30])
        found = {file.path for file in check_lake(str(lake)).damaged}
        assert named.relative_to(lake).as_posix() in found
        named.write_bytes(whole)
    fault = lake_checking._LakeCheck._fault

    def finished(self: Any, path: str) -> tuple[str, bool]:
        found = fault(self, path)
        unit.write_bytes(whole)  # by its writer, and then it is named
        return found

    unit.write_bytes(whole[:-30])
    monkeypatch.setattr(lake_checking._LakeCheck, "_fault", finished)
    assert check_lake(str(lake)).sound


def test_what_was_dropped_meanwhile_is_not_missing(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot that the check had read, and whose files are deleted before it looks for them."""
    read = lake_checking._LakeCheck._read_catalog

    def dropping(self: Any) -> None:
        read(self)
        assert ran(lake, "drop", "--job", JOB, "--keep", "0", "--yes").code == 0

    monkeypatch.setattr(lake_checking._LakeCheck, "_read_catalog", dropping)
    monkeypatch.setattr(lake_checking._LakeCheck, "_check_files", lambda *_: None)
    monkeypatch.setattr(lake_checking, "_is_checked", lambda _: False)  # none was there yet
    assert check_lake(str(lake)).sound


def tables_of(lake: Path) -> list[str]:
    """The tables of a lake's job, as SQL names them."""
    rows = Lake(lake).sql("select distinct operator, state from statelake.tables")
    return sorted(f'"{row["operator"]}"."{row["state"]}"' for row in rows.read_all().to_pylist())


def contents(lake: Path, tables: list[str]) -> object:
    """All that a lake serves: its snapshots, their rows, its records of erasures."""
    opened = Lake(lake)
    records, bad = opened.catalog.records()
    if bad:
        raise bad[0].error
    rows = [
        opened.sql(f"select * from {table}", as_of=record.snapshot_id, job=JOB)
        .read_all()
        .to_pylist()
        for record in records
        for table in tables
    ]
    # values that are no numbers are not equal to themselves
    return repr((records, rows, audit_records(opened.catalog)))


def is_kept_for_people(path: Path) -> bool:
    """Whether a file is of no snapshot and of no log: it says nothing that is served."""
    return path.name == "reserve" or "alive" in path.parts


@pytest.fixture(scope="module")
def many_kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with files of all kinds: also carried ones, records of an erasure, a checkpoint."""
    root = tmp_path_factory.mktemp("kinds")
    lake = Catalog(root / "lake")
    raw = raw_savepoint(root / "raw")
    for number in range(2):
        import_as(lake, raw, f"raw-{number}", JOB, partitions=1)
    add_record(lake, ERASE, "gdpr", "somebody", {"asked": "", "jobs": [JOB], "only": []})
    write_checkpoint(lake.directory.child("snapshots"))
    return root / "lake"


def swept() -> list[object]:
    """The numbers of the sweep: 10,200 bits, in parts of which all but one are nightly."""
    return [
        pytest.param(number, marks=[pytest.mark.nightly] * (number > 0)) for number in range(34)
    ]


@pytest.mark.parametrize("seed", swept())
@pytest.mark.full
def test_no_bit_is_served_as_another_value_or_lost(seed: int, many_kinds: Path) -> None:
    """Each one is told by `lake check`, by its file, and reading is an error or as before."""
    paths = [path for path in files(many_kinds, "**/*") if not is_kept_for_people(path)]
    kinds: dict[str, list[Path]] = {}
    for path in paths:
        folder = path.relative_to(many_kinds).parts
        kinds.setdefault(f"{folder[0]} {'_delta_log' in folder} {path.suffix}", []).append(path)
    whole = {path: path.read_bytes() for path in paths}
    tables = tables_of(many_kinds)
    expected = contents(many_kinds, tables)
    assert check_lake(str(many_kinds)).sound
    chance = random.Random(seed)
    for number in range(FLIPS):
        path = chance.choice(chance.choice(list(kinds.values())))
        bit = chance.randrange(path.stat().st_size * 8)
        where = f"{path.relative_to(many_kinds)}, bit {bit}"
        with flipped(path, bit):
            damaged = [file.path for file in check_lake(str(many_kinds)).damaged]
            assert str(path.relative_to(many_kinds)) in damaged, where
            if number % READ_EVERY == 0:
                with suppress(StateError):
                    assert contents(many_kinds, tables) == expected, where
        for gone in (path for path in paths if not path.exists()):  # of a checkpoint
            gone.write_bytes(whole[gone])
    assert contents(many_kinds, tables) == expected
