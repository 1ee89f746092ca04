"""Rescale, migrate or upgrade a job on a live cluster, with a way back.

The steps are a table (`rescale_steps.STEPS`), and so is the way back (`WAY_BACK`). The journal in
the lake records each completed step. The job's own savepoint is never touched: whatever fails
later, the old JAR runs again from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from statelake.pipelines.engine import Engine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.change.changes import read_changes
from statelake.pipelines.lake.verify.legality import load_job
from statelake.pipelines.live.answers import FlinkJobDetails
from statelake.pipelines.live.cluster import new_id
from statelake.pipelines.live.jars import Jars
from statelake.pipelines.live.rescale_journal import Journal, open_journal, start_journal
from statelake.pipelines.live.rescale_steps import (
    RUN_OLD,
    STEPS,
    WAY_BACK,
    RescalePlan,
    Step,
    Work,
)
from statelake.pipelines.sql_jobs.sql_upgrades import SqlUpgrade, refuse_unless_accepted
from statelake.state_core.errors import (
    ClusterError,
    ConflictError,
    FlinkJobError,
    NotFoundError,
    StateError,
    UnreachableClusterError,
)
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.printable import Printed, Table

RESCALED, PUT_BACK, LEFT = "rescaled", "put back", "left as it was"


@dataclass(frozen=True)
class RescaleResult(Printed):
    """The result of a rescale.

    Attributes:
        outcome: `rescaled`, `put back` (the old JAR runs from the savepoint), or
            `left as it was` (the job was never stopped).
        why: The failure; empty without one.
        flink_job: The job that runs now.
        savepoint: The job's own savepoint, untouched, as the cluster names it; empty without one.
        snapshot: The snapshot in the lake.
        steps: The completed steps in their order: `step`, `at`, `did`.
    """

    outcome: str
    why: str
    flink_job: str
    savepoint: str
    snapshot: str
    steps: tuple[dict[str, str], ...]

    @property
    def table(self) -> Table:
        """The steps, as people read them."""
        return Table.of("", ("<step", "<at", "<did"), self.steps)

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: lines and tables."""
        yield self.table
        yield f"{self.outcome}: job {self.flink_job}"
        if self.why:
            yield f"why: {self.why}"
        if self.savepoint:
            yield f"its own savepoint is untouched: {self.savepoint}"


@dataclass(frozen=True)
class RescalePreview(Printed):
    """The plan of a rescale.

    Attributes:
        plan: The plan.
        running: The job as it runs now.
        sql: What becomes of the state of Flink SQL, by its plans alone; None if it stays.
    """

    plan: RescalePlan
    running: FlinkJobDetails
    sql: SqlUpgrade | None = None

    @property
    def refused(self) -> list[str]:
        """What stands in the way, with the word that accepts it; empty if nothing does."""
        return [] if self.sql is None else self.sql.refused

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        request, running = self.plan.request, self.running
        optional: dict[str, Any] = {}
        if self.sql is not None:  # there are no entries to be counted yet
            operators = [asdict(each) for each in self.sql.operators]
            optional["sql"] = {
                "operators": [
                    {k: v for k, v in each.items() if k != "entries"} for each in operators
                ],
                "refused": self.refused,
            }
        return {
            "job": running.id, "name": running.name, "state": running.state,
            "parallelism": [running.parallelism, request.parallelism or running.parallelism],
            "max_parallelism": [
                running.max_parallelism, request.max_parallelism or running.max_parallelism,
            ],
            "steps": [{"step": step.name, "what": step.what} for step in STEPS],
            "way_back": [{"step": step.name, "what": step.what} for step in WAY_BACK],
            **optional,
        }  # fmt: skip

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: lines and tables."""
        request, running = self.plan.request, self.running
        yield (
            f"job {running.name} ({running.id}) is {running.state}:"
            f" parallelism {running.parallelism} → {request.parallelism or running.parallelism},"
            f" max parallelism {running.max_parallelism} →"
            f" {request.max_parallelism or running.max_parallelism}"
        )
        yield f"its savepoint goes to {request.savepoints}"
        columns = ("<step=name", "<what")
        yield Table.of("steps", columns, STEPS)
        back = "if one fails behind the first, or it does not run in time"
        yield Table.of(back, columns, WAY_BACK)
        if self.sql is not None:
            yield from _sql_lines(self.sql)
        yield "a dry run: nothing was done"


def _sql_lines(verdict: SqlUpgrade) -> Iterator[str | Table]:
    """Yield what becomes of the state of Flink SQL, whose entries are not known yet."""
    if verdict.operators:
        yield verdict.table("state of Flink SQL that does not keep as it is")
    else:
        yield "all state of Flink SQL keeps as it is"
    yield from verdict.details()


Progress = Callable[[str, str], None]
"""Called with a step's name, and `begins`, `did` (before it is recorded) or `kept` (recorded)."""


