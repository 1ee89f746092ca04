"""Charts as SVG: bars that stretch with the enclosing element, with their text below them.

The page of a report has them as elements, whose colours its script changes; the Dagster UI has the
same bars and captions as an image inside Markdown, which shows `data:` images of any type.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from statelake.pipelines.report.markup import Html, tag
from statelake.pipelines.shown import as_markdown, bytes_text
from statelake.state_core.formats.description import Load
from statelake.state_core.model.key_groups import key_group_ranges

if TYPE_CHECKING:
    from statelake.pipelines.find.growth import Growth

BARS, TIMES = 256, 96  # more bars can't be distinguished
FEWEST = 24  # the fewest places of a chart, so that single bars do not fill the page
HEIGHT = 1000
WIDTH = 1000  # of a line
LEAST, MARK = 4, 40  # of HEIGHT: a bar of any bytes is visible, and so is a mark
COLOURS = {"first": "#4f7fdd", "second": "#d07030"}  # legible on white and black


class GrowthPoint(Protocol):
    """A snapshot of a job, with the values that a chart of its growth needs."""

    @property
    def snapshot_id(self) -> str:
        """Its id."""

    @property
    def state_bytes(self) -> int:
        """The bytes of all keys and values."""

    @property
    def written_bytes(self) -> int:
        """The bytes that it added to the lake."""


@dataclass(frozen=True)
class DrawnBar:
    """A bar: its height (at most `HEIGHT`), its name, and whether it has the second colour."""

    height: int
    name: str
    second: bool = False


@dataclass(frozen=True)
class Chart:
    """A row of bars.

    Attributes:
        bars: The bars, from left to right.
        caption: The text below the bars.
        places: The number of bars for which there is room.
    """

    bars: list[DrawnBar]
    caption: str
    places: int

    def figure(self, id_: str) -> Html:
        """Return the chart as an element of a page; the script finds it by the id."""
        bars = (
            tag(
                "rect", tag("title", bar.name), x=at * 10, y=HEIGHT - bar.height, width=9,
                height=bar.height, class_="second" if bar.second else "first",
            )
            for at, bar in enumerate(self.bars)
        )  # fmt: skip
        picture = tag(
            "svg", *bars, id=id_, viewBox=f"0 0 {self.places * 10} {HEIGHT}",
            preserveAspectRatio="none", role="img", aria_labelledby=f"{id_}-caption",
        )  # fmt: skip
        return tag("figure", picture, tag("figcaption", self.caption, id=f"{id_}-caption"))

    def markdown(self, title: str) -> str:
        """Return the chart as an image inside Markdown, with the caption below it."""
        paths = []
        for class_, colour in COLOURS.items():
            outline = "".join(
                f"M{at * 10} {HEIGHT}v-{bar.height}h9v{bar.height}z"
                for at, bar in enumerate(self.bars)
                if bar.height and bar.second == (class_ == "second")
            )
            paths.append(tag("path", d=Html(outline), fill=colour))
        picture = tag(
            "svg", *paths, xmlns="http://www.w3.org/2000/svg", width=900, height=160,
            viewBox=f"0 0 {self.places * 10} {HEIGHT}", preserveAspectRatio="none",
        )  # fmt: skip
        encoded = base64.b64encode(picture.encode()).decode("ascii")
        image = f"![{as_markdown(title)}](data:image/svg+xml;base64,{encoded})"
        return f"{image}\n\n{as_markdown(self.caption)}"


def key_group_chart(sizes: npt.NDArray[np.int64], parallelism: int) -> Chart:
    """Draw the bytes of key groups; those of every second subtask have the second colour.

    Args:
        sizes: The bytes of each key group.
        parallelism: The number of subtasks.
    """
    groups = len(sizes)
    ranges = key_group_ranges(groups, parallelism)
    owners = np.repeat(np.arange(parallelism), [len(owned) for owned in ranges])
    bars, step = _bars(sizes, "key group", owners)
    heavy = int(np.argmax(sizes))
    wide = f", {step} to a bar" if step > 1 else ""
    caption = (
        f"Bytes by key group, 0 to {groups - 1}{wide}; the two colours are those of one subtask"
        f" and the next. {int(np.count_nonzero(sizes)):,} of {groups:,} have data; the"
        f" heaviest is {heavy} with {bytes_text(int(sizes[heavy]))}, the mean is"
        f" {bytes_text(int(sizes.sum()) / groups)}."
    )
    return Chart(bars, caption, len(bars))


def subtask_chart(load: Load) -> Chart:
    """Draw the bytes of each subtask."""
    sizes = np.array(load.sizes, np.int64)
    bars, step = _bars(sizes, "subtask", np.zeros(len(sizes), np.int64))
    wide = f" Bytes by subtask, {step} to a bar." if step > 1 else ""
    return Chart(bars, f"{load}{wide}", max(FEWEST, len(bars)))


def _bars(
    sizes: npt.NDArray[np.int64], what: str, owners: npt.NDArray[np.int64]
) -> tuple[list[DrawnBar], int]:
    """Return at most `BARS` bars of numbered values, and how many values each bar combines."""
    step = -(-len(sizes) // BARS)
    firsts = np.arange(0, len(sizes), step)
    sums = np.add.reduceat(sizes, firsts).tolist()
    heights = _heights(sums)
    bars = []
    for first, size, height, owner in zip(
        firsts.tolist(), sums, heights, owners[firsts].tolist(), strict=True
    ):
        last = min(first + step, len(sizes)) - 1
        name = f"{what} {first}" if first == last else f"{what}s {first} to {last}"
        bars.append(DrawnBar(height, f"{name}: {bytes_text(size)}", bool(owner % 2)))
    return bars, step


def _heights(sizes: Sequence[int]) -> list[int]:
    highest = max([1, *sizes])
    return [max(LEAST, HEIGHT * size // highest) if size else 0 for size in sizes]


def growth_chart(steps: Sequence[GrowthPoint], snapshot_id: str) -> Chart:
    """Draw the bytes of a job's snapshots; one of them has the second colour."""
    sizes = [step.state_bytes for step in steps]
    caption = (
        f"Bytes of keys and values, snapshot by snapshot, the oldest first; the highest is"
        f" {bytes_text(max(sizes))}, and {snapshot_id} is in the other colour."
    )
    return _of_steps(steps, sizes, caption, snapshot_id)


