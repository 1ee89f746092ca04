"""Write new versions of Delta tables: each is a durable entry of the log, by a single writer.

An entry is written only if its name does not exist, so that only one of several writers succeeds.
The files that a commit adds and removes depend on the version before: if another writer was first,
all of it is computed again (`until_committed`). statelake writes the log itself, since a library
might rebase the commit onto a newer version.

An object store may accept a commit although its response is lost. A repeated request is then told
that the version exists. So each commit has a token of its own, by which it is found in the log: a
commit that succeeded is neither written twice nor taken for another writer's.

Source: Delta's PROTOCOL.md, "Actions".
"""

from __future__ import annotations

import json
import logging
import random
import re
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError

from statelake.pipelines.lake.tables.log_entries import (
    ENGINE,
    LOG_DIRECTORY,
    entry_bytes,
    file_statistics,
    log_entry,
    log_name,
    removal,
)
from statelake.pipelines.lake.tables.parquet_bounds import BoundedWriter
from statelake.pipelines.lake.tables.table_log import (
    WAITS,
    file_actions,
    is_lasting,
    is_torn,
    problem_of,
    remedy_of,
    write_checkpoint,
)
from statelake.state_core.errors import (
    ConflictError,
    DamagedLakeError,
    MissingFileError,
    SnapshotError,
    StateError,
    UnreadableTableError,
)
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.nested import leaf_types, refuse_twins

ATTEMPTS = 50
COMMIT_KEY = "statelake.commit"
CHECKPOINT_EVERY = 10
"""The number of log entries between two checkpoints."""
_MAX_BACK_OFF = 0.5
_FIRST_FEATURES = ["appendOnly", "invariants"]  # the features of writer version 2
_WRITABLE_FEATURES = {
    *_FIRST_FEATURES, "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "checkConstraints",
    "changeDataFeed", "generatedColumns", "deletionVectors",
}  # fmt: skip
LOG = logging.getLogger(__name__)

Result = TypeVar("Result")


