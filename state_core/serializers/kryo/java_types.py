"""Types of Java in declarations: `java.util.Map<java.lang.String, int[]>`.

A class has its binary name (`com.acme.Shop$Order`), which is what Kryo writes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from statelake.state_core.errors import EncodeError

# each primitive type: its box, and the letter of its arrays
PRIMITIVES = {
    "boolean": ("java.lang.Boolean", "Z"),
    "byte": ("java.lang.Byte", "B"),
    "char": ("java.lang.Character", "C"),
    "short": ("java.lang.Short", "S"),
    "int": ("java.lang.Integer", "I"),
    "long": ("java.lang.Long", "J"),
    "float": ("java.lang.Float", "F"),
    "double": ("java.lang.Double", "D"),
}
_LETTERS = {letter: name for name, (_, letter) in PRIMITIVES.items()}
_PACKAGES = {
    "java.lang": "Boolean Byte Character Short Integer Long Float Double String Object"
    " StringBuilder StringBuffer Enum Class",
    "java.math": "BigInteger BigDecimal",
    "java.time": "Instant Duration LocalDate LocalTime LocalDateTime OffsetTime OffsetDateTime"
    " Period Year YearMonth MonthDay ZoneId ZoneOffset ZonedDateTime Month DayOfWeek",
    "java.util": "ArrayDeque ArrayList Collection Currency Date HashMap HashSet LinkedHashMap"
    " LinkedHashSet LinkedList List Locale Map Optional OptionalDouble OptionalInt OptionalLong"
    " PriorityQueue Queue Deque Set SortedMap SortedSet NavigableMap NavigableSet TreeMap TreeSet"
    " UUID",
}
_FULL_NAMES = {
    short: f"{package}.{short}" for package, names in _PACKAGES.items() for short in names.split()
}
_TOKEN = re.compile(r"\s*([\w.$]+|[<>,?\[\]])")
DEEPEST = 32


@dataclass(frozen=True)
class JavaType:
    """A type: a class, by its binary name, with its type arguments, or a primitive type."""

    name: str
    arguments: tuple[JavaType, ...] = ()

    def __str__(self) -> str:
        """Return the type without packages: `Map<String, Long>`."""
        name = self.name.rpartition(".")[2]
        return f"{name}<{', '.join(map(str, self.arguments))}>" if self.arguments else name

    @property
    def box(self) -> str:
        """The class of its values."""
        return PRIMITIVES[self.name][0] if self.name in PRIMITIVES else self.name


@dataclass(frozen=True)
class UserClass:
    """A class of a user.

    Attributes:
        name: The class's binary name.
        fields: The types of its fields, by name, including those of its superclasses, but not
            static or transient ones.
        constants: An enum's constants, in order.
        final: Whether no class can extend it.
    """

    name: str
    fields: dict[str, JavaType] = field(default_factory=dict)
    constants: tuple[str, ...] = ()
    final: bool = False


def component_of(name: str) -> str:
    """Return the class, or the primitive type, of an array class's elements; empty for others."""
    if not name.startswith("["):
        return ""
    inner = name[1:]
    if inner.startswith("L") and inner.endswith(";"):
        return inner[1:-1]
    return inner if inner.startswith("[") else _LETTERS.get(inner, "")


def parse_java_type(text: str) -> JavaType:
    """Return the type in a text; well-known classes need no package.

    Raises:
        EncodeError: The text is not a type.
    """
    tokens, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise EncodeError(f"{text[at:]!r} is no part of a Java type, in {text!r}")
        tokens.append(match[1])
        at = match.end()
    tokens.reverse()
    parsed = _parse(tokens, text, 0)
    if tokens:
        raise EncodeError(f"{tokens[-1]!r} behind a complete Java type in {text!r}")
    return parsed


def _parse(tokens: list[str], text: str, depth: int) -> JavaType:
    """Parse one type at the end of the reversed tokens."""
    if not tokens or tokens[-1] in "<>,[]" or depth > DEEPEST:
        raise EncodeError(f"{text!r} is no Java type", remedy="write one, such as List<String>")
    name = tokens.pop()
    if name == "?":
        return JavaType("java.lang.Object")
    name = _FULL_NAMES.get(name, name)
    arguments = []
    if tokens and tokens[-1] == "<":
        while tokens and tokens[-1] in ("<", ","):
            tokens.pop()
            arguments.append(_parse(tokens, text, depth + 1))
        if not tokens or tokens.pop() != ">":
            raise EncodeError(f"{name}<...> is not closed in {text!r}")
    while tokens and tokens[-1] == "[":
        tokens.pop()
        if not tokens or tokens.pop() != "]":
            raise EncodeError(f"{text!r} is no Java type: `[` without `]`")
        name = _array_of(name)
        arguments = []
    return JavaType(name, tuple(arguments))


def _array_of(name: str) -> str:
    if name in PRIMITIVES:
        return f"[{PRIMITIVES[name][1]}"
    return f"[{name}" if name.startswith("[") else f"[L{name};"
