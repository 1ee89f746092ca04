"""Requests for what differs in snapshots, and for what grows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

from statelake.pipelines.requests.request import Request, given, option
from statelake.pipelines.requests.shared import Reading


class Comparison(Request):
    """How the differences of two snapshots are shown."""

    examples: int = option("Show so many rows of each kind of difference.", default=3, least=0)
    sort: Literal["operator", "bytes"] = option(
        "Sort states; by bytes, what grew most first.", default="operator"
    )


class Diff(Comparison):
    """A snapshot of a lake, compared with a later one."""

    later: str = given("The other snapshot.", kw_only=False)


class DiffSavepoints(Comparison, Reading):
    """Two savepoints or checkpoints, compared."""

    earlier: str | os.PathLike[str] = given(
        "The earlier one's directory, a path or URI.", kw_only=False
    )
    later: str | os.PathLike[str] = given("That of the later one.", kw_only=False)


class Forecast(Request):
    """How far the growth of state is looked into."""

    ahead: float = option("How far the forecast looks.", "DAYS", default=30, least=0, most=36_500)
    keys: bool = option(
        "Read the keys of the states that grew most.", default=True, flag="--keys/--no-keys"
    )


class GrowthOfJob(Forecast):
    """The growth of a job's state over its snapshots in a lake."""

    since: str | None = option(
        "The first snapshot of the lake; by default the oldest.", default=None, kw_only=False,
        names="snapshot",
    )  # fmt: skip
    until: str | None = option(
        "The last one; by default the newest.", default=None, kw_only=False, names="snapshot"
    )


class GrowthOfSavepoints(Forecast, Reading):
    """The growth of state over savepoints or checkpoints of a job."""

    savepoints: Sequence[str | os.PathLike[str]] = given(
        "Their directories, paths or URIs, in any order.", kw_only=False
    )
