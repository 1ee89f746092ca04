"""Export savepoints, and verify that they can be restored.

::

    <exports>/<job>/<time>-<snapshot>             a savepoint
    <exports>/<job>/<time>-<snapshot>.verified    written when it was restored elsewhere

Only names of this form are ever removed. A savepoint that was not verified never replaces a
verified one.
"""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import NamedTuple

from statelake.pipelines.engine import Engine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.unmanaged_state import differing_parts
from statelake.pipelines.lake.export.exporting import ExportResult, export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.tables.names import path_segment
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.pipelines.lake.verify.integrity import count_faults
from statelake.state_core.errors import NotFoundError, StateError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.reader import open_snapshot
from statelake.state_core.integrity import check_snapshot

VERIFIED = ".verified"
_OURS = re.compile(r"\d{8}T\d{12}-.+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of restoring a savepoint elsewhere.

    Attributes:
        faults: The faults; empty if it can be restored.
        entries: The number of restored entries of all states.
        size: Bytes of their keys and values.
    """

    faults: list[str]
    entries: int = 0
    size: int = 0


def take_savepoint(
    lake: Catalog,
    job: str,
    exports: str,
    *,
    parallelism: int | None = None,
    engine: Engine | str = "auto",
) -> tuple[SnapshotRecord, ExportResult]:
    """Export the snapshot of a job that was taken last, also if an older one was imported since.

    Args:
        lake: The lake.
        job: The job.
        exports: The directory of exports.
        parallelism: The parallelism of its operators; by default the snapshot's.
        engine: The engine of exports and imports.

    Raises:
        NotFoundError: The job has no snapshot.
        DamagedLakeError: A row of the catalog is invalid, so that the newest is not known.
    """
    records = lake.listed(job).all_valid() if lake.exists() else []
    if not records:
        raise NotFoundError(
            f"job {job!r} has no snapshot",
            place=lake.directory.uri,
            remedy="import a savepoint first",
        )
    latest = max(records, key=lambda each: each.age)
    name = f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S%f}-{path_segment(latest.snapshot_id)}"
    target = Directory(exports).confined().child(path_segment(job))
    done = export_snapshot(
        lake,
        job,
        latest.snapshot_id,
        target.checked_location(name),
        parallelism=parallelism,
        engine=engine,
    )
    return lake.snapshot(job, latest.snapshot_id), done


def verify_savepoint(
    lake: Catalog, record: SnapshotRecord, savepoint: str, engine: Engine | str = "auto"
) -> Verification:
    """Check every byte of a savepoint, restore it into a temporary lake, and compare.

    The comparison is of each state's entries in each key group, and of what has no tables. The
    temporary lake is deleted; a sound savepoint is marked as verified.

    Args:
        lake: The lake with the snapshot that was exported.
        record: The snapshot.
        savepoint: The directory of the export.
        engine: The engine of exports and imports.
    """
    faults = [str(fault) for fault in check_snapshot(savepoint).faults]
    if faults:
        return Verification(faults)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            done = import_snapshot(Catalog(scratch), savepoint, record.job, engine=engine)
        except StateError as error:
            return Verification([f"it can't be restored: {error}"])
        restored = done.record
        opened = open_snapshot(savepoint)
        faults += count_faults(Catalog(scratch), restored, opened)
        faults += count_faults(lake, record, opened)
    faults += [f"{part}: not as the snapshot has it" for part in differing_parts(record, restored)]
    if restored.entries != record.entries:
        faults.append(f"{restored.entries} entries were restored, not {record.entries}")
    if not faults:
        directory = Directory(savepoint)
        content = {"snapshot": record.snapshot_id, "entries": restored.entries}
        name = directory.root.rpartition("/")[2] + VERIFIED
        directory.child("..").confined().write(name, json.dumps(content).encode())
    return Verification(faults, restored.entries, restored.state_bytes)


class KeptSavepoints(NamedTuple):
    """The savepoints of a job after others were removed.

    Attributes:
        kept: The names that stay.
        gone: The removed names.
        newest: The newest verified one, which may be another run's.
    """

    kept: list[str]
    gone: list[str]
    newest: str


def keep_savepoints(exports: str, job: str, keep: int) -> KeptSavepoints:
    """Remove all but the last verified savepoints of a job.

    Savepoints newer than the oldest kept one stay, verified or not.

    Args:
        exports: The directory of exports.
        job: The job.
        keep: The number of verified savepoints to keep; 1 or more.
    """
    directory = Directory(exports).confined().child(path_segment(job))
    ours = [name for name in directory.names() if _OURS.fullmatch(name)]
    marks = {name for name in ours if name.endswith(VERIFIED) and directory.is_file(name)}
    verified = sorted(mark.removesuffix(VERIFIED) for mark in marks)
    names = sorted({*verified, *(name for name in ours if name not in marks)})
    oldest = verified[-max(1, keep) :][0] if verified else ""
    gone = [name for name in names if name < oldest]
    for name in gone:
        directory.delete(name + VERIFIED)  # a part is not verified
        directory.delete_tree(name)
    newest = verified[-1] if verified else ""
    return KeptSavepoints([name for name in names if name >= oldest], gone, newest)
