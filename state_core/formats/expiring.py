"""The share of a snapshot's state that has expired, at a time to live that the user gives.

A snapshot has the time of each value's last access, but no time to live: only the job has that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.errors import NotFoundError, OversizedError, StateError, did_you_mean
from statelake.state_core.formats.key_weights import StateWeights
from statelake.state_core.formats.printed_rows import printed_column
from statelake.state_core.model.snapshot import KeyedState, Snapshot

EVERY = ""  # names all states in `ttl`
TTL = "ttl"


@dataclass(frozen=True)
class ExpiredState:
    """The share of a state that has expired.

    Attributes:
        operator: The operator's uid or id.
        state: The name of the state.
        ttl: The time to live.
        entries: The entries, or the elements of lists.
        expired: How many of them have expired.
        size: The bytes of keys and values.
        expired_size: The bytes of what has expired; of lists if all elements have.
        keys: The first keys of which something has expired, if somebody asked.
    """

    operator: str
    state: str
    ttl: timedelta
    entries: int
    expired: int
    size: int
    expired_size: int
    keys: tuple[Any, ...] = ()

    @property
    def share(self) -> float:
        """The share of the entries that has expired."""
        return self.expired / self.entries if self.entries else 0.0


@dataclass(frozen=True)
class ExpiredShare:
    """The share of a snapshot's state that has expired.

    Attributes:
        at: The time at which it has.
        rule: How that time was chosen.
        states: The states with a time to live.
        unknown: States with times of last access that can't be read, as `operator/state`.
    """

    at: datetime
    rule: str
    states: tuple[ExpiredState, ...]
    unknown: tuple[str, ...] = ()


def expired_in_snapshot(
    snapshot: Snapshot,
    top: Callable[..., Mapping[str, Mapping[str, StateWeights]]],
    ttl: timedelta | Mapping[str, timedelta],
    *,
    at: datetime | None = None,
    keys: bool = False,
    limit: int = 100,
    problems: list[str] | None = None,
) -> ExpiredShare:
    """Return what of a snapshot has expired, by its `top`; arguments as for `Snapshot.expired`.

    Raises:
        NotFoundError: A named state does not exist, or has no times of last access.
        CorruptSnapshotError: The bytes are not entries.
    """
    lives = {EVERY: ttl} if isinstance(ttl, timedelta) else dict(ttl)
    timed = {
        f"{operator.label}/{state.name}": (operator.label, state)
        for operator in snapshot.operators
        for state in operator.keyed_states
        if state.with_ttl
    }
    for name in lives:
        if name != EVERY and name not in timed:
            raise NotFoundError(
                f"no state {name!r} has times of last access",
                remedy=f"these have: {', '.join(timed) or 'none'}{did_you_mean(name, timed)}",
            )
    chosen = {
        name: lives[name] if name in lives else lives[EVERY]
        for name in timed
        if name in lives or EVERY in lives
    }
    unknown = [name for name in chosen if TTL not in timed[name][1].schema.names]
    rule = "as given"
    if at is None:
        times = (_newest_readable(state, problems) for _, state in timed.values())
        newest = max(times, default=None)
        if newest is None or newest == 0:
            at, rule = snapshot.taken_at, "when the snapshot was taken: nothing has a last access"
        else:
            at = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=newest)
            rule = "the newest last access, since a copy changes the time of a snapshot's files"
    every = sorted(set(chosen.values()))
    # all states in one pass
    weighed = top(1, ttl=every, at=at, problems=problems) if chosen else {}
    states = []
    for name, life in chosen.items():
        operator, state = timed[name]
        if name in unknown or state.name not in weighed[operator]:
            continue
        weights = weighed[operator][state.name]
        gone = weights.expiries[every.index(life)]
        try:
            expired_keys = tuple(_keys(state, gone.until, limit)) if keys else ()
        except StateError as error:
            if problems is None or isinstance(error, OversizedError):
                raise
            problems.append(str(error.within(f"operator {operator}, state {state.name!r}")))
            expired_keys = ()
        states.append(
            ExpiredState(
                operator, state.name, life, weights.elements or weights.entries, gone.entries,
                weights.size, gone.size, expired_keys,
            )
        )  # fmt: skip
    return ExpiredShare(at, rule, tuple(states), tuple(unknown))


def _times(state: KeyedState, columns: tuple[str, ...]) -> Iterator[tuple[pa.RecordBatch, Any]]:
    """Yield batches with the oldest and newest access of each row, elements of lists by row."""
    for batch in state.batches(columns=columns):
        times = batch.column(TTL)
        owners = np.arange(len(batch))
        if pa.types.is_list(times.type):
            lengths = pc.fill_null(times.value_lengths(), 0).to_numpy().astype(np.int64)
            owners, times = np.repeat(owners, lengths), times.flatten()
        yield batch, (owners, times.cast(pa.int64()))


def _newest_readable(state: KeyedState, problems: list[str] | None) -> int:
    """Return the newest access in a state; 0 if it can't be read, which `top` says as well."""
    try:
        return _newest(state)
    except OversizedError:
        raise
    except StateError:
        if problems is None:
            raise
        return 0


def _newest(state: KeyedState) -> int:
    """Return the newest access in a state, in epoch milliseconds; 0 if there is none."""
    if TTL not in state.schema.names:
        return 0
    newest = (pc.max(times).as_py() for _, (_, times) in _times(state, (TTL,)))
    return max((time for time in newest if time is not None), default=0)


def _keys(state: KeyedState, until: int, limit: int) -> Iterator[Any]:
    """Yield the first keys of which something has expired, each once in a row of entries."""
    yielded: set[str] = set()
    for batch, (owners, times) in _times(state, ("key", "raw_key", TTL)):
        gone = pc.fill_null(pc.less_equal(times, until), False).to_numpy(zero_copy_only=False)
        rows = np.unique(owners[gone])
        for start in range(0, len(rows), limit):
            some = batch.take(pa.array(rows[start : start + limit]))
            for key in printed_column(state.layout, some, "key", "raw_key"):
                if repr(key) not in yielded:
                    yielded.add(repr(key))
                    yield key
                    if len(yielded) == limit:
                        return
