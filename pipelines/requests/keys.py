"""Requests for the state of keys: what is stored of one, where a value is, which are heavy."""

from __future__ import annotations

from datetime import datetime

from statelake.pipelines.requests.request import Request, given, option
from statelake.pipelines.requests.shared import time_option


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
    """What has expired at a time to live."""

    at: datetime | None = time_option("The time; by default the newest last access.")
    keys: bool = option("List keys of which something has expired.", default=False)
    limit: int = option(
        "List at most so many keys of each state.", default=100, least=1, most=1_000_000
    )
