"""The log of a table for delta-rs, in a directory that was opened safely.

delta-rs takes paths, and follows links. So on a disk it gets a directory of this process's own, in
which `_delta_log` leads to the descriptor of the log that was opened name by name. A table that is
replaced by a link meanwhile is still read and written at its old place. delta-rs only works on the
log: it neither reads nor writes rows.

The files of a log are checked first (`check_log_files`). delta-rs would wait for a pipe for ever,
and a checkpoint of the second kind names further files, which it would read even elsewhere.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import finalize

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from statelake.pipelines.lake.tables.log_entries import (
    LOG_DIRECTORY,
    Action,
    check_entry,
    is_cut_off,
    log_entry,
)
from statelake.pipelines.lake.tables.parquet_bounds import open_parquet
from statelake.pipelines.lake.tables.parquet_seals import check_whole, sealed
from statelake.state_core.errors import (
    DamagedLakeError,
    LakeError,
    MissingFileError,
    SnapshotError,
    UnreadableTableError,
    UnsafePathError,
)
from statelake.state_core.files.confinement import is_part
from statelake.state_core.files.filesystem import ConfinedDirectory, Directory
from statelake.state_core.files.held_directories import (
    LOG_PREFIX,
    HeldDirectory,
    held_link_place,
    held_temporary,
)
from statelake.state_core.files.object_stores import STORE_REMEDY
from statelake.state_core.files.storage_options import storage_options

LOG = logging.getLogger(__name__)
DESCRIPTORS = "/proc/self/fd"  # without directories on macOS: there delta-rs gets the path
# seconds before a store is asked again, after delta-rs itself has retried what it may retry
WAITS = (0.2, 1, 5)
# errors of delta-rs about a store that refuses, and about one that it has asked often enough
_REFUSED = re.compile("necessary privileges|401 Unauthorized|403 Forbidden|(?i:authenticat)")
_ASKED_ENOUGH = re.compile(r"after (\d+) retries, max_retries\D+\1\b")
_ENTRY = re.compile(r"\d{20}\.json", re.ASCII)
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint\.parquet", re.ASCII)
_OF_VERSION = re.compile(r"\.?(\d{20})\.(json|crc|checkpoint\.parquet)(\.crc|#\d+)?", re.ASCII)
LAST_CHECKPOINT = "_last_checkpoint"
# directories of Spark, for versions not yet committed, and for deleted checkpoints
_EMPTY_DIRECTORIES = {"_commits", "_sidecars", "_staged_commits"}
_ANY_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.(.+)", re.ASCII)
_KNOWN_CHECKPOINT = re.compile(r"parquet(\.crc|#\d+)?")  # `#1` while delta-rs writes it
SIDECAR = "sidecar"
CHECKPOINT_REMEDY = (
    "ALTER TABLE ... SET TBLPROPERTIES ('delta.checkpointPolicy' = 'classic'), and remove the file"
    " if the log has an entry of each version"
)
_COLOUR = re.compile(r"\x1b\[\d*m")


def open_log(directory: Directory, version: int | None = None) -> DeltaTable:
    """Open a table safely.

    Args:
        directory: The table's directory.
        version: Its version, the latest by default.

    Raises:
        MissingFileError: There is no log.
        TableNotFoundError: The directory has no log.
        DeltaError: The log can't be read, or has no such version.
        UnreadableTableError: It has a checkpoint that names further files.
        DamagedLakeError: An entry is damaged.
        UnsafePathError: There is a link, or an entry that is not a file.
    """
    try:
        return _open_once(directory, version)
    except TableNotFoundError:
        raise
    except (MissingFileError, DeltaError):
        # a cleaning has deleted files that were listed before it: the newer ones are whole
        if not directory.names(LOG_DIRECTORY):
            raise
        return _open_once(directory, version)


def _open_once(directory: Directory, version: int | None) -> DeltaTable:
    try:
        check_log_files(directory.confined(), version)
    except UnreadableTableError:
        if not directory.local or not _without_torn_checkpoint(directory):
            raise
        check_log_files(directory.confined(), version)
    place = _LogPlace(directory)
    try:
        table = _opened(place.uri, directory, _checked_version(directory, version))
    except BaseException:
        place.close()
        raise
    finalize(table, place.close)
    return table


def log_files(directory: Directory) -> list[tuple[str | int, ...]] | None:
    """Return what tells the files of a log on a disk from any others; None if it is not known."""
    try:
        handle = directory.confined().folder(LOG_DIRECTORY)
    except SnapshotError:  # `open_log` says what is the matter
        return None
    if handle is None:
        return None
    try:
        with os.scandir(handle) as entries:
            files = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except OSError:  # gone at this moment
        return None
    finally:
        os.close(handle)
    return sorted(
        (name, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        for name, status in files
    )


def check_log_files(directory: ConfinedDirectory, version: int | None = None) -> None:
    """Check the files of a log on a local disk before delta-rs reads them.

    Args:
        directory: The table's directory.
        version: The version to open, the latest by default.

    Raises:
        MissingFileError: There is no log.
        UnreadableTableError: It has a checkpoint that is not a single complete file.
        OversizedError: A checkpoint unpacks to more than its bytes allow.
        UnsafePathError: There is a link, a directory, a pipe or a device.
    """
    handle = directory.folder(LOG_DIRECTORY)
    if handle is None:  # in a store everything is a file
        return
    place = directory.full(LOG_DIRECTORY)
    checkpoints = []
    try:
        for entry in os.scandir(handle):
            if not entry.is_file(follow_symlinks=False):
                _check_directory(directory, entry)
            match = _ANY_CHECKPOINT.fullmatch(entry.name)
            if match and not is_part(entry.name):  # another process is writing it
                if not _KNOWN_CHECKPOINT.fullmatch(match[2]):
                    raise UnreadableTableError(
                        f"a checkpoint of another kind than <version>.checkpoint.parquet:"
                        f" {entry.name!r}",
                        place=place,
                        remedy=CHECKPOINT_REMEDY,
                    )
                if match[2] == "parquet" and (version is None or int(match[1]) <= version):
                    checkpoints.append(entry.name)
    finally:
        os.close(handle)
    if checkpoints:  # only the latest one is read
        _check_checkpoint(directory, f"{LOG_DIRECTORY}/{max(checkpoints)}")


def _check_directory(directory: ConfinedDirectory, entry: os.DirEntry[str]) -> None:
    """Refuse an entry of a log that is not a file, except for empty directories of Spark."""
    path = f"{LOG_DIRECTORY}/{entry.name}"
    if entry.name not in _EMPTY_DIRECTORIES or not entry.is_dir(follow_symlinks=False):
        raise UnsafePathError(
            f"{path!r} is no regular file",
            place=directory.uri,
            remedy="a log has files alone: look at what it is, and remove it",
        )
    if names := directory.names(path):
        raise UnreadableTableError(
            f"{path} has {names[0]!r}: statelake reads no log that needs further files",
            place=directory.uri,
            remedy=CHECKPOINT_REMEDY,
        )


def _check_checkpoint(directory: ConfinedDirectory, path: str) -> None:
    """Refuse a checkpoint that names further files, whatever its name."""
    place = directory.full(path)
    try:
        with directory.open_input(path) as source:
            check_whole(source)
            file = open_parquet(source, place)
            names_files = SIDECAR in file.schema_arrow.names and any(
                batch.column(0).null_count < len(batch)
                for batch in file.iter_batches(columns=[SIDECAR])
            )
    except MissingFileError:
        return  # an erasure has removed it just now
    except (OSError, pa.ArrowException) as error:
        raise UnreadableTableError(
            f"a checkpoint that is no Parquet ({' '.join(str(error).split())})",
            place=place,
            remedy="remove it if the log has an entry of each version",
        ) from error
    if names_files:
        raise UnreadableTableError(
            "a checkpoint that names further files", place=place, remedy=CHECKPOINT_REMEDY
        )


def _opened(uri: str, directory: Directory, version: int | None) -> DeltaTable:
    """Open a table; try again if a store's connection fails."""
    options = storage_options(directory)
    for wait in (None,) if directory.local else (*WAITS, None):
        try:
            return DeltaTable(uri, version, storage_options=options)
        except OSError as error:
            if wait is None or is_lasting(error):
                raise LakeError(
                    f"the table's log can't be read ({problem_of(error, directory)})",
                    place=directory.uri,
                    remedy=remedy_of(error, "see whether the store can be reached, and try again"),
                ) from error
        time.sleep(wait)
    raise AssertionError  # the last try returns or raises


