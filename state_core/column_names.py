"""Names of columns that every table and query takes.

No table has two columns whose names differ only in their case, as fields of a Java class may. One
of such fields keeps its name, `id` beside `ID`, and the other gets a number: `ID_2`. Arrow's type
has the name in Flink with it, so that a table's columns have it too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from statelake.state_core.errors import PluginError

LONGEST = 100
FIELD = b"statelake.field"
"""What the metadata of a column has the field's name in Flink under, if that is another one."""
_NOT_PLAIN = re.compile(r"[^\w#@-]+")  # what Delta, Spark or a query would not take as it is


def plain_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return names that tables and queries take, each another one, whatever their case."""
    unique_names: list[str] = []
    taken: dict[str, int] = {}  # by name, the last number behind it
    for index, name in enumerate(names):
        text = name.encode("utf-8", "replace").decode().replace("$", "")
        plain = _NOT_PLAIN.sub("_", text)[:LONGEST].strip("_") or f"f{index}"
        unique = plain
        while unique.lower() in taken:
            taken[plain.lower()] += 1
            unique = f"{plain}_{taken[plain.lower()]}"
        taken[unique.lower()] = 1
        unique_names.append(unique)
    return tuple(unique_names)


def column_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of fields: their names, each another one whatever its case.

    Of those that differ only in their case the one with the fewest capital letters stays; no other
    gets the name of a further field. The order of the fields does not matter.
    """
    taken = {name.lower() for name in names}
    if len(taken) == len(names):
        return tuple(names)
    columns: dict[str, str] = {}
    last: dict[str, int] = {}  # by name in small letters, the last number behind it
    for name in sorted(names, key=lambda name: (sum(map(str.isupper, name)), name)):
        column, folded = name, name.lower()
        while folded in last and column.lower() in taken:
            last[folded] += 1
            column = f"{name}_{last[folded]}"
        last.setdefault(folded, 1)
        taken.add(column.lower())
        columns[name] = column
    return tuple(columns[name] for name in names)


def struct_of(names: Sequence[str], kinds: Iterable[pa.DataType]) -> pa.StructType:
    """Return the type of fields of these names in Flink, each with its column's name."""
    return pa.struct(
        [
            pa.field(column, kind, metadata=None if column == name else {FIELD: name})
            for column, name, kind in zip(column_names(names), names, kinds, strict=True)
        ]
    )


def field_name(column: pa.Field) -> str:
    """Return the name in Flink of the field that a column has."""
    name: bytes = (column.metadata or {}).get(FIELD, column.name.encode())
    return name.decode()


def column_path(kind: pa.DataType, path: str) -> str:
    """Return the columns of a field within a type, from its names in Flink, or from theirs."""
    steps = _fields_at(kind, path)
    return ".".join(name if column is None else column.name for name, column in steps)


def field_path(kind: pa.DataType, path: str) -> str:
    """Return the names in Flink of a field within a type, from these, or from its columns'."""
    steps = _fields_at(kind, path)
    return ".".join(name if column is None else field_name(column) for name, column in steps)


def _fields_at(kind: pa.DataType, path: str) -> Iterator[tuple[str, pa.Field | None]]:
    """Yield each name of a path, and its column; None if the type has no such field."""
    for name in path.split("."):
        inner = list(kind) if pa.types.is_struct(kind) else []
        field = next((each for each in inner if field_name(each) == name), None)
        field = field or next((each for each in inner if each.name == name), None)
        yield name, field
        kind = pa.null() if field is None else field.type


def twins(fields: Iterable[pa.Field]) -> tuple[str, ...]:
    """Return the first two names that differ only in their case, at any depth; empty without."""
    taken: dict[str, str] = {}
    for field in fields:
        kind = field.type
        nested = twins([kind.field(index) for index in range(kind.num_fields)])
        if nested:
            return nested
        if field.name.lower() in taken:
            return taken[field.name.lower()], field.name
        taken[field.name.lower()] = field.name
    return ()


def refuse_twins(fields: Iterable[pa.Field], place: str) -> None:
    """Refuse columns of which a table can't have both, as a user's decoder may give them.

    Args:
        fields: The columns.
        place: What has them, for the message.

    Raises:
        PluginError: Two names differ only in their case.
    """
    pair = twins(fields)
    if pair:
        raise PluginError(
            f"the fields {pair[0]!r} and {pair[1]!r} differ only in their case, and no table"
            " takes both",
            place=place,
            remedy="have the decoder, or the serializer, of your own give one of them another name",
        )
