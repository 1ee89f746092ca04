"""Requests: what is said of an option once is what the command, Python and Dagster say of it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any, Literal

import anyio
import click
import numpy as np
import pytest
from click.testing import CliRunner

import statelake as sl
from statelake.pipelines import requests
from statelake.pipelines.cli.commands.checks.group import check
from statelake.pipelines.cli.main import statelake
from statelake.pipelines.cli.options import request_options
from statelake.pipelines.live.requests import Drill
from statelake.pipelines.orchestration.requests import settings_of
from statelake.pipelines.orchestration.settings import CompatibilitySettings
from statelake.pipelines.requests.checkpoints import DropRecords
from statelake.pipelines.requests.checks import CheckCompatibility
from statelake.pipelines.requests.edit import Edit
from statelake.pipelines.requests.erase import Erase, EraseFromLake
from statelake.pipelines.requests.imports import ImportSnapshot
from statelake.pipelines.requests.request import Request, asks, option, options_of
from statelake.pipelines.requests.savepoints import Export
from statelake.pipelines.requests.shared import Reading
from statelake.pipelines.ui.assistants import Tools
from statelake.pipelines.ui.audit import Audit
from statelake.pipelines.ui.options import Options
from statelake.pipelines.ui.views import Source
from statelake.state_core.errors import DeclarationError, EncodeError
from statelake.state_core.files.compression import COMPRESSION_KEY
from tests.support.lakes import DEMO

UNSET = "__DAGSTER_UNSET_DEFAULT__"  # Dagster's mark of a list that is not given
# what is read and written: commands name it in ways of their own
PLACES = {"savepoint", "snapshots", "to"}


class Sort(Request):
    """A request with an option of each kind."""

    state: Sequence[str] = option("A state.", "STATE", default=(), kw_only=False)
    by: Literal["name", "bytes"] = option("The order.", default="name")
    rows: int = option("How many.", "N", default=10, least=1, most=100)
    share: float | None = option("A share.", "SHARE", default=None, parse=float)
    dry_run: bool = option("Only say what would be done.", default=False)

    def check_fields(self) -> None:
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


@click.command()
@request_options(DropRecords)
def dropping(request: DropRecords) -> None:
    """Take an option that has no default."""


def test_what_has_no_default_must_be_given() -> None:
    """To leave it out is an error of usage, not one of whoever needs it later."""
    refused = CliRunner().invoke(dropping, [])
    assert (refused.exit_code, "Missing option '--keep'" in refused.output) == (2, True)


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
    commands = [{each.name for each in command.params} for command in all_commands(statelake)]
    functions = [getattr(sl, name) for name in sl.__all__]
    classes = (sl.Lake, sl.Job, sl.LakeSnapshot, sl.Checkpoints)
    functions += [method for holder in classes for _, method in inspect.getmembers(holder)]
    methods = [
        set(inspect.signature(method).parameters)
        for method in functions
        if inspect.isfunction(method)
    ]
    wrong = []
    for request in all_requests():
        options = options_of(request)
        said = {each.name for each in options if not each.given} - PLACES
        if not any(said <= names for names in commands):
            wrong.append(f"{request.__name__} is asked by no command")
        if not any({each.name for each in options} <= parameters for parameters in methods):
            wrong.append(f"{request.__name__} is asked by no method")
    assert not wrong, "\n".join(wrong)


def test_an_option_is_in_six_places() -> None:
    """The command, Python, Dagster, a tool of assistants, the schemas of both, and the docs."""
    command = check.commands["compatibility"]
    help_texts = {each.name: each.help for each in command.params if isinstance(each, click.Option)}
    with closing(Source(DEMO, Options())) as source:
        tools = anyio.run(Tools(source, Audit("")).server().list_tools)
    (of_tool,) = [tool.input_schema["properties"] for tool in tools if tool.name == "check_types"]
    of_dagster = CompatibilitySettings.model().model_json_schema()["properties"]
    site: Any = importlib.import_module("docs.site_pages")
    context = click.Context(check, info_name="check", **statelake.context_settings)
    page = " ".join("\n".join(site.sections(check, context, "#")).split())
    options = options_of(CheckCompatibility)
    assert {each.name for each in options} >= {"operator", "allow_non_restored_state"}
    for each in options:
        assert help_texts[each.name] == each.help
        assert f"{each.name}: {each.help}" in " ".join(
            str(sl.LakeSnapshot.check_compatibility.__doc__).split()
        )
        assert each.help in page
        if each.name == "against":  # a tool is given types, and a job in Dagster has it for all
            continue
        assert CompatibilitySettings.model_fields[each.name].description == each.help
        default = list(each.default) if each.many else each.default
        assert of_dagster[each.name]["default"] == (UNSET if each.many else default)
        described = of_tool[each.name]["description"], of_tool[each.name]["default"]
        assert described == (each.help, default)


@click.command()
@request_options(Drill)
def asked(request: Drill) -> None:
    """Print what is asked for."""
    click.echo(f"{request.timeout} {request.path_map} {request.location}")


def test_a_field_that_no_words_say_is_a_keyword_alone() -> None:
    """A method has it, with its sentence; the command sets it when it is known."""
    assert {"location", "cluster", "report"} <= inspect.signature(sl.drill).parameters.keys()
    assert "cluster: The cluster: in the second region, or for staging." in str(sl.drill.__doc__)
    assert "by default 5min (or a number of seconds)." in " ".join(str(sl.drill.__doc__).split())
    assert {each.name for each in asked.params} == {"parallelism", "path_map", "timeout"}
    assert CliRunner().invoke(asked, []).output == "300.0 () None\n"


def test_text_is_parsed_wherever_it_is_given() -> None:
    """By the command and in Python; a fault names the option."""
    assert CliRunner().invoke(asked, ["--timeout", "2min"]).output == "120.0 () None\n"
    wrong = CliRunner().invoke(asked, ["--timeout", "soon"])
    assert (wrong.exit_code, "--timeout: 'soon' is no duration" in wrong.output) == (2, True)
    with pytest.raises(DeclarationError, match="--timeout: 'soon' is no duration"):
        Drill("/sp", None, None, timeout="soon")  # type: ignore[arg-type]


def test_an_option_may_be_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As its help says."""
    monkeypatch.setenv("STATELAKE_FLINK_PATH_MAP", "s3://a=/mnt/a s3://b=/mnt/b")
    output = CliRunner().invoke(asked, []).output
    assert output == "300.0 ('s3://a=/mnt/a', 's3://b=/mnt/b') None\n"


