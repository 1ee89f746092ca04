"""The settings of each job and of erasures in `defs.yaml`, with their defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import ConfigDict, Field, model_validator

from statelake.pipelines.lake.catalog.retention import Policy
from statelake.pipelines.lake.share.sampling import parse_share
from statelake.pipelines.orchestration.requests import model_of, words_of
from statelake.pipelines.requests.changes import Accepting
from statelake.pipelines.requests.checks import CheckCompatibility, CheckLegality
from statelake.pipelines.requests.savepoints import Written
from statelake.pipelines.requests.shared import Sharing
from statelake.pipelines.shown import parse_duration
from statelake.pipelines.sql_jobs.requests import NamedPlans
from statelake.pipelines.sql_jobs.sql_scripts import SqlPlans


class CheckSeverity(dg.Resolvable, dg.Model):
    """The severity of a check that does not pass.

    Attributes:
        severity: `ERROR`, or `WARN`, which blocks nothing.
    """

    severity: Literal["ERROR", "WARN"] = "ERROR"


class CompatibilitySettings(CheckSeverity, model_of(CheckCompatibility, "against")):  # type: ignore[misc]  # made of a request
    """The options of `statelake check compatibility`, and the severity."""


class LegalitySettings(CheckSeverity, model_of(CheckLegality)):  # type: ignore[misc]  # likewise
    """The options of `statelake check legality`, and the severity."""


class GrowthSettings(dg.Resolvable, dg.Model):
    """The size of a snapshot against the median of those before it.

    Attributes:
        last: The number of earlier snapshots in the comparison.
        at_most: The largest size allowed, as a multiple of their median.
        at_least: The smallest size allowed, likewise: lost state is as bad as growing state.
        each_state: The largest size of one state, as a multiple of its size in the earliest of
            these snapshots; None to look at the whole alone.
        from_bytes: States with less are not looked at by themselves.
        severity: `ERROR` or `WARN`.
    """

    last: int = Field(default=7, ge=1)
    at_most: float = Field(default=2.0, gt=0)
    at_least: float = Field(default=0.5, ge=0)
    each_state: float | None = Field(default=None, gt=0)
    from_bytes: int = Field(default=1 << 20, ge=0)
    severity: Literal["ERROR", "WARN"] = "WARN"


class SkewSettings(dg.Resolvable, dg.Model):
    """The largest subtask's bytes over the mean of an operator's subtasks.

    Attributes:
        at_most: The largest ratio allowed; 1 is even.
        from_bytes: Operators with less state are not checked.
        severity: `ERROR` or `WARN`.
    """

    at_most: float = Field(default=2.0, ge=1)
    from_bytes: int = Field(default=1 << 20, ge=0)
    severity: Literal["ERROR", "WARN"] = "WARN"


class StalenessSettings(dg.Resolvable, dg.Model):
    """The age of the job's newest snapshot, and how often its assets are to be materialized.

    Attributes:
        hours: The largest age allowed.
        severity: `ERROR` or `WARN`.
    """

    hours: float = Field(default=26, gt=0)
    severity: Literal["ERROR", "WARN"] = "WARN"


class CheckSettings(dg.Resolvable, dg.Model):
    """The checks of a snapshot. `integrity` is always an error, and blocks what follows.

    Attributes:
        legality: Whether the declared job may restore it; as an error it blocks. Not checked if
            null, likewise below.
        compatibility: Whether the job that it is compared with can use every state.
        growth: The size against earlier snapshots.
        skew: The skew between subtasks.
        staleness: The age of the newest snapshot.
    """

    legality: LegalitySettings | None = LegalitySettings()
    compatibility: CompatibilitySettings | None = CompatibilitySettings()
    growth: GrowthSettings | None = GrowthSettings()
    skew: SkewSettings | None = SkewSettings()
    staleness: StalenessSettings | None = StalenessSettings()


class CheckpointSettings(CheckSeverity):
    """The age of the newest checkpoint that the running job could be restored from.

    Attributes:
        directory: The directory of its checkpoints, as it is called here.
        hours: The largest age allowed.
        schedule: When it is checked.
    """

    directory: str = Field(min_length=1)
    hours: float = Field(default=1, gt=0)
    schedule: str = "*/30 * * * *"


class ScrubSettings(CheckSeverity):
    """A check of every byte of the lake, as `statelake lake check`; one job of a lake is enough.

    Attributes:
        schedule: When it is checked.
        resume: A local file that says what was found whole until a run was stopped: the next one
            goes on there. By default one in the instance's own storage.
    """

    schedule: str = "0 7 * * 6"
    resume: str = ""


def _version(context: dg.ResolutionContext, text: str | None) -> str | None:
    """Return a version as it is written: rendered as a template, 1.20 would be the number 1.2."""
    is_template = text is not None and "{{" in text
    return context.resolve_value(text, as_type=str) if is_template else text


AS_WRITTEN = dg.Resolver(_version, model_field_type=str, inject_before_resolve=False)


class ChangedQuerySettings(CheckSeverity, model_of(NamedPlans), model_of(Accepting, "inexact")):  # type: ignore[misc]  # made of requests
    """The next query of a Flink SQL job, as for `statelake check sql` and `sql-upgrade`.

    Attributes:
        flink_version: As in `NamedPlans`.
        old_flink: Likewise.
        no_uids: Whether both jobs run without a compiled plan; `old` if the old one alone does.
    """

    flink_version: Annotated[str, AS_WRITTEN] = ""
    old_flink: Annotated[str | None, AS_WRITTEN] = None
    no_uids: bool | Literal["old"] = False

    @model_validator(mode="after")
    def _of_two_plans(self) -> ChangedQuerySettings:
        _ = self.plans
        return self

    @property
    def plans(self) -> SqlPlans:
        """Return both plans, of which scripts are compiled at their first use."""
        return SqlPlans.named(NamedPlans(**words_of(self, NamedPlans)))

    def arguments(self, plans: SqlPlans, accept: Sequence[str] = ()) -> dict[str, Any]:
        """Return the arguments of `LakeSnapshot.sql_upgrade`, which accepts these words, too."""
        old, new = plans.read()
        words = vars(Accepting(**words_of(self, Accepting)))
        return {
            **words, "accept": [*words["accept"], *accept], "old_plan": old, "new_plan": new,
            "no_uids": self.no_uids,
        }  # fmt: skip


class RestoreSettings(
    dg.Resolvable,
    model_of(  # type: ignore[misc]  # made of a request
        Written, "to", "metadata_version", "operator_state_version", "drop_channel_state"
    ),
):
    """The default settings for planning and exporting snapshots."""


class RetentionSettings(dg.Resolvable, dg.Model):
    """The settings for keeping imported snapshots in the lake.

    Attributes:
        last: So many of the newest.
        daily: And the newest of each day, of so many days that have one.
        policy: A policy of `statelake retain` instead: `30d all, 1y daily`.
        schedule: When the others are dropped.
    """

    last: int = Field(default=30, ge=1)
    daily: int = Field(default=0, ge=0)
    policy: str = ""
    schedule: str = "0 5 * * *"

    @model_validator(mode="after")
    def _of_one_policy(self) -> RetentionSettings:
        if self.policy:
            Policy.parse(self.policy)
            if self.model_fields_set & {"last", "daily"}:
                raise ValueError("retention has a `policy`, or else `last` and `daily`")
        return self


class ProgramSettings(dg.Resolvable, dg.Model):
    """A program on a cluster.

    Attributes:
        jar: It, as a local file; of a canary and of a drill, by default that of the job.
        jar_id: The id of a JAR on the cluster, instead.
        entry_class: The class with `main`; by default from the JAR's manifest.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    jar: str = ""
    jar_id: str = ""
    entry_class: str = ""

    @model_validator(mode="after")
    def _of_one_jar(self) -> ProgramSettings:
        if self.jar and self.jar_id:
            raise ValueError("a program has a `jar` or a `jar_id`, not both")
        return self


