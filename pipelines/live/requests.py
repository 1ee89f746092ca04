"""Requests for jobs on a live cluster: a rescale, a canary, a drill, orphans."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from statelake.pipelines.requests.changes import Accepted, Matching, no_uids_field
from statelake.pipelines.requests.checks import AGAINST
from statelake.pipelines.requests.request import Request, given, option
from statelake.pipelines.requests.shared import (
    Sharing,
    max_parallelism_option,
    parallelism_option,
    parse_age,
    path_map_option,
    timeout_option,
)

if TYPE_CHECKING:
    from statelake.pipelines.lake.change.sql_upgrading import NoUids
    from statelake.pipelines.live.cluster import FlinkCluster
    from statelake.pipelines.live.jars import JarRun
    from statelake.pipelines.sql_jobs.sql_scripts import SqlScript
    from statelake.state_core.plans.plan import Plan

RUNS = "How long it may take to run and to complete a checkpoint"


class FindOrphans(Request):
    """The files below a directory of checkpoints that no snapshot needs."""

    directory: str | os.PathLike[str] = given("A path or URI.", kw_only=False)
    cluster: FlinkCluster | None = given(
        "The cluster whose jobs write there.", default=None, kw_only=False
    )
    no_cluster: bool = option("Ask no cluster: --older-than says what is old.", default=False)
    older_than: timedelta | None = option(
        "Only files of that age; by default 7d.", "DURATION", default=None, parse=parse_age
    )
    path_map: Sequence[str] = path_map_option()
    delete: bool = given("Delete the files.", default=False)


class Drill(Request):
    """The newest sound snapshot below a directory, restored as after a disaster."""

    location: str | os.PathLike[str] = given(
        "The snapshot, or a directory that has it, a path or URI.", kw_only=False
    )
    cluster: FlinkCluster = given(
        "The cluster: in the second region, or for staging.", kw_only=False
    )
    program: JarRun = given("The program.", kw_only=False)
    parallelism: int | None = parallelism_option("By default as it was.")
    path_map: Sequence[str] = path_map_option()
    timeout: float = timeout_option("5min", RUNS)
    report: Callable[[str], None] | None = given("Called with the awaited event.", default=None)


class Canary(Sharing):
    """A program that is run from a snapshot until it has completed a checkpoint."""

    cluster: FlinkCluster = given("The cluster: for staging, or the job's own.", kw_only=False)
    program: JarRun = given("The program.", kw_only=False)
    parallelism: int | None = parallelism_option("By default as it was.")
    max_parallelism: int | None = max_parallelism_option("By default as it was.")
    exports: str = option(
        "Where this machine writes its savepoint; by default the cluster's directory for"
        " savepoints, by --path-map.",
        "DIR", default="", kw_only=False,
    )  # fmt: skip
    path_map: Sequence[str] = path_map_option()
    against: str = option(AGAINST, default="")
    timeout: float = timeout_option("5min", RUNS)
    report: Callable[[str], None] | None = given("Called with the awaited event.", default=None)


class Rescale(Accepted, Matching):
    """A rescale, migration or upgrade of a job that runs."""

    cluster: FlinkCluster = given("The cluster.", kw_only=False)
    flink_job: str = option("The job on the cluster: its id or its name.", kw_only=False)
    program: JarRun = given("The program to run afterwards.", kw_only=False)
    old: JarRun | None = given(
        "The program that runs now, to be run again if the new one fails; by default the same.",
        default=None,
    )
    parallelism: int | None = parallelism_option("By default as it is.")
    max_parallelism: int | None = max_parallelism_option("By default as it is.")
    savepoints: str = option(
        "Where the cluster writes its savepoint; by default as it is configured.", "DIR",
        default="",
    )  # fmt: skip
    exports: str = option("Where this machine writes the new one.", "DIR")
    path_map: Sequence[str] = path_map_option()
    migrate: str = option("The new types of states.", "FILE", default="")
    old_plan: str | os.PathLike[str] | Plan | SqlScript = given(
        "The compiled plan of the Flink SQL job that runs, if its query changes: a file of JSON, or"
        " what `compile_sql` returns. The command gives scripts, which are compiled when they are"
        " needed: not on the way back.",
        default="",
    )
    new_plan: str | os.PathLike[str] | Plan | SqlScript = given(
        "That of the job that is to go on.", default=""
    )
    no_uids: NoUids = no_uids_field()
    uids: Sequence[str] = option(
        "An operator uid of the SQL job (Flink < 2.0).", default=(), flag="--uid"
    )
    against: str = option(AGAINST, default="")
    declared: str = option("As for `check legality`.", "MODULE:JOB", default="")
    format: Literal["canonical", "native"] = option(
        "Native is quicker where there is much state; both are imported.", default="canonical"
    )
    savepoint_timeout: float = timeout_option("10min", "The longest time of the savepoint")
    timeout: float = timeout_option(
        "5min", "How long the job may take to run and to complete a checkpoint, or SQL to compile"
    )
