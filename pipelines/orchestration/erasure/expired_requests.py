"""The check of requests: which were promised to be erased by now, and are not."""

from collections.abc import Iterable
from datetime import datetime, timezone

import dagster as dg

from pipelines.lake.erase.audit_records import AuditRecord, audit_records, broken_record
from pipelines.orchestration.erasure.lake_erasure import LakeErasure
from pipelines.orchestration.metadata import faults_list
from state_core.errors import StateError

__all__ = ["REQUESTS", "expired_requests_check", "states_of_requests"]

REQUESTS = "erasure_requests"
AUDITED, ERASED, LEFT = "erased, and audited", "erased", "erased, and something is left"


def expired_requests_check(erasure: LakeErasure) -> dg.AssetChecksDefinition:
    """The check of a lake's requests."""

    @dg.asset_check(
        asset=erasure.key(REQUESTS),
        name="no_expired_requests",
        description="Every request was erased by the time that was promised, as the lake records.",
    )
    def no_expired_requests() -> dg.AssetCheckResult:
        lake = erasure.open_lake()
        records = audit_records(lake)
        broken = broken_record(records)
        states = states_of_requests(records)
        ids, faults = erasure.requests.ids()
        unread = [str(fault) for fault in faults]
        late: list[str] = []
        promises: list[datetime] = []
        for request in ids:
            if states.get(request) in (AUDITED, ERASED):
                continue
            try:
                promised = erasure.requests.read(request).promised
            except StateError as error:  # who knows what was promised?
                unread.append(str(error))
                continue
            promises.append(promised)
            if promised < datetime.now(timezone.utc):
                state = states.get(request, "not erased")
                late.append(f"{request}: promised for {promised.isoformat()}, {state}")
        return dg.AssetCheckResult(
            passed=not (late or unread or broken),
            metadata={
                "expired": faults_list(late),
                "open": len(promises),
                "next promise": dg.MetadataValue.timestamp(min(promises)) if promises else "none",
                "no requests": faults_list(unread),
                "erased, not audited": faults_list(one for one in ids if states.get(one) == ERASED),
                "records": "as they were written" if broken is None else
                f"record {broken.number} is not as it was written, or one before it is gone",
            },
        )  # fmt: skip

    return no_expired_requests


def states_of_requests(records: Iterable[AuditRecord]) -> dict[str, str]:
    """What became of each request whose erasure is recorded, by its id."""
    states: dict[str, str] = {}
    for record in records:
        if record.kind == "erase":
            states[record.request] = ERASED
        elif record.request in states:
            said = record.to_json()["said"]
            left = said["hit_count"] or said["rows"] or said["not_unpacked"] or said["unread"]
            states[record.request] = LEFT if left else AUDITED
    return states
