"""The metadata of a plan and of an audit, without any erased key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from statelake.pipelines.orchestration.erasure.redaction import Redaction
from statelake.pipelines.orchestration.erasure.request_files import RequestFile
from statelake.pipelines.orchestration.metadata import faults_list, markdown_table, printed_table
from statelake.state_core.printable import printable

if TYPE_CHECKING:
    from statelake.pipelines.lake.erase.auditing import AuditResult
    from statelake.pipelines.lake.erase.planning import ErasurePlan

SHOWN = 20


def plan_metadata(
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
        "rows": plan.rows,
        "files": plan.files,
        "file bytes": plan.file_bytes,
        "snapshots": f"{len(plan.snapshots_found)} of {plan.snapshots}",
        "states": printed_table(plan.table),
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


def audit_metadata(
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
        "clean": result.clean,
        "rows erased": erased["rows"],
        "files written again": erased["files"],
        "snapshots erased from": len(erased["snapshots_erased_from"]),
        "files searched": result.files,
        "bytes searched": result.file_bytes,
        "bytes unpacked": result.unpacked_bytes,
        "places": dg.MetadataValue.md(markdown_table(("place", "files", "bytes"), places)),
        "hits": len(result.hits),
        "found": dg.MetadataValue.md(
            markdown_table(("file", "where", "form", "byte"), hits[:SHOWN]) if hits else "nothing"
        ),
        "rows left": result.rows,
        "not unpacked": faults_list(map(hidden, result.not_unpacked[:SHOWN])),
        "not looked through": hidden(result.unread) or "nothing",
        "too short to be searched for": ", ".join(result.forms_left_out) or "nothing",
        "not erased from here": faults_list(map(hidden, erased["elsewhere"])),
        "record": result.record.number,
        "digest of the record": result.record.digest,
    }
