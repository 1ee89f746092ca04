"""Requests for savepoints that are written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from statelake.pipelines.requests.request import Request, given, option
from statelake.pipelines.requests.shared import (
    External,
    SavepointPlace,
    Sharing,
    TypedReading,
    max_parallelism_option,
    parallelism_option,
)
from statelake.state_core.errors import EncodeError

if TYPE_CHECKING:
    from statelake.pipelines.engine import Progress


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals:
        raise EncodeError(f"{text!r} is not of the form KEY=VALUE", place="--conf")
    return key, value


def _conf_option() -> Any:
    return option(
        "Flink's execution.checkpointing.snapshot-compression, true or false.", "KEY=VALUE",
        default=(), parse=_setting, more=True,
    )  # fmt: skip


class Written(Request):
    """The form of a savepoint, by default that of its source."""

    to: str | os.PathLike[str] = option(
        "The savepoint's directory, which must not exist.", kw_only=False
    )
    parallelism: int | None = parallelism_option("By default as it was.")
    max_parallelism: int | None = max_parallelism_option(
        "By default as it was; another one gives every key a new group."
    )
    compression: Literal["snappy", "none"] | None = option("By default as it was.", default=None)
    metadata_version: int | None = option(
        "3 restores in any Flink since 1.11, 4 in 1.16+, 5 in 2.0+, 6 in 2.1+."
        " By default the source's.",
        default=None, least=3, most=6, more=True,
    )  # fmt: skip
    operator_state_version: int | None = option(
        "5 for Flink before 1.18, which is never compressed. By default the source's.",
        default=None, least=5, most=6, more=True,
    )  # fmt: skip
    drop_channel_state: bool = option(
        "Leave out the records in flight of an unaligned checkpoint: the job never sees them.",
        default=False,
        more=True,
    )


class Export(Sharing, Written):
    """A savepoint of a snapshot."""

    conf: Mapping[str, str] = _conf_option()


class Compress(SavepointPlace, External):
    """A savepoint with another compression: entry for entry the same state."""

    to: str | os.PathLike[str] = option(
        "The new savepoint's directory, which must not exist.", kw_only=False
    )
    compression: Literal["snappy", "none"] | None = option(
        "By default snappy.", default=None, kw_only=False
    )
    conf: Mapping[str, str] = _conf_option()
    progress: Progress | None = given(
        "Called with (done, total) by the bytes that are written.", default=None
    )


class ReadSavepoint(SavepointPlace, TypedReading):
    """A savepoint that is read into a temporary lake."""

    to: str | os.PathLike[str] | None = option(
        "Where it is to be exported, which is looked at before all the work.", default=None,
        kw_only=False,
    )  # fmt: skip
