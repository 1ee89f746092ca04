"""`run_job`: process new input of sources, and commit output and the next snapshot.

Exactly once: a run is planned (its input, and its time), executed in an attempt of its own,
prepared (output files and state are complete), and then committed: output by a Delta transaction
with the run's number, state as the lake's snapshot `run-<number>`. A process that is killed at any
step leaves a run that the next call repeats or completes.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from itertools import pairwise
from time import perf_counter
from typing import Any

from statelake.pipelines.engine import Engine
from statelake.pipelines.engine_choice import choose_engine
from statelake.pipelines.lake.catalog.attempts import Heartbeat, refuse_during_erasure
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.processes import this_process
from statelake.pipelines.lake.catalog.recorded_states import recorded_operators
from statelake.pipelines.lake.catalog.run_log import (
    Prepared,
    RunLog,
    RunPlan,
    Turn,
    output_directory,
)
from statelake.pipelines.lake.catalog.snapshot_names import resolve_snapshot
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.tables.records import differing_copies
from statelake.pipelines.lake.verify.legality import check_declared
from statelake.pipelines.requests.imports import Import
from statelake.pipelines.requests.request import given
from statelake.pipelines.requests.runs import WatchedRun
from statelake.pipelines.runtime.attempt import RunAttempt
from statelake.pipelines.runtime.commit_measures import CommitReports
from statelake.pipelines.runtime.commits import (
    LAKE,
    STORE,
    CommitTargets,
    RestoreTask,
    SubtaskName,
    checkpoint_manager,
    clean_up,
    merged,
    partition_of,
    restore_task,
    tasks_of,
)
from statelake.pipelines.runtime.sinks import (
    commit_output,
    discard_attempts,
    discard_unnamed,
    refuse_committed,
)
from statelake.pipelines.runtime.sources import (
    amount_between,
    is_absent,
    lag_of,
    latest_offset,
    splits_between,
)
from statelake.state_core.errors import (
    ConflictError,
    LakeError,
    LegalityError,
    MissingFileError,
    NotFoundError,
    StateError,
)
from statelake.state_core.files.filesystem import ConfinedDirectory
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    OperatorMetadata,
    write_metadata,
)
from statelake.state_core.printable import Printed, Table, bytes_text
from statelake.state_core.runtime.commit import CheckpointV2
from statelake.state_core.runtime.commit.records.clocks import now_millis
from statelake.state_core.runtime.commit.records.records import BLOB_STORE_FACTORY, SNAPSHOT_FACTORY
from statelake.state_core.runtime.legality.rules import listed
from statelake.state_core.runtime.legality.stored_states import held_operators
from statelake.state_core.runtime.process import StreamJob

STEPS = (
    "planned", "restored", "processed", "state written", "prepared", "output committed",
    "imported", "recorded", "cleaned up", "done",
)  # fmt: skip
PHASES = {
    "restored": "restore", "processed": "process", "state written": "write", "prepared": "write",
    "output committed": "commit", "imported": "commit", "recorded": "commit",
    "cleaned up": "commit",
}  # fmt: skip
Observe = Callable[[str], None]
LOG = logging.getLogger(__name__)


class RunOptions(WatchedRun):
    """A run, and what no user asks of it."""

    compressed: bool = given(
        "Whether state is written compressed, before its import.", default=False
    )
    clock: Callable[[], int] = given("Returns the processing time.", default=now_millis)
    observe: Observe = given("Called with each of `STEPS` that is done.", default=lambda _: None)


@dataclass(frozen=True)
class RunResult(Printed):
    """The result of a run.

    Attributes:
        run: The run's number; 0 if there was no new input.
        snapshot_id: The snapshot of its state.
        records: The number of input records.
        rows: By sink, the number of rows.
        watermark: The watermark after the run.
        resumed: Whether an earlier call began the run.
        absent: By name, the paths of sources that do not exist.
        no_input: Whether no source exists, so that nothing could be read.
        runs: The number of runs: more than one only if they went on until nothing was new.
        seconds: The seconds of each of `restore`, `process`, `write` and `commit`.
        state_bytes: The size of the state, as a savepoint.
        read: By source, what was read of it, which was its lag when the run was planned.
        lag: By source, what no run has read of it: `bytes` of files, or `versions` of a table;
            empty if it can't be read any more.
        differing: Which copies of broadcast states differ from the first one, in words.
    """

    run: int
    snapshot_id: str = ""
    records: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    watermark: int | None = None
    resumed: bool = False
    absent: dict[str, str] = field(default_factory=dict)
    no_input: bool = False
    runs: int = 1
    seconds: dict[str, float] = field(default_factory=dict)
    state_bytes: int = 0
    read: dict[str, dict[str, int]] = field(default_factory=dict)
    lag: dict[str, dict[str, int]] = field(default_factory=dict)
    differing: list[str] = field(default_factory=list)

    @property
    def records_per_second(self) -> float:
        """The rate of input records, over all steps."""
        if "process" not in self.seconds:  # an earlier call did that
            return 0.0
        total = sum(self.seconds.values())
        return round(self.records / total, 1) if total else 0.0

    def after(self, earlier: RunResult) -> RunResult:
        """Return the result of this run and those before it."""
        if not self.run:
            return replace(earlier, lag=self.lag)
        rows, seconds = Counter(earlier.rows), Counter(earlier.seconds)
        rows.update(self.rows)
        seconds.update(self.seconds)
        return replace(
            self, records=earlier.records + self.records, rows=dict(rows),
            seconds=dict(seconds), resumed=earlier.resumed, runs=earlier.runs + self.runs,
            read={
                name: dict(Counter(earlier.read.get(name)) + Counter(read))
                for name, read in self.read.items()
            },
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        content = asdict(self)
        del content["no_input"]  # `absent` says it
        content["seconds"] = {name: round(took, 3) for name, took in self.seconds.items()}
        return {**content, "records_per_second": self.records_per_second}

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: lines and tables."""
        if self.run:
            again = ", begun before" if self.resumed else ""
            number = f"run {self.run}" if self.runs == 1 else f"{self.runs} runs, to run {self.run}"
            yield (
                f"{number}{again}: {self.records:,} records in; state is snapshot"
                f" {self.snapshot_id}"
            )
            yield Table.of("", ("<sink=0", ">rows=1:,"), self.rows.items())
            steps = ", ".join(f"{name} {took:.2f}" for name, took in self.seconds.items())
            yield (
                f"{self.records_per_second:,.0f} records/s; state {bytes_text(self.state_bytes)};"
                f" seconds: {steps}"
            )
            for copies in self.differing:
                yield f"not kept: {copies}"
        elif self.absent:
            yield "nothing to read:"
        else:
            yield "nothing new: no source has got anything since the last run"
        for name, left in self.lag.items():
            read = f"{_amount_text(self.read[name])} read, " if name in self.read else ""
            yield f"source {name}: {read}{_amount_text(left)} not read yet"
        for name, path in self.absent.items():
            yield f"source {name}: there is nothing at {path}"
        if self.absent and not self.run:
            yield "put input there, or correct the paths of the job's sources, and run it again"


