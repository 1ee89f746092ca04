"""The format of a lake: who may read it, and who may write it.

It is a property of the catalog's table, and so in the log that decides which snapshots exist: it is
read with each version of the catalog, changes by one entry together with what it describes, and
can't be lost or fall behind as a file beside the log could. A lake without it is of format 0.

A feature is named with the statelake that brought it, so that one that doesn't know the feature can
say which one does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, TypeAlias

import pyarrow as pa
from msgspec import Meta

from statelake.pipelines.lake.catalog.catalog_rows import with_columns_of
from statelake.pipelines.lake.tables.records import SNAPSHOT_SCHEMA
from statelake.state_core.errors import DamagedLakeError, LakeFormatError
from statelake.state_core.files.outside import decoded
from statelake.state_core.printable import Printed

FORMAT = 1
FORMAT_KEY = "statelake.format"
SEVERAL_FILES = "several-files"
"""Key groups with very many rows have several files, in the order of a snapshot's row."""
NAMED_COLUMNS = "named-columns"
"""A state may have columns that are not in its types: names of fields, or parsed texts."""
READERS: Mapping[str, str] = {SEVERAL_FILES: "0.1.0", NAMED_COLUMNS: "0.1.0"}
WRITERS: Mapping[str, str] = {}
LONGEST, LONGEST_NAME = 1 << 13, 100

_Name: TypeAlias = Annotated[str, Meta(max_length=LONGEST_NAME)]


@dataclass(frozen=True)
class LakeFormat:
    """The format of a lake.

    Attributes:
        version: Its number; 0 for lakes of before there were numbers.
        readers: The features that a reader has to know: by name, the statelake that brought it.
        writers: The features that a writer has to know beside these.
        written_by: The statelake that created the lake, or upgraded it.
    """

    version: Annotated[int, Meta(ge=1)]
    readers: Mapping[_Name, _Name]
    writers: Mapping[_Name, _Name]
    written_by: _Name

    def to_properties(self) -> dict[str, str]:
        """Return the properties of the catalog that hold it."""
        return {FORMAT_KEY: json.dumps(asdict(self), separators=(",", ":"))}

    def refuse_reading(self, place: str) -> None:
        """Refuse a lake that this statelake may misread.

        Raises:
            LakeFormatError: It is of a newer format, or has an unknown feature.
        """
        unknown = {name: since for name, since in self.readers.items() if name not in READERS}
        if unknown or self.version > FORMAT:
            raise LakeFormatError(
                f"this lake needs statelake >= {_newest(unknown) or self.written_by}"
                f" ({_named(unknown) or f'format {self.version}'})",
                place=place,
                remedy=f"upgrade statelake: this is {installed()}, which reads formats 0 to"
                f" {FORMAT}",
            )

    def refuse_writing(self, place: str) -> None:
        """Refuse to write into a lake of an older format, or with an unknown feature of writers.

        Raises:
            LakeFormatError: The lake has an older format, or such a feature.
        """
        if self.version < FORMAT:
            raise LakeFormatError(
                f"this lake is of format {self.version}, and statelake {installed()} writes format"
                f" {FORMAT}",
                place=place,
                remedy="it can be read as it is; `statelake lake upgrade` shows what an upgrade"
                " changes, and does it with --yes",
            )
        unknown = {name: since for name, since in self.writers.items() if name not in WRITERS}
        if unknown:
            raise LakeFormatError(
                f"to write into this lake needs statelake >= {_newest(unknown)}"
                f" ({_named(unknown)})",
                place=place,
                remedy=f"it can be read; this is statelake {installed()}",
            )


@dataclass(frozen=True)
class LakeUpgrade(Printed):
    """An upgrade of a lake, planned or done.

    Attributes:
        before: The number of its format; the same as `after` if there is nothing to do.
        after: The number of the format that this statelake writes.
        columns: The columns of the catalog that are added, or get fields.
        readers: The features that readers have to know afterwards: by name, the statelake that
            brought it.
        upgraded: Whether it was done.
    """

    before: int
    after: int
    columns: list[str]
    readers: dict[str, str]
    upgraded: bool = False

    def lines(self) -> Iterator[str]:
        """Yield the text form: lines and tables."""
        if self.before == self.after:
            yield f"nothing to do: the lake is of format {self.after}"
            return
        what = f"from format {self.before} to {self.after}, in one commit"
        done = "upgraded" if self.upgraded else "nothing was upgraded: --yes upgrades"
        yield f"{done} {what}"
        yield f"  columns of the catalog that are added: {', '.join(self.columns) or 'none'}"
        needed = (f"{name} (statelake {since})" for name, since in self.readers.items())
        yield f"  features that readers need then: {', '.join(needed) or 'none'}"

    @classmethod
    def of(cls, now: LakeFormat, columns: pa.Schema) -> LakeUpgrade:
        """Return the upgrade of a lake from its format and its catalog's columns."""
        if now.version >= FORMAT:
            return cls(now.version, now.version, [], dict(now.readers))
        merged = with_columns_of(columns, SNAPSHOT_SCHEMA)
        added = [
            each.name
            for each in merged
            if each.name not in columns.names or columns.field(each.name).type != each.type
        ]
        return cls(now.version, FORMAT, added, dict(READERS))


def own_format() -> LakeFormat:
    """Return the format that this statelake writes."""
    return LakeFormat(FORMAT, READERS, WRITERS, installed())


def read_format(properties: Mapping[str, str | None], place: str) -> LakeFormat:
    """Read the format in the catalog's properties.

    Args:
        properties: The properties.
        place: The catalog, for the error.

    Raises:
        DamagedLakeError: It is malformed.
    """
    text = properties.get(FORMAT_KEY)
    if text is None:
        return LakeFormat(0, {}, {}, "")
    refused = partial(
        DamagedLakeError,
        place=f"{place}, property {FORMAT_KEY}",
        remedy="statelake did not write that: see who else writes into the lake, and restore the"
        " catalog's table from a backup",
    )
    return decoded(text, LakeFormat, refused, LONGEST)  # a newer one may have more fields


def installed() -> str:
    """Return the version of this statelake."""
    try:
        return version("statelake")
    except PackageNotFoundError:
        return "0"


def _named(features: Mapping[str, str]) -> str:
    return f"feature {', '.join(sorted(features))}" if features else ""


def _newest(features: Mapping[str, str]) -> str:
    """Return the newest of the versions that brought some features; empty without any."""
    return max(features.values(), key=_numbers, default="")


def _numbers(version_text: str) -> list[int]:
    return [int(part) if part.isdecimal() else 0 for part in version_text.split(".")]
