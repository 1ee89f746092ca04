"""Flink CDC's sources: chunks of tables, and the log that is read after them.

::

    chunk            i32 1; [boolean]; UTF table, id, type of the key, start, end; position; schemas
    log              i32 2; UTF id, ""; position, position of the end;
                     i32 n, n * (UTF table, chunk, start, end; [UTF factory]; position; [boolean]);
                     schemas; i32 chunks; boolean: suspended; [6: boolean: all chunks are read]
    schemas          i32 n, n * ([boolean]; UTF table; i32 length, JSON)
    position         boolean, then i32 length, JSON: an object of text
    enumerator       i32 version of splits; i32 1: chunks, 2: log, 3: both; boolean: log assigned
    its chunks       tables; i32 n, n * (i32 length, chunk);
                     i32 n, n * (UTF id; i32 length, chunk);
                     i32 n, n * (UTF id, position); i32 status; tables; boolean; schemas;
                     [7: i32 n, n * (UTF id, i64 checkpoint)];
                     MySQL and 8: boolean, then UTF table, next start, i32 next chunk
    tables           i32 n, n * ([boolean]; UTF table)

What stands in brackets is not in MySQL's (splits 4, enumerator 5), but in those of the other
databases (splits 5 and 6, enumerators 6 to 8). Starts and ends are Java streams of arrays, in
hexadecimal digits, which are parsed and never deserialized.

Source: `MySqlSplitSerializer`, `SourceSplitSerializer`, and either
`PendingSplitsStateSerializer` in `org.apache.flink.cdc.connectors`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

from statelake.state_core.connectors.versioned import KeptBytes, read_exactly
from statelake.state_core.errors import EncodeError
from statelake.state_core.files.java_stream import JavaArray, JavaObject, read_java_stream
from statelake.state_core.files.wire import DataInput, DataOutput

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
        head: The bytes before the position.
        place: The position as JSON: that of the log where it continues, or where it stood when the
            chunk was read; None if it has not been read.
        tail: The bytes behind it.
    """

    kind: str
    version: int
    split_id: str
    table: str | None
    start: str | None
    end: str | None
    head: bytes
    place: bytes | None
    tail: bytes

    def encode(self) -> bytes:
        """Return the bytes of its version."""
        out = DataOutput()
        out.write_bytes(self.head)
        out.write_boolean(self.place is not None)
        if self.place is not None:
            out.write_sized(self.place)
        out.write_bytes(self.tail)
        return out.to_bytes()

    @property
    def offset(self) -> dict[str, str | None]:
        """The position, by name."""
        return {} if self.place is None else _position(DataInput(self.place), self.place)

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


def _position(source: DataInput, data: bytes) -> dict[str, str | None]:
    try:
        position = json.loads(data)
    except (ValueError, RecursionError):
        raise source.fault("a position that is not JSON") from None
    if not isinstance(position, dict) or not all(
        value is None or isinstance(value, str) for value in position.values()
    ):
        raise source.fault("a position that is no object of text")
    return position


class _CdcReader:
    """A reader of the parts of splits and enumerators of MySQL or of another database."""

    def __init__(self, kind: str, version: int) -> None:
        self.kind = kind
        self.version = version
        self.others = kind == OTHERS

    def split(self, source: DataInput) -> CdcSplit:
        form = source.read_int()
        if form == _CHUNK:
            return self._chunk(source)
        if form != _LOG:
            raise source.fault(f"a split of form {form}")
        split_id = source.read_utf()
        if source.read_utf():
            raise source.fault("a log with keys")
        head = source.data[: source.position]
        place = self.place(source)
        behind = source.position
        self.place(source)
        for _ in range(source.read_count("chunks", 9)):
            self._finished(source)
        self.schemas(source)
        source.read_int()
        source.read_boolean()
        if self.others and self.version > _SPLITS[0]:
            source.read_boolean()
        tail = source.data[behind : source.position]
        return CdcSplit(
            self.kind, self.version, split_id, None, None, None, bytes(head), place, bytes(tail)
        )

    def _chunk(self, source: DataInput) -> CdcSplit:
        table = self.table(source)
        split_id = source.read_utf()
        source.read_utf()
        start, end = (_boundary(source, source.read_utf()) for _ in range(2))
        head = source.data[: source.position]
        place = self.place(source)
        behind = source.position
        self.schemas(source)
        tail = source.data[behind : source.position]
        return CdcSplit(
            self.kind, self.version, split_id, table, start, end, bytes(head), place, bytes(tail)
        )

    def _finished(self, source: DataInput) -> None:
        for _ in range(2):
            source.read_utf()
        for _ in range(2):
            _boundary(source, source.read_utf())
        if self.others:
            _hexadecimal(source, source.read_utf())
        self.place(source)
        if self.others:
            source.read_boolean()

    def place(self, source: DataInput) -> bytes | None:
        if not source.read_boolean():
            return None
        data = bytes(source.read_bytes(source.read_length("bytes of a position")))
        _position(source, data)
        return data

    def table(self, source: DataInput) -> str:
        if self.others:
            source.read_boolean()
        text = source.read_utf()
        quote = text[:1]
        if len(text) < 2 or quote not in ('"', "`") or text[-1] != quote:
            raise source.fault("a table's name without quotes")
        parts = text[1:-1].split(f"{quote}.{quote}")
        return ".".join(part.replace(2 * quote, quote) for part in parts)

    def schemas(self, source: DataInput) -> None:
        for _ in range(source.read_count("schemas", 8)):
            self.table(source)
            if not bytes(source.read_bytes(source.read_length("bytes of a schema"))):
                raise source.fault("a schema without content")

    def tables(self, source: DataInput) -> tuple[str, ...]:
        return tuple(self.table(source) for _ in range(source.read_count("tables", 4)))


