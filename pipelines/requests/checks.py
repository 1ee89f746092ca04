"""Requests for checks before a deploy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from statelake.pipelines.requests.request import Request, given, option

if TYPE_CHECKING:
    from statelake.state_core.runtime.declarations import JobDeclaration


AGAINST = "A file with the new types of states, or a savepoint of the new job."


class Restoring(Request):
    """What the job that restores a snapshot may lack."""

    allow_non_restored_state: bool = option(
        "The job may lack an operator, whose state is lost.", default=False
    )


class CheckCompatibility(Restoring):
    """The states of a snapshot, compared with the types of the job that restores it."""

    against: str = option(AGAINST, kw_only=False)
    operator: Sequence[str] = option(
        "Only this operator, by uid or id; may be repeated.", default=()
    )


class CheckLegality(Restoring):
    """The states that a job declares, compared with those of a snapshot."""

    declared: JobDeclaration | str = given(
        "A declaration, or where one is: `MODULE:JOB`, `FILE.py:JOB`, a JSON file.", kw_only=False
    )


class CheckLegalityOfSavepoint(CheckLegality):
    """The states that a job declares, alone or compared with those of a savepoint."""

    savepoint: str | os.PathLike[str] | None = option(
        "A savepoint to be restored, in place of a snapshot.", default=None, kw_only=False
    )
