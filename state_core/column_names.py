"""Names of columns that every table and query takes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pyarrow as pa

from statelake.state_core.errors import IncompatibleError

LONGEST = 100
_NOT_PLAIN = re.compile(r"[^\w#@-]+")  # what Delta, Spark or a query would not take as it is


def plain_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return names that tables and queries take, each another one, whatever their case."""
    found: list[str] = []
    taken: dict[str, int] = {}  # by name, the last number behind it
    for index, name in enumerate(names):
        text = name.encode("utf-8", "replace").decode().replace("$", "")
        plain = _NOT_PLAIN.sub("_", text)[:LONGEST].strip("_") or f"f{index}"
        unique = plain
        while unique.lower() in taken:
            taken[plain.lower()] += 1
            unique = f"{plain}_{taken[plain.lower()]}"
        taken[unique.lower()] = 1
        found.append(unique)
    return tuple(found)


def twins(fields: Iterable[pa.Field]) -> tuple[str, ...]:
    """Return the first two names that differ only in their case, at any depth; empty without."""
    taken: dict[str, str] = {}
    for field in fields:
        kind = field.type
        found = twins([kind.field(index) for index in range(kind.num_fields)])
        if found:
            return found
        if field.name.lower() in taken:
            return taken[field.name.lower()], field.name
        taken[field.name.lower()] = field.name
    return ()


def refuse_twins(fields: Iterable[pa.Field], place: str) -> None:
    """Refuse columns of which a table can't have both.

    Args:
        fields: The columns.
        place: What has them, for the message.

    Raises:
        IncompatibleError: Two names differ only in their case.
    """
    found = twins(fields)
    if found:
        raise IncompatibleError(
            f"the fields {found[0]!r} and {found[1]!r} differ only in their case, and no table"
            " takes both",
            place=place,
            remedy="read it without a lake: with dump, get, find, top or diff",
        )
