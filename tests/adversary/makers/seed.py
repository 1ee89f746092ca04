"""What is attacked: savepoints, a checkpoint, a lake, a job that commits, and a victim beside.

Everything is made once a session, by the code that is tested, and copied for each case. The
victim's secret is 48 bytes that no compression shortens, in all that it has: files called like
ours, a savepoint and a lake whose values it is. Whoever reads one has it in what it writes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from statelake import NewKeyedState, NewOperator, NewOperatorState, write_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.runtime import RunOptions, run_job
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    SubtaskState,
    read_metadata,
    write_metadata,
)
from statelake.state_core.model.handles import FileHandle, OperatorHandle, RelativeHandle
from statelake.state_core.runtime.commit import FileCheckpointLog
from statelake.state_core.runtime.declarations import to_json
from tests.adversary.makers.orders_job import orders as orders_job
from tests.support.jobs.committed_job import CommittedJob

__all__ = [
    "JOB",
    "LOST_PLACE",
    "SECRET",
    "SECRETS",
    "TOKEN",
    "UID",
    "Seed",
    "edit_metadata",
    "make_savepoint",
    "make_seed",
]

JOB, UID = "orders", "counter"
TOKEN = "0123456789abcdef"  # noqa: S105 - an attempt's, as its directory is called
LOST_PLACE = "/nowhere/checkpoints/5f1e2c"  # where Flink wrote the checkpoint
KEYS = 12
SECRET = base64.b85encode(hashlib.sha384(b"the victim's").digest()).decode()


def _forms(secret: bytes) -> Iterable[bytes]:
    """How a secret may look in what is written: as it is, escaped, and in the usual codes."""
    yield secret[:24]
    yield json.dumps(secret[:24].decode()).strip('"').encode()
    yield secret[:24].hex().encode()
    for shift in range(3):
        yield base64.b64encode(b"\0" * shift + secret[:24])[4:-4]


SECRETS = tuple(dict.fromkeys(_forms(SECRET.encode())))


@dataclass(frozen=True)
class Seed:
    """What cases are made of: directories that are copied.

    Attributes:
        root: Holds them all.
    """

    root: Path

    def copy(self, name: str, to: Path) -> Path:
        """A copy of one of them, with times and links as they are."""
        return Path(shutil.copytree(self.root / name, to, symlinks=True))


def make_seed(root: Path) -> Seed:
    """All that cases are made of."""
    make_savepoint(root / "savepoint", "first")
    make_savepoint(root / "savepoint-good", "good")
    make_savepoint(root / "savepoint-bad", "bad")
    make_savepoint(root / "savepoint-clean", "clean", uid="untouched")
    make_savepoint(root / "savepoint-secret", SECRET)
    for kind in ("savepoint", "savepoint-secret"):
        _make_checkpoint(root / kind, root / kind.replace("savepoint", "checkpoint"))
    wider = {"pojo": "acme.Profile", "fields": {"city": "String", "name": "String"}}
    (root / "wider.json").write_text(json.dumps({"states": {f"{UID}/profile": {"type": wider}}}))
    (root / "job.json").write_text(to_json(orders_job("").declaration()))
    _make_lake(root, root / "lake")
    _make_runs(root)
    _make_committed(root)
    _make_victim(root, root / "victim")
    return Seed(root)


def make_savepoint(to: Path, text: str, *, uid: str = UID) -> Path:
    """A savepoint of each kind of state, whose values are a text; some of it is carried."""
    keys = pa.array([f"key-{number}" for number in range(KEYS)])
    text = text.ljust(len(SECRET), ".")  # so that one's files fit another's handles
    values = pa.array([text] * KEYS)
    profile = {"pojo": "acme.Profile", "fields": {"name": "String"}}
    operator = NewOperator(
        uid,
        "String",
        (
            NewKeyedState("name", pa.table({"key": keys, "value": values}), value="String"),
            NewKeyedState(
                "session",
                pa.table({"key": keys, "value": values, "ttl": pa.array([1] * KEYS)}),
                value="String",
                with_ttl=True,
            ),
            NewKeyedState(
                "profile",
                pa.table({"key": keys, "value": [{"name": text}] * KEYS}),
                value=profile,
            ),
            NewKeyedState.timers(
                "event", pa.table({"key": keys, "timestamp": pa.array(range(KEYS))})
            ),
        ),
        parallelism=2,
        max_parallelism=4,
        operator_states=(
            NewOperatorState("parts", pa.table({"value": [text, text]}), "split", "String"),
        ),
    )
    write_snapshot(to, [operator], metadata_version=5)
    (to / "opaque").write_bytes(b"only the job reads this: " + text.encode())
    handle = OperatorHandle({}, RelativeHandle("opaque", (to / "opaque").stat().st_size))
    edit_metadata(to, lambda metadata: _carry(metadata, handle))
    _rename_files(to)
    return to


def edit_metadata(savepoint: Path, change: Callable[[CheckpointMetadata], Any]) -> None:
    """Change a `_metadata` in place."""
    path = savepoint / "_metadata"
    metadata = read_metadata(path.read_bytes())
    changed = change(metadata)
    path.write_bytes(
        write_metadata(changed if isinstance(changed, CheckpointMetadata) else metadata)
    )


def _carry(metadata: CheckpointMetadata, handle: OperatorHandle) -> None:
    for subtask in _subtasks(metadata):
        subtask.raw_operator = handle


def _subtasks(metadata: CheckpointMetadata) -> list[SubtaskState]:
    return [
        subtask for operator in metadata.operators for subtask in (operator.subtasks or {}).values()
    ]


def _rename_files(savepoint: Path) -> None:
    """Names that are the same in every savepoint: `keyed-0`, `operator-1`."""

    def rename(metadata: CheckpointMetadata) -> None:
        for operator in metadata.operators:
            for index, subtask in (operator.subtasks or {}).items():
                for kind in ("keyed", "operator"):
                    handle: Any = getattr(subtask, f"managed_{kind}")
                    name = f"{kind}-{index}"
                    (savepoint / handle.stream.path).rename(savepoint / name)
                    stream = RelativeHandle(name, handle.stream.size)
                    setattr(subtask, f"managed_{kind}", replace(handle, stream=stream))

    edit_metadata(savepoint, rename)


def _make_checkpoint(savepoint: Path, to: Path) -> None:
    """The same as a checkpoint that was moved: chk-7, with files in each directory beside it."""
    shutil.copytree(savepoint, to / "chk-7")
    places = {"keyed-0": "shared", "keyed-1": "chk-7", "operator-0": "taskowned",
              "operator-1": "chk-6", "opaque": "shared"}  # fmt: skip

    def absolute(name: str, size: int) -> FileHandle:
        return FileHandle(f"file:{LOST_PLACE}/{places[name]}/{name}", size)

    def move(metadata: CheckpointMetadata) -> None:
        for subtask in _subtasks(metadata):
            for kind in ("managed_keyed", "managed_operator", "raw_operator"):
                handle: Any = getattr(subtask, kind)
                stream = absolute(handle.stream.path, handle.stream.size)
                setattr(subtask, kind, replace(handle, stream=stream))

    edit_metadata(to / "chk-7", move)
    for name, place in places.items():
        (to / place).mkdir(exist_ok=True)
        if place != "chk-7":
            (to / "chk-7" / name).rename(to / place / name)


def _make_lake(root: Path, to: Path) -> None:
    """Two jobs: one whose last snapshot is to be made bad, and one that nobody touches."""
    lake = Catalog(to)
    for name in ("first", "good", "bad"):
        source = root / ("savepoint" if name == "first" else f"savepoint-{name}")
        import_snapshot(lake, str(source), JOB, snapshot_id=name, engine="local")
    import_snapshot(
        lake, str(root / "savepoint-clean"), "clean", snapshot_id="good", engine="local"
    )


def _make_runs(root: Path) -> None:
    """The same lake when the job has run once, and its data with an order that waits for the next.

    The run's record is kept beside: `run-2` has what a second one would have prepared.
    """
    orders = root / "orders-data" / "orders"
    orders.mkdir(parents=True)
    lake = Catalog(Path(shutil.copytree(root / "lake", root / "lake-ran")))
    job = orders_job(str(root / "orders-data"))
    for number in (0, 1):
        line = {"key": "key-1", "text": f"new-{number}"}
        (orders / f"{number}.jsonl").write_text(json.dumps(line) + "\n")
        if not number:
            run_job(job, lake, RunOptions(engine="local", restore="good"))


def _make_committed(root: Path) -> None:
    """A job of two tasks that committed twice, with its log."""
    log = FileCheckpointLog(Directory(root / "committed" / "log"))
    job = CommittedJob(root / "committed", log)
    job.run("Partition 0", [{b"a": b"1", b"b": b"2"}, {b"a": b"3"}])
    job.run("Partition 1", [{b"x": b"1"}])
    shutil.rmtree(root / "committed" / "disks")


def _make_victim(root: Path, to: Path) -> None:
    """Somebody else's files, some of which are called as ours are."""
    to.mkdir()
    secret = f"{SECRET}\n".encode()
    digest = hashlib.sha256(secret).hexdigest()
    places = (
        "secret.txt", "authorized_keys", f"_data/{TOKEN}/key-group-00000.parquet",
        "_data/orphan/key-group-00000.parquet", "part-00000.snappy.parquet", "blobs/a/b/c-name",
        f"_statelake/carried/{digest}", f"_statelake/alive/{TOKEN}", "deep/er/file",
        "attempt-1/state/_metadata", "attempt-2", "20260101T000000000000-bad/_metadata",
        "20260101T000000000000-bad.verified", "00000000000000000000-writer.record",
    )  # fmt: skip
    for place in places:
        path = to / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(secret)
    (to / "link").symlink_to("secret.txt")
    (to / "orders.jsonl").write_text(json.dumps({"key": "key-1", "text": SECRET}) + "\n")
    for name in ("keyed-0", "keyed-1", "operator-0", "operator-1", "opaque"):
        shutil.copy2(root / "savepoint-secret" / name, to / name)
    shutil.copytree(root / "savepoint-secret", to / "savepoint")
    shutil.copytree(root / "checkpoint-secret", to / "checkpoints")
    shutil.copytree(root / "committed", to / "committed")
    lake = Catalog(to / "lake")
    import_snapshot(lake, str(to / "savepoint"), JOB, snapshot_id="bad", engine="local")
