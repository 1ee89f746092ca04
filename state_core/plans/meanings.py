"""The meaning of fields, conditions and rows of a plan, as trees over the tables.

Equal trees are one object. So they are compared by identity, and what a query repeats, or nests in
what it repeats, is there once. The text of a tree is for people alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

from statelake.state_core.errors import DeclarationError
from statelake.state_core.plans.plan import plan_type

MAX_DEPTH = 200  # of an expression: what is nested in what other nodes emit has no limit
MOST_LETTERS = 1000  # of a text, of which people read the beginning
WHOLE_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
COMMUTATIVE = ("AND", "OR", "=", "<>", "+", "*")
_PLAIN = re.compile(r"[A-Za-z_][\w.$-]*")
_MADE: WeakValueDictionary[tuple[type, tuple[object, ...]], Any] = WeakValueDictionary()
_LOCK = Lock()


class _OneOfEach(type):
    """Makes equal trees one object."""

    __match_args__: tuple[str, ...]

    def __call__(cls, *values: Any, **named: Any) -> Any:
        for name in cls.__match_args__[len(values) :]:
            values += (named[name] if name in named else getattr(cls, name),)
        made = _MADE.get((cls, values))
        if made is None:
            with _LOCK:  # another thread may have made it meanwhile
                made = _MADE.get((cls, values)) or super().__call__(*values)
                _MADE[cls, values] = made
        return made


@dataclass(frozen=True, eq=False, repr=False)
class Meaning(metaclass=_OneOfEach):
    """A tree.

    Attributes:
        text: What people read, without its end if that is long.
        plain: Whether its values are some of a column, and equal in all types that have them.
    """

    text: str = field(init=False)
    plain: bool = field(init=False)

    def __post_init__(self) -> None:
        """Give it what follows from its parts."""
        self.__dict__.update(text=_text_of(self)[:MOST_LETTERS], plain=_is_plain(self))

    def __repr__(self) -> str:
        """Return its text."""
        return self.text

    def __reduce__(self) -> tuple[type[Meaning], tuple[object, ...]]:
        """Return what makes it again: also in another process it is one object."""
        return type(self), tuple(vars(self)[name] for name in type(self).__match_args__)


@dataclass(frozen=True, eq=False, repr=False)
class TableColumn(Meaning):
    """A column of a table: `orders.amount`."""

    table: str
    name: str


@dataclass(frozen=True, eq=False, repr=False)
class Cast(Meaning):
    """A column cast to a wider type, in which it has the same values: `orders.amount AS BIGINT`."""

    of: Meaning
    to: str


@dataclass(frozen=True, eq=False, repr=False)
class Call(Meaning):
    """A function of its operands; its type is empty where it follows from theirs: `UPPER(o.c)`."""

    function: str
    operands: tuple[Meaning, ...] = ()
    to: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Aggregate(Meaning):
    """A function of the values of many rows: `SUM(DISTINCT o.v) FILTER (o.paid) BY [o.g]`.

    Attributes:
        function: Its name.
        arguments: Its arguments.
        distinct: Whether each value counts once.
        only: The condition on rows that count; None if all do.
        marks: What else there is to it: groups, a window, a part of what it holds.
    """

    function: str
    arguments: tuple[Meaning, ...] = ()
    distinct: bool = False
    only: Meaning | None = None
    marks: tuple[Meaning, ...] = ()

    def marked(self, mark: Meaning) -> Aggregate:
        """Return the same with one more mark."""
        marks = *self.marks, mark
        return Aggregate(self.function, self.arguments, self.distinct, self.only, marks)

    def called(self, function: str) -> Aggregate:
        """Return another function of the same."""
        return Aggregate(function, self.arguments, self.distinct, self.only, self.marks)


@dataclass(frozen=True, eq=False, repr=False)
class Series(Meaning):
    """Several trees, in an order."""

    parts: tuple[Meaning, ...]
    by: str = ", "


@dataclass(frozen=True, eq=False, repr=False)
class Phrase(Meaning):
    """Anything else: a form such as `{} WHERE {}`, and its parts; more than it has are not shown.

    Its values are plain if the maker says so.
    """

    form: str
    parts: tuple[Meaning | str | int, ...] = ()
    is_plain: bool = False


def _text_of(tree: Meaning) -> str:
    """Return a text, which may be longer than what is kept of it."""
    match tree:  # the most frequent ones first
        case Phrase(form, values):
            return form.format(*values)
        case TableColumn(table, name):
            return f"{table}.{name}"
        case Series(parts, by):
            return _joined(parts, by)
        case Cast(of, to):
            return f"{of} AS {to}"
        case Call(function, operands, to):
            return f"{function}({_joined(operands)}{to and f' AS {to}'})"
        case Aggregate(function, arguments, distinct, only, marks):
            given = f"{'DISTINCT ' if distinct else ''}{_joined(arguments)}"
            where = "" if only is None else f" FILTER ({only})"
            return f"{function}({given}){where}{_joined(marks, '')}"
    raise NotImplementedError(f"a {type(tree).__name__} has no text here")


def _is_plain(tree: Meaning) -> bool:
    if isinstance(tree, Phrase):
        return tree.is_plain
    if isinstance(tree, Series):
        return all(each.plain for each in tree.parts)
    if isinstance(tree, Aggregate):
        return tree.function in ("MIN", "MAX")
    return tree.of.plain if isinstance(tree, Cast) else isinstance(tree, TableColumn)


def _joined(parts: Iterable[Meaning], by: str = ", ") -> str:
    """Return texts one after the other, as far as people read them."""
    text = ""
    for at, each in enumerate(parts):
        text += f"{by if at else ''}{each}"
        if len(text) > MOST_LETTERS:
            break
    return text


def phrase(form: str, *parts: Meaning | str | int, plain: bool = False) -> Phrase:
    """Return a phrase."""
    return Phrase(form, parts, plain)


NOTHING = phrase("")


def ordered(meanings: Iterable[Meaning]) -> tuple[Meaning, ...]:
    """Return trees in the order of their texts, which is one for the same trees."""
    return tuple(sorted(meanings, key=lambda each: (each.text, id(each))))


def bare(meaning: Meaning) -> Meaning:
    """Return the meaning of a column without the wider type that it is cast to."""
    return meaning.of if isinstance(meaning, Cast) else meaning


def listed(meanings: Iterable[Meaning]) -> Series:
    """Return columns whose order and wider types mean nothing."""
    return Series(ordered(map(bare, meanings)))


def marked(meaning: Meaning, mark: Meaning | str) -> Meaning:
    """Return the meaning of a column with a mark, before the wider type that it is cast to."""
    if isinstance(meaning, Cast):
        return Cast(marked(meaning.of, mark), meaning.to)
    return phrase("{}{}", meaning, mark, plain=meaning.plain)


def shortened(meaning: object, most: int = 160) -> str:
    """Return a text as people read it, with its end left out if it is long."""
    text = str(meaning).strip()
    return text if len(text) <= most else f"{text[:most]}..."


# --------------------------------------------------------------------------- expressions


def conjuncts(condition: Mapping[str, Any], columns: Sequence[Meaning]) -> frozenset[Meaning]:
    """Return the parts of a condition, all of which must hold."""
    pending, parts = [condition], list[Mapping[str, Any]]()
    for each in pending:
        is_and = each.get("internalName") == "$AND$1"
        (pending if is_and else parts).extend(each["operands"] if is_and else [each])
    return frozenset(expression(each, columns) for each in parts)


def expression(value: Any, columns: Sequence[Meaning], depth: int = 0) -> Meaning:
    """Return the meaning of an expression (a RexNode) over columns.

    Raises:
        DeclarationError: It is nested too deep.
    """
    if depth > MAX_DEPTH:
        raise DeclarationError(f"an expression nested more than {MAX_DEPTH} deep")
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if kind == "INPUT_REF":
        column = columns[value["inputIndex"]]
        return Call("CAST", (column.of,), column.to) if isinstance(column, Cast) else column
    if kind == "LITERAL":
        return _constant(_ranges(value["sarg"]) if "sarg" in value else _text(value.get("value")))
    if kind == "CALL":
        name, to = function_name(value), ""
        operands = [expression(each, columns, depth + 1) for each in value.get("operands") or ()]
        if "type" in value:
            result = plan_type(value["type"])
            # of numbers too: an INT overflows where a BIGINT does not
            if name.endswith("CAST") or result.root in (*WHOLE_NUMBERS, "DECIMAL"):
                to = result.text
        return Call(name, ordered(operands) if name in COMMUTATIVE else tuple(operands), to)
    if isinstance(value, Mapping):
        pairs = [
            phrase("{} {}", name, expression(each, columns, depth + 1))
            for name, each in sorted(value.items())
        ]
        return phrase("({})", Series(tuple(pairs)))
    if isinstance(value, list):
        return phrase("[{}]", Series(tuple(expression(e, columns, depth + 1) for e in value)))
    return _constant(_text(value))


def function_name(call: Mapping[str, Any]) -> str:
    """Return the name of a function: `SUM`, or that of a user's function."""
    for name in ("internalName", "systemName", "catalogName", "class"):
        if name in call:
            return str(call[name]).removeprefix("$").removesuffix("$1")
    return in_words({name: each for name, each in call.items() if name not in ("operands", "type")})