def file_actions(log: DeltaTable) -> pa.Table:
    """Return a version's files, one a row: path, size, partition and statistics as flat columns."""
    # not `pa.table`, which imports pandas to see whether this is a data frame
    return pa.RecordBatchReader.from_stream(log.get_add_actions(flatten=True)).read_all()


def is_torn(directory: Directory, version: int) -> bool:
    """Return whether a version's entry counts as not written: see `is_cut_off`.

    Raises:
        MissingFileError: There is no such entry.
    """
    return directory.local and is_cut_off(directory.read(log_entry(version)), directory)


def _checked_version(directory: Directory, version: int | None) -> int | None:
    """Check the entries of a log on a disk that delta-rs is going to read, and their order.

    Stores check what they keep themselves.

    Args:
        directory: The table's directory.
        version: The version to open, the latest by default.

    Returns:
        The version; the one before the latest if that counts as not written.

    Raises:
        DamagedLakeError: An entry is damaged.
        TableNotFoundError: The only entry counts as not written.
    """
    if not directory.local:
        return version
    names = directory.names(LOG_DIRECTORY)
    until = sys.maxsize if version is None else version
    entries, checkpoints = (
        [at for at in versions if at <= until] for versions in log_versions(names)
    )
    for entry in sorted(entries):
        if entry <= max(checkpoints, default=-1):
            continue
        data = directory.read(log_entry(entry))
        try:
            check_entry(data, directory.full(log_entry(entry)))
        except DamagedLakeError as error:
            if version is not None or entry != max(entries) or not is_cut_off(data, directory):
                raise
            LOG.warning(
                "%s counts as not written: another engine was cut off while it wrote it (%s)",
                error.place, error.problem,
            )  # fmt: skip
            if entry == 0:
                raise TableNotFoundError("its first entry was cut off") from error
            return entry - 1
    return version


