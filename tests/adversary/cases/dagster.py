"""Hostile lakes, savepoints and logs through Dagster's jobs, in a process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.adversary.cases.lake_parts import carried
from tests.adversary.cases.lakes import TABLE
from tests.adversary.cases.runs import prepared
from tests.adversary.makers.checkpoint import committed_link
from tests.adversary.makers.lake import claim, filled, lake_of, link, table_at
from tests.adversary.makers.savepoint import handle, savepoint_link
from tests.adversary.makers.scene import Maker, Scene
from tests.adversary.playing import Case

__all__ = ["DAGSTER_CASES"]

DAGSTER = "tests.adversary.makers.dagster_jobs:main"
LOCAL = {"engine": "local"}
PLACES = "lake={lake} savepoints={root} exports={out} checkpoints={committed} job=orders"


def job(
    name: str, make: Maker, job: str, config: Mapping[str, Any], partition: str = "-", **more: Any
) -> Case:
    """A run of one of Dagster's jobs."""
    written = json.dumps(config, separators=(",", ":")).replace("{", "{{").replace("}", "}}")
    words = written.replace("<", "{").replace(">", "}")
    return Case(f"{job}/{name}", make, f"{job} {partition} {words} {PLACES}", entry=DAGSTER, **more)


VERIFY = ("savepoint_and_verify", {"export_savepoint": LOCAL, "restore_elsewhere": LOCAL})
ARCHIVE: tuple[str, dict[str, Any]] = ("archive_and_export", {})
MIGRATE = (
    "migrate_snapshots",
    {"migrated_tables": {"state": "counter/profile", "to": "<seed>/wider.json"}},
)
COMPRESS = ("compress_savepoint", {"compress": {"savepoint": "<savepoint>", "to": "<out>"}})
RUN = (
    "run_process_functions",
    {"check_declarations": {"job": "<here>/orders_job.py:JOB"}, "run_functions": LOCAL},
)
LOGS = ("migrate_checkpoint_logs", {"migrated_checkpoint_logs": {"rollback": True}})


def savepoint_of(make: Maker) -> Maker:
    """The same, and an honest lake."""

    def made(scene: Scene) -> None:
        lake_of(scene)
        make(scene)

    return made


def exports(to: str, path: str) -> Maker:
    """An honest lake, and a link where exports are."""

    def made(scene: Scene) -> None:
        lake_of(scene)
        (scene.out / path).parent.mkdir(parents=True, exist_ok=True)
        (scene.out / path).symlink_to(filled(to, scene))

    return made


OLD = "20260101T000000000000-bad"
DAGSTER_CASES: list[Case] = [
    job("honest", lake_of, *VERIFY, code=0),
    job("row", table_at(f"../victim/lake/{TABLE}"), *VERIFY),
    job("carried", carried("{victim}/planted"), *VERIFY),
    job("link", link(f"{TABLE}/_data", f"{{victim}}/lake/{TABLE}/_data"), *VERIFY, honest=False),
    job("exports-link", exports("{victim}", "orders"), *VERIFY),
    job("old-export-link", exports(f"{{victim}}/{OLD}", f"orders/{OLD}"), *VERIFY, changes=True),
    job("honest", savepoint_of(Scene.with_savepoint), *ARCHIVE, "savepoint", code=0),
    job("handle", savepoint_of(handle("../victim/keyed-0")), *ARCHIVE, "savepoint"),
    job("link", savepoint_of(savepoint_link("keyed-0", "{victim}/keyed-0")), *ARCHIVE, "savepoint"),
    job("claim", savepoint_of(claim(tables=["../victim"])), *MIGRATE, "good"),
    job("row", table_at(f"../victim/lake/{TABLE}"), *MIGRATE, "bad"),
    job("handle", handle("{victim}/keyed-0"), *COMPRESS),
    job("prepared", prepared(savepoint="../../../../victim/savepoint"), *RUN, changes=True),
    job("record-link", committed_link("log/*.record", "{victim}/00000000000000000000-writer.record"),
        *LOGS, "log"),
]  # fmt: skip
