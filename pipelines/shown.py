"""Values as people, and JSON, read them."""

from __future__ import annotations

import base64
import math
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

__all__ = ["bytes_text", "plain"]

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def bytes_text(count: float) -> str:
    """Bytes as people read them."""
    size = float(count)
    for unit in UNITS:
        if size < 1024 or unit == UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def plain(value: Any) -> Any:
    """A decoded value as JSON can hold it.

    Bytes become Base64, decimals and dates text, numbers that JSON lacks their names; a map with
    keys that are text becomes an object, any other a list of pairs.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        if value and all(isinstance(one, tuple) and len(one) == 2 for one in value):
            if all(isinstance(key, str) for key, _ in value):
                return {key: plain(one) for key, one in value}
            return [[plain(key), plain(one)] for key, one in value]
        return [plain(one) for one in value]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return str(value)
