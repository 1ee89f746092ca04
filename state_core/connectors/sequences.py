"""Sources that count: `NumberSequenceSource`, and `DataGeneratorSource`, which has the same splits.

Source: `NumberSequenceSource` in `org.apache.flink.api.connector.source.lib`.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import ClassVar

from statelake.state_core.connectors.records import LONG, UTF, many, record
from statelake.state_core.connectors.versioned import ShownFields, encoded, reader_of
from statelake.state_core.files.wire import DataInput

_VERSION = 1
# the bytes of a split, and of an enumerator's state
_SPLIT = record(split_id=UTF, next_number=LONG, last_number=LONG)
_PENDING = many(_SPLIT)


@dataclass(frozen=True, slots=True)
class SequenceSplit(ShownFields):
    """A range of numbers.

    Attributes:
        split_id: Its name.
        next_number: The next number.
        last_number: The last one.
    """

    kind: ClassVar[str] = "sequence"
    version: ClassVar[int] = _VERSION
    shown = (("split_id", "<split"), ("next_number", ">next"), ("last_number", ">last"))

    split_id: str
    next_number: int
    last_number: int

    def encode(self) -> bytes:
        """Return the bytes of version 1."""
        return encoded(_SPLIT, astuple(self))


def _read_split(_: int, source: DataInput) -> SequenceSplit:
    split = SequenceSplit(**_SPLIT.read(source))
    if split.next_number > split.last_number:
        raise source.fault("a sequence that ends before it begins")
    return split


# reads a split of a source that counts
read_sequence_split = reader_of((_VERSION,), _read_split)


@dataclass(frozen=True, slots=True)
class PendingSequences:
    """The state of the enumerator: unassigned splits."""

    kind: ClassVar[str] = "sequence"
    version: ClassVar[int] = _VERSION

    splits: tuple[SequenceSplit, ...]

    def encode(self) -> bytes:
        """Return the bytes of version 1."""
        return encoded(_PENDING, list(map(astuple, self.splits)))


def _read_pending(version: int, source: DataInput) -> PendingSequences:
    count = source.read_count("splits", _SPLIT.min_length)
    return PendingSequences(tuple(_read_split(version, source) for _ in range(count)))


# reads the state of such a source's enumerator
read_pending_sequences = reader_of((_VERSION,), _read_pending)
