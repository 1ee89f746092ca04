"""`statelake find`: where in a snapshot's state a value is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import as_json, json_option, print_table, tell
from statelake.pipelines.cli.options import (
    NamedSnapshot,
    answer,
    refuse_problems,
    request_options,
    served_in_part,
    typed_source_options,
)
from statelake.pipelines.requests.reading import FindValue, Selection
from statelake.pipelines.shown import cell_text, plain_rows, state_head, state_title
from statelake.state_core.printable import Table, brief, count_text

if TYPE_CHECKING:
    from statelake.state_core.model.finding import Hit, SearchResult, Unsearched

LONGEST_CELL = 200
SHOWN_UNSEARCHED = 20  # for people; --json has all
_NEGATIVE = re.compile(r"-(\d|\.\d|inf)")


def _value(context: click.Context, _: click.Parameter, value: str) -> str:
    """Take negative numbers, which look like options."""
    if value.startswith("-") and not _NEGATIVE.match(value):
        raise click.NoSuchOption(value, ctx=context)
    return value


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("value", callback=_value)
@typed_source_options
@request_options(FindValue)
@plugins_option
@json_option
def find(source: NamedSnapshot, value: str, request: FindValue, as_json_: bool) -> None:
    """Find a value in all state of a savepoint, a checkpoint or a snapshot of a lake.

    Keys, namespaces, keys of maps, values with every field and element, timers, operator and
    broadcast state. Texts are compared as they are, numbers by number, times as they are shown,
    bytes by hex: 0xCAFE. All state is read, in bounded memory; what can't have the value is not
    decoded. What was not searched, such as bytes for a text, is named.

    Exits with 1 if it is nowhere, and with 3 if not all of the state could be read, or it may be
    among entries that were not found.

    \b
    Examples:
      statelake find customer-4711 savepoint-5f1e2c-0a1b2c3d4e5f
      statelake find "@example.com" savepoint-5f1e2c-0a1b2c3d4e5f --contains --limit 10
      statelake find 4711 --lake lake --job orders --snapshot tuesday --operator orders --json
    """
    if source.savepoint.startswith("-"):
        raise click.NoSuchOption(source.savepoint)
    snapshot = source.opened()
    selected = request.words(Selection)
    with served_in_part(snapshot.problems_of(**selected)):
        hits = snapshot.find(value, **vars(request))
    if as_json_:
        _print_json(value, hits)
    else:
        _print(value, hits)
    refuse_problems(hits.problems)
    if not hits:  # it may be in an unreadable part
        refuse_problems(hits.not_located)
    answer(yes=bool(hits))


def _row(hit: Hit) -> dict[str, Any]:
    return next(plain_rows(state_head(hit.operator, hit.state), hit.row, hit.state.layout))


def _print_json(value: str, result: SearchResult) -> None:
    hits = []
    for hit in result.hits:
        row = _row(hit)
        head = {
            name: row.pop(name) for name in ("operator", "state", "kind", "alias") if name in row
        }
        hits.append(head | {"column": hit.path, "row": row})
    unsearched = [vars(each) for each in result.unsearched]
    as_json({"value": value, "found": result.count, "hits": hits, "not_searched": unsearched})


def _print(value: str, result: SearchResult) -> None:
    shown = brief(value, LONGEST_CELL)
    if result.hits:
        rows = []
        for hit in result.hits:
            row = _row(hit)
            place = f"subtask {row['subtask']}, {row['position']}" if "subtask" in row else ""
            content = "value" if "value" in row else "timestamp"
            state = f"{brief(hit.operator)}/{brief(state_title(*hit.state.labels))}"
            rows.append(
                (state, place or _content(row, "key", "raw_key"), brief(hit.path),
                 _content(row, content, "raw_value"))
            )  # fmt: skip
        title = f"{shown} is at {count_text(result.count, 'place')}"
        print_table(Table(title, ("<state", "<key", "<where", "<value"), rows))
        if result.count > len(rows):
            tell(f"... and {result.count - len(rows):,} more: --limit shows more of them")
    else:
        tell(f"{shown} is nowhere in what was searched")
    for each in result.unsearched[:SHOWN_UNSEARCHED]:
        tell(f"not searched: {_named(each)}: {each.why}")
    left = len(result.unsearched) - SHOWN_UNSEARCHED
    if left > 0:
        tell(f"... and {left:,} more that were not searched: --json has all")


def _named(unsearched: Unsearched) -> str:
    names = filter(None, (unsearched.operator, unsearched.state, unsearched.column))
    return brief("/".join(names)) or "the snapshot"


def _content(row: dict[str, Any], name: str, raw: str) -> str:
    """Return the content of an entry, with the bytes of parts that JSON can't represent."""
    more = [f"{raw} {row[raw]}"] if raw in row else []
    return _cut(" ".join(filter(None, [cell_text(name, row.get(name)), *more])))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}..."
