"""The component under its former name, `pipelines.orchestration.component.StateLake`.

Installed as that module for one release, in folders without `__init__`: a package `pipelines` of a
project's own comes before it.
"""

import warnings

from statelake.dagster import StateLake

__all__ = ["StateLake"]

warnings.warn(
    "the component is called statelake.dagster.StateLake: change the `type` in defs.yaml",
    FutureWarning,
    stacklevel=2,
)
