"""Orders and rules for the example job `alerts`, and what is to come of them."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog

__all__ = [
    "EXAMPLE",
    "alerts_module",
    "example_module",
    "expected",
    "feed",
    "orders_of",
    "sink_rows",
    "state_rows",
]

EXAMPLE = Path(__file__).parents[3] / "examples" / "alerts.py"
RULES = [{"rule": "much", "limit": 500}, {"rule": "very-much", "limit": 1500}]
CUSTOMERS = 40


def example_module(path: Path) -> ModuleType:
    """An example, as a module that can be imported by its name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def alerts_module() -> ModuleType:
    """The example `alerts`."""
    return example_module(EXAMPLE)


def orders_of(part: int, count: int = 300) -> list[dict[str, Any]]:
    """Orders of one run: each part a minute behind the one before."""
    chance = random.Random(part)
    return [
        {
            "customer": chance.randrange(CUSTOMERS),
            "amount": chance.randrange(1, 100),
            "at": part * 60_000 + row,
        }
        for row in range(count)
    ]


def feed(data: Path, part: int) -> None:
    """Add a part to the sources."""
    for name, rows in (("orders", orders_of(part)), ("rules", RULES if part == 0 else [])):
        (data / name).mkdir(parents=True, exist_ok=True)
        if rows:
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (data / name / f"{part:03d}.jsonl").write_text(text)


def expected(parts: Iterable[int]) -> tuple[set[tuple[int, str, int]], dict[int, int]]:
    """The alerts of these parts, and what each customer has spent, while no timer fires."""
    spent: dict[int, int] = {}
    told: set[tuple[int, str]] = set()
    alerts = set()
    for part in parts:
        for order in orders_of(part):
            customer = order["customer"]
            spent[customer] = spent.get(customer, 0) + order["amount"]
            for rule in RULES:
                name, limit = str(rule["rule"]), int(str(rule["limit"]))
                if spent[customer] > limit and (customer, name) not in told:
                    told.add((customer, name))
                    alerts.add((customer, name, spent[customer]))
    return alerts, spent


def sink_rows(path: Path) -> list[dict[str, Any]]:
    """All rows of a sink's table."""
    try:
        return DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    except TableNotFoundError:
        return []


def state_rows(
    lake: Catalog, run: int, operator: str, state: str, work: Path, job: str = "alerts"
) -> dict[Any, Any]:
    """Keys and values of a state, exported from the snapshot of a run."""
    from statelake.pipelines.lake.export.exporting import export_snapshot  # noqa: PLC0415

    target = work / f"export-{run}-{operator}-{state}"
    export_snapshot(lake, job, f"run-{run:08d}", target, engine="local")
    table = open_snapshot(target).operator(operator).state(state).to_arrow()
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
