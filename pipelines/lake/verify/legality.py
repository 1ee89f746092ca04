"""Check a declared job by the rules, and against a snapshot that it is to restore.

The rules and the comparison are in `state_core/runtime/legality/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from statelake.state_core.errors import DeclarationError
from statelake.state_core.runtime.declarations import JobDeclaration, job_from_json
from statelake.state_core.runtime.declarations.findings import JobFindings
from statelake.state_core.runtime.legality.restore_checks import check_restore
from statelake.state_core.runtime.legality.rules import check_job
from statelake.state_core.runtime.legality.stored_states import HeldOperator
from statelake.state_core.runtime.process.jobs import StreamJob
from statelake.state_core.serializers.framework.plugins import load_plugin

_REMEDY = "name it MODULE:JOB, FILE.py:JOB, or a file of JSON that ends in .json"


def load_job(named: JobDeclaration | str) -> JobDeclaration:
    """Load the job that a module, a Python file or a JSON file declares.

    Args:
        named: `acme.jobs:ORDERS`, `jobs.py:ORDERS` (a `JobDeclaration`, or a function that returns
            one), or `orders.json`; a declaration is returned as it is.

    Raises:
        DeclarationError: The name does not exist, or is not a declaration of a job.
        PluginError: The module fails when it is imported.
    """
    if isinstance(named, JobDeclaration):
        return named
    if named.endswith(".json"):
        try:
            text = Path(named).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DeclarationError(f"it can't be read ({error})", place=named) from error
        try:
            return job_from_json(text)
        except DeclarationError as error:
            raise error.within(named) from error
    declaration = declared_object(named)
    if isinstance(declaration, StreamJob):
        declaration = declaration.declaration()
    if not isinstance(declaration, JobDeclaration):
        raise DeclarationError(
            f"it is {_article(declaration)}, not a JobDeclaration", place=named, remedy=_REMEDY
        )
    return declaration


def load_runnable(named: str) -> StreamJob:
    """Load the job of process functions in a module or a Python file.

    Args:
        named: `acme.jobs:ORDERS` or `jobs.py:ORDERS`: a `StreamJob`, or a function that returns
            one.

    Raises:
        DeclarationError: The name does not exist, or is not a job that can be run.
        PluginError: The module fails when it is imported.
    """
    job = declared_object(named)
    if not isinstance(job, StreamJob):
        raise DeclarationError(
            f"it is {_article(job)}, not a Job", place=named,
            remedy="name a statelake.state_core.runtime.process.Job, or a function that gives one",
        )  # fmt: skip
    return job


def declared_object(named: str) -> Any:
    """Return the object that `MODULE:NAME` or `FILE.py:NAME` names, or a function's result.

    Raises:
        DeclarationError: The name does not exist.
        PluginError: The module fails when it is imported.
    """
    module, colon, name = named.rpartition(":")
    if not colon or not module or not name:
        raise DeclarationError(f"{named!r} names no job", remedy=_REMEDY)
    named_object: Any = load_plugin(module)
    for part in name.split("."):
        named_object = getattr(named_object, part, None)
    given = isinstance(named_object, StreamJob | JobDeclaration) or not callable(named_object)
    return named_object if given else _called(named_object, named)


def _called(function: Callable[[], Any], named: str) -> Any:
    try:
        return function()
    except DeclarationError as error:
        raise error.within(named) from error
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise DeclarationError(f"it fails ({problem})", place=named) from error


def _article(named_object: object) -> str:
    return "not there" if named_object is None else f"of type {type(named_object).__name__}"


def check_declared(
    job: JobDeclaration,
    stored: Iterable[HeldOperator] | None = None,
    *,
    allow_missing: bool = False,
) -> JobFindings:
    """Return all findings about a job: by the rules, and against a snapshot to restore.

    Args:
        job: The declared job.
        stored: The operators and states of the snapshot; None without a snapshot.
        allow_missing: Whether the job may lack an operator of the snapshot.
    """
    findings = JobFindings(check_job(job))
    if stored is not None:
        findings += check_restore(job, stored, allow_missing=allow_missing)
    return findings
