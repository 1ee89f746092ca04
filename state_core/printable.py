"""Text for people: sizes, tables, and names out of untrusted files, escaped for display.

Names and values are shown as they are, except invisible characters: line ends and terminal
controls, changes of text direction, characters without width, half a surrogate pair.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar
from urllib.parse import urlsplit

_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
# of Azure it may be the container that stands before the host
_KEYS = re.compile(r"(?<=://)(?:(?<!abfs://)(?<!abfss://)[^/@]*|[^/@]*:[^/@]*)@")

LONGEST = 120  # characters of a name in a line or in a cell of HTML
LONGEST_NAME = 5000  # of a name in text, of which a terminal folds the lines
SHOWN = 100
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def bytes_text(count: float) -> str:
    """Return bytes as people read them."""
    size = float(count)
    for unit in _UNITS:
        if abs(size) < 1024 or unit == _UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def age_text(millis: int) -> str:
    """Return an age as text for people."""
    seconds = max(0, millis) // 1000
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def change_text(change: float) -> str:
    """Return by how many bytes something grew, with a sign."""
    return f"{'-' if change < 0 else '+'}{bytes_text(abs(change))}"


def saved_text(saved: int) -> str:
    """Return how many bytes less there are, or how many more if the number is negative."""
    return f"{bytes_text(abs(saved))} {'more' if saved < 0 else 'less'}"


NOTHING = ("-", ".")  # what a cell may show in place of nothing
FORMS: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(("", *NOTHING), str), "B": bytes_text, "+B": change_text,
}  # fmt: skip


def is_text(name: str) -> bool:
    """Return whether text can be encoded: only Java, and a path of bytes, can have half a pair."""
    return name.isascii() or not any("\ud800" <= unit <= "\udfff" for unit in name)


def printable(text: str) -> str:
    """Escape characters in a text that control a terminal or are invisible."""
    if text.isprintable():
        return text
    return _UNPRINTABLE.sub(lambda match: repr(match[0])[1:-1], text)


def without_keys(uri: str) -> str:
    """Return a URI for display, without access keys that may stand before the host."""
    return _KEYS.sub("", uri)


def public_location(location: str) -> str:
    """Return a path as it was given, or a URI without its credentials and options."""
    parts = urlsplit(location)
    if not parts.netloc:
        return location
    return without_keys(parts._replace(query="", fragment="").geturl())


def count_text(count: int, what: str) -> str:
    """Return how many there are of something: `no faults`, `1 fault`, `2,000 faults`."""
    return f"{f'{count:,}' if count else 'no'} {what}{'' if count == 1 else 's'}"


def first_of(problems: Sequence[str]) -> str:
    """Return the first of some problems, and how many more there are; empty without any."""
    more = f" (and {len(problems) - 1:,} more)" if len(problems) > 1 else ""
    return f"{problems[0]}{more}" if problems else ""


def printable_json(text: str) -> str:
    """Escape the same characters in JSON, without changing its value.

    Args:
        text: As `json.dumps` writes it, which escapes all control characters but line ends.
    """
    if text.isprintable():
        return text
    return _UNPRINTABLE.sub(
        lambda match: "\n" if match[0] == "\n" else json.dumps(match[0])[1:-1], text
    )


@dataclass(frozen=True)
class Table:
    """A headline and rows of text, which each face prints in its own way.

    Attributes:
        title: The headline.
        columns: Their names, behind `<` (left) or `>` (right).
        rows: The cells of each row; one of several lines is a list.
        left: How many more rows there are.
    """

    title: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str | list[str]]] = ()
    left: int = 0

    @classmethod
    def of(
        cls, title: str, columns: Iterable[str], structs: Iterable[Any],
        most: int | None = None, left: int = 0,
    ) -> Table:  # fmt: skip
        """Return a table with a row for each of some structs.

        Args:
            title: The headline.
            columns: Their names as above, each with `=` and the path of the part that it shows, if
                it is called otherwise, and with `:` and a format, if it is not shown as it is: `B`
                for bytes, `+B` for a change of them, `-` or `.` in place of nothing, or Python's.
            structs: The structs.
            most: The largest number of rows; all by default.
            left: How many more there are than these structs.
        """
        heads, cells, listed = [], [], list(structs)
        for column in columns:
            named, _, form = column.partition(":")
            head, _, path = named.partition("=")
            heads.append(head)
            cells.append((path or head[1:].lower().replace(" ", "_"), form))
        rows = [
            [_cell(part_of(each, path), form) for path, form in cells] for each in listed[:most]
        ]
        return cls(title, heads, rows, left + len(listed) - len(rows))

    def __str__(self) -> str:
        lines = [[column[1:] for column in self.columns], *self.rows]
        cells = [[printable(_one_line(cell)) for cell in line] for line in lines]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        shown = [
            "  ".join(
                cell.rjust(width) if column[0] == ">" else cell.ljust(width)
                for cell, width, column in zip(line, widths, self.columns, strict=True)
            ).rstrip()
            for line in cells
        ]
        return "\n".join([printable(self.title), *shown])

    def to_html(self) -> str:
        """Return it as HTML, all of whose text is escaped, with the first rows of many."""
        import html  # noqa: PLC0415 - for pages alone

        caption = f"<p>{html.escape(brief(self.title, 2 * LONGEST))}</p>" if self.title else ""
        if not self.columns:
            return caption
        head = "".join(f"<th>{html.escape(column[1:])}</th>" for column in self.columns)
        cells = (
            "".join(f"<td>{html.escape(brief(_one_line(cell), LONGEST))}</td>" for cell in row)
            for row in self.rows[:SHOWN]
        )
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        left = len(self.rows) + self.left - SHOWN
        more = f"<p>... and {left:,} more</p>" if left > 0 else ""
        return f"{caption}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _one_line(cell: str | list[str]) -> str:
    return cell if isinstance(cell, str) else "; ".join(cell)


def _cell(value: Any, form: str) -> str | list[str]:
    """Return a value as a cell; of a list, each element is a line."""
    if isinstance(value, list | tuple):
        return list(map(str, value))
    if value is None or value == "":
        return form if form in NOTHING else ""
    return FORMS[form](value) if form in FORMS else format(value, form)


def part_of(struct: Any, path: str) -> Any:
    """Return a part of a struct, a map or a list by its path (`record.job`); of None it is None."""
    for name in path.split("."):
        if isinstance(struct, dict):
            struct = struct.get(name)
        elif struct is not None:
            struct = struct[int(name)] if name.isdecimal() else getattr(struct, name)
    return struct


class JsonFields:
    """A struct, or a list of structs, that JSON shows by its fields.

    Attributes:
        JSON: The parts of a struct that JSON shows, in order; any dataclass can have it. Each is
            the name of a field or a property, also of one within (`record.job`). `a=b` shows `b`
            under the name `a`, `a?` leaves out what is empty, `*a` shows the fields of `a` in its
            place, `*` all fields that its `repr` shows, `a=!b` whether `b` is empty, and `a=.` the
            list itself. A name alone, which is in no tuple, shows that part in place of the struct.
    """

    JSON: ClassVar[tuple[str, ...] | str] = ("*",)

    def to_json(self) -> Any:
        """Return the JSON form."""
        if isinstance(self, list) and self.JSON is JsonFields.JSON:
            return [json_value(each) for each in self]
        return _fields_json(self, self.JSON)


class Printed(JsonFields):
    """A result that prints itself, in Python as by the command."""

    def lines(self) -> Iterable[str | Table]:
        """Yield the text form: lines and tables."""
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n".join(map(str, self.lines()))


def json_value(value: Any) -> Any:
    """Return the JSON form of a value: a struct by its fields, times as text."""
    if type(value) in (str, int):  # most are, and the other questions take long
        return value
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return _fields_json(value, getattr(value, "JSON", JsonFields.JSON))
    if isinstance(value, list | tuple):  # pairs of a map stay pairs
        listed = ((each, json_value(each)) for each in value)
        return [tuple(shown) if isinstance(each, tuple) else shown for each, shown in listed]
    if isinstance(value, Mapping):
        return {name: json_value(each) for name, each in value.items()}
    if isinstance(value, Enum):
        return value.value
    return value.isoformat() if isinstance(value, datetime) else value


def _fields_json(struct: Any, names: Iterable[str]) -> Any:
    if isinstance(names, str):
        return json_value(part_of(struct, names))
    described: dict[str, Any] = {}
    for entry in names:
        shown, _, name = entry.rpartition("=")
        if entry == "*":
            listed = (field.name for field in fields(struct) if field.repr)
            described |= {each: json_value(getattr(struct, each)) for each in listed}
            continue
        value = list(struct) if name == "." else part_of(struct, name.strip("*?!"))
        if name.startswith("*"):
            described |= json_value(value)
        elif name.startswith("!"):
            described[shown] = not value
        elif value or not name.endswith("?"):
            described[shown or name.strip("?")] = json_value(value)
    return described


def brief(name: str, longest: int = LONGEST_NAME) -> str:
    """Return a name out of a file as a line may have it: cut, what can't be seen escaped."""
    return printable(name if len(name) <= longest else f"{name[:longest]}...")


def kind_text(format_: str, kind: str) -> str:
    """Return a snapshot's format and kind in words; empty if neither is known."""
    return " ".join(dict.fromkeys(filter(None, (format_, kind))))
