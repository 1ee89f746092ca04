"""How things are timed, and the table that comes out."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        what: What was done.
        ours: Seconds, or what else was measured, as text.
        peer: The same of the peer, and who it is.
        ratio: How many times better we are; None where there is no peer.
        wanted: The ratio to reach; None where there is none.
    """

    what: str
    ours: str
    peer: str = ""
    ratio: float | None = None
    wanted: float | None = None


def seconds(work: Callable[[], Any], repeat: int = 3) -> float:
    """The best of several runs."""
    best = float("inf")
    for _ in range(repeat):
        gc.collect()
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best


def rate(entries: int, took: float) -> str:
    """Millions of entries a second, and the seconds."""
    return f"{entries / took / 1e6:.2f} M/s ({took:.2f} s)"


def compare(what: str, entries: int, ours: float, peer: float, name: str, wanted: float) -> Row:
    """A row of two times for the same entries."""
    return Row(what, rate(entries, ours), f"{name} {rate(entries, peer)}", peer / ours, wanted)


def print_table(title: str, rows: list[Row]) -> None:
    """Markdown, so that it can go into the README as it is."""
    print(f"\n### {title}\n")
    print("| what | statelake | peer | ratio | wanted |")
    print("|---|---:|---:|---:|---:|")
    for row in rows:
        ratio = "" if row.ratio is None else f"**{row.ratio:.{1 if row.ratio >= 2 else 2}f}×**"
        wanted = "" if row.wanted is None else f"{row.wanted:g}×"
        print(f"| {row.what} | {row.ours} | {row.peer} | {ratio} | {wanted} |", flush=True)
