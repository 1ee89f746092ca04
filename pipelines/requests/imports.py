"""Requests for imports of savepoints and checkpoints."""

from __future__ import annotations

from datetime import datetime

from statelake.pipelines.requests.request import given, option
from statelake.pipelines.requests.shared import Noted, Savepoint, TypedReading, parse_time


class Import(Noted, TypedReading):
    """A savepoint or checkpoint as the next snapshot of a job."""

    taken: datetime | None = option(
        "When the job took it; by default the time of its `_metadata`.", "TIME", default=None,
        parse=parse_time,
    )  # fmt: skip
    partitions: int | None = option(
        "The number of files of each state; by default it depends on its size.",
        default=None, least=1, most=128,
    )  # fmt: skip


class ImportSnapshot(Import, Savepoint):
    """The savepoint, and its name in the lake."""

    name: str | None = given(
        "The snapshot's id; by default as Flink named its directory.", default=None, kw_only=False
    )
