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
shown no credentials, and a lake elsewhere is not opened with them: unless the file is that of the
user's own directory, or this says whom to trust::

    trust = ["s3://lakes", "https://flink.internal/orders"]
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from statelake.state_core.errors import StateError
from statelake.state_core.files.toml import parse_toml

FILE = "statelake.toml"
KEYS = ("lake", "job", "engine", "flink")
TRUST = "trust"  # of the file in the user's own directory alone
LARGEST = 1 << 16
ENGINES = ("auto", "spark", "local")


def configured(key: str) -> str | None:
    """Return the file's value of a key; None if it has none, or if there is no file.

    Args:
        key: One of `KEYS`.

    Raises:
        StateError: The file can't be read, or says what it can't; the message names it.
    """
    path = _find()
    if path is None:
        return None
    value: str | None = _read(path).get(key)
    if key != "lake" or value is None or "://" in value:
        return value
    try:
        return str(path.parent / Path(value).expanduser())
    except RuntimeError as error:  # "~somebody/lake"
        raise _wrong(path, f"lake: {error}") from error


def is_trusted(location: str) -> bool:
    """Return whether what the file names may be shown credentials of the user's.

    The file in the user's own directory says so of what it names itself, and of what is at or below
    a location in its `trust`. What is on this machine needs none.

    Args:
        location: As the file has it.

    Raises:
        StateError: The user's file can't be read; the message names it.
    """
    if "://" not in location or location.startswith("file://"):
        return True
    home = _home()
    if home is None or not os.path.lexists(home / FILE):
        return False
    own = _read(home / FILE)
    named = (own.get("lake"), own.get("flink"), *own.get(TRUST, ()))
    return any(name is not None and _is_below(location, name) for name in named)


def _is_below(location: str, trusted: str) -> bool:
    """Return whether a location is another or one below it, with the same options."""
    try:
        parts, others = urlsplit(location), urlsplit(trusted)
    except ValueError:  # no URI at all
        return False
    path, above = parts.path.rstrip("/") + "/", others.path.rstrip("/") + "/"
    if ".." in path.split("/") or "%" in path or "\\" in path:
        return location == trusted
    return parts._replace(path="") == others._replace(path="") and path.startswith(above)


def _home() -> Path | None:
    """The user's own directory; None for a user without one."""
    try:
        return Path.home().resolve()
    except RuntimeError:
        return None


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
    """Return whether a repository or the user's directories begin there."""
    return place == _home() or os.path.lexists(place / ".git")


def _read(path: Path) -> dict[str, Any]:
    """All settings of a file."""
    try:
        settings = parse_toml(_text(path))
    except OSError as error:
        raise _wrong(path, f"it can't be read ({error.strerror})") from error
    except ValueError as error:  # no TOML, or no UTF-8
        raise _wrong(path, f"it is no TOML ({error})") from error
    for key, value in settings.items():
        if key == TRUST and path.parent == _home():
            if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
                raise _wrong(path, f"{key} is no list of texts")
            continue
        if key not in KEYS:
            raise _wrong(path, f"there is no setting {key!r}")
        if not isinstance(value, str) or not value:
            raise _wrong(path, f"{key} is no text")
    if settings.get("engine", ENGINES[0]) not in ENGINES:
        raise _wrong(path, f"there is no engine {settings['engine']!r}: {', '.join(ENGINES)}")
    return settings


def _text(path: Path) -> str:
    """What is in a file: a pipe or a device might be waited for, or have no end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise _wrong(path, "it can't be read (it is no regular file)")
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise _wrong(path, "it can't be read (it is no regular file)")
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise _wrong(path, f"it has more than {LARGEST >> 10} KiB")
    return data.decode()


def _wrong(path: Path, problem: str) -> StateError:
    return StateError(
        problem, place=str(path), remedy=f"it may have {', '.join(KEYS)}, each a text in quotes"
    )
