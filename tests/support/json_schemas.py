"""The schemas of `docs/json`, to which every `--json` output in a test is held."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import click
from jsonschema import Draft202012Validator

from statelake.pipelines.cli.main import statelake

SCHEMAS = Path(__file__).parents[2] / "docs" / "json"


@cache
def commands_with_json() -> tuple[tuple[str, ...], ...]:
    """Return the words of each command that has `--json`."""
    return tuple(_with_json(statelake, ()))


def _with_json(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _with_json(below, (*words, name))
    elif any("--json" in option.opts for option in command.params):
        yield words


@cache
def schema_of(words: tuple[str, ...]) -> Draft202012Validator:
    """Return the schema of a command, in which no field is unknown."""
    schema = json.loads((SCHEMAS / f"{'-'.join(words)}.json").read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(_closed(schema))


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    return closed | {"additionalProperties": False} if "required" in schema else closed


def check_output(words: Sequence[str], output: str) -> None:
    """Hold the output of a command to its schema: one value, or rows of `sql`, one a line."""
    command = next(
        (known for known in commands_with_json() if known == tuple(words[: len(known)])), None
    )
    if command is None:
        return
    is_rows = command == ("sql",) and not output.startswith("{\n")
    for value in output.splitlines() if is_rows else [output]:
        schema_of(command).validate(json.loads(value))
