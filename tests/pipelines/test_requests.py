"""Fields of requests: what words say of them, and what only Python gives."""

from __future__ import annotations

import inspect

import click
import pytest
from click.testing import CliRunner

import statelake as sl
from statelake.pipelines.cli.options import request_options
from statelake.pipelines.live.requests import Drill
from statelake.pipelines.requests.savepoints import Export
from statelake.state_core.errors import DeclarationError, EncodeError
from statelake.state_core.files.compression import COMPRESSION_KEY


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


def test_a_choice_and_a_bound_hold_in_python_too() -> None:
    """Not only the command refuses what an option can't be."""
    with pytest.raises(DeclarationError, match="--compression is 'gzip', and must be one of snap"):
        Export("/sp", compression="gzip")  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="--metadata-version is 7, and must be at most 6"):
        Export("/sp", metadata_version=7)