class CanarySettings(CheckSeverity, ProgramSettings, model_of(Sharing, "mask", "inexact")):  # type: ignore[misc]  # made of a request
    """The canary: a program is run from a snapshot, and cancelled, to prove that it restores.

    While it runs it reads its sources and writes its sinks, which its arguments name.

    Attributes:
        arguments: The program's arguments, for harmless sources and sinks. They are never shown.
        url: The cluster's REST API; that of the job, by default.
    """

    arguments: list[str] = Field(repr=False)
    url: str = ""

    @model_validator(mode="after")
    def _of_a_share(self) -> CanarySettings:
        _ = self.share
        return self

    @property
    def share(self) -> float | None:
        """Return the share of the keys to restore; None for all of them."""
        return parse_share(self.sample) if self.sample else None


class DrillSettings(ProgramSettings):
    """The drill: the newest sound snapshot is restored as after a disaster, and cancelled.

    While it runs it reads its sources and writes its sinks, which its arguments name.

    Attributes:
        directory: The snapshot, or a directory that has it, such as that of `statelake copy --all`,
            as it is called here.
        arguments: The program's arguments, for harmless sources and sinks. They are never shown.
        url: The REST API of the cluster, in the second region or for staging; that of the job, by
            default.
        path_map: The cluster's directories, as they are called here; those of the job by default.
        parallelism: The parallelism; the snapshot's by default.
        timeout: How long it may take to run and to complete a checkpoint.
        rpo: The largest age allowed of the snapshot: `15min`. Any by default.
        rto: The longest time allowed to find and to restore it. Any by default.
        schedule: When it is run.
        severity: `ERROR` or `WARN`, of what exceeds a limit. A snapshot that is not restored is
            always an error.
    """

    directory: str = Field(min_length=1)
    arguments: list[str] = Field(repr=False)
    url: str = ""
    path_map: dict[str, str] | None = None
    parallelism: int | None = Field(default=None, ge=1)
    timeout: str = "5min"
    rpo: str = ""
    rto: str = ""
    schedule: str = "0 3 * * 0"
    severity: Literal["ERROR", "WARN"] = "ERROR"

    @model_validator(mode="after")
    def _of_durations(self) -> DrillSettings:
        for duration in (self.timeout, *self.limits.values()):
            parse_duration(duration)
        return self

    @property
    def limits(self) -> dict[str, str]:
        """Return the limits that are set, as durations: `RPO`, `RTO`."""
        return {name: limit for name, limit in (("RPO", self.rpo), ("RTO", self.rto)) if limit}


