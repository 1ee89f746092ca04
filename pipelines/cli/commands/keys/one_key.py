"""`statelake get` and `history`: all that is held for one key, and what changed of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import click

from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import (
    as_json,
    json_option,
    json_text,
    print_table,
    tell,
)
from statelake.pipelines.cli.options import (
    NamedSnapshot,
    answer,
    job_option,
    lake_option,
    source_options,
)
from statelake.pipelines.keys import KeyRows, rows_in_savepoint
from statelake.pipelines.shown import plain_rows, state_head

SHOWN_ROWS = 1000  # of a table for people; --json has all
LONGEST_CELL = 2000
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
TO_YEAR_9999 = 253_402_300_799_999

key_option = click.option(
    "--key",
    "text",
    required=True,
    metavar="KEY",
    help="As `dump` prints keys: JSON, or text as it is.",
)
operator_option = click.option("--operator", help="Only this operator: its uid, name or id.")
state_option = click.option("--state", help="Only this state.")


@click.command()
@key_option
@source_options
@operator_option
@state_option
@plugins_option
@json_option
def get(
    source: NamedSnapshot,
    text: str,
    operator: str | None,
    state: str | None,
    as_json_: bool,
) -> None:
    """Show all that is held for one key in a savepoint, a checkpoint or a snapshot of a lake.

    Of all operators that are keyed by a type that the key can be: all states, timers and
    namespaces. The key is hashed as Flink hashes it, and only its key group is read; where the hash
    can't be derived, all are, and a note says so. With --json the rows are those of `dump`, as one
    array.

    Exits with 1 if nothing is held for the key.

    \b
    Examples:
      statelake get savepoint-5f1e2c-0a1b2c3d4e5f --key customer-4711
      statelake get savepoint-5f1e2c-0a1b2c3d4e5f --key '{"f0": "eu", "f1": 4711}' --operator orders
      statelake get --lake lake --job orders --snapshot tuesday --key 4711 --state count --json
    """
    if source.in_lake:
        key_rows = source.stored().key_rows(text, operator=operator, state=state)
    else:
        key_rows = rows_in_savepoint(source.open(), text, operator=operator, state=state)
    for rows in key_rows:
        if rows.key_group is None:
            click.echo(
                f"note: the hash of keys of type {rows.key_type} is known to the job alone:"
                f" all key groups of {rows.operator} are read",
                err=True,
            )
    entries = _print_json(key_rows) if as_json_ else _print_tables(key_rows)
    if not entries and not as_json_:
        tell(f"nothing is held for key {text}")
    answer(yes=entries > 0)


def _rows(key_rows: KeyRows) -> Iterator[dict[str, Any]]:
    for state, batch in key_rows.batches:
        yield from plain_rows(state_head(key_rows.operator, state), batch)


def _print_json(key_rows: list[KeyRows]) -> int:
    """An array with a row a line, as the rows come; how many there are."""
    entries = 0
    for rows in key_rows:
        for row in _rows(rows):
            click.echo(f"{',' if entries else '['}\n  {json_text(row)}", nl=False)
            entries += 1
    click.echo("\n]" if entries else "[]")
    return entries


def _print_tables(key_rows: list[KeyRows]) -> int:
    """A table for each operator that holds something; how many entries there are."""
    entries = 0
    for rows in key_rows:
        shown: list[dict[str, Any]] = []
        count = 0
        for row in _rows(rows):
            count += 1
            if count <= SHOWN_ROWS:
                shown.append(row)
        if not count:
            continue
        group = "" if rows.key_group is None else f", key group {rows.key_group}"
        title = f"{rows.operator}, keyed by {rows.key_type}: {json_text(rows.key)}{group}"
        columns = [name for name in ("namespace", "user_key", "timestamp", "value", "ttl")
                   if any(row.get(name) is not None for row in shown)]  # fmt: skip
        names = {"timestamp": "fires", "ttl": "last access", "user_key": "user key"}
        print_table(
            title,
            ["<state", "<kind", *(f"<{names.get(name, name)}" for name in columns)],
            [
                [row["state"], row["kind"], *(_cell(name, row.get(name)) for name in columns)]
                for row in shown
            ],
        )
        if count > SHOWN_ROWS:
            tell(f"... and {count - SHOWN_ROWS:,} more entries: --json has all")
        entries += count
    return entries


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name in ("timestamp", "ttl") and isinstance(value, int):
        return _instant(value)
    text = value if isinstance(value, str) and name != "value" else json_text(value)
    return text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}..."


def _instant(millis: int) -> str:
    """Milliseconds since 1970 as people read them, unless they are no time of any calendar."""
    if not 0 <= millis <= TO_YEAR_9999:
        return str(millis)
    at = EPOCH + timedelta(milliseconds=millis)
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d}"


@click.command()
@lake_option
@job_option
@key_option
@operator_option
@state_option
@plugins_option
@json_option
def history(
    lake: str,
    job: str,
    text: str,
    operator: str | None,
    state: str | None,
    as_json_: bool,
) -> None:
    """Show what changed of one key from each snapshot of a job to the next.

    What the oldest snapshot holds for the key is added there. Of each snapshot only the files are
    read that may hold the key, and files that snapshots share only once.

    Exits with 1 if no snapshot holds anything for the key.

    \b
    Examples:
      statelake history --lake lake --job orders --key customer-4711
      statelake history --lake lake --job orders --key 4711 --operator counter --state count --json
    """
    from statelake.pipelines.lake.catalog.catalog import Catalog  # noqa: PLC0415 - `get` needs no Delta
    from statelake.pipelines.lake.keys.key_history import key_history  # noqa: PLC0415 - the same

    changes = key_history(Catalog(lake), job, text, operator=operator, state=state)
    if as_json_:
        as_json([
            {
                "snapshot": each.snapshot_id,
                "taken": each.taken_at,
                "entries": each.entries,
                "changes": [
                    {"change": change.change} | change.entry
                    | {"before": change.before, "after": change.after}
                    for change in each.changes
                ],
            }
            for each in changes.snapshots
        ])  # fmt: skip
    else:
        _print_history(changes, text)
    answer(yes=any(each.entries for each in changes.snapshots))


def _print_history(changes: Any, text: str) -> None:
    rows = []
    for each in changes.snapshots:
        taken_at = f"{each.taken_at:%Y-%m-%d %H:%M}"
        for change in each.changes:
            entry = change.entry
            where = [
                json_text(entry[name])
                for name in ("namespace", "user_key")
                if entry.get(name) is not None
            ]
            if "timestamp" in entry:
                where.append(f"fires {_instant(entry['timestamp'])}")
            rows.append(
                (each.snapshot_id, taken_at, f"{entry['operator']}/{entry['state']}",
                 " ".join(where), change.change, _values(change.before, change.after))
            )  # fmt: skip
    if not any(each.entries for each in changes.snapshots):
        tell(f"no snapshot holds anything for key {text}")
        return
    columns = ("<snapshot", "<taken", "<state", "<entry", "<change", "<value")
    title = f"{text} in {len(changes.snapshots)} snapshots"
    print_table(title, columns, rows, most=SHOWN_ROWS, of=" changes")


def _values(before: dict[str, Any] | None, after: dict[str, Any] | None) -> str:
    """The value, or what it was and what it became; of equal ones the times of last access."""
    name = "value"
    if before and after and before.get("value") == after.get("value"):
        name = "ttl"
    shown = [_cell(name, values[name]) for values in (before, after) if values and name in values]
    text = " → ".join(shown)
    return f"last access {text}" if text and name == "ttl" else text
