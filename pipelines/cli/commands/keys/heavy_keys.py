"""`statelake top`: the heaviest keys, the longest lists and maps, and what a TTL would delete."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from statelake.pipelines.cli.commands.keys.one_key import operator_option, state_option
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
from statelake.pipelines.cli.commands.times import Durations, Instant
from statelake.pipelines.cli.options import Source, source_options
from statelake.pipelines.engine import Progress
from statelake.pipelines.keys import check_states
from statelake.pipelines.shown import plain
from statelake.state_core.errors import NotFoundError
from statelake.state_core.formats.key_weights import (
    HeavyKey,
    LongCollection,
    StateWeights,
    weigh_operator,
)
from statelake.state_core.formats.reader import METADATA_FILE, snapshot_directory

if TYPE_CHECKING:
    from statelake.pipelines.lake.catalog.catalog import Catalog
    from statelake.pipelines.lake.tables.records import SnapshotRecord

LONGEST_KEY = 200
SHOWN_STATES = 200  # for people; --json has all


@dataclass(frozen=True)
class _Weighed:
    """What is heavy in one operator.

    Attributes:
        operator: Its uid or id.
        key_type: The Java type of its keys.
        states: By name, its states' weights.
    """

    operator: str
    key_type: str
    states: dict[str, StateWeights]


@click.command()
@source_options
@click.option("--limit", default=10, show_default=True, type=click.IntRange(1, 10_000),
              help="How many keys of each state.")  # fmt: skip
@operator_option
@state_option
@click.option("--ttl", type=Durations(), metavar="TTL[,TTL...]",
              help="How much would be gone at these times to live: 1d,7d.")  # fmt: skip
@click.option("--at", type=Instant(), help="When it would; by default when the snapshot was taken.")
@plugins_option
@json_option
def top(
    source: Source,
    limit: int,
    operator: str | None,
    state: str | None,
    ttl: dict[str, timedelta] | None,
    at: datetime | None,
    as_json_: bool,
) -> None:
    """Show the heaviest keys of each keyed state, exactly: by bytes, and by entries.

    Bytes are those of keys and values. Of lists and maps also the longest are shown. All state is
    read, key group by key group, in memory that follows the keys of one key group.

    With --ttl: how much of state that has a time to live would be gone if that were another one,
    by the times of last access that its entries carry. A list's elements expire one by one; its
    bytes count where all of them are gone.

    \b
    Examples:
      statelake top savepoint-5f1e2c-0a1b2c3d4e5f
      statelake top savepoint-5f1e2c-0a1b2c3d4e5f --operator sessions --ttl 1d,7d
      statelake top --lake lake --job orders --snapshot tuesday --limit 3 --json
    """
    lives = ttl or {}
    weigh = _Weighing(limit, operator, state, at, lives)
    with progress_bar("weighing", quiet=as_json_) as progress:
        if source.in_lake:
            taken_at, weighed = weigh.lake(source, progress)
        else:
            taken_at, weighed = weigh.savepoint(source)
    if as_json_:
        as_json({"at": taken_at, "operators": [_as_dict(each, lives) for each in weighed]})
        return
    left = SHOWN_STATES
    for number, each in enumerate(weighed):
        if left > 0:
            if number:
                tell("")
            _print(each, lives, left)
        left -= len(each.states)
    if left < 0:
        tell(f"... and {-left:,} more states: --json has all, --operator those of one")
    if lives and not any(weights.expiries for each in weighed for weights in each.states.values()):
        tell("no state has a time to live")


@dataclass(frozen=True)
class _Weighing:
    """What is asked for."""

    limit: int
    operator: str | None
    state: str | None
    at: datetime | None
    lives: dict[str, timedelta]

    def savepoint(self, source: Source) -> tuple[datetime, list[_Weighed]]:
        """What is heavy in a savepoint, and when it was taken, or what stands for that."""
        snapshot = source.open()
        named = self.operator
        operators = snapshot.operators if named is None else (snapshot.operator(named),)
        names = [keyed.name for each in operators for keyed in each.keyed_states]
        self._check(names)
        modified = snapshot_directory(source.savepoint).modified(METADATA_FILE)
        taken_at = self.at or datetime.fromtimestamp(modified, timezone.utc)
        weighed = [
            _Weighed(
                each.label,
                each.keyed_states[0].key_type,
                weigh_operator(
                    each,
                    self.limit,
                    states=None if self.state is None else [self.state],
                    until=self._until(taken_at),
                ),
            )
            for each in operators
            if self._asked(keyed.name for keyed in each.keyed_states)
        ]
        return taken_at, weighed

    def lake(self, source: Source, progress: Progress | None) -> tuple[datetime, list[_Weighed]]:
        """The same of a snapshot of a lake."""
        from statelake.pipelines.lake.keys.heavy_keys import weigh_snapshot  # noqa: PLC0415 - Delta if wanted

        def weigh(lake: Catalog, record: SnapshotRecord) -> tuple[datetime, list[_Weighed]]:
            taken_at = self.at or record.taken_at
            weighed = weigh_snapshot(
                lake, record, self.limit, operator=self.operator, state=self.state,
                until=self._until(taken_at), progress=progress,
            )  # fmt: skip
            return taken_at, [_Weighed(each.label, each.key_type, held) for each, held in weighed]

        return source.read(weigh)

    def _check(self, names: list[str]) -> None:
        check_states(self.state, names)
        if not names:
            raise NotFoundError("there is no keyed state", remedy="name a snapshot that has some")

    def _asked(self, names: Iterator[str]) -> bool:
        """Whether an operator with these states is asked for."""
        return any(self.state in (None, name) for name in names)

    def _until(self, taken: datetime) -> list[int]:
        """For each time to live, the last access that is just too long ago, in milliseconds."""
        millis = round(taken.timestamp() * 1000)
        return [millis - live // timedelta(milliseconds=1) for live in self.lives.values()]


def _as_dict(weighed: _Weighed, lives: dict[str, timedelta]) -> dict[str, Any]:
    return {
        "operator": weighed.operator,
        "key_type": weighed.key_type,
        "states": [
            {
                "state": name,
                "kind": weights.layout.kind.value,
                "keys": weights.keys,
                "entries": weights.entries,
                "bytes": weights.size,
                "heaviest": [_key_as_dict(key) for key in weights.heaviest()],
                "busiest": [_key_as_dict(key) for key in weights.busiest()],
                "longest": [_long_as_dict(long) for long in weights.longest()],
                "ttl": [
                    {"time_to_live": text, "gone_entries": gone.entries, "gone_bytes": gone.size}
                    for text, gone in zip(lives, weights.expiries, strict=False)
                ],
            }
            for name, weights in weighed.states.items()
        ],
    }


def _key_as_dict(key: HeavyKey) -> dict[str, Any]:
    return {
        "key": plain(key.key), "key_group": key.key_group, "entries": key.entries,
        "bytes": key.size,
    }  # fmt: skip


def _long_as_dict(long: LongCollection) -> dict[str, Any]:
    return {
        "key": plain(long.key), "namespace": plain(long.namespace), "key_group": long.key_group,
        "length": long.length, "bytes": long.size,
    }  # fmt: skip


def _print(weighed: _Weighed, lives: dict[str, timedelta], most: int) -> None:
    title = f"{weighed.operator}, keyed by {weighed.key_type}"
    tell(title, marked=title)
    for name, weights in islice(weighed.states.items(), most):
        tell("")
        what = f"{name}, {weights.layout.kind.value}"
        tell(
            f"{what}: {weights.entries:,} entries of {weights.keys:,} keys,"
            f" {bytes_text(weights.size)}",
            marked=what,
        )
        heaviest, busiest = weights.heaviest(), weights.busiest()
        if heaviest:
            _print_keys("heaviest key", heaviest, weights.size)
        if busiest and busiest[0].entries > 1 and busiest != heaviest:
            _print_keys("most entries", busiest, weights.size)
        longest = weights.longest()
        if longest and longest[0].length > 1:
            print_table(
                "",
                (f"<longest {weights.layout.kind.value}", "<namespace", ">length", ">bytes"),
                [
                    (_short(long.key), _short(long.namespace), f"{long.length:,}",
                     bytes_text(long.size))
                    for long in longest
                ],
            )  # fmt: skip
        for text, gone in zip(lives, weights.expiries, strict=False):
            share = 100 * gone.size / weights.size if weights.size else 0.0
            count = weights.elements or weights.entries
            unit = "elements" if weights.elements else "entries"
            tell(
                f"at a time to live of {text}: {gone.entries:,} of {count:,} {unit} gone,"
                f" {bytes_text(gone.size)} ({share:.1f} %)"
            )


def _print_keys(title: str, keys: list[HeavyKey], size: int) -> None:
    print_table(
        "",
        (f"<{title}", ">key group", ">entries", ">bytes", ">of the state"),
        [
            (_short(key.key), str(key.key_group), f"{key.entries:,}", bytes_text(key.size),
             f"{100 * key.size / size:.1f} %")
            for key in keys
        ],
    )  # fmt: skip


def _short(value: Any) -> str:
    if value is None:
        return ""
    text = json_text(plain(value))
    return text if len(text) <= LONGEST_KEY else f"{text[:LONGEST_KEY]}..."