def growth_line(growth: Growth, snapshot_id: str = "") -> Html:
    """Return a line of the bytes of a job's state by time, from 0 to the highest.

    Args:
        growth: The growth of the job.
        snapshot_id: A snapshot that is marked on the line.
    """
    steps = growth.steps
    begins, ends = steps[0].taken_at, steps[-1].taken_at
    span = (ends - begins).total_seconds() or 1
    highest = max(1, *(step.total.size for step in steps))
    places = [
        (
            WIDTH * (step.taken_at - begins).total_seconds() / span,
            HEIGHT * step.total.size / highest,
        )
        for step in steps
    ]
    points = Html(" ".join(f"{x:.1f},{HEIGHT - y:.1f}" for x, y in places))  # not cut
    caption = (
        f"Bytes of keys and values from {begins:%Y-%m-%d %H:%M} to {ends:%Y-%m-%d %H:%M} UTC; the"
        f" top is {bytes_text(highest)}, the bottom 0."
    )
    marks = [
        tag(
            "rect", tag("title", f"{step.snapshot}: {bytes_text(step.total.size)}"),
            x=f"{min(x, WIDTH - LEAST):.1f}", y=f"{HEIGHT - y:.1f}", width=LEAST, height=f"{y:.1f}",
            class_="second",
        )
        for step, (x, y) in zip(steps, places, strict=True)
        if step.snapshot == snapshot_id
    ]  # fmt: skip
    if marks:
        caption += f" The bar is {snapshot_id}."
    picture = tag(
        "svg", tag("polyline", points=points, class_="line"), *marks, id="growth",
        viewBox=f"0 0 {WIDTH} {HEIGHT}", preserveAspectRatio="none", role="img",
        aria_labelledby="growth-caption",
    )  # fmt: skip
    return tag("figure", picture, tag("figcaption", caption, id="growth-caption"))


def written_chart(steps: Sequence[GrowthPoint], snapshot_id: str) -> Chart:
    """Draw the bytes that each of a job's snapshots added to the lake."""
    sizes = [step.written_bytes for step in steps]
    caption = f"Bytes added to the lake by each snapshot; highest: {bytes_text(max(sizes))}."
    return _of_steps(steps, sizes, caption, snapshot_id)


def _of_steps(
    steps: Sequence[GrowthPoint], sizes: Sequence[int], caption: str, snapshot_id: str
) -> Chart:
    bars = [
        DrawnBar(height, f"{step.snapshot_id}: {bytes_text(size)}", step.snapshot_id == snapshot_id)
        for step, size, height in zip(steps, sizes, _heights(sizes), strict=True)
    ]
    return Chart(bars, caption, max(FEWEST, len(bars)))


def commit_charts(hours: Sequence[float], counts: Mapping[str, Sequence[int]]) -> dict[str, Chart]:
    """Draw the costs of commits over time: milliseconds and bytes, each with its name.

    Args:
        hours: The times, in hours from now, ascending; up to 0.
        counts: By the names of `CommitMeasures`, one count for each time.
    """
    late = np.add(counts["commits_skipped"], counts["commits_blocked"])
    span = f"from {-hours[0]:.1f} to {-hours[-1]:.1f} hours ago"
    places = np.zeros(len(hours), np.int64)
    if hours[-1] > hours[0]:
        places = ((np.array(hours) - hours[0]) / (hours[-1] - hours[0]) * (TIMES - 1)).astype(int)
    charts = {}
    for name, text in (
        ("upload_ms", "Milliseconds of uploads"), ("snapshot_ms", "Milliseconds of snapshots"),
        ("bytes_sent", "Bytes sent"), ("bytes_saved", "Bytes that were there already"),
    ):  # fmt: skip
        sums = np.bincount(places, counts[name], TIMES).astype(np.int64).tolist()
        marked = np.bincount(places, late, TIMES) > 0
        most = bytes_text(max(sums)) if name.startswith("bytes") else f"{max(sums):,} ms"
        bars = [
            DrawnBar(max(height, MARK if mark else 0), "", bool(mark))
            for height, mark in zip(_heights(sums), marked, strict=True)
        ]
        caption = f"{text}, {span}; the highest is {most}."
        if marked.any():
            caption += " Where a commit was skipped or late, bars have the other colour."
        charts[text.lower()] = Chart(bars, caption, TIMES)
    return charts