def rescale_job(
    lake: Catalog,
    plan: RescalePlan,
    *,
    roll_back: bool = False,
    take_over: bool = False,
    engine: Engine | str = "auto",
    progress: Progress | None = None,
) -> RescaleResult:
    """Rescale a job, or continue where an earlier call was killed.

    Args:
        lake: The lake into which the state is imported.
        plan: The target; to continue a rescale, the same plan again.
        roll_back: Whether to undo an earlier call instead of completing it.
        take_over: Whether an earlier call's process is known to have ended.
        engine: The engine of import, migration and export.
        progress: Called at each step.

    Raises:
        UnreachableClusterError: The cluster does not answer; call again when it does.
        FlinkJobError: Neither the new nor the old job runs; the message names the savepoint.
        ConflictError: Another rescale of the job is running, or an unfinished one has another
            target.
        StateError: The plan is impossible; nothing was done.
    """
    jars = Jars(plan.request.cluster)
    plan = plan.completed()
    try:
        journal = open_journal(lake, plan.job, take_over=take_over)
        if journal is not None:
            _refuse_another(plan, journal)
            _look_before(plan, jars, goes_on=not (roll_back or journal.failure))
            journal.write(lake, plan.job)  # records this process as its owner
        elif roll_back:
            raise NotFoundError(
                f"job {plan.job!r} has no unfinished rescale", place=lake.directory.uri,
                remedy="a finished rescale is undone by another one, to the old JAR and "
                "parallelism",
            )  # fmt: skip
        else:
            journal = _begun(lake, plan, jars)
        work = Work(lake, plan, journal, jars, engine)
        if not journal.failure:
            _forward(work, roll_back, progress or _silent)
        if not journal.outcome:
            _back(work, progress or _silent)
    finally:
        jars.forget()
    running = {RESCALED: journal.new_job, PUT_BACK: journal.old_again}
    return RescaleResult(
        journal.outcome, journal.failure, running.get(journal.outcome, journal.flink_job),
        work.savepoint, journal.snapshot, tuple(map(msgspec.structs.asdict, journal.steps)),
    )  # fmt: skip


def _begun(lake: Catalog, plan: RescalePlan, jars: Jars) -> Journal:
    """Return the new journal of a running job, after all checks that need no change."""
    request, cluster = plan.request, plan.request.cluster
    job = cluster.job(cluster.find_job(request.flink_job).id)
    if not job.runs:
        raise FlinkJobError(
            f"job {job.id} does not run with all of its tasks: it is {job.state}",
            place=cluster.url,
            remedy="only a job with all of its tasks running can take the savepoint for a rescale",
        )
    _look_before(plan, jars)
    return start_journal(
        lake, plan.job, flink_job=job.id, parallelism=request.parallelism or 0,
        max_parallelism=request.max_parallelism or 0, old_parallelism=job.parallelism,
    )  # fmt: skip


def _look_before(plan: RescalePlan, jars: Jars, *, goes_on: bool = True) -> None:
    """Check the plan's files and directories before anything is changed.

    Args:
        plan: The plan.
        jars: The JARs on the cluster.
        goes_on: Whether the job is to run its new SQL, and not put back.
    """
    request = plan.request
    Directory(plan.paths.here(request.savepoints)).confined()  # refuses unsupported file systems
    if request.migrate:
        read_changes(request.migrate)
    if request.declared:
        load_job(request.declared)
    if plan.sql is not None and goes_on:
        refuse_unless_accepted(plan.sql.verdict())
    for program in (request.program, plan.old):
        jars.id_of(program)
    if plan.sql is not None and goes_on:
        plan.sql.plans.keep()


