"""The savepoints in a job's directory. One that Flink is still writing does not count."""

from __future__ import annotations

from collections.abc import Iterable

from statelake.pipelines.orchestration.resources import Locations
from statelake.state_core.errors import UnsafePathError
from statelake.state_core.files.filesystem import ConfinedDirectory, Directory
from statelake.state_core.formats.reader import METADATA_FILE


def find_savepoints(location: str) -> list[str]:
    """Return the names of the directories below `location` that hold a finished snapshot."""
    directory = Directory(location).confined()
    return [name for name in directory.names() if _is_finished(directory, name)]


def has_savepoint(location: str, name: str) -> bool:
    """Return whether the directory `name` below `location` holds a finished snapshot."""
    return _is_finished(Directory(location).confined(), name)


def newest_savepoint(locations: Locations) -> str | None:
    """Return the name of the savepoint that was finished last, or None."""
    location = locations.savepoints_location
    return next(reversed(as_finished(location, find_savepoints(location))), None)


def as_finished(location: str, names: Iterable[str]) -> list[str]:
    """Return the names of finished snapshots below `location` in the order of their ends."""
    directory = Directory(location).confined()
    return sorted(names, key=lambda name: (directory.modified(f"{name}/{METADATA_FILE}"), name))


def _is_finished(directory: ConfinedDirectory, name: str) -> bool:
    try:
        return directory.is_file(f"{name}/{METADATA_FILE}")
    except UnsafePathError:  # a link, whoever put it there
        return False
