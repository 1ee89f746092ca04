"""What commands print: tables for people, JSON for scripts, progress where someone waits."""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pipelines.engine import Progress as Report

__all__ = [
    "as_json",
    "bytes_text",
    "console",
    "json_option",
    "plain",
    "print_table",
    "progress_bar",
]

json_option = click.option("--json", "as_json_", is_flag=True, help="Print JSON, for scripts.")

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def console() -> Console:
    """Where people read: as wide as the terminal, and wide enough where there is none."""
    return Console(width=None if sys.stdout.isatty() else 140, highlight=False)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a headline and a table; columns are named `<name` (left) or `>name` (right)."""
    made = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        made.add_column(
            column[1:], justify="right" if column[0] == ">" else "left", overflow="fold"
        )
    for row in rows:
        made.add_row(*row)
    out = console()
    if title:
        out.print(f"[bold]{title}[/bold]", soft_wrap=True)
    out.print(made)


def bytes_text(count: float) -> str:
    """Bytes as people read them."""
    size = float(count)
    for unit in UNITS:
        if size < 1024 or unit == UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def plain(value: Any) -> Any:
    """A decoded value as JSON can hold it.

    Bytes become Base64, decimals and dates text, numbers that JSON lacks their names; a map with
    keys that are text becomes an object, any other a list of pairs.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        if value and all(isinstance(one, tuple) and len(one) == 2 for one in value):
            if all(isinstance(key, str) for key, _ in value):
                return {key: plain(one) for key, one in value}
            return [[plain(key), plain(one)] for key, one in value]
        return [plain(one) for one in value]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return str(value)


def as_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(plain(value), ensure_ascii=False, indent=2))


@contextmanager
def progress_bar(what: str, *, quiet: bool = False) -> Iterator[Report | None]:
    """A bar on standard error while slices run; nothing where nobody watches."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
