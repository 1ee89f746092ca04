"""`StateLake`: the Dagster component. A lake and its jobs in `defs.yaml`, all definitions of them.

::

    type: statelake.dagster.StateLake
    attributes:
      lake: /data/lake
      exports: /data/exports
      jobs:
        - name: orders
          savepoints: /data/savepoints/orders

Credentials belong into the environment (`AWS_ACCESS_KEY_ID`, ...), never into a location.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import dagster as dg
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext
from dagster.components import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from statelake.pipelines.orchestration.assets import job_assets
from statelake.pipelines.orchestration.checks import job_checks
from statelake.pipelines.orchestration.erasure.erasure_definitions import erasure_definitions
from statelake.pipelines.orchestration.erasure.lake_erasure import LakeErasure
from statelake.pipelines.orchestration.jobs import state_jobs
from statelake.pipelines.orchestration.known_tables import find_tables
from statelake.pipelines.orchestration.resources import Locations
from statelake.pipelines.orchestration.schedules import job_schedules
from statelake.pipelines.orchestration.sensors import job_sensors
from statelake.pipelines.orchestration.settings import ErasureSettings, FlinkSettings, JobSettings
from statelake.pipelines.orchestration.state_job import StateJob


class _ScaffoldParams(BaseModel):
    lake: str = Field("lake", description="The lake's path or URI")
    job: str = Field("orders", description="The job's name in the lake")
    savepoints: str = Field("savepoints/orders", description="The directory of its savepoints")


class StateLakeScaffolder(dg.Scaffolder[_ScaffoldParams]):
    """The `defs.yaml` that `dg scaffold defs` writes."""

    @classmethod
    def get_scaffold_params(cls) -> type[_ScaffoldParams]:
        """Return the lake, a job, and the location of its savepoints."""
        return _ScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[_ScaffoldParams]) -> None:
        """Write a `defs.yaml` of one job."""
        given = request.params
        dg.scaffold_component(
            request,
            {
                "lake": given.lake,
                "exports": "exports",
                "jobs": [
                    {
                        "name": given.job,
                        "savepoints": given.savepoints,
                        "retention": {"last": 30, "daily": 90},
                    }
                ],
            },
        )


@dg.scaffold_with(StateLakeScaffolder)
class StateLake(dg.StateBackedComponent, dg.Resolvable, dg.Model):
    """Flink savepoints in a lake of Delta tables: imported, checked, migrated, exported, pruned.

    For every job an asset for each of its tables, checks, schedules, sensors, and a partition for
    each snapshot. The tables are found in the lake when definitions are made.

    Attributes:
        lake: The lake's path or URI. If it is empty, all places come from the environment
            (`STATELAKE_LAKE`, `STATELAKE_JOB`, ...) when they are needed.
        exports: The directory of exported savepoints.
        jobs: The jobs, whose names differ.
        erasure: The settings of erasures on request; optional.
        defs_state: Where what was found of the tables is kept: in the code server, by default,
            which looks anew whenever it is loaded.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    lake: str = ""
    exports: str = "exports"
    jobs: list[JobSettings] = Field(min_length=1)
    erasure: ErasureSettings | None = None
    defs_state: ResolvedDefsStateConfig = DefsStateConfigArgs.legacy_code_server_snapshots()

    @field_validator("lake", "exports")
    @classmethod
    def _without_credentials(cls, location: str) -> str:
        return _refuse_credentials(location)

    @model_validator(mode="after")
    def _told_apart(self) -> StateLake:
        for settings in self.jobs:
            flink = settings.flink or FlinkSettings()
            of_cluster = [flink.url, flink.savepoints, flink.exports, flink.jar]
            of_cluster += [*flink.path_map, *flink.path_map.values()]
            of_cluster += [flink.canary.url, flink.canary.jar] if flink.canary else []
            if (drill := flink.drill) is not None:
                paths = drill.path_map or {}
                of_cluster += [drill.url, drill.jar, drill.directory, *paths, *paths.values()]
            of_cluster += [settings.checkpoints.directory] if settings.checkpoints else []
            for location in (settings.savepoints, settings.against, *of_cluster):
                _refuse_credentials(location)
            if self.lake and not settings.name:
                raise ValueError("a job has a name and a directory of savepoints")
        if self.erasure is not None:
            erasure = self.erasure
            places = (*erasure.also, *erasure.blobs, *erasure.changelogs)
            for location in (erasure.requests, *places):
                _refuse_credentials(location)
        prefixes = [job.prefix for job in self._state_jobs({})]
        if len(set(prefixes)) < len(prefixes):
            raise ValueError(
                f"two jobs have the same names in Dagster ({', '.join(sorted(prefixes))}): give"
                " one another `prefix`"
            )
        return self

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """Return how the list of tables is kept."""
        names = ",".join(settings.name for settings in self.jobs)
        return DefsStateConfig.from_args(self.defs_state, default_key=f"StateLake[{names}]")

    def write_state_to_path(self, state_path: Path) -> None:
        """Find the tables of each job."""
        tables = {
            str(index): find_tables(job.locations) for index, job in enumerate(self._state_jobs({}))
        }
        state_path.write_text(json.dumps(tables), "utf-8")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return all definitions, from the known tables."""
        if DefinitionsLoadContext.is_set():
            return super().build_defs(context)
        # outside of Dagster's own processes each look at the context would be at another one
        with DefinitionsLoadContext.scoped(DefinitionsLoadContext.get()):
            return super().build_defs(context)

    def build_defs_from_state(
        self, context: dg.ComponentLoadContext, state_path: Path | None
    ) -> dg.Definitions:
        """Return the definitions of all jobs."""
        tables = {} if state_path is None else json.loads(state_path.read_text("utf-8"))
        jobs = self._state_jobs(tables)
        of_jobs = dg.Definitions.merge(*map(_job_definitions, jobs))
        if self.erasure is None:
            return of_jobs
        erasure = LakeErasure(self.erasure, jobs[0].locations, tuple(job.pool for job in jobs))
        return dg.Definitions.merge(of_jobs, erasure_definitions(erasure))

    def _state_jobs(self, tables: dict[str, dict[str, str]]) -> list[StateJob]:
        return [
            StateJob(
                settings,
                Locations(
                    lake=self.lake,
                    exports=self.exports if self.lake else "",
                    savepoints=settings.savepoints,
                    job=settings.name,
                    against=settings.against,
                    declared=settings.declared,
                    from_environment=not self.lake,
                ),
                tables.get(str(index), {}),
            )
            for index, settings in enumerate(self.jobs)
        ]


def _job_definitions(job: StateJob) -> dg.Definitions:
    assets = job_assets(job)
    jobs = state_jobs(job, assets)
    return dg.Definitions(
        assets=assets,
        asset_checks=job_checks(job),
        jobs=list(jobs.values()),
        schedules=job_schedules(job, jobs),
        sensors=job_sensors(job, jobs),
        # not as configuration, which the UI would show
        resources={job.resource: dg.ResourceDefinition.hardcoded_resource(job.locations)},
    )


def _refuse_credentials(location: str) -> str:
    """A location that may stand in a file and in a log.

    Raises:
        ValueError: The configuration has a password or a key.
    """
    parts = urlsplit(location)
    if parts.scheme and ("@" in parts.netloc or "secret" in parts.query.lower()):
        raise ValueError(
            "a location must not have credentials: put them into the environment, as"
            " AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or STATELAKE_FLINK_TOKEN"
        )
    return location
