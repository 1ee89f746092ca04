"""The demo's archive in Dagster: the assets of each savepoint, materialized as its UI would."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import dagster as dg
from rich.console import Console

from statelake.pipelines.orchestration.definitions import definitions

SHOWN_METADATA = {
    "savepoint": ("kind", "size (bytes)"),
    "state_tables": (
        "dagster/row_count", "files written", "files kept from the previous snapshot"
    ),
    "restore_plan": ("kinds: parallelism", "kinds: skew"),
    "exported_savepoint": ("savepoint",),
}  # fmt: skip
DAGSTER_SETTINGS = "telemetry:\n  enabled: false\nnux:\n  enabled: false\n"


@contextmanager
def dagster_archive(out: Console, home: Path) -> Iterator[Callable[[str], None]]:
    """Yield a function that archives the savepoint of a name.

    Args:
        out: Where materializations are printed.
        home: Dagster's directory, whose UI then shows the runs.
    """
    logging.getLogger("dagster").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message="Specifying a partitions_def on an AssetCheckSpec")
    os.environ["DAGSTER_HOME"] = str(home)
    _write_settings(home)
    with dg.DagsterInstance.get() as instance:
        yield partial(_archive, out, instance)


def _write_settings(home: Path) -> None:
    """Make Dagster's directory, if there is none."""
    home.mkdir(parents=True, exist_ok=True)
    settings = home / "dagster.yaml"
    if not settings.exists():
        settings.write_text(DAGSTER_SETTINGS, "utf-8")


def _archive(out: Console, instance: dg.DagsterInstance, name: str) -> None:
    """Materialize the assets of a savepoint in Dagster, as its UI would."""
    job = definitions.resolve_job_def("archive_and_export")
    rescaled = {"config": {"parallelism": 5}}
    config = {
        "ops": {"restore_plan": rescaled, "exported_savepoint": rescaled},
        "loggers": {"console": {"config": {"log_level": "ERROR"}}},
    }
    instance.add_dynamic_partitions("snapshots", [name])
    began = time.monotonic()
    done = job.execute_in_process(instance=instance, partition_key=name, run_config=config)
    _report(out, name, done, time.monotonic() - began)


def _report(out: Console, name: str, done: dg.ExecuteInProcessResult, seconds: float) -> None:
    out.print(f"[bold]{name}[/bold] in {seconds:.1f} s")
    tables = []
    for event in done.get_asset_materialization_events():
        *folders, asset = event.materialization.asset_key.path
        metadata = event.materialization.metadata
        if folders:
            tables.append(asset)
            continue
        shown = ", ".join(f"{key} {metadata[key].value}" for key in SHOWN_METADATA[asset])
        out.print(f"  materialized {asset:<19} {shown}", soft_wrap=True)
    out.print(f"  materialized the tables of {', '.join(sorted(tables))}", soft_wrap=True)
    for check in done.get_asset_check_evaluations():
        failed = "FAILED" if check.severity is dg.AssetCheckSeverity.ERROR else "warns"
        verdict = "passed" if check.passed else failed
        out.print(f"  check {check.check_name} of {check.asset_key.to_user_string()}: {verdict}")
