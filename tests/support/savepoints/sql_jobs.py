"""A job of two Flink SQL queries: its savepoint and plan, and the plan of a changed job."""

from __future__ import annotations

import lzma
from pathlib import Path

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
