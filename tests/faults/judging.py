"""What is in a lake, read by plain JSON and Parquet: no code of the lake's own is called.

Of the formats it knows this much: the log of the Delta table `snapshots` names Parquet files of
rows; a row says its job, its id, its holds, its operators with their tables and the tables' files,
and the files that it carries.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

__all__ = ["Seen", "files_too_many", "files_with", "look", "plain", "shape"]

CARRIED, RESERVE = "_statelake/carried", "_statelake/reserve"
_ENTRY = re.compile(r"\d{20}\.json")
_LOG = re.compile(r"\d{20}(\.checkpoint(\.[\w-]+)?)?\.(json|parquet|crc)|_last_checkpoint")
_NAMES = re.compile(r"(?<![a-z])[0-9a-f]{8,}(-[0-9a-f]{4,})*|\d{5,}|(?<=statelake-)[\w-]+")


@dataclass
class Seen:
    """What a world holds.

    Attributes:
        snapshots: What each is made of, by job and id: a digest of its rows, and its holds.
        rows: The rows of each one's tables, as JSON, by the tables' paths.
        exports: What whole savepoints hold, by their directory.
        named: The files that snapshots and the catalog need, below the world.
        faults: What can't be.
    """

    snapshots: dict[str, str] = field(default_factory=dict)
    rows: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    exports: dict[str, str] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    @property
    def state(self) -> dict[str, str]:
        """All that commands change, to be compared."""
        return self.snapshots | self.exports

    def compared(self, other: dict[str, str]) -> str:
        """What differs from another state, in words."""
        mine = self.state
        changed = [name for name in mine if name in other and mine[name] != other[name]]
        lacks, more = other.keys() - mine, mine.keys() - other
        found = {"lacks": lacks, "has also": more, "differs in": changed}
        return "; ".join(f"{what} {sorted(names)}" for what, names in found.items() if names)


def look(world: Path) -> Seen:
    """Read all of it."""
    seen = Seen()
    catalog = world / "lake/snapshots"
    for path, partition in _named_by_log(catalog, seen):
        seen.named.add(f"lake/snapshots/{path}")
        try:
            rows = _rows(catalog / path)
        except (OSError, ValueError) as error:
            seen.faults.append(f"the catalog's {path} can't be read: {error}")
            continue
        for row in rows:
            _see_snapshot(world / "lake", {**partition, **row}, seen)
    for log in sorted(world.glob("lake/_statelake/*/_delta_log")):  # records of what was done
        below = log.parent.relative_to(world).as_posix()
        seen.named |= {f"{below}/{path}" for path, _ in _named_by_log(log.parent, seen)}
    whole = (path for path in world.glob("exports/*/_metadata") if path.parent.suffix != ".part")
    for metadata in sorted(whole):
        files = sorted(path for path in metadata.parent.rglob("*") if path.is_file())
        found = hashlib.sha256()
        for content in sorted(path.read_bytes() for path in files if path != metadata):
            found.update(content)
        seen.exports[f"{plain(metadata.parent.name)}/_metadata"] = found.hexdigest()[:12]
    return seen


def _named_by_log(table: Path, seen: Seen) -> list[tuple[str, dict[str, Any]]]:
    """The files of the newest version, and their partitions' values."""
    files: dict[str, dict[str, Any]] = {}
    log = sorted(table.glob("_delta_log/*.json"))
    begin = 0
    for checkpoint in sorted(table.glob("_delta_log/*.checkpoint.parquet"))[-1:]:
        begin = int(checkpoint.name[:20]) + 1
        for row in filter(None, (row["add"] for row in _rows(checkpoint))):
            files[unquote(row["path"])] = dict(row["partitionValues"] or ())
    entries = [path for path in log if _ENTRY.fullmatch(path.name)]
    entries = [path for path in entries if int(path.name[:20]) >= begin]
    for number, entry in enumerate(entries, begin):
        if int(entry.name[:20]) != number:
            seen.faults.append(f"the log of {table.name} has no entry {number}")
        try:
            actions = [json.loads(line) for line in entry.read_text("utf-8").splitlines() if line]
        except ValueError:
            actions = []
        if not actions:  # torn: as if it were not there
            if entry != entries[-1]:
                seen.faults.append(f"entry {number} of {table.name} is torn, and not the last")
            continue
        for action in actions:
            if "add" in action:
                files[unquote(action["add"]["path"])] = action["add"].get("partitionValues") or {}
            elif "remove" in action:
                files.pop(unquote(action["remove"]["path"]), None)
    return sorted(files.items())


