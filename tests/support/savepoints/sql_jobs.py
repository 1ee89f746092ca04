"""A job of two Flink SQL queries: its savepoint and plan, and the plan of a changed job."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

from tests.support.savepoints.golden_cases import GOLDEN

SQL_JOBS = GOLDEN / "sqljobs"


def unpack_sql_job(name: str, to: Path) -> Path:
    """Write a savepoint: `shop`, `shop-new-empty`, `payments` or `views-2.3.0`."""
    to.mkdir()
    packed = (SQL_JOBS / f"{name}.metadata.xz").read_bytes()
    (to / "_metadata").write_bytes(lzma.decompress(packed))
    return to


def unpack_sql_plans(to: Path, job: str = "") -> tuple[Path, Path]:
    """Write both plans, `old.json` and `new.json`; those of another job behind its name."""
    plans = to / f"{job}old.json", to / f"{job}new.json"
    for plan in plans:
        plan.write_bytes(lzma.decompress((SQL_JOBS / f"{plan.name}.xz").read_bytes()))
    return plans


def unpack_sql_views(version: str, to: Path) -> tuple[Path, Path]:
    """Write a savepoint of all data views, by Flink 1.20.0 or 2.3.0, and its plan."""
    plan = to / f"views-{version}.json"
    plan.write_bytes(lzma.decompress((SQL_JOBS / f"{plan.name}.xz").read_bytes()))
    return unpack_sql_job(f"views-{version}", to / f"views-{version}"), plan


def grouping_sets_plan(sets: str, calls: tuple[str, ...] = ("SUM",)) -> dict[str, Any]:
    """The plan of aggregates of `v` by grouping sets of columns, each a letter: `a|b|ab`.

    Flink numbers them by the bits of what is not in a set, in the order in which columns come; one
    set alone is no grouping set.
    """
    grouped = [set(each) for each in sets.split("|")]
    columns = list(dict.fromkeys(sets.replace("|", "")))
    fields = [f"`{each}` INT" for each in columns]
    results = [f"`r{at}` BIGINT" for at in range(len(calls))]

    def projected(each: set[str]) -> list[dict[str, Any]]:
        number = sum(1 << at for at, c in enumerate(reversed(columns)) if c not in each)
        return [
            *({"kind": "INPUT_REF", "inputIndex": at, "type": "INT"} if c in each
              else {"kind": "LITERAL", "value": None, "type": "INT"}
              for at, c in enumerate(columns)),
            {"kind": "INPUT_REF", "inputIndex": len(columns), "type": "BIGINT"},
            {"kind": "LITERAL", "value": number, "type": "BIGINT NOT NULL"},
        ]  # fmt: skip

    number = ["`$e` BIGINT NOT NULL"] * (len(grouped) > 1)
    at = [*range(len(columns)), *([len(columns) + 1] * len(number))]
    nodes: list[dict[str, Any]] = [
        {
            "id": 1, "type": "stream-exec-table-source-scan_2",
            "scanTableSource": {"table": {"identifier": "`c`.`d`.`o`"}},
            "outputType": f"ROW<{', '.join([*fields, '`v` BIGINT'])}>",
        },
        {
            "id": 2, "type": "stream-exec-expand_1",
            "projects": [projected(each) for each in grouped],
            "outputType": f"ROW<{', '.join([*fields, '`v` BIGINT', *number])}>",
        },
        {
            "id": 6, "type": "stream-exec-group-aggregate_1", "grouping": at,
            "needRetraction": False, "aggCallNeedRetractions": [False] * len(calls),
            "aggCalls": [{"internalName": f"${call}$1", "argList": [len(columns)],
                          "type": "BIGINT"} for call in calls],
            "outputType": f"ROW<{', '.join([*fields, *number, *results])}>",
        },
    ]  # fmt: skip
    edges = [{"source": 1, "target": 2}, {"source": 2, "target": 6}]
    if not number:
        nodes.pop(1)
        edges = [{"source": 1, "target": 6}]
    return {"flinkVersion": "2.3", "nodes": nodes, "edges": edges}
