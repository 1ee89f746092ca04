"""Requests for the first savepoint of a new job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from statelake.pipelines.requests.request import Request, given, option
from statelake.pipelines.requests.shared import INEXACT, max_parallelism_option, parallelism_option

if TYPE_CHECKING:
    from statelake.pipelines.engine import Engine, Progress


class Bootstrap(Request):
    """A savepoint of tables."""

    spec: str | os.PathLike[str] | Mapping[str, Any] = given(
        "A YAML or Python file, or the same as a mapping.", kw_only=False
    )
    to: str | os.PathLike[str] = option(
        "The savepoint's directory, which must not exist.", kw_only=False
    )
    sources: Mapping[str, Any] | None = given(
        "By the name that the spec has as a source: a DataFrame or an Arrow table.", default=None
    )
    parallelism: int | None = parallelism_option("By default as the spec says.")
    max_parallelism: int | None = max_parallelism_option(
        "By default as the spec says, or Flink's default for the parallelism."
    )
    compression: Literal["snappy", "none"] = option(
        "The compression of the savepoint's files.", default="none"
    )
    metadata_version: int = option(
        "3 restores in any Flink since 1.11, 4 in 1.16+, 5 in 2.0+, 6 in 2.1+.",
        default=3, least=3, most=6, more=True,
    )  # fmt: skip
    operator_state_version: int = option(
        "5 for Flink before 1.18, which is never compressed.", default=6, least=5, most=6, more=True
    )
    inexact: bool = option(INEXACT, default=False, more=True)


class BootstrapJob(Bootstrap):
    """A savepoint of tables, which a job of a lake gets."""

    name: str | None = given("The snapshot's id.", default=None, kw_only=False)


class WatchedBootstrap(Bootstrap):
    """A savepoint of tables, the engine that makes it, and its listeners."""

    engine: Engine | str = given(
        "`auto`, `local` (a source that needs Spark is an error), `spark`, or an engine.",
        default="auto",
    )
    progress: Progress | None = given("Called with (done, total) after each slice.", default=None)
