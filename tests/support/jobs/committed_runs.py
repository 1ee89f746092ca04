"""The state of a run's tasks, restored from each backend alone."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from statelake.pipelines.lake.catalog.run_log import RunLog
from statelake.pipelines.runtime.commits import (
    CommitTargets,
    RestoreTask,
    SubtaskName,
    checkpoint_manager,
    restore_task,
)
from statelake.pipelines.runtime.subtask_store import (
    METADATA,
    SubtaskFiles,
    SubtaskStore,
)
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.reader import open_snapshot
from statelake.state_core.model.key_groups import operator_id_of_uid
from statelake.state_core.runtime.commit import CheckpointV2, PosixDisk
from statelake.state_core.runtime.process import StreamJob


def assert_alike(job: StreamJob, lake: Path, commit_to: Sequence[str]) -> int:
    """Check that every backend has the state of the last run; return the number of its pairs."""
    log = RunLog(Directory(str(lake)), job.name)
    run = log.runs()[-1]
    prepared = log.prepared(run)
    assert prepared is not None
    savepoint = log.run_directory(run).child(prepared.savepoint)
    operators = {each.operator_id: each for each in open_snapshot(savepoint).metadata.operators}
    targets = CommitTargets.parse(job.name, commit_to, 60, tolerant=False)
    count = 0
    for uid in job.operators:
        operator = operators[operator_id_of_uid(uid)]
        for index, subtask in (operator.subtasks or {}).items():
            alone = type(operator)(
                operator.operator_id, operator.parallelism, operator.max_parallelism, uid, uid,
                None, {index: subtask},
            )  # fmt: skip
            wanted = _pairs(SubtaskFiles(savepoint, alone))
            for source in targets.names:
                with tempfile.TemporaryDirectory() as path:
                    target = Directory(path).confined()
                    name = SubtaskName(uid, index)
                    last = checkpoint_manager(log.directory).read_last(str(name))
                    assert isinstance(last, CheckpointV2)
                    task = RestoreTask(targets, log.directory, name, source, last, target)
                    assert _pairs(SubtaskFiles(target, restore_task(task))) == wanted, source
            count += len(wanted)
    return count


def _pairs(files: SubtaskFiles) -> dict[bytes, bytes]:
    """Return the pairs of a state, but for the names of its files."""
    with tempfile.TemporaryDirectory() as path:
        store = SubtaskStore(PosixDisk(path), "state")
        store.hold(files)
        return {key: value for key, value in store.items() if key != METADATA}
