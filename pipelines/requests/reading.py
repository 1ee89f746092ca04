"""Requests that only read: contents of snapshots, keys, differences, growth, pages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from statelake.pipelines.requests.request import Request, given, option
from statelake.pipelines.requests.shared import (
    PlannedReading,
    Reading,
    SavepointPlace,
    parallelism_option,
    time_option,
)

if TYPE_CHECKING:
    from statelake.pipelines.engine import Progress


class Describe(Request):
    """The contents of a snapshot."""

    parallelism: int | None = parallelism_option("Another parallelism, for comparison.")
    entries: bool | None = option(
        "Count entries, which reads all state; by default up to 2 GiB.", default=None,
        flag="--entries/--no-entries",
    )  # fmt: skip
    schema: bool = option("List the columns of each state, field by field.", default=False)
    keys: bool = option(
        "Name the heaviest key of each operator's heaviest key group.", default=False
    )
    types: bool = option("List the types of each state, and Flink's serializers.", default=False)


class Selection(Request):
    """An operator, and a state of it."""

    operator: str | None = option(
        "Only this operator: its uid, name or id, or its node in the plan.", default=None
    )
    state: str | None = option("Only this state.", default=None)


class OfKey(Selection):
    """All that is stored of one key."""

    key: object = given(
        "As in a column `key`, or text as `statelake dump` prints it.", kw_only=False
    )


class FindValue(Selection):
    """The places in state that have a value."""

    contains: bool = option("Also find it within longer texts and bytes.", default=False)
    limit: int | None = option(
        "Show at most so many places; all are counted.", default=100, least=1, most=1_000_000
    )


class HeavyKeys(Selection):
    """The heaviest keys of each keyed state."""

    limit: int = option("The number of keys of each state.", default=10, least=1, most=10_000)
    at: datetime | None = time_option("The time for --ttl; by default when the snapshot was taken.")


class ExpiredKeys(Request):
    """The state that has expired at a time to live."""

    at: datetime | None = time_option("The time; by default the newest last access.")
    keys: bool = option("List keys of which something has expired.", default=False)
    limit: int = option(
        "List at most so many keys of each state.", default=100, least=1, most=1_000_000
    )


class Comparison(Request):
    """The options for showing the differences of two snapshots."""

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
    """The options for analysing the growth of state."""

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


class Page(Request):
    """A page of HTML that shows a snapshot."""

    to: str | os.PathLike[str] = option("The file to write.", "FILE", kw_only=False)
    overwrite: bool = option("Replace an existing file.", default=False)
    check: bool = option("Look for faults, as `check integrity` does.", default=False)
    limit: int = option(
        "The number of heaviest keys of each state; 0 is faster.", default=5, least=0, most=100
    )


class SavepointPage(Page, SavepointPlace, PlannedReading):
    """A page of HTML that shows a savepoint or checkpoint."""

    progress: Progress | None = given(
        "Called with (done, total) after each operator.", default=None
    )
