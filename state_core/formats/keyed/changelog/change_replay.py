"""The changes of one key group applied to the entries that they touch.

Materialized entries without changes are passed on at once. The others are put into tables by their
bytes, on which the changes are then applied one after the other, as in a restore by Flink. The
results are entries in the unified format::

    operation                   state                  what follows its key and namespace
    0 CLEAR                     all but timers         nothing
    1 SET, 2 SET_INTERNAL       all but map, timers    the value; of a list i32 n, n elements
    3 ADD                       list, map              i32 n, n elements, or entries with null flags
    4 MERGE_NS                  list, reducing,        the namespace, i32 n, n namespaces that
                                aggregating            become part of it
    5 ADD_ELEMENT               list, map              an element, or user key and value
                                timers                 i32 n, n timers
    6 ADD_OR_UPDATE_ELEMENT     map                    user key and value
    7 REMOVE_ELEMENT            map, timers            the user key, or the timer
    8 REMOVE_FIRST_ELEMENT      timers                 nothing; only old versions of Flink write it

Source: the `*StateChangeApplier` classes in `org.apache.flink.state.changelog.restore`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

import numpy as np

from statelake.state_core.errors import StateError
from statelake.state_core.formats.keyed.changelog.change_log import GroupChanges
from statelake.state_core.formats.keyed.changelog.change_tables import (
    CLEAR,
    SET_INTERNAL,
    ChangeTable,
    Values,
    check_ends,
    refused,
    table_of,
)
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.layout.keys import behind_parts
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.snapshot import StateKind

HEAD = 3  # u8 operation, i16 state id
BATCH_ROWS = 1 << 17


def replayed(
    changes: GroupChanges,
    group: int,
    layouts: Sequence[KeyedLayout],
    names: Sequence[str],
    before: Iterable[Entries],
) -> Iterator[Entries]:
    """Yield the entries of a key group after its changes.

    Args:
        changes: The changes.
        group: The key group.
        layouts: The layout of each state's entries, as `Head.walking` returns it.
        names: The name of each state.
        before: The entries before the changes, of all states.

    Raises:
        CorruptSnapshotError: A change does not match its state's types.
        UnsupportedFormatError: A change can't be applied without the job's own code.
    """
    tables = {}
    for state in np.unique(changes.states).tolist():
        tables[state] = table_of(layouts[state])
        _note(changes, state, tables[state], names[state])
    for entries in before:
        yield from _untouched(entries, tables)
    for state, table in tables.items():
        where = f"{changes.place(0)}, key group {group}, state {names[state]!r}"
        try:
            yield from _entries(table.apply(), state, group, where)
        except StateError as error:
            raise error.within(where) from error


def _note(changes: GroupChanges, state: int, table: ChangeTable, name: str) -> None:
    """Add a state's changes to its table."""
    rows = np.flatnonzero(changes.states == state)
    starts, ends = changes.starts[rows], changes.ends[rows]
    keys, layout, content = starts + HEAD, table.layout, changes.content
    middles = behind = keys
    if layout.kind is not StateKind.TIMERS:
        try:
            check_ends(layout.key, layout.namespace)
            parts = (layout.key, layout.namespace)
            middles, behind = behind_parts(parts, changes.data, keys, ends, changes.place)
        except StateError as error:
            raise error.within(f"a log of changes, state {name!r}") from error
    operations = changes.data[starts]
    if isinstance(table, Values) and not table.ambiguous and operations.max() <= SET_INTERNAL:
        spans = list(zip(keys.tolist(), behind.tolist(), ends.tolist(), strict=True))
        cleared = (operations == CLEAR).tolist()
        table.overwrite(
            (content[first:rest] for first, rest, _ in spans),
            (None if gone else content[rest:end]
             for gone, (_, rest, end) in zip(cleared, spans, strict=True)),
        )  # fmt: skip
        return
    bounds = (array.tolist() for array in (starts, keys, middles, behind, ends))
    for start, first, middle, rest, end in zip(*bounds, strict=True):
        operation, key = content[start], content[first:middle]
        try:
            if operation not in table.operations:
                raise refused(operation, layout.kind)
            table.add(operation, table.full_key(key, content[middle:rest]), key, content[rest:end])
        except StateError as error:
            raise error.within(f"{changes.place(start)}, state {name!r}") from error


def _untouched(entries: Entries, tables: Mapping[int, ChangeTable]) -> Iterator[Entries]:
    """Yield the entries without changes, and put the others into their tables."""
    stays = np.ones(len(entries), bool)
    for state, table in tables.items():
        rows = np.flatnonzero(entries.state_of == state)
        if rows.size:
            mine = entries.take(rows)
            touched = table.has_change(mine).astype(bool)
            table.add_entries(mine.take(np.flatnonzero(touched)))
            stays[rows[touched]] = False
    if stays.all():
        yield entries
    elif stays.any():
        yield entries.take(np.flatnonzero(stays))


def _entries(
    pairs: Iterator[tuple[bytes, bytes]], state: int, group: int, where: str
) -> Iterator[Entries]:
    """Yield keys and values as entries of one state."""
    while batch := list(islice(pairs, BATCH_ROWS)):
        parts = list(chain.from_iterable(batch))
        sizes = np.fromiter(map(len, parts), np.int64, len(parts))
        bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
        starts, middles, ends = map(
            np.ascontiguousarray, (bounds[:-1:2], bounds[1::2], bounds[2::2])
        )
        data = np.frombuffer(b"".join(parts), np.uint8)
        states = np.full(len(batch), state, np.int16)
        groups = np.full(len(batch), group, np.int64)
        yield Entries(
            data, states, groups, starts, middles, middles, ends,
            lambda position: f"{where}, byte {position} of what the changes made",
        )  # fmt: skip
