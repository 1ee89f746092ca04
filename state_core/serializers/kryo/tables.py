"""Objects of Kryo, many at a time: as a table of their parts, and as the bytes of either Flink.

Kernels know the most frequent forms; an object with another one is read by itself, as an item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.kernels import kryo as kernels
from statelake.state_core.serializers.framework.columns import (
    BoolArray,
    I64Array,
    U8Array,
    arrow_buffer,
    validity,
    variable_values,
)
from statelake.state_core.serializers.kryo.graph import Classes, Item
from statelake.state_core.serializers.kryo.java_types import PRIMITIVES, JavaType
from statelake.state_core.serializers.kryo.objects import FieldForm
from statelake.state_core.serializers.kryo.uuids import uuid_texts
from statelake.state_core.serializers.kryo.wire import KryoVersion

if TYPE_CHECKING:
    from statelake.state_core.serializers.kryo.decoding import KryoValues

FEW = 8  # so many are read faster by themselves
AT_ONCE = 1 << 23  # bytes of objects in one table
LARGEST = 1 << 26  # bytes of an object in a table
UNNAMED = "?"  # the class of all that have no form
WORD = 8  # bytes of a number that NumPy has
# shared objects stand in a column each by itself: limits of elements, for each line; and of text
MOST_SHARED, MOST_TEXT = 4, 1 << 28
COLLECTIONS = frozenset({kernels.COLLECTION, kernels.AS_LIST, kernels.EMPTY})
# whose parts are the elements of a list column
LISTS = COLLECTIONS - {kernels.AS_LIST} | {kernels.ARRAY, kernels.SINGLE}
MAPS = frozenset({kernels.MAP, kernels.EMPTY})
_OBJECTS, _TEXTS = "[Ljava.lang.Object;", "[Ljava.lang.String;"
# the codecs of steps, by their letters in `forms`
_CODECS = {
    "z": 1, "b": 1, "h": 2, "c": 2, "f": 4, "d": 8, "q": 8, "+": kernels.VARINT, "i": kernels.INT,
    "l": kernels.VARLONG, "j": kernels.LONG, "m": kernels.MILLIS, "t": kernels.CLOCK,
    "s": kernels.TEXT, "S": kernels.SIZED_TEXT, "y": kernels.BYTES, "n": kernels.BIG,
    "[i": kernels.INTS, "[j": kernels.LONGS,
}  # fmt: skip
_CODECS |= {f"[{letter}": kernels.ARRAY_OF + _CODECS[letter] for letter in "zchfd"}
# where a line has the numbers of a value, by how many these are
_PLACES = ((0,), (0, kernels.IN_START), (0, kernels.IN_START, kernels.IN_END),
           (16, 8, 0, kernels.IN_START))  # fmt: skip
# the columns of numbers, by their class
NUMBERS = {
    "java.lang.Boolean": pa.bool_(),
    "java.lang.Byte": pa.int8(),
    "java.lang.Short": pa.int16(),
    "java.lang.Integer": pa.int32(),
    "java.lang.Long": pa.int64(),
    "java.lang.Float": pa.float32(),
    "java.lang.Double": pa.float64(),
}
_DATE_TIME = ("java.time.LocalDate", "java.time.LocalTime")


class ClassTable:
    """The classes of a job, as kernels know them.

    Args:
        classes: The classes.

    Attributes:
        names: Their names; the last one is of all that have no form.
    """

    def __init__(self, classes: Classes) -> None:
        self.classes = classes
        names = [name for name in classes.forms if name.isascii() and len(name) > 1]
        names += [_TEXTS, *(f"[L{name};" for name in classes.users if name.isascii())]
        self.names = [*dict.fromkeys(names), UNNAMED]
        self.numbers = {name: number for number, name in enumerate(self.names)}
        self._fields: list[int] = []
        self._arguments: dict[tuple[JavaType, ...], int] = {}
        self._argument_lines: list[int] = []
        self._targets: dict[int, tuple[Classes, I64Array]] = {}
        self._types(())
        self.forms = [self._form(name) for name in self.names]
        self.steps = [
            self._steps(name) if form in (kernels.LEAF, kernels.ENUM) else [0, 0]
            for name, (form, _) in zip(self.names, self.forms, strict=True)
        ]
        self.fields = np.array(self._fields or [0], np.int64)
        self.arguments = np.array(self._argument_lines, np.int64)
        self.by_name = ClassNames.of(self.names[:-1])
        highest = max(classes.ids, default=0)
        self.ids = np.full(highest + 1, -1, np.int64)
        for number, name in classes.ids.items():
            self.ids[number] = self.numbers.get(name, -1)

    def number_of(self, java_class: str) -> int:
        """Return the number of a class."""
        return self.numbers.get(java_class, len(self.names) - 1)

    def _form(self, name: str) -> tuple[int, int]:
        form = self.classes.forms.get(name)
        if name == UNNAMED:
            return kernels.UNKNOWN, 0
        if name.startswith("[L") and (form is None or name == _OBJECTS):
            component = name[2:-1]
            final = self.number_of(component) if self.classes.is_final(component) else -1
            return kernels.ARRAY, final
        if type(form) is FieldForm:
            return kernels.OBJECT, self._laid_out(form)
        if form is None or name in self.classes.typed:
            return kernels.UNKNOWN, 0
        if name == "java.time.LocalDateTime":
            place = len(self._fields)
            self._fields.append(2)
            for each in _DATE_TIME:
                self._fields += [kernels.OR_NULL, self.number_of(each), 0]
            return kernels.DATE_TIME, place
        return form.kernel

    def _steps(self, name: str) -> list[int]:
        """Return the places of the steps of Kryo 2.24 and of Kryo 5.6."""
        places: list[int] = []
        for steps in map(self.classes.forms[name].steps, KryoVersion):
            parts = _PLACES[max(step.place for step in steps)]
            places.append(len(self._fields))
            self._fields.append(len(steps))
            for codec, place, limits in steps:
                self._fields += [_CODECS[codec], parts[place], *limits]
        return places

    def _laid_out(self, form: FieldForm) -> int:
        place = len(self._fields)
        self._fields.append(len(form.in_order))
        for _, kind in form.in_order:
            if kind.name in PRIMITIVES:
                how, what = kernels.BARE, self.number_of(kind.box)
            elif self.classes.is_final(kind.name):
                how, what = kernels.OR_NULL, self.number_of(kind.name)
            else:
                how, what = kernels.ANY, 0
            self._fields += [how, what, self._types(kind.arguments)]
        return place

    def _types(self, arguments: tuple[JavaType, ...]) -> int:
        """Return the number of some type arguments."""
        if arguments in self._arguments:
            return self._arguments[arguments]
        number = self._arguments[arguments] = len(self._arguments)
        at = len(self._argument_lines)
        self._argument_lines += [-1, -1, 0, 0, 0]
        for place, kind in enumerate(arguments[:2]):
            if self.classes.is_final(kind.name):
                self._argument_lines[at + place] = self.number_of(kind.name)
            self._argument_lines[at + kernels.IN_KEYS + place] = self._types(kind.arguments)
        if arguments:
            self._argument_lines[at + kernels.IN_ELEMENTS] = self._types(arguments[-1].arguments)
        return number

    @cached_property
    def lines(self) -> I64Array:
        """The classes of kernels, without ids of Kryo 5.6."""
        return self._lines_for(self.classes)

    def lines_for(self, target: Classes) -> I64Array:
        """Return the classes of kernels for what a job of Flink 2 with other classes reads."""
        if target is self.classes:
            return self.lines
        if id(target) not in self._targets:
            self._targets[id(target)] = (target, self._lines_for(target))
        return self._targets[id(target)][1]

    def _lines_for(self, target: Classes) -> I64Array:
        lines: list[int] = []
        for name, form, steps in zip(self.names, self.forms, self.steps, strict=True):
            lines += form if self._same(name, target) else (kernels.UNKNOWN, 0)
            lines += [int(self.classes.has_references(name, version)) for version in KryoVersion]
            lines += [each.numbers.get(name, -1) for each in (self.classes, target)]
            lines += steps
        return np.array(lines, np.int64)

    def _same(self, name: str, target: Classes) -> bool:
        forms = self.classes.form_of(name), target.form_of(name)
        return forms[0] == forms[1] and self.classes.is_final(name) == target.is_final(name)


class ClassNames(NamedTuple):
    """The names of classes, as kernels find them.

    Attributes:
        hashes: The hashes of names, ascending.
        classes: The class of each.
        offsets: Where each class's name begins, and the end.
        bytes: The names, by class.
    """

    hashes: I64Array
    classes: I64Array
    offsets: I64Array
    bytes: U8Array

    @classmethod
    def of(cls, names: Sequence[str]) -> ClassNames:
        """Return those of classes by number; one more has no name."""
        encoded = [name.encode() for name in names]
        hashes = np.array([_hash(name) for name in encoded], np.int64)
        classes = np.argsort(hashes, kind="stable")
        sizes = [0, *map(len, encoded), 0]
        joined = np.frombuffer(b"".join(encoded), np.uint8)
        return cls(hashes[classes], classes, np.cumsum(sizes).astype(np.int64), joined)


def _hash(name: bytes) -> int:
    value = 0
    for byte in name:
        value = value * 31 + byte & (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


@dataclass(frozen=True)
class Parts:
    """A table of parts of objects, as in `kernels.kryo`; the last line is null.

    Attributes:
        version: The Kryo that wrote the objects, or is to write them.
        classes: The classes.
        data: The bytes that the table refers to.
        kind, start, end, number, behind: The table.
    """

    version: KryoVersion
    classes: ClassTable
    data: U8Array
    kind: I64Array
    start: I64Array
    end: I64Array
    number: I64Array
    behind: I64Array

    def resolved(self, lines: I64Array) -> I64Array:
        """Return the lines of objects, with references followed."""
        return np.where(self.kind[lines] == kernels.REFERENCE, self.number[lines], lines)

    def has_within(self, marks: BoolArray, lines: I64Array) -> BoolArray:
        """Return which lines are marked, or a part within them is."""
        before = np.concatenate(([0], np.cumsum(marks)))
        marked: BoolArray = before[self.behind[lines]] > before[lines]
        return marked

    def compared(
        self, lines: I64Array, first: I64Array, ends: I64Array
    ) -> tuple[BoolArray, BoolArray]:
        """Return which objects can be compared, and which of them Kryo writes as they are.

        Args:
            lines: Their lines.
            first: Where each begins.
            ends: Where each ends.
        """
        out, sizes, fates = self.written_back(lines, int((ends - first).sum()))
        same = np.empty(len(lines), np.uint8)
        kernels.compare_pieces(self.data, first, ends, out, sizes, same)
        return fates != kernels.UNTOLD, same != 0

    def written_back(self, lines: I64Array, size: int) -> tuple[U8Array, I64Array, U8Array]:
        """Return objects of about so many bytes as the same Kryo writes them, as `written` does.

        Those within which two parts are one are untold.
        """
        out, sizes, outcomes = self.written(lines, self.version, self.classes.classes, size)
        references = self.kind == kernels.REFERENCE
        if references.any():
            outcomes[self.has_within(references, lines)] = kernels.UNTOLD
        return out, sizes, outcomes

    def within(self, lines: I64Array, counts: I64Array) -> I64Array:
        """Return the lines of the parts right within some lines, of which each has so many."""
        offsets = np.cumsum(counts) - counts
        parts = np.empty(int(counts.sum()), np.int64)
        kernels.parts_within(lines, counts, self.behind, offsets, parts)
        return self.resolved(parts)

    def texts(self, lines: I64Array) -> pa.Array:
        """Return text, and null.

        Raises:
            EncodeError: Half of a character is alone.
        """
        null = self.kind[lines] == kernels.NULL
        size = int((self.end[lines] - self.start[lines])[~null].sum())
        if size > MOST_TEXT:
            raise EncodeError("shared text that is too long in a column")
        offsets, out = np.empty(len(lines) + 1, np.int32), np.empty(size, np.uint8)
        size = kernels.read_texts(
            self.data, lines, self.kind, self.start, self.end, self.number, offsets, out
        )
        if size == kernels.FAILED:
            raise EncodeError("half of a character")
        bitmap, nulls = validity((~null).astype(np.uint8))
        buffers = [bitmap, arrow_buffer(offsets), arrow_buffer(out[:size])]
        return pa.Array.from_buffers(pa.string(), len(lines), buffers, nulls)

    def numbers(self, lines: I64Array, kind: pa.DataType) -> pa.Array:
        """Return numbers or booleans, and null."""
        bits = self.number[lines]
        if pa.types.is_boolean(kind):
            bits = bits != 0
        elif pa.types.is_floating(kind):
            bits = bits.astype(f"i{kind.bit_width // 8}").view(f"f{kind.bit_width // 8}")
        return pa.array(bits, kind, mask=self.kind[lines] == kernels.NULL, from_pandas=False)

    def content(self, line: int) -> bytes:
        """Return the content of bytes, or of a large number."""
        return bytes(self.data[self.start[line] : self.end[line]])

    def integer(self, line: int) -> int:
        """Return a large number."""
        return int.from_bytes(self.content(line), "big", signed=True)

    def small_integers(self, lines: I64Array) -> I64Array | None:
        """Return large numbers, 0 for null; None if one does not fit into 64 bits."""
        null = self.kind[lines] == kernels.NULL
        starts, sizes = self.start[lines], np.where(null, 0, self.end[lines] - self.start[lines])
        if (sizes > WORD).any():
            return None
        numbers = np.zeros(len(lines), np.int64)
        for step in range(int(sizes.max(initial=0))):
            there = sizes > step
            byte = self.data[np.where(there, starts + step, 0)]
            if step == 0:  # which has the sign
                numbers = np.where(there, byte.astype(np.int8), 0).astype(np.int64)
            else:
                numbers = np.where(there, numbers << 8 | byte, numbers)
        return numbers

    def uuids(self, lines: I64Array) -> pa.Array:
        """Return the text of UUIDs, and null."""
        there = self.kind[lines] != kernels.NULL
        present = lines[there]
        halves = np.stack((self.number[present], self.start[present]), 1).view(np.uint64)
        return uuid_texts(halves, there.astype(np.uint8))

    def classes_of(self, lines: I64Array) -> set[str]:
        """Return the classes of objects, or null."""
        kinds = np.unique(self.kind[lines]).tolist()
        return {self.classes.names[kind] for kind in kinds if kind != kernels.NULL}

    def elements(
        self, lines: I64Array, forms: frozenset[int] = COLLECTIONS
    ) -> tuple[I64Array, I64Array]:
        """Return the number of elements of each collection or null, and the lines of all.

        Raises:
            EncodeError: One is of no such form, or shared ones have too many elements.
        """
        counts = self._counts(lines, forms)
        return counts, self.within(lines, counts)

    def entries(self, lines: I64Array) -> tuple[I64Array, I64Array, I64Array]:
        """Return the number of entries of each map or null, and the lines of keys and values.

        Raises:
            EncodeError: One is no map, or shared ones have too many entries.
        """
        counts = self._counts(lines, MAPS)
        both = self.within(lines, 2 * counts)
        return counts, both[::2].copy(), both[1::2].copy()

    def _counts(self, lines: I64Array, forms: frozenset[int]) -> I64Array:
        there = self.kind[lines] != kernels.NULL
        form = self.classes.lines[self.kind[lines[there]] * kernels.CLASS_WIDTH + kernels.FORM]
        if not forms.issuperset(np.unique(form).tolist()):
            raise EncodeError("an object that is no such collection")
        counts = np.where(there, self.number[lines], 0)
        if int(counts.sum()) > MOST_SHARED * len(self.kind):
            raise EncodeError("shared objects expand too far")
        return counts

    def fields(self, lines: I64Array, java_class: str) -> dict[str, I64Array]:
        """Return the lines of the fields of objects of a class, by name."""
        form = self.classes.classes.forms[java_class]
        names = [name for name, _ in form.in_order] if isinstance(form, FieldForm) else []
        each = self.within(lines, np.full(len(lines), len(names))).reshape(len(lines), len(names))
        return {name: each[:, place].copy() for place, name in enumerate(names)}

    def written(
        self, lines: I64Array, version: KryoVersion, target: Classes, size: int = 0
    ) -> tuple[U8Array, I64Array, U8Array]:
        """Return objects as a Kryo writes them, each by itself, one behind the other.

        Args:
            lines: Their lines, with references followed.
            version: The version.
            target: The classes of the job that reads them.
            size: About so many bytes, if that is known.

        Returns:
            The bytes, the size of each object, and what became of it: `WRITTEN`, or why it has no
            bytes.
        """
        table = self.classes
        ends, outcomes = np.zeros(len(lines), np.int64), np.zeros(len(lines), np.uint8)
        size = size or WORD * int((self.behind[lines] - lines).sum())
        out = np.empty(kernels.ROOM * 4 + size, np.uint8)
        names, alone = np.empty((2, len(table.names)), np.int64)
        stack = np.empty(kernels.DEEPEST * kernels.STACK_WIDTH, np.int64)
        numbered = len(self.kind) if (self.kind == kernels.REFERENCE).any() else 0
        row = 0
        while True:
            row = kernels.write_objects(
                version - 1, row, lines, self.data, self.kind, self.start, self.end, self.number,
                self.behind, table.lines_for(target), table.fields, table.arguments,
                table.by_name.offsets, table.by_name.bytes, out, ends, outcomes,
                np.full(numbered, -1), names, alone, stack,
            )  # fmt: skip
            if row == len(lines):
                break
            out = np.concatenate((out, np.empty_like(out)))
        sizes = np.diff(ends, prepend=0)
        return out[: int(sizes.sum())], sizes, outcomes


@dataclass
class MarkedTable:
    """A table of parts of objects, in which lines are marked while columns are made of it.

    Attributes:
        parts: The table, without references.
        unfit: Objects that no column holds, so that the whole value is null.
        loose: Objects that would be written otherwise.
        untold: Objects that are to be read by themselves.
    """

    parts: Parts
    unfit: BoolArray
    loose: BoolArray
    untold: BoolArray

    @classmethod
    def of(cls, parts: Parts) -> MarkedTable:
        """Return a table without a mark."""
        return cls(parts, *np.zeros((3, len(parts.kind)), np.bool_))

    def present(self, lines: I64Array) -> U8Array:
        """Return 0 for each line that is null, and 1 for all others."""
        present: U8Array = (self.parts.kind[lines] != kernels.NULL).astype(np.uint8)
        return present

    def of_class(self, lines: I64Array, java_class: str) -> BoolArray:
        """Return which lines are objects of a class; mark all others but null as unfit."""
        kinds = self.parts.kind[lines]
        right: BoolArray = kinds == self.parts.classes.number_of(java_class)
        self.unfit[lines[~right & (kinds != kernels.NULL)]] = True
        return right

    def of_forms(self, lines: I64Array, forms: frozenset[int], java_class: str) -> I64Array:
        """Return lines, those of other forms replaced by null; mark these as untold.

        Args:
            lines: The lines.
            forms: The forms.
            java_class: The class that is written: objects of others are marked as loose; empty for
                any.
        """
        kinds = self.parts.kind[lines]
        actual = self.parts.classes.lines[np.maximum(kinds, 0) * kernels.CLASS_WIDTH + kernels.FORM]
        right = np.isin(actual, [*forms])
        right &= (actual != kernels.SINGLE) | (self.parts.number[lines] == 1)
        right |= kinds == kernels.NULL
        self.untold[lines[~right]] = True
        others = (kinds != self.parts.classes.number_of(java_class)) & (kinds != kernels.NULL)
        self.loose[lines[others]] |= java_class != ""
        kept: I64Array = np.where(right, lines, self.a_null)
        return kept

    @property
    def a_null(self) -> int:
        """The line of null, which is the table's last."""
        return len(self.parts.kind) - 1


