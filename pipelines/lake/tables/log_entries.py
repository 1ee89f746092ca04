"""The entries of Delta logs: ours have a digest, and all are checked before they are believed.

An entry of ours appears complete or not at all: it is on the disk before it gets its name. So one
that can't be read, or is not of its digest, is damage, and nothing may be read past it or written
in its place. Only an entry that another engine was writing when the power failed counts as not
written: a beginning of an entry, on a disk, in the log of a table that others write as well.

Readers of Delta ignore actions that they do not know, and fields. So a letter that is damaged
would take a file out of a table without a word: entries without a digest may only have the actions
of Delta's protocol, with the fields that these must have.

Source: Delta's PROTOCOL.md, "Actions".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from operator import itemgetter
from typing import Any, TypeAlias
from urllib.parse import quote

from statelake.pipelines.lake.tables.names import ERASURE_RECORDS, SNAPSHOTS
from statelake.state_core.errors import DamagedLakeError
from statelake.state_core.files.filesystem import Directory

Action: TypeAlias = "dict[str, Any]"

LOG_DIRECTORY = "_delta_log"
ENGINE = "statelake/1"
"""Whose entries have a digest; those of earlier versions of statelake say `statelake`."""
DIGEST_KEY = "statelake.digest"
ENTRY_REMEDY = (
    "restore the entry from a backup or a copy of the lake: until then nothing is read past it, and"
    " nothing is written or deleted"
)
# an entry of ours begins with it, so that the shortest rest of one is known
_BEGINNING = f'{{"commitInfo":{{"engineInfo":"{ENGINE}"'.encode()
_ANY_OF_OURS = re.compile(rb'"engineInfo":"statelake|"statelake\.')
_NO_DIGEST = b"0" * 64
_DIGEST = re.compile(rb'"' + re.escape(DIGEST_KEY).encode() + rb'":"([0-9a-f]{64})"')
# by the name of an action of Delta's: the fields that it must have
_ACTIONS: Mapping[str, Mapping[str, type]] = {
    "add": {"path": str, "partitionValues": dict, "size": int, "dataChange": bool},
    "remove": {"path": str, "dataChange": bool},
    "cdc": {"path": str, "partitionValues": dict, "size": int},
    "metaData": {"id": str, "schemaString": str, "partitionColumns": list},
    "protocol": {"minReaderVersion": int, "minWriterVersion": int},
    "txn": {"appId": str, "version": int},
    "domainMetadata": {"domain": str, "configuration": str, "removed": bool},
    "commitInfo": {},
    "sidecar": {"path": str},
    "checkpointMetadata": {"version": int},
}
# what may be missing where the text of an entry ends
_RESTS = ("", "0", ":0", '"":0')


def log_entry(version: int) -> str:
    """Return the path of a version's entry below its table."""
    return f"{LOG_DIRECTORY}/{version:020d}.json"


def log_name(path: str) -> str:
    """Return the name of a file in a log, from its path below the table."""
    return quote(path, safe="/=~")


def file_statistics(rows: int, key_groups: tuple[int, int] | None) -> str:
    """Return the statistics of an added file.

    Args:
        rows: The number of its rows.
        key_groups: The first and the last key group of its rows, by which engines skip files.
    """
    statistics: dict[str, Any] = {"numRecords": rows}
    if key_groups is not None:
        least, most = ({"key_group": end} for end in key_groups)
        statistics |= {"minValues": least, "maxValues": most, "nullCount": {"key_group": 0}}
    return json.dumps(statistics)


def removal(path: str, size: int, partition: Mapping[str, str | None], at: int) -> Action:
    """Return the action that removes a file.

    Args:
        path: Its path below the table.
        size: Its bytes.
        partition: The values of its partition columns.
        at: The time, in milliseconds since 1970.
    """
    removed = {
        "path": log_name(path), "dataChange": True, "deletionTimestamp": at,
        "extendedFileMetadata": True, "partitionValues": partition, "size": size,
    }  # fmt: skip
    return {"remove": removed}


def entry_bytes(actions: Iterable[Action]) -> bytes:
    """Return the bytes of an entry; one of ours, with its digest."""
    lines = b"\n".join(
        json.dumps(_marked(action), separators=(",", ":")).encode() for action in actions
    )
    return _DIGEST.sub(
        lambda match: match[0].replace(match[1], sha256(lines).hexdigest().encode()), lines, count=1
    )


def _marked(action: Action) -> Action:
    """Return an action; the information of a commit of ours, with room for the digest."""
    info = action.get("commitInfo", {})
    if info.get("engineInfo") != ENGINE:
        return action
    return {"commitInfo": {"engineInfo": ENGINE, **info, DIGEST_KEY: _NO_DIGEST.decode()}}


