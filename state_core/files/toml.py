"""TOML of files that may be somebody else's: what would cost the parser much is refused before."""

from __future__ import annotations

import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# the parser's time grows with the square of a key's parts
MOST_DOTS = 128


def parse_toml(text: str) -> dict[str, Any]:
    """Return what a file says.

    A key is on one line, and each of its parts but the first follows a dot. Dots in texts count,
    as only the parser knows where a text ends.

    Raises:
        ValueError: It is no TOML, nests too deeply, or a line has more than `MOST_DOTS` dots.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > MOST_DOTS and not line.lstrip().startswith("#"):
            raise ValueError(f"line {number} has more than {MOST_DOTS} dots")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it nests too deeply") from error
