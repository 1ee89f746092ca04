"""Committables of table sinks: manifests of Iceberg, files of Paimon and Delta.

::

    Iceberg's old sink   i32 n, n * (i64 checkpoint; boolean; unless it is true i32 length, and
                         nothing or manifests as a versioned value)
    manifests, 2         i32 length, data manifest; i32 length, delete manifest;
                         i32 n, n * UTF data file; version 1: the data manifest alone
    manifest             C2 01, UTF schema, record in Avro's binary encoding
    Iceberg, 1           UTF job, UTF operator, i64 checkpoint, i32 length, manifests
    Paimon, 3 to 5       i64 checkpoint; boolean, then i64 watermark unless it is true;
                         to 4: i32 n, n * (i32 bucket, i64 offset); from 4: i32 n, n * (UTF, UTF);
                         i32 version of messages, i32 n, n messages
    message              i32 length, partition; i32 bucket; from 7: boolean, then i32 buckets;
                         to 9: 6 lists of files, 2 of indexes; from 10: 3 and 2, 3 and 2
    list                 i32 n, n * (i32 length, row as Flink SQL has it)
    Delta, 1             i32 0x1E765C80; UTF application, i64 checkpoint;
                         i32 n, n * (UTF column, UTF value); UTF file, i64 rows, size, time;
                         i32 version, i32 length, pending file
    Delta's, of a table  i32 0x1E765C80; i32 n, n * the same without the number before it
    Pulsar, 1            i64 high and i64 low half of a transaction, UTF topic

These are only read, never written.

Source: `IcebergFilesCommitter`, `DeltaManifestsSerializer`, `IcebergCommittableSerializer` in
`org.apache.iceberg.flink.sink`, `AvroEncoderUtil`; `ManifestCommittableSerializer` and
`CommitMessageSerializer` in `org.apache.paimon`; `DeltaCommittableSerializer` and
`DeltaGlobalCommittableSerializer` in `io.delta.flink.sink.internal.committables`;
`PulsarCommittableSerializer` in `org.apache.flink.connector.pulsar.sink.committer`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from statelake.state_core.connectors.versioned import read_versioned
from statelake.state_core.files.wire import DataInput
from statelake.state_core.serializers.contents.avro_messages import read_avro

Row = dict[str, Any]

ICEBERG_STATE = "iceberg-files-committer-state"
PAIMON_VERSIONS = (3, 4, 5)
_AVRO_MAGIC = b"\xc2\x01"
_CONTENTS = {None: "data", 0: "data", 1: "deletes"}
_DELTA_MAGIC = 0x1E765C80
_PAIMON_MESSAGES = range(3, 14)
_PAIMON_LISTS = ("new", "deleted", "changelog", "compacted", "compaction", "compaction changelog")


def read_iceberg_checkpoints(source: DataInput) -> list[Row]:
    """Return a row for each manifest of the old sink's state, and for checkpoints without files."""
    rows: list[Row] = []
    for _ in range(source.read_count("checkpoints", 9)):
        checkpoint, data = source.read_long(), b""
        if not source.read_boolean():
            data = source.read_bytes(source.read_length("bytes of manifests"))
        manifests = _manifests(data) if data else []
        rows += [
            {"table_format": "iceberg", "checkpoint": checkpoint} | row for row in manifests or [{}]
        ]
    return rows


def read_iceberg(source: DataInput) -> list[Row]:
    """Return a row for each manifest of a committable of Iceberg's new sink."""
    row: Row = {"table_format": "iceberg", "job_id": source.read_utf()}
    row["operator_id"] = source.read_utf()
    row["checkpoint"] = source.read_long()
    data = source.read_bytes(source.read_length("bytes of manifests"))
    return [row | manifest for manifest in _manifests(data) or [{}]]


def _manifests(data: bytes) -> list[Row]:
    source = DataInput(data)
    version, content = read_versioned(source)
    if source.remaining or version not in (1, 2):
        raise source.fault(f"manifests of version {version}")
    if version == 1:
        return [_manifest(content)]
    inner = DataInput(content)
    rows = []
    for _ in range(2):
        manifest = inner.read_bytes(inner.read_length("bytes of a manifest"))
        if manifest:
            rows.append(_manifest(manifest))
    for _ in range(inner.read_count("data files", 2)):
        inner.read_utf()
    if inner.remaining:
        raise inner.fault(f"{inner.remaining} bytes behind manifests")
    return rows


