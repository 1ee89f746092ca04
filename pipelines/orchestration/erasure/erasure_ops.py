"""Ops that plan a request, erase what was planned, and audit the result."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import dagster as dg

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.holds import refuse_held
from statelake.pipelines.lake.erase.audit_records import add_record, audit_records
from statelake.pipelines.lake.erase.auditing import AuditResult, audit_erasure
from statelake.pipelines.lake.erase.erasing import erase, plan_erasure
from statelake.pipelines.lake.erase.planning import ErasurePlan
from statelake.pipelines.lake.erase.refusals import refuse_plan
from statelake.pipelines.lake.erase.requests import keyed_digest
from statelake.pipelines.orchestration.erasure.lake_erasure import LakeErasure
from statelake.pipelines.orchestration.erasure.redaction import Redaction
from statelake.pipelines.orchestration.erasure.request_files import RequestFile
from statelake.pipelines.orchestration.metadata import faults_list, markdown_table, metadata_of
from statelake.pipelines.orchestration.progress import LoggedProgress
from statelake.state_core.errors import (
    ConflictError,
    DamagedLakeError,
    EncodeError,
    HeldError,
    NoMatchError,
    NotFoundError,
)
from statelake.state_core.printable import printable

SHOWN = 20
PLAN = "erasure_plan"  # assets, with a partition for each request
ERASURE = "erasure"


class RequestConfig(dg.Config):
    """The request of a run.

    Attributes:
        request: Its id.
    """

    request: str


def plan_op(erasure: LakeErasure) -> dg.OpDefinition:
    """Return the op that plans; it erases nothing."""

    @dg.op(name=erasure.named("plan_erasure_step"))
    def plan_request(context: dg.OpExecutionContext, config: RequestConfig) -> None:
        """Report where the keys are, and reasons why they can't be erased. Nothing is written."""
        request = erasure.requests.read(config.request)
        redaction = Redaction(request.asked)

        def metadata() -> dict[str, Any]:
            secret, lake = erasure.secret(), erasure.open_lake()
            plan = _plan(lake, request, context)
            return _plan_metadata(plan, request, _against(lake, plan, request), secret)

        redacted = redaction.run(metadata)
        # one that somebody plans by hand may be unknown to the sensor
        context.instance.add_dynamic_partitions(str(erasure.partitions.name), [config.request])
        context.log_event(erasure.materialized(PLAN, config.request, redacted))

    return plan_request


def _against(lake: Catalog, plan: ErasurePlan, request: RequestFile) -> list[str]:
    """Return the reasons why a plan can't be executed. An empty plan is not one."""
    against: list[str] = []
    with _collecting(against):
        refuse_held(lake, plan.changed(request.asked))
    with _collecting(against), suppress(NoMatchError):
        refuse_plan(plan, request.asked, all_rows=request.whole)
    return against


@contextmanager
def _collecting(errors: list[str]) -> Iterator[None]:
    try:
        yield
    except (HeldError, EncodeError) as error:
        errors.append(str(error))


def turn_op(erasure: LakeErasure, pool: str) -> dg.OpDefinition:
    """Return the op that waits for a pool, and holds it until the run ends."""

    @dg.op(
        name=erasure.named(f"turn_in_{pool}"), pool=pool, out=dg.Out(dg.Nothing),
        description="Nothing: the run has its pool, so that no other writes these tables.",
    )  # fmt: skip
    def turn() -> None:
        """Nothing."""

    return turn


