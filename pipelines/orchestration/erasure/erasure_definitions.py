"""The definitions of a lake's erasures: assets, two jobs, a sensor, a check."""

from collections.abc import Iterable
from datetime import datetime, timezone

import dagster as dg

from statelake.pipelines.lake.erase.audit_records import AuditRecord, audit_records, broken_record
from statelake.pipelines.lake.erase.requests import keyed_digest
from statelake.pipelines.orchestration.erasure.erasure_ops import (
    ERASURE,
    PLAN,
    RequestConfig,
    audit_op,
    erase_op,
    plan_op,
    turn_op,
)
from statelake.pipelines.orchestration.erasure.lake_erasure import LakeErasure
from statelake.pipelines.orchestration.metadata import faults_list
from statelake.state_core.errors import StateError
from statelake.state_core.printable import public_location

REQUESTS = "erasure_requests"
OPEN, ERASED = "not erased", "erased"
AUDITED, LEFT = "erased, and audited", "erased, and something is left"
SHOWN_FAULTS = 5
MOST_AT_ONCE = 100  # runs of one look; the others follow at the next
REQUEST_TAG = "statelake/request"


def erasure_definitions(erasure: LakeErasure) -> dg.Definitions:
    """Return all definitions of a lake's erasures."""
    plan = _plan_job(erasure)
    check = _expired_requests_check(erasure)
    looked_at = dg.define_asset_job(
        erasure.named("check_erasure_requests"),
        selection=dg.AssetSelection.checks(check),
        description="Whether a promise was broken.",
        executor_def=dg.in_process_executor,
    )
    daily = dg.ScheduleDefinition(
        name=erasure.named("daily_erasure_check"),
        job=looked_at,
        cron_schedule=erasure.settings.schedule,
    )
    return dg.Definitions(
        assets=_assets(erasure),
        asset_checks=[check],
        jobs=[plan, _erase_job(erasure), looked_at],
        schedules=[daily],
        sensors=[_sensor(erasure, plan)],
    )


def _assets(erasure: LakeErasure) -> list[dg.AssetSpec]:
    """Return the assets of erasure requests, which only the two jobs materialize."""
    group = erasure.named("erasure")
    requests, plan = erasure.key(REQUESTS), erasure.key(PLAN)
    return [
        dg.AssetSpec(requests, group_name=group, description="Requests for erasure, in files."),
        dg.AssetSpec(
            plan, deps=[requests], group_name=group, partitions_def=erasure.partitions,
            description="What would be erased for a request, and what stands against it.",
        ),
        dg.AssetSpec(
            erasure.key(ERASURE), deps=[plan], group_name=group,
            partitions_def=erasure.partitions,
            description="A request that was erased, and what its audit has searched.",
        ),
    ]  # fmt: skip


def _plan_job(erasure: LakeErasure) -> dg.JobDefinition:
    @dg.job(
        name=erasure.named("plan_erasure"),
        description="What a request would erase. Nothing is written.",
        executor_def=dg.in_process_executor,
    )
    def plan() -> None:
        plan_op(erasure).alias("plan")()

    return plan


def _erase_job(erasure: LakeErasure) -> dg.JobDefinition:
    """Return the job that erases: launching it approves the plan."""

    @dg.job(
        name=erasure.named("erase"),
        description="Launch it to approve of a request's plan: it is erased, and audited.",
        executor_def=dg.in_process_executor,
    )
    def erase() -> None:
        turns = [turn_op(erasure, pool).alias(f"turn_in_{pool}")() for pool in erasure.pools]
        audit_op(erasure).alias("audit")(erase_op(erasure).alias("erase")(turns))

    return erase


def _sensor(erasure: LakeErasure, plan: dg.JobDefinition) -> dg.SensorDefinition:
    @dg.sensor(
        job=plan,
        name=erasure.named("new_erasure_requests"),
        minimum_interval_seconds=erasure.settings.sensor_seconds,
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        """Plan each new request as soon as its file can be read."""
        ids, faults = erasure.requests.ids()
        known = set(context.instance.get_dynamic_partitions(str(erasure.partitions.name)))
        new: list[str] = []
        for request in ids:
            if request not in known and len(new) < MOST_AT_ONCE:
                try:  # who knows whether its name is what is to be erased?
                    erasure.requests.read(request)
                    new.append(request)
                except StateError as error:
                    faults.append(error)
        for fault in faults:
            context.log.error("%s", fault)
        if not new:
            place = public_location(erasure.requests.location)
            shown = map(str, faults[:SHOWN_FAULTS])
            return dg.SkipReason("; ".join([f"no new request in {place}", *shown]))
        return dg.SensorResult(
            run_requests=[
                dg.RunRequest(
                    run_key=request,
                    run_config=dg.RunConfig({"plan": RequestConfig(request=request)}),
                    tags={REQUEST_TAG: request},
                )
                for request in new
            ],
            dynamic_partitions_requests=[erasure.partitions.build_add_request(new)],
        )

    return look


def _expired_requests_check(erasure: LakeErasure) -> dg.AssetChecksDefinition:
    """Return the check of a lake's requests."""

    @dg.asset_check(
        asset=erasure.key(REQUESTS),
        name="no_expired_requests",
        description="Every request was erased by the time that was promised, as the lake records.",
    )
    def no_expired_requests() -> dg.AssetCheckResult:
        lake = erasure.open_lake()
        records = audit_records(lake)
        broken = broken_record(records)
        states = _states_of_requests(records) if broken is None else {}
        ids, faults = erasure.requests.ids()
        unread = [str(fault) for fault in faults]
        late: list[str] = []
        unaudited: list[str] = []
        promises: list[datetime] = []
        for request in ids:
            try:
                file = erasure.requests.read(request)
            except StateError as error:  # who knows what was promised?
                unread.append(str(error))
                continue
            digest = keyed_digest(file.asked, erasure.secret())
            # what was erased by the command, without a secret, goes by its id alone
            state = states.get((request, digest)) or states.get((request, ""), OPEN)
            if state == ERASED:
                unaudited.append(request)
            if state in (OPEN, LEFT):
                promises.append(file.promised)
                if file.promised < datetime.now(timezone.utc):
                    late.append(f"{request}: promised for {file.promised.isoformat()}, {state}")
        return dg.AssetCheckResult(
            passed=not (late or unread or broken),
            metadata={
                "expired": faults_list(late),
                "open": len(promises),
                "next promise": dg.MetadataValue.timestamp(min(promises)) if promises else "none",
                "no requests": faults_list(unread),
                "erased, not audited": faults_list(unaudited),
                "records": "as they were written" if broken is None else
                f"record {broken.number} was changed, or one before it was removed",
            },
        )  # fmt: skip

    return no_expired_requests


def _states_of_requests(records: Iterable[AuditRecord]) -> dict[tuple[str, str], str]:
    """Return the states of all recorded erasures, by id and by the hash of the request."""
    states: dict[tuple[str, str], str] = {}
    names: dict[str, tuple[str, str]] = {}
    for record in records:
        content = record.to_json()["said"]
        if record.kind == "erase":
            names[record.digest] = record.request, content["asked"]
            states[names[record.digest]] = ERASED
        elif content["erasure"] in names:
            left = (
                content["hit_count"]
                or content["rows"]
                or content["not_unpacked"]
                or content["unread"]
            )
            states[names[content["erasure"]]] = LEFT if left else AUDITED
    return states
