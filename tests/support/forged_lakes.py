"""Lakes in which somebody else wrote: forged rows, claims and links, and a victim beside them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from statelake import NewKeyedState, NewOperator, NewOperatorState, write_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.processes import this_process
from statelake.pipelines.lake.tables.records import SNAPSHOT_SCHEMA
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    SubtaskState,
    read_metadata,
    write_metadata,
)
from statelake.state_core.model.handles import OperatorHandle, RelativeHandle
from tests.support.lakes import Contents, exported, forge_claim, import_as, remove_rows

__all__ = [
    "DEAD",
    "NAME",
    "TOKEN",
    "USUAL_CLAIMS",
    "Scene",
    "every_place",
    "forged",
    "make_scene",
    "places_of",
]

NAME = "orders/keyed/counter/name"  # the table of a keyed state
TOKEN = "0123456789abcdef"  # noqa: S105 - as an attempt is called
DEAD = (1 << 22) - 7  # a process that there is not


_GONE = {**this_process(), "process": DEAD, "begun": ""}
USUAL_CLAIMS: dict[str, dict[str, Any]] = {
    "attempt": {
        "job": "orders", "snapshot_id": "none", "operation": "import", "builds_on": {},
        "tables": [NAME], "process": _GONE,
    },
    "erasure": {
        "jobs": ["orders"], "every_job": False, "token": TOKEN, "switched": False, "replaced": {},
        "said": {}, "process": _GONE,
    },
    "deletion": {
        "job": "orders", "files": {}, "tokens": [], "carried": [], "tables": [], "shown": [],
    },
}  # fmt: skip
"""What claims of processes that are gone say, where nothing else is said."""


@dataclass(frozen=True)
class Scene:
    """A lake whose job `orders` has the snapshots `good` and `bad`, and the job `clean` one `good`.

    Attributes:
        root: The lake is below it, and the victim: files of its own, and another lake.
    """

    root: Path

    @property
    def lake(self) -> Catalog:
        """The lake."""
        return Catalog(self.root / "lake")

    @property
    def path(self) -> Path:
        """Its directory."""
        return self.root / "lake"

    @property
    def victim(self) -> Path:
        """What nobody is to touch."""
        return self.root / "victim"

    @property
    def source(self) -> Path:
        """A savepoint that is not in the lake."""
        return self.root / "next"

    def fill(self, text: str) -> str:
        """A text with the victim's place in it."""
        return text.replace("{victim}", str(self.victim))

    def claim(self, kind: str = "attempt", name: str = TOKEN, **said: Any) -> None:
        """Let the catalog claim something that no process of ours said."""
        text = self.fill(json.dumps({**USUAL_CLAIMS[kind], **said}))
        forge_claim(self.path, f"statelake.{kind}.{name}", text)

    def link(self, path: str, to: Path) -> None:
        """Put a link in the place of what is there."""
        target = self.path / path
        if target.is_dir():
            shutil.rmtree(target)
        target.unlink(missing_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(to)

    def good(self, to: str) -> Contents:
        """What the honest snapshot exports to."""
        return exported(self.lake, "good", self.root / to)


def make_scene(root: Path) -> Scene:
    """A scene, with nothing forged in it yet."""
    for number, name in enumerate(("good", "bad", "next")):
        make_savepoint(root / name, f"value {number}")
    for lake in (root / "lake", root / "victim" / "lake"):
        for snapshot_id in ("good", "bad"):
            import_as(Catalog(lake), root / snapshot_id, snapshot_id)
    import_as(Catalog(root / "lake"), root / "good", "good", "clean")
    victim = root / "victim"
    (victim / "secret.txt").write_text("mine")
    for name in ("_data", TOKEN, f"_data/{TOKEN}", "_delta_log", "attempt-0123456789ab"):
        (victim / name).mkdir(exist_ok=True)
        for file in ("key-group-00000.parquet", "part-00000-a.c000.parquet", "notes.txt"):
            (victim / name / file).write_text("mine")
    return Scene(root)


def make_savepoint(to: Path, text: str) -> None:
    """A small savepoint: keyed state, timers, operator state, and some that is carried."""
    keys = [f"key-{number}" for number in range(8)]
    operator = NewOperator(
        "counter",
        "String",
        (
            NewKeyedState("name", pa.table({"key": keys, "value": [text] * 8}), value="String"),
            NewKeyedState(
                "profile",
                pa.table({"key": keys, "value": [{"name": text}] * 8}),
                value={"pojo": "acme.Profile", "fields": {"name": "String"}},
            ),
            NewKeyedState(
                "total",
                pa.table({"key": keys, "value": [1] * 8, "ttl": [1] * 8}),
                value="Long",
                with_ttl=True,
            ),
            NewKeyedState.timers("event", pa.table({"key": keys, "timestamp": list(range(8))})),
        ),
        parallelism=2,
        max_parallelism=4,
        operator_states=(
            NewOperatorState("parts", pa.table({"value": [text, text]}), "split", "String"),
        ),
    )
    write_snapshot(to, [operator], metadata_version=5)
    (to / "opaque").write_bytes(b"only the job reads this: " + text.encode())
    metadata = read_metadata((to / "_metadata").read_bytes())
    handle = OperatorHandle({}, RelativeHandle("opaque", (to / "opaque").stat().st_size))
    subtasks = metadata.operators[0].subtasks
    assert subtasks is not None
    subtasks.setdefault(0, SubtaskState()).raw_operator = handle
    (to / "_metadata").write_bytes(write_metadata(metadata))


def forged(scene: Scene, change: Callable[[dict[str, Any]], Any], snapshot_id: str = "bad") -> None:
    """Change a row of the catalog past all rules, as anybody could."""
    row = scene.lake.snapshot("orders", snapshot_id).to_row()
    remove_rows(scene.lake, "orders", [snapshot_id])
    change(row)
    table = pa.Table.from_pylist([row], SNAPSHOT_SCHEMA)
    write_deltalake(str(scene.path / "snapshots"), table, mode="append", partition_by=["job"])


def places_of(row: dict[str, Any], wanted: str) -> Iterator[tuple[Any, Any]]:
    """Whatever in a row has a value: what holds it, and under which name or number."""
    waiting: list[Any] = [row]
    while waiting:
        held = waiting.pop()
        for key, value in held.items() if isinstance(held, dict) else enumerate(held):
            if value == wanted:
                yield held, key
            elif isinstance(value, dict | list):
                waiting.append(value)


def every_place(root: Path) -> dict[str, bytes | str]:
    """What is at each path below a directory: the bytes of a file, or what else it is."""
    found: dict[str, bytes | str] = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder) / name
            link = f"link to {path.readlink()}" if path.is_symlink() else ""
            what = link or ("directory" if path.is_dir() else path.read_bytes())
            found[path.relative_to(root).as_posix()] = what
    return found