def _constant(text: str) -> Meaning:
    return phrase("{}", text, plain=True)


def _text(value: Any) -> str:
    """Return the text of a constant: a number, TRUE, NULL, or a text in quotes."""
    if isinstance(value, Mapping | list):
        return in_words(value)
    if isinstance(value, str):
        return "'{}'".format(value.replace("'", "''"))
    return "NULL" if value is None else json.dumps(value).upper()


def _ranges(given: Mapping[str, Any]) -> str:
    """Return the text of ranges of constants: `1 or 5 or above 7 to 9, NULL as UNKNOWN`."""
    parts = []
    for each in given["ranges"]:
        lower, upper = each.get("lower"), each.get("upper")
        if lower and lower == upper:
            parts.append(_text(lower["value"]))
            continue
        ends = []
        for end, word, closed in ((lower, "above", "from"), (upper, "below", "to")):
            if end:
                word = closed if end["boundType"] == "CLOSED" else word  # noqa: PLW2901
                ends.append(f"{word} {_text(end['value'])}")
        parts.append(" ".join(ends) or "any")
    rest = {name: each for name, each in given.items() if name != "ranges"}
    return f"({' or '.join(parts)}; {in_words(rest)})"


def in_words(value: Any, depth: int = 0) -> str:
    """Return a JSON value of a plan in words: `TumblingWindow of size PT1M`.

    Values that differ have other words.

    Raises:
        DeclarationError: It is nested too deep.
    """
    if depth > MAX_DEPTH:
        raise DeclarationError(f"nested more than {MAX_DEPTH} deep")
    if isinstance(value, list):
        return f"({', '.join(in_words(each, depth + 1) for each in value)})"
    if not isinstance(value, Mapping):
        plain = isinstance(value, str) and _PLAIN.fullmatch(value)
        return str(value) if plain else _text(value)
    kind = next((name for name in ("type", "kind") if isinstance(value.get(name), str)), None)
    parts = [
        f"{name} ({in_words(each, depth + 1)})" if isinstance(each, Mapping)
        else f"{name} {in_words(each, depth + 1)}"
        for name, each in sorted(value.items())
        if name != kind
    ]  # fmt: skip
    begin = "" if kind is None else in_words(value[kind])
    return f"{begin}{' of ' if begin and parts else ''}{' and '.join(parts)}"
