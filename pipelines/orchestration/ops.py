"""Ops: steps that need no assets, for jobs of a user's own."""

from typing import Any

import dagster as dg
from pydantic import Field

import statelake as sl
from statelake.pipelines.lake.catalog.retention import Policy
from statelake.pipelines.lake.verify.legality import load_runnable
from statelake.pipelines.lake.verify.verified_savepoints import (
    Verification,
    keep_savepoints,
    take_savepoint,
    verify_savepoint,
)
from statelake.pipelines.orchestration.metadata import (
    commits_metadata,
    compression_metadata,
    export_metadata,
    metadata_of,
    prune_metadata,
)
from statelake.pipelines.orchestration.progress import LoggedProgress
from statelake.pipelines.orchestration.requests import settings_of
from statelake.pipelines.orchestration.resources import Locations
from statelake.pipelines.orchestration.state_job import StateJob
from statelake.pipelines.requests.runs import Run
from statelake.pipelines.runtime.commit_measures import CommitReports, total
from statelake.state_core.errors import SnapshotError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.printable import printable
from statelake.state_core.runtime.commit.records.clocks import now_millis
from statelake.state_core.runtime.legality.rules import check_job


class CompressionConfig(dg.Config):
    """The savepoint to rewrite.

    Attributes:
        savepoint: A canonical savepoint.
        to: The directory of the new one, which must not exist.
        compression: `snappy` or `none`; `snappy` by default.
        flink_conf: Flink's option: `execution.checkpointing.snapshot-compression`.
    """

    savepoint: str
    to: str
    compression: str | None = None
    flink_conf: dict[str, str] = Field(default_factory=dict)


@dg.op
def compress(context: dg.OpExecutionContext, config: CompressionConfig) -> str:
    """Write a savepoint with another compression. Returns its path."""
    compression: Any = config.compression
    done = sl.compress(config.savepoint, config.to, compression, conf=config.flink_conf)
    context.add_output_metadata(compression_metadata(done))
    return done.path


# how a job of process functions is run
PROCESS = {
    "job": dg.Field(
        str, default_value="",
        description="`MODULE:JOB` or `FILE.py:JOB`; by default the resource's declared job.",
    ),
    "engine": dg.Field(str, default_value="auto", description="`auto`, `spark` or `local`."),
    **settings_of(Run),
}  # fmt: skip


@dg.op(config_schema=PROCESS)
def check_declarations(context: dg.OpExecutionContext, locations: Locations) -> str:
    """Check that a job is legal before it runs. Returns its name."""
    named: str = context.op_config["job"] or locations.declared_job
    findings = check_job(load_runnable(named).declaration())
    context.add_output_metadata({"findings": len(findings)})
    if findings:
        raise dg.Failure(
            f"{named} declares what is not legal",
            metadata={"faults": "\n".join(map(str, findings))},
        )
    return named


@dg.op(config_schema=PROCESS)
def run_functions(context: dg.OpExecutionContext, locations: Locations, named: str) -> str:
    """Run the job on the new input of its sources. Returns the snapshot of its state."""
    done = locations.open_lake().run(
        **context.op_config | {"job": named}, step=context.log.info,
        progress=LoggedProgress(context.log, named),
    )  # fmt: skip
    context.add_output_metadata(metadata_of(done))
    return done.snapshot_id


class SavepointConfig(dg.Config):
    """The settings for taking and verifying a savepoint.

    Attributes:
        parallelism: The parallelism of its operators; as before by default.
        engine: `auto`, `spark` or `local`.
    """

    parallelism: int | None = None
    engine: str = "auto"


class KeepConfig(dg.Config):
    """The settings for keeping savepoints.

    Attributes:
        keep: The number of verified ones.
    """

    keep: int = Field(default=7, ge=1)


class PruneConfig(dg.Config):
    """The settings for keeping imported snapshots.

    Attributes:
        last: So many of the newest.
        daily: And the newest of each day, of so many days that have one.
        policy: A policy of `statelake retain` instead.
    """

    last: int = Field(default=30, ge=1)
    daily: int = Field(default=0, ge=0)
    policy: str = ""

    def parsed(self) -> Policy:
        """Parse the policy."""
        return Policy.parse(self.policy) if self.policy else Policy.of(self.last, self.daily)


