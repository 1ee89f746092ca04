"""Flink CDC's sources: chunks of tables, and the log that is read after them.

MySQL's have splits 4 and enumerator 5, those of the other databases splits 5 and 6, enumerators 6
to 8. Starts and ends are Java streams of arrays, in
hexadecimal digits, which are parsed and never deserialized.

Source: `MySqlSplitSerializer`, `SourceSplitSerializer`, and either
`PendingSplitsStateSerializer` in `org.apache.flink.cdc.connectors`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from statelake.state_core.connectors.records import (
    BOOLEAN,
    BYTES,
    INT,
    LONG,
    UTF,
    CheckedValue,
    Code,
    Sized,
    among,
    many,
    optional,
    record,
)
from statelake.state_core.connectors.versioned import KeptBytes, encoded, read_exactly
from statelake.state_core.errors import EncodeError
from statelake.state_core.files.java_stream import JavaArray, JavaObject, read_java_stream
from statelake.state_core.files.wire import DataInput
from statelake.state_core.serializers.framework.base import TypeSerializer

MYSQL, OTHERS = "mysql-cdc", "cdc"
_MYSQL_SPLIT, _MYSQL_ENUMERATOR = 4, 5
_SPLITS, _ENUMERATORS = (5, 6), (6, 7, 8)
_CHUNK, _LOG, _BOTH = 1, 2, 3
_STATUSES = (
    "initial_assigning",
    "initial_assigning_finished",
    "newly_added_assigning",
    "newly_added_assigning_snapshot_finished",
    "newly_added_assigning_finished",
)
_WORDS = {"EARLIEST": "earliest", "LATEST": "latest", "TIMESTAMP": "timestamp"}
_BINLOG_PLACE = re.compile(r"([^:=\s]+):(\d{1,19})")
_GTIDS = re.compile(r"[0-9A-Fa-f-]{36}(:[\w-]+)+(,[0-9A-Fa-f-]{36}(:[\w-]+)+)*")
_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_LSN_KEY = "lsn"


@dataclass(frozen=True, slots=True)
class CdcSplit:
    """A chunk of a table, or the log.

    Attributes:
        kind: `mysql-cdc`, or `cdc` of another database.
        version: The version of its format.
        split_id: Its name.
        table: The chunk's table; None for the log.
        start: The first key of the chunk; None without a bound.
        end: The key behind its last one; None without a bound.
        place: The position as JSON: that of the log where it continues, or where it stood when the
            chunk was read; None if it has not been read.
        fields: The fields other than the position, as they are written.
    """

    kind: str
    version: int
    split_id: str
    table: str | None
    start: str | None
    end: str | None
    place: bytes | None
    fields: Mapping[str, Any]

    def encode(self) -> bytes:
        """Return the bytes of its version."""
        form = _forms(self.kind, self.version)[_LOG if self.is_log else _CHUNK]
        return encoded(form, {**self.fields, "position": self.place})

    @property
    def offset(self) -> dict[str, str | None]:
        """The position, by name."""
        return {} if self.place is None else _position(self.place)

    @property
    def is_log(self) -> bool:
        """Return whether it is the log, not a chunk."""
        return self.table is None

    def columns(self) -> dict[str, object]:
        """Return its content by name."""
        place = self.offset
        row: dict[str, object] = {
            "split_id": self.split_id, "table": self.table, "chunk_start": self.start,
            "chunk_end": self.end, "read": None if self.is_log else self.place is not None,
        }  # fmt: skip
        if self.kind == MYSQL:
            file = place.get("file") or None
            row |= {
                "offset": _WORDS.get(place.get("kind") or ""), "file": file,
                "position": _number(place.get("pos")) if file else None,
                "skipped_events": _number(place.get("event")) or None,
                "skipped_rows": _number(place.get("row")) or None, "gtids": place.get("gtids"),
            }  # fmt: skip
        else:
            lsn = _number(place.get(_LSN_KEY))
            row |= {
                "lsn": None if lsn is None else lsn_text(lsn),
                "transaction": place.get("txId"),
                "place": None if lsn is not None or self.place is None else place,
            }
            row["place"] = json.dumps(row["place"]) if row["place"] else None
        return row

    def shown_offset(self) -> str:
        """Return the position in one word, as `with_offset` takes it."""
        row = self.columns()
        if self.kind == MYSQL:
            at = row["offset"] or (f"{row['file']}:{row['position']}" if row["file"] else None)
            return str(at or row["gtids"] or "-")
        return str(row["lsn"] or row["place"] or "-")

    def with_offset(self, text: str) -> CdcSplit:
        """Return the log from another position on.

        Args:
            text: `FILE:POSITION`, a set of GTIDs, `earliest` or `latest` of MySQL; an LSN of
                Postgres.

        Raises:
            EncodeError: The text is no position of this database.
        """
        made = _mysql_offset(text) if self.kind == MYSQL else self._postgres_offset(text)
        return replace(self, place=json.dumps(made, separators=(",", ":")).encode())

    def _postgres_offset(self, text: str) -> dict[str, str]:
        """Return a position as the connector makes one; without the last transaction."""
        before = self.offset
        if _LSN_KEY not in before or not set(before) <= {
            _LSN_KEY, "txId", "ts_usec", "lsn_proc", "lsn_commit", "messageType", "transaction_id",
        }:  # fmt: skip
            raise EncodeError(
                f"{self.split_id} is not a log of Postgres or MySQL",
                remedy="offsets of other databases can't be changed",
            )
        match = _LSN.fullmatch(text)
        number = 0 if match is None else int(match[1], 16) << 32 | int(match[2], 16)
        if not 0 < number < 1 << 63:
            raise EncodeError(
                f"{text!r} is no position in the log of Postgres",
                remedy="give an LSN such as 0/16B3748",
            )
        return {_LSN_KEY: str(number), "ts_usec": before.get("ts_usec") or "0"}


def _mysql_offset(text: str) -> dict[str, str]:
    """Return a position as the connector's `BinlogOffset` makes one."""
    made = {"ts_sec": "0", "file": "", "pos": "0", "kind": "SPECIFIC", "row": "0", "event": "0"}
    if text in ("earliest", "latest"):
        latest = {"pos": str((1 << 63) - 1)} if text == "latest" else {}
        return made | latest | {"kind": text.upper()}
    if _GTIDS.fullmatch(text):
        return made | {"gtids": text}
    match = _BINLOG_PLACE.fullmatch(text)
    if match is None or int(match[2]) >= 1 << 63:
        raise EncodeError(
            f"{text!r} is no position in the binary log of MySQL",
            remedy="give FILE:POSITION such as mysql-bin.000003:154, a set of GTIDs, earliest or"
            " latest",
        )
    return made | {"file": match[1], "pos": str(int(match[2]))}


