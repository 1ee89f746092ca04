"""Ops on a job's Flink cluster: take a savepoint, rescale, report a lost job."""

import dagster as dg

from statelake.pipelines.live.live_rescaling import RESCALED
from statelake.pipelines.orchestration.live_job import LostJob, flink_ui_link, live_job
from statelake.pipelines.orchestration.metadata import metadata_of, savepoint_metadata
from statelake.pipelines.orchestration.savepoints import has_savepoint
from statelake.pipelines.orchestration.settings import FlinkSettings
from statelake.pipelines.orchestration.state_job import StateJob
from statelake.state_core.errors import MissingFileError
from statelake.state_core.formats.reader import open_snapshot
from statelake.state_core.printable import printable, public_location


class RescaleJobConfig(dg.Config):
    """The changes of a running job. What is not given stays as it is.

    Attributes:
        parallelism: The new parallelism.
        max_parallelism: The new maximum parallelism.
        jar: The new JAR, as a local file.
        jar_id: The id of a JAR on the cluster.
        entry_class: Its class with `main`.
        migrate: A file with the new types of states.
        roll_back: Whether to roll back a killed run instead of completing it.
        take_over: Whether the killed run's process is known to have ended, on another machine.
    """

    parallelism: int | None = None
    max_parallelism: int | None = None
    jar: str = ""
    jar_id: str = ""
    entry_class: str = ""
    migrate: str = ""
    roll_back: bool = False
    take_over: bool = False


def run_config_of(loss: LostJob) -> dg.RunConfig:
    """Return the configuration of a run that reports a lost job."""
    config = LostJob(
        state=printable(loss.state), reason=printable(loss.reason), flink_job=loss.flink_job,
        checkpoint=printable(loss.checkpoint), url=loss.url,
    )  # fmt: skip
    return dg.RunConfig({"report_lost_job": config})


@dg.op
def report_lost_job(config: LostJob) -> None:
    """Fail with the sensor's findings about the job, so that alerts are sent."""
    raise dg.Failure(
        f"the job is not seen to run: {config.state}: {config.reason}",
        metadata={
            "state": config.state,
            "root cause": config.reason,
            "last completed checkpoint": config.checkpoint or "unknown",
            "Flink UI": flink_ui_link(config.url, config.flink_job),
        },
        allow_retries=False,
    )


def savepoint_op(job: StateJob, flink: FlinkSettings) -> dg.OpDefinition:
    """Return the op that takes a savepoint of a job."""

    @dg.op(
        name=job.named("take_savepoint_step"),
        pool=job.named("flink"),
        required_resource_keys={job.resource},
    )
    def take_savepoint(context: dg.OpExecutionContext) -> str:
        """Trigger a savepoint into the job's directory. Returns its name.

        It becomes a partition when it is archived, by the sensor or by the schedule.
        """
        live = live_job(job, flink, context)
        with live.connect() as cluster:
            taken_of = cluster.find_job(live.name)
            path = cluster.take_savepoint(
                taken_of.id, live.savepoints, form=flink.form,
                # a step that is tried again in the same run waits for the same savepoint
                trigger_id=context.run_id.replace("-", ""), report=context.log.info,
            )  # fmt: skip
        live.paths.readable(path)
        name = path.rstrip("/").rpartition("/")[2]
        directory = live.locations.savepoints_location
        if not has_savepoint(directory, name):
            raise MissingFileError(
                f"the cluster wrote {path}, which is not in the job's directory of savepoints"
                f" {public_location(directory)}",
                remedy="let `savepoints` and `flink.savepoints` be the same directory, the one as"
                " it is called here, the other as the cluster calls it",
            )
        context.add_output_metadata(
            {
                **savepoint_metadata(open_snapshot(live.locations.savepoint(name), partial=True)),
                "on the cluster": printable(path),
                "Flink UI": flink_ui_link(cluster.url, taken_of.id),
            }
        )
        return name

    return take_savepoint


def rescale_op(job: StateJob, flink: FlinkSettings) -> dg.OpDefinition:
    """Return the op that rescales, migrates or upgrades a job."""

    @dg.op(name=job.named("rescale_step"), pool=job.pool, required_resource_keys={job.resource})
    def rescale(context: dg.OpExecutionContext, config: RescaleJobConfig) -> str:
        """Rescale the job, with a rollback if it fails. Returns the id of the new Flink job.

        A killed run continues when it is run again with the same config.
        """
        live = live_job(job, flink, context)
        with live.connect() as cluster:
            rescaling = live.locations.open_job(job.settings.engine).live_rescale(
                cluster, live.name, live.program(config.jar, config.jar_id, config.entry_class),
                old=live.program(), savepoints=live.savepoints, exports=live.exports,
                path_map=live.path_map, parallelism=config.parallelism,
                max_parallelism=config.max_parallelism, migrate=config.migrate, format=flink.form,
            )  # fmt: skip
            result = rescaling.execute(
                roll_back=config.roll_back, take_over=config.take_over,
                report=lambda step, phase: context.log.info("%s: %s", step, phase),
            )  # fmt: skip
        flink_ui = flink_ui_link(cluster.url, result.flink_job)
        metadata = {**metadata_of(result), "Flink UI": flink_ui}
        if result.outcome != RESCALED:
            raise dg.Failure(
                f"the job was {result.outcome}: {printable(result.why)}",
                metadata=metadata,
                allow_retries=False,
            )
        context.add_output_metadata(metadata)
        return result.flink_job

    return rescale
