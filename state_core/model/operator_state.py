"""Operator (non-keyed) state in the neutral model: split and union lists, and broadcast states.

A list state belongs to subtasks, element by element. A broadcast state is one map, with a copy in
every subtask: it is shown once, and `disagreeing` returns the subtasks whose copy differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from statelake.state_core.errors import NotFoundError, did_you_mean
from statelake.state_core.model.handles import DistributionMode
from statelake.state_core.printable import LONGEST, Table, brief


def columns_of(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Return the columns of some names, in that order; all of them by default.

    Raises:
        NotFoundError: There is no such column.
    """
    if columns is None:
        return schema
    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise NotFoundError(
            f"no column {missing[0]!r}",
            remedy=f"there are: {', '.join(schema.names)}{did_you_mean(missing[0], schema.names)}",
        )
    return pa.schema([schema.field(name) for name in columns])


def schema_table(line: str, schema: pa.Schema) -> Table:
    """Return a table of a state's columns."""
    return Table(line, ("<column", "<type"), [(column.name, str(column.type)) for column in schema])


def types_text(*types: str) -> str:
    """Return the types of a key, a user key and a value as one text."""
    return brief(" → ".join(filter(None, types)), LONGEST)


class OperatorStatePart(Protocol):
    """One subtask's part of an operator state, in any format."""

    @property
    def subtask(self) -> int:
        """The index of the subtask."""

    @property
    def elements(self) -> int:
        """The number of elements of a list; 1 for a broadcast state."""

    @property
    def size(self) -> int:
        """The stored size of its file in bytes."""

    def decode(self) -> pa.RecordBatch:
        """Return the elements or entries as typed columns."""

    def encoded(self) -> list[bytes]:
        """Return the bytes of each element; a broadcast state is one element."""

    def measure(self) -> tuple[int, int]:
        """Return the elements of a list, or the entries of a broadcast state, and their bytes."""

    def contents(self) -> frozenset[tuple[bytes, bytes]]:
        """Return the entries of a broadcast state as bytes, unordered."""


@dataclass(frozen=True, repr=False)
class OperatorState:
    """One registered operator state.

    Attributes:
        name: Its name.
        mode: Its redistribution when the job runs at another parallelism.
        schema: Its decoded columns: `subtask, position, value` of a list, `key, value` of a
            broadcast state, and the exact bytes of values that a column can't hold.
        value_type: The Java type of the elements, or of a broadcast state's values.
        key_type: The Java type of a broadcast state's keys; empty for lists.
        meta_info: Its meta info, as Flink wrote it.
        parts: Its parts, by subtask.
    """

    name: str
    mode: DistributionMode
    schema: pa.Schema
    value_type: str
    key_type: str = ""
    meta_info: bytes = field(default=b"", compare=False, repr=False)
    parts: tuple[OperatorStatePart, ...] = field(default=(), compare=False, repr=False)

    def __repr__(self) -> str:
        types = types_text(self.key_type, self.value_type)
        return f"<OperatorState {brief(self.name, LONGEST)}: {self.mode.name}, {types}>"

    def _repr_html_(self) -> str:
        return schema_table(repr(self), self.schema).to_html()

    @property
    def broadcast(self) -> bool:
        """Return whether it is a broadcast state."""
        return self.mode is DistributionMode.BROADCAST

    @property
    def elements(self) -> int:
        """The number of elements of all subtasks, or of copies of a broadcast state."""
        return sum(part.elements for part in self.parts)

    def batches(self, *, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the content, a subtask at a time; of a broadcast state, one copy.

        Raises:
            CorruptSnapshotError: The bytes are not what the header describes.
        """
        for part in self.parts[:1] if self.broadcast else self.parts:
            batch = part.decode()
            yield batch if columns is None else batch.select(list(columns))

    def to_batch_reader(self, *, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """Return the content as a stream of record batches, one per subtask.

        Args:
            columns: The columns to read, in this order; all by default.

        Raises:
            NotFoundError: There is no such column.
        """
        schema = columns_of(self.schema, columns)
        return pa.RecordBatchReader.from_batches(schema, self.batches(columns=columns))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the content to other libraries, by Arrow's PyCapsule interface."""
        return self.to_batch_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self, *, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the content as one table; arguments and errors as for `to_batch_reader`."""
        return self.to_batch_reader(columns=columns).read_all()

    def to_pandas(self, *, columns: Sequence[str] | None = None) -> Any:
        """The content as a data frame of pandas; arguments and errors as for `to_batch_reader`."""
        return self.to_arrow(columns=columns).to_pandas()

    def disagreeing(self) -> list[int]:
        """Return the subtasks whose copy of a broadcast state differs from the first one."""
        if not self.broadcast or len(self.parts) < 2:
            return []
        first = self.parts[0].contents()
        return [part.subtask for part in self.parts[1:] if part.contents() != first]
