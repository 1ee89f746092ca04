"""`statelake get` and `history`: the state of one key, and its changes."""

from __future__ import annotations

import click

from statelake import Job
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import (
    json_option,
    json_text,
    print_table,
    show,
    tell,
)
from statelake.pipelines.cli.options import (
    NamedSnapshot,
    answer,
    opened_job,
    option_of,
    refuse_problems,
    request_options,
    served_in_part,
    typed_source_options,
)
from statelake.pipelines.keys import (
    KeyRows,
    key_table,
    printed_rows,
    rows_of_key,
    with_lost_errors,
)
from statelake.pipelines.requests.reading import Selection
from statelake.state_core.errors import StateError

SHOWN_ROWS = 1000  # of a table for people; --json has all

key_option = click.option(
    "--key",
    "text",
    required=True,
    metavar="KEY",
    help="As `dump` prints keys: JSON, or text as it is; of a row's only column, its value.",
)
operator_option = option_of(Selection, "operator")


@click.command()
@key_option
@typed_source_options
@request_options(Selection)
@plugins_option
@json_option
def get(source: NamedSnapshot, text: str, request: Selection, as_json_: bool) -> None:
    """Show all that is held for one key in a savepoint, a checkpoint or a snapshot of a lake.

    All states, timers and namespaces of all operators with keys of a matching type. The key is
    hashed as Flink hashes it, and only its key group is read. If the hash can't be derived, all key
    groups are read, and a note says so. With --json the rows are those of `dump`, as one array.

    With --plan, of a Flink SQL job, keys and rows have the columns of its query.

    Exits with 1 if nothing is held for the key, and with 3 if not all that may hold something could
    be read.

    \b
    Examples:
      statelake get savepoint-5f1e2c-0a1b2c3d4e5f --key customer-4711
      statelake get savepoint-5f1e2c-0a1b2c3d4e5f --key '{"f0": "eu", "f1": 4711}' --operator orders
      statelake get --lake lake --job orders --snapshot tuesday --key 4711 --state count --json
      statelake get savepoint-5f1e2c --key berlin --plan plan.json --operator "GroupAggregate[5]"
    """
    opened = source.opened()
    problems = opened.problems_of(**vars(request), keyed=True)
    with served_in_part(problems):
        key_rows = rows_of_key(opened, text, **vars(request))
    for rows in key_rows:
        if rows.key_group is None:
            click.echo(
                f"note: the hash of keys of type {rows.key_type} is known to the job alone:"
                f" all key groups of {rows.operator} are read",
                err=True,
            )
    lost: list[StateError] = []
    key_rows = [with_lost_errors(rows, lost.append) for rows in key_rows]
    entries = _print_json(key_rows) if as_json_ else _print_tables(key_rows)
    refuse_problems([*problems, *map(str, lost)])
    if not entries and not as_json_:
        tell(f"there is no state for key {text}")
    answer(yes=entries > 0)


def _print_json(key_rows: list[KeyRows]) -> int:
    """Print an array with a row a line, as the rows are read; return the number of rows."""
    entries = 0
    for rows in key_rows:
        for row in printed_rows(rows):
            click.echo(f"{',' if entries else '['}\n  {json_text(row)}", nl=False)
            entries += 1
    click.echo("\n]" if entries else "[]")
    return entries


def _print_tables(key_rows: list[KeyRows]) -> int:
    """Print a table for each operator with entries; return the number of entries."""
    entries = 0
    for rows in key_rows:
        table = key_table(rows, SHOWN_ROWS)
        if not table.rows:
            continue
        print_table(table, of=" entries")
        entries += len(table.rows) + table.left
    return entries


@click.command()
@opened_job
@key_option
@request_options(Selection)
@plugins_option
@json_option
def history(opened: Job, text: str, request: Selection, as_json_: bool) -> None:
    """Show what changed of one key from each snapshot of a job to the next.

    All entries of the oldest snapshot are shown as added. Only files that may hold the key are
    read, and files that snapshots share only once.

    Exits with 1 if no snapshot holds anything for the key.

    \b
    Examples:
      statelake history --lake lake --job orders --key customer-4711
      statelake history --lake lake --job orders --key 4711 --operator counter --state count --json
    """
    result = opened.history(text, **vars(request))
    show(result, as_json_=as_json_, marked="")
    answer(yes=result.has_entries)