class FlinkSettings(ProgramSettings):
    """The cluster of a job. Credentials come from the environment alone.

    Attributes:
        url: Its REST API; `STATELAKE_FLINK` when it is needed, by default.
        job: The job there: its name, or its id; its name in the lake, by default.
        savepoints: The job's directory of savepoints, by the cluster's path; by default from
            `path_map`.
        path_map: The local path of each of the cluster's directories.
        form: The format of savepoints: `canonical` or `native`.
        schedule: When a savepoint is taken.
        arguments: The program's arguments. They are never shown.
        exports: Where the savepoint is written that a rescaled job starts from, as that is called
            here; below the lake's exports, by default.
        canary: The canary; there is no such check by default.
        drill: The drill, likewise.
    """

    url: str = ""
    job: str = ""
    savepoints: str = ""
    path_map: dict[str, str] = Field(default_factory=dict)
    form: Literal["canonical", "native"] = "canonical"
    schedule: str = "0 1 * * *"
    arguments: list[str] = Field(default_factory=list, repr=False)
    exports: str = ""
    canary: CanarySettings | None = None
    drill: DrillSettings | None = None


class ErasureSettings(dg.Resolvable, dg.Model):
    """Erasures from the lake on request.

    Attributes:
        requests: A directory of requests, each a JSON file named after its id.
        promised_days: How many days an erasure may take if its request does not say.
        also: Other directories or URIs that its audit searches, such as exports.
        blobs: Blob stores of runs, directories or URIs, that are erased from, too.
        changelogs: Directories of changelogs that are.
        prefix: The prefix of its names in Dagster, if a project has several lakes.
        sensor_seconds: The interval at which the directory of requests is read, at least.
        schedule: When overdue requests are checked.
    """

    requests: str = Field(min_length=1)
    promised_days: float = Field(default=30, gt=0, le=3650)
    also: list[str] = Field(default_factory=list)
    blobs: list[str] = Field(default_factory=list)
    changelogs: list[str] = Field(default_factory=list)
    prefix: str = Field(default="", pattern=r"^[A-Za-z0-9_]*$")
    sensor_seconds: int = Field(default=30, ge=1)
    schedule: str = "0 6 * * *"


class JobSettings(dg.Resolvable, dg.Model):
    """A Flink job: its savepoints, and what is done with them.

    Attributes:
        name: Its name in the lake.
        savepoints: A directory with a directory for each savepoint.
        prefix: The prefix of its names in Dagster; its name by default.
        against: What snapshots are checked against: a savepoint of the job that is to restore
            them, or a file that says what states become.
        declared: The job that is to restore them, as it declares its states: `MODULE:JOB`.
        schedule: When its newest savepoint is archived.
        verify_schedule: When its newest snapshot is exported, restored elsewhere and compared.
        sensor_seconds: The interval at which the directory of savepoints is read, at least.
        retention: Which snapshots are kept; all by default.
        checks: Their severity and limits.
        checkpoints: Where it has its checkpoints, if their age is to be checked.
        scrub: When every byte of the lake is checked; not by default.
        changed_query: Its next query, if it is a Flink SQL job.
        plan: The compiled plan of its query, from which its tables have names.
        decode: What texts and bytes hold: `OPERATOR/STATE=json`, as for `statelake import`.
        restore: How snapshots are planned and exported.
        flink: Its cluster, if it is operated from here.
        engine: `auto`, `local` or `spark`.
        partitions_per_run: How many partitions one run of a backfill does.
        process_functions: Whether the job runs on statelake's own runtime, too.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    name: str = ""
    savepoints: str = ""
    prefix: str | None = None
    against: str = ""
    declared: str = ""
    schedule: str = "0 2 * * *"
    verify_schedule: str = "0 4 * * *"
    sensor_seconds: int = Field(default=30, ge=1)
    retention: RetentionSettings | None = None
    checks: CheckSettings = CheckSettings()
    checkpoints: CheckpointSettings | None = None
    scrub: ScrubSettings | None = None
    changed_query: ChangedQuerySettings | None = None
    plan: str = ""
    decode: list[str] = Field(default_factory=list)
    restore: RestoreSettings = RestoreSettings()
    flink: FlinkSettings | None = None
    engine: Literal["auto", "local", "spark"] = "auto"
    partitions_per_run: int = Field(default=10, ge=1)
    process_functions: bool = False

    @model_validator(mode="after")
    def _named(self) -> JobSettings:
        if bool(self.name) != bool(self.savepoints):
            raise ValueError("a job has a name and a directory of savepoints, both of them")
        return self
