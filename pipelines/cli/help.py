"""The help of a command: first what is usual, then all other options."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
MORE = "statelake_more"  # attribute of an option that is not usual


def more(option: Callable[[Any], Any]) -> Callable[[Decorated], Decorated]:
    """Return an option that the help lists among the others."""

    def add(command: Any) -> Any:
        command = option(command)
        setattr(command.__click_params__[-1], MORE, True)
        return command

    return add


def show_usual_first(command: click.Command) -> None:
    """Have the help of a command, or of those in a group, list usual options before the others."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            show_usual_first(each)
        return
    command.format_options = partial(_format_options, command)  # type: ignore[method-assign]


def _format_options(
    command: click.Command, context: click.Context, formatter: click.HelpFormatter
) -> None:
    usual: list[tuple[str, str]] = []
    others: list[tuple[str, str]] = []
    for option in command.get_params(context):
        record = option.get_help_record(context) if isinstance(option, click.Option) else None
        if record is not None:
            is_usual = option.required or not getattr(option, MORE, False)
            (usual if is_usual else others).append(record)
    for title, records in (("Options", usual), ("More options", others)):
        if records:
            with formatter.section(title):
                formatter.write_dl(records)
