"""Requests for erasures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from statelake.pipelines.requests.request import Request, given, option

if TYPE_CHECKING:
    from statelake.pipelines.engine import Progress


def _choice(text: str) -> str | None:
    """Return a choice; None of an empty text, which refuses."""
    return text or None


class Erase(Request):
    """Keys and rows that go from a snapshot, and from the files that have them."""

    request: str = given("The id under which it is recorded.", kw_only=False)
    keys: Sequence[object] = given(
        "The keys that go from all keyed states and timers; text as `statelake dump` prints it.",
        default=(),
    )
    where: Mapping[str, str] = given(
        "By state (`operator/state`), SQL that is true of the rows that go.", default=()
    )
    carried: Literal["drop", "keep"] | None = option(
        "What to do with raw, channel, coordinator and master state, and with keyed state kept as"
        " bytes, which can't be searched.",
        default=None, parse=_choice,
    )  # fmt: skip
    blobs: Sequence[str] = option("A blob store of `statelake run`, erased from too.", default=())
    changelogs: Sequence[str] = option("A directory of changelogs, erased from too.", default=())


class EraseFromLake(Erase):
    """Keys and rows that go from every snapshot and every file of a lake."""

    jobs: Sequence[str] = option(
        "Only this job's snapshots; by default all.", default=(), flag="--job"
    )
    snapshots: Sequence[str] = option(
        "Only from this one, by its whole id; by default from all.", default=(),
        flag="--snapshot", names="snapshot",
    )  # fmt: skip
    progress: Progress | None = given("Called with (done, total) after each file.", default=None)