class PlacedTable:
    """A table of parts that is made of columns, and the bytes that it refers to.

    Args:
        version: The Kryo that is to write them.
        classes: The classes.
        lines: The number of its lines.
    """

    def __init__(self, version: KryoVersion, classes: ClassTable, lines: int) -> None:
        self.version = version
        self.classes = classes
        self.kind = np.full(lines, kernels.NULL, np.int64)
        self.start, self.end, self.number = np.zeros((3, lines), np.int64)
        self.data: list[U8Array] = []
        self.size = 0

    def put(self, lines: I64Array, java_class: str, number: I64Array | None = None) -> None:
        """Make lines objects of a class, each with its number."""
        self.kind[lines] = self.classes.number_of(java_class)
        if number is not None:
            self.number[lines] = number

    def put_all(self, lines: I64Array, which: I64Array, names: Sequence[str]) -> None:
        """Make lines objects of the class that each one's number is; -1 for null.

        One number more than there are names is for objects that are written by themselves.
        """
        numbers = [*map(self.classes.number_of, (*names, UNNAMED)), kernels.NULL]
        self.kind[lines] = np.array(numbers, np.int64)[which]

    def put_bytes(self, lines: I64Array, data: U8Array, bounds: I64Array) -> None:
        """Give lines their bytes, between neighbouring bounds."""
        self.start[lines], self.end[lines] = bounds[:-1] + self.size, bounds[1:] + self.size
        self.put_data(data)

    def put_data(self, data: U8Array) -> None:
        """Add bytes that lines refer to from `size` on."""
        self.data.append(data)
        self.size += len(data)

    def put_integers(self, lines: I64Array, numbers: I64Array) -> None:
        """Give lines the shortest bytes of numbers, high byte first."""
        size = np.ones(len(numbers), np.int64)
        magnitude = numbers ^ numbers >> 63
        for more in range(1, WORD):
            size += magnitude >> 8 * more - 1 != 0
        words = numbers.astype(">i8").view(np.uint8).reshape(len(numbers), WORD)
        used = np.arange(WORD) >= WORD - size[:, None]
        self.put_bytes(lines, words[used], np.concatenate(([0], np.cumsum(size))))

    def put_texts(self, lines: I64Array, texts: pa.Array) -> None:
        """Give lines their text.

        Raises:
            EncodeError: It has a character of two units of UTF-16.
        """
        offsets, data = variable_values(texts)
        data = data[int(offsets[0]) : int(offsets[-1])]
        bounds = offsets.astype(np.int64) - int(offsets[0])
        if (data >= 0xF0).any():
            raise EncodeError("a character of two units, which is written by itself")
        begins = np.concatenate(([0], np.cumsum(data & 0xC0 != 0x80)))
        self.number[lines] = np.diff(begins[bounds])
        self.put_bytes(lines, data, bounds)

    def written(self, lines: I64Array) -> tuple[U8Array, I64Array, U8Array]:
        """Return objects as `Parts.written_back` does."""
        data = np.concatenate([*self.data, np.empty(0, np.uint8)])
        table, behind = self.classes, np.empty_like(self.kind)
        kernels.find_ends(self.kind, self.number, table.lines, table.fields, behind)
        columns = self.kind, self.start, self.end, self.number, behind
        parts = Parts(self.version, table, data, *columns)
        return parts.written_back(lines, len(data) + 8 * len(self.kind))


