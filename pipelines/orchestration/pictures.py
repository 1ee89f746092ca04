"""Pictures for the Dagster UI: drawn to PNG, carried inside Markdown."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from statelake.pipelines.shown import as_markdown
from statelake.state_core.printable import printable

__all__ = ["commit_chart", "growth_chart", "key_group_histogram", "subtask_chart"]

BAR_COLOR, MEAN_COLOR = "#4F43DD", "#E2574C"
SHOWN_NAME = 24  # characters of a snapshot's name, its last
SIZES = ("bytes_sent", "bytes_saved")


def key_group_histogram(sizes: Sequence[int], title: str) -> str:
    """Bytes of each key group as bars, with their mean, as a Markdown image."""
    return _bars(sizes, title, "key group", width=1.0)


def subtask_chart(sizes: Sequence[int], title: str) -> str:
    """Bytes of each subtask as bars, with their mean: how even the load is, as a Markdown image."""
    return _bars(sizes, title, "subtask", width=0.8)


def growth_chart(names: Sequence[str], sizes: Sequence[int], written: Sequence[int]) -> str:
    """Bytes of a job's snapshots over time, as a Markdown image.

    Args:
        names: The names of the snapshots, the oldest first.
        sizes: Bytes of the state of each.
        written: Bytes that each added to the lake.
    """
    figure = Figure(figsize=(9, 2.6), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    places = range(len(names))
    axes.plot(places, [size / 1024 for size in sizes], "o-", color=BAR_COLOR, label="state")
    axes.plot(places, [size / 1024 for size in written], ".-", color=MEAN_COLOR, label="written")
    axes.set(ylabel="KiB")
    shown = [printable(name)[-SHOWN_NAME:] for name in names]
    axes.set_xticks(places, shown, rotation=30, ha="right", fontsize="small", parse_math=False)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize="small")
    return _image(figure, "growth")


def commit_chart(hours: Sequence[float], counts: Mapping[str, Sequence[int]], title: str) -> str:
    """What commits cost over time, as a Markdown image: milliseconds above, bytes below.

    Args:
        hours: When, in hours from now; up to 0.
        counts: By the names that `CommitMeasures` has, one for each time.
        title: What it is of.
    """
    figure = Figure(figsize=(9, 4.2), dpi=110, layout="constrained")
    times, sizes = figure.subplots(2, 1, sharex=True)
    times.plot(hours, counts["upload_ms"], ".-", color=BAR_COLOR, label="upload")
    times.plot(hours, counts["snapshot_ms"], ".-", color=MEAN_COLOR, label="snapshot")
    for name, look, label in (
        ("commits_skipped", "v", "skipped"),
        ("commits_blocked", "X", "late"),
    ):
        marked = [at for at, count in zip(hours, counts[name], strict=True) if count]
        places = [0] * len(marked)
        if marked:
            times.plot(marked, places, look, color="black", label=f"a commit was {label}")
    times.set(title=title, ylabel="ms")
    kilobytes = {name: [count / 1024 for count in counts[name]] for name in SIZES}
    sizes.plot(hours, kilobytes["bytes_sent"], ".-", color=BAR_COLOR, label="sent")
    sizes.plot(hours, kilobytes["bytes_saved"], ".-", color="#8A8A99", label="there already")
    sizes.set(xlabel="hours from now", ylabel="KiB")
    for axes in (times, sizes):
        axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize="small")
    return _image(figure, title)


def _bars(sizes: Sequence[int], title: str, unit: str, *, width: float) -> str:
    # each table has one: margins that fit all of them take half the time of those that are sought
    figure = Figure(figsize=(9, 2.6), dpi=110)
    figure.subplots_adjust(left=0.08, right=0.99, bottom=0.2, top=0.88)
    axes = figure.add_subplot()
    kilobytes = [size / 1024 for size in sizes]
    # one outline of all bars: a rectangle for each takes thirty times as long
    heights = [height for size in kilobytes for height in (size, 0.0)][:-1]
    edges = [place + side for place in range(len(kilobytes)) for side in (-width / 2, width / 2)]
    if kilobytes:
        axes.stairs(heights, edges, fill=True, color=BAR_COLOR)
    mean = sum(kilobytes) / max(1, len(kilobytes))
    axes.axhline(mean, color=MEAN_COLOR, linewidth=1, label=f"mean {mean:.1f} KiB")
    axes.set(xlabel=unit, ylabel="KiB of state")
    axes.set_title(printable(title), parse_math=False)  # a name may have dollar signs
    axes.margins(x=0.005)
    axes.legend(loc="upper right", frameon=False)
    return _image(figure, title)


def _image(figure: Figure, title: str) -> str:
    data = io.BytesIO()
    figure.savefig(data, format="png")
    encoded = base64.b64encode(data.getvalue()).decode("ascii")
    return f"![{as_markdown(title)}](data:image/png;base64,{encoded})"