def read_entry(directory: Directory, version: int) -> list[Action]:
    """Read a version's actions, without the digest.

    Raises:
        MissingFileError: There is no such entry.
        DamagedLakeError: It is not valid, or not of its digest.
    """
    path = log_entry(version)
    data = directory.read(path)
    check_entry(data, directory.full(path))
    actions = [json.loads(line) for line in data.split(b"\n") if line.strip()]
    for action in actions:
        action.get("commitInfo", {}).pop(DIGEST_KEY, None)
    return actions


def check_entry(data: bytes, place: str) -> None:
    """Check the bytes of an entry.

    Raises:
        DamagedLakeError: It is not valid, or not of its digest.
    """
    if data.startswith(_BEGINNING):
        problem, at = _fault_of_ours(data), 0
    else:
        problem, at = _first_fault(data)
    if problem:
        raise DamagedLakeError(
            f"a damaged entry of the log ({problem})",
            place=f"{place}, at offset {at}",
            remedy=ENTRY_REMEDY,
        )


def _fault_of_ours(data: bytes) -> str:
    """Return what is wrong with an entry that has a digest; empty if nothing is."""
    end_of_line = data.find(b"\n")
    match = _DIGEST.search(data, 0, end_of_line if end_of_line >= 0 else len(data))
    if match is None:
        return "it has lost its digest"
    start, end = match.span(1)
    digest, rest = sha256(), memoryview(data)
    for part in (rest[:start], _NO_DIGEST, rest[end:]):
        digest.update(part)
    return "" if digest.hexdigest().encode() == match[1] else "it is not of its digest"


def _first_fault(data: bytes) -> tuple[str, int]:
    """Return what is wrong with an entry without a digest, and where; empty if nothing is."""
    if not data.strip():
        return "it is empty", 0
    if _DIGEST.search(data):
        return "it has a digest, and is not as statelake writes it", 0
    at = 0
    for line in data.split(b"\n"):
        problem, within = _fault_of_line(line) if line.strip() else ("", 0)
        if problem:
            return problem, at + within
        at += len(line) + 1
    return "", 0


def _fault_of_line(line: bytes) -> tuple[str, int]:
    try:
        action = json.loads(line)
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg}", len(error.doc[: error.pos].encode())
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}", getattr(error, "start", 0)
    given = [] if not isinstance(action, dict) else [*filter(itemgetter(1), action.items())]
    if len(given) != 1:
        return "not one action in a line", 0
    ((name, fields),) = given
    if name not in _ACTIONS:
        return f"{name[:40]!r} is no action of Delta's", 0
    if not isinstance(fields, dict):
        return f"{name!r} without fields", 0
    for field, kind in _ACTIONS[name].items():
        if type(fields.get(field)) is not kind:
            return f"{name!r} without a valid {field!r}", 0
    return "", 0


def is_cut_off(data: bytes, directory: Directory) -> bool:
    """Return whether an entry is the beginning of one that another engine was writing.

    Args:
        data: Its bytes.
        directory: The table's directory. Only statelake writes the catalog, and the records of
            erasures: nothing in their logs can have been cut off.
    """
    only_ours = any(
        f"/{directory.uri}".endswith(f"/{name}") for name in (SNAPSHOTS, ERASURE_RECORDS)
    )
    if not directory.local or only_ours or _ANY_OF_OURS.search(data):
        return False
    *lines, last = data.split(b"\n")
    return not any(_fault_of_line(line)[0] for line in lines) and _is_beginning(last)


def _is_beginning(line: bytes) -> bool:
    """Return whether a text is an incomplete JSON object, of which only the end is missing."""
    text = line.decode(errors="ignore")
    open_, in_string, escaped = [], False, False
    for letter in text:
        if in_string:
            in_string = escaped or letter != '"'
            escaped = not escaped and letter == "\\"
        elif letter == '"':
            in_string = True
        elif letter in "{[":
            open_.append("}" if letter == "{" else "]")
        elif letter in "}]" and (not open_ or open_.pop() != letter):
            return False
    if not open_:
        return not text
    if in_string:
        text = re.sub(r"\\(u[0-9a-fA-F]{0,3})?$", "", text) + '"'
    else:  # a number or a word that may be incomplete
        text = re.sub(r"[-+.\w]+$", "", text)
    closing = "".join(reversed(open_))
    return any(_is_object(f"{text}{rest}{closing}") for rest in _RESTS)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
