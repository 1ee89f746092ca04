"""Register tables that other tools have edited as a new snapshot.

The tables' current versions are compared with the parent's. Partitions whose files differ
from the parent's are read, checked (types, nulls, duplicates, every key in its key group), written
again as statelake's own files, which no VACUUM takes, and measured. Nothing is registered unless
all of it can be exported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import Schema

from statelake.pipelines.lake.catalog.attempts import settle_attempts
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.deletions import UNDO_MAKER
from statelake.pipelines.lake.edit.rewriting import (
    ChildSnapshot,
    Derivation,
    TableChange,
    derive,
    layout_of,
)
from statelake.pipelines.lake.tables.names import check_names
from statelake.pipelines.lake.tables.records import OperatorRecord, SnapshotRecord, TableRecord
from statelake.pipelines.lake.tables.tables import TableFile
from statelake.state_core.errors import ConflictError, LakeError
from statelake.state_core.printable import Printed


@dataclass(frozen=True)
class CommitResult(Printed):
    """The result of a commit.

    Attributes:
        record: The snapshot.
        changed: By state, the entries before and after; only states whose table was edited.
    """

    record: SnapshotRecord
    changed: dict[str, tuple[int, int]]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        changed = {name: {"before": a, "after": b} for name, (a, b) in self.changed.items()}
        return self.record.to_json() | {"changed": changed}

    def lines(self) -> Iterator[str]:
        """Yield the text form: lines and tables."""
        yield f"committed {self.record.snapshot_id}, made from {self.record.parent}"
        for name, (before, after) in self.changed.items():
            yield f"  {name}: {before:,} entries before, {after:,} now"
        if not self.changed:
            yield "  no table differs from the parent's"


def commit_snapshot(child: ChildSnapshot) -> CommitResult:
    """Register the current versions of a job's tables, edited elsewhere, as a new snapshot.

    Raises:
        ConflictError: The id is taken, or another snapshot was imported into the tables since.
        KeyGroupError: A key is not in its key group.
        EncodeError: A value can't be written back to Flink.
        LakeError: The tables no longer have the state's columns.
    """
    lake = child.lake
    check_names(child.job, child.snapshot_id)
    record = child.parent_record
    makers = {maker for table in record.tables for _, maker in _entries_behind(lake, table)}
    settle_attempts(
        lake,
        lambda version: {
            token: claim for token, claim in version.claims.attempts.items() if token in makers
        },
        f"edits of snapshot {child.parent!r} can't be committed",
    )
    work = _Commit(lake, child.parent, lake.records(child.job)[0])
    done = derive(child, record, work)
    return CommitResult(done.record, work.changed)


class _Commit(Derivation):
    origin = "commit"

    def __init__(self, lake: Catalog, parent: str, snapshots: Sequence[SnapshotRecord]) -> None:
        self.lake = lake
        self.parent = parent
        self.owners: dict[tuple[str, int], list[str]] = {}  # snapshots by table and version
        for record in snapshots:
            for table in record.tables:
                owners = self.owners.setdefault((table.path, table.version), [])
                owners.append(record.snapshot_id)
        self.before: dict[str, dict[str, int]] = {}  # entries by state, of edited tables
        self.changed: dict[str, tuple[int, int]] = {}

    def change(self, operator: OperatorRecord, table: TableRecord) -> TableChange | None:
        """Return the pieces whose files have changed."""
        files = self._files_now(table)
        if files.keys() == {file.path for file in table.units}:
            return None
        layout = layout_of(self.lake, operator, table)
        self._check_columns(table, layout.schema)
        self.before[table.path] = _entries(operator, table)
        return TableChange(layout, layout.edited_pieces(table.units, list(files.values())))

    def finish(self, record: SnapshotRecord) -> SnapshotRecord:
        """Count the entries of edited tables."""
        for operator in record.operators:
            for table in operator.tables:
                after = _entries(operator, table)
                for name, before in self.before.get(table.path, {}).items():
                    self.changed[f"{operator.label}/{name}"] = (before, after[name])
        return record

    def _files_now(self, table: TableRecord) -> dict[str, TableFile]:
        """Return the files of the table's latest version, which must be an edit of the parent.

        Raises:
            ConflictError: A version in between is another snapshot's, or statelake's own work.
        """
        state_table = self.lake.table(table.path)
        latest = state_table.require()
        undone: set[str] = set()
        foreign: list[str] = []
        for version, maker in _entries_behind(self.lake, table):
            owners = self.owners.get((table.path, version), [])
            if maker.startswith(UNDO_MAKER):
                undone.add(maker.removeprefix(UNDO_MAKER))
            elif owners:
                foreign.append(f"{version} (of snapshot {', '.join(map(repr, owners))})")
            elif maker and maker not in undone:
                foreign.append(f"{version} (made by statelake)")
        if foreign:
            raise ConflictError(
                f"the table is not made of {self.parent} alone: after its version"
                f" {table.version} come {', '.join(reversed(foreign))}",
                place=state_table.uri,
                remedy=f"edit the parent itself with `statelake sql --edit {self.parent} --as ...`;"
                f" or name the snapshot that was edited as parent; or RESTORE TABLE ... TO VERSION"
                f" AS OF {table.version} and edit again",
            )
        return {file.path: file for file in state_table.files(latest.version())}

    def _check_columns(self, table: TableRecord, expected: pa.Schema) -> None:
        """Check that the table still has the state's columns."""
        present = pa.schema(self.lake.table(table.path).require().schema().to_arrow())
        stored = pa.schema(Schema.from_arrow(expected).to_arrow())
        for field in stored:
            at = present.get_field_index(field.name)
            if at < 0 or present.field(at).type != field.type:
                change = "was dropped" if at < 0 else f"is {present.field(at).type} now"
                raise LakeError(
                    f"column {field.name!r} {change}, but the state has {field.type}",
                    place=self.lake.table(table.path).uri,
                    remedy="change values, not columns; `statelake migrate` changes types",
                )
        extra = sorted(set(present.names) - set(expected.names))
        if extra:
            named = ", ".join(map(repr, extra))
            raise LakeError(
                f"column {named} was added, but the state has no place for it",
                place=self.lake.table(table.path).uri,
                remedy="drop it: only the state's own columns go back to Flink",
            )


def _entries_behind(lake: Catalog, table: TableRecord) -> Iterator[tuple[int, str]]:
    """Return later versions than a snapshot's, with their makers, the latest first."""
    state_table = lake.table(table.path)
    for version in range(state_table.require().version(), table.version, -1):
        entry = state_table.commit_info(version)
        restored = entry.get("operationParameters", {}).get("version")
        if entry.get("operation") == "RESTORE" and str(restored) == str(table.version):
            return
        yield version, state_table.maker(version)


def _entries(operator: OperatorRecord, table: TableRecord) -> dict[str, int]:
    """Return the number of entries of each state in a table."""
    return {state.name: state.entries for state in operator.states_in(table)}
