"""A snapshot compared with earlier ones: growth, changes, skew."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import dagster as dg

from statelake.pipelines.lake.tables.describing import describe_recorded
from statelake.pipelines.orchestration.metadata import DRAWN_OPERATORS, markdown_table
from statelake.pipelines.report.drawing import growth_chart, subtask_chart, written_chart
from statelake.pipelines.shown import bytes_text
from statelake.state_core.errors import DamagedLakeError, NotFoundError
from statelake.state_core.printable import change_text, printable

if TYPE_CHECKING:
    from statelake.pipelines.lake.catalog.catalog import Catalog
    from statelake.pipelines.lake.tables.records import SnapshotRecord

SHOWN_SNAPSHOTS = 30
SHOWN_CHANGES = 50


@dataclass(frozen=True)
class SizeChange:
    """A snapshot's size compared with earlier ones.

    Attributes:
        size: Its state, in bytes.
        usual: The median of those taken before; None if it is the first.
        compared: The number of those.
        earliest: The first of these; empty if there is none.
    """

    size: int
    usual: float | None
    compared: int
    earliest: str = ""

    @property
    def times(self) -> float:
        """Return its size as a multiple of the usual one; 1 for the first, or if both are empty."""
        if self.usual is None or self.size == self.usual:
            return 1.0
        return self.size / self.usual if self.usual else float("inf")


def as_taken(summaries: Iterable[SnapshotRecord]) -> list[SnapshotRecord]:
    """Return snapshots in the order in which they were taken, without derived ones.

    Runs may import them in another order. A copy with other types does not show how the job grew.
    """
    return sorted((each for each in summaries if not each.parent), key=lambda each: each.age)


def _until(lake: Catalog, record: SnapshotRecord) -> list[SnapshotRecord]:
    """Return the job's snapshots up to this one, the one taken first is the first."""
    taken = as_taken(lake.summaries(record.job))
    return [*(summary for summary in taken if summary.age < record.age), record]


def growth_of(lake: Catalog, record: SnapshotRecord, last: int) -> SizeChange:
    """Return the growth of a snapshot over the `last` earlier ones."""
    earlier = _until(lake, record)[:-1][-last:]
    if not earlier:
        return SizeChange(record.state_bytes, None, 0)
    usual = median(summary.state_bytes for summary in earlier)
    return SizeChange(record.state_bytes, usual, len(earlier), earlier[0].snapshot_id)


def history_metadata(lake: Catalog, record: SnapshotRecord) -> dict[str, Any]:
    """Return growth, changes since the previous snapshot, and the load of each subtask."""
    until = _until(lake, record)
    shown = until[-SHOWN_SNAPSHOTS:]
    charts = {"growth": growth_chart, "written": written_chart}
    drawn = [draw(shown, record.snapshot_id).markdown(name) for name, draw in charts.items()]
    metadata: dict[str, Any] = {"growth": dg.MetadataValue.md("\n\n".join(drawn))}
    if len(until) > 1:
        before = until[-2].snapshot_id
        try:
            names = (before, record.snapshot_id)
            rows = changes_between(*lake.together((record.job, name) for name in names))
        except (DamagedLakeError, NotFoundError) as error:
            metadata["changes"] = printable(f"not known: snapshot {before!r}: {error.problem}")
        else:
            columns = ("table", "entries", "change", "bytes", "change", "files kept")
            table = markdown_table(columns, rows[:SHOWN_CHANGES])
            metadata["changes"] = dg.MetadataValue.md(table if rows else "none")
            metadata["changes since"] = printable(before)
    keyed = [operator for operator in record.operators if operator.states]
    for operator in sorted(keyed, key=lambda each: -each.state_bytes)[:DRAWN_OPERATORS]:
        load = describe_recorded(operator).load()
        label = printable(operator.label)
        name = f"subtasks of {label}"
        metadata[name] = dg.MetadataValue.md(subtask_chart(load).markdown(name))
        metadata[f"skew of {label}"] = round(load.skew, 4)
    return metadata


def changes_between(before: SnapshotRecord, after: SnapshotRecord) -> list[tuple[str, ...]]:
    """Return the rows of a table of changes: one for each table that differs."""
    old, new = _contents(before), _contents(after)
    rows: list[tuple[str, ...]] = []
    for path in sorted({*old, *new}):
        was, now = old.get(path, _NOTHING), new.get(path, _NOTHING)
        if was == now:
            continue
        more, grown = now.entries - was.entries, now.size - was.size
        kept = len(was.files & now.files)
        rows.append(
            (
                path,
                f"{now.entries:,}",
                f"{more:+,}" if path in old and path in new else "gone" if path in old else "new",
                bytes_text(now.size),
                change_text(grown),
                f"{kept} of {len(now.files)}",
            )
        )
    return rows


@dataclass(frozen=True)
class _Contents:
    entries: int
    size: int
    files: frozenset[str]


_NOTHING = _Contents(0, 0, frozenset())


def _contents(record: SnapshotRecord) -> dict[str, _Contents]:
    contents = {}
    for operator in record.operators:
        for table in operator.tables:
            inside = operator.states_in(table)
            contents[table.path] = _Contents(
                sum(state.entries for state in inside),
                sum(state.state_bytes for state in inside),
                frozenset(file.path for file in table.units),
            )
    return contents
