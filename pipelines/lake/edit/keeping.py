"""Keep only the keys of a list, in all keyed states and timers of an operator.

The list is a file with one key a line, as `pipelines.keys.key_from_text` reads it: written as
`statelake dump` prints keys, or text as it is. Keys are compared by their bytes. If the Java hash
of the keys can be derived, the files of key groups that hold none of them are not read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import Self

from statelake.pipelines.keys import KEY_LINES, key_from_text, lines_of
from statelake.pipelines.lake.edit.pieces import Rows
from statelake.pipelines.lake.edit.rewriting import Transform, kept_rows
from statelake.pipelines.lake.tables.file_spans import FileSpan
from statelake.pipelines.lake.tables.records import OperatorRecord
from statelake.pipelines.lake.tables.table_rows import table_rows
from statelake.state_core.errors import (
    EncodeError,
    NoMatchError,
    NotFoundError,
    StateError,
    UnknownHashError,
)
from statelake.state_core.formats.layout.keys import encode_keys
from statelake.state_core.formats.writing.rehash import check_key_groups
from statelake.state_core.formats.writing.unified_encode import StateRows, key_bytes
from statelake.state_core.model.key_groups import key_groups_of_hashes
from statelake.state_core.serializers.framework.base import TypeSerializer


@dataclass(frozen=True, eq=False)
class ListedKeys(Transform):
    """The keys of a list.

    Attributes:
        keys: The bytes of the keys.
        key_groups: The key group of each; None if their hash can't be derived.
        max_parallelism: The operator's max parallelism.
    """

    keeps_unchanged = True

    keys: pa.LargeBinaryArray
    key_groups: npt.NDArray[np.int32] | None
    max_parallelism: int

    def none_in(self, span: FileSpan) -> bool:
        """Return whether none of the keys can be in a span."""
        return self.key_groups is not None and not self._in(span, self.key_groups).any()

    def of_span(self, span: FileSpan) -> Self:
        """Return the same transform for only those keys that can be in a span."""
        if self.key_groups is None:
            return self
        there = self._in(span, self.key_groups)
        keys = self.keys.filter(pa.array(there))
        return replace(self, keys=keys, key_groups=self.key_groups[there])

    @staticmethod
    def _in(span: FileSpan, key_groups: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        return (span.first <= key_groups) & (key_groups <= span.last)


@dataclass(frozen=True, eq=False)
class KeptKeys(ListedKeys):
    """Keep only the rows of listed keys."""

    def foresee(self, span: FileSpan) -> bool | None:
        """Foresee that no row stays where none of the keys can be."""
        return False if self.none_in(span) else None

    def apply(self, rows: Rows) -> Rows:
        """Keep the rows of the keys, and all operator state, which has no keys."""
        if not isinstance(rows, StateRows):
            return rows
        stays = pc.is_in(key_bytes(rows), self.keys)
        if self.key_groups is not None:  # prove the hash by which other files were not read
            check_key_groups(rows, self.max_parallelism)
        return kept_rows(rows, stays)


def read_kept_keys(path: str, lake: str, operator: OperatorRecord) -> KeptKeys:
    """Read the list of keys in a file.

    Args:
        path: The file.
        lake: The lake's location.
        operator: The operator.

    Raises:
        EncodeError: The file can't be read, or a line is not a key of the operator's type.
        NotFoundError: The operator has no keyed state.
    """
    if not operator.states:
        raise NotFoundError(
            f"operator {operator.label} has no keyed state", remedy="name one that has keys"
        )
    table = operator.keyed_tables[0]
    rows = table_rows(lake, operator, table)
    key = rows.parse(rows.states[0][1])[1].key
    listed = [(place, key_from_text(line, key, place)) for place, line in _lines(path)]
    column = pa.array([value for _, value in listed], key.arrow_type)
    keys = _encode(key, column, [place for place, _ in listed])
    groups = key_groups_of_keys(key, column, operator.max_parallelism)
    return KeptKeys(keys, groups, operator.max_parallelism)


def key_groups_of_keys(
    key: TypeSerializer, column: pa.Array, max_parallelism: int
) -> npt.NDArray[np.int32] | None:
    """Return the key group of each key; None if their hash can't be derived."""
    try:
        codes = np.array(key.hash_codes(column), np.int32)
    except UnknownHashError:
        return None
    return key_groups_of_hashes(codes, max_parallelism)


def refuse_no_match(operator: OperatorRecord, path: str) -> None:
    """Raise an error if an operator has no entry left.

    Raises:
        NoMatchError: No keyed state or timer of the operator has an entry.
    """
    if not any(state.entries for state in operator.states):
        raise NoMatchError(
            f"operator {operator.label} has none of the keys that {path} lists, and would have no"
            " entry left",
            remedy="`statelake dump` prints the keys that there are",
        )


def _lines(path: str) -> list[tuple[str, str]]:
    """Return the place and the text of each line that is not blank."""
    lines = lines_of(Path(path).read_bytes, path, KEY_LINES)
    if not lines:
        raise EncodeError("no key is listed", place=path, remedy="write one key a line")
    return lines


def _encode(key: TypeSerializer, column: pa.Array, places: list[str]) -> pa.LargeBinaryArray:
    """Encode the keys; if that fails, name the line of the first that can't be encoded."""
    try:
        return encode_keys(key, column)
    except StateError as error:
        if len(places) == 1:
            raise error.within(places[0]) from error
        for row, place in enumerate(places):
            _encode(key, column.slice(row, 1), [place])
        raise