def _refuse_another(plan: RescalePlan, journal: Journal) -> None:
    """Refuse to continue a rescale that has another target.

    Raises:
        ConflictError: The unfinished rescale is of another job, or to another parallelism.
    """
    names = {journal.flink_job}
    with suppress(NotFoundError):
        names.add(plan.request.cluster.find_job(journal.flink_job).name)
    wanted = (plan.request.parallelism or 0, plan.request.max_parallelism or 0)
    begun = (journal.parallelism, journal.max_parallelism)
    if plan.request.flink_job in names and wanted == begun:
        return
    raise ConflictError(
        f"a rescale of job {journal.flink_job} to parallelism {begun[0] or 'as it was'} and max"
        f" parallelism {begun[1] or 'as it was'} is not finished",
        remedy="repeat the call with the same --flink-job and parallelism to continue it, or with "
        "--roll-back as well",
    )


def _forward(work: Work, roll_back: bool, progress: Progress) -> None:
    """Run the remaining steps, until one fails."""
    journal = work.journal
    for step in STEPS:
        if roll_back and (journal.savepoint or not _is_stopping(work)):
            journal.failure = "--roll-back was given"
            journal.outcome = "" if journal.savepoint else LEFT
            break
        if journal.has_done(step.name):
            continue
        try:
            _do(work, step, progress)
        except UnreachableClusterError as error:
            raise _to_go_on(error) from error
        except Exception as error:
            # a stopped job must run again, whatever the error
            if not journal.savepoint and not isinstance(error, StateError):
                raise
            unsure = not journal.savepoint and not isinstance(error, FlinkJobError)
            if unsure and isinstance(error, ClusterError):
                raise _to_go_on(error) from error  # the job may be stopping
            journal.failure = f"{step.name}: {_error_text(error)}"
            journal.outcome = "" if journal.savepoint else LEFT
            break
    else:
        journal.outcome = RESCALED
    journal.write(work.lake, work.plan.job)


def _is_stopping(work: Work) -> bool:
    """Return whether the old job has ended, or its savepoint was triggered."""
    job_id, trigger = work.journal.flink_job, work.journal.trigger
    try:
        ended = work.cluster.job(job_id).ended
    except NotFoundError:
        return True
    return ended or work.cluster.triggered_savepoint(job_id, trigger) is not None


def _back(work: Work, progress: Progress) -> None:
    """Run the old JAR again from the untouched savepoint."""
    journal = work.journal
    for step in WAY_BACK:
        if journal.has_done(step.name):
            continue
        try:
            _do(work, step, progress)
        except UnreachableClusterError as error:
            raise _to_go_on(error) from error
        except StateError as error:
            _run_again(work)
            raise FlinkJobError(
                f"neither the new job runs ({journal.failure}), nor the old one ({step.name}: "
                f"{_error_text(error)})",
                place=work.cluster.url,
                remedy=f"its savepoint is untouched at {work.savepoint}: run a JAR from there, or"
                " call again",
            ) from error
    journal.outcome = PUT_BACK
    journal.write(work.lake, work.plan.job)


def _do(work: Work, step: Step, progress: Progress) -> None:
    progress(step.name, "begins")
    did = step.do(work)
    progress(step.name, "did")
    work.journal.record(work.lake, work.plan.job, step.name, did)
    progress(step.name, "kept")


def _run_again(work: Work) -> None:
    """Make the next call run the old JAR again, unless the submitted job may still start."""
    journal = work.journal
    with suppress(NotFoundError):
        if not work.cluster.job(journal.old_again).ended:
            return
    journal.old_again = new_id()
    journal.steps = [done for done in journal.steps if done.step != RUN_OLD]
    journal.write(work.lake, work.plan.job)


def _to_go_on(error: StateError) -> UnreachableClusterError:
    return UnreachableClusterError(
        error.problem, place=error.place,
        remedy="nothing is lost: when the cluster answers again, repeat the call to continue, or "
        "add --roll-back",
    )  # fmt: skip


def _error_text(error: Exception) -> str:
    """Return an error's text for use in a sentence."""
    if isinstance(error, ClusterError):
        return error.problem
    return str(error) if isinstance(error, StateError) else f"{type(error).__name__}: {error}"


def _silent(_: str, __: str) -> None:
    """Report to nobody."""