class DeltaCommit:
    """The files that one new version of a table adds and removes.

    Args:
        directory: The table's directory.
        schema: Its columns, including the partition column.
        partition_by: The partition column, if any.
        properties: Properties that are kept with the commit.
        chained: Whether the table's properties name its newest commit from now on, by which the
            next one finds that the log was cleaned meanwhile: see `_refuse_overtaken`.
    """

    def __init__(
        self,
        directory: Directory,
        schema: pa.Schema,
        partition_by: str | None,
        properties: CommitProperties,
        *,
        chained: bool = False,
    ) -> None:
        refuse_twins(pa.schema(schema), directory.uri)
        self.directory = directory
        self.schema = _delta_schema(schema)
        self.partition_by = [] if partition_by is None else [partition_by]
        self.properties = properties
        self.configuration: Mapping[str, str | None] | None = None
        self.chained = chained
        self._token = uuid.uuid4().hex
        self._now = int(time.time() * 1000)
        self._actions: list[dict[str, Any]] = []
        self._paths: list[str] = []
        self._bare: list[dict[str, Any]] = []  # the actions that create a table, without its files

    def add(
        self,
        path: str,
        size: int,
        rows: int,
        partition: object = None,
        key_groups: tuple[int, int] | None = None,
    ) -> None:
        """Add a file.

        Args:
            path: Its path below the table.
            size: Its bytes.
            rows: The number of its rows.
            partition: The value of the partition column in it.
            key_groups: The first and the last key group of its rows, by which engines skip files.
        """
        added = {
            "path": log_name(path), "partitionValues": self._values(partition),
            "size": size, "modificationTime": self._now, "dataChange": True,
            "stats": file_statistics(rows, key_groups),
        }  # fmt: skip
        self._paths.append(path)
        self._actions.append({"add": added})

    def add_rows(self, path: str, rows: pa.Table, partition: object = None) -> None:
        """Write rows into a new file, and add it.

        Args:
            path: Its path below the table.
            rows: All rows of one partition.
            partition: The value of the partition column in it.
        """
        stored = [name for name in rows.column_names if name not in self.partition_by]
        with self.directory.open_output(path) as output:
            table = rows.select(stored)
            with BoundedWriter(
                output, table.schema, compression="zstd", compression_level=1
            ) as file:
                file.write_table(table)
            size = output.tell()
        self.add(path, size, len(rows), partition)

    def remove(self, path: str, size: int, partition: object = None) -> None:
        """Remove a file of the version before; the arguments are those of `add`."""
        self._actions.append(removal(path, size, self._values(partition), self._now))

    def write(self, table: DeltaTable, *, replace_all: bool = False) -> int:
        """Write a new version of a table.

        Args:
            table: The table at the version from which the commit was computed.
            replace_all: Whether to remove all its other files, and to set its columns.

        Returns:
            The version.

        Raises:
            CommitFailedError: Another writer was first.
            ConflictError: It is not known whether another writer was first.
            StateError: The log can't be written, or is gone, or the table has a feature that
                statelake can't write.
        """
        self._refuse_features(table)
        self.chained |= COMMIT_KEY in table.metadata().configuration
        version = table.version() + 1
        actions: list[dict[str, Any]] = []
        if replace_all:
            actions += self._protocol_for(table)
            self._remove_others(table)
        if replace_all or self.chained or self.configuration is not None:
            actions.append({"metaData": self._metadata_after(table)})
        if self.directory.local and not self.directory.is_file(log_entry(version - 1)):
            if self.directory.names(LOG_DIRECTORY):
                raise CommitFailedError(f"version {version - 1} was cleaned up meanwhile")
            raise DamagedLakeError(
                "no version can be added to the table (its log is gone)",
                place=self.directory.uri,
                remedy="see who else writes there, or restore it from a backup",
            )
        try:
            self._put(version, [*actions, *self._actions], "Overwrite" if replace_all else "Append")
        except CommitFailedError:
            if self.chained:  # this one's may have been there before
                self._refuse_overtaken(table)
            raise
        if self.chained:
            self._refuse_overtaken(table)
        self._checkpoint(version)
        return version

    def _refuse_overtaken(self, table: DeltaTable) -> None:
        """Refuse to say that a commit was made if its version may have been there, and deleted.

        A cleaning deletes the older of two entries first. So if the one before is still the one
        that was read, no other writer had this version.

        Raises:
            ConflictError: The entry before is gone, or another one.
        """
        before = table.metadata().configuration.get(COMMIT_KEY)
        data = b""
        with suppress(MissingFileError):
            data = self.directory.read(log_entry(table.version()))
        # others, older versions of statelake too, leave the property as it was
        if data and (before is None or not _is_chained(data) or _names_commit(data, before)):
            return
        raise ConflictError(
            "it is not known whether a change was made: while this process was suspended others"
            " changed the lake so often that the log no longer tells",
            place=self.directory.uri,
            remedy="see `statelake snapshots`, and run the command again if it was not",
        )

    def create(
        self, configuration: Mapping[str, str | None] | None = None, name: str | None = None
    ) -> None:
        """Create the table, with the files that are added.

        Raises:
            CommitFailedError: It exists already.
            StateError: The log can't be written.
        """
        configuration = {
            **(configuration or {}),
            **({COMMIT_KEY: self._token} if self.chained else {}),
        }
        metadata = self._metadata(str(uuid.uuid4()), name, self._now, configuration)
        features = ["timestampNtz"] if self._has_time_without_zone() else []
        self._bare = [_protocol(features, []), {"metaData": metadata}]
        self._put(0, [*self._bare, *self._actions], "Create")

    def _remove_others(self, table: DeltaTable) -> None:
        """Remove the files of a version, except those that this commit names already."""
        named = {file["path"] for action in self._actions for file in action.values()}
        present = file_actions(table)
        columns = [f"partition.{column}" for column in self.partition_by]
        for file in present.to_pylist():
            if log_name(unquote(file["path"])) not in named:
                values = [file.get(column) for column in columns]
                self.remove(unquote(file["path"]), file["size_bytes"], *values)

    def _metadata_after(self, table: DeltaTable) -> dict[str, Any]:
        """Return the table's metadata after this commit."""
        before = table.metadata()
        configuration = (
            before.configuration if self.configuration is None else dict(self.configuration)
        )
        if self.chained:
            configuration = {**configuration, COMMIT_KEY: self._token}
        metadata = self._metadata(str(before.id), before.name, before.created_time, configuration)
        return metadata | ({"description": before.description} if before.description else {})

    def _metadata(
        self, number: str, name: str | None, created: Any, configuration: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {
            "id": number,
            **({"name": name} if name else {}),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self.schema.to_json(),
            "partitionColumns": self.partition_by,
            "createdTime": created,
            "configuration": {
                key: value for key, value in configuration.items() if value is not None
            },
        }

    def _protocol_for(self, table: DeltaTable) -> list[dict[str, Any]]:
        """Return the protocol that new columns need, if the table does not have it."""
        protocol = table.protocol()
        if not self._has_time_without_zone() or "timestampNtz" in (protocol.reader_features or ()):
            return []
        written = protocol.writer_features or _FIRST_FEATURES
        return [_protocol([*(protocol.reader_features or ()), "timestampNtz"], written)]

    def _has_time_without_zone(self) -> bool:
        return any(map(_has_time_without_zone, pa.schema(self.schema.to_arrow()).types))

    def _refuse_features(self, table: DeltaTable) -> None:
        """Refuse a table with a writer feature that statelake does not support.

        Raises:
            UnreadableTableError: The table has one.
        """
        protocol = table.protocol()
        unknown = sorted(set(protocol.writer_features or ()) - _WRITABLE_FEATURES)
        settings = table.metadata().configuration
        if settings.get("delta.appendOnly", "").lower() == "true" and any(
            "remove" in action for action in self._actions
        ):
            unknown.append("appendOnly")
        if settings.get("delta.columnMapping.mode", "none") != "none":
            unknown.append("columnMapping")
        if unknown:
            raise UnreadableTableError(
                f"the table uses {', '.join(unknown)}, which statelake can't write",
                place=self.directory.uri,
                remedy="remove it: ALTER TABLE ... DROP FEATURE, or UNSET TBLPROPERTIES",
            )

    def _put(self, version: int, actions: list[dict[str, Any]], mode: str) -> None:
        """Write an entry, unless it was written and only the response was lost.

        Raises:
            CommitFailedError: Another writer's entry has that version.
        """
        info = {"commitInfo": self._commit_info(mode)}
        data = entry_bytes([info, *self._transactions(), *actions])
        path = log_entry(version)
        try:
            # sync first, so that no log names a file that a power cut removes
            self.directory.sync_files(self._paths)
        except MissingFileError:
            # cleaning deleted the files, since another writer has this version, or had it
            if self.directory.is_file(path) or not self.directory.is_file(log_entry(version - 1)):
                raise CommitFailedError(f"version {version} already exists") from None
            raise
        self._paths.clear()
        for wait in (*WAITS, None):
            try:
                if self.directory.write_new(path, data) or self._is_ours(path):
                    return
                if wait is not None and not self.directory.is_file(path):
                    time.sleep(wait)  # a store reported a conflict, but did not write
                    continue
            except SnapshotError as error:
                if self.directory.local or is_lasting(error) or wait is None:
                    if self._is_ours(path):
                        return
                    raise
                time.sleep(wait)
                continue
            if is_torn(self.directory, version):
                # another engine's half-written entry: replace it with one that adds no file
                info["commitInfo"].pop(COMMIT_KEY)
                self.directory.write(path, entry_bytes([info, *self._bare]))
            raise CommitFailedError(f"version {version} already exists")

    def _commit_info(self, mode: str) -> dict[str, Any]:
        return {
            "engineInfo": ENGINE,
            "timestamp": self._now,
            "operation": "CREATE TABLE" if mode == "Create" else "WRITE",
            "operationParameters": {
                "mode": "ErrorIfExists" if mode == "Create" else mode,
                "partitionBy": json.dumps(self.partition_by),
            },
            **(self.properties.custom_metadata or {}),
            COMMIT_KEY: self._token,
        }

    def _transactions(self) -> list[dict[str, Any]]:
        return [
            {
                "txn": {
                    "appId": transaction.app_id,
                    "version": transaction.version,
                    "lastUpdated": transaction.last_updated or self._now,
                }
            }
            for transaction in self.properties.app_transactions or ()
        ]

    def _is_ours(self, path: str) -> bool:
        """Return whether an entry of the log is this commit."""
        with suppress(MissingFileError):
            return _names_commit(self.directory.read(path), self._token)
        return False

    def _checkpoint(self, version: int) -> None:
        """Write a checkpoint every `CHECKPOINT_EVERY` versions; it only speeds up reading."""
        if version and version % CHECKPOINT_EVERY == 0:
            try:
                write_checkpoint(self.directory)
            except (DeltaError, OSError, StateError) as error:
                LOG.warning("%s: no checkpoint of the log (%s)", self.directory.uri, error)

    def _values(self, partition: object) -> dict[str, str | None]:
        return {column: str(partition) for column in self.partition_by}


def _names_commit(entry: bytes, token: str) -> bool:
    """Return whether an entry is the commit of a token that begins so; not by its properties."""
    return f'"{COMMIT_KEY}":"{token}'.encode() in entry.partition(b"\n")[0]


def _is_chained(entry: bytes) -> bool:
    """Return whether an entry names its commit in the table's properties, too."""
    commit_info, _, actions = entry.partition(b"\n")
    named = re.search(rf'"{re.escape(COMMIT_KEY)}":"\w+"'.encode(), commit_info)
    return named is not None and named[0] in actions


def _protocol(reading: list[str], writing: list[str]) -> dict[str, Any]:
    """Return the action with the features that readers and writers must support."""
    if not reading:
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": sorted(set(reading)),
            "writerFeatures": sorted({*reading, *writing}),
        }
    }


