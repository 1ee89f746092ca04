"""The output of a demo: headlines, and commands as one would type them."""

from __future__ import annotations

import time
from collections.abc import Iterable

import click
from rich.console import Console
from rich.rule import Rule


class Steps:
    """Prints what is done, as one would type it, and does it."""

    def __init__(self, out: Console) -> None:
        self.out = out
        self.seconds: list[tuple[str, float]] = []

    def title(self, text: str) -> None:
        """A headline."""
        self.out.print()
        self.out.print(Rule(f"[bold]{text}", align="left"))

    def command(self, title: str, command: click.Command, *arguments: str) -> None:
        """Say what is run, and run it."""
        if title:
            self.title(title)
        self.line(command, arguments)
        began = time.monotonic()
        command.main(list(arguments), standalone_mode=False)
        self.seconds.append((str(command.name), time.monotonic() - began))

    def line(self, command: click.Command, arguments: Iterable[str]) -> None:
        """The command as one would type it."""
        shown = " ".join(
            f'"{argument.strip()}"' if " " in argument else argument for argument in arguments
        )
        self.out.print(f"$ statelake {command.name} {shown}", style="dim", soft_wrap=True)

    def times(self) -> str:
        """Return the times of the commands as text."""
        return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds)
