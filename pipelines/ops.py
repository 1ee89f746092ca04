"""Ops: steps that need no assets, for jobs of a user's own."""

import dagster as dg
from pydantic import Field

from pipelines.flink_conf import compression_of
from pipelines.lake.legality import load_runnable
from pipelines.metadata import compression_metadata, run_metadata
from pipelines.resources import Locations
from pipelines.runtime import RunOptions, run_job
from state_core.formats.recompression import recompress_snapshot
from state_core.legality import check_job

__all__ = [
    "CompressionConfig",
    "ProcessConfig",
    "check_declarations",
    "compress",
    "run_functions",
]


class CompressionConfig(dg.Config):
    """What is to be rewritten.

    Attributes:
        savepoint: A canonical savepoint.
        to: The new one's directory, not there yet.
        compression: `snappy` or `none`; Snappy if nothing else is said.
        flink_conf: Flink's own words: `execution.checkpointing.snapshot-compression`.
    """

    savepoint: str
    to: str
    compression: str | None = None
    flink_conf: dict[str, str] = Field(default_factory=dict)


@dg.op
def compress(context: dg.OpExecutionContext, config: CompressionConfig) -> str:
    """Write a savepoint again with another compression: its path."""
    wanted = compression_of(config.flink_conf, config.compression) or "snappy"
    done = recompress_snapshot(config.savepoint, config.to, wanted)
    context.add_output_metadata(compression_metadata(done))
    return done.path


class ProcessConfig(dg.Config):
    """Which job of process functions is run, and how.

    Attributes:
        job: `MODULE:JOB` or `FILE.py:JOB`; by default the resource's declared job.
        parallelism: Of its operators; as before, if not given.
        backend: `heap` or `rocksdb`.
        engine: `auto`, `spark` or `local`.
        restore: The snapshot that the very first run begins with.
        always: Whether to run without new input too.
    """

    job: str = ""
    parallelism: int | None = None
    backend: str = "heap"
    engine: str = "auto"
    restore: str = ""
    always: bool = False


@dg.op
def check_declarations(
    context: dg.OpExecutionContext, config: ProcessConfig, locations: Locations
) -> str:
    """Hold a job against the rules of legality, before anything runs: its name."""
    named = config.job or locations.declared_job
    findings = check_job(load_runnable(named).declaration())
    context.add_output_metadata({"findings": len(findings)})
    if findings:
        raise dg.Failure(
            f"{named} declares what is not legal",
            metadata={"faults": "\n".join(map(str, findings))},
        )
    return named


@dg.op
def run_functions(
    context: dg.OpExecutionContext, config: ProcessConfig, locations: Locations, named: str
) -> str:
    """Run the job over what its sources got since its last run: the snapshot of its state."""
    options = RunOptions(
        config.parallelism, config.backend, config.engine, config.restore, always=config.always
    )
    done = run_job(load_runnable(named), locations.open_lake(), options)
    context.add_output_metadata(run_metadata(done))
    return done.snapshot_id
