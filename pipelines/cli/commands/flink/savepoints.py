"""`statelake flink savepoint`, `stop` and `dispose`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from statelake.pipelines.cli.commands.flink.connecting import (
    connected,
    flink_job_option,
    flink_option,
    format_option,
    path_map_option,
    savepoints_option,
    status_line,
    timeout_option,
)
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import as_json, json_option, progress_bar, tell
from statelake.pipelines.cli.engine_options import engine_option
from statelake.pipelines.cli.options import (
    configured_option,
    gathered,
    lake_is_meant,
)
from statelake.pipelines.find.path_map import PathMap
from statelake.state_core.errors import StateError

if TYPE_CHECKING:
    from statelake.pipelines.api import Job


@dataclass(frozen=True)
class _ImportTarget:
    """The job and the snapshot id for the import of a savepoint."""

    job: Job
    snapshot_id: str | None
    paths: PathMap


def _import_target(
    lake: str | None,
    job: str | None,
    snapshot_id: str | None,
    path_map: tuple[str, ...],
    engine: str,
) -> _ImportTarget | None:
    """Return where it is imported, if that is asked for, after a check of the names."""
    paths = PathMap.parse(path_map)
    if not lake_is_meant():
        return None
    if not lake or not job:
        raise click.UsageError("an import needs --lake and --job")
    from statelake.pipelines.api import Lake  # noqa: PLC0415 - Delta only when wanted

    opened = Lake(lake).job(job, engine=engine)
    opened.check_name(snapshot_id)
    return _ImportTarget(opened, snapshot_id, paths)


_import_options = gathered(
    "target",
    _import_target,
    plugins_option,
    engine_option,
    path_map_option,
    configured_option("lake", "Import it into this lake at once."),
    configured_option("job", "The job's name in the lake."),
    click.option("--as", "snapshot_id", help="Its name there; by default Flink's."),
)


@click.command()
@flink_option
@flink_job_option
@savepoints_option
@format_option
@timeout_option("10min", "it may take")
@_import_options
@json_option
def savepoint(
    flink: str,
    flink_job: str,
    savepoints: str,
    format: str,  # noqa: A002 - as the option
    timeout: float,
    target: _ImportTarget | None,
    as_json_: bool,
) -> None:
    """Take a savepoint of a running job, which runs on.

    With --lake, --job or --as it is imported at once. If the cluster has other paths than this
    machine, --path-map maps them.

    \b
    Examples:
      statelake flink savepoint --flink http://jm:8081 --flink-job orders
      statelake flink savepoint --flink http://jm:8081 --flink-job orders --format native \\
          --savepoints s3://bucket/savepoints
      statelake flink savepoint --flink http://jm:8081 --flink-job orders --as monday \\
          --lake /data/lake --job orders --path-map s3://bucket=/mnt/bucket
    """
    with connected(flink) as cluster, status_line(quiet=as_json_) as report:
        location = cluster.take_savepoint(
            cluster.find_job(flink_job).id, savepoints, form=format, timeout=timeout,
            report=report,
        )  # fmt: skip
    _finish("took", location, target, as_json_)


@click.command()
@flink_option
@flink_job_option
@savepoints_option
@click.option(
    "--drain", is_flag=True, help="Let all windows and timers fire first: for a job that is over."
)
@format_option
@timeout_option("10min", "it may take")
@_import_options
@json_option
def stop(
    flink: str,
    flink_job: str,
    savepoints: str,
    drain: bool,
    format: str,  # noqa: A002 - as the option
    timeout: float,
    target: _ImportTarget | None,
    as_json_: bool,
) -> None:
    """Stop a job with a savepoint, and wait until it is over.

    With --lake, --job or --as the savepoint is imported at once.

    \b
    Examples:
      statelake flink stop --flink http://jm:8081 --flink-job orders \\
          --savepoints s3://bucket/savepoints
      statelake flink stop --flink http://jm:8081 --flink-job orders --drain --json
    """
    with connected(flink) as cluster, status_line(quiet=as_json_) as report:
        location = cluster.stop_with_savepoint(
            cluster.find_job(flink_job).id, savepoints, form=format, drain=drain,
            timeout=timeout, report=report,
        )  # fmt: skip
    _finish("stopped with", location, target, as_json_)


def _finish(did: str, location: str, target: _ImportTarget | None, quiet: bool) -> None:
    """Print where the savepoint is, and import it if `target` says so."""
    if not quiet:
        tell(f"{did} savepoint {location}", marked=location)
    if target is None:
        if quiet:
            as_json({"savepoint": location})
        return
    try:
        here = target.paths.readable(location)
        with progress_bar("importing", quiet=quiet, of_bytes=True) as progress:
            done = replace(target.job, progress=progress).import_snapshot(here, target.snapshot_id)
    except StateError as error:  # the error must name the savepoint, which was taken
        raise error.within(f"savepoint {location} was taken, and its import failed") from error
    if quiet:
        as_json(
            {"savepoint": location, "job": target.job.name, "snapshot_id": done.record.snapshot_id,
             "new": done.new, "entries": done.record.entries}
        )  # fmt: skip
        return
    tell(
        f"imported {done.record.snapshot_id} of {target.job.name}: {done.record.entries:,} entries",
        marked=done.record.snapshot_id,
    )


@click.command()
@click.argument("location")
@flink_option
@timeout_option("10min", "it may take")
@json_option
def dispose(location: str, flink: str, timeout: float, as_json_: bool) -> None:
    """Delete a savepoint on the cluster. Its import into a lake stays.

    LOCATION is its name on the cluster, as `statelake flink savepoint` printed it.

    \b
    Example:
      statelake flink dispose --flink http://jm:8081 s3://bucket/savepoints/savepoint-5f1e2c-0a1b2c3d4e5f
    """
    with connected(flink) as cluster:
        cluster.dispose_savepoint(location, timeout=timeout)
    if as_json_:
        as_json({"disposed": location})
        return
    tell(f"disposed of {location}", marked=location)
