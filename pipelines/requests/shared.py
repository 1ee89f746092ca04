"""Fields that several requests have."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timezone

from statelake.pipelines.requests.request import Request, option, refuse


def parse_time(text: str) -> datetime:
    """Parse a point in time: `2026-11-20`, `2026-11-20T06:00Z`; UTC if it has no time zone.

    Raises:
        DeclarationError: It is none.
    """
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        refuse(f"{text!r} is no time (2026-11-20T06:00Z)")
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


class Reading(Request):
    """How a savepoint or checkpoint is read."""

    uids: Sequence[str] = option(
        "An operator uid to recognise (Flink < 2.0).", default=(), flag="--uid"
    )
    allow_external: Sequence[str] = option(
        "Another directory to which handles may lead.", default=()
    )


class PlannedReading(Reading):
    """The same, with the names of a query."""

    plan: str | os.PathLike[str] | None = option(
        "The compiled plan of its Flink SQL job, for names of operators, keys and columns.",
        "FILE", default=None,
    )  # fmt: skip


class TypedReading(PlannedReading):
    """The same, with values typed by what they hold."""

    decode: Sequence[str] = option(
        "What a state's text or bytes hold: json, json:SHAPE_OR_FILE, or avro:FILE.",
        "OPERATOR/STATE=FORM", default=(),
    )  # fmt: skip
