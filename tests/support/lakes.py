"""What tests of the lake look at: files and their digests, entries as bytes, tables as engines do.

A test that claims that nothing changed compares `files_of` before and after; one that claims that
a savepoint holds what another does compares their `entries`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from statelake import open_snapshot
from statelake.pipelines.engine import LocalEngine
from statelake.pipelines.lake.catalog.catalog import RESERVE, Catalog, CatalogChange
from statelake.pipelines.lake.catalog.catalog_rows import rows_without
from statelake.pipelines.lake.catalog.claims import Claims
from statelake.pipelines.lake.edit.committing import commit_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest import large_slice_tasks, large_slices
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.tables.log_entries import entry_bytes
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.pipelines.lake.tables.tables import StateTable
from statelake.pipelines.requests.imports import Import
from statelake.state_core.formats.keyed import unified_file
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    SubtaskState,
    read_metadata,
    write_metadata,
)
from statelake.state_core.model.handles import OperatorHandle, RelativeHandle
from tests.support.savepoints.golden_cases import GOLDEN, GoldenCase, golden_cases

__all__ = [
    "DEMO",
    "KINDS",
    "LOCAL",
    "WIDE",
    "WINDOWS",
    "WORDS",
    "Contents",
    "add_row",
    "assert_shown",
    "assert_whole",
    "data_bytes",
    "edit",
    "edited_savepoint",
    "entries",
    "exported",
    "files_of",
    "forge_claim",
    "golden",
    "import_as",
    "import_golden",
    "kept_files",
    "raw_savepoint",
    "remove_rows",
    "rows_of",
    "sorted_rows",
    "tiny_pieces",
    "unit_paths",
]

Contents: TypeAlias = "dict[tuple[str, str], list[tuple[int, bytes, bytes]]]"

LOCAL = LocalEngine()
CATALOG_LOG = "snapshots/_delta_log/"
FLINK = GOLDEN / "flink"
DEMO = GOLDEN.parents[1] / "pipelines" / "cli" / "demo" / "savepoints"
WORDS = FLINK / "wordcount-rocksdb-canonical-snappy-p2-m128-flink2.3.0" / "savepoint"
WIDE = FLINK / "wordcount-hashmap-canonical-p2-m1024-flink2.3.0" / "savepoint"
WINDOWS = FLINK / "windows-hashmap-canonical-p2-m128-flink2.3.0" / "savepoint"
KINDS = FLINK / "kinds-rocksdb-canonical-snappy-p3-m128-flink2.3.0" / "savepoint"


def golden(name: str) -> GoldenCase:
    """The golden snapshot of that folder."""
    (found,) = (golden_case for golden_case in golden_cases() if golden_case.name == name)
    return found


def files_of(root: Path) -> dict[str, str]:
    """The digest of every file below, by its path."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def kept_files(lake: Catalog) -> dict[str, str]:
    """`files_of` a lake but for the catalog's log, where commands say that they begin and end.

    What they reserve for a full disk is left out as well.
    """
    files = files_of(Path(lake.directory.root))
    return {
        path: digest
        for path, digest in files.items()
        if not path.startswith(CATALOG_LOG) and path != RESERVE
    }


def data_bytes(root: Path) -> int:
    """The bytes of all state files of a lake, and of what it carries."""
    held = [path for name in ("_data", "carried") for path in root.rglob(f"{name}/**/*")]
    return sum(path.stat().st_size for path in held if path.is_file())


def raw_savepoint(to: Path, source: Path | None = None) -> Path:
    """A savepoint whose first operator has raw state beside the rest: no golden job has any."""
    operator_states = golden("operator-hashmap-canonical-p2-m128-flink2.3.0").snapshot
    shutil.copytree(source or operator_states, to)
    (to / "opaque").write_bytes(b"only the job can read this")
    path = to / "_metadata"
    metadata = read_metadata(path.read_bytes())
    handle = OperatorHandle({}, RelativeHandle("opaque", (to / "opaque").stat().st_size))
    for index in range(metadata.operators[0].parallelism):
        subtasks = metadata.operators[0].subtasks
        assert subtasks is not None
        subtasks.setdefault(index, SubtaskState()).raw_operator = handle
    path.write_bytes(write_metadata(metadata))
    return to


