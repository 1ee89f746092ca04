"""The one rule for paths from data: they may only lead below their own directory.

`confinement` and `filesystem` follow them.
"""

from __future__ import annotations

import re

from statelake.state_core.errors import UnsafePathError

PART = ".part"
"""The end of a file's temporary name, used until the file is complete."""

LONGEST_SHOWN = 120
"""The number of characters of a path in a message."""

_PART_NAME = re.compile(rf".+\.[0-9a-f]{{1,8}}\{PART}")
_NAME = r"(?!\.\.?(?:/|\Z))[^/\\\x00-\x1f\x7f\ud800-\udfff]+"
_URI = r"[A-Za-z][A-Za-z0-9+.-]*:"
_RELATIVE = re.compile(rf"(?!{_URI}){_NAME}(?:/{_NAME})*")
# escapes (`%2e`) and `~` are ordinary letters: nothing interprets them
_REASONS = (
    (r"\A\Z", "it is empty"),
    (r"[\x00-\x1f\x7f\ud800-\udfff]", "no name has such characters"),
    (r"\A/", "it is absolute"),
    (rf"\A{_URI}", "it is a URI"),
    (r"\\", "it has a backslash"),
    (r"(?:\A|/)\.\.(?:/|\Z)", "it leads above"),
    (r"(?:\A|/)\.?(?:/|\Z)", "it is not normalized"),
)


def is_part(name: str) -> bool:
    """Return whether a file's name is a temporary one, used until the file is complete."""
    return _PART_NAME.fullmatch(name) is not None


def relative_path(
    path: str, *, what: str, place: str = "", inside: str = "the directory that it belongs to"
) -> str:
    """Return a path from data if it can only lead below its directory.

    Args:
        path: The path as it is: relative, normalized, with `/` between names, and without escapes.
        what: The kind of file, for the message: `a state file`.
        place: The place where the path was read.
        inside: Name of the directory, for the message.

    Raises:
        UnsafePathError: The path is empty, absolute, a URI, leads above, or is not a path at all.
    """
    if _RELATIVE.fullmatch(path):
        return path
    reason = next(reason for pattern, reason in _REASONS if re.search(pattern, path))
    raise UnsafePathError(
        f"{what} at {shortened(path)}, which is not inside {inside}: {reason}",
        place=place,
        remedy="neither Flink nor statelake writes such a path: do not trust the file that has it",
    )


def shortened(path: str) -> str:
    """Return a path for a message: quoted as Python does, and cut short."""
    return repr(path if len(path) <= LONGEST_SHOWN else f"{path[:LONGEST_SHOWN]}...")
