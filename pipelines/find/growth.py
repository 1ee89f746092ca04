"""The growth of a job's state: how much, in which state, and why.

Sizes are those of keys and values, counted in each snapshot. A trend is a straight line through the
sizes by least squares; it is believed if it explains them better than their ups and downs do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from statelake.pipelines.lake.tables.describing import describe_recorded
from statelake.pipelines.lake.tables.records import OF_FILE, SnapshotRecord, taken_text
from statelake.pipelines.requests.reading import Forecast
from statelake.pipelines.shown import json_text, plain
from statelake.state_core.errors import (
    DeclarationError,
    NotFoundError,
    StateError,
    UnsupportedFormatError,
)
from statelake.state_core.formats.description import (
    OperatorDescription,
    StateDescription,
)
from statelake.state_core.formats.key_weights import HeavyKey
from statelake.state_core.model.handles import IncrementalHandle
from statelake.state_core.printable import (
    Printed,
    Table,
    brief,
    bytes_text,
    change_text,
    json_value,
)

if TYPE_CHECKING:
    from statelake.state_core.formats.key_weights import StateWeights
    from statelake.state_core.formats.reader import Snapshot

DAY = 86_400.0
USUAL = Forecast()
EXPLAINED = 3  # states whose keys are read
PART = 0.1  # of the growth: that of a state worth an explanation
MOST = 0.5  # of the growth: what is called its cause
STEADY = 0.02  # of the size: less is no growth
BELIEVED = 3.0  # the slope of a line, in standard errors
HEAVY_KEYS = 100
SHOWN_GROUPS = 5
GARBAGE = 1.5  # stored bytes for each byte of keys and values
FARTHEST = 100  # times the span of the snapshots: no line is drawn farther
TTLS = (timedelta(days=7), timedelta(days=30), timedelta(days=90))
Name: TypeAlias = "tuple[str, str, bool]"  # of a state: its operator, its name, whether it is keyed


@dataclass(frozen=True)
class Size:
    """The size of one state, or of all, in one snapshot.

    Attributes:
        entries: The entries.
        size: The bytes of their keys and values.
    """

    JSON = ("entries", "bytes=size")

    entries: int
    size: int

    @property
    def each(self) -> float:
        """Bytes for each entry."""
        return self.size / self.entries if self.entries else 0.0


@dataclass(frozen=True)
class Described:
    """A snapshot and its contents.

    Attributes:
        name: Its name.
        snapshot: The snapshot; its keys are read only if they are to explain something.
        operators: Its operators, their entries counted.
        stored: The bytes that its files take.
        compacts: Whether all its keyed state is in files of RocksDB, which keep what is overwritten
            or deleted until they are compacted.
        taken_from: What says when it was taken, as in a snapshot's record.
    """

    name: str
    snapshot: Snapshot
    operators: Sequence[OperatorDescription]
    stored: int
    compacts: bool = False
    taken_from: str = OF_FILE

    @property
    def states(self) -> dict[Name, StateDescription]:
        """All its states that were counted, by name."""
        return {
            (operator.label, state.name, state.mode is None): state
            for operator in self.operators
            for state in operator.states
        }


@dataclass(frozen=True)
class MeasuredSnapshot:
    """One snapshot of a job.

    Attributes:
        snapshot: Its name.
        taken_at: When it was taken.
        total: The size of all its states.
        stored: The bytes that its files take; those of keys and values in a lake.
        compacts: Whether all its keyed state is in files of RocksDB.
        taken_from: Where `taken_at` is from, as in a snapshot's record.
    """

    JSON = (
        "snapshot", "taken_at", "entries=total.entries", "bytes=total.size",
        "stored_bytes=stored", "taken_from",
    )  # fmt: skip

    snapshot: str
    taken_at: datetime
    total: Size
    stored: int
    compacts: bool = False
    taken_from: str = OF_FILE

    @property
    def taken_text(self) -> str:
        """When it was taken, for people."""
        return taken_text(self.taken_at, self.taken_from)

    @property
    def garbage(self) -> float:
        """The bytes that RocksDB stores for each byte of keys and values; 0 if that is unknown."""
        return self.stored / self.total.size if self.compacts and self.total.size else 0.0


@dataclass(frozen=True)
class Trend:
    """A straight line through sizes by time.

    Attributes:
        a_day: The bytes by which it rises in a day.
        error: The standard error of that; infinite with fewer than three sizes.
        change: The bytes from the first size to the last.
        mean: The mean size.
        least: The smallest size.
        largest: The largest size.
    """

    a_day: float
    error: float
    change: int
    mean: float
    least: int
    largest: int

    @property
    def is_believed(self) -> bool:
        """Whether the line explains the sizes better than ups and downs; unknown for two sizes."""
        return math.isfinite(self.error) and abs(self.a_day) >= BELIEVED * self.error

    @property
    def word(self) -> str:
        """`grows`, `shrinks`, `swings` (up and down) or `steady`."""
        swing = self.largest - self.least
        if swing <= STEADY * self.mean:
            return "steady"
        if math.isfinite(self.error) and not self.is_believed and abs(self.change) < MOST * swing:
            return "swings"
        if abs(self.change) <= STEADY * self.mean:
            return "swings"
        return "grows" if self.change > 0 else "shrinks"


@dataclass(frozen=True)
class KeyChanges:
    """Entries of a state in the first and in the last snapshot.

    Attributes:
        added: Entries that only the last one has.
        removed: Entries that only the first one has.
        changed: Entries that have another value.
    """

    added: int
    removed: int
    changed: int


@dataclass
class StateGrowth:
    """The growth of one state.

    Attributes:
        operator: Its operator's uid, or else its id.
        state: Its name.
        kind: Its kind, as in a description.
        value_type: The Java type of its values in the last snapshot that has it.
        with_ttl: Whether values have the time of their last access.
        first: Its size in the first snapshot.
        last: Its size in the last one.
        trend: The line through its sizes.
        cause: Why it grew, in a word; empty if it did not, or if the cause was not computed.
        because: The cause as a part of a sentence.
        hint: What else is known about it, as a sentence.
        keys: The number of keys in the first and in the last snapshot; None if they were not
            counted.
        changes: The entries that came, left and changed; None if they were not compared.
        expired: What is that long without an access in the last snapshot, for each time.
        heaviest: The heaviest key of the last snapshot, if its keys were read.
    """

    JSON = (
        "operator", "state", "kind", "ttl=with_ttl", "cause", "because", "hint", "trend", "first",
        "last", "keys", "changes", "expired", "heaviest",
    )  # fmt: skip

    operator: str
    state: str
    kind: str
    value_type: str
    with_ttl: bool
    first: Size
    last: Size
    trend: Trend
    cause: str = ""
    because: str = ""
    hint: str = ""
    keys: tuple[int, int] | None = None
    changes: KeyChanges | None = None
    expired: list[tuple[str, int, int]] = field(default_factory=list)
    heaviest: HeavyKey | None = None

    @property
    def label(self) -> str:
        """`operator/state`."""
        return f"{self.operator}/{self.state}"

    @property
    def change(self) -> int:
        """The bytes by which it grew."""
        return self.last.size - self.first.size


@dataclass(frozen=True)
class GroupGrowth:
    """The growth of one key group of an operator, in bytes, and its share of the operator's."""

    operator: str
    key_group: int
    first: int
    last: int