def entries(savepoint: Path, uids: Iterable[str] = ()) -> Contents:
    """Key group, key and value of every entry, sorted, by operator id and state."""
    found: Contents = {}
    for operator in open_snapshot(savepoint, uids=tuple(uids)).operators:
        for state in operator.keyed_states:
            found[operator.operator_id, state.name] = []
        for file in operator.keyed_files:
            for batch in file.entries():
                data = batch.data.tobytes()
                places = (
                    batch.state_of, batch.group_of, batch.key_start, batch.key_end,
                    batch.value_start, batch.value_end,
                )  # fmt: skip
                for state_id, group, key, key_end, value, value_end in zip(
                    *(place.tolist() for place in places), strict=True
                ):
                    name = file.states[state_id].name
                    found[operator.operator_id, name].append(
                        (group, data[key:key_end], data[value:value_end])
                    )
    return {name: sorted(held) for name, held in found.items()}


def import_as(
    lake: Catalog, source: Path, snapshot_id: str, job: str = "orders", **options: Any
) -> SnapshotRecord:
    """Import a snapshot under a name, here."""
    engine, progress = options.pop("engine", LOCAL), options.pop("progress", None)
    return import_snapshot(
        lake, str(source), job, Import(**options), snapshot_id=snapshot_id, engine=engine,
        progress=progress,
    ).record  # fmt: skip


def demo_lake(path: Path, job: str = "demo") -> Path:
    """A lake with both savepoints of the demo, as two snapshots of a job."""
    for name in ("monday", "tuesday"):
        import_as(Catalog(path), DEMO / name, name, job)
    return path


# lakes that were made of golden snapshots: what is made once is copied
_GOLDEN_LAKES: dict[str, TemporaryDirectory[str]] = {}


def import_golden(
    lake: Catalog, *imports: tuple[str, Path], job: str = "orders", **options: Any
) -> Catalog:
    """Import golden snapshots, one after another, into a lake that is not there yet.

    The same imports are done once: a lake can be moved, so that the next one is a copy. For tests
    of what becomes of a lake, not of importing.

    Args:
        lake: Where they are to be.
        imports: The name in the lake and the place of each; nobody changes what is there.
        job: The job whose snapshots they are.
        options: Of the import.

    Returns:
        The lake.
    """
    made_of = repr((imports, job, options))
    if made_of not in _GOLDEN_LAKES:
        directory = TemporaryDirectory(prefix="golden-lake-")
        for name, source in imports:
            import_as(Catalog(Path(directory.name) / "lake"), source, name, job, **options)
        _GOLDEN_LAKES[made_of] = directory
    shutil.copytree(Path(_GOLDEN_LAKES[made_of].name) / "lake", lake.directory.root)
    return lake


def add_row(lake: Catalog, record: SnapshotRecord) -> None:
    """Add a row to the catalog, be there files of it or not."""
    lake.transact(lambda _: CatalogChange(added=record), create=True)


def remove_rows(lake: Catalog, job: str, snapshot_ids: list[str]) -> None:
    """Take rows out of the catalog; their files stay."""
    edits = {job: partial(rows_without, job, snapshot_ids)}
    lake.transact(lambda _: CatalogChange(edits=edits))


def forge_claim(lake: Path, key: str, text: str | None) -> None:
    """Give a lake's catalog a property past all rules, as anybody could; None takes it out."""
    log = lake / "snapshots" / "_delta_log"
    entries = sorted(log.glob("*.json"))
    actions = [json.loads(line) for path in entries for line in path.read_text().splitlines()]
    metadata = [action["metaData"] for action in actions if "metaData" in action][-1]
    properties = {**metadata["configuration"], key: text}
    metadata["configuration"] = {
        name: said for name, said in properties.items() if said is not None
    }
    entry = log / f"{int(entries[-1].stem) + 1:020}.json"
    entry.write_text(json.dumps({"metaData": metadata}), "utf-8")


def forge_entry(entry: Path, change: Callable[[str], str]) -> None:
    """Change an entry of a log, as whoever wrote it: its digest is of what it has then."""
    actions = map(json.loads, change(entry.read_text("utf-8")).splitlines())
    entry.write_bytes(entry_bytes(actions))