def erase_op(erasure: LakeErasure) -> dg.OpDefinition:
    """Return the op that erases what was planned."""

    @dg.op(name=erasure.named("erase_step"), ins={"turns": dg.In(dg.Nothing)})
    def erase_request(context: dg.OpExecutionContext, config: RequestConfig) -> str:
        """Erase, or continue where an earlier run ended. Returns the request's id."""
        request = erasure.requests.read(config.request)

        def work() -> None:
            secret, lake = erasure.secret(), erasure.open_lake()
            planned = _planned(erasure, context.instance, config.request)
            _refuse_unplanned(request, planned, secret)
            before = None
            if (
                config.request not in lake.version().claims.erasures
            ):  # else it goes on, and was approved
                before = _plan(lake, request, context)
                _refuse_more(before, request, planned)
            requested_by = f"{request.requested_by or 'unknown'}, Dagster run {context.run_id}"
            try:
                erase(
                    lake, request.asked, request.jobs, all_rows=request.whole, secret=secret,
                    requested_by=requested_by,
                    progress=LoggedProgress(context.log, f"erasing {config.request}"),
                    approve=lambda rest: _refuse_more(rest, request, planned),
                )  # fmt: skip
            except NoMatchError:
                context.log.info("nothing of it is left")
            if _recorded(lake, request, secret) is None:
                # nothing of it is here: the request is fulfilled
                before = before or _plan(lake, request, context)
                content = before.record_content(request.asked, secret)
                add_record(lake, "erase", config.request, requested_by, content)

        Redaction(request.asked).run(work)
        return config.request

    return erase_request


def audit_op(erasure: LakeErasure) -> dg.OpDefinition:
    """Return the op that audits an erasure."""

    @dg.op(name=erasure.named("audit_erasure_step"), ins={"request": dg.In(str)})
    def audit_request(context: dg.OpExecutionContext, request: str) -> None:
        """Search every byte for what was erased; fail if anything is left."""
        audited = _audited(erasure, erasure.requests.read(request), context)
        if not audited["clean"]:
            raise dg.Failure(
                f"{request} was erased, and its audit is not clean: see what it found",
                metadata=audited,
                allow_retries=False,
            )
        context.log_event(erasure.materialized(ERASURE, request, audited))

    return audit_request


def _audited(
    erasure: LakeErasure, request: RequestFile, context: dg.OpExecutionContext
) -> dict[str, Any]:
    """Audit a request, and return the metadata."""
    redaction = Redaction(request.asked)

    def work() -> dict[str, Any]:
        secret, lake = erasure.secret(), erasure.open_lake()
        erased = _recorded(lake, request, secret) or {}
        try:
            result = audit_erasure(
                lake, request.asked, erasure.settings.also, secret=secret,
                progress=LoggedProgress(context.log, f"searching for {request.asked.request}"),
            )  # fmt: skip
        except EncodeError as error:  # it has no bytes that distinguish it from others
            left = _plan(lake, request, context)
            return {
                "clean": left.empty,
                "rows erased": erased["rows"],
                "rows left": left.rows,
                "searched": f"rows of snapshots alone: {redaction.text(str(error))}",
            }
        return _audit_metadata(result, erased, redaction)

    return redaction.run(work)


def _plan(lake: Catalog, request: RequestFile, context: dg.OpExecutionContext) -> ErasurePlan:
    progress = LoggedProgress(context.log, f"looking for {request.asked.request}")
    return plan_erasure(lake, request.asked, request.jobs, progress=progress)


def _recorded(lake: Catalog, request: RequestFile, secret: bytes) -> Mapping[str, Any] | None:
    """Return the newest record of an erasure of the whole request, or None."""
    digest = keyed_digest(request.asked, secret)
    contents = [
        record.to_json()["said"]
        for record in audit_records(lake)
        if (record.kind, record.request) == ("erase", request.asked.request)
    ]
    return next(
        (content for content in reversed(contents) if content["asked"] in ("", digest)), None
    )


def _planned(
    erasure: LakeErasure, instance: dg.DagsterInstance, request: str
) -> dict[str, dg.MetadataValue[Any]]:
    """Return the newest plan of a request.

    Raises:
        NotFoundError: The erasure was never planned.
    """
    record_filter = dg.AssetRecordsFilter(asset_key=erasure.key(PLAN), asset_partitions=[request])
    for record in instance.fetch_materializations(record_filter, limit=1).records:
        if record.asset_materialization is not None:
            return dict(record.asset_materialization.metadata)
    raise NotFoundError(
        f"request {request!r} was never planned",
        remedy=f"launch {erasure.named('plan_erasure')} for it, and look at what it finds",
    )