class TablePlan(NamedTuple):
    """How a column's values become parts of a table.

    Attributes:
        sizes: The lines that each value takes.
        place: Fills the lines of a table, given the first line of each value.
    """

    sizes: I64Array
    place: Callable[[PlacedTable, I64Array], None]


@dataclass(frozen=True)
class Objects:
    """Objects of Kryo, one for each of some places.

    Attributes:
        starts: Where each begins.
        ends: Where each ends.
        parts: The table of their parts.
        roots: The line of each; less than 0 for one that is not in the table.
        others: Those that are not, by row.
        read: Returns an object between two places.
    """

    starts: I64Array
    ends: I64Array
    parts: Parts
    roots: I64Array
    others: Mapping[int, Item | None]
    read: Callable[[int, int], tuple[Item | None, int]]

    def item(self, row: int) -> Item | None:
        """Return an object as an item."""
        if row in self.others:
            return self.others[row]
        return self.read(int(self.starts[row]), int(self.ends[row]))[0]


def read_objects(
    values: KryoValues,
    data: U8Array,
    starts: I64Array,
    limits: I64Array,
    place: Callable[[int], str],
) -> Iterator[Objects]:
    """Yield the objects of many places, so many in a table as memory allows.

    Args:
        values: Their reader.
        data: The bytes.
        starts: Where each begins.
        limits: The position that each does not pass.
        place: Returns the name of a position, for messages.

    Raises:
        StateError: An object can't be parsed.
    """

    def read(start: int, limit: int) -> tuple[Item | None, int]:
        source = DataInput(data.data[start:limit], place(start))
        item = values.read_next(source, values.version)
        return item, start + source.position

    for begin, stop, parts, roots, ends in tables_of(values, data, starts, limits):
        others = {}
        for row in np.flatnonzero(roots < 0).tolist():
            others[row], ends[row] = read(int(starts[begin + row]), int(limits[begin + row]))
        yield Objects(starts[begin:stop].copy(), ends, parts, roots, others, read)


