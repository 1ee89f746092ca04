"""The `statelake` command as a shell runs it: exit code, standard output, standard error."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from typing import Any

import pytest

from statelake.pipelines.cli.main import main
from tests.support.json_schemas import check_output

__all__ = ["Ran", "run"]


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its output, which must be JSON."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Its output, which must be one JSON value a line."""
        return [json.loads(line) for line in self.out.splitlines()]


def run(*words: object) -> Ran:
    """Run the command in this process, and hold its JSON to the schema of `docs/json`."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STATELAKE_DEBUG", "")
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as left,
        ):
            main([str(word) for word in words])
    if "--json" in words and out.getvalue():
        check_output([str(word) for word in words], out.getvalue())
    return Ran(int(left.value.code or 0), out.getvalue(), err.getvalue())
