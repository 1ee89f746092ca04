"""`docs/json`: a schema for each command with `--json`, to which tests hold every output."""

from __future__ import annotations

import json

import pytest
from jsonschema import ValidationError

from tests.support.command import run
from tests.support.json_schemas import SCHEMAS, check_output, commands_with_json, schema_of
from tests.support.lakes import DEMO

every_command = pytest.mark.parametrize("words", commands_with_json(), ids=" ".join)


@every_command
def test_each_command_has_a_schema_that_says_what_it_is_of(words: tuple[str, ...]) -> None:
    """A valid one, which allows fields that are added later."""
    schema_of(words)
    written = json.loads((SCHEMAS / f"{'-'.join(words)}.json").read_text("utf-8"))
    assert written["title"] == f"statelake {' '.join(words)}"
    assert '"additionalProperties": false' not in json.dumps(written)


def test_there_is_no_other_schema() -> None:
    """One of a command that is gone."""
    names = {"-".join(words) for words in commands_with_json()}
    assert {path.name for path in SCHEMAS.iterdir()} == {f"{name}.json" for name in names}


def test_an_output_that_differs_is_found() -> None:
    """A field that is missing, unknown, or of another type."""
    output = run("inspect", DEMO / "monday", "--json").json
    for change in ({"size_bytes": "1"}, {"unknown": 1}, {"operators": [{}]}):
        with pytest.raises(ValidationError):
            check_output(["inspect"], json.dumps(output | change))
    del output["kind"]
    with pytest.raises(ValidationError):
        check_output(["inspect"], json.dumps(output))
