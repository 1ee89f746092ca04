"""Sources that count: `NumberSequenceSource`, and `DataGeneratorSource`, which has the same splits.

::

    split, version 1        UTF id, i64 next number, i64 last number
    enumerator, version 1   i32 n, n pending splits

Source: `NumberSequenceSource` in `org.apache.flink.api.connector.source.lib`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from statelake.state_core.connectors.versioned import read_exactly
from statelake.state_core.files.wire import DataInput, DataOutput

_VERSION = 1
_LEAST_SPLIT_BYTES = 18


@dataclass(frozen=True, slots=True)
class SequenceSplit:
    """A range of numbers.

    Attributes:
        split_id: Its name.
        next_number: The next number.
        last_number: The last one.
    """

    kind: ClassVar[str] = "sequence"
    version: ClassVar[int] = _VERSION

    split_id: str
    next_number: int
    last_number: int

    def encode(self) -> bytes:
        """Return the bytes of version 1."""
        out = DataOutput()
        out.write_utf(self.split_id)
        out.write_long(self.next_number)
        out.write_long(self.last_number)
        return out.to_bytes()

    def columns(self) -> dict[str, object]:
        """Return its content by name."""
        return {
            "split_id": self.split_id, "next_number": self.next_number,
            "last_number": self.last_number,
        }  # fmt: skip


def _read_split(source: DataInput) -> SequenceSplit:
    split = SequenceSplit(source.read_utf(), source.read_long(), source.read_long())
    if split.next_number > split.last_number:
        raise source.fault("a sequence that ends before it begins")
    return split


def read_sequence_split(version: int, data: bytes) -> SequenceSplit | None:
    """Return a split of a source that counts; None if the bytes are not one."""
    return read_exactly(_read_split, data) if version == _VERSION else None


@dataclass(frozen=True, slots=True)
class PendingSequences:
    """The state of the enumerator: unassigned splits."""

    kind: ClassVar[str] = "sequence"
    version: ClassVar[int] = _VERSION

    splits: tuple[SequenceSplit, ...]

    def encode(self) -> bytes:
        """Return the bytes of version 1."""
        out = DataOutput()
        out.write_int(len(self.splits))
        for split in self.splits:
            out.write_bytes(split.encode())
        return out.to_bytes()


def read_pending_sequences(version: int, data: bytes) -> PendingSequences | None:
    """Return the state of such a source's enumerator; None if the bytes are not one."""
    return read_exactly(_read_pending, data) if version == _VERSION else None


def _read_pending(source: DataInput) -> PendingSequences:
    count = source.read_count("splits", _LEAST_SPLIT_BYTES)
    return PendingSequences(tuple(_read_split(source) for _ in range(count)))