def lsn_text(number: int) -> str:
    """Return a position in the log of Postgres as Postgres writes it."""
    return f"{(number >> 32) & 0xFFFFFFFF:X}/{number & 0xFFFFFFFF:X}"


def _number(text: str | None) -> int | None:
    try:
        return None if text is None or len(text) > len(str(-(1 << 63))) else int(text)
    except ValueError:
        return None


def _position(data: bytes) -> dict[str, str | None]:
    try:
        position = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("a position that is not JSON") from None
    if not isinstance(position, dict) or not all(
        value is None or isinstance(value, str) for value in position.values()
    ):
        raise ValueError("a position that is no object of text")
    return position


def _table(text: str) -> str:
    """Return the name of a table without its quotes."""
    quote = text[:1]
    if len(text) < 2 or quote not in ('"', "`") or text[-1] != quote:
        raise ValueError("a table's name without quotes")
    parts = text[1:-1].split(f"{quote}.{quote}")
    return ".".join(part.replace(2 * quote, quote) for part in parts)


@lru_cache(1024)  # each is checked first, and shown later
def _boundary(text: str) -> str | None:
    """Return the key at the border of a chunk; None without one, or the class of another key."""
    stream = DataInput(bytes.fromhex(text))
    bound = read_java_stream(stream)
    if bound is None:
        return None
    if not isinstance(bound, JavaArray) or stream.remaining:
        raise ValueError("a border of a chunk that is no array")
    return ", ".join(map(_key, bound.items))


def _key(value: object) -> str:
    if isinstance(value, JavaObject):
        number = value.values.get("value")
        return str(number) if isinstance(number, int | float) else value.java_class.name
    return value if isinstance(value, str) else type(value).__name__


def _be_empty(text: str) -> None:
    if text:
        raise ValueError("a log with keys")


def _be_filled(data: bytes) -> None:
    if not data:
        raise ValueError("a schema without content")


_TABLE, _BORDER, _HEXADECIMAL = (
    CheckedValue(UTF, check) for check in (_table, _boundary, bytes.fromhex)
)  # a border is a Java stream in hexadecimal digits
_POSITION = optional(CheckedValue(BYTES, _position))  # JSON


@cache
def _forms(kind: str, version: int) -> dict[int, TypeSerializer]:
    """Return the bytes of a chunk, of the log, and of an enumerator's chunks.

    Args:
        kind: `mysql-cdc` or `cdc`: only the latter has marks and later fields.
        version: The version of splits.
    """
    others = kind == OTHERS
    mark: dict[str, TypeSerializer] = {"mark": BOOLEAN} if others else {}
    factory: dict[str, TypeSerializer] = {"factory": _HEXADECIMAL} if others else {}
    all_read: dict[str, TypeSerializer] = {"all_read": BOOLEAN} if version > _SPLITS[0] else {}
    borders: dict[str, TypeSerializer] = {"start": _BORDER, "end": _BORDER}
    schemas = many(record(**mark, table=_TABLE, schema=CheckedValue(BYTES, _be_filled)))
    tables = many(record(**mark, table=_TABLE))
    chunk = record(
        form=among(_CHUNK), **mark, table=_TABLE, split_id=UTF, key_type=UTF, **borders,
        position=_POSITION, schemas=schemas,
    )  # fmt: skip
    finished = record(table=UTF, chunk=UTF, **borders, **factory, position=_POSITION, **mark)
    log = record(
        form=among(_LOG), split_id=UTF, keys=CheckedValue(UTF, _be_empty), position=_POSITION,
        end=_POSITION, finished=many(finished), schemas=schemas, chunks=INT, suspended=BOOLEAN,
        **all_read,
    )  # fmt: skip
    chunks = record(
        tables=tables, waiting=many(Sized(chunk)),
        assigned=many(record(split_id=UTF, chunk=Sized(chunk))),
        read=many(record(split_id=UTF, position=_POSITION)), status=Code(_STATUSES),
        tables_waiting=tables, with_checkpoints=BOOLEAN, schemas=schemas,
    )  # fmt: skip
    return {_CHUNK: chunk, _LOG: log, _BOTH: chunks}


