"""`statelake inspect`: describe a snapshot without decoding it, and without Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from statelake import open_snapshot
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import json_option, plain, show
from statelake.pipelines.cli.options import (
    refuse_problems,
    request_options,
    typed_reading_options,
)
from statelake.pipelines.requests.reading import Describe
from statelake.pipelines.requests.shared import TypedReading

if TYPE_CHECKING:
    from statelake.state_core.formats.description import OperatorDescription


@click.command()
@click.argument("savepoint")
@request_options(Describe)
@typed_reading_options
@plugins_option
@json_option
def inspect(
    savepoint: str,
    request: Describe,
    reading: TypedReading,
    as_json_: bool,
) -> None:
    """Show what a savepoint or checkpoint holds: operators, states, types, sizes, skew.

    Nothing is decoded but, with --keys, one key of each operator, and nothing in it is executed.
    `statelake top` shows the heaviest keys of all. With --json each operator has the columns
    of Flink's own savepoint_metadata table function under their names, and more.

    With --plan, of a Flink SQL job, operators, keys and columns have the names of its query. A plan
    that is not that of the job is refused.

    Of files that are missing or can't be reached, what `_metadata` tells is shown, and all else is
    read; the exit code is then 3, as where not all entries of a state are found.

    \b
    Examples:
      statelake inspect /savepoints/savepoint-5f1e2c-0a1b2c3d4e5f
      statelake inspect /checkpoints/0af3.../chk-21 --parallelism 12
      statelake inspect /savepoints/of-flink-1 --uid counter --uid sessions --schema
      statelake inspect savepoint-5f1e2c-0a1b2c3d4e5f --keys --types
      statelake inspect savepoint-5f1e2c-0a1b2c3d4e5f --plan plan.json
      statelake inspect s3://bucket/savepoints/sp-1 --json | jq '.operators[]."operator-uid"'
    """
    snapshot = open_snapshot(savepoint, partial=True, **vars(reading))
    described = snapshot.describe(**vars(request))
    operators = tuple(map(_with_plain_key, described.operators))
    show(replace(described, operators=operators), as_json_=as_json_)
    refuse_problems(described.problems)


def _with_plain_key(described: OperatorDescription) -> OperatorDescription:
    """Replace the heaviest key by its JSON value."""
    key = described.heaviest_key
    return replace(described, heaviest_key=key and replace(key, key=plain(key.key)))
