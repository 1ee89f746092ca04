"""Writer of rows as bytes: each row's key, or value, in one piece from several columns."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import (
    ALL_PRESENT,
    I64Array,
    Target,
    U8Array,
    fixed_values,
)
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer


@dataclass(frozen=True)
class RowPart:
    """A column of an entry's key or value; `held` is 0 where it is left out."""

    serializer: TypeSerializer
    column: pa.Array
    held: U8Array = field(default_factory=lambda: ALL_PRESENT)


class RowWriter:
    """A writer of rows with several columns, each row as one piece of bytes.

    Args:
        parts: The columns, in order.
        rows: The number of rows.
        exact: 1 for rows that are written from `raw` instead.
        raw: Exact bytes.
    """

    def __init__(
        self, parts: list[RowPart], rows: int, exact: U8Array, raw: pa.Array | None
    ) -> None:
        self.raw = raw
        self.exact = exact
        self.sizes: I64Array = np.zeros(rows, np.int64)
        typed = ALL_PRESENT if exact.size == 0 else (1 - exact).astype(np.uint8)
        self.parts = []
        for part in parts:
            present = _both(part.held, typed)
            self.parts.append(RowPart(part.serializer, part.column, present))
            self.sizes += part.serializer.sizes(part.column, present)
        if exact.size:
            self.sizes += OpaqueSerializer().sizes(raw, exact)

    def write(self, out: U8Array, position: I64Array) -> None:
        """Write every row at its position, which moves to the row's end."""
        for part in self.parts:
            part.serializer.encode(part.column, Target(out, position, part.held))
        if self.exact.size:
            OpaqueSerializer().encode(self.raw, Target(out, position, self.exact))

    def to_binary(self) -> pa.Array:
        """Return every row's bytes as a binary column."""
        bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.sizes)))
        out = np.empty(int(bounds[-1]), np.uint8)
        self.write(out, bounds[:-1].copy())
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(out)]
        return pa.Array.from_buffers(pa.large_binary(), len(self.sizes), buffers)


class LengthTrailer(TypeSerializer):
    """The length behind an ambiguous key or namespace: base 256, low byte first, no zero on top.

    Source: `CompositeKeySerializationUtils.writeVariableIntBytes`.
    """

    name = "length"
    arrow_type = pa.int64()

    def read(self, source: DataInput) -> int:
        """Refuse: it is never read alone, as its end depends on the length itself."""
        raise source.fault("a length trailer can't be read without its length")

    def write(self, value: int, out: DataOutput) -> None:
        """Write one length."""
        out.write_bytes(value.to_bytes(max(1, (value.bit_length() + 7) // 8), "little"))

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return the size of each length: one to four bytes."""
        sizes = trailer_sizes(fixed_values(values, np.int64))
        return sizes * present if present.size else sizes

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write the low bytes of each length."""
        lengths = fixed_values(values, np.int64)
        sizes = trailer_sizes(lengths)
        chosen = np.ones(len(lengths), bool) if target.present.size == 0 else target.present != 0
        for byte in range(int(sizes.max(initial=0))):
            rows = chosen & (sizes > byte)
            target.out[target.position[rows] + byte] = lengths[rows] >> (8 * byte) & 0xFF
        target.position[chosen] += sizes[chosen]


def trailer_sizes(lengths: I64Array) -> I64Array:
    """Return the number of bytes of each length in base 256, at least one."""
    sizes = np.ones(len(lengths), np.int64)
    for shift in (8, 16, 24):
        sizes += lengths >= (1 << shift)
    return sizes


def _both(first: U8Array, second: U8Array) -> U8Array:
    if first.size == 0:
        return second
    return first if second.size == 0 else first & second