@dataclass
class Growth(Printed):
    """The growth of a job's state over some snapshots.

    Attributes:
        steps: The snapshots, the oldest first.
        trend: The line through their sizes.
        states: All states of the first or the last snapshot, the one that grew most first.
        groups: The key groups that grew most, of the operator that grew most.
        skew: The heaviest subtask of that operator by the mean, in the first and last snapshot.
        ahead: The days of the forecast.
    """

    steps: list[MeasuredSnapshot]
    trend: Trend
    states: list[StateGrowth]
    groups: list[GroupGrowth]
    skew: tuple[float, float]
    ahead: float

    @property
    def days(self) -> float:
        """The days from the first snapshot to the last."""
        return (self.steps[-1].taken_at - self.steps[0].taken_at).total_seconds() / DAY

    @property
    def forecast(self) -> tuple[float, float] | None:
        """The bytes in `ahead` days and twice the standard error; None if no line is believed."""
        if not self.trend.is_believed or self.trend.word != "grows":
            return None
        if self.ahead > FARTHEST * self.days:
            return None
        size = self.steps[-1].total.size + self.trend.a_day * self.ahead
        return size, 2 * self.trend.error * self.ahead

    def _rate(self, trend: Trend) -> float | None:
        """Return the bytes of a day; None if no line is believed, or the snapshots are too near."""
        return trend.a_day if trend.is_believed and self.days * FARTHEST >= 1 else None

    @property
    def sentences(self) -> list[str]:
        """The answer: how much, where and why, and what else is known of that."""
        texts = [self._how_much()]
        grown = next((state for state in self.states if state.cause), None)
        if grown is None:
            texts.append("No state grew by enough to look for its cause.")
        else:
            texts.append(f"{self._share(grown)}: {grown.because}.")
            if grown.hint:
                texts.append(grown.hint)
        before, after = self.steps[0].garbage, self.steps[-1].garbage
        if before and after >= GARBAGE and after > 1.2 * before:
            texts.append(
                f"Its files store {after:.1f} bytes for each byte of keys and values"
                f" ({before:.1f} before): RocksDB has not compacted away what was"
                " overwritten or deleted."
            )
        return texts

    def _how_much(self) -> str:
        first, last = self.steps[0], self.steps[-1]
        span = f"from {brief(first.snapshot)} to {brief(last.snapshot)} ({_days(self.days)})"
        sizes = f"{bytes_text(first.total.size)} to {bytes_text(last.total.size)}"
        word = self.trend.word
        if word == "steady":
            return f"State does not grow: {sizes} {span}."
        if word == "swings":
            least, largest = bytes_text(self.trend.least), bytes_text(self.trend.largest)
            return (
                f"State goes up and down between {least} and {largest} {span}, and does not grow"
                " as a whole."
            )
        a_day = self._rate(self.trend)
        rate = "" if a_day is None else f", by {bytes_text(abs(a_day))} a day"
        text = f"State {'grew' if word == 'grows' else 'shrank'} from {sizes} {span}{rate}"
        if self.forecast is not None:
            size, error = self.forecast
            text += (
                f"; at this rate it is {bytes_text(size)} in {_days(self.ahead)}, give or take"
                f" {bytes_text(error)}"
            )
        elif word == "grows":
            text += "; too little is known for a forecast"
        return f"{text}."

    def _share(self, state: StateGrowth) -> str:
        """Return whose growth it is, in words: a state's, or an operator's in all its states."""
        grown = sum(each.change for each in self.states if each.change > 0)
        share = state.change / grown
        label = brief(state.label)
        if share >= MOST:
            return f"{label} has {share:.0%} of the growth"
        mine = [each for each in self.states if each.operator == state.operator]
        all_of_it = sum(each.change for each in mine if each.change > 0) / grown
        if all_of_it < MOST:
            return f"Many states grow; {label} has most, {share:.0%} of the growth"
        return (
            f"{brief(state.operator)} has {all_of_it:.0%} of the growth, spread over its states;"
            f" {label} has most, {share:.0%}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        forecast = self.forecast
        return {
            "sentences": self.sentences,
            "trend": self._trend_json(self.trend),
            "forecast": None if forecast is None else {
                "days": self.ahead, "bytes": round(forecast[0]), "error": round(forecast[1]),
            },
            "snapshots": json_value(self.steps),
            "states": [self._state_json(state) for state in self.states],
            "key_groups": json_value(self.groups),
            "skew": list(self.skew),
        }  # fmt: skip

    def _trend_json(self, trend: Trend) -> dict[str, Any]:
        rate = self._rate(trend)
        return {
            "word": trend.word, "bytes_a_day": None if rate is None else round(rate),
            "error": round(trend.error) if math.isfinite(trend.error) else None,
            "change": trend.change,
        }  # fmt: skip

    def _state_json(self, state: StateGrowth) -> dict[str, Any]:
        expired = [
            {"unused_for": time, "entries": entries, "bytes": size}
            for time, entries, size in state.expired
        ]
        trend = self._trend_json(state.trend)
        return {**plain(json_value(state)), "trend": trend, "expired": expired}

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: lines and tables."""
        yield from self.sentences
        rows = [
            (brief(each.label), each.kind, bytes_text(each.first.size), bytes_text(each.last.size),
             change_text(each.change), "" if rate is None else change_text(rate),
             f"{each.first.entries:,}",
             f"{each.last.entries:,}", f"{each.first.each:,.0f}", f"{each.last.each:,.0f}",
             each.cause)
            for each in self.states
            for rate in [self._rate(each.trend)]
        ]  # fmt: skip
        columns = (
            "<state", "<kind", ">first", ">last", ">change", ">a day", ">entries", ">then",
            ">bytes each", ">then", "<cause",
        )  # fmt: skip
        yield ""
        yield Table("states, by what they grew", columns, rows)
        yield ""
        steps = [
            (brief(step.snapshot), step.taken_text, f"{step.total.entries:,}",
             bytes_text(step.total.size))
            for step in self.steps
        ]  # fmt: skip
        yield Table("snapshots", ("<snapshot", "<taken", ">entries", ">bytes"), steps)
        if any(step.taken_from == OF_FILE for step in self.steps):
            yield "? when the file `_metadata` was last written, which a copy changes"
        if self.groups:
            yield ""
            operator, (before, after) = brief(self.groups[0].operator), self.skew
            title = f"key groups of {operator} that grew most; skew {before:.3f}, then {after:.3f}"
            yield Table.of(title, (">key group", ">first:B", ">last:B"), self.groups)


def described(snapshot: Snapshot) -> Described:
    """Return a savepoint or checkpoint, all of whose state is counted.

    Raises:
        CorruptSnapshotError: The bytes are not entries.
    """
    operators = snapshot.describe(entries=True).operators
    for operator in operators:
        for state in operator.keyed_states:
            if state.uncounted:
                place = f"{snapshot.location}, state {operator.label}/{state.name}"
                raise UnsupportedFormatError(state.uncounted, place=place)
    name = snapshot.location.rstrip("/").rpartition("/")[2]
    keyed = [
        subtask.managed_keyed
        for operator in snapshot.metadata.operators
        for subtask in (operator.subtasks or {}).values()
        if subtask.managed_keyed is not None
    ]
    compacts = bool(keyed) and all(isinstance(each, IncrementalHandle) for each in keyed)
    return Described(name, snapshot, operators, snapshot.total_bytes, compacts)


def recorded(snapshot: Snapshot, record: SnapshotRecord) -> Described:
    """Return a snapshot of the lake, as the catalog counted it.

    Args:
        snapshot: The snapshot.
        record: All that the lake knows of it.
    """
    operators = [describe_recorded(operator) for operator in record.operators]
    return Described(
        record.snapshot_id, snapshot, operators, record.state_bytes, taken_from=record.taken_from
    )


def growth_of(
    snapshots: Iterable[Described],
    request: Forecast = USUAL,
    compare: Callable[[str, str, str, str], KeyChanges] | None = None,
) -> Growth:
    """Return how state grew from the first to the last of some snapshots, and why.

    Args:
        snapshots: At least two, in any order; only the first and the last are held.
        request: How far it is looked into: keys are read in the first and last snapshot.
        compare: Compares the entries of a state, given its operator, its name, and the names of the
            first and the last snapshot. Without it nobody knows which entries left.

    Raises:
        DeclarationError: No forecast is of that many days.
        NotFoundError: There are fewer than two snapshots.
        CorruptSnapshotError: The bytes are not entries.
    """
    if math.isnan(request.ahead):
        raise DeclarationError("a forecast of nan days", remedy="give a number of days")
    ordered = sorted(snapshots, key=lambda each: each.snapshot.taken_at)
    if len(ordered) < 2:
        raise NotFoundError(
            "growth needs two snapshots at least", remedy="import another one of the job"
        )
    before, after = ordered[0], ordered[-1]
    times = [each.snapshot.taken_at for each in ordered]
    by_snapshot = [each.states for each in ordered]
    steps = [
        MeasuredSnapshot(
            each.name, time, _total(states.values()), each.stored, each.compacts, each.taken_from
        )
        for each, time, states in zip(ordered, times, by_snapshot, strict=True)
    ]
    named = {
        name: _state_growth(name, times, [each.get(name) for each in by_snapshot])
        for name in dict.fromkeys([*by_snapshot[0], *by_snapshot[-1]])
    }
    by_growth = sorted(named.items(), key=lambda each: (-each[1].change, each[1].label))
    states = [state for _, state in by_growth]
    trend = _trend(times, [step.total.size for step in steps])
    grown = sum(each.change for each in states if each.change > 0)
    if trend.word == "grows":
        for name, state in by_growth[:EXPLAINED]:
            if state.change >= PART * grown and state.change > 0:
                _explain(
                    name, state, before, after, by_snapshot, ordered, compare, keys=request.keys
                )
    groups, skew = _groups(states, before, after)
    return Growth(steps, trend, states, groups, skew, request.ahead)


def _total(states: Iterable[StateDescription]) -> Size:
    sizes = [_size(state) for state in states]
    return Size(sum(each.entries for each in sizes), sum(each.size for each in sizes))


def _size(state: StateDescription | None) -> Size:
    return Size(0, 0) if state is None else Size(state.entries or 0, state.size or 0)


def _state_growth(
    name: Name, times: Sequence[datetime], descriptions: Sequence[StateDescription | None]
) -> StateGrowth:
    sizes = [_size(each) for each in descriptions]
    known = next(each for each in reversed(descriptions) if each is not None)
    trend = _trend(times, [each.size for each in sizes])
    return StateGrowth(
        *name[:2], known.kind, known.value_type, known.with_ttl, sizes[0], sizes[-1], trend
    )


def _trend(times: Sequence[datetime], sizes: Sequence[int]) -> Trend:
    """Return the line through sizes by least squares."""
    days = [(time - times[0]).total_seconds() / DAY for time in times]
    count = len(sizes)
    middle, mean = sum(days) / count, sum(sizes) / count
    spread = sum((day - middle) ** 2 for day in days)
    slope, error = 0.0, math.inf
    if spread:
        pairs = list(zip(days, sizes, strict=True))
        slope = sum((day - middle) * (size - mean) for day, size in pairs) / spread
        if count > 2:
            left = sum((size - mean - slope * (day - middle)) ** 2 for day, size in pairs)
            error = math.sqrt(left / (count - 2) / spread)
    return Trend(slope, error, sizes[-1] - sizes[0], mean, min(sizes), max(sizes))


def _explain(
    name: Name,
    state: StateGrowth,
    before: Described,
    after: Described,
    by_snapshot: Sequence[dict[Name, StateDescription]],
    ordered: Sequence[Described],
    compare: Callable[[str, str, str, str], KeyChanges] | None,
    *,
    keys: bool,
) -> None:
    """Fill in the cause of a state's growth."""
    old, new = by_snapshot[0].get(name), by_snapshot[-1].get(name)
    if old is None:
        since = next(
            each.name for each, states in zip(ordered, by_snapshot, strict=True) if name in states
        )
        state.cause, state.because = "new state", f"it is new since {brief(since)}"
    elif new is not None and _types(old) != _types(new):
        state.cause = "new type"
        state.because = f"it was a {_type_words(old, new)}, and is a {_type_words(new, old)}"
    else:
        _explain_sizes(state)
    if new is None or new.mode is not None or not keys:
        return
    weights = _weights(after.snapshot, state, TTLS)
    first = None if old is None else _weights(before.snapshot, state, ())
    if weights is None:
        return
    state.heaviest = next(iter(weights.heaviest()), None)
    state.keys = (0 if first is None else first.keys), weights.keys
    state.expired = [
        (f"{ttl.days}d", expiry.entries, expiry.size)
        for ttl, expiry in zip(TTLS, weights.expiries, strict=False)
    ]
    if first is not None and compare is not None:
        try:
            state.changes = compare(state.operator, state.state, before.name, after.name)
        except StateError as error:
            state.hint = f"Which entries left is not known: {error.problem}."
    if first is not None and state.cause not in ("new state", "new type"):
        _explain_keys(state, first, weights)
    state.hint = state.hint or _hint(state)


def _types(state: StateDescription) -> tuple[object, ...]:
    return (
        state.kind, state.key_type, state.namespace_type, state.user_key_type, state.value_type,
        state.with_ttl,
    )  # fmt: skip


def _type_words(state: StateDescription, other: StateDescription) -> str:
    """Return the type of a state in words, with what is another type than another one's."""
    text = f"{state.kind} of {state.type_text}" if state.type_text else f"queue of {state.kind}"
    if state.mode is None and state.key_type != other.key_type:
        text += f", keyed by {brief(state.key_type)}"
    if state.namespace_type != other.namespace_type:
        text += f", of the namespace {brief(state.namespace_type)}"
    return text


def _explain_sizes(state: StateGrowth) -> None:
    """Say whether there are more entries, or larger ones."""
    first, last = state.first, state.last
    more = (last.entries - first.entries) * (first.each or last.each)
    counts = f"{first.entries:,} to {last.entries:,}"
    if state.kind == "timers":
        state.cause = "timers"
        state.because = f"its timers that have not fired went from {counts}"
    elif more >= MOST * state.change:
        state.cause = "more entries"
        state.because = (
            f"its entries went from {counts}, and are {_as_large(first.each, last.each)}"
        )
    else:
        state.cause = "larger values"
        state.because = (
            f"its entries went from {first.each:,.0f} to {last.each:,.0f} bytes each, and their"
            f" number from {counts}"
        )


def _explain_keys(state: StateGrowth, first: StateWeights, last: StateWeights) -> None:
    """Say which keys have the growth, if the keys tell more than the entries."""
    heaviest = state.heaviest
    if heaviest is not None:
        earlier = _earlier_size(heaviest, first)
        if heaviest.size - earlier >= MOST * state.change and last.keys > 1:
            shown = brief(json_text(plain(heaviest.key)), 80)
            state.cause = "one key"
            state.because = (
                f"the key {shown} went from {'at most ' if earlier else ''}{bytes_text(earlier)} to"
                f" {bytes_text(heaviest.size)}, {heaviest.size / max(1, state.last.size):.0%} of it"
            )
            return
    if state.kind == "timers":
        return
    keys = f"{first.keys:,} to {last.keys:,}"
    if state.kind == "list" and first.elements and state.cause == "larger values":
        each = [weights.elements / max(1, weights.entries) for weights in (first, last)]
        if each[1] > 1.2 * each[0]:
            state.cause = "longer lists"
            state.because = (
                f"its lists went from {each[0]:,.1f} to {each[1]:,.1f} elements each, those of"
                f" {keys} keys"
            )
    elif state.kind == "map" and state.cause == "more entries":
        each = [weights.entries / max(1, weights.keys) for weights in (first, last)]
        if each[1] > 1.2 * each[0] and last.keys - first.keys < MOST * first.keys:
            state.cause = "larger maps"
            state.because = (
                f"its maps went from {each[0]:,.1f} to {each[1]:,.1f} entries each, those of"
                f" {keys} keys"
            )
    if state.cause == "more entries":
        state.cause = "more keys"
        state.because = (
            f"its keys went from {keys}, and entries are"
            f" {_as_large(state.first.each, state.last.each)}"
        )


def _earlier_size(key: HeavyKey, first: StateWeights) -> int:
    """Return the bytes of a key in the first snapshot, or how many they are at most."""
    heaviest = first.heaviest()
    for each in heaviest:
        if each.key == key.key and each.key_group == key.key_group:
            return each.size
    return heaviest[-1].size if len(heaviest) == HEAVY_KEYS else 0


def _hint(state: StateGrowth) -> str:
    """Return what else is known: whether keys leave, and what a time to live would free."""
    hints = []
    changes = state.changes
    if changes is not None and state.first.entries:
        stayed = state.first.entries - changes.removed
        left = "none has left" if not changes.removed else f"{changes.removed:,} have left"
        same = stayed - changes.changed
        hints.append(
            f"Of its first {state.first.entries:,} entries {left}, and {same:,} have not changed"
            " since"
        )
    freed = [each for each in state.expired if each[1]]
    if freed:
        time, entries, size = freed[0]
        hints.append(
            f"{entries:,} entries ({bytes_text(size)}) were not accessed in the last {time}, which"
            " a time to live of that length would free"
        )
    elif not state.with_ttl and state.kind != "timers":
        hints.append("it has no time to live" if hints else "It has no time to live")
    return f"{'; '.join(hints)}." if hints else ""


def _weights(
    snapshot: Snapshot, state: StateGrowth, ttl: Sequence[timedelta]
) -> StateWeights | None:
    """Return the keys of a state; None if it has none."""
    weights = snapshot.top(HEAVY_KEYS, operator=state.operator, state=state.state, ttl=ttl)
    return weights.get(state.operator, {}).get(state.state)


def _groups(
    states: Sequence[StateGrowth], before: Described, after: Described
) -> tuple[list[GroupGrowth], tuple[float, float]]:
    """Return the key groups that grew most, of the operator with most of the growth."""
    label = states[0].operator if states and states[0].change > 0 else ""
    sides = [
        next((each for each in side.operators if each.label == label), None)
        for side in (before, after)
    ]
    old, new = sides
    if old is None or new is None or not new.keyed_states:
        return [], (1.0, 1.0)
    skew = old.load().skew, new.load().skew
    if old.max_parallelism != new.max_parallelism:
        return [], skew
    grown = new.sizes - old.sizes
    most = [int(group) for group in (-grown).argsort(kind="stable")[:SHOWN_GROUPS]]
    groups = [
        GroupGrowth(label, group, int(old.sizes[group]), int(new.sizes[group]))
        for group in most
        if grown[group] > 0
    ]
    return groups, skew


def _as_large(before: float, after: float) -> str:
    if not before:
        return f"of {after:,.0f} bytes each"
    if abs(after - before) <= 0.05 * before:
        return "as large as before"
    return f"{after:,.0f} bytes each, {before:,.0f} before"


def _days(days: float) -> str:
    if days >= 2:
        return f"{days:.0f} days"
    hours = days * 24
    if hours >= 2:
        return f"{hours:.0f} hours"
    return f"{hours * 60:.0f} minutes" if hours >= 1 / 30 else f"{hours * 3600:.0f} seconds"