def _amount_text(amount: Mapping[str, int]) -> str:
    if "versions" in amount:
        return f"{amount['versions']:,} versions"
    return bytes_text(amount["bytes"]) if "bytes" in amount else "unknown"


def run_job(job: StreamJob, lake: Catalog, options: RunOptions | None = None) -> RunResult:
    """Run a job over the input that its sources have got since its last run.

    Args:
        job: The job.
        lake: The lake with its state.
        options: The options of the run.

    Raises:
        LegalityError: The job's declarations are not legal, or differ from the snapshot.
        ProcessError: A function failed; nothing was committed.
        ConflictError: Another process runs it.
        LakeError: A source can't be read.
        StateError: A backend is unknown, or state is to be restored from one that is not named.
    """
    given = options or RunOptions()
    job.build()
    log = RunLog(lake.directory, job.name)
    with _alone(log) as turn:
        if lake.exists():
            version = lake.version()
            version.format.refuse_writing(lake.directory.uri)
            # an erasure closes its jobs before it looks for runs
            refuse_during_erasure(version.claims, job.name)
        done = _JobRun(job, lake, log, turn, given).go()
        last = log.plan(log.runs()[-1]) if log.runs() else None
    if last is not None:
        ends = {name: last.ends.get(name, {}) for name in job.sources}
        lag = {name: lag_of(source, ends[name]) for name, source in job.sources.items()}
        done = replace(done, lag=lag)
    absent = {name: source.path for name, source in job.sources.items() if is_absent(source)}
    no_input = not done.run and len(absent) == len(job.sources) > 0
    return replace(done, absent=absent, no_input=no_input)


