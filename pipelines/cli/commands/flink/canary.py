"""`statelake flink canary`: try whether a new JAR restores; `drill`: rehearse a disaster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import statelake as sl
from statelake.pipelines.cli.commands.flink.connecting import (
    connected,
    flink_option,
    program_options,
    status_line,
)
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import json_option, show
from statelake.pipelines.cli.engine_options import engine_option
from statelake.pipelines.cli.options import (
    answer,
    job_option,
    lake_option,
    request_options,
    snapshot_named,
    snapshot_option,
)
from statelake.pipelines.live.requests import Canary, Drill

if TYPE_CHECKING:
    from statelake.pipelines.live.jars import JarRun


@click.command()
@click.argument("location")
@flink_option
@program_options
@request_options(Drill)
@plugins_option
@json_option
def drill(
    location: str,
    flink: str,
    program: JarRun,
    request: Drill,
    as_json_: bool,
) -> None:
    """Rehearse a disaster: restore the newest sound snapshot, and say how old it is.

    LOCATION is a snapshot, or a directory such as that of `statelake copy --all`. The newest
    snapshot there that can be restored is restored on the cluster, which is one for staging or that
    of the second region, until the job has completed a checkpoint. Then the job is cancelled.
    Nothing is exported, and Flink does not claim the snapshot.

    It prints how much would have been lost (RPO), and for how long nothing would have run (RTO).
    The exit code is 1 if Flink refuses it. While the job runs, it reads its sources and writes its
    sinks: choose harmless ones by --arg.

    \b
    Example:
      statelake flink drill s3://other-region/flink/5f1e --flink http://staging:8081 \
          --jar orders.jar --arg --sink --arg nowhere
    """
    with connected(flink) as cluster, status_line(quiet=as_json_) as report:
        words = {"location": location, "cluster": cluster, "program": program, "report": report}
        done = sl.drill(**vars(request) | words)
    show(done, as_json_=as_json_, marked=done.verdict, style="green" if done.restores else "red")
    answer(yes=done.restores)


@click.command()
@flink_option
@lake_option
@job_option
@snapshot_option(
    "--snapshot",
    "snapshot_id",
    default="latest",
    show_default=True,
    help="The snapshot.",
)
@program_options
@request_options(Canary)
@engine_option
@plugins_option
@json_option
def canary(
    flink: str,
    lake: str,
    job: str,
    snapshot_id: str,
    program: JarRun,
    request: Canary,
    engine: str,
    as_json_: bool,
) -> None:
    """Prove before a deploy that a new JAR restores: run it until a checkpoint, then cancel it.

    While it runs, it reads its sources and writes its sinks. Choose harmless ones by --arg, or use
    a staging cluster.

    It starts from an export of a snapshot, and ends when it has completed a checkpoint, or when
    Flink refuses it: then the exit code is 1, and Flink's own reason is printed, beside statelake's
    verdict if --against gives the types of the new job. The job, the export and the JAR are deleted
    afterwards.

    A sample of the keys shows whether types fit, and is exported quickly; --sample, --seed and
    --mask are those of `statelake export`. Faults that appear only on other keys are not found.

    \b
    Examples:
      statelake flink canary --flink http://staging:8081 --lake lake --job orders \\
          --jar orders-2.jar --arg --sink --arg nowhere --exports /mnt/bucket/canaries \\
          --path-map s3://bucket=/mnt/bucket
      statelake flink canary --flink http://staging:8081 --lake lake --job orders \\
          --jar orders-2.jar --against new.yaml --exports /sp --json
      statelake flink canary --flink http://staging:8081 --lake lake --job orders \\
          --jar orders-2.jar --exports /sp --sample 1%
    """
    with connected(flink) as cluster:
        from statelake.pipelines.api import Lake  # noqa: PLC0415 - Delta only when wanted

        opened = Lake(lake).job(job, engine=engine)
        snapshot = opened[snapshot_named(opened, snapshot_id)]
        with status_line(quiet=as_json_) as report:
            words = {"cluster": cluster, "program": program, "report": report}
            done = snapshot.canary(**vars(request) | words)
    show(done, as_json_=as_json_, marked=done.verdict, style="green" if done.restores else "red")
    answer(yes=done.restores)
