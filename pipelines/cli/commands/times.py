"""Times and durations as options have them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click

from statelake.pipelines.requests.shared import parse_time
from statelake.pipelines.shown import parse_duration
from statelake.state_core.errors import DeclarationError

DIGITS_OF_A_DATE = 8  # 20261120


class Duration(click.ParamType[timedelta]):
    """A duration: `90s`, `15min`, `12h`, `7d`."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Parse a duration."""
        if isinstance(value, timedelta):
            return value
        try:
            return parse_duration(str(value))
        except DeclarationError as error:
            self.fail(error.problem, param, ctx)


class Durations(click.ParamType[dict[str, timedelta]]):
    """Several durations by their texts: `1d,7d`."""

    name = "durations"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, timedelta]:
        """Parse durations."""
        if isinstance(value, dict):
            return value
        return {
            text.strip(): Duration().convert(text, param, ctx) for text in str(value).split(",")
        }


class Instant(click.ParamType[datetime]):
    """A point in time: `2026-11-20`, `2026-11-20T06:00Z`; UTC if it has no time zone."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Parse a point in time."""
        try:
            return parse_time(str(value))
        except DeclarationError as error:
            self.fail(error.problem, param, ctx)


class Since(Instant):
    """A checkpoint's id, or a point in time: `42`, `2026-11-20`."""

    name = "id or time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse an id or a point in time."""
        text = str(value)
        is_id = text.isascii() and text.isdigit() and len(text) < DIGITS_OF_A_DATE
        return int(text) if is_id else super().convert(value, param, ctx)
