"""The checkpoints under `golden/heap-timers`: RocksDB jobs that keep their timers on the heap."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

from tests.support.savepoints.golden_cases import GOLDEN

__all__ = ["TIMER_KEYS", "heap_timers", "heap_timers_lines"]

# by job: how many keys it was given
TIMER_KEYS = {"kinds": 24, "windows": 120}


def heap_timers(case: str, to: Path) -> Path:
    """The checkpoint of a job, unpacked."""
    to.mkdir(parents=True)
    packed = (GOLDEN / "heap-timers" / f"{case}.metadata.xz").read_bytes()
    (to / "_metadata").write_bytes(lzma.decompress(packed))
    return to


def heap_timers_lines(case: str) -> list[dict[str, Any]]:
    """What Flink printed of it, timers that went off included."""
    text = (GOLDEN / "heap-timers" / f"{case}.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]
