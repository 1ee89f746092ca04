"""Records of erasures and audits: a table of the lake that no erasure changes.

Each record has the hash of the one before, and its own over all its fields. So a record that is
changed, removed or inserted is detected, unless all later ones are written anew: a copy of the
newest hash elsewhere detects that, too.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import partial
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from deltalake import CommitProperties

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.tables.delta_commit import DeltaCommit, until_committed
from statelake.pipelines.lake.tables.names import ERASURE_RECORDS, new_edited_file
from statelake.pipelines.lake.tables.records import arrow_fields
from statelake.pipelines.lake.tables.tables import (
    CONFIGURATION,
    StateTable,
    create_table,
    open_table,
    read_rows,
)
from statelake.state_core.errors import DamagedLakeError, MissingFileError, UnsafePathError
from statelake.state_core.files.outside import checked, one_of, parse_json

ERASE = "erase"
AUDIT = "audit"


class _Erasure(msgspec.Struct):
    """The content of an erasure's record that is read again; older ones have two fields less."""

    jobs: list[str]
    asked: str = ""
    only: list[str] = []


class _Audit(msgspec.Struct):
    """The content of an audit's record that is read again."""

    erasure: str
    hit_count: int
    rows: int
    not_unpacked: list[str]
    unread: str


@dataclass(frozen=True)
class AuditRecord:
    """One record.

    Attributes:
        number: Its number, from 0 on.
        kind: `erase` or `audit`.
        request: The id of the request.
        recorded_at: When it was recorded, in ISO 8601.
        requested_by: Who requested it.
        said: Its content, as JSON.
        previous: The digest of the record before; empty for the first.
        digest: The SHA-256 of all the other fields.
    """

    number: int
    kind: Annotated[str, one_of((ERASE, AUDIT))]
    request: str
    recorded_at: str
    requested_by: str
    said: str
    previous: str
    digest: str = ""

    def sealed(self) -> str:
        """Return the digest that it must have."""
        fields = {name: value for name, value in asdict(self).items() if name != "digest"}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return the whole record, with its content parsed."""
        return asdict(self) | {"said": json.loads(self.said)}

    def check(self, place: str) -> None:
        """Refuse a record that statelake can't have written, whatever its digest.

        Raises:
            DamagedLakeError: It breaks a rule.
        """
        refused = partial(
            DamagedLakeError,
            place=f"{place}, record {self.number} of erasures",
            remedy="statelake did not write that: see who else writes into the lake, and take"
            " the table from a copy",
        )
        checked(asdict(self), AuditRecord, refused)
        content = parse_json(self.said, refused)
        checked(content, _Erasure if self.kind == ERASE else _Audit, refused)


SCHEMA = pa.schema(arrow_fields(AuditRecord))


def requester_here() -> str:
    """Return the user and the host of this process."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        name = "unknown"
    return f"{name}@{socket.gethostname()}"


def audit_records(lake: Catalog) -> list[AuditRecord]:
    """Return all records, in their order.

    Raises:
        DamagedLakeError: The table can't be read, or has an invalid record.
    """
    directory = StateTable(lake.directory, ERASURE_RECORDS).directory
    table = open_table(directory)
    if table is None:
        return []
    try:
        rows = read_rows(table, directory, SCHEMA).sort_by("number").to_pylist()
    except UnsafePathError:
        raise
    except (MissingFileError, OSError, pa.ArrowException) as error:
        raise DamagedLakeError(
            f"the records of erasures can't be read ({error})", place=directory.uri
        ) from error
    records = [AuditRecord(**row) for row in rows]
    for record in records:
        record.check(directory.uri)
    return records


def broken_record(records: list[AuditRecord]) -> AuditRecord | None:
    """Return the first record that was changed, or whose predecessor is not the recorded one."""
    previous = ""
    for number, record in enumerate(records):
        if (record.number, record.previous, record.digest) != (number, previous, record.sealed()):
            return record
        previous = record.digest
    return None


def add_record(
    lake: Catalog, kind: str, request: str, requested_by: str, content: Mapping[str, Any]
) -> AuditRecord:
    """Append a record, unless it is the record of an erasure that already has one.

    Raises:
        ConflictError: Other commits came first, again and again.
    """
    lake.refuse_writing()
    directory = StateTable(lake.directory, ERASURE_RECORDS).directory
    text = json.dumps(content, sort_keys=True)

    def attempt() -> AuditRecord | None:
        table = open_table(directory) or create_table(
            directory, SCHEMA, configuration=CONFIGURATION, name="erasures"
        )
        before = audit_records(lake)
        same = (ERASE, request, text)
        for record in before if kind == ERASE else ():
            if (record.kind, record.request, record.said) == same:
                return record  # another process with this request has written it
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        previous = before[-1].digest if before else ""
        open_ = AuditRecord(len(before), kind, request, now, requested_by, text, previous)
        record = AuditRecord(**{**asdict(open_), "digest": open_.sealed()})
        change = DeltaCommit(directory, SCHEMA, None, CommitProperties())
        change.add_rows(
            new_edited_file(table.version() + 1), pa.Table.from_pylist([asdict(record)], SCHEMA)
        )
        change.write(table)
        return record

    return until_committed(attempt, directory)
