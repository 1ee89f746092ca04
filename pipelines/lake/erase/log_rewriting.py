"""Rewrite Delta logs so that every version names new files instead of old ones.

Versions keep their numbers, and each shows at every moment either its old or its new files: an
entry of the log is one file, which is replaced as a whole, and a file that an entry adds may not be
removed by a later one under another name. So the entries are rewritten in three passes:

1. each entry that names an old file also removes the new one, which no version has yet;
2. each entry that adds the old file adds the new one, and also removes the old one;
3. no entry names the old file any more.

After a crash, they begin again with the first. Minimum and maximum values are deleted before; so
are the predicates of commits, and what other engines repeat of a log's entries. Checkpoints of ours
are rewritten like entries: by them old versions are cleaned up, however often somebody is erased.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import unquote

import pyarrow as pa

from statelake.pipelines.lake.tables.log_entries import (
    LOG_DIRECTORY,
    Action,
    entry_bytes,
    file_statistics,
    log_entry,
    log_name,
    read_entry,
    removal,
)
from statelake.pipelines.lake.tables.parquet_seals import check_whole
from statelake.pipelines.lake.tables.records import DataFile
from statelake.pipelines.lake.tables.table_log import (
    checkpoint_actions,
    checkpoint_name,
    checkpoint_of,
    log_beginning,
    log_files_before,
    log_versions,
)
from statelake.pipelines.lake.tables.tables import ATTEMPT_KEY, SNAPSHOT_KEY, StateTable, TableFile
from statelake.state_core.errors import DamagedLakeError, StateError, UnreadableTableError

Replaced: TypeAlias = "Mapping[str, DataFile | None]"

KEPT_OF_COMMITS = ("timestamp", "operation", "engineInfo", "clientVersion", "txnId", ATTEMPT_KEY)
KEPT_STATISTICS = ("minValues", "maxValues", "nullCount")
_CHECKPOINT = re.compile(
    r"\d{20}\.checkpoint\..+|\d{20}\.\d{20}\.compacted\.json|_sidecars/[^/]+\.parquet"
    r"|\.?\d{20}\.[\w.-]*crc|\._last_checkpoint\.crc|_?\.?_commit_[\w.-]+\.tmp",
    re.ASCII,
)


def check_log(table: StateTable) -> None:
    """Check that all entries of a log can be rewritten, before any is.

    Raises:
        DamagedLakeError: A version's entry is missing, or the checkpoint before it.
        UnreadableTableError: A version has deletion vectors.
    """
    first, versions = _beginning(table), _versions(table)
    if versions != list(range(first, first + len(versions))):
        missing = next(at for at, version in enumerate([*versions, -1], first) if at != version)
        raise DamagedLakeError(
            f"the log has no entry of version {missing}, so that old versions can't be rewritten",
            place=table.uri,
            remedy="restore the entry from a backup; or drop the snapshots of this job, and"
            " import again",
        )
    for version, actions in _all_actions(table, first, versions):
        for action in actions:
            if (action.get("add") or {}).get("deletionVector"):
                raise UnreadableTableError(
                    f"version {version} hides rows by a deletion vector",
                    place=table.uri,
                    remedy="REORG TABLE ... APPLY (PURGE), and drop the snapshots before it",
                )


def rewrite_log(table: StateTable, replaced: Replaced) -> None:
    """Make every version of a table name new files; the old ones may be deleted afterwards.

    Args:
        table: The table, to which no other process commits meanwhile.
        replaced: By the path of an old file, the new one; None if no row is left.
    """
    directory, first = table.directory, _beginning(table)
    directory.delete(f"{LOG_DIRECTORY}/_last_checkpoint")
    present = [path for path, _ in directory.files_below(LOG_DIRECTORY)]
    names = [path.removeprefix(f"{LOG_DIRECTORY}/") for path in present]
    unneeded = {*log_files_before(names, first), *filter(_CHECKPOINT.fullmatch, names)}
    checkpoints = [first] if first else []
    checkpoints += [
        version
        for version in sorted(log_versions(names)[1])
        if version > first and _is_ours(table, checkpoint_name(version))
    ]
    for name in sorted(unneeded - {*map(checkpoint_name, checkpoints)}):
        directory.delete(f"{LOG_DIRECTORY}/{name}")
    for step in (_announced, _exchanged, _forgotten):
        for version in checkpoints if step is not _announced else ():
            _rewrite_checkpoint(table, version, replaced, step)
        _rewrite_entries(table, replaced, step)


def _is_ours(table: StateTable, name: str) -> bool:
    """Return whether a checkpoint has our seal, and is whole."""
    try:
        with table.directory.open_input(f"{LOG_DIRECTORY}/{name}") as source:
            return check_whole(source)
    except (OSError, pa.ArrowException, StateError):
        return False


def _rewrite_entries(
    table: StateTable,
    replaced: Replaced,
    step: Callable[[list[Action], Replaced], list[Action]],
) -> None:
    """Rewrite the entries of a log in one pass."""
    for version in _versions(table):
        before = read_entry(table.directory, version)
        after = [_cleaned(action) for action in step(before, replaced) if "cdc" not in action]
        if after != before:
            table.directory.write(log_entry(version), entry_bytes(after))


def _rewrite_checkpoint(
    table: StateTable,
    version: int,
    replaced: Replaced,
    step: Callable[[list[Action], Replaced], list[Action]],
) -> None:
    """Rewrite a checkpoint."""
    before = checkpoint_actions(table.directory, version)
    after = [_cleaned(action) for action in step(before, replaced)]
    if after != before:
        entry = log_entry(0).removeprefix(f"{LOG_DIRECTORY}/")  # a checkpoint has no version inside
        data, _ = checkpoint_of({entry: entry_bytes(after)}, 0)
        table.directory.write(f"{LOG_DIRECTORY}/{checkpoint_name(version)}", data)


def _beginning(table: StateTable) -> int:
    return log_beginning(table.directory.names(LOG_DIRECTORY))


def _all_actions(
    table: StateTable, first: int, versions: Iterable[int]
) -> Iterator[tuple[int, list[Action]]]:
    """Yield the actions of the checkpoint with which a log begins, and of its entries."""
    if first:
        yield first, checkpoint_actions(table.directory, first)
    for version in versions:
        yield version, read_entry(table.directory, version)


def _versions(table: StateTable) -> list[int]:
    return sorted(table.versions_after(-1))


def _named(action: Action) -> str:
    """Return the file that an action names; empty for other actions."""
    for kind in ("add", "remove"):
        if kind in action:
            return unquote(action[kind]["path"])
    return ""


def _announced(actions: list[Action], replaced: Replaced) -> list[Action]:
    """Return actions in which an entry that names an old file also removes the new one."""
    changed = list(actions)
    named = _all_named(actions)
    for action in actions:
        new = replaced.get(_named(action))
        if new is not None and new.path not in named:
            changed.append(_removal(new.path, new.size, action))
    return changed


def _exchanged(actions: list[Action], replaced: Replaced) -> list[Action]:
    """Return actions in which an entry that adds an old file adds the new one instead."""
    changed: list[Action] = []
    coming = {_named(action) for action in actions if "add" in action} & replaced.keys()
    new_paths = {new.path for path in coming if (new := replaced[path]) is not None}
    for action in actions:
        path = _named(action)
        if "add" in action and path in coming:
            new = replaced[path]
            if new is not None:
                changed.append(_addition(new, action))
            changed.append(_removal(path, action["add"].get("size") or 0, action))
        elif not ("remove" in action and path in new_paths):
            changed.append(action)
    return changed


def _forgotten(actions: list[Action], replaced: Replaced) -> list[Action]:
    """Return actions without those that name an old file."""
    return [action for action in actions if _named(action) not in replaced]


def _all_named(actions: Iterable[Action]) -> set[str]:
    return {_named(action) for action in actions}


def _addition(data_file: DataFile, action: Action) -> Action:
    file = TableFile.of(data_file)
    statistics = file_statistics(file.rows, file.key_groups if file.partition >= 0 else None)
    old = {"partitionValues": {}, **action["add"]}
    return {"add": {**old, "path": log_name(file.path), "size": file.size, "stats": statistics}}


def _removal(path: str, size: int, action: Action) -> Action:
    """Return the removal of a file whose partition is that of the one that an action names."""
    (old,) = (action[kind] for kind in ("add", "remove") if kind in action)
    at = old.get("deletionTimestamp") or old.get("modificationTime") or 0
    return removal(path, size, dict(old.get("partitionValues") or {}), at)


def _cleaned(action: Action) -> Action:
    """Return an action without values of rows: statistics of columns, tags, predicates."""
    if "commitInfo" in action:
        commit_info = action["commitInfo"]
        names = [*KEPT_OF_COMMITS]
        if ATTEMPT_KEY in commit_info:  # then it is the name of a snapshot
            names.append(SNAPSHOT_KEY)
        kept = {name: commit_info[name] for name in names if name in commit_info}
        restored = (commit_info.get("operationParameters") or {}).get("version")
        kept["operationParameters"] = {} if restored is None else {"version": restored}
        return {"commitInfo": kept}
    for kind in ("add", "remove"):
        if kind in action:
            file = {**action[kind], "tags": None}
            file["stats"] = _counts(file.get("stats"))
            file = {name: value for name, value in file.items() if value is not None}
            return {kind: file}
    return action


def _counts(statistics: Any) -> str | None:
    """Return the statistics that stay: a file's number of rows, and their key groups."""
    try:
        counts = json.loads(statistics)
        kept = {"numRecords": counts["numRecords"]} if "numRecords" in counts else {}
        for name in KEPT_STATISTICS:
            if "key_group" in counts.get(name, {}):
                kept[name] = {"key_group": counts[name]["key_group"]}
    except (AttributeError, TypeError, ValueError):
        return None
    return json.dumps(kept) if kept else None
