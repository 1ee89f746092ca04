"""Snapshots: `_metadata`, and the files of state that it leads to, each put inline in it."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from statelake import open_snapshot
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.key_weights import heaviest_key, weigh_operator
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
    SubtaskState,
    read_metadata,
    write_metadata,
)
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.integrity import check_snapshot
from statelake.state_core.model.handles import (
    ChangelogFileHandle,
    ChangelogHandle,
    InlineHandle,
    KeyGroupsHandle,
    StreamHandle,
)
from tests.fuzz.targets import Fuzzing, chosen, seeded
from tests.support.savepoints.change_logs import unpack
from tests.support.savepoints.golden_cases import GOLDEN, golden_cases
from tests.support.savepoints.snapshot_damage import inlined, read_everything, streams_replaced

__all__ = [
    "Exchanged", "Inline", "files_target", "forms_of", "fuzz_changelog", "fuzz_integrity",
    "fuzz_keyed", "fuzz_keys", "fuzz_metadata", "fuzz_operator_state",
]  # fmt: skip

SMALL = 1 << 14  # larger files are left out: what is in them is in others, too, and takes long
PACKED = (
    "evolving/old-hashmap", "evolving/operator-old", "own/canonical", "own/canonical-snappy",
    "own/native", "kryo/flink-1.20", "kryo/pojos-1.20",
    "heap-timers/windows",
)  # fmt: skip


def fuzz_metadata(directory: Path) -> Fuzzing:
    """`_metadata` itself, with all state in it: whatever it says is done."""
    seeds = [(path / "_metadata").read_bytes() for path in _golden(directory / "golden")]
    seeds += [inlined(golden) for golden in golden_cases()]
    seeds += [path.read_bytes() for path in (GOLDEN / "sources").glob("*/_metadata")]
    return Fuzzing(
        [seed for seed in seeds if len(seed) < SMALL], lambda data: _read(directory, data)
    )


def fuzz_keyed(directory: Path) -> Fuzzing:
    """Files with keyed state: in the unified format, and as the heap backend has it."""
    return files_target(directory, forms_of(_keyed, _golden(directory)), read_everything)


def fuzz_operator_state(directory: Path) -> Fuzzing:
    """Files with operator state."""
    return files_target(directory, forms_of(_operator_state, _golden(directory)), read_everything)


def fuzz_integrity(directory: Path) -> Fuzzing:
    """The same files, where all that is wrong is told rather than the first."""
    golden = _golden(directory)
    forms = forms_of(_keyed, golden) + forms_of(_operator_state, golden)
    return files_target(directory, forms, check_snapshot)


def fuzz_keys(directory: Path) -> Fuzzing:
    """The same files, of which only the keys are read."""
    return files_target(directory, forms_of(_keyed, _golden(directory)), _weigh)


def _weigh(directory: Path) -> None:
    for operator in open_snapshot(directory).operators:
        weigh_operator(operator, 2, until=[0, 1 << 41], threads=1)
        for group in {file.key_groups.first for file in operator.keyed_files}:
            heaviest_key(operator, group)


def fuzz_changelog(directory: Path) -> Fuzzing:
    """Files of changes, over what was materialized."""
    golden = unpack(directory / "golden")
    names = ("hashmap/chk-1", "hashmap/chk-3", "hashmap/rescaled/chk-1", "rocksdb/chk-1")
    return files_target(
        directory, forms_of(_log, [golden / name for name in names]), read_everything
    )


def _golden(directory: Path) -> list[Path]:
    """Snapshots of all kinds; what is packed is unpacked below the directory."""
    snapshots = [golden.snapshot for golden in golden_cases()]
    for place in PACKED:
        snapshots.append(directory / place)
        snapshots[-1].mkdir(parents=True)
        data = (GOLDEN / f"{place}.metadata.xz").read_bytes()
        (snapshots[-1] / "_metadata").write_bytes(lzma.decompress(data))
    return snapshots


def _read(directory: Path, data: bytes) -> None:
    (directory / "_metadata").write_bytes(data)
    read_everything(directory)


@dataclass(frozen=True)
class FileForm:
    """A snapshot of one operator and subtask, in which one file is exchanged.

    Attributes:
        data: The file.
        metadata: `_metadata` with other bytes in its place.
    """

    data: bytes
    metadata: Callable[[bytes], CheckpointMetadata]


def files_target(directory: Path, forms: list[FileForm], read: Callable[[Path], object]) -> Fuzzing:
    """A target of files, each in a snapshot of its own."""
    snapshot = directory / "snapshot"
    snapshot.mkdir(parents=True, exist_ok=True)

    def run(data: bytes) -> None:
        form, content = chosen(data, len(forms))
        (snapshot / "_metadata").write_bytes(write_metadata(forms[form].metadata(content)))
        read(snapshot)

    return Fuzzing(seeded((n, form.data) for n, form in enumerate(forms)), run)


Inline = Callable[[StreamHandle], InlineHandle]
Exchanged = tuple[bytes, Callable[[bytes], SubtaskState]]  # a file, and the state with others


def forms_of(
    exchange: Callable[[SubtaskState, Inline], Exchanged | None], snapshots: list[Path]
) -> list[FileForm]:
    """For each operator of some snapshots its smallest file."""
    forms = []
    for snapshot in snapshots:
        files = StateFiles(Directory(snapshot))
        metadata = read_metadata((snapshot / "_metadata").read_bytes())

        def inline(stream: StreamHandle, files: StateFiles = files) -> InlineHandle:
            if isinstance(stream, InlineHandle):
                return stream
            source = files.opened_log(stream, lambda source, _: source)
            data = np.empty(source.size, np.uint8)
            source.read_into(0, data)
            return InlineHandle("", data.tobytes())

        for operator in metadata.operators:
            subtasks = sorted((operator.subtasks or {}).items())
            found = [(n, exchange(subtask, inline)) for n, subtask in subtasks]
            sized = [(len(one[0]), n, one[1]) for n, one in found if one is not None]
            if sized:
                size, index, made = min(sized, key=lambda one: one[:2])
                data = next(one[0] for n, one in found if n == index and one is not None)
                if size < SMALL:
                    forms.append(FileForm(data, partial(_alone, metadata, operator, index, made)))
    return forms


def _alone(
    metadata: CheckpointMetadata,
    operator: OperatorMetadata,
    index: int,
    made: Callable[[bytes], SubtaskState],
    content: bytes,
) -> CheckpointMetadata:
    subtasks = {index: made(content)}
    return replace(metadata, masters=[], operators=[replace(operator, subtasks=subtasks)])


def _keyed(subtask: SubtaskState, inline: Inline) -> Exchanged | None:
    handle = subtask.managed_keyed
    if not isinstance(handle, KeyGroupsHandle) or handle.stream is None:
        return None
    return inline(handle.stream).data, lambda content: SubtaskState(
        managed_keyed=replace(handle, stream=InlineHandle("", content))
    )


def _operator_state(subtask: SubtaskState, inline: Inline) -> Exchanged | None:
    handle = subtask.managed_operator
    if handle is None or handle.stream is None:
        return None
    return inline(handle.stream).data, lambda content: SubtaskState(
        managed_operator=replace(handle, stream=InlineHandle("", content), merged_dirs=None)
    )


def _log(subtask: SubtaskState, inline: Inline) -> Exchanged | None:
    handle = subtask.managed_keyed
    if not isinstance(handle, ChangelogHandle):
        return None
    base = streams_replaced(handle.materialized, inline)
    logs = [one for one in handle.changes if isinstance(one, ChangelogFileHandle)]
    streams = [stream for log in logs for _, stream in log.streams if stream is not None]
    if not streams:
        return None
    contents = {stream: inline(stream) for stream in streams}
    chosen_stream = min(streams, key=lambda stream: len(contents[stream].data))

    def made(content: bytes) -> SubtaskState:
        now = {**contents, chosen_stream: InlineHandle("", content)}
        changes = tuple(
            replace(log, streams=tuple((at, stream and now[stream]) for at, stream in log.streams))
            for log in logs
        )
        return SubtaskState(managed_keyed=replace(handle, materialized=base, changes=changes))

    return contents[chosen_stream].data, made
