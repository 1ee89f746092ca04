"""Ops: steps that need no assets, for jobs of a user's own."""

import dagster as dg
from pydantic import Field

from pipelines.flink_conf import compression_of
from pipelines.metadata import compression_metadata
from state_core.formats.recompression import recompress_snapshot

__all__ = ["CompressionConfig", "compress"]


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
