"""`statelake report`: write a page of HTML that shows a snapshot."""

from __future__ import annotations

import os

import click

from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import json_option, progress_bar, show
from statelake.pipelines.cli.options import (
    NamedSnapshot,
    answer,
    planned_source_options,
    refuse_problems,
    request_options,
)
from statelake.pipelines.requests.reading import Page


@click.command()
@planned_source_options
@request_options(Page)
@plugins_option
@json_option
def report(source: NamedSnapshot, request: Page, as_json_: bool) -> None:
    """Write a page of HTML that shows a snapshot.

    The page shows operators, states and their types, sizes, a chart of key groups, the load of each
    subtask at any parallelism (typed into the page), the heaviest keys, and faults; for a lake's
    snapshot also how the job's state grew, and why, as `statelake growth`. It needs only a browser,
    loads nothing, and executes nothing from the snapshot. Equal snapshots have equal pages.

    Exits with 1 if --check finds faults, and without it with 3 if not all of the state could be
    read; the page is written in any case.

    \b
    Examples:
      statelake report savepoint-5f1e2c-0a1b2c3d4e5f --to report.html
      statelake report /checkpoints/chk-42 --check --to report.html --overwrite
      statelake report --lake lake --job orders --snapshot tuesday --to tuesday.html
    """
    with progress_bar("reading", quiet=as_json_) as progress:
        done = source.placed(progress=progress).report(**vars(request))
    show(done, as_json_=as_json_, marked=os.fspath(request.to))
    refuse_problems(done.problems)
    answer(yes=not done.faults)
