"""Operations that are planned before they are executed: erasures, and rescales of running jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from statelake.pipelines.api.jobs import Job
    from statelake.pipelines.engine import Progress
    from statelake.pipelines.lake.catalog.catalog import Catalog
    from statelake.pipelines.lake.erase.auditing import AuditResult
    from statelake.pipelines.lake.erase.erasing import ErasureResult
    from statelake.pipelines.lake.erase.planning import ErasurePlan
    from statelake.pipelines.lake.erase.requests import ErasureRequest
    from statelake.pipelines.live.live_rescaling import RescalePreview, RescaleResult
    from statelake.pipelines.live.rescale_steps import RescalePlan


@dataclass(frozen=True, repr=False)
class Erasure:
    """Keys and rows that are to go from every snapshot and every file of a lake."""

    catalog: Catalog
    request: ErasureRequest
    jobs: Sequence[str] = ()
    progress: Progress | None = None

    def __repr__(self) -> str:
        keys, predicates = len(self.request.keys), len(self.request.where)
        return f"<Erasure {self.request.request}: {keys} keys, {predicates} predicates>"

    def plan(self, *, whole: bool = False) -> ErasurePlan:
        """Say what `execute` would do; nothing is written.

        Args:
            whole: Whether a predicate may be true of every row of a state.
        """
        from statelake.pipelines.lake.erase.erasing import plan_erasure

        plan = plan_erasure(self.catalog, self.request, self.jobs, progress=self.progress)
        return replace(plan, all_rows=whole)

    def execute(self, *, whole: bool = False, secret: bytes = b"", by: str = "") -> ErasureResult:
        """Erase, or go on with an erasure of that request that ended too soon.

        Args:
            whole: Whether a predicate may be true of every row of a state.
            secret: Makes the keyed hash by which the record knows what was asked.
            by: Who asks; by default who runs this process.
        """
        from statelake.pipelines.lake.erase.erasing import erase

        return erase(
            self.catalog, self.request, self.jobs, all_rows=whole, secret=secret,
            requested_by=by, progress=self.progress,
        )  # fmt: skip

    def audit(self, also: Sequence[str] = (), *, secret: bytes = b"") -> AuditResult:
        """Read every byte below the lake, and search for what was erased in all its forms.

        Args:
            also: Other places to search: directories or URIs.
            secret: The one of the erasure.
        """
        from statelake.pipelines.lake.erase.auditing import audit_erasure

        return audit_erasure(
            self.catalog, self.request, also, secret=secret, progress=self.progress
        )


@dataclass(frozen=True, repr=False)
class LiveRescale:
    """A rescale, migration or upgrade of a job that runs on a cluster."""

    job: Job
    steps: RescalePlan

    def __repr__(self) -> str:
        return f"<LiveRescale of {self.job!r}>"

    def plan(self) -> RescalePreview:
        """Return what `execute` would do; nothing is changed."""
        from statelake.pipelines.live.live_rescaling import RescalePreview

        request = self.steps.request
        running = request.cluster.job(request.cluster.find_job(request.flink_job).id)
        sql = None if self.steps.sql is None else self.steps.sql.verdict()
        return RescalePreview(self.steps.completed(), running, sql)

    def execute(
        self,
        *,
        roll_back: bool = False,
        take_over: bool = False,
        report: Callable[[str, str], None] | None = None,
    ) -> RescaleResult:
        """Rescale the job, or continue where an earlier call was killed.

        Args:
            roll_back: Whether to undo an earlier call instead of completing it.
            take_over: Whether an earlier call's process, elsewhere, is known to have ended.
            report: Called with the name of each step and its phase: `begins`, `did` or `kept`.
        """
        from statelake.pipelines.live.live_rescaling import rescale_job

        return rescale_job(
            self.job.lake.catalog, self.steps, roll_back=roll_back, take_over=take_over,
            engine=self.job.engine, progress=report,
        )  # fmt: skip
