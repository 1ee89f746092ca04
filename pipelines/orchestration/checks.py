"""Asset checks: is what is in the lake what was in the savepoint, and can it be restored?"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from math import ceil, isfinite
from typing import Any

import dagster as dg

import statelake as sl
from statelake.pipelines.api import LakeSnapshot
from statelake.pipelines.lake.tables.describing import describe_recorded
from statelake.pipelines.lake.verify.integrity import count_faults
from statelake.pipelines.orchestration.history import growth_of
from statelake.pipelines.orchestration.jobs import DRILL, PROVE, SCRUB
from statelake.pipelines.orchestration.live_job import (
    LiveJob,
    flink_ui_link,
    live_job,
    path_map_words,
)
from statelake.pipelines.orchestration.metadata import (
    faults_list,
    lake_metadata,
    markdown_table,
    printed_table,
    sql_upgrade_metadata,
)
from statelake.pipelines.orchestration.progress import LoggedProgress
from statelake.pipelines.orchestration.requests import words_of
from statelake.pipelines.orchestration.resources import Locations
from statelake.pipelines.orchestration.settings import (
    CanarySettings,
    ChangedQuerySettings,
    CheckpointSettings,
    CompatibilitySettings,
    DrillSettings,
    FlinkSettings,
    GrowthSettings,
    LegalitySettings,
    ScrubSettings,
    SkewSettings,
    StalenessSettings,
)
from statelake.pipelines.orchestration.state_job import StateJob
from statelake.pipelines.requests.checks import CheckCompatibility, CheckLegality
from statelake.pipelines.shown import bytes_text, parse_duration
from statelake.state_core.errors import DeclarationError, StateError
from statelake.state_core.formats.reader import metadata_digest, open_snapshot
from statelake.state_core.printable import age_text, printable, public_location

# whether it passes, None if it compared with nothing; and its metadata
Judgement = tuple[bool | None, dict[str, Any]]
Judge = Callable[[Locations, str], Judgement]


def job_checks(job: StateJob) -> list[dg.AssetChecksDefinition]:
    """Return all checks of a job's snapshots."""
    limits = job.settings.checks
    checks = [_check(job, "integrity", integrity, blocking=True)]
    for name, of_limits, judge in (
        ("compatibility", limits.compatibility, compatibility),
        ("legality", limits.legality, legality),
        ("growth", limits.growth, growth),
        ("skew", limits.skew, skew),
        ("staleness", limits.staleness, staleness),
    ):
        if of_limits is not None:
            bound = _bound(judge, of_limits)
            blocking = name == "legality"
            checks.append(_check(job, name, bound, of_limits.severity, blocking=blocking))
    flink = job.settings.flink
    if flink is not None and flink.canary is not None:
        checks.append(_restorable(job, flink, flink.canary))
    if flink is not None and flink.drill is not None:
        checks.append(_drill(job, flink, flink.drill))
    if (query := job.settings.changed_query) is not None:
        checks.append(_check(job, "changed_query", _bound(changed_query, query), query.severity))
    if job.settings.checkpoints is not None:
        checks.append(_checkpoint(job, job.settings.checkpoints))
    if job.settings.scrub is not None:
        checks.append(_scrub(job, job.settings.scrub))
    return checks


