"""What `docs/security.md` says of bounds is what the code's own table says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
ROW = re.compile(r"\| ([\d,]+) \| (.+?) \| ([\d,/]*) ?\| (refused|carried) \|")

bounds = pytest.importorskip(
    "statelake.state_core.bounds", reason="the table comes with the bounds"
)


def test_the_table_of_bounds_is_the_codes() -> None:
    """Every bound, in its order: how many, of what, for how many bytes, and what is beyond."""
    rows = [match.groups() for match in map(ROW.fullmatch, PAGE.read_text().splitlines()) if match]
    expected = [
        (
            f"{bound.most:,}",
            bound.name,
            f"{bound.bytes_each:,}"
            if bound.bytes_each
            else f"1/{bound.each_byte}"
            if bound.each_byte
            else "",
            bound.beyond.name.lower(),
        )
        for bound in bounds.BOUNDS
    ]
    assert rows == expected