def exported(
    lake: Catalog, snapshot_id: str, to: Path, job: str = "orders", **options: Any
) -> Contents:
    """Export a snapshot, here, and say what the savepoint holds."""
    export_snapshot(lake, job, snapshot_id, to, engine=LOCAL, **options)
    return entries(to)


def edit(lake: Catalog, table: str) -> DeltaTable:
    """The latest version of a table, for whoever changes it."""
    return DeltaTable(lake.table(table).uri)


def edited_savepoint(source: Path, to: Path, *edits: tuple[str, str, dict[str, str]]) -> Path:
    """A savepoint like `source`, but for what the edits change.

    Args:
        source: The savepoint.
        to: Where the other is to be.
        edits: `operator/state`, which rows, and the new values of columns; without any the rows
            are deleted.
    """
    lake = Catalog(to.with_name(f"{to.name}-lake"))
    import_as(lake, source, "before")
    for table, where, updates in edits:
        held = edit(lake, f"orders/keyed/{table}")
        if updates:
            held.update(updates, predicate=where)
        else:
            held.delete(where)
    commit_snapshot(ChildSnapshot(lake, "orders", "before", "after", engine=LOCAL))
    export_snapshot(lake, "orders", "after", to, engine=LOCAL)
    return to


def assert_whole(lake: Catalog, *, orphans: bool = False) -> None:
    """Assert that every snapshot's files are there, and that its tables' versions name just them.

    Args:
        lake: The lake.
        orphans: Whether there may be files that nothing names.
    """
    named: set[str] = set()
    for summary in lake.summaries():
        record = lake.snapshot(summary.job, summary.snapshot_id)
        for table in (table for operator in record.operators for table in operator.tables):
            opened = lake.table(table.path)
            assert {f.path for f in opened.files(table.version)} == {u.path for u in table.units}
            assert {f.path for f in opened.files()} <= _present(opened)
            for unit in table.units:
                assert opened.directory.size(unit.path) == unit.size
        named |= unit_paths(record) | {f"_statelake/carried/{b.blob}" for b in record.carried}
    root = Path(lake.directory.root)
    held = {name for name in files_of(root) if "/_data/" in name or "/carried/" in name}
    assert named <= held
    assert orphans or held == named
    assert orphans or lake.version().claims == Claims()


def assert_shown(lake: Catalog, snapshot_id: str, job: str = "orders") -> None:
    """Assert that the latest versions of a snapshot's tables are the snapshot's."""
    for operator in lake.snapshot(job, snapshot_id).operators:
        for table in operator.tables:
            latest = {file.path for file in lake.table(table.path).files()}
            assert latest == {unit.path for unit in table.units}


def _present(table: StateTable) -> set[str]:
    return {name for name, _ in table.directory.files_below()}


def rows_of(lake: Catalog, record: SnapshotRecord, path: str) -> pa.Table:
    """The rows of a table as any Delta engine reads them, at the snapshot's version."""
    (version,) = (t.version for op in record.operators for t in op.tables if t.path == path)
    return DeltaTable(lake.table(path).uri, version).to_pyarrow_table()


def sorted_rows(table: pa.Table, columns: Iterable[str]) -> list[str]:
    """Rows as text, sorted: equal lists are equal tables, whatever their order."""
    return sorted(json.dumps(row, default=repr) for row in table.select(list(columns)).to_pylist())


def unit_paths(record: SnapshotRecord) -> set[str]:
    """The files of a snapshot, below the lake."""
    return {
        f"{table.path}/{unit.path}"
        for operator in record.operators
        for table in operator.tables
        for unit in table.units
    }


@contextmanager
def tiny_pieces(piece_bytes: int = 8000) -> Iterator[None]:
    """Any slice is large, and a piece has few entries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_slices, "LARGE_BYTES", 1)
        patch.setattr(large_slices, "SHARE", 1 << 40)
        patch.setattr(large_slice_tasks, "PIECE_BYTES", piece_bytes)
        patch.setattr(unified_file, "TABLE_ROWS", 10)
        patch.setattr(unified_file, "WINDOW_BYTES", 20_000)
        yield
