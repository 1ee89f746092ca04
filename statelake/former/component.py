"""The component under its former name, `pipelines.orchestration.component.StateLake`.

Installed as that module for one release, in folders without `__init__`: a package `pipelines` of a
project's own comes before it.
"""

from statelake.dagster import StateLake
from statelake.state_core.deprecation import warn_deprecated

__all__ = ["StateLake"]

warn_deprecated("pipelines.orchestration.component.StateLake")
