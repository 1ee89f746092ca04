"""Requests: what is said of an option once is what the command, Python and Dagster say of it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Sequence
from typing import Literal

import click
import pytest
from click.testing import CliRunner

from statelake.pipelines import api, requests
from statelake.pipelines.cli.main import statelake
from statelake.pipelines.cli.options import request_options
from statelake.pipelines.orchestration.requests import settings_of
from statelake.pipelines.requests.request import Request, asks, option, options_of
from statelake.state_core.errors import DeclarationError


class Sort(Request):
    """A request with an option of each kind."""

    state: Sequence[str] = option("A state.", "STATE", default=(), kw_only=False)
    by: Literal["name", "bytes"] = option("The order.", default="name")
    rows: int = option("How many.", "N", default=10, least=1, most=100)
    share: float | None = option("A share.", "SHARE", default=None, parse=float)
    dry_run: bool = option("Only say what would be done.", default=False)

    def check(self) -> None:
        """Refuse what goes with nothing."""
        if self.dry_run and not self.state:
            raise DeclarationError("--dry-run is for --state")


class Sorter:
    """Something that sorts."""

    @asks(Sort)
    def sort(self, request: Sort) -> Sort:
        """Return what was asked."""
        return request


def all_requests() -> Iterator[type[Request]]:
    """Every request of the product."""
    for module in pkgutil.iter_modules(requests.__path__):
        importlib.import_module(f"{requests.__name__}.{module.name}")
    waiting = [Request]
    while waiting:
        for each in waiting.pop().__subclasses__():
            if each.__module__.startswith(requests.__name__):
                yield each
            waiting.append(each)


def all_commands(group: click.Group) -> Iterator[click.Command]:
    """Every command, those in groups too."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield from all_commands(command) if isinstance(command, click.Group) else (command,)


def test_an_option_of_each_kind_is_in_the_command() -> None:
    """With its placeholder, choices, bounds and default; what a request refuses is usage."""

    @click.command()
    @request_options(Sort)
    def sort(request: Sort) -> None:
        click.echo(repr(request))

    shown = CliRunner().invoke(sort, ["--help"]).output
    assert "--state STATE" in shown
    assert "--by [name|bytes]" in shown
    assert "--rows N" in shown
    assert "[default: 10; 1<=x<=100]" in shown
    words = ["--state", "a", "--state", "b", "--rows", "5", "--share", "0.5"]
    asked = CliRunner().invoke(sort, words).output
    assert asked.strip() == repr(Sort(["a", "b"], rows=5, share=0.5))
    refused = CliRunner().invoke(sort, ["--dry-run"])
    assert refused.exit_code == 2
    assert "--dry-run is for --state" in refused.output


def test_a_method_takes_the_fields_of_its_request() -> None:
    """One text is a list of one; texts are parsed, bounds are kept, and it says what it takes."""
    assert Sorter().sort("a", rows=3) == Sort(["a"], rows=3)
    with pytest.raises(DeclarationError, match="--rows is 0, and must be at least 1"):
        Sorter().sort(rows=0)
    assert list(inspect.signature(Sorter.sort).parameters)[1:] == [
        each.name for each in options_of(Sort)
    ]
    assert "rows: How many; by default 10." in (Sorter.sort.__doc__ or "")


def test_settings_of_a_run_are_those_of_the_request() -> None:
    """With the same help, default and choices."""
    settings = settings_of(Sort)
    assert list(settings) == [each.name for each in options_of(Sort)]
    assert settings["rows"].default_value == 10
    assert settings["rows"].description == "How many."
    assert not settings["share"].is_required


def test_each_request_is_asked_by_a_command_and_in_python() -> None:
    """So that an option which is added to it is everywhere; a base of requests is in these."""
    commands = [
        {flag for option in command.params for flag in option.opts}
        for command in all_commands(statelake)
    ]
    methods = [
        set(inspect.signature(method).parameters)
        for holder in (api, api.Lake, api.Job, api.LakeSnapshot)
        for _, method in inspect.getmembers(holder, inspect.isfunction)
    ]
    wrong = []
    for request in all_requests():
        options = options_of(request)
        if not any({each.flag for each in options} <= flags for flags in commands):
            wrong.append(f"{request.__name__} is asked by no command")
        if not any({each.name for each in options} <= parameters for parameters in methods):
            wrong.append(f"{request.__name__} is asked by no method")
    assert not wrong, "\n".join(wrong)
