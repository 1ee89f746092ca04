"""Text for people: sizes, and names out of untrusted files, escaped for display.

Names and values are shown as they are, except invisible characters: line ends and terminal
controls, changes of text direction, characters without width, half a surrogate pair.
"""

from __future__ import annotations

import json
import re

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
    """Return whether text can be encoded: only Java, and a path of bytes, can have half a pair."""
    return name.isascii() or not any("\ud800" <= unit <= "\udfff" for unit in name)


def printable(text: str) -> str:
    """Escape characters in a text that control a terminal or are invisible."""
    if text.isprintable():
        return text
    return _UNPRINTABLE.sub(lambda found: repr(found[0])[1:-1], text)


def printable_json(text: str) -> str:
    """Escape the same characters in JSON, without changing its value.

    Args:
        text: As `json.dumps` writes it, which escapes all control characters but line ends.
    """
    if text.isprintable():
        return text
    return _UNPRINTABLE.sub(
        lambda found: "\n" if found[0] == "\n" else json.dumps(found[0])[1:-1], text
    )
