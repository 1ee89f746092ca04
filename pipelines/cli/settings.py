"""`statelake.toml`: what need not be typed at each command.

::

    lake = "lake"     # relative to this file, or anywhere: "~/lake", "s3://bucket/lake"
    job = "orders"
    engine = "local"  # or "auto", or "spark"
    flink = "http://jobmanager:8081"

It is looked for in the working directory and in those above it, up to that of the repository or of
the user; where neither is above, in the working directory alone. So nobody else can put it in a
directory that many share, such as `/tmp`, and have it found from below. It names no code, and no
cluster for Spark: a directory of somebody else's may have one. A Flink cluster that it names is
shown no credentials.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from state_core.errors import StateError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["ENGINES", "FILE", "KEYS", "configured"]

FILE = "statelake.toml"
KEYS = ("lake", "job", "engine", "flink")
ENGINES = ("auto", "spark", "local")


def configured(key: str) -> str | None:
    """What the file says of a key; None if it says nothing, or if there is no file.

    Args:
        key: One of `KEYS`.

    Raises:
        StateError: The file can't be read, or says what it can't; the message names it.
    """
    path = _find()
    if path is None:
        return None
    value = _read(path).get(key)
    if key != "lake" or value is None or "://" in value:
        return value
    try:
        return str(path.parent / Path(value).expanduser())
    except RuntimeError as error:  # "~somebody/lake"
        raise _wrong(path, f"lake: {error}") from error


def _find() -> Path | None:
    """The nearest file, if there is one where it may be."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it was removed under our feet
        return None
    places = [here, *here.parents]
    ends = [depth for depth, place in enumerate(places) if _is_end(place)]
    for place in places[: ends[0] + 1 if ends else 1]:
        if os.path.lexists(place / FILE):
            return place / FILE
    return None


def _is_end(place: Path) -> bool:
    """Whether a repository or the user's directories begin there."""
    try:
        home = Path.home().resolve()
    except RuntimeError:  # a user without one
        home = None
    return place == home or os.path.lexists(place / ".git")


def _read(path: Path) -> dict[str, str]:
    """All settings of a file."""
    try:
        settings = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise _wrong(path, f"it can't be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:  # no TOML, or no UTF-8
        raise _wrong(path, f"it is no TOML ({error})") from error
    for key, value in settings.items():
        if key not in KEYS:
            raise _wrong(path, f"there is no setting {key!r}")
        if not isinstance(value, str) or not value:
            raise _wrong(path, f"{key} is no text")
    if settings.get("engine", ENGINES[0]) not in ENGINES:
        raise _wrong(path, f"there is no engine {settings['engine']!r}: {', '.join(ENGINES)}")
    return settings


def _wrong(path: Path, problem: str) -> StateError:
    return StateError(
        problem, place=str(path), remedy=f"it may have {', '.join(KEYS)}, each a text in quotes"
    )
