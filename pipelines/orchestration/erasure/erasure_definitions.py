"""The definitions of a lake's erasures: assets, two jobs, a sensor, a check."""

import dagster as dg

from statelake.pipelines.orchestration.erasure.erasure_ops import (
    ERASURE,
    PLAN,
    RequestConfig,
    audit_op,
    erase_op,
    plan_op,
    turn_op,
)
from statelake.pipelines.orchestration.erasure.expired_requests import (
    REQUESTS,
    expired_requests_check,
)
from statelake.pipelines.orchestration.erasure.lake_erasure import LakeErasure
from statelake.state_core.errors import StateError
from statelake.state_core.printable import public_location

SHOWN_FAULTS = 5
MOST_AT_ONCE = 100  # runs of one look; the others follow at the next
REQUEST_TAG = "statelake/request"


def erasure_definitions(erasure: LakeErasure) -> dg.Definitions:
    """Return all definitions of a lake's erasures."""
    plan = _plan_job(erasure)
    check = expired_requests_check(erasure)
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
            told = map(str, faults[:SHOWN_FAULTS])
            return dg.SkipReason("; ".join([f"no new request in {place}", *told]))
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
