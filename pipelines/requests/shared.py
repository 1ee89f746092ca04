"""Fields that several requests have."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from statelake.pipelines.requests.request import Request, given, option, refuse

if TYPE_CHECKING:
    from statelake.pipelines.lake.share.mask_file import Mask

LEAST_QUERY_MEMORY = 16 << 20  # bytes
_SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) ?([KMGT])iB", re.ASCII)
INEXACT = "Go by what columns show of values that they don't hold in full; otherwise refused."
TARGET = "The new savepoint's directory, which must not exist; without it there is only the plan."


def parse_time(text: str) -> datetime:
    """Parse a point in time: `2026-11-20`, `2026-11-20T06:00Z`; UTC if it has no time zone.

    Raises:
        DeclarationError: It is not of that form.
    """
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        refuse(f"{text!r} is no time (2026-11-20T06:00Z)")
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _share(text: str) -> float:
    from statelake.pipelines.lake.share.sampling import parse_share  # noqa: PLC0415 - not for --help

    return parse_share(text)


def parse_age(text: str) -> timedelta:
    """Parse a duration: `90s`, `15min`, `12h`, `7d`.

    Raises:
        DeclarationError: It is not of that form.
    """
    from statelake.pipelines.shown import parse_duration  # noqa: PLC0415 - not for --help

    return parse_duration(text)


def parse_size(text: str) -> int:
    """Parse bytes of memory: `512MiB`, `2GiB`.

    Raises:
        DeclarationError: It is no such number, or less than DuckDB works with.
    """
    match = _SIZE.fullmatch(text)
    size = 0
    if match is not None:
        size = int(float(match[1]) * (1 << 10 * (1 + "KMGT".index(match[2]))))
    if size < LEAST_QUERY_MEMORY:
        refuse(f"{text!r} is no size from 16MiB on, such as 512MiB or 2GiB")
    return size


def parse_seconds(text: str) -> float:
    """Parse a duration, as its seconds.

    Raises:
        DeclarationError: It is not of that form.
    """
    return parse_age(text).total_seconds()


def time_option(what: str) -> Any:
    """Return the field of a point in time."""
    return option(what, "TIME", default=None, parse=parse_time)


def path_map_option() -> Any:
    """Return the field of the paths of a cluster, and of this machine."""
    return option(
        "The name of a directory of the cluster on this machine: s3://bucket=/mnt/bucket.",
        "CLUSTER=HERE", default=(), variable="STATELAKE_FLINK_PATH_MAP",
        more=True,
    )  # fmt: skip


def parallelism_option(default: str) -> Any:
    """Return the field of a parallelism, which is by default as a sentence says."""
    return option(default, default=None, least=1)


def max_parallelism_option(default: str) -> Any:
    """Return the field of a maximum parallelism, which is by default as a sentence says."""
    return option(default, default=None, least=1, most=1 << 15)


def timeout_option(default: str, what: str, *, least: float | None = None) -> Any:
    """Return the field of a time until something must be over."""
    return option(
        f"{what}.", "DURATION", default=default, parse=parse_seconds, unit="seconds", least=least
    )


def suffix_option(default: str) -> Any:
    """Return the field of what tells a new snapshot of a lake from that which it is made of."""
    return option("Follows the snapshot's id in the new one's, in a lake.", default=default)


class Noted(Request):
    """A new snapshot of a lake, and why it was made."""

    note: str = option("Why; kept with the new snapshot of a lake.", default="")


class Tried(Request):
    """A change that may only be looked at."""

    dry_run: bool = option("Only show what would be done.", default=False)


class External(Request):
    """Other places where the files of a savepoint or checkpoint may be."""

    more = True

    allow_external: Sequence[str] = option(
        "Another directory to which handles may lead.", default=()
    )


class Reading(External):
    """The options for reading a savepoint or checkpoint."""

    more = True

    uids: Sequence[str] = option(
        "An operator uid to recognise (Flink < 2.0).", default=(), flag="--uid"
    )


class PlannedReading(Reading):
    """The same, with the names of a query."""

    more = True

    plan: str | os.PathLike[str] | None = option(
        "The compiled plan of its Flink SQL job, for names of operators, keys and columns.",
        "FILE", default=None,
    )  # fmt: skip


class TypedReading(PlannedReading):
    """The same, with values that have the types of their content."""

    more = True

    decode: Sequence[str] = option(
        "What a state's text or bytes hold: json, json:SHAPE_OR_FILE, or avro:FILE.",
        "OPERATOR/STATE=FORM", default=(),
    )  # fmt: skip


class SavepointPlace(Request):
    """The place of a savepoint or checkpoint."""

    savepoint: str | os.PathLike[str] = given("Its directory, a path or URI.", kw_only=False)


class Savepoint(SavepointPlace, Reading):
    """A savepoint or checkpoint that is read."""


class NewSavepoint(Savepoint):
    """A savepoint, and where another one is written."""

    to: str | os.PathLike[str] | None = option(TARGET, kw_only=False)


class Masking(Request):
    """The masks of keys and values."""

    mask: str | os.PathLike[str] | Mask | None = option(
        "A YAML file with the rules for masking.", "FILE", default=None
    )
    leave_out_opaque: bool = option(
        "Leave out what can't be sampled or masked.", default=False, more=True
    )


class Sharing(Masking):
    """A sample of the keys, and the masks of keys and values."""

    sample: float | None = option(
        "A share of the keys: 1%; all by default.", "SHARE", default=None, parse=_share
    )
    seed: int = option("Another seed samples other keys.", default=0, more=True)
    inexact: bool = option(INEXACT, default=False, more=True)

    def check_fields(self) -> None:
        """Refuse what goes with a sample or a mask that is not given."""
        if self.inexact and self.mask is None:
            refuse("--inexact is for --mask")
        if self.leave_out_opaque and self.sample is None and self.mask is None:
            refuse("--leave-out-opaque is for --sample and --mask")
