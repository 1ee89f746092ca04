"""Pictures for the Dagster UI: drawn to PNG, carried inside Markdown."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

from matplotlib.figure import Figure

__all__ = ["key_group_histogram"]

BAR_COLOR, MEAN_COLOR = "#4F43DD", "#E2574C"


def key_group_histogram(sizes: Sequence[int], title: str) -> str:
    """Bytes of each key group as bars, with their mean, as a Markdown image."""
    figure = Figure(figsize=(9, 2.6), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    kilobytes = [size / 1024 for size in sizes]
    axes.bar(range(len(kilobytes)), kilobytes, width=1.0, color=BAR_COLOR)
    mean = sum(kilobytes) / max(1, len(kilobytes))
    axes.axhline(mean, color=MEAN_COLOR, linewidth=1, label=f"mean {mean:.1f} KiB")
    axes.set(title=title, xlabel="key group", ylabel="KiB of state")
    axes.margins(x=0.005)
    axes.legend(loc="upper right", frameon=False)
    data = io.BytesIO()
    figure.savefig(data, format="png")
    encoded = base64.b64encode(data.getvalue()).decode("ascii")
    return f"![{title}](data:image/png;base64,{encoded})"
