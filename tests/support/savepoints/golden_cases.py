"""The snapshots under `golden/flink`, by case."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[2] / "golden"


@dataclass(frozen=True)
class GoldenCase:
    """A snapshot that real Flink wrote, and what Flink says it holds."""

    folder: Path

    @property
    def name(self) -> str:
        """The folder's name, which says how it was made."""
        return self.folder.name

    @property
    def facts(self) -> dict[str, Any]:
        """`case.json`: backend, format, compression, parallelism, and more."""
        facts: dict[str, Any] = json.loads((self.folder / "case.json").read_text("utf-8"))
        return facts

    @property
    def snapshot(self) -> Path:
        """The directory with `_metadata` in it."""
        return self.folder / str(self.facts.get("checkpoint", "savepoint"))

    def expected(self, name: str = "expected.jsonl") -> list[Any]:
        """The lines of `expected.jsonl`, or of its likes."""
        text = (self.folder / name).read_text("utf-8")
        return [json.loads(line) for line in text.splitlines() if line]


def golden_cases(*cases: str, form: str | None = None) -> list[GoldenCase]:
    """The golden snapshots of these `cases` (all if none), of one `form` (canonical, ...)."""
    found = [GoldenCase(folder) for folder in sorted((GOLDEN / "flink").iterdir())]
    return [
        golden
        for golden in found
        if (not cases or golden.facts["case"] in cases)
        and (form is None or golden.facts["format"] == form)
    ]
