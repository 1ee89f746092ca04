"""`statelake top`: the heaviest keys, the longest lists and maps, and what a TTL would delete."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import (
    as_json,
    bytes_text,
    json_option,
    json_text,
    print_table,
    progress_bar,
    tell,
)
from statelake.pipelines.cli.options import (
    NamedSnapshot,
    Parsed,
    refuse_problems,
    request_options,
    served_in_part,
    typed_source_options,
)
from statelake.pipelines.keys import weights_json
from statelake.pipelines.requests.reading import HeavyKeys
from statelake.pipelines.requests.shared import parse_age
from statelake.pipelines.shown import plain
from statelake.state_core.printable import Table

if TYPE_CHECKING:
    from statelake.state_core.formats.key_weights import HeavyKey, StateWeights

LONGEST_KEY = 200
SHOWN_STATES = 200  # for people; --json has all


def _ages(text: str) -> dict[str, timedelta]:
    """Parse several durations, by their texts: `1d,7d`."""
    return {each.strip(): parse_age(each) for each in text.split(",")}


@click.command()
@typed_source_options
@request_options(HeavyKeys)
@click.option("--ttl", type=Parsed("durations", _ages), metavar="TTL[,TTL...]",
              help="Show how much would be deleted at these times to live: 1d,7d.")  # fmt: skip
@plugins_option
@json_option
def top(
    source: NamedSnapshot,
    request: HeavyKeys,
    ttl: dict[str, timedelta] | None,
    as_json_: bool,
) -> None:
    """Show the heaviest keys of each keyed state, exactly: by bytes, and by entries.

    Bytes are those of keys and values. The longest lists and maps are shown, too. All state is
    read, a key group at a time; memory is proportional to the keys of one key group.

    --ttl shows how much of the state with a time to live would be deleted at another one, by the
    time of last access of each entry. The elements of a list expire one by one; its bytes count
    only if all of them have expired.

    \b
    Examples:
      statelake top savepoint-5f1e2c-0a1b2c3d4e5f
      statelake top savepoint-5f1e2c-0a1b2c3d4e5f --operator sessions --ttl 1d,7d
      statelake top --lake lake --job orders --snapshot tuesday --limit 3 --json
    """
    lives = ttl or {}
    with progress_bar("weighing", quiet=as_json_) as progress:
        snapshot = source.opened(progress)
        problems = snapshot.problems_of(request.operator, request.state, keyed=True)
        words = vars(request) | {"at": request.at or snapshot.taken_at}
        with served_in_part(problems):
            weighed = snapshot.top(**words, ttl=lives.values(), problems=problems)
    weighed = {label: states for label, states in weighed.items() if states or not problems}
    key_types = {label: snapshot[label].keyed_states[0].key_type for label in weighed}
    if as_json_:
        operators = [
            {
                "operator": label,
                "key_type": key_types[label],
                "states": [weights_json(name, each, lives) for name, each in states.items()],
            }
            for label, states in weighed.items()
        ]
        as_json({"at": words["at"], "operators": operators})
        refuse_problems(problems)
        return
    left = SHOWN_STATES
    for number, (label, states) in enumerate(weighed.items()):
        if left > 0:
            if number:
                tell("")
            title = f"{label}, keyed by {key_types[label]}"
            tell(title, marked=title)
            for name, weights in islice(states.items(), left):
                _print(name, weights, lives)
        left -= len(states)
    if left < 0:
        tell(f"... and {-left:,} more states: --json has all, --operator those of one")
    if lives and not any(each.expiries for states in weighed.values() for each in states.values()):
        tell("no state has a time to live")
    refuse_problems(problems)


def _print(name: str, weights: StateWeights, lives: Mapping[str, timedelta]) -> None:
    tell("")
    what = f"{name}, {weights.layout.kind.value}"
    tell(
        f"{what}: {weights.entries:,} entries of {weights.keys:,} keys, {bytes_text(weights.size)}",
        marked=what,
    )
    heaviest, busiest = weights.heaviest(), weights.busiest()
    if heaviest:
        _print_keys("heaviest key", heaviest, weights.size)
    if busiest and busiest[0].entries > 1 and busiest != heaviest:
        _print_keys("most entries", busiest, weights.size)
    longest = weights.longest()
    if longest and longest[0].length > 1:
        columns = (f"<longest {weights.layout.kind.value}", "<namespace", ">length", ">bytes")
        rows = [
            (_short(long.key), _short(long.namespace), f"{long.length:,}", bytes_text(long.size))
            for long in longest
        ]
        print_table(Table("", columns, rows))
    for text, gone in zip(lives, weights.expiries, strict=False):
        share = 100 * gone.size / weights.size if weights.size else 0.0
        count = weights.elements or weights.entries
        unit = "elements" if weights.elements else "entries"
        tell(
            f"at a time to live of {text}: {gone.entries:,} of {count:,} {unit} gone,"
            f" {bytes_text(gone.size)} ({share:.1f} %)"
        )


def _print_keys(title: str, keys: list[HeavyKey], size: int) -> None:
    columns = (f"<{title}", ">key group", ">entries", ">bytes", ">of the state")
    rows = [
        (_short(key.key), str(key.key_group), f"{key.entries:,}", bytes_text(key.size),
         f"{100 * key.size / size:.1f} %")
        for key in keys
    ]  # fmt: skip
    print_table(Table("", columns, rows))


def _short(value: Any) -> str:
    if value is None:
        return ""
    text = json_text(plain(value))
    return text if len(text) <= LONGEST_KEY else f"{text[:LONGEST_KEY]}..."