class CommitsConfig(dg.Config):
    """The settings for reporting commits, and the limits.

    Attributes:
        job: The job whose commits are read; the resource's by default.
        hours: The age of the oldest commits.
        max_blocked: How many commits may have held up processing.
        max_skipped: How many may have been skipped because the one before was under way.
    """

    job: str = ""
    hours: float = 24.0
    max_blocked: int = 0
    max_skipped: int = 10


@dg.op(out={"savepoint": dg.Out(str), "snapshot": dg.Out(str)})
def export_savepoint(
    context: dg.OpExecutionContext, config: SavepointConfig, locations: Locations
) -> tuple[str, str]:
    """Export the newest snapshot of the job. Returns the savepoint and the snapshot's id."""
    record, done = take_savepoint(
        locations.open_lake().catalog,
        locations.job_name,
        locations.exports_location,
        parallelism=config.parallelism,
        engine=config.engine,
    )
    context.add_output_metadata(export_metadata(done), output_name="savepoint")
    return done.path, record.snapshot_id


@dg.op
def restore_elsewhere(
    context: dg.OpExecutionContext,
    config: SavepointConfig,
    locations: Locations,
    savepoint: str,
    snapshot: str,
) -> str:
    """Check the savepoint and restore it into a temporary lake. Fails on any fault."""
    lake = locations.open_lake().catalog
    record = locations.open_snapshot(snapshot).record
    try:
        done = verify_savepoint(lake, record, savepoint, config.engine)
    except SnapshotError as error:
        if Directory(savepoint).confined().exists():
            raise
        done = Verification([str(error)])
    metadata = metadata_of(done)
    if done.faults and not Directory(savepoint).confined().exists():
        what = f"{printable(savepoint)} was removed meanwhile, as by another run of this job"
        why = "which has verified a newer one: let one run at a time do this"
        raise dg.Failure(f"{what}, {why}", metadata=metadata)
    if done.faults:
        raise dg.Failure(f"{savepoint} is not to be relied on", metadata=metadata)
    context.add_output_metadata(metadata)
    return savepoint


@dg.op
def keep_exports(
    context: dg.OpExecutionContext, config: KeepConfig, locations: Locations, savepoint: str
) -> list[str]:
    """Delete all but the last verified savepoints. Returns the others."""
    done = keep_savepoints(locations.exports_location, locations.job_name, config.keep)
    newest = f"{savepoint.rpartition('/')[0]}/{done.newest}"  # another run's, if that began later
    context.add_output_metadata(
        {"newest": dg.MetadataValue.path(newest), "kept": len(done.kept), "removed": done.gone}
    )
    return done.kept


def prune_op(job: StateJob) -> dg.OpDefinition:
    """Return the op that drops snapshots of a job; like an import it writes the job's tables."""

    @dg.op(name=job.named("prune_step"), pool=job.pool, required_resource_keys={job.resource})
    def prune_snapshots(context: dg.OpExecutionContext, config: PruneConfig) -> list[str]:
        """Drop the snapshots that are not kept, with their files. Returns their names."""
        locations = job.places(context)
        done = locations.open_job().retain(config.parsed())
        if done is None:
            context.add_output_metadata({"dropped": 0})
            return []
        context.add_output_metadata(prune_metadata(done))
        return done.dropped

    return prune_snapshots


@dg.op
def report_commits(
    context: dg.OpExecutionContext, config: CommitsConfig, locations: Locations
) -> dict[str, int]:
    """Report the cost of commits. Fails if too many were skipped or blocked processing."""
    now = now_millis()
    job = config.job or locations.job_name
    reports = CommitReports(locations.open_lake().catalog.directory, job)
    commit_reports = reports.read(now - int(config.hours * 3_600_000))
    counts, metadata = total(commit_reports), commits_metadata(commit_reports, now)
    limits = {"commits_blocked": config.max_blocked, "commits_skipped": config.max_skipped}
    over = [f"{name}: {counts[name]}, at most {at}" for name, at in limits.items()
            if counts[name] > at]  # fmt: skip
    if over:
        raise dg.Failure("; ".join(over), metadata=metadata)
    context.add_output_metadata(metadata)
    return counts
