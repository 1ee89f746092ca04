"""Output of commands: tables for people, JSON for scripts, progress bars on a terminal."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import click
from rich.console import Console
from rich.table import Table as DrawnTable
from rich.text import Text

from statelake.pipelines.shown import bytes_text, json_text, plain
from statelake.state_core.printable import Table, json_value, printable

if TYPE_CHECKING:
    from rich.progress import Progress

    from statelake.pipelines.times import Times

__all__ = [
    "as_json",
    "bytes_text",
    "json_option",
    "json_text",
    "plain",
    "print_table",
    "progress_bar",
    "show",
    "stop_on_interrupt",
    "tell",
    "tell_times",
]

LONG_SECONDS = 10.0

json_option = click.option("--json", "as_json_", is_flag=True, help="Print JSON, for scripts.")


class Result(Protocol):
    """The result of a command, which prints itself."""

    def to_json(self) -> Any:
        """Return the JSON form."""

    def lines(self) -> Iterable[str | Table]:
        """Yield the text form: lines and tables."""


class _Console(Console):
    """A console that leaves broken pipes to the command."""

    def on_broken_pipe(self) -> None:
        """Raise the error that is being handled, as Rich would exit with 1."""
        raise BrokenPipeError


def _console() -> Console:
    """Return a console as wide as the terminal; without one, 140 columns wide."""
    return _Console(width=None if sys.stdout.isatty() else 140, highlight=False)


def tell(line: str, marked: str = "", style: str = "bold") -> None:
    """Print one line, however long; names in it may look like markup, or have line ends.

    Args:
        line: The line.
        marked: The part of it that has the style.
        style: A style of Rich.
    """
    text = Text(printable(line))
    if marked:
        text.highlight_words([printable(marked)], style)
    _console().print(text, soft_wrap=True)


def tell_times(times: Times | None) -> None:
    """Print the times of stages, if they took long."""
    if times is not None and times.seconds >= LONG_SECONDS:
        tell(f"where time went: {times}")


def print_table(table: Table, of: str = "") -> None:
    """Print the headline of a table, if it has one, the table, and how many more rows there are.

    Args:
        table: The table.
        of: The name of rows, for that number.
    """
    drawn = DrawnTable(box=None, pad_edge=False, header_style="dim")
    for column in table.columns:
        drawn.add_column(
            Text(printable(column[1:])),
            justify="right" if column[0] == ">" else "left",
            overflow="fold",
        )
    for row in table.rows:
        drawn.add_row(*map(_cell, row))
    if table.title:
        tell(table.title, marked=table.title)
    _console().print(drawn)
    if table.left:
        tell(f"... and {table.left:,} more{of}: --json has all")


def _cell(shown: str | list[str]) -> Text:
    """Return a cell as text, without markup: a name may look like it (`[kafka, orders, 0]`)."""
    lines = [shown] if isinstance(shown, str) else shown
    return Text("\n".join(map(printable, lines)))


def as_json(value: Any) -> None:
    """Print a value as JSON: results in it by their fields."""
    click.echo(json_text(plain(json_value(value)), indent=2))


def show(
    result: Result, *, as_json_: bool = False, marked: str | None = None, style: str = "bold"
) -> None:
    """Print a result: as JSON for scripts, else its lines and tables.

    Args:
        result: The result.
        as_json_: Whether as JSON.
        marked: What of the first line of text is marked; by default all of it, if it comes first.
        style: The style of the mark.
    """
    if as_json_:
        as_json(result)
        return
    for number, line in enumerate(result.lines()):
        if isinstance(line, str):
            if marked is None:
                marked = "" if number else line
            tell(line, marked=marked, style=style)
            marked = ""
        else:
            print_table(line)


class ProgressBar:
    """A bar that is shown: called with (done, total), as `Progress` is.

    Args:
        bar: What Rich shows.
        what: What is done, in front of the bar.
    """

    def __init__(self, bar: Progress, what: str) -> None:
        self.bar = bar
        self.task = bar.add_task(what, total=None)

    def __call__(self, done: int, total: int) -> None:
        """Show how far the work is."""
        self.bar.update(self.task, completed=done, total=total)

    def begin(self, what: str) -> None:
        """Begin the next step, with another text in front of the bar."""
        self.bar.update(self.task, completed=0, description=printable(what))
        self.bar.tasks[0].total = None


@contextmanager
def stop_on_interrupt(*, ask: bool) -> Iterator[Callable[[], bool]]:
    """Yield whether Ctrl-C was pressed once, which is only noted; the second time ends at once.

    Args:
        ask: Whether to do so; otherwise the first time ends at once.
    """
    if not ask or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    signals: list[int] = []

    def note(number: int, _: object) -> None:
        signals.append(number)
        signal.signal(signal.SIGINT, before)
        click.echo("stops after this run; Ctrl-C again stops at once", err=True)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(signals)
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def progress_bar(
    what: str, *, quiet: bool = False, of_bytes: bool = False
) -> Iterator[ProgressBar | None]:
    """Show a bar on standard error while slices run, if that is a terminal.

    Args:
        what: What is done, in front of the bar.
        quiet: Whether to show nothing.
        of_bytes: Whether what is reported are bytes: then with their rate and the time left.
    """
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import (  # noqa: PLC0415 - few commands wait
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    reached: tuple[ProgressColumn, ...] = (MofNCompleteColumn(),)
    if of_bytes:
        size = DownloadColumn(binary_units=True)
        reached = (size, TransferSpeedColumn(), TimeRemainingColumn())
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *reached,
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield ProgressBar(bar, what)
