"""The savepoints under `golden/own`: a job whose serializers nobody knows but itself."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

from tests.support.savepoints.golden_cases import GOLDEN

__all__ = ["FORMS", "KEYS", "OWN_CLASSES", "own_lines", "own_savepoint"]

FORMS = ("canonical", "canonical-snappy")
KEYS = 40
# by state, the class that the catalog names
OWN_CLASSES = {
    "money": "OwnTypeJobs$MoneySnapshot",
    "ranges": "OwnTypeJobs$RangeSnapshot",
    "ledger": "OwnTypeJobs$MoneySnapshot",
    "named": "OwnTypeJobs$NamedSnapshot",
    "both": "org.apache.flink.api.java.tuple.Tuple2",
}


def own_savepoint(form: str, to: Path) -> Path:
    """One of the savepoints, unpacked."""
    to.mkdir(parents=True)
    packed = (GOLDEN / "own" / f"{form}.metadata.xz").read_bytes()
    (to / "_metadata").write_bytes(lzma.decompress(packed))
    return to


def own_lines() -> list[dict[str, Any]]:
    """What Flink printed of each key, having restored it."""
    text = (GOLDEN / "own" / "lines.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]