def _hexadecimal(source: DataInput, text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise source.fault("a Java object that is not in hexadecimal digits") from None


def _boundary(source: DataInput, text: str) -> str | None:
    """Return the key at the border of a chunk; None without one, or the class of another key."""
    stream = DataInput(_hexadecimal(source, text))
    bound = read_java_stream(stream)
    if bound is None:
        return None
    if not isinstance(bound, JavaArray) or stream.remaining:
        raise source.fault("a border of a chunk that is no array")
    return ", ".join(map(_key, bound.items))


def _key(value: object) -> str:
    if isinstance(value, JavaObject):
        number = value.values.get("value")
        return str(number) if isinstance(number, int | float) else value.java_class.name
    return value if isinstance(value, str) else type(value).__name__


def read_cdc_split(version: int, data: bytes) -> CdcSplit | None:
    """Return a split of Flink CDC; None if the bytes are not one."""
    for kind, versions in ((MYSQL, (_MYSQL_SPLIT,)), (OTHERS, _SPLITS)):
        if version in versions:
            return read_exactly(_CdcReader(kind, version).split, data)
    return None


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
    for kind, versions in ((MYSQL, (_MYSQL_ENUMERATOR,)), (OTHERS, _ENUMERATORS)):
        if version in versions:
            return read_exactly(lambda source, kind=kind: _enumerator(kind, version, source), data)  # type: ignore[misc] # bound in the loop
    return None


def _enumerator(kind: str, version: int, source: DataInput) -> CdcEnumerator:
    splits_version = source.read_int()
    if splits_version not in ((_MYSQL_SPLIT,) if kind == MYSQL else _SPLITS):
        raise source.fault(f"splits of version {splits_version}")
    form = source.read_int()
    state = CdcEnumerator(kind, version, (), (), 0, None, (), None, None, b"")
    if form in (_CHUNK, _BOTH):
        state = _chunks(state, _CdcReader(kind, splits_version), source)
    if form in (_LOG, _BOTH):
        state = replace(state, log_assigned=source.read_boolean())
    if form not in (_CHUNK, _LOG, _BOTH):
        raise source.fault(f"an enumerator of form {form}")
    return replace(state, data=bytes(source.data[: source.position]))


def _chunks(state: CdcEnumerator, reader: _CdcReader, source: DataInput) -> CdcEnumerator:
    def sized() -> CdcSplit:
        data = source.read_bytes(source.read_length("bytes of a chunk"))
        split = read_exactly(reader.split, bytes(data))
        if split is None or split.is_log:
            raise source.fault("no chunk of a table")
        return split

    reader.tables(source)
    waiting = tuple(sized() for _ in range(source.read_count("chunks", 4)))
    assigned = []
    for _ in range(source.read_count("chunks", 6)):
        source.read_utf()
        assigned.append(sized())
    read = {}
    for _ in range(source.read_count("chunks", 3)):
        name = source.read_utf()
        read[name] = reader.place(source)
    code = source.read_int()
    if not 0 <= code < len(_STATUSES):
        raise source.fault(f"a phase of number {code}")
    tables = reader.tables(source)
    source.read_boolean()
    reader.schemas(source)
    if state.version > _ENUMERATORS[0]:
        for _ in range(source.read_count("chunks", 10)):
            source.read_utf()
            source.read_long()
    in_work = None
    if state.kind == MYSQL or state.version > 7:
        in_work = _in_work(source)
    return replace(
        state, splits=waiting, chunks_read=len(read),
        assigned=tuple(replace(each, place=read.get(each.split_id)) for each in assigned),
        status=_STATUSES[code], tables_waiting=tables, table_in_work=in_work,
    )  # fmt: skip


def _in_work(source: DataInput) -> str | None:
    """Read the table that is being split: its name has no mark before it."""
    if not source.read_boolean():
        return None
    table = _CdcReader(MYSQL, _MYSQL_SPLIT).table(source)
    _boundary(source, source.read_utf())
    source.read_int()
    return table