def test_values_with_keys_are_texts_or_a_mapping() -> None:
    """Either has the same meaning; a text without a key is refused."""
    for conf in ({COMPRESSION_KEY: "true"}, [f"{COMPRESSION_KEY}=true"], f"{COMPRESSION_KEY}=true"):
        assert Export("/sp", conf=conf).conf == {COMPRESSION_KEY: "true"}  # type: ignore[arg-type]
    with pytest.raises(EncodeError, match="--conf: 'x' is not of the form KEY=VALUE"):
        Export("/sp", conf=["x"])  # type: ignore[arg-type]


def test_a_key_and_its_value_are_two_words_or_a_mapping() -> None:
    """A key that is given twice is refused; the value is parsed as any text."""

    @click.command()
    @request_options(Edit)
    def edit(request: Edit) -> None:
        click.echo(f"{request.rename_uid} {request.expire}")

    words = ["--rename-uid", "a", "b", "--rename-uid", "c", "d", "--expire", "a/x", "1d"]
    output = CliRunner().invoke(edit, words).output
    assert output.strip() == f"{{'a': 'b', 'c': 'd'}} {Edit(expire={'a/x': '1d'}).expire}"  # type: ignore[dict-item]
    assert Edit(expire={"a/x": timedelta(days=1)}) == Edit(expire=[("a/x", "1d")])  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="--rename-uid names a twice: give it once"):
        Edit(rename_uid=[("a", "b"), ("a", "c")])  # type: ignore[arg-type]


def test_what_is_not_usual_is_declared_by_a_field_or_its_class() -> None:
    """A class says it of its own fields alone."""
    more = {each.name for each in options_of(Export) if each.more}
    assert {"seed", "metadata_version", "conf"} <= more
    assert not {"to", "parallelism", "sample", "mask"} & more
    assert {each.name for each in options_of(ImportSnapshot) if not each.more} >= {"note", "taken"}
    assert all(each.more for each in options_of(Reading))


def test_an_empty_text_is_an_empty_list() -> None:
    """As none is: no job of an empty name is meant."""
    assert EraseFromLake(request="r", keys=["a"], jobs="").jobs == ()


def test_places_come_in_the_order_of_the_command() -> None:
    """What is read stands before what is written, whichever classes a request is made of."""
    orders = {
        sl.report: ["savepoint", "to"],
        sl.compress: ["savepoint", "to", "compression"], sl.diff: ["earlier", "later"],
        sl.upgrade: ["savepoint", "to", "to_flink"], sl.in_temporary_lake: ["savepoint", "to"],
        sl.sql_upgrade: ["savepoint", "to", "old_plan", "new_plan"],
    }  # fmt: skip
    for function, order in orders.items():
        taken = inspect.signature(function).parameters.values()
        assert [each.name for each in taken if each.kind is not each.KEYWORD_ONLY] == order


def test_a_choice_and_a_bound_hold_in_python_too() -> None:
    """Not only the command refuses what an option can't be."""
    with pytest.raises(DeclarationError, match="--compression is 'gzip', and must be one of snap"):
        Export("/sp", compression="gzip")  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="--metadata-version is 7, and must be at most 6"):
        Export("/sp", metadata_version=7)


def test_what_is_given_stays_the_callers() -> None:
    """A map is copied, and columns of NumPy and pandas are lists."""
    where = {"orders/total": "value > 1"}
    erased = Erase("r", keys=np.array(["a", "b"]), where=where)  # type: ignore[arg-type]
    where.clear()
    assert (erased.keys, erased.where) == (("a", "b"), {"orders/total": "value > 1"})
