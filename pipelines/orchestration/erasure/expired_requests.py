"""The check for overdue requests: promised to be erased by now, but not erased."""

from collections.abc import Iterable
from datetime import datetime, timezone

import dagster as dg

from statelake.pipelines.lake.erase.audit_records import AuditRecord, audit_records, broken_record
from statelake.pipelines.lake.erase.requests import keyed_digest
from statelake.pipelines.orchestration.erasure.lake_erasure import LakeErasure
from statelake.pipelines.orchestration.metadata import faults_list
from statelake.state_core.errors import StateError

REQUESTS = "erasure_requests"
OPEN, ERASED = "not erased", "erased"
AUDITED, LEFT = "erased, and audited", "erased, and something is left"


def expired_requests_check(erasure: LakeErasure) -> dg.AssetChecksDefinition:
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
        states = states_of_requests(records) if broken is None else {}
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
            asked = keyed_digest(file.asked, erasure.secret())
            # what was erased by the command, without a secret, goes by its id alone
            state = states.get((request, asked)) or states.get((request, ""), OPEN)
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


def states_of_requests(records: Iterable[AuditRecord]) -> dict[tuple[str, str], str]:
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
