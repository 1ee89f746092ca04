"""Limits of a snapshot's declarations: one table of bounds, and the budget that enforces them.

A stranger's file is not trusted. Its bytes may cost time and memory in proportion; whatever takes
few bytes and costs much (an operator, a column, a level of nesting) has a bound here. Beyond it a
value is carried as its exact bytes, or the snapshot is refused with the bound's name, as each bound
says.

The bounds lie far above what Flink writes, and where Flink or Java has a limit of its own, at it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from statelake.state_core.errors import OversizedError


class Beyond(Enum):
    """Consequence of exceeding a bound."""

    REFUSED = "the snapshot is refused"
    CARRIED = "the value is carried as its exact bytes"


class Positioned(Protocol):
    """An object that knows its position."""

    @property
    def place(self) -> str:
        """Position, for messages."""


@dataclass(frozen=True)
class Bound:
    """One row of the table.

    Attributes:
        name: The thing that is counted, as messages call it.
        most: The number allowed in any snapshot.
        reason: The reason for the number.
        bytes_each: Above `most`, one is allowed for so many bytes of the snapshot; 0 if not.
        beyond: The consequence of more.
        each_byte: Above `most`, so many are allowed for each byte of a file; 0 if not.
    """

    name: str
    most: int
    reason: str
    bytes_each: int = 0
    beyond: Beyond = Beyond.REFUSED
    each_byte: int = 0

    def allowed(self, size: int = 0) -> int:
        """Return the number allowed in a snapshot, or a file, of `size` bytes."""
        by_size = size // self.bytes_each if self.bytes_each else size * self.each_byte
        return max(self.most, by_size)

    def least_size(self, count: int) -> int:
        """Return the size of a file in which `count` are allowed, also when files are joined."""
        return -(-count // self.each_byte) if count > self.most // 64 and self.each_byte else 0

    def check(self, count: int, source: Positioned | str) -> None:
        """Refuse more than any snapshot may have.

        Args:
            count: The number found.
            source: The place, for the message.

        Raises:
            OversizedError: The number is too large.
        """
        if count > self.most:
            raise self.exceeded(count, source)

    def exceeded(self, count: int, source: Positioned | str, size: int = 0) -> OversizedError:
        """Return the error for more than a snapshot of `size` bytes may have."""
        place = source if isinstance(source, str) else source.place
        return OversizedError(
            f"{count} {self.name}, and at most {self.allowed(size)} are read",
            place=place,
            remedy="Flink writes nothing like it: do not trust the file, or see docs/security.md",
        )


@dataclass
class Budget:
    """The total that one snapshot has declared so far, checked against its size in bytes.

    Attributes:
        size: The bytes seen so far; more bytes allow more.
        spent: The number of things so far, by the bound's name.
    """

    size: int
    spent: dict[str, int] = field(default_factory=dict)

    def spend(self, bound: Bound, count: int, source: Positioned | str) -> None:
        """Charge a number of things to a bound.

        Args:
            bound: The bound that limits them.
            count: The number of further things.
            source: The place of the declaration.

        Raises:
            OversizedError: The total is more than the bound allows.
        """
        spent = self.spent.get(bound.name, 0) + count
        if spent > bound.allowed(self.size):
            raise bound.exceeded(spent, source, self.size)
        self.spent[bound.name] = spent


# --------------------------------------------------------------------------- the table

OPERATORS = Bound("operators", 1 << 14, "a job has hundreds; each is described and listed")
SUBTASKS = Bound(
    "subtasks of all operators",
    1 << 19,
    "a parallelism is a number in a file, and a row in every report",
    bytes_each=16,
)
KEY_GROUPS = Bound("key groups", 1 << 15, "Flink's own limit of the max parallelism")
STATES = Bound("states", 1 << 13, "each is a table in the lake, and some files")
COUNTED_CELLS = Bound(
    "states times key groups of one operator", 1 << 22, "entries are counted by both"
)
CELLS_IN_ALL = Bound(
    "states times key groups of all operators",
    1 << 26,
    "each is passed when entries are counted",
    each_byte=64,
)
THINGS = Bound(
    "things declared by names, counts and types",
    1 << 18,
    "each name, serializer, field and object of a Java stream is a value in memory",
    bytes_each=32,
)
MEMBERS = Bound("members of one type", (1 << 16) - 1, "the limit of a Java class's fields")
SUBCLASSES = Bound("subclasses of one POJO", 1 << 13, "each has a serializer of its own")
HEAD_BYTES = Bound("bytes in the head of a state file", 1 << 26, "it is parsed as a whole")
SERIALIZER_NESTING = Bound("levels of serializers", 64, "each is a call within a call")
HANDLE_NESTING = Bound("levels of handles", 16, "Flink nests two")
JAVA_NESTING = Bound("levels of Java objects", 100, "each is a call within a call")
LOGICAL_NESTING = Bound("levels of logical types", 60, "each is a call within a call")
AVRO_NESTING = Bound("levels of Avro records", 64, "each is a call within a call")
COLUMNS = Bound(
    "columns of one state", 1 << 12, "each is a column of a table", beyond=Beyond.CARRIED
)
COLUMN_NESTING = Bound(
    "levels of columns", 32, "what reads and writes tables has limits", beyond=Beyond.CARRIED
)
COLUMNS_IN_ALL = Bound(
    "columns of all states", 1 << 18, "types that are used again are columns again", bytes_each=32
)
BIG_NUMBER_BYTES = Bound(
    "bytes of one BigInteger or BigDecimal",
    1 << 12,
    "9,864 digits; the time to make text of a number grows with its square",
    beyond=Beyond.CARRIED,
)
EMPTY_FIELDS = Bound(
    "fields that take no bytes",
    64,
    "nulls and empty records of Avro cost time and no bytes",
    beyond=Beyond.CARRIED,
)
EMPTY_ELEMENTS = Bound("elements that take no bytes", 1 << 16, "nothing else bounds them")
SHARED_BYTES = Bound(
    "times that handles lead to the same bytes",
    4,
    "Flink's handles share no bytes but in channels, and of a changelog that was rescaled",
)
UNKNOWN_WORK = Bound(
    "bytes read to find where unknown payloads end", 1 << 23, "every attempt reads the head anew"
)
RECOVERY_WORK = Bound(
    "passes over a key group of the heap to find where values end", 64,
    "one for each state, and for each place where the next may begin",
)  # fmt: skip
SST_BYTES = Bound(
    "bytes that one table file of RocksDB unpacks to", 1 << 28, "zeros take no bytes", each_byte=512
)
BLOCK_BYTES = Bound(
    "bytes that one block of a table file of RocksDB unpacks to",
    1 << 26,
    "a block has some kilobytes, or one value that is larger",
    each_byte=32,
)
INDEX_BYTES = Bound(
    "bytes that one index or list of properties of a table file of RocksDB unpacks to",
    1 << 23,
    "RocksDB itself holds several copies of its keys",
    each_byte=32,
)
HELD_BYTES = Bound(
    "bytes that blocks of RocksDB's tables unpack to, which are merged at a time",
    1 << 26,
    "one of each table whose keys overlap others' is in memory",
    each_byte=32,
)
TABLE_ROWS = Bound("rows of one file of a lake", 1 << 20, "equal rows take no bytes", each_byte=8)
TABLE_BYTES = Bound(
    "bytes that one file of a lake unpacks to", 1 << 28, "zeros take no bytes", each_byte=512
)
PAGE_BYTES = Bound(
    "bytes that one page of a file of a lake unpacks to",
    1 << 26,
    "a page has a megabyte, or one value that is larger",
    each_byte=32,
)

BOUNDS = tuple(value for value in list(globals().values()) if isinstance(value, Bound))
