"""Reasons to refuse the plan of an erasure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from statelake.pipelines.lake.erase.needles import LEAST_BYTES, mentions
from statelake.pipelines.lake.erase.opaque_state import KINDS
from statelake.pipelines.lake.erase.planning import ErasurePlan
from statelake.pipelines.lake.erase.requests import ErasureRequest, words_of
from statelake.pipelines.lake.erase.task_state import OLD
from statelake.state_core.errors import ConflictError, EncodeError, NoMatchError


def refuse_plan(plan: ErasurePlan, request: ErasureRequest, *, all_rows: bool) -> None:
    """Refuse a plan that must not be carried out, before the first file is written.

    Args:
        plan: The plan.
        request: The request.
        all_rows: Whether a predicate may be true of every row of a state.

    Raises:
        NoMatchError: Nothing was found.
        EncodeError: State can't be searched, or a predicate is true of all rows; or the request's
            id, which is recorded for good, contains a word of the request.
    """
    refuse_telling_id(request)
    if plan.changes_nothing:
        unsearched = [place for place in plan.elsewhere if place.startswith(OLD)]
        if plan.opaque:
            unsearched.append(
                f"state without tables, which {len(plan.opaque)} of them have, and --carried drop"
                " leaves out"
            )
        raise NoMatchError(
            f"no such key or row is in {plan.snapshots} snapshots",
            remedy="; ".join(
                ["keys are written as `statelake dump` prints them"]
                + [f"not searched: {place}" for place in unsearched]
            ),
        )
    if plan.emptied_states and not all_rows:
        raise EncodeError(
            f"the predicate is true of every row of {plan.emptied_states[0]}",
            remedy="if that is intended, give --all",
        )
    if plan.opaque and not request.carried:
        job, snapshot_id = plan.opaque[0]
        raise EncodeError(
            f"{KINDS}, which only the job can search, in"
            f" {len(plan.opaque)} of {plan.snapshots} snapshots",
            place=f"job {job!r}, snapshot {snapshot_id!r}",
            remedy="give --carried drop to leave it out, or --carried keep if it can't have such "
            "keys",
        )
    if plan.partial_matches and not request.carried:
        raise EncodeError(
            "rows with a longer key or a value that contains a key, and which may belong to "
            "another key, in"
            f" {plan.partial_matches[0]}",
            remedy="give --carried drop to erase these rows, or --carried keep to keep them",
        )


def refuse_telling_id(request: ErasureRequest) -> None:
    """Refuse an id that contains a word of the request, before it is written anywhere.

    Raises:
        EncodeError: The id, which is recorded for good, contains a word of the request.
    """
    words = [word for word in words_of(request, parts=True) if len(word) >= LEAST_BYTES]
    if mentions(request.request.replace("_", "-"), words):
        raise EncodeError(
            "the request's id contains a key or a value to erase, and no erasure changes the "
            "records",
            remedy="give a ticket number as --request",
        )


def refuse_other_snapshots(content: Mapping[str, Any], request: ErasureRequest) -> None:
    """Refuse to continue an erasure that was begun for other snapshots.

    Raises:
        ConflictError: The erasure was begun for other snapshots.
    """
    if content and content.get("only", []) != sorted(request.snapshots):
        raise ConflictError(
            f"erasure {request.request!r} was begun for other snapshots",
            remedy="give the same --snapshot options as then",
        )


def refuse_fewer_places(content: Mapping[str, Any], request: ErasureRequest) -> None:
    """Refuse to continue an erasure without places of task state in which it found something.

    Raises:
        ConflictError: Such a place is not given.
    """
    begun = {place for place, _ in changelogs_of(content)}
    begun |= {left.partition(" of runs in ")[2] for left in content.get("left", [])}
    missing = begun - {"", *request.blobs, *request.changelogs}
    if missing:
        raise ConflictError(
            f"erasure {request.request!r} was begun in another place, too",
            place=min(missing),
            remedy="give the same --blobs and --changelogs options as then",
        )


def changelogs_of(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return place and name of the changelogs of tasks in which an erasure found keys."""
    return [
        (state["job"], state["state"])
        for state in content.get("states", [])
        if state["operator"] == "changelogs" and state["job"] not in content.get("jobs", [])
    ]
