"""The component of Dagster projects: `type: statelake.dagster.StateLake` in `defs.yaml`."""

from statelake.pipelines.orchestration.component import StateLake

__all__ = ["StateLake"]
