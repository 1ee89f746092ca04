"""Trees of many jobs' checkpoints and savepoints, made of what real Flink wrote.

A job has copies of a golden chain's checkpoints in turn, with the ids and the paths that Flink
would have given them: files that a checkpoint has alone are beside its `_metadata`, all others in
the job's `shared` or `dstl`, by their whole URI.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    read_metadata,
    write_metadata,
)
from statelake.state_core.formats.metadata.stream_map import streams_of
from statelake.state_core.model.handles import FileHandle, RelativeHandle, SegmentHandle
from tests.support.savepoints.golden_cases import GOLDEN

__all__ = ["LIGHT", "MadeSnapshot", "MadeTree", "job_id", "made_tree", "with_uris"]

SHARED = ("shared", "taskowned", "dstl")
START = 1_700_000_000.0
CHURN = "flink/churn-{}-checkpoint-p2-m128-flink2.3.0/checkpoints"
FAMILIES = {
    "incremental": ("chain/chain.tar.xz", "checkpoints/"),
    "merged": (CHURN.format("rocksdb"), ""),
    "changelog": ("changelog/changelog.tar.xz", "hashmap/chk"),
    "forst": ("forst/forst.tar.xz", "chk"),
    "unaligned": ("unaligned/flink-2.3.0.tar.xz", ""),
    "hashmap": (CHURN.format("hashmap"), ""),
    "changelog of RocksDB": ("changelog/changelog.tar.xz", "rocksdb/chk"),
}
LIGHT = ("changelog",)
SAVEPOINTS = (
    "wordcount-hashmap-canonical-p2-m128-flink1.20.0",
    "kinds-rocksdb-native-p2-m128-flink2.3.0",
)


@dataclass(frozen=True)
class Template:
    """A checkpoint that Flink wrote: its `_metadata`, and the files beside it."""

    metadata: CheckpointMetadata
    beside: dict[str, bytes]


@dataclass(frozen=True)
class Family:
    """Checkpoints of one job, and the files that they share, by their path below the job."""

    templates: list[Template]
    shared: dict[str, bytes]


@dataclass(frozen=True)
class MadeSnapshot:
    """What was made, and what it needs.

    Attributes:
        path: Its directory.
        job: Its job's id.
        number: Its id.
        time: When it was written.
        beside: The lengths that its handles give of files beside it, by name.
        elsewhere: The same of other files, by their paths below the tree.
    """

    path: str
    job: str
    number: int
    time: float
    beside: dict[str, int]
    elsewhere: dict[str, int]


@dataclass
class MadeTree:
    """All files of a tree, with the times at which they were written."""

    files: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    snapshots: list[MadeSnapshot] = field(default_factory=list)

    def write(self, to: Path) -> None:
        """Write it into a directory."""
        for path, (data, time) in self.files.items():
            file = to / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            os.utime(file, (time, time))


def job_id(number: int) -> str:
    """Return the id of a job."""
    return f"{number * 0x9E3779B97F4A7C15 % 2**128:032x}"[::-1]


def with_uris(part: Any, change: Callable[[Any], Any]) -> Any:
    """Return a part of `_metadata` with each handle of a file changed."""
    if isinstance(part, FileHandle | SegmentHandle):
        return change(part)
    if isinstance(part, tuple | list):
        return type(part)(with_uris(each, change) for each in part)
    if isinstance(part, dict):
        return {key: with_uris(each, change) for key, each in part.items()}
    if is_dataclass(part) and not isinstance(part, type):
        changed = {each.name: with_uris(getattr(part, each.name), change) for each in fields(part)}
        return replace(part, **changed)
    return part


def _below_job(uri: str) -> str:
    parts = uri.split("/")
    at = next(index for index, part in enumerate(parts) if part in SHARED)
    return "/".join(parts[at:])


@cache
def _family(name: str) -> Family:
    source, start = FAMILIES[name]
    files = dict(_files(GOLDEN / source, start))
    templates, shared = [], {}
    by_name = {path.rpartition("/")[2]: data for path, data in files.items()}
    for path in sorted(files):
        directory, _, file = path.rpartition("/")
        if file != "_metadata":
            continue
        metadata = read_metadata(files[path])
        beside = {}
        for stream in streams_of(metadata):
            if isinstance(stream, RelativeHandle):
                beside[stream.path] = files[f"{directory}/{stream.path}"]
            elif isinstance(stream, FileHandle):
                below = _below_job(stream.uri)
                shared[below] = by_name[below.rpartition("/")[2]]
        templates.append(Template(metadata, beside))
    family = Family(templates, shared)
    return _merged(family) if name == "merged" else family


def _files(source: Path, start: str) -> Iterator[tuple[str, bytes]]:
    if source.is_dir():
        for path in sorted(source.rglob("*")):
            if path.is_file():
                yield str(path.relative_to(source)), path.read_bytes()
        return
    with tarfile.open(source) as archive:
        for member in archive:
            of_checkpoint = member.name.endswith("_metadata") or "chk-" in member.name
            if member.isfile() and (member.name.startswith(start) or not of_checkpoint):
                data = archive.extractfile(member)
                assert data is not None
                yield member.name, data.read()


def _merged(family: Family) -> Family:
    """Return the same with all shared files as segments of one, as FLIP-306 has them."""
    whole, starts = b"", {}
    for below, data in family.shared.items():
        starts[below] = len(whole)
        whole += data
    file = "shared/job_taskmanager-1/0a6f9cf2-5b73-4c0a-8c6b-9b5c0a4fd3c1"

    def segment(handle: Any) -> Any:
        uri = f"file:/then/{file}"
        return SegmentHandle(starts[_below_job(handle.uri)], handle.size, 1, uri, handle.uri)

    templates = [
        replace(each, metadata=with_uris(each.metadata, segment)) for each in family.templates
    ]
    return Family(templates, {file: whole})


def made_tree(
    at: str,
    jobs: int = 20,
    each: int = 100,
    families: tuple[str, ...] = tuple(FAMILIES),
    savepoints: int = 1,
) -> MadeTree:
    """Return a tree as Flink would have written it to a place.

    Args:
        at: The URI of the tree.
        jobs: The number of jobs.
        each: How many checkpoints each job has.
        families: The golden checkpoints of which jobs are made in turn.
        savepoints: How many savepoints each job has.
    """
    tree = MadeTree()
    for number in range(jobs):
        job = job_id(number + 1)
        family = _family(families[number % len(families)])
        for index in range(each):
            template = family.templates[index % len(family.templates)]
            time = START + 60 * (index * jobs + number + 1)
            _add(tree, at, job, f"{job}/chk-{index + 1}", index + 1, time, template)
        for index in range(savepoints):
            template = _savepoint(SAVEPOINTS[(number + index) % len(SAVEPOINTS)])
            time = START + 60 * (index * each * jobs // max(1, savepoints) + number + 1) + 30
            path = f"savepoints/savepoint-{job[:6]}-{number:06x}{index:06x}"
            _add(tree, at, job, path, index + 1, time, template)
        for path in {path for made in tree.snapshots for path in made.elsewhere}:
            of_job, _, below = path.partition("/")
            if of_job == job:
                tree.files[path] = (family.shared[below], START)
    tree.snapshots.sort(key=lambda made: made.time)
    return tree


@cache
def _savepoint(name: str) -> Template:
    files = dict(_files(GOLDEN / "flink" / name / "savepoint", ""))
    return Template(read_metadata(files.pop("_metadata")), files)


def _add(
    tree: MadeTree, at: str, job: str, path: str, number: int, time: float, template: Template
) -> None:
    def placed(handle: Any) -> Any:
        return replace(handle, uri=f"{at}/{job}/{_below_job(handle.uri)}")

    metadata = with_uris(template.metadata, placed)
    metadata = replace(metadata, checkpoint_id=number)
    beside: dict[str, int] = {}
    elsewhere: dict[str, int] = {}
    for stream in streams_of(metadata):
        if isinstance(stream, RelativeHandle):
            beside[stream.path] = stream.size
        elif isinstance(stream, FileHandle | SegmentHandle):
            below = stream.uri.removeprefix(f"{at}/")
            start = stream.start if isinstance(stream, SegmentHandle) else 0
            needed = start + stream.size + ("/dstl/" in below)
            elsewhere[below] = max(needed, elsewhere.get(below, 0))
    tree.files[f"{path}/_metadata"] = (write_metadata(metadata), time)
    for name, data in template.beside.items():
        tree.files[f"{path}/{name}"] = (data, time)
    tree.snapshots.append(MadeSnapshot(path, job, number, time, beside, elsewhere))
