"""Committables of table sinks: manifests of Iceberg, files of Paimon and Delta.

Rows of Paimon's files are as Flink SQL has them. A manifest of Iceberg is C2 01, UTF schema, and a
record in Avro's binary encoding.

These are only read, never written.

Source: `IcebergFilesCommitter`, `DeltaManifestsSerializer`, `IcebergCommittableSerializer` in
`org.apache.iceberg.flink.sink`, `AvroEncoderUtil`; `ManifestCommittableSerializer` and
`CommitMessageSerializer` in `org.apache.paimon`; `DeltaCommittableSerializer` and
`DeltaGlobalCommittableSerializer` in `io.delta.flink.sink.internal.committables`;
`PulsarCommittableSerializer` in `org.apache.flink.connector.pulsar.sink.committer`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from statelake.state_core.connectors.records import (
    BYTES,
    INT,
    LONG,
    UTF,
    VERSIONED,
    VersionedList,
    among,
    many,
    optional,
    record,
)
from statelake.state_core.files.wire import DataInput
from statelake.state_core.serializers.contents.avro_messages import read_avro
from statelake.state_core.serializers.framework.base import TypeSerializer

Row = dict[str, Any]

ICEBERG_STATE = "iceberg-files-committer-state"
PAIMON_VERSIONS = (3, 4, 5)
_AVRO_MAGIC = b"\xc2\x01"
_CONTENTS = {None: "data", 0: "data", 1: "deletes"}
_ICEBERG_CHECKPOINTS = many(record(checkpoint=LONG, manifests=optional(BYTES, null_flag=True)))
_ICEBERG = record(job_id=UTF, operator_id=UTF, checkpoint=LONG, manifests=BYTES)
_MANIFESTS = record(data=BYTES, deletes=BYTES, data_files=many(UTF))
_FILES = ("new", "deleted", "changelog", "compacted", "compaction", "compaction changelog")
_INDEXES = ("new index", "deleted index")
_DELTA_MAGIC = among(0x1E765C80)
_DELTA_FILE = record(
    application=UTF, checkpoint=LONG, partition=many(record(column=UTF, value=UTF)), file=UTF,
    rows=LONG, bytes=LONG, modified_ms=LONG, pending=VERSIONED,
)  # fmt: skip
_DELTA = record(magic=_DELTA_MAGIC, file=_DELTA_FILE)
_DELTA_TABLE = record(magic=_DELTA_MAGIC, files=many(_DELTA_FILE))
_PULSAR = record(high=LONG, low=LONG, topic=UTF)


def read_iceberg_checkpoints(source: DataInput) -> list[Row]:
    """Return a row for each manifest of the old sink's state, and for checkpoints without files."""
    return [
        {"table_format": "iceberg", "checkpoint": each["checkpoint"]} | manifest
        for each in _ICEBERG_CHECKPOINTS.read(source)
        for manifest in (_manifests(each["manifests"]) if each["manifests"] else [{}])
    ]


def read_iceberg(source: DataInput) -> list[Row]:
    """Return a row for each manifest of a committable of Iceberg's new sink."""
    row = _ICEBERG.read(source)
    manifests = _manifests(row.pop("manifests"))
    return [{"table_format": "iceberg"} | row | manifest for manifest in manifests]


def _manifests(data: bytes) -> list[Row]:
    """Return a row for each manifest, or an empty one."""
    source = DataInput(data)
    version, content = VERSIONED.read(source).values()
    if source.remaining or version not in (1, 2):
        raise source.fault(f"manifests of version {version}")
    if version == 1:
        return [_manifest(content)]
    inner = DataInput(content)
    manifests = _MANIFESTS.read(inner)
    if inner.remaining:
        raise inner.fault(f"{inner.remaining} bytes behind manifests")
    contents = manifests["data"], manifests["deletes"]
    return [_manifest(content) for content in contents if content] or [{}]


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
    fields = _paimon(version).read(source)
    messages_version, messages = fields["messages"]
    row: Row = {"table_format": "paimon"}
    row |= {name: fields[name] for name in ("checkpoint", "watermark")}
    changes = _changes(messages_version)
    files = [
        {**row, "bucket": message["bucket"], **_file(change, DataInput(file))}
        for message in messages
        for number, change in enumerate(changes)
        for file in message[f"files_{number}"]
    ]
    return files or [row]


@cache
def _paimon(version: int) -> TypeSerializer:
    """Return the bytes of a committable."""
    fields: dict[str, TypeSerializer] = {
        "checkpoint": LONG, "watermark": optional(LONG, null_flag=True),
        "offsets": many(record(bucket=INT, offset=LONG)),
        "properties": many(record(name=UTF, value=UTF)),
        "messages": VersionedList({each: _message(each) for each in range(3, 14)}, first=True),
    }  # fmt: skip
    without = {3: "properties", 5: "offsets"}.get(version)
    return record(**{name: field for name, field in fields.items() if name != without})


def _message(version: int) -> TypeSerializer:
    buckets = {"buckets": optional(INT)} if version >= 7 else {}
    files = {f"files_{number}": many(BYTES) for number, _ in enumerate(_changes(version))}
    return record(partition=BYTES, bucket=INT, **buckets, **files)


def _changes(version: int) -> tuple[str, ...]:
    """Return what became of the files of each list of a message."""
    if version < 10:
        return _FILES + _INDEXES
    return _FILES[:3] + _INDEXES + _FILES[3:] + _INDEXES


def _file(change: str, row: DataInput) -> Row:
    """Return what is shown of a file; before the name of an index is its type."""
    name = 1 if change in _INDEXES else 0
    return {
        "file": _text(row, name), "change": change, "bytes": _fixed(row, name + 1),
        "rows": _fixed(row, name + 2),
    }  # fmt: skip


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
    return [_delta_row(_DELTA.read(source)["file"])]


def read_delta_table(source: DataInput) -> list[Row]:
    """Return a row for each file of a committable of Delta's committer of a table."""
    return [_delta_row(file) for file in _DELTA_TABLE.read(source)["files"]]


def _delta_row(file: Row) -> Row:
    del file["pending"]
    partition = "/".join("{column}={value}".format(**each) for each in file["partition"])
    return {"table_format": "delta"} | file | {"partition": partition or None}


def read_pulsar(source: DataInput) -> list[Row]:
    """Return the row of a transaction that Pulsar's sink has to commit."""
    row = _PULSAR.read(source)
    return [{"transaction": "({high},{low})".format(**row), "topic": row["topic"]}]