def _rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a Parquet file; no thread is started."""
    file = pq.ParquetFile(io.BytesIO(path.read_bytes()), pre_buffer=False)
    rows: list[dict[str, Any]] = file.read(use_threads=False).to_pylist()
    return rows


def _see_snapshot(lake: Path, row: dict[str, Any], seen: Seen) -> None:
    """Read all files of a snapshot."""
    name = f"{row['job']}/{row['snapshot_id']}"
    if name in seen.snapshots:
        seen.faults.append(f"{name} has two rows")
    content: list[Any] = [sorted(hold["reason"] for hold in row.get("holds") or ())]
    for operator in row["operators"]:
        content.append([operator["operator_id"], operator["uid"]])
        for table in operator["tables"]:
            rows = []
            for unit in table["units"]:
                path = f"{table['path']}/{unit['path']}"
                seen.named.add(f"lake/{path}")
                rows += _unit_rows(lake / path, name, seen)
            seen.rows.setdefault(name, {})[table["path"]] = rows
            content.append([table["path"], sorted(rows)])
    for carried in row.get("carried") or ():
        path = f"{CARRIED}/{carried['blob']}"
        seen.named.add(f"lake/{path}")
        try:
            content.append(hashlib.sha256((lake / path).read_bytes()).hexdigest())
        except OSError as error:
            seen.faults.append(f"{name} is lost: {error}")
    seen.snapshots[name] = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


def _unit_rows(path: Path, name: str, seen: Seen) -> list[str]:
    try:
        return [json.dumps(row, default=repr, sort_keys=True) for row in _rows(path)]
    except (OSError, ValueError) as error:
        seen.faults.append(f"{name} is lost: {error}")
        return []


def files_with(world: Path, word: str) -> list[str]:
    """The files of the lake that hold a word, in their bytes or in their rows."""
    return [
        path.relative_to(world).as_posix()
        for path in sorted((world / "lake").rglob("*"))
        if path.is_file() and _holds(path, word)
    ]


def _holds(path: Path, word: str) -> bool:
    data = path.read_bytes()
    if word.encode() in data:
        return True
    try:
        return data[:4] == b"PAR1" and word in repr(_rows(path))
    except (OSError, ValueError):
        return False  # half of a file: its bytes were searched


def plain(name: str) -> str:
    """A path without what is made up for each file."""
    return _NAMES.sub("*", name)


def _present(world: Path) -> Iterator[str]:
    for path in sorted(world.rglob("*")):
        if path.is_file() or path.is_symlink():
            yield path.relative_to(world).as_posix()


def shape(world: Path) -> Counter[str]:
    """How many files of each kind there are; a kind is a path without what is made up."""
    return Counter(plain(name) for name in _present(world))


def files_too_many(world: Path, seen: Seen, calm: Counter[str]) -> list[str]:
    """The files that nothing names, and that a calm run leaves none of.

    Args:
        world: The world.
        seen: What it holds.
        calm: The shape that a calm run leaves.
    """
    left, found = calm.copy(), []
    for name in _present(world):
        folder, _, file = name.rpartition("/")
        if name.endswith(RESERVE) or (folder.endswith("_delta_log") and _LOG.fullmatch(file)):
            continue
        data = "/_data/" in name or CARRIED in name
        if data and name not in seen.named:
            found.append(name)
        elif not data and name not in seen.named:
            if left[plain(name)] <= 0:
                found.append(name)
            left[plain(name)] -= 1
    return found