def tables_of(
    values: KryoValues, data: U8Array, starts: I64Array, limits: I64Array
) -> Iterator[tuple[int, int, Parts, I64Array, I64Array]]:
    """Yield tables of the objects of many places: the first row, the row behind, and the table.

    With the line of each row's object, less than 0 for one that is not in it, and where each ends.
    """
    sizes = np.maximum(limits - starts, 0)
    sizes[sizes > LARGEST] = 0
    chunk = np.cumsum(sizes) // AT_ONCE
    bounds = [0, *(np.flatnonzero(np.diff(chunk)) + 1).tolist(), len(starts)]
    for begin, stop in pairwise(bounds):
        first = starts[begin:stop].copy()
        yield (begin, stop, *_tabled(values, data, first, first + sizes[begin:stop]))


def _tabled(
    values: KryoValues, data: U8Array, first: I64Array, limit: I64Array
) -> tuple[Parts, I64Array, I64Array]:
    """Return a table of objects, the line of each, and where each ends."""
    table = values.table
    lines = int((limit - first).sum()) + len(first) + 1
    kind, start, end, number, behind, scratch = np.empty((6, lines), np.int64)
    roots, ends = np.full((2, len(first)), kernels.FAILED, np.int64)
    if len(first) >= FEW:
        kernels.read_objects(
            values.version - 1, data, first, limit, table.lines, table.fields, table.arguments,
            table.ids, *table.by_name,
            kind, start, end, number, behind, roots, ends, scratch,
            np.empty(kernels.MOST_NAMES, np.int64),
            np.empty(kernels.DEEPEST * kernels.STACK_WIDTH, np.int64),
        )  # fmt: skip
    there = roots[roots >= 0]
    used = int(behind[there[-1]]) if there.size else 0
    kind[used], behind[used] = kernels.NULL, used + 1  # one more, for what has no line
    start[used] = end[used] = number[used] = 0
    columns = [column[: used + 1].copy() for column in (kind, start, end, number, behind)]
    return Parts(values.version, table, data, *columns), roots, ends
