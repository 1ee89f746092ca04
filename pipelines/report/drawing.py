"""Pictures as SVG within the page: they stretch with it, so their text stands below them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from statelake.pipelines.report.contents import GrowthStep, I64Array, ReportedOperator
from statelake.pipelines.report.markup import Html, tag
from statelake.pipelines.shown import bytes_text
from statelake.state_core.model.key_groups import key_group_ranges

__all__ = ["draw_growth", "draw_key_groups"]

BARS = 256  # more can't be told apart
FEWEST = 24  # bars of a few snapshots are not as wide as the page
HEIGHT = 1000
LEAST = 4  # of HEIGHT: what has any bytes is seen


def draw_key_groups(operator: ReportedOperator, id_: str) -> Html:
    """The bytes of key groups as bars; those of every second subtask have another colour.

    Args:
        operator: An operator with keyed state.
        id_: The picture's id, by which the script finds it.
    """
    groups = operator.max_parallelism
    step = -(-groups // BARS)
    firsts = np.arange(0, groups, step)
    sizes: I64Array = np.add.reduceat(operator.sizes, firsts)
    highest = max(1, int(sizes.max()))
    owners = np.repeat(
        np.arange(operator.parallelism),
        [len(owned) for owned in key_group_ranges(groups, operator.parallelism)],
    )[firsts]
    bars = []
    for at, (first, size, owner) in enumerate(
        zip(firsts.tolist(), sizes.tolist(), owners.tolist(), strict=True)
    ):
        last = min(first + step, groups) - 1
        name = f"key group {first}" if first == last else f"key groups {first} to {last}"
        height = max(LEAST, HEIGHT * size // highest) if size else 0
        bars.append(
            _bar(at, height, f"{name}: {bytes_text(size)}", "second" if owner % 2 else "first")
        )
    heavy = int(np.argmax(operator.sizes))
    mean = int(operator.sizes.sum()) / groups
    wide = f", {step} to a bar" if step > 1 else ""
    caption = (
        f"Bytes by key group, 0 to {groups - 1}{wide}; the two colours are those of one subtask"
        f" and the next. {int(np.count_nonzero(operator.sizes)):,} of {groups:,} have data; the"
        f" heaviest is {heavy} with {bytes_text(int(operator.sizes[heavy]))}, the mean is"
        f" {bytes_text(mean)}."
    )
    return _figure(bars, len(firsts), caption, id_)


def draw_growth(steps: Sequence[GrowthStep], snapshot_id: str) -> Html:
    """The bytes of a job's snapshots as bars, that of the report in the other colour."""
    highest = max(step.state_bytes for step in steps)
    bars = [
        _bar(
            at,
            HEIGHT * step.state_bytes // max(1, highest),
            f"{step.snapshot_id}: {bytes_text(step.state_bytes)}",
            "second" if step.snapshot_id == snapshot_id else "first",
        )
        for at, step in enumerate(steps)
    ]
    caption = (
        f"Bytes of keys and values, snapshot by snapshot, the oldest first; the highest is"
        f" {bytes_text(highest)}, and {snapshot_id} is in the other colour."
    )
    return _figure(bars, max(FEWEST, len(steps)), caption, "growth")


def _bar(at: int, height: int, name: str, class_: str) -> Html:
    return tag(
        "rect", tag("title", name), x=at * 10, y=HEIGHT - height, width=9, height=height,
        class_=class_,
    )  # fmt: skip


def _figure(bars: list[Html], count: int, caption: str, id_: str) -> Html:
    picture = tag(
        "svg", *bars, id=id_, viewBox=f"0 0 {count * 10} {HEIGHT}",
        preserveAspectRatio="none", role="img", aria_labelledby=f"{id_}-caption",
    )  # fmt: skip
    return tag("figure", picture, tag("figcaption", caption, id=f"{id_}-caption"))