def _scrub(job: StateJob, settings: ScrubSettings) -> dg.AssetChecksDefinition:
    """Return the check of the whole lake, which is of no snapshot in it."""

    @dg.asset_check(
        asset=job.key("state_tables"),
        name="lake",
        description="Every byte of the lake is what was written.",
        required_resource_keys={job.resource},
    )
    def lake(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        storage = context.instance.storage_directory()
        resume = settings.resume or f"{storage}/{job.named(SCRUB)}-found-whole"
        progress = LoggedProgress(context.log, "lake", of_bytes=True)
        report = job.places(context).open_lake().check(resume, progress)
        return dg.AssetCheckResult(
            passed=report.sound,
            severity=dg.AssetCheckSeverity[settings.severity],
            metadata=lake_metadata(report),
        )

    return lake


def _checkpoint(job: StateJob, settings: CheckpointSettings) -> dg.AssetChecksDefinition:
    """Return the check of the running job's checkpoints, which is of no snapshot in the lake."""

    @dg.asset_check(
        asset=job.key("state_tables"),
        name="checkpoint",
        description="The newest checkpoint that Flink can restore is not older than the limit.",
    )
    def checkpoint() -> dg.AssetCheckResult:
        passed, metadata = newest_checkpoint(settings, job.settings.flink)
        severity = dg.AssetCheckSeverity[settings.severity]
        return dg.AssetCheckResult(passed=passed, severity=severity, metadata=metadata)

    return checkpoint


def newest_checkpoint(
    settings: CheckpointSettings, flink: FlinkSettings | None
) -> tuple[bool, dict[str, Any]]:
    """Return whether the newest sound checkpoint is young enough, and its metadata."""
    paths = {} if flink is None else flink.path_map
    scanned = sl.scan(
        settings.directory,
        latest=True,
        sound=True,
        path_map=path_map_words(paths),
    )
    metadata: dict[str, Any] = {
        "allowed": f"{settings.hours:g} hours",
        "passed over": faults_list(f"{each.path}: {each.reason}" for each in scanned.skipped),
    }
    if scanned.newest is None:
        return False, {"newest checkpoint": "none can be restored", **metadata}
    age = datetime.now(timezone.utc) - scanned.newest.time
    return age.total_seconds() <= settings.hours * 3600, {
        "newest checkpoint": printable(scanned.newest.location),
        "written": dg.MetadataValue.timestamp(scanned.newest.time),
        "age": age_text(int(age.total_seconds() * 1000)),
        **metadata,
    }


def _restorable(
    job: StateJob, flink: FlinkSettings, canary: CanarySettings
) -> dg.AssetChecksDefinition:
    """Return the canary's check."""

    def judge(context: dg.AssetCheckExecutionContext) -> tuple[bool, str, dict[str, Any]]:
        (snapshot_id,) = context.partition_keys
        live = live_job(job, flink, context)
        result, url = live.prove(canary, snapshot_id, job.settings.engine, context.log.info)
        metadata = {
            "snapshot": printable(result.snapshot),
            "why not": printable(result.why),
            "sample": canary.sample or "100%",
            "left out": [printable(what) for what in result.left_out],
            "Flink UI": flink_ui_link(url, result.flink_job),
        }
        return result.restores, canary.severity, metadata

    spec = dg.AssetCheckSpec(
        "restorable",
        asset=job.key("state_tables"),
        description="The program of `canary` restores the snapshot, and completes a checkpoint.",
        partitions_def=job.snapshots,
    )
    return _of_a_program(job, spec, PROVE, judge)


def _drill(
    job: StateJob, flink: FlinkSettings, settings: DrillSettings
) -> dg.AssetChecksDefinition:
    """Return the check of a rehearsal, which is of no snapshot in the lake."""

    def judge(context: dg.AssetCheckExecutionContext) -> tuple[bool, str, dict[str, Any]]:
        return rehearsed(live_job(job, flink, context), settings, context.log.info)

    spec = dg.AssetCheckSpec(
        "drill",
        asset=job.key("state_tables"),
        description="The newest sound snapshot is restored as after a disaster, within the limits.",
    )
    return _of_a_program(job, spec, DRILL, judge)


def rehearsed(
    live: LiveJob, settings: DrillSettings, log: Callable[[str], None]
) -> tuple[bool, str, dict[str, Any]]:
    """Run a drill. Returns whether it passes, the severity if not, and its metadata.

    Raises:
        DeclarationError: No program or no cluster is named, so that nothing was tried.
    """
    try:
        done, url = live.drill(settings, log)
    except DeclarationError:
        raise
    except StateError as error:  # nothing there to restore, or nowhere to do it
        return False, "ERROR", {"why not": faults_list([error])}
    rpo = done.rpo_seconds
    took = ({} if rpo is None else {"RPO": rpo}) | (
        {"RTO": done.rto_seconds} if done.restores else {}
    )
    limits = settings.limits
    faults = [] if done.restores else [done.why]
    if rpo is None and "RPO" in limits:
        faults.append("RPO is not known: the snapshot is of the future, so compare the clocks")
    faults += [
        f"{name} of {timedelta(seconds=ceil(seconds))} is beyond {limits[name]}"
        for name, seconds in took.items()
        if name in limits and seconds > parse_duration(limits[name]).total_seconds()
    ]
    metadata = {
        "snapshot": printable(done.snapshot),
        "taken": dg.MetadataValue.timestamp(done.taken),
        "state (bytes)": done.bytes,
        **{f"{name} (seconds)": round(seconds, 3) for name, seconds in took.items()},
        "allowed": ", ".join(f"{name} {limit}" for name, limit in limits.items()) or "any",
        "newer ones that can't be restored": done.skipped,
        "why not": faults_list(faults),
        "Flink UI": flink_ui_link(url, done.flink_job),
    }
    return not faults, settings.severity if done.restores else "ERROR", metadata


def _of_a_program(
    job: StateJob,
    spec: dg.AssetCheckSpec,
    only: str,
    judge: Callable[[dg.AssetCheckExecutionContext], tuple[bool, str, dict[str, Any]]],
) -> dg.AssetChecksDefinition:
    """Return a check that runs a program. Its own job does; materializing an asset does not."""

    @dg.multi_asset_check(
        name=job.named(spec.name),
        specs=[spec],
        can_subset=True,  # so that it need not tell of anything
        pool=job.named("flink"),
        required_resource_keys={job.resource},
    )
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        if context.run.job_name != job.named(only):
            context.log.info("only %s runs a program", job.named(only))
            return
        passed, severity, metadata = judge(context)
        yield dg.AssetCheckResult(
            check_name=spec.name,
            asset_key=spec.asset_key,
            passed=passed,
            severity=dg.AssetCheckSeverity[severity],
            metadata=metadata,
        )

    return check


def _bound(judge: Callable[..., Judgement], limits: object) -> Judge:
    def bound(locations: Locations, snapshot_id: str) -> Judgement:
        return judge(locations, snapshot_id, limits)

    bound.__doc__ = judge.__doc__
    return bound


def _check(
    job: StateJob, name: str, judge: Judge, severity: str = "ERROR", *, blocking: bool = False
) -> dg.AssetChecksDefinition:
    """Return a check of one snapshot in the lake, or of a range of them."""

    @dg.asset_check(
        asset=job.key("state_tables"),
        name=name,
        description=judge.__doc__,
        partitions_def=job.snapshots,
        blocking=blocking and severity == "ERROR",
        required_resource_keys={job.resource},
    )
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        locations = job.places(context)
        judged = {name: judge(locations, name) for name in context.partition_keys}
        metadata: dict[str, Any] = {}
        for partition, (_, of_snapshot) in judged.items():
            before = f"{printable(partition)}: " if len(judged) > 1 else ""
            metadata |= {f"{before}{name}": value for name, value in of_snapshot.items()}
        verdicts = [passed for passed, _ in judged.values()]
        return dg.AssetCheckResult(
            passed=all(verdicts),
            # what was compared with nothing is a warning, and blocks nothing
            severity=dg.AssetCheckSeverity[severity if False in verdicts else "WARN"],
            metadata=metadata,
        )

    return check


def integrity(locations: Locations, snapshot_id: str) -> Judgement:
    """The savepoint is sound, and every state has as many entries in each key group of the lake."""
    record = locations.open_snapshot(snapshot_id).record
    location = locations.savepoint(snapshot_id)
    faults = [str(fault) for fault in sl.check_integrity(location).faults]
    if record.digest != metadata_digest(location):
        faults.append("the savepoint is another one now than the one that was imported")
    # counts alone: `LakeSnapshot.check_integrity` reads every row
    lake = locations.open_lake().catalog
    faults = faults or count_faults(lake, record, open_snapshot(location))
    return not faults, {
        "entries": record.entries,
        "states": sum(len(operator.states) for operator in record.operators),
        "faults": faults_list(faults),
    }


def compatibility(
    locations: Locations, snapshot_id: str, settings: CompatibilitySettings
) -> Judgement:
    """The job that will restore it can use every state: unchanged, or migrated by Flink."""
    against = locations.against_location
    if not against:
        return _with_nothing("against", "a savepoint of the new job, or a file of types")
    words = words_of(settings, CheckCompatibility)
    verdicts = locations.open_snapshot(snapshot_id).check_compatibility(against, **words)
    return not verdicts.faults, {
        "compared with": public_location(against),
        "verdicts": printed_table(verdicts.table("")),
    }


def legality(locations: Locations, snapshot_id: str, settings: LegalitySettings) -> Judgement:
    """The job that will restore it declares legal states, which include those of the snapshot."""
    named = locations.declared_job
    if not named:
        return _with_nothing("declared", "MODULE:JOB of the job that is to restore it")
    words = words_of(settings, CheckLegality)
    findings = locations.open_snapshot(snapshot_id).check_legality(named, **words)
    return not findings.faults, {
        "compared with": named,
        "findings": printed_table(findings.table),
    }


def changed_query(locations: Locations, snapshot_id: str, query: ChangedQuerySettings) -> Judgement:
    """The changed query of the Flink SQL job can go on from the snapshot."""
    arguments = query.arguments(query.plans)
    verdict = locations.open_snapshot(snapshot_id).sql_upgrade(**arguments, dry_run=True)
    return not verdict.refused, sql_upgrade_metadata(verdict)


def _with_nothing(setting: str, what: str) -> Judgement:
    variable = f"STATELAKE_{setting.upper()}"
    return None, {"compared with": f"nothing: set `{setting}` or {variable} to {what}"}


def growth(locations: Locations, snapshot_id: str, limits: GrowthSettings) -> Judgement:
    """The snapshot is neither much larger nor much smaller than those before it."""
    snapshot = locations.open_snapshot(snapshot_id)
    grown = growth_of(snapshot.job.lake.catalog, snapshot.record, limits.last)
    usual = "none" if grown.usual is None else bytes_text(grown.usual)
    is_usual = limits.at_least <= grown.times <= limits.at_most if grown.compared else None
    states: dict[str, Any] = {}
    if grown.compared and limits.each_state is not None:
        beyond, states = _states_beyond(snapshot, grown.earliest, limits.each_state, limits)
        is_usual = is_usual and not beyond
    return is_usual, {
        "state (bytes)": grown.size,
        "median of those before": usual,
        "compared with": grown.compared,
        "times the median": grown.times if isfinite(grown.times) else "none had state",
        "allowed": f"{limits.at_least:g} to {limits.at_most:g} times",
        **states,
    }


def _states_beyond(
    snapshot: LakeSnapshot, earliest: str, at_most: float, limits: GrowthSettings
) -> tuple[int, dict[str, Any]]:
    """Return how many states grew too much since a snapshot, and the metadata of all that grew."""
    grown = snapshot.job.growth(earliest, snapshot.name, keys=False)
    large = [each for each in grown.states if each.last.size >= limits.from_bytes]
    existing = [each for each in large if each.first.size]  # a new one has no multiple
    beyond = {each.label for each in existing if each.last.size > at_most * each.first.size}
    rows = [
        (each.label, bytes_text(each.first.size), bytes_text(each.last.size), each.cause,
         "too much" if each.label in beyond else "")
        for each in large
        if each.change > 0
    ]  # fmt: skip
    columns = ("state", f"in {printable(earliest)}", "now", "why", "")
    return len(beyond), {
        "states that grew": dg.MetadataValue.md(markdown_table(columns, rows) if rows else "none"),
        "states that grew too much": len(beyond),
        "allowed of each state": f"{at_most:g} times from {bytes_text(limits.from_bytes)} on",
        "in words": faults_list(grown.sentences),
    }


def skew(locations: Locations, snapshot_id: str, limits: SkewSettings) -> Judgement:
    """No subtask has much more state than the others of its operator."""
    described = map(describe_recorded, locations.open_snapshot(snapshot_id).record.operators)
    loads = [
        (operator, operator.load())
        for operator in described
        if operator.keyed_states and operator.key_groups[2].sum() >= limits.from_bytes
    ]
    uneven = [load for _, load in loads if load.skew > limits.at_most]
    rows = [(each.label, each.parallelism, f"{load.skew:.2f}") for each, load in loads]
    return not uneven, {
        "operators": dg.MetadataValue.md(
            markdown_table(("operator", "parallelism", "largest over mean"), rows)
        ),
        "uneven": len(uneven),
        "allowed": f"{limits.at_most:g} from {bytes_text(limits.from_bytes)} of state on",
    }


def staleness(locations: Locations, snapshot_id: str, limits: StalenessSettings) -> Judgement:
    """The job's newest snapshot is not older than the limit."""
    del snapshot_id  # in a backfill of old ones, it is the newest that counts
    summaries = locations.open_job().snapshots()
    newest = max(summaries, key=lambda summary: summary.taken_at)
    age = datetime.now(timezone.utc) - newest.taken_at
    return age.total_seconds() <= limits.hours * 3600, {
        "newest snapshot": printable(newest.snapshot_id),
        "taken": dg.MetadataValue.timestamp(newest.taken_at),
        "age": age_text(int(age.total_seconds() * 1000)),
        "allowed": f"{limits.hours:g} hours",
    }
