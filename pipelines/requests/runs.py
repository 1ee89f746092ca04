"""Requests for runs of jobs of process functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from statelake.pipelines.requests.request import Request, given, option, refuse

if TYPE_CHECKING:
    from statelake.pipelines.engine import Engine, Progress
    from statelake.state_core.runtime.process import StreamJob


class Run(Request):
    """A run over the input that sources got since the last one."""

    parallelism: int | None = option(
        "The operators' parallelism; by default as before.", default=None
    )
    backend: Literal["heap", "rocksdb"] = option(
        "The backend of the working state.", default="heap"
    )
    restore: str = option("The snapshot from which the first run starts.", default="")
    commit_to: Sequence[str] = option(
        "Commit state there, beside the lake: blob=PLACE, changelog=kafka://HOST:PORT or a"
        " directory.",
        "BACKEND", default=(),
    )  # fmt: skip
    restore_from: Literal["lake", "blob", "changelog"] = option(
        "The source of the last run's state; if it fails, the others follow.", default="lake"
    )
    max_commit_delay: float = option(
        "The seconds that a commit's uploads may take.",
        "SECONDS",
        default=1800.0,
        least=0.001,
        more=True,
    )
    if_backend_fails: Literal["stop", "continue"] = option(
        "Fail the run, or commit without the backend, which catches up in the next run.",
        default="stop",
        more=True,
    )
    final: bool = option("The streams end with this run.", default=False)
    always: bool = option("Run even without new input, for timers that are due.", default=False)
    until_idle: bool = option("Run again until no source has anything new.", default=False)
    metrics: str = option(
        "Write the run's figures there, in Prometheus' text format.", "FILE", default="", more=True
    )

    def check_fields(self) -> None:
        """Refuse runs that never end."""
        if self.until_idle and (self.always or self.final):
            refuse(
                "runs until nothing is new never end if they run without input, or end the streams",
                "choose one of until_idle, always and final",
            )


class WatchedRun(Run):
    """A run, where it runs, and its listeners."""

    engine: Engine | str = given(
        "Where it runs: `auto`, `spark`, `local`, or an engine.", default="auto"
    )
    step: Callable[[str], None] = given(
        "Called with what begins, as text for people.", default=lambda _: None
    )
    progress: Progress | None = given("Called with (done, total) after each subtask.", default=None)


class RunJob(WatchedRun):
    """A run of a job."""

    job: StreamJob | str = given(
        "The job, or where one is: `MODULE:JOB`, `FILE.py:JOB`.", kw_only=False
    )
    stop: Callable[[], bool] = given(
        "Returns whether no further run is to begin, before anything new is read.",
        default=lambda: False,
    )