# behind the chunks in later enumerators: when they were read, and the table that is being split
_CHECKPOINTS = many(record(split_id=UTF, checkpoint=LONG))
_IN_WORK = optional(record(table=_TABLE, next_start=_BORDER, next_chunk=INT))


def _split(kind: str, version: int, fields: Mapping[str, Any]) -> CdcSplit:
    table = fields.get("table")
    start, end = (None if table is None else _boundary(fields[name]) for name in ("start", "end"))
    return CdcSplit(
        kind, version, fields["split_id"], None if table is None else _table(table), start, end,
        fields["position"], {name: fields[name] for name in fields if name != "position"},
    )  # fmt: skip


def read_cdc_split(version: int, data: bytes) -> CdcSplit | None:
    """Return a split of Flink CDC; None if the bytes are not one."""
    kind = MYSQL if version == _MYSQL_SPLIT else OTHERS
    if version not in (_MYSQL_SPLIT, *_SPLITS):
        return None
    form = _forms(kind, version)[_LOG if data[:4] == _LOG.to_bytes(4, "big") else _CHUNK]
    return read_exactly(lambda source: _split(kind, version, form.read(source)), data)


@dataclass(frozen=True, slots=True)
class CdcEnumerator(KeptBytes):
    """The state of the enumerator.

    Attributes:
        kind: `mysql-cdc`, or `cdc` of another database.
        version: The version of its format.
        splits: The chunks that no reader has got.
        assigned: The others; where the log stood if they are read.
        chunks_read: How many are read.
        status: The phase of the snapshot; None without a snapshot.
        tables_waiting: The tables that are not split into chunks.
        table_in_work: The table that is being split; None without one.
        log_assigned: Whether a reader has the log; None if it is not read.
        data: Its bytes.
    """

    kind: str
    version: int
    splits: tuple[CdcSplit, ...]
    assigned: tuple[CdcSplit, ...]
    chunks_read: int
    status: str | None
    tables_waiting: tuple[str, ...]
    table_in_work: str | None
    log_assigned: bool | None
    data: bytes

    def details(self) -> dict[str, object]:
        """Return its values other than splits, by name."""
        return {
            "status": self.status, "tables_waiting": list(self.tables_waiting),
            "table_in_work": self.table_in_work, "log_assigned": self.log_assigned,
            "chunks_read": self.chunks_read,
        }  # fmt: skip


def read_cdc_enumerator(version: int, data: bytes) -> CdcEnumerator | None:
    """Return the state of Flink CDC's enumerator; None if the bytes are not one."""
    if version not in (_MYSQL_ENUMERATOR, *_ENUMERATORS):
        return None
    return read_exactly(lambda source: _enumerator(version, source), data)


def _enumerator(version: int, source: DataInput) -> CdcEnumerator:
    kind = MYSQL if version == _MYSQL_ENUMERATOR else OTHERS
    splits = among(*((_MYSQL_SPLIT,) if kind == MYSQL else _SPLITS)).read(source)
    form = among(_CHUNK, _LOG, _BOTH).read(source)
    state = CdcEnumerator(kind, version, (), (), 0, None, (), None, None, bytes(source.data))
    if form != _LOG:
        state = _with_chunks(state, splits, source)
    return state if form == _CHUNK else replace(state, log_assigned=source.read_boolean())


def _with_chunks(state: CdcEnumerator, splits: int, source: DataInput) -> CdcEnumerator:
    fields = _forms(state.kind, splits)[_BOTH].read(source)
    if state.version > _ENUMERATORS[0]:
        _CHECKPOINTS.read(source)
    in_work = None
    if state.kind == MYSQL or state.version == _ENUMERATORS[-1]:
        in_work = _IN_WORK.read(source)
    read = {chunk["split_id"]: chunk["position"] for chunk in fields["read"]}
    assigned = [_split(state.kind, splits, each["chunk"]) for each in fields["assigned"]]
    return replace(
        state, splits=tuple(_split(state.kind, splits, each) for each in fields["waiting"]),
        assigned=tuple(replace(each, place=read.get(each.split_id)) for each in assigned),
        chunks_read=len(read), status=fields["status"],
        tables_waiting=tuple(_table(each["table"]) for each in fields["tables_waiting"]),
        table_in_work=None if in_work is None else _table(in_work["table"]),
    )  # fmt: skip