def _manifest(data: bytes) -> Row:
    source = DataInput(data)
    if source.read_bytes(len(_AVRO_MAGIC)) != _AVRO_MAGIC:
        raise source.fault("no manifest of Iceberg")
    fields = read_avro(source.read_utf(), source)
    if not isinstance(fields, dict) or not isinstance(fields.get("manifest_path"), str):
        raise source.fault("a manifest without a path")
    if source.remaining:
        raise source.fault(f"{source.remaining} bytes behind a manifest")
    return {
        "manifest": fields["manifest_path"], "content": _CONTENTS.get(fields.get("content")),
        "manifest_bytes": fields.get("manifest_length"), "files": fields.get("added_files_count"),
        "rows": fields.get("added_rows_count"),
    }  # fmt: skip


def read_paimon(version: int, source: DataInput) -> list[Row]:
    """Return a row for each file of a committable of Paimon, and one for a checkpoint without."""
    row: Row = {"table_format": "paimon", "checkpoint": source.read_long()}
    row["watermark"] = None if source.read_boolean() else source.read_long()
    if version < 5:
        for _ in range(source.read_count("offsets", 12)):
            source.read_int()
            source.read_long()
    if version > 3:
        for _ in range(source.read_count("properties", 4)):
            source.read_utf()
            source.read_utf()
    messages = source.read_int()
    if messages not in _PAIMON_MESSAGES:
        raise source.fault(f"messages of version {messages}")
    files = [
        row | file
        for _ in range(source.read_count("messages", 40))
        for file in _message(messages, source)
    ]
    return files or [row]


def _message(version: int, source: DataInput) -> list[Row]:
    source.read_bytes(source.read_length("bytes of a partition"))
    row: Row = {"bucket": source.read_int()}
    if version >= 7 and source.read_boolean():
        source.read_int()
    changes: list[Row] = []
    for number, change in enumerate(_PAIMON_LISTS):
        for file in _rows(source):
            name, size, rows = _text(file, 0), _fixed(file, 1), _fixed(file, 2)
            changes.append(row | {"file": name, "change": change, "bytes": size, "rows": rows})
        if version >= 10 and number in (2, 5):
            changes += [row | index for index in _indexes(source)]
    if version < 10:
        changes += [row | index for index in _indexes(source)]
    return changes


def _indexes(source: DataInput) -> Iterator[Row]:
    for change in ("new index", "deleted index"):
        for file in _rows(source):
            yield {
                "file": _text(file, 1), "change": change, "bytes": _fixed(file, 2),
                "rows": _fixed(file, 3),
            }  # fmt: skip


def _rows(source: DataInput) -> Iterator[DataInput]:
    for _ in range(source.read_count("files", 36)):
        yield DataInput(source.read_bytes(source.read_length("bytes of a file's row")))


def _fixed(row: DataInput, field: int) -> int:
    """Return a number of a row with at most 56 fields, whose null bits take eight bytes."""
    at = 8 * (field + 1)
    if at + 8 > len(row.data):
        raise row.fault("a row that is too short")
    return int.from_bytes(row.data[at : at + 8], "little", signed=True)


def _text(row: DataInput, field: int) -> str:
    """Return a text of a row: up to seven bytes are in its field, longer texts after the fields."""
    stored = _fixed(row, field) & (1 << 64) - 1
    if stored >> 63:
        at, length = 8 * (field + 1), stored >> 56 & 0x7F
    else:
        at, length = stored >> 32, stored & 0xFFFFFFFF
    if length > len(row.data) - at or (stored >> 63 and length > 7):
        raise row.fault("a text behind its row")
    return bytes(row.data[at : at + length]).decode("utf-8", "replace")


def read_delta(source: DataInput) -> list[Row]:
    """Return the row of a file that Delta's sink has to commit."""
    if source.read_int() != _DELTA_MAGIC:
        raise source.fault("no committable of Delta")
    return [_delta_file(source)]


def read_delta_table(source: DataInput) -> list[Row]:
    """Return a row for each file of a committable of Delta's committer of a table."""
    if source.read_int() != _DELTA_MAGIC:
        raise source.fault("no committable of Delta")
    return [_delta_file(source) for _ in range(source.read_count("files", 48))]


def _delta_file(source: DataInput) -> Row:
    row: Row = {"table_format": "delta", "application": source.read_utf()}
    row["checkpoint"] = source.read_long()
    partition = [
        f"{source.read_utf()}={source.read_utf()}" for _ in range(source.read_count("columns", 4))
    ]
    row |= {"partition": "/".join(partition) or None, "file": source.read_utf()}
    rows, size, time = source.read_longs(3)
    read_versioned(source)
    return row | {"rows": rows, "bytes": size, "modified_ms": time}


def read_pulsar(source: DataInput) -> list[Row]:
    """Return the row of a transaction that Pulsar's sink has to commit."""
    high, low = source.read_longs(2)
    return [{"transaction": f"({high},{low})", "topic": source.read_utf()}]
