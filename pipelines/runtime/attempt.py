"""An attempt at a run: executes operator after operator, in a directory of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from statelake.pipelines.engine import Engine, Progress
from statelake.pipelines.lake.catalog.run_log import SAVEPOINT, Prepared, RunPlan, output_directory
from statelake.pipelines.runtime.commits import CommitTargets, CommitTask, SubtaskName, merged
from statelake.pipelines.runtime.exchange import Exchanged, ExchangeTask, OperatorInput, exchange
from statelake.pipelines.runtime.sources import Split
from statelake.pipelines.runtime.subtask_store import SubtaskFiles
from statelake.pipelines.runtime.subtasks import (
    OutputFile,
    OutputTarget,
    Restored,
    SubtaskResult,
    SubtaskTask,
    run_subtask,
)
from statelake.state_core.files.filesystem import ConfinedDirectory, Directory
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    SubtaskState,
)
from statelake.state_core.formats.metadata.stream_map import named_files
from statelake.state_core.formats.reader import open_snapshot
from statelake.state_core.formats.writing.writer import SavepointDirectory
from statelake.state_core.model.key_groups import operator_id_of_uid
from statelake.state_core.model.snapshot import Operator
from statelake.state_core.runtime.backends.states.operator_state import assign_operator_state
from statelake.state_core.runtime.commit import CheckpointV2
from statelake.state_core.runtime.process import RuntimeContext, StreamJob
from statelake.state_core.runtime.process.jobs import TIMERS, OperatorNode, SourceNode


@dataclass
class RunAttempt:
    """An attempt at a run.

    Attributes:
        job: The job.
        plan: The run.
        directory: The directory of everything except output.
        name: The attempt's name.
        backend: The state backend of the working state.
        compressed: Whether state is written compressed.
        engine: The engine that runs subtasks.
        progress: Called with (done, total) after each subtask.
        targets: The backends to which its state is committed, beside the lake.
        runs: The directory of the job's runs; None without such backends.
        last: The last record of each task.
        step: Called with what begins, as text for people.
    """

    job: StreamJob
    plan: RunPlan
    directory: ConfinedDirectory
    name: str
    backend: str
    compressed: bool
    engine: Engine
    progress: Progress | None = None
    targets: CommitTargets | None = None
    runs: ConfinedDirectory | None = None
    last: Mapping[SubtaskName, CheckpointV2] = field(default_factory=dict)
    step: Callable[[str], None] = field(default=lambda _: None)
    _committed: dict[SubtaskName, SubtaskFiles] = field(default_factory=dict)
    _timers: dict[str, str] = field(default_factory=dict)
    _restored: dict[str, list[Restored]] = field(default_factory=dict)
    _results: dict[str, list[SubtaskResult]] = field(default_factory=dict)
    _latest: dict[str, int] = field(default_factory=dict)
    _watermark: int | None = None
    _records: int = 0
    _files: list[OutputFile] = field(default_factory=list)
    _inputs: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def max_parallelism(self, operator: OperatorNode) -> int:
        """Return the number of an operator's key groups."""
        return operator.declaration.max_parallelism or self.job.max_parallelism

    # ------------------------------------------------------------------------- restore

    def restore(self, directory: ConfinedDirectory | None, *, committed: bool = False) -> None:
        """Begin with the state of a savepoint; without state if there is no savepoint.

        Args:
            directory: The savepoint's directory.
            committed: Whether it has each task's state as the last record has it.
        """
        if directory is None:
            return
        snapshot = open_snapshot(directory)
        states = {state.operator_id: state for state in snapshot.metadata.operators}
        for uid, operator in self.job.operators.items():
            state = states.get(operator_id_of_uid(uid))
            if state is not None:
                self._timers[uid] = self._timers_of(snapshot.operator(state.operator_id))
            subtasks = {} if state is None else state.subtasks or {}
            keyed = tuple(
                subtask.managed_keyed
                for subtask in subtasks.values()
                if subtask.managed_keyed is not None
            )
            raw = tuple(
                subtask.raw_keyed for subtask in subtasks.values() if subtask.raw_keyed is not None
            )
            if state is not None and committed:
                for index, subtask in subtasks.items():
                    alone = replace(state, subtasks={index: subtask})
                    self._committed[SubtaskName(uid, index)] = SubtaskFiles(directory, alone)
            before = 0 if state is None else state.parallelism
            handles = [
                subtasks.get(index, SubtaskState()).managed_operator for index in range(before)
            ]
            assigned = assign_operator_state(handles, operator.parallelism(self.plan.parallelism))
            self._restored[uid] = [
                Restored(directory, keyed, tuple(elements), raw) for elements in assigned
            ]

    def _timers_of(self, operator: Operator) -> str:
        """Return the name under which an operator's timers are kept."""
        kept = {state.timer_service[1] for state in operator.timers} & set(TIMERS)
        return kept.pop() if len(kept) == 1 else self.job.timers

    # ------------------------------------------------------------------------- process

    def process(self, splits: Mapping[str, Sequence[Split]]) -> None:
        """Exchange the sources' records, then run operator after operator."""
        self._latest = dict(self.plan.latest)
        for name in self.job.sources:
            self.step(f"source {name}")
            outputs = self._exchange(name, 0, splits[name])
            self._records += sum(output.rows for output in outputs)
            times = [output.event_time for output in outputs if output.event_time is not None]
            if times:
                self._latest[name] = max([*times, self._latest.get(name, times[0])])
        self._watermark = self._advanced()
        for uid, operator in self.job.operators.items():
            self._run(operator)
            for output in range(len(operator.outputs)):
                self._exchange(uid, output, self._between(uid, output))

    def _advanced(self) -> int | None:
        """Return the watermark, which is that of the slowest source with event time."""
        timed = [source for source in self.job.sources.values() if source.event_time]
        if not timed or any(source.name not in self._latest for source in timed):
            return self.plan.watermark
        reached = min(self._latest[source.name] - source.delay for source in timed)
        return reached if self.plan.watermark is None else max(reached, self.plan.watermark)

    def _readers(self, node: str, output: int) -> tuple[OperatorInput, ...]:
        return tuple(
            OperatorInput(operator, index, operator.parallelism(self.plan.parallelism))
            for operator in self.job.operators.values()
            for index, read in enumerate(operator.inputs)
            if (read.node, read.output) == (node, output)
        )

    def _exchange(self, node: str, output: int, splits: Sequence[Split]) -> list[Exchanged]:
        channels = self._readers(node, output)
        records = self.directory.child("records")
        tasks = [
            ExchangeTask(records, number, split, channels, self.job.max_parallelism)
            for number, split in enumerate(splits)
        ]
        exchanged = self._map(exchange, tasks) if tasks else []
        for split in exchanged:
            for path, name in split.files.items():
                self._inputs[path].append(name)
        return exchanged

    def _run(self, operator: OperatorNode) -> None:
        self.step(f"operator {operator.uid}")
        parallelism = operator.parallelism(self.plan.parallelism)
        restored = self._restored.get(operator.uid)
        tasks = [
            SubtaskTask(
                RuntimeContext(
                    self.job.name, operator.uid, index, parallelism,
                    self.max_parallelism(operator), self.plan.processing_time,
                ),
                operator, self.directory.child("records"),
                self._inputs_of(operator, index), self._saved.directory, self.backend,
                None if restored is None else restored[index],
                self._targets(operator, index), self.plan.watermark, self._watermark,
                self.plan.final, self.compressed, self._commit_of(operator.uid, index),
                self._timers.get(operator.uid, self.job.timers),
            )
            for index in range(parallelism)
        ]  # fmt: skip
        self._results[operator.uid] = self._map(run_subtask, tasks)
        self._files += [file for result in self._results[operator.uid] for file in result.files]

    def _commit_of(self, uid: str, subtask: int) -> CommitTask | None:
        """Return the commit of a subtask to other backends; None without them."""
        if self.targets is None or self.runs is None:
            return None
        name = SubtaskName(uid, subtask)
        return CommitTask(
            self.targets, self.runs, name, self.plan.checkpoint, self.last.get(name),
            self._committed.get(name),
        )  # fmt: skip

    def _inputs_of(self, operator: OperatorNode, subtask: int) -> tuple[tuple[str, ...], ...]:
        """Return the files that a subtask reads, input by input."""
        parallelism = operator.parallelism(self.plan.parallelism)
        return tuple(
            tuple(self._inputs[OperatorInput(operator, index, parallelism).path(subtask)])
            for index in range(len(operator.inputs))
        )

    def _targets(self, operator: OperatorNode, subtask: int) -> tuple[OutputTarget, ...]:
        targets = []
        tables = {name: Directory(sink.path).confined() for name, sink in self.job.sinks.items()}
        for output in range(len(operator.outputs)):
            path = f"{operator.uid}-{output}-{subtask:05d}"
            targets += [
                OutputTarget(output, name, tables[name], f"{self._below}/{name}-{path}")
                for name, sink in self.job.sinks.items()
                if (sink.input.node, sink.input.output) == (operator.uid, output)
            ]
            if self._readers(operator.uid, output):
                targets.append(OutputTarget(output, "", self.directory.child("between"), path))
        return tuple(targets)

    def _between(self, uid: str, output: int) -> list[Split]:
        """Return an operator's output for other operators, subtask after subtask."""
        source = SourceNode(uid, self.directory.child("between").location, "parquet")
        return [
            Split(source, file.target.directory, file.target.path)
            for result in self._results[uid]
            for file in result.files
            if file.target.output == output and not file.target.name
        ]

    def _map(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        return self.engine.map(function, tasks, self.progress)

    # ------------------------------------------------------------------------- finish

    def __post_init__(self) -> None:
        self._below = output_directory(self.job.name, self.plan.run, self.name)
        self._saved = SavepointDirectory(self.directory.checked_location(SAVEPOINT))

    def finish(self) -> Prepared:
        """Write the state as a savepoint, and return the prepared result."""
        metadata = merged(
            [
                (len(results), [result.operator for result in results])
                for results in self._results.values()
            ],
            self.plan.run,
        )
        if self.engine.repeats:
            self._remove_others(metadata)
        self._saved.commit(metadata)
        saved = Directory(self._saved.target.location).confined()
        for name in ("records", "between", "restored"):
            self.directory.delete_tree(name)
        outputs: dict[str, list[tuple[str, int, int]]] = {name: [] for name in self.job.sinks}
        for file in self._files:
            if file.target.name:
                outputs[file.target.name].append((file.target.path, file.size, file.rows))
        for name, sink in self.job.sinks.items():  # nothing computes them again
            Directory(sink.path).confined().sync_files(path for path, *_ in outputs[name])
        results = {
            str(SubtaskName(uid, index)): result
            for uid, results in self._results.items()
            for index, result in enumerate(results)
        }
        return Prepared(
            self.name, f"{self.name}/{SAVEPOINT}", self._watermark, self._latest, outputs,
            self._records,
            {name: result.commit.markers for name, result in results.items()},
            {name: result.commit.counts for name, result in results.items()},
            sum(saved.size(name) for name in named_files(metadata)),
        )  # fmt: skip

    def _remove_others(self, metadata: CheckpointMetadata) -> None:
        """Delete state and output of repeated runs of tasks, except for the run that counts."""
        saved = self._saved.directory
        for name in set(saved.names()) - named_files(metadata):
            saved.delete(name)
        written = {file.target.path for file in self._files}
        for sink in self.job.sinks.values():
            table = Directory(sink.path).confined()
            for path, _ in table.files_below(self._below):
                if path not in written:
                    table.delete(path)