def _without_torn_checkpoint(directory: Directory) -> bool:
    """Delete damaged checkpoints that the log does not need; return whether it did."""
    spare = spare_checkpoints(directory)
    for name in (LAST_CHECKPOINT, *spare) if spare else ():
        directory.delete(f"{LOG_DIRECTORY}/{name}")
        LOG.warning(
            "%s: a damaged checkpoint is deleted, since the log has all that is in it",
            directory.full(f"{LOG_DIRECTORY}/{name}"),
        )
    return bool(spare)


def spare_checkpoints(directory: Directory) -> list[str]:
    """Return the names of damaged checkpoints without which a log shows each version that it can.

    One behind which the whole files begin is the only one that has what was before.
    """
    names = directory.names(LOG_DIRECTORY)
    torn = [
        name
        for name in names
        if _CHECKPOINT.fullmatch(name) and not _is_whole_checkpoint(directory, name)
    ]
    complete = [name for name in names if name not in torn]
    entries, _ = log_versions(complete)
    first = log_beginning(complete)
    if not entries or not set(range(first + 1, max(entries))) <= {*entries, first}:
        return []
    if first and checkpoint_name(first) not in complete:
        return []
    return [name for name in torn if min(log_versions([name])[1]) > first]


def _is_whole_checkpoint(directory: Directory, name: str) -> bool:
    data = directory.read(f"{LOG_DIRECTORY}/{name}")
    try:
        check_whole(pa.BufferReader(data))
    except pa.ArrowInvalid:
        return False
    return len(data) >= 12 and data.endswith(b"PAR1")


def log_beginning(names: Iterable[str]) -> int:
    """Return the first version that a log can show, from the names of its files.

    A cleaning that was killed leaves older entries, which can't be read without those before them.
    """
    entries, checkpoints = log_versions(names)
    starts = sorted({*checkpoints, *({0} & entries)})
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        if following is None or set(range(start + 1, following)) <= entries:
            return start
    return 0


def log_cut(names: Iterable[str], needed: int | None = None) -> int | None:
    """Return the version before which a log is not needed; None if all of it is.

    It is that of a checkpoint, of which there is a later one: whoever reads the newest version at
    this moment reads from that one on, and a damaged one can be done without.

    Args:
        names: The names of the log's files.
        needed: The oldest version that must stay readable, by default only the newest.
    """
    checkpoints = sorted(log_versions(names)[1])
    cuts = [version for version in checkpoints[:-1] if needed is None or version <= needed]
    return cuts[-1] if cuts else None


def log_files_before(names: Iterable[str], version: int) -> list[str]:
    """Return the names of a log's files of the versions before one, the oldest first.

    In this order they are deleted: whoever finds an entry knows that no later one was deleted.
    """
    matches = [(match, name) for name in names if (match := _OF_VERSION.fullmatch(name))]
    return [name for match, name in sorted(matches, key=_by_version) if int(match[1]) < version]


def _by_version(file: tuple[re.Match[str], str]) -> tuple[int, str]:
    return int(file[0][1]), file[1]


def log_versions(names: Iterable[str]) -> tuple[set[int], set[int]]:
    """Return the versions of a log's entries, and those of its checkpoints."""
    listed = list(names)
    entries, checkpoints = (
        {int(name[:20]) for name in listed if kind.fullmatch(name)}
        for kind in (_ENTRY, _CHECKPOINT)
    )
    return entries, checkpoints


