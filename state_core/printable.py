"""Text as people may be shown it: sizes, and what files hold that anybody may have written.

Names and values are shown as they are but for what no one can see: line ends and a terminal's
orders, what turns the direction of text, what has no width, half a surrogate pair.
"""

from __future__ import annotations

import json
import re

__all__ = ["bytes_text", "is_text", "printable", "printable_json"]

_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def bytes_text(count: float) -> str:
    """Return bytes as people read them."""
    size = float(count)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def is_text(name: str) -> bool:
    """Whether it can be encoded: nothing but Java, and a path of bytes, has half a pair."""
    return name.isascii() or not any("\ud800" <= unit <= "\udfff" for unit in name)


def printable(text: str) -> str:
    """Text as people may be shown it: what controls a terminal, or can't be seen, is escaped."""
    if text.isprintable():
        return text
    return _UNPRINTABLE.sub(lambda found: repr(found[0])[1:-1], text)


def printable_json(text: str) -> str:
    """JSON of the same value as people may be shown it: the same characters are escaped.

    Args:
        text: As `json.dumps` writes it, which leaves no control character but line ends.
    """
    if text.isprintable():
        return text
    return _UNPRINTABLE.sub(
        lambda found: "\n" if found[0] == "\n" else json.dumps(found[0])[1:-1], text
    )
