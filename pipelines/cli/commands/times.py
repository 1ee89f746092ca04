"""Several durations, and points in time, as options have them."""

from __future__ import annotations

from datetime import datetime, timedelta

from statelake.pipelines.requests.shared import parse_age, parse_time

DIGITS_OF_A_DATE = 8  # 20261120


def parse_ages(text: str) -> dict[str, timedelta]:
    """Parse several durations, by their texts: `1d,7d`."""
    return {each.strip(): parse_age(each) for each in text.split(",")}


def parse_since(text: str) -> int | datetime:
    """Parse a checkpoint's id, or a point in time: `42`, `2026-11-20`."""
    is_id = text.isascii() and text.isdigit() and len(text) < DIGITS_OF_A_DATE
    return int(text) if is_id else parse_time(text)
