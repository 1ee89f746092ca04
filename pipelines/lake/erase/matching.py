"""The transform that erases the rows of keys, and the number of rows that a transform met."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from statelake.pipelines.keys import key_from_text
from statelake.pipelines.lake.edit.keeping import ListedKeys, key_groups_of_keys
from statelake.pipelines.lake.edit.pieces import Rows
from statelake.pipelines.lake.edit.rewriting import Transform, kept_rows
from statelake.pipelines.lake.edit.sql_editing import ChangedRows
from statelake.pipelines.lake.tables.file_spans import FileSpan
from statelake.pipelines.lake.tables.records import OperatorRecord
from statelake.state_core.errors import EncodeError, UnknownHashError
from statelake.state_core.formats.layout.keyed_layout import KEY
from statelake.state_core.formats.layout.keys import encode_keys, key_serializer_of
from statelake.state_core.formats.writing.rehash import check_key_groups
from statelake.state_core.formats.writing.unified_encode import StateRows, key_bytes
from statelake.state_core.serializers.framework.base import TypeSerializer


@dataclass(frozen=True, eq=False)
class ErasedKeys(ListedKeys):
    """Drop the rows of the keys, in keyed state and timers; operator state has no keys."""

    def foresee(self, span: FileSpan) -> bool | None:
        """Return True, as all rows stay, for a file that can hold no key."""
        return True if self.none_in(span) else None

    def apply(self, rows: Rows) -> Rows:
        """Drop the rows of the keys."""
        if not isinstance(rows, StateRows):
            return rows
        if rows.layout.opaque_key:
            keys = rows.batch.column(KEY).cast(pa.large_binary())
        else:
            keys = key_bytes(rows)
        if self.key_groups is not None:  # prove the hash by which other files are skipped
            with suppress(UnknownHashError):
                check_key_groups(rows, self.max_parallelism)
        return kept_rows(rows, pc.invert(pc.is_in(keys, self.keys)))


def _as_stored(value: Any, key: TypeSerializer) -> Any:
    """Return a key whose columns have names as one whose columns have not."""
    if not isinstance(value, dict) or not pa.types.is_struct(key.arrow_type):
        return value
    return dict(zip([each.name for each in key.arrow_type], value.values(), strict=True))


def rows_met(transform: Transform, before: int, after: int) -> int:
    """Return how many rows a transform dropped or changed, from the numbers before and after."""
    return transform.met[-1] if isinstance(transform, ChangedRows) else before - after


def erased_keys(
    operator: OperatorRecord, texts: Sequence[str], names: Iterable[tuple[str, ...]] = ()
) -> tuple[ErasedKeys, set[str]]:
    """Return the transform of an operator's rows, and the texts that can be its keys.

    Args:
        operator: The operator, with keyed state.
        texts: The keys as text, for `key_from_text`.
        names: The names that the columns of its keys have in some snapshots.
    """
    key = key_serializer_of(operator.key_serializer)
    forms = [key, *(key_serializer_of(operator.key_serializer, names=each) for each in names)]
    values, fitting = [], set()
    for text in texts:
        for form in forms:
            with suppress(EncodeError):
                values.append(_as_stored(key_from_text(text, form), key))
                fitting.add(text)
                break
    column = pa.array(values, key.arrow_type)
    keys = encode_keys(key, column) if values else pa.array([], pa.large_binary())
    most = operator.max_parallelism
    return ErasedKeys(keys, key_groups_of_keys(key, column, most), most), fitting
