"""Where things lie in a lake: names of jobs, operators and states as path segments."""

from __future__ import annotations

import re

__all__ = ["KEYED", "TIMERS", "keyed_table", "path_segment", "timers_table"]

KEYED, TIMERS = "keyed", "timers"
_PLAIN = re.compile(r"[A-Za-z0-9.-][A-Za-z0-9_.-]*")
_OTHER = re.compile(r"[^A-Za-z0-9_.-]")


def path_segment(name: str) -> str:
    """A name as one path segment that every file system and engine takes literally.

    Letters, digits, `_`, `-` and `.` stay; any other byte becomes `~` and two hex digits. So does
    an underscore or dot in front, which would hide the directory, and an empty name.
    """
    if _PLAIN.fullmatch(name) and not name.startswith("."):
        return name
    if not name:
        return "~"
    first, rest = name[0], name[1:]
    head = _escape(first) if first in "._" else _OTHER.sub(lambda m: _escape(m[0]), first)
    return head + _OTHER.sub(lambda match: _escape(match[0]), rest)


def _escape(text: str) -> str:
    return "".join(f"~{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))


def keyed_table(job: str, operator: str, state: str) -> str:
    """The path of a keyed state's table below the lake."""
    return "/".join((path_segment(job), KEYED, path_segment(operator), path_segment(state)))


def timers_table(job: str, operator: str) -> str:
    """The path of an operator's timers below the lake."""
    return "/".join((path_segment(job), TIMERS, path_segment(operator)))
