"""The note of an erasure, by which a crash is gone on from and others keep away."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines.lake.catalog.attempts import ERASURES, is_alive, read_note, this_process
from pipelines.lake.catalog.catalog import Catalog
from pipelines.lake.tables.names import is_token, is_unit_path
from pipelines.lake.tables.record_rules import Rule
from pipelines.lake.tables.records import UnitRecord
from state_core.errors import ConflictError, MissingFileError

__all__ = ["ErasureNote", "note_path"]

_NUMBERS = ("partition", "first", "last", "rows", "size")
_NEW_FILE = Rule(
    lambda it: (
        it is None
        or (
            isinstance(it, dict)
            and is_unit_path(str(it.get("path")))
            and it.keys() == {"path", *_NUMBERS}
            and all(type(it.get(name)) is int for name in _NUMBERS)
        )
    ),
    "a file of ours",
)
_NOTE: Mapping[str, Rule] = {
    "request": Rule(lambda it: isinstance(it, str), "text"),
    "jobs": Rule(lambda it: isinstance(it, list), "texts"),
    "token": Rule(lambda it: isinstance(it, str) and is_token(it), "a token"),
    "replaced": Rule(
        lambda it: (
            isinstance(it, dict)
            and all(
                isinstance(files, dict) and all(map(_NEW_FILE.kept, files.values()))
                for files in it.values()
            )
        ),
        "files by table",
    ),
    "said": Rule(lambda it: isinstance(it, dict), "what was found"),
}


@dataclass
class ErasureNote:
    """The note of an erasure in progress.

    Attributes:
        request: The id of the request.
        jobs: The jobs that nobody else may write to.
        token: By which new files are called.
        replaced: By table, and by the path of an old file: the new one; None if it has no row left.
        said: What will be recorded; empty as long as it is not known.
    """

    request: str
    jobs: list[str]
    token: str
    replaced: dict[str, dict[str, UnitRecord | None]] = field(default_factory=dict)
    said: dict[str, Any] = field(default_factory=dict)

    def write(self, lake: Catalog) -> None:
        """Write it, or write it again."""
        note = {
            "request": self.request,
            "jobs": self.jobs,
            "token": self.token,
            "said": self.said,
            "replaced": {
                table: {old: None if new is None else _shown(new) for old, new in files.items()}
                for table, files in self.replaced.items()
            },
            **this_process(),
        }
        lake.directory.write(note_path(self.request), json.dumps(note).encode())

    @classmethod
    def read(cls, lake: Catalog, request: str) -> ErasureNote | None:
        """What a process before this one left; None if there is nothing.

        Raises:
            ConflictError: The process that wrote it is still at work.
            DamagedLakeError: There is a note that no erasure wrote.
        """
        try:
            note = read_note(lake.directory, note_path(request), _NOTE)
        except MissingFileError:
            return None
        if is_alive(note) and note["process"] != os.getpid():
            raise ConflictError(
                f"erasure {request!r} is going on",
                place=lake.directory.full(note_path(request)),
                remedy="wait for it to end",
            )
        replaced = {table: _units(files) for table, files in note["replaced"].items()}
        return cls(note["request"], note["jobs"], note["token"], replaced, note["said"])


def note_path(request: str) -> str:
    """Where the note of a request is, below the lake."""
    return f"{ERASURES}/{request}.json"


def _shown(unit: UnitRecord) -> dict[str, Any]:
    return {name: getattr(unit, name) for name in ("path", *_NUMBERS)}


def _units(files: Mapping[str, Any]) -> dict[str, UnitRecord | None]:
    return {
        old: None if new is None else UnitRecord(**new, fingerprint=b"")
        for old, new in files.items()
    }