def _refuse_unplanned(
    request: RequestFile, planned: Mapping[str, dg.MetadataValue[Any]], secret: bytes
) -> None:
    """Refuse a request that is not as it was when it was planned.

    Raises:
        ConflictError: The request, or the secret, was changed since.
        DamagedLakeError: The newest plan was not written by statelake.
    """
    if not planned.keys() >= {"planned", "digest of the request"}:
        raise DamagedLakeError(
            f"the newest plan of {request.asked.request!r} is none",
            remedy="plan it again, and see who else reports materializations",
        )
    if planned["digest of the request"].value != request.digest(secret):
        raise ConflictError(
            f"request {request.asked.request!r} was changed since it was planned, or the secret",
            remedy="plan it again, and look at what it finds",
        )


def _refuse_more(
    plan: ErasurePlan, request: RequestFile, planned: Mapping[str, dg.MetadataValue[Any]]
) -> None:
    """Refuse to erase from places that no plan has named, except new snapshots of the same states.

    Raises:
        ConflictError: There are such places.
    """
    before = planned["planned"].value
    named = {tuple(names) for names in before["states"]}
    more = [f"{state.operator}/{state.state} of job {state.job!r}" for state in plan.states
            if (state.job, state.operator, state.state) not in named]  # fmt: skip
    if request.asked.carried == "drop" and plan.opaque and not before["opaque"]:
        more.append("state that has no table")
    if more:
        others = f" and {len(more) - 1} others" if len(more) > 1 else ""
        raise ConflictError(
            f"the plan of {request.asked.request!r} is stale: it does not name {more[0]}{others},"
            " of which there are rows now",
            remedy="plan it again, and look at what it finds",
        )


def _plan_metadata(
    plan: ErasurePlan, request: RequestFile, against: Sequence[str], secret: bytes
) -> dict[str, Any]:
    """Return the metadata of a plan.

    Args:
        plan: The plan.
        request: The request.
        against: Reasons why it can't be executed.
        secret: The key of hashes.
    """
    hidden = Redaction(request.asked).text
    return {
        **metadata_of(plan),
        "snapshots": f"{len(plan.matched_snapshots)} of {plan.snapshots}",
        "not erased from here": faults_list(map(hidden, plan.elsewhere)),
        "stands against it": faults_list(map(hidden, against)),
        "asked": dg.MetadataValue.timestamp(request.asked_at),
        "promised": dg.MetadataValue.timestamp(request.promised),
        "requested by": printable(request.requested_by) or "unknown",
        "digest of the request": request.digest(secret),
        "planned": dg.MetadataValue.json(
            {
                "states": [[state.job, state.operator, state.state] for state in plan.states],
                "opaque": bool(plan.opaque),
            }
        ),
    }


def _audit_metadata(
    result: AuditResult, erased: Mapping[str, Any], redaction: Redaction
) -> dict[str, Any]:
    """Return the metadata of an audit.

    Args:
        result: The audit.
        erased: The record of the erasure.
        redaction: Replaces erased words in names of files.
    """
    hidden = redaction.text
    places = [
        (hidden(printable(place)), f"{of_place['files']:,}", f"{of_place['bytes']:,}")
        for place, of_place in result.places.items()
    ]
    hits = [(hidden(printable(hit.file)), hit.where, hit.form, hit.at) for hit in result.hits]
    return {
        **metadata_of(result),
        "rows erased": erased["rows"],
        "files written again": erased["files"],
        "snapshots erased from": len(erased["snapshots_erased_from"]),
        "places": dg.MetadataValue.md(markdown_table(("place", "files", "bytes"), places)),
        "hits": len(result.hits),
        "found": dg.MetadataValue.md(
            markdown_table(("file", "where", "form", "byte"), hits[:SHOWN]) if hits else "nothing"
        ),
        "not unpacked": faults_list(map(hidden, result.not_unpacked[:SHOWN])),
        "not looked through": hidden(result.unread) or "nothing",
        "too short to be searched for": ", ".join(result.forms_left_out) or "nothing",
        "not erased from here": faults_list(map(hidden, erased["elsewhere"])),
    }
