"""`statelake check integrity`: find all faults of a snapshot, and salvage the rest."""

from __future__ import annotations

from typing import Any

import click

import statelake as sl
from statelake import open_snapshot
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import (
    as_json,
    json_option,
    progress_bar,
    show,
    tell,
)
from statelake.pipelines.cli.options import (
    answer,
    configured_option,
    lake_is_meant,
    reading_options,
    snapshot_named,
    snapshot_option,
)
from statelake.pipelines.requests.shared import Reading
from statelake.state_core.printable import count_text

STYLE = {True: "green", False: "red"}  # of a verdict, by whether there is no fault


@click.command()
@click.argument("savepoint", required=False)
@click.option(
    "--salvage",
    metavar="DIR",
    help="Write what can be read as a savepoint here.",
)
@configured_option("lake", "The lake whose snapshot is checked.")
@configured_option("job", "The job's name in the lake.")
@snapshot_option("--snapshot", "snapshot_id", help="The snapshot in the lake.")
@reading_options
@plugins_option
@json_option
def integrity(
    savepoint: str | None,
    salvage: str | None,
    lake: str | None,
    job: str | None,
    snapshot_id: str | None,
    reading: Reading,
    as_json_: bool,
) -> None:
    """Read all of a savepoint or checkpoint, and report every fault, not only the first.

    The checks: every handle leads to its bytes, every key group is at its place and ends with its
    mark, every key hashes to its key group, every value decodes to its last byte, all copies of a
    broadcast state are equal. State that only the job's own classes can read is listed as not
    checked.

    Of a snapshot in a lake every row is read, counted and hashed; if a savepoint is given as well,
    the two are compared.

    \b
    Examples:
      statelake check integrity /savepoints/savepoint-5f1e2c-0a1b2c3d4e5f
      statelake check integrity /checkpoints/chk-42 --salvage /savepoints/salvaged
      statelake check integrity --lake lake --job orders --snapshot monday --json
    """
    if not lake_is_meant():
        lake = job = None
    given = [lake, job, snapshot_id]
    if (any(given) and not all(given)) or not (savepoint or lake):
        raise click.UsageError("give a savepoint, or --lake, --job and --snapshot, or both")
    if salvage and not savepoint:
        raise click.UsageError("--salvage is for a savepoint; a lake's snapshot is exported")
    if any(vars(reading).values()) and not savepoint:
        raise click.UsageError("--uid and --allow-external are for a savepoint")
    content: dict[str, Any] = {}
    faults = 0
    if savepoint:
        with progress_bar("salvaging" if salvage else "checking", quiet=as_json_) as progress:
            if salvage:
                salvaged = sl.salvage(savepoint, salvage, **vars(reading), progress=progress)
                report = salvaged.integrity
            else:
                report = sl.check_integrity(savepoint, **vars(reading), progress=progress)
        content = report.to_json()
        faults = len(report.faults)
        if not as_json_:
            show(report, marked=report.verdict, style=STYLE[report.sound])
        if salvage:
            content["salvage"] = salvaged
            if not as_json_:
                show(salvaged, marked=salvaged.path or "")
    if lake and job and snapshot_id:
        opened = sl.Lake(lake)
        snapshot_id = snapshot_named(opened.job(job), snapshot_id)
        source = open_snapshot(savepoint, **vars(reading)) if savepoint and not faults else None
        with progress_bar("reading", quiet=as_json_) as progress:
            stored = opened.job(job, progress=progress)[snapshot_id]
            lake_faults = stored.check_integrity(source)
        content["lake_faults"] = lake_faults
        faults += len(lake_faults)
        if not as_json_:
            verdict = count_text(len(lake_faults), "fault") if lake_faults else "sound"
            tell(f"{verdict}: {job}/{snapshot_id}", marked=verdict, style=STYLE[not lake_faults])
            for fault in lake_faults:
                tell(f"  {fault}")
    if as_json_:
        as_json({"sound": not faults, **content})
    answer(yes=not faults)
