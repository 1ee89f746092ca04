"""`statelake expired`: what of the state has expired, at a time to live that the user names."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import (
    as_json,
    bytes_text,
    json_option,
    json_text,
    plain,
    print_table,
    tell,
)
from statelake.pipelines.cli.options import (
    DURATION,
    NamedSnapshot,
    refuse_problems,
    request_options,
    served_in_part,
    typed_source_options,
)
from statelake.pipelines.requests.reading import ExpiredKeys
from statelake.state_core.printable import Table, brief

if TYPE_CHECKING:
    from statelake.state_core.formats.expiring import ExpiredState

LONGEST_KEY = 200


def _lives(
    context: click.Context, option: click.Parameter, given: tuple[str, ...]
) -> dict[str, timedelta]:
    """Parse times to live: of all states, or each of one."""
    lives = {}
    for text in given:
        name, _, life = text.rpartition("=")
        lives[name] = DURATION.convert(life, option, context)
    return lives


@click.command()
@typed_source_options
@click.option(
    "--ttl",
    multiple=True,
    required=True,
    metavar="[OPERATOR/STATE=]TTL",
    callback=_lives,
    help="The time to live of all states, or of one; may be repeated.",
)
@request_options(ExpiredKeys)
@plugins_option
@json_option
def expired(
    source: NamedSnapshot,
    ttl: dict[str, timedelta],
    request: ExpiredKeys,
    as_json_: bool,
) -> None:
    """Show what state has expired by the times of last access in it.

    A snapshot has no time to live, only the job has: give it. By default it is asked what had
    expired at the newest last access of all states: a copy changes the time of a snapshot's files.
    Elements of lists expire one by one; a list's bytes count if all of its elements have expired.

    \b
    Examples:
      statelake expired savepoint-5f1e2c-0a1b2c3d4e5f --ttl 7d
      statelake expired savepoint-5f1e2c-0a1b2c3d4e5f --ttl 7d --ttl orders/seen=1h --keys
      statelake expired --lake lake --job orders --ttl 30d --at 2026-11-20T06:00Z --json
    """
    snapshot = source.opened()
    problems = snapshot.problems_of(keyed=True)
    with served_in_part(problems):
        result = snapshot.expired(ttl, **vars(request), problems=problems)
    if as_json_:
        states = [_as_dict(each, keys=request.keys) for each in result.states]
        as_json({"at": result.at, "rule": result.rule, "states": states, "unknown": result.unknown})
        refuse_problems(problems)
        return
    tell(f"expired at {result.at:%Y-%m-%d %H:%M:%S} UTC ({result.rule})")
    rows = [
        (f"{brief(each.operator)}/{brief(each.state)}", _life_text(each.ttl), f"{each.entries:,}",
         f"{each.expired:,}", f"{each.share:.1%}", bytes_text(each.expired_size))
        for each in result.states
    ]  # fmt: skip
    if rows:
        columns = ("<state", ">time to live", ">entries", ">expired", ">share", ">bytes")
        print_table(Table("", columns, rows))
    elif not result.unknown:
        tell("no state has times of last access")
    for name in result.unknown:
        tell(f"not known: {brief(name)}: its times of last access can't be read")
    for each in result.states:
        for key in each.keys:
            shown = json_text(plain(key))
            cut = shown if len(shown) <= LONGEST_KEY else f"{shown[:LONGEST_KEY]}..."
            tell(f"{brief(each.operator)}/{brief(each.state)} {cut}")
        if len(each.keys) == request.limit:
            tell(f"... the first {request.limit:,} keys of {brief(each.state)}: --limit lists more")
    refuse_problems(problems)


def _life_text(life: timedelta) -> str:
    millis = life // timedelta(milliseconds=1)
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if millis and not millis % size:
            return f"{millis // size}{unit}"
    return f"{millis}ms"


def _as_dict(state: ExpiredState, *, keys: bool) -> dict[str, Any]:
    fields = {
        "operator": state.operator, "state": state.state, "ttl": _life_text(state.ttl),
        "entries": state.entries, "expired": state.expired, "share": round(state.share, 6),
        "bytes": state.size, "expired_bytes": state.expired_size,
    }  # fmt: skip
    return fields | ({"keys": [plain(key) for key in state.keys]} if keys else {})
