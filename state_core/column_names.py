"""Names of columns that every table and query takes."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