def write_checkpoint(directory: Directory) -> None:
    """Write a checkpoint of a table's newest version, with a seal.

    delta-rs writes it beside copies of what it reads, so that it gets its name with the seal.
    Removed files are left out: they only tell VACUUM of other engines for how long to wait, and
    would become more for ever.

    Raises:
        DeltaError, OSError, StateError: It can't be written.
    """
    version = open_log(directory).version()
    names = directory.names(LOG_DIRECTORY)
    if checkpoint_name(version) in names:
        return
    base = max((each for each in log_versions(names)[1] if each < version), default=-1)
    read = [
        name
        for name in names
        if (_ENTRY.fullmatch(name) and base <= int(name[:20]) <= version)
        or (base >= 0 and name == checkpoint_name(base))
    ]
    data, rows = checkpoint_of(
        {name: directory.read(f"{LOG_DIRECTORY}/{name}") for name in read}, version
    )
    directory.write_new(f"{LOG_DIRECTORY}/{checkpoint_name(version)}", data)
    last = {"version": version, "size": rows}
    directory.write(f"{LOG_DIRECTORY}/{LAST_CHECKPOINT}", json.dumps(last).encode())


def checkpoint_of(files: Mapping[str, bytes], version: int) -> tuple[bytes, int]:
    """Return the checkpoint of a version, with a seal, and the number of its rows.

    Args:
        files: The files of a log, by their names.
        version: The newest version that they have.

    Raises:
        DeltaError, OSError: They can't be read.
    """
    with held_temporary(LOG_PREFIX) as path:
        log = Path(path, LOG_DIRECTORY)
        log.mkdir()
        for name, data in files.items():
            (log / name).write_bytes(data)
        DeltaTable(path, version).create_checkpoint()
        actions = pq.ParquetFile(log / checkpoint_name(version)).read()
    actions = actions.filter(pc.is_null(actions.column("remove")))
    output = pa.BufferOutputStream()
    pq.write_table(actions, output, compression="zstd")
    return sealed(output.getvalue().to_pybytes()), len(actions)


def checkpoint_name(version: int) -> str:
    """Return the name of a version's checkpoint."""
    return f"{version:020d}.checkpoint.parquet"


def checkpoint_actions(directory: Directory, version: int) -> list[Action]:
    """Return the actions of a checkpoint, as an entry has them.

    Raises:
        OSError, ArrowException, StateError: It can't be read.
    """
    path = f"{LOG_DIRECTORY}/{checkpoint_name(version)}"
    with directory.open_input(path) as source:
        check_whole(source)
        rows = open_parquet(source, directory.full(path)).read().to_pylist(maps_as_pydicts="strict")
    return [
        {name: _present(fields)}
        for row in rows
        for name, fields in row.items()
        if fields is not None
    ]


def _present(fields: Any) -> Any:
    """Return a struct without the fields that are null, or only columns of values."""
    if not isinstance(fields, dict):
        return fields
    return {
        name: _present(value)
        for name, value in fields.items()
        if value is not None and not name.endswith("_parsed")
    }


def is_lasting(error: Exception) -> bool:
    """Return whether asking a store again is useless: it refuses, or was asked often enough."""
    text = _COLOUR.sub("", str(error))
    return bool(_REFUSED.search(text) or _ASKED_ENOUGH.search(text))


def remedy_of(error: Exception, other: str) -> str:
    """Return the remedy of an error of delta-rs: check the credentials, if the store refuses."""
    if not is_lasting(error):
        return other
    if _REFUSED.search(str(error)):
        return "check the credentials, and what they allow in this store"
    return STORE_REMEDY


def problem_of(error: Exception, directory: Directory) -> str:
    """Return delta-rs's message about a table, with the table's own path."""
    text = re.sub(
        rf"(/[^\s/]+)*/{LOG_PREFIX}\w+", lambda _: directory.uri, _COLOUR.sub("", str(error))
    )
    return " ".join(text.split())


class _LogPlace:
    """A path at which delta-rs finds a log, until it is closed."""

    def __init__(self, directory: Directory) -> None:
        self.uri = directory.uri
        self._owner = os.getpid()
        self._made: HeldDirectory | None = None
        self._handle = directory.confined().folder(LOG_DIRECTORY)
        if self._handle is None or sys.platform != "linux":
            return
        try:
            self._made = held_link_place()
            Path(self._made.path, LOG_DIRECTORY).symlink_to(f"{DESCRIPTORS}/{self._handle}")
        except OSError as error:
            self.close()
            raise LakeError(
                f"no directory of its own can be made for a while ({error})",
                place=directory.uri,
                remedy="let TMPDIR name a directory that can be written to",
            ) from error
        self.uri = self._made.path

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        if self._made is not None and self._owner == os.getpid():  # a fork must not close it
            with suppress(OSError):
                Path(self._made.path, LOG_DIRECTORY).unlink(missing_ok=True)
                Path(self._made.path).rmdir()
            self._made.release()
            self._made = None
