"""Hostile lakes: rows of the catalog, claims, Delta logs and links, put into honest ones."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.adversary.makers.scene import Maker, Scene
from tests.adversary.makers.seed import JOB, TOKEN
from tests.support.forged_lakes import USUAL_CLAIMS
from tests.support.lakes import forge_claim

__all__ = [
    "claim",
    "claim_text",
    "filled",
    "in_turn",
    "lake_of",
    "link",
    "log_action",
    "put",
    "row",
    "stolen_token",
    "table_at",
    "write",
]

TABLE = "orders/keyed/counter/name"
CARRIED = "_statelake/carried"


def filled(value: Any, scene: Scene) -> Any:
    """A value with the scene's places in its texts."""
    if isinstance(value, str):
        return value.format(**places(scene)) if "{" in value else value
    if isinstance(value, list):
        return [filled(item, scene) for item in value]
    if isinstance(value, dict):
        return {key: filled(item, scene) for key, item in value.items()}
    return value


def places(scene: Scene) -> dict[str, object]:
    """What texts may name."""
    blob = next((scene.victim / "lake" / CARRIED).iterdir())
    unit = min((scene.victim / "lake" / TABLE / "_data").rglob("*.parquet"))
    below = unit.relative_to(scene.victim / "lake" / TABLE)
    own = list((scene.lake / TABLE / "_data").rglob("*.parquet"))
    newest = max(own, key=lambda path: path.stat().st_mtime_ns, default=scene.lake / TABLE)
    return {
        "lake": scene.lake, "victim": scene.victim, "root": scene.root, "work": scene.work,
        "out": scene.out, "seed": scene.seed.root, "victim_blob": blob.name, "victim_unit": below,
        "unit": newest.relative_to(scene.lake / TABLE),
    }  # fmt: skip


def in_turn(*makers: Maker) -> Maker:
    """One after the other in the same scene."""

    def make(scene: Scene) -> None:
        for maker in makers:
            maker(scene)

    return make


def lake_of(scene: Scene) -> Path:
    """The scene's lake, made if it is not there."""
    return scene.lake if scene.lake.exists() else scene.with_lake()


# --------------------------------------------------------------------------- rows of the catalog


def row(change: Callable[[dict[str, Any], Scene], Any], snapshot: str = "bad") -> Maker:
    """The catalog's row of a snapshot, changed in its file.

    Args:
        change: Changes the row, or gives another one, or a table in place of the file's.
        snapshot: Whose row.
    """

    def make(scene: Scene) -> None:
        catalog = lake_of(scene) / "snapshots"
        for path in sorted(catalog.glob(f"job={JOB}/*.parquet")):
            old = pq.read_table(path, partitioning=None)
            if old.column("snapshot_id").to_pylist() != [snapshot]:
                continue
            (row,) = old.to_pylist()
            edit = change(row, scene)
            edit = row if edit is None else edit
            new = edit if isinstance(edit, pa.Table) else pa.Table.from_pylist([edit], old.schema)
            pq.write_table(new, path)
            _say_size(catalog, path.name, path.stat().st_size)

    return make


def put(place: str, value: Any, snapshot: str = "bad") -> Maker:
    """A row with another value at a place such as `operators/0/tables/0/path`."""

    def change(row: dict[str, Any], scene: Scene) -> None:
        at: Any = row
        *above, last = [int(part) if part.isdecimal() else part for part in place.split("/")]
        for part in above:
            at = at[part]
        at[last] = filled(value, scene)

    return row(change, snapshot)


def table_at(path: str, snapshot: str = "bad") -> Maker:
    """A row in which the first table, and whatever names it, is at another path."""

    def change(row: dict[str, Any], scene: Scene) -> None:
        operator = row["operators"][0]
        (table,) = (table for table in operator["tables"] if table["path"] == TABLE)
        table["path"] = filled(path, scene)
        for state in operator["states"]:
            if state["table"] == TABLE:
                state["table"] = table["path"]

    return row(change, snapshot)


def _say_size(table: Path, name: str, size: int) -> None:
    """Let a table's log say the size that a file has now."""

    def change(action: dict[str, Any]) -> None:
        if action.get("add", {}).get("path", "").endswith(name):
            action["add"]["size"] = size

    for path in sorted((table / "_delta_log").glob("*.json")):
        _edit_log(path, change)


# --------------------------------------------------------------------------- Delta's own log


def log_action(table: str, change: Callable[[dict[str, Any], Scene], Any]) -> Maker:
    """Every action of a table's newest version, changed."""

    def make(scene: Scene) -> None:
        newest = max((lake_of(scene) / table / "_delta_log").glob("*.json"))
        _edit_log(newest, lambda action: change(action, scene))

    return make


def _edit_log(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    actions = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    changed = [change(action) or action for action in actions]
    path.write_text("".join(json.dumps(action) + "\n" for action in changed), "utf-8")


# ------------------------------------------------------------------------ claims, files and links


def claim(name: str = TOKEN, kind: str = "attempt", **said: Any) -> Maker:
    """A claim of a process that is gone, in the catalog's log."""
    return claim_text({**USUAL_CLAIMS[kind], **said}, name, kind)


def claim_text(said: Any, name: str = TOKEN, kind: str = "attempt") -> Maker:
    """A claim that says anything: text as it is, else JSON."""

    def make(scene: Scene) -> None:
        whole = filled(said, scene)
        text = whole if isinstance(whole, str) else json.dumps(whole)
        forge_claim(lake_of(scene), f"statelake.{kind}.{name}", text)

    return make


def write(path: str, data: bytes | str) -> Maker:
    """A file of the lake, its directories made."""

    def make(scene: Scene) -> None:
        target = lake_of(scene) / filled(path, scene)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = filled(data, scene) if isinstance(data, str) else data
        target.write_bytes(text.encode() if isinstance(text, str) else text)

    return make


def link(path: str, to: str) -> Maker:
    """A link in the lake, in place of what is there."""

    def make(scene: Scene) -> None:
        target = lake_of(scene) / filled(path, scene)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        elif os.path.lexists(target):
            target.unlink()
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(filled(to, scene))

    return make


def stolen_token(scene: Scene) -> None:
    """Claims by whose names the files of honest snapshots would go."""
    for files in (lake_of(scene) / TABLE / "_data").iterdir():
        claim(files.name)(scene)
        claim("f" * 16, "deletion", tokens=[files.name], tables=[TABLE])(scene)