def _time_of(millis: int) -> datetime | None:
    """Return a run's time, if the job's clock shows a valid one."""
    with suppress(OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(millis / 1000, timezone.utc)
    return None


def snapshot_of_run(run: int) -> str:
    """Return the name of the snapshot of a run's state."""
    return f"run-{run:08d}"


class _JobRun:
    def __init__(
        self, job: StreamJob, lake: Catalog, log: RunLog, turn: Turn, options: RunOptions
    ) -> None:
        self.job = job
        self.lake = lake
        self.log = log
        self.turn = turn
        self.options = options
        self.targets = _targets(job, options)
        self.records = checkpoint_manager(log.directory)
        self.reports = CommitReports(lake.directory, job.name)
        self.seconds: dict[str, float] = {}
        self._began = perf_counter()

    def go(self) -> RunResult:
        """Execute the run that was interrupted, or the next."""
        number = self.turn.run
        plan = self.log.plan(number)
        resumed = plan is not None
        if plan is None:
            plan = self._plan(number)
            if plan is None:
                return RunResult(0)
            for name, sink in self.job.sinks.items():
                refuse_committed(sink.path, f"{self.job.name}/{name}", number)
            self.log.write_plan(plan)
            self._observe("planned")
        unplanned = sorted(self.job.sources.keys() - (plan.begins.keys() & plan.ends.keys()))
        if unplanned:
            raise LakeError(
                f"run {number} was planned without source {unplanned[0]!r}",
                place=f"job {self.job.name!r}",
                remedy="complete it with the job for which it was planned, and add the source "
                "afterwards",
            )
        prepared = self.log.prepared(number) or self._prepare(plan)
        return self._commit(plan, prepared, resumed)

    def _observe(self, step: str) -> None:
        """Report that a step is complete, and refuse if another process has taken over."""
        now = perf_counter()
        if step in PHASES:
            phase = PHASES[step]
            self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._began
        self._began = now
        self.options.observe(step)
        self.log.require(self.turn)

    def _begin(self, what: str) -> None:
        self.options.step(f"run {self.turn.run}: {what}")

    # ------------------------------------------------------------------------- plan

    def _plan(self, number: int) -> RunPlan | None:
        """Return the plan of a run; None if there is no new input."""
        before = self.log.plan(number - 1)
        left = self.log.prepared(number - 1)
        begins = {} if before is None else before.ends
        ends = {name: latest_offset(source) for name, source in self.job.sources.items()}
        idle = all(begins.get(name, {}) == end for name, end in ends.items())
        if idle and not (self.options.final or self.options.always):
            return None
        # ascends even if the clock does not, as it is also the id of the checkpoint
        now = max(self.options.clock(), 0 if before is None else before.processing_time + 1)
        parallelism = self.options.parallelism or (2 if before is None else before.parallelism)
        restore = self._restored_from(number)
        return RunPlan(
            number, parallelism, self.job.max_parallelism, now,
            {name: begins.get(name, {}) for name in ends}, ends, restore,
            None if left is None else left.watermark, {} if left is None else left.latest,
            self.options.final,
        )  # fmt: skip

    def _restored_from(self, number: int) -> str:
        if number > 1:
            return snapshot_of_run(number - 1)
        if self.options.restore:
            name = resolve_snapshot(self.lake, self.job.name, self.options.restore)
            if name != self.options.restore:
                LOG.warning("%s is snapshot %s", self.options.restore, name)
            return self.lake.snapshot(self.job.name, name).snapshot_id
        if self.lake.exists() and self.lake.summaries(self.job.name):
            raise NotFoundError(
                "the job has snapshots in the lake, but no runs",
                place=f"job {self.job.name!r}",
                remedy="choose the first run's snapshot with --restore, or give the job another "
                "name",
            )
        return ""

    # ------------------------------------------------------------------------- prepare

    def _prepare(self, plan: RunPlan) -> Prepared:
        """Execute the run, in an attempt of its own."""
        self.log.discard_given_up(self.turn)
        self._check_restore(plan)
        splits = {
            name: splits_between(source, plan.begins[name], plan.ends[name])
            for name, source in self.job.sources.items()
        }
        chosen = choose_engine(self.options.engine)
        name = self.turn.new_attempt()
        if self.targets is not None:
            self.targets.create_resources(
                {
                    uid: node.declaration.max_parallelism or self.job.max_parallelism
                    for uid, node in self.job.operators.items()
                }
            )
        attempt = RunAttempt(
            self.job, plan, self.log.run_directory(plan.run).child(name), name,
            self.options.backend, self.options.compressed, chosen, self.options.progress,
            self.targets, self.log.directory, self._last_records(plan), self._begin,
        )  # fmt: skip
        self._begin("restore")
        self._restore(plan, attempt, chosen)
        self._observe("restored")
        attempt.process(splits)
        self._observe("processed")
        prepared = attempt.finish()
        self._observe("state written")
        self.log.write_prepared(self.turn, prepared)
        self._observe("prepared")
        return prepared

    def _check_restore(self, plan: RunPlan) -> None:
        if not plan.restore:
            return
        record = self.lake.snapshot(self.job.name, plan.restore)
        findings = check_declared(
            self.job.declaration(), held_operators(recorded_operators(self.lake, record))
        )
        faults = [finding for finding in findings if finding.fault]
        if faults:
            raise LegalityError(
                f"the job can't restore it. {listed(faults)}", place=f"snapshot {plan.restore!r}"
            )

    def _restore(self, plan: RunPlan, attempt: RunAttempt, engine: Engine) -> None:
        """Restore the state of the last run, whatever its parallelism; or a snapshot's.

        The first source is the one of the options, the others follow.
        """
        if not plan.restore:
            attempt.restore(None)
            return
        backends = [] if self.targets is None else self.targets.names
        sources = list(dict.fromkeys((self.options.restore_from, LAKE, *backends)))
        for source, following in pairwise((*sources, "")):
            try:
                directory, committed = self._restored(source, plan, attempt, engine)
            except StateError as error:
                if not following:
                    raise
                message = "job %s: %s; the next source is restored from instead: %s"
                LOG.error(message, self.job.name, error, following)  # noqa: TRY400 - the error says all
                attempt.directory.child("restored").delete_tree()
                continue
            attempt.restore(directory, committed=committed)
            return

    def _restored(
        self, source: str, plan: RunPlan, attempt: RunAttempt, engine: Engine
    ) -> tuple[ConfinedDirectory, bool]:
        """Return a savepoint, and whether it has each task's state as the last record has it.

        Raises:
            StateError: The source does not have the state.
        """
        if source != LAKE:
            return self._from_backend(source, plan, attempt, engine), True
        left = self.log.prepared(plan.run - 1)
        directory = self.log.run_directory(plan.run - 1)
        if left is not None and directory.is_file(f"{left.savepoint}/_metadata"):
            return directory.child(left.savepoint), True
        to = attempt.directory.checked_location("restored")
        export_snapshot(self.lake, self.job.name, plan.restore, to, engine=engine)
        return attempt.directory.child("restored"), False

    def _last_records(self, plan: RunPlan) -> dict[SubtaskName, CheckpointV2]:
        """Return the record of every task of the run before, if other backends need it."""
        before = self.log.plan(plan.run - 1)
        if self.targets is None or before is None:
            return {}
        records = {name: self.records.read_last(str(name)) for name in tasks_of(self.job, before)}
        return {name: last for name, last in records.items() if isinstance(last, CheckpointV2)}

    def _from_backend(
        self, source: str, plan: RunPlan, attempt: RunAttempt, engine: Engine
    ) -> ConfinedDirectory:
        """Return a savepoint of the state that another backend has.

        Raises:
            ConflictError: What it has may have been erased from the lake meanwhile.
            NotFoundError: There is no run before, or no record of one of its tasks.
        """
        before, left = self.log.plan(plan.run - 1), self.log.prepared(plan.run - 1)
        if self.targets is None or before is None or left is None:
            raise NotFoundError(
                f"{source} has no state of a run before this one",
                remedy="restore it from the lake",
            )
        if self.lake.snapshot(self.job.name, plan.restore).erased:
            raise ConflictError(
                f"snapshot {plan.restore!r} was erased from after the run, and {source} may still "
                "have what was erased",
                remedy="restore it from the lake",
            )
        tasks = []
        target = attempt.directory.child("restored")
        for name in tasks_of(self.job, before):
            last = attempt.last.get(name)
            if last is not None and last.id == before.checkpoint:
                tasks.append(
                    RestoreTask(self.targets, self.log.directory, name, source, last, target)
                )
            elif str(name) in left.markers:
                raise NotFoundError(
                    f"the log of commits has no record of task {name} by run {before.run}",
                    remedy="restore it from the lake",
                )
        parts: dict[str, list[OperatorMetadata]] = {}
        for task, state in zip(tasks, engine.map(restore_task, tasks), strict=True):
            parts.setdefault(task.name.uid, []).append(state)
        operators = [
            (self.job.operators[uid].parallelism(before.parallelism), states)
            for uid, states in parts.items()
        ]
        target.write("_metadata", write_metadata(merged(operators, before.run)))
        return target

    # ------------------------------------------------------------------------- commit

    def _commit(self, plan: RunPlan, prepared: Prepared, resumed: bool) -> RunResult:
        self._begin("commit")
        before = self.log.prepared(plan.run - 1)
        named = {file[0] for files in (before.outputs if before else {}).values() for file in files}
        for name, sink in self.job.sinks.items():
            node = self.job.operators[sink.input.node]
            files = [(path, size, rows) for path, size, rows in prepared.outputs.get(name, [])]
            commit_output(
                sink.path, f"{self.job.name}/{name}", plan.run, node.outputs[sink.input.output],
                files,
            )  # fmt: skip
            discard_attempts(sink.path, self.job.name, plan.run, prepared.attempt)
            if before is not None:  # a process that was given up may have written since
                discard_attempts(sink.path, self.job.name, plan.run - 1, before.attempt)
                discard_unnamed(
                    sink.path, output_directory(self.job.name, plan.run - 1, before.attempt), named
                )
        self._observe("output committed")
        snapshot_id = snapshot_of_run(plan.run)
        location = self.log.run_directory(plan.run).checked_location(prepared.savepoint)
        imported = import_snapshot(
            self.lake, location, self.job.name,
            Import(note=f"run {plan.run}", taken=_time_of(plan.processing_time)),
            snapshot_id=snapshot_id, engine=self.options.engine,
        )  # fmt: skip
        self._observe("imported")
        self._record(plan, prepared, snapshot_id)
        self.log.write_done(plan.run, snapshot_id)
        self.log.forget_before(plan.run)
        self.options.observe("done")
        rows = {name: sum(file[2] for file in files) for name, files in prepared.outputs.items()}
        return RunResult(
            plan.run, snapshot_id, prepared.records, rows, prepared.watermark, resumed,
            seconds=self.seconds, state_bytes=prepared.state_bytes,
            read={
                name: amount_between(plan.begins[name], plan.ends[name])
                for name in self.job.sources
            },
            differing=differing_copies(imported.record.operators),
        )  # fmt: skip

    def _record(self, plan: RunPlan, prepared: Prepared, snapshot_id: str) -> None:
        """Write one record a task, with the markers of all backends, and clean up older ones.

        The costs of the commit are reported, too.
        """
        offsets = {
            partition_of(name): json.dumps(offset, sort_keys=True)
            for name, offset in plan.ends.items()
        }
        records = {}
        for name in tasks_of(self.job, plan):
            own = prepared.markers.get(str(name), {})
            if isinstance(own, str):
                own = {BLOB_STORE_FACTORY: own} if own else {}
            markers = {SNAPSHOT_FACTORY: {STORE: snapshot_id}}
            markers.update({factory: {STORE: marker} for factory, marker in own.items()})
            records[name] = CheckpointV2(plan.checkpoint, offsets, markers)
            self.records.write(str(name), records[name])
        self.reports.append(prepared.counts, plan.run)
        self._observe("recorded")
        if self.targets is not None:
            for name, record in records.items():
                clean_up(self.targets, name, record)
        self._observe("cleaned up")


def _targets(job: StreamJob, options: RunOptions) -> CommitTargets | None:
    """Return the backends beside the lake; None without them.

    Raises:
        StateError: One is unknown, or state is to be restored from one that is not named.
    """
    targets = CommitTargets.parse(
        job.name, options.commit_to, options.max_commit_delay,
        tolerant=options.if_backend_fails == "continue",
    )  # fmt: skip
    if options.restore_from not in {LAKE, *targets.names}:
        raise StateError(
            f"state is to be restored from {options.restore_from!r}, which is not committed to",
            remedy=f"add `--commit-to {options.restore_from}=PLACE`, as in the last run",
        )
    return targets if targets.names else None


@contextmanager
def _alone(log: RunLog) -> Iterator[Turn]:
    """Yield while this process has the job's lock; refuse if another process runs the job."""
    turn = log.lock(this_process())
    try:
        with Heartbeat(log.lake, turn.token):
            yield turn
    except MissingFileError:  # the process that took over deletes this one's files
        log.require(turn)
        raise
    finally:
        log.unlock(turn)