def _delta_schema(schema: pa.Schema) -> Schema:
    """Return the columns as a Delta schema.

    Spark can't open a table that has both timestamps without a zone and columns that are never
    null, since delta-rs leaves `invariants` out of a protocol with `timestampNtz`. The columns of
    such tables are declared as nullable, although statelake never writes nulls.
    """
    columns = pa.schema(schema)  # columns of an existing table are a Delta schema
    if any(map(_has_time_without_zone, columns.types)):
        columns = pa.schema([column.with_nullable(True) for column in columns])
    return Schema.from_arrow(columns)


def _has_time_without_zone(kind: pa.DataType) -> bool:
    leaves = (leaf for _, leaf in leaf_types(kind))
    return any(pa.types.is_timestamp(leaf) and leaf.tz is None for leaf in leaves)


def until_committed(
    attempt: Callable[[], Result | None],
    directory: Directory,
    *,
    remedy: str = "try again when they are done",
) -> Result:
    """Repeat a commit until no other writer is first.

    Args:
        attempt: Opens the table, computes the commit and writes it. It returns None, or raises
            `CommitFailedError`, if another writer was first.
        directory: The table's directory, for the error.
        remedy: The remedy of the error if all of them fail.

    Returns:
        The result of the attempt.

    Raises:
        ConflictError: Other writers were first each time.
        DamagedLakeError: The log can't be written, or is gone.
    """
    for number in range(ATTEMPTS):
        try:
            result = attempt()
        except CommitFailedError:
            # writers that lost wait for different times, so that all of them succeed in the end
            time.sleep(random.uniform(0, min(_MAX_BACK_OFF, 0.01 * 2**number)))  # noqa: S311 - no secret
            continue
        except StateError:
            raise
        except (DeltaError, OSError) as error:
            raise DamagedLakeError(
                f"no version can be added to the table ({problem_of(error, directory)})",
                place=directory.uri,
                remedy=remedy_of(error, "see whether its log is whole"),
            ) from error
        if result is not None:
            return result
    raise ConflictError(
        f"others committed {ATTEMPTS} times while this was tried",
        place=directory.uri,
        remedy=remedy,
    )
