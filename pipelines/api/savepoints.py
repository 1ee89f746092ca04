"""A savepoint by its place: what a snapshot of a lake has, by itself or in a temporary lake."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from statelake.pipelines.api import functions
from statelake.pipelines.api.snapshots import LakeSnapshot
from statelake.pipelines.requests.request import asks
from statelake.pipelines.requests.savepoints import Export
from statelake.state_core.errors import DeclarationError
from statelake.state_core.formats import reader
from statelake.state_core.integrity import check_snapshot
from statelake.state_core.printable import public_location

Given = ParamSpec("Given")
Result = TypeVar("Result")
Method = Callable[Concatenate[Any, Given], Result]


def _by_place(function: Method[Given, Result]) -> Method[Given, Result]:
    """Return the method of a savepoint for a function that takes the place of one first."""
    taken = signature(function).parameters

    @wraps(function)
    def method(savepoint: SavepointAt, *values: Any, **words: Any) -> Result:
        reading = {name: word for name, word in savepoint.reading.items() if name in taken}
        return function(_place(savepoint), *values, **{**reading, **words})

    return cast("Method[Given, Result]", method)


def _by_lake(method: Method[Given, Result]) -> Method[Given, Result]:
    """Return the method of a lake's snapshot for a savepoint, which is imported for it."""

    @wraps(method)
    def imported(savepoint: SavepointAt, *values: Any, **words: Any) -> Result:
        with _imported(savepoint) as snapshot:
            return method(snapshot, *values, **words)

    return cast("Method[Given, Result]", imported)


def _place(savepoint: SavepointAt) -> str:
    if savepoint.place is None:
        raise DeclarationError(
            "it was opened by a file system of this process, and is to be read by others",
            remedy="open it by its path or URI",
        )
    return savepoint.place


@contextmanager
def _imported(
    savepoint: SavepointAt, to: str | os.PathLike[str] | None = None
) -> Iterator[LakeSnapshot]:
    reading = dict(savepoint.reading)
    progress = reading.pop("progress", None)
    with functions.in_temporary_lake(_place(savepoint), to, **reading) as snapshot:
        yield LakeSnapshot(replace(snapshot.job, progress=progress), snapshot.record)


@dataclass(frozen=True)
class SavepointAt:
    """A savepoint or checkpoint by its place, with the methods of a lake's snapshot.

    What `open_snapshot` returns has these, too. Those that take tables import it into a temporary
    lake. What only a lake can have is missing: `erase`, `hold` and `release`; and what makes
    another snapshot there: `edit`, `edit_sql`, `migrate`, and `canary`, which is `drill` here.

    Attributes:
        place: Where it is: a path or URI.
        reading: How it is read: as for `open_snapshot`; and `progress`, if that is shown.
    """

    place: str | None
    reading: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its place, without credentials."""
        return public_location(self.place or "")

    report = _by_place(functions.report)
    diff = _by_place(functions.diff)
    upgrade = _by_place(functions.upgrade)
    check_sql = _by_place(functions.check_sql)
    sql_upgrade = _by_place(functions.sql_upgrade)
    check_integrity = _by_place(check_snapshot)
    plan_rescale = _by_lake(LakeSnapshot.plan_rescale)
    check_compatibility = _by_lake(LakeSnapshot.check_compatibility)
    key_rows = LakeSnapshot.key_rows  # of an open one, as the next
    check_legality = LakeSnapshot.check_legality

    @asks(Export)
    def export(self, request: Export) -> Any:
        """Write it as a savepoint that Flink restores, at any parallelism, sampled, or masked."""
        with _imported(self, request.to) as snapshot:
            return snapshot.export(**vars(request))


if TYPE_CHECKING:

    class OpenSavepoint(reader.PlacedSnapshot, SavepointAt):
        """What `statelake.open_snapshot` returns: the methods here are loaded when used."""

    def _opening(
        function: Callable[Given, reader.PlacedSnapshot],
    ) -> Callable[Given, OpenSavepoint]: ...

    open_snapshot = _opening(reader.open_snapshot)
