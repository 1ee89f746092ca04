"""Change a snapshot as a whole: operators renamed, dropped or merged; states dropped or purged.

The result is a new snapshot, and the old one stays. What only renames or drops rewrites no
table: the new snapshot names the same files. What purges rewrites the files that lose rows, and
merging from another job copies files, since every job keeps and drops its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from statelake.pipelines.lake.catalog.recorded_sources import (
    check_edited_sources,
    sinks_among,
    sources_among,
)
from statelake.pipelines.lake.catalog.unmanaged_state import (
    refuse_unmanaged_keyed,
    unmanaged_metadata,
)
from statelake.pipelines.lake.edit.edit_results import EditResult, StateChange, state_sizes
from statelake.pipelines.lake.edit.keeping import read_kept_keys, refuse_no_match
from statelake.pipelines.lake.edit.merging import (
    merge_operators,
    merged_tables,
    path_beside,
    union_of_operators,
)
from statelake.pipelines.lake.edit.purging import ExpiredEntries, refuse_lasting
from statelake.pipelines.lake.edit.rewriting import (
    ChildSnapshot,
    Derivation,
    TableChange,
    TableRewriter,
    Transform,
    derive,
    layout_of,
    pieces_of,
)
from statelake.pipelines.lake.edit.selecting import (
    find_state,
    refuse_cut_channels,
    tables_of,
    without_state,
)
from statelake.pipelines.lake.edit.source_rows import (
    ElementsReplaced,
    SourceSucceeded,
    succeeding_layout,
)
from statelake.pipelines.lake.tables.names import check_names, operator_table
from statelake.pipelines.lake.tables.records import (
    OperatorRecord,
    SnapshotRecord,
    TableRecord,
    UnmanagedFile,
)
from statelake.pipelines.requests.edit import Changes
from statelake.pipelines.requests.request import given
from statelake.state_core.connectors.offsets import (
    DroppedPartition,
    MovedOffset,
    NamedPartition,
    NewOffset,
    SourceChange,
    drop_partitions,
    move_offsets,
)
from statelake.state_core.connectors.sinks import Sink
from statelake.state_core.connectors.sources import READER_STATE, SourceState
from statelake.state_core.connectors.successors import MovedPosition, successor_of
from statelake.state_core.errors import (
    ConflictError,
    LakeError,
    NoMatchError,
    NotFoundError,
    StateError,
    did_you_mean,
)
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
    write_metadata,
)
from statelake.state_core.model.handles import InlineHandle
from statelake.state_core.model.key_groups import operator_id_of_uid

if TYPE_CHECKING:
    from statelake.pipelines.lake.query.session import Session

Operator = TypeVar("Operator", OperatorRecord, OperatorMetadata)


class SnapshotEdit(Changes):
    """The changes of an edit."""

    merge: Sequence[tuple[str, str]] = given(
        "Other snapshots whose operators are merged in, as job and id.", default=()
    )
    set_offsets: Sequence[NewOffset] = given(
        "The offsets from which Kafka's partitions, and logs, are read.", default=()
    )
    drop_partitions: Sequence[NamedPartition] = given(
        "The partitions of Kafka that sources do not have any more.", default=()
    )


def edit_snapshot(child: ChildSnapshot, edit: SnapshotEdit) -> EditResult:
    """Register an edited snapshot: merges come first, then drops, purges and renames.

    Raises:
        NotFoundError: There is no such operator or state.
        UnsupportedFormatError: It is keyed state of an operator that is kept as bytes.
        NoMatchError: No row is purged or has expired, and nothing else would change.
        ConflictError: The id is taken, two operators would have one uid, or an operator that is
            merged in is there already.
        QueryError: A predicate can't be parsed, or evaluated.
        InexactError: A predicate is about values that columns don't hold in full.
        EncodeError: A row can't be written; nothing was registered.
    """
    check_names(child.job, child.snapshot_id)
    record = child.parent_record
    paths = [table.path for table in record.tables]
    others = [child.lake.snapshot(other, merged) for other, merged in edit.merge]
    for other in others:
        paths += merged_tables(child.job, other, paths)
    tables = _new_tables(child.job, edit, paths)
    paths += tables.values()
    work = _Edit(edit, tables)
    try:
        done = derive(child, record, work, paths=paths, others=others)
    finally:
        if work.session is not None:
            work.session.close()
    expired_at = work.at if edit.expire else None
    return EditResult(
        done.record, work.changes(), work.offsets, work.dropped_partitions, work.positions,
        work.dropped_sinks, expired_at, child.dry_run,
    )  # fmt: skip


class _Edit(Derivation):
    record: SnapshotRecord
    rewriter: TableRewriter
    metadata: CheckpointMetadata
    unchanged: bytes  # the parent's metadata
    merged: SnapshotRecord  # the parent with all that is merged into it

    def __init__(self, edit: SnapshotEdit, new_tables: Mapping[str, str]) -> None:
        self.edit = edit
        self.new_tables = new_tables  # of sources that go on for old ones, by their uids
        self.operators: list[OperatorRecord] = []
        self.carried: list[UnmanagedFile] = []
        self.before: dict[tuple[str, str], tuple[int, int]] = {}
        self.labels: dict[str, str] = {}
        self.transforms: dict[tuple[str, str], list[Transform]] = {}
        self.renamed: dict[str, str] = {}
        self.offsets: list[MovedOffset] = []
        self.dropped_partitions: list[DroppedPartition] = []
        self.positions: list[MovedPosition] = []
        self.dropped_sinks: list[Sink] = []
        self.succeeded: dict[str, tuple[str, int]] = {}  # old sources' states, and what is moved
        self.successions: dict[str, TableChange] = {}  # by the path of the new table
        self.copied = 0
        self.session: Session | None = None

    def begin(self, record: SnapshotRecord, rewriter: TableRewriter) -> Sequence[OperatorRecord]:
        """Merge and drop operators and states, and collect the transforms of the others."""
        self.record, self.rewriter = record, rewriter
        self.metadata = unmanaged_metadata(record)
        self.unchanged = write_metadata(self.metadata)
        self.operators, self.carried = list(record.operators), list(record.carried)
        self._merge()
        self.merged = replace(
            record, operators=self.operators, metadata=write_metadata(self.metadata),
            carried=self.carried,
        )  # fmt: skip
        self.before = state_sizes(self.operators)
        self.labels = {operator.operator_id: operator.label for operator in self.operators}
        self._leave_out_operators()
        self._leave_out_states()
        self._purge()
        self._keep_keys()
        self._change_sources()
        return self.operators

    def change(self, operator: OperatorRecord, table: TableRecord) -> TableChange | None:
        """Return the transforms that were collected for a table."""
        if table.path in self.successions:
            return self.successions[table.path]
        transforms = self.transforms.get((operator.operator_id, table.path))
        if transforms is None:
            return None
        layout = layout_of(self.rewriter.lake, operator, table)
        return TableChange(layout, pieces_of(table), transforms)

    def finish(self, record: SnapshotRecord) -> SnapshotRecord:
        """Rename operators, and record what has no tables."""
        self.operators = list(record.operators)
        for name, file in self.edit.keep_keys.items():
            refuse_no_match(self._with_state(name), file)
        for operator in self.operators:
            _, moved = self.succeeded.get(operator.operator_id, ("", operator.entries))
            if operator.entries != moved:
                raise ConflictError(
                    f"{moved - operator.entries} of the rows whose positions move are deleted",
                    place=f"operator {operator.label}",
                    remedy="use --drop-partitions, or delete them in an edit of its own",
                )
        self._rename()
        metadata = write_metadata(self.metadata)
        if self.edit.purge or self.edit.expire:
            self._refuse_no_match(metadata)
        made = replace(
            record, operators=self.operators, metadata=metadata,
            carried=self.carried, written_bytes=record.written_bytes + self.copied,
        )  # fmt: skip
        if self.edit.merge:  # of these sources the parent has nothing
            check_edited_sources(self.rewriter.lake.location, self.merged, made)
        return made

    @property
    def at(self) -> datetime:
        """The time for which expiry is decided."""
        return self.edit.at or self.record.taken_at

    def changes(self) -> list[StateChange]:
        """The states that have changed, including those that were dropped."""
        after = state_sizes(self.operators)
        labels = {operator.operator_id: operator.label for operator in self.operators}
        changes = []
        for (operator_id, state), before in self.before.items():
            renamed = self.renamed.get(operator_id, operator_id)
            moved_state, _ = self.succeeded.get(operator_id, ("", 0))
            became = READER_STATE if moved_state == state else state
            now = after.get((renamed, became), (0, 0))
            if now != before:
                label = labels.get(renamed, self.labels[operator_id])
                entries, state_bytes = zip(before, now, strict=True)
                changes.append(StateChange(label, became, entries, state_bytes))
        return changes

    def _merge(self) -> None:
        paths = [table.path for operator in self.operators for table in operator.tables]
        for job, snapshot_id in self.edit.merge:
            lake, token = self.rewriter.lake, self.rewriter.token
            other = lake.snapshot(job, snapshot_id)
            theirs = unmanaged_metadata(other).operators
            self.metadata.operators = union_of_operators(
                (self.metadata.operators, {operator.operator_id for operator in self.operators}),
                (theirs, {operator.operator_id for operator in other.operators}),
            )
            name = self.rewriter.attempt.claim.snapshot_id
            operators, copied = merge_operators(lake, self.record.job, name, other, token, paths)
            paths += merged_tables(self.record.job, other, paths)
            self.copied += copied
            self.operators += operators
            blobs = {file.blob for file in self.carried}
            self.carried += [file for file in other.carried if file.blob not in blobs]

    def _leave_out_operators(self) -> None:
        going = {self._id(drop_operator) for drop_operator in self.edit.drop_operator}
        if self.edit.keep_operator:
            kept = {self._id(keep_operator) for keep_operator in self.edit.keep_operator}
            going |= {operator.operator_id for operator in self.metadata.operators} - kept
        refuse_cut_channels(self.metadata.operators, going)
        self._note_sinks([each for each in self.operators if each.operator_id in going])
        self.operators = [
            operator for operator in self.operators if operator.operator_id not in going
        ]
        self.metadata.operators = [
            operator for operator in self.metadata.operators if operator.operator_id not in going
        ]

    def _leave_out_states(self) -> None:
        for name in self.edit.drop_state:
            operator, state = self._find(name)
            left = without_state(operator, state)
            gone = [one for one in operator.operator_states if one not in left.operator_states]
            self._note_sinks([operator.with_states([], gone)])
            for table in left.tables:
                names = {keyed.name for keyed in operator.states if keyed.table == table.path}
                if names - {keyed.name for keyed in left.states}:  # other timers in the same table
                    self._transform(left, [table.path])
            self._replace(left)

    def _transform(
        self, operator: OperatorRecord, tables: list[str], *transforms: Transform
    ) -> None:
        """Add the transform of a table's rows; rows of dropped states are deleted anyway."""
        for path in tables:
            self.transforms.setdefault((operator.operator_id, path), []).extend(transforms)

    def _refuse_no_match(self, metadata: bytes) -> None:
        """Raise an error if rows were to be deleted, and the snapshot is as its parent is.

        Raises:
            NoMatchError: No row matches, and nothing else has changed.
        """
        content, before = _content(self.operators), _content(self.record.operators)
        if metadata != self.unchanged or content != before:
            return
        conditions = [f"{name} ({predicate})" for name, predicate in self.edit.purge.items()]
        conditions += [
            f"{name} (time to live {lived}, by {self.at:%Y-%m-%d %H:%M} UTC)"
            for name, lived in self.edit.expire.items()
        ]
        raise NoMatchError(
            f"no row of {self.record.snapshot_id} matches or has expired: {', '.join(conditions)}",
            remedy="no snapshot was made; `statelake sql` shows the rows, and `statelake top --ttl`"
            " what expires when",
        )

    def _purge(self) -> None:
        for name, predicate in self.edit.purge.items():
            operator, state = self._find(name)
            tables = tables_of(operator, state)
            for table in operator.tables:
                if table.path in tables:
                    self._transform(operator, [table.path], self._where(operator, table, predicate))
        for name, lived in self.edit.expire.items():
            operator, state = self._find(name)
            refuse_lasting(operator, tables_of(operator, state))
            expired = ExpiredEntries(int((self.at - lived).timestamp() * 1000), self.edit.inexact)
            self._transform(operator, tables_of(operator, state), expired)

    def _where(self, operator: OperatorRecord, table: TableRecord, predicate: str) -> Transform:
        """Return the transform that deletes rows, after a try with no rows."""
        from statelake.pipelines.lake.edit import sql_editing  # noqa: PLC0415 - DuckDB

        if self.session is None:
            self.session = sql_editing.session_over(self.rewriter.lake, self.record)
        where = sql_editing.rows_where(
            self.session, operator, table, predicate, inexact=self.edit.inexact
        )
        sql_editing.refuse_no_condition(self.session, operator, table, predicate)
        return where

    def _keep_keys(self) -> None:
        for name, file in self.edit.keep_keys.items():
            operator = self._with_state(name)
            if not operator.states:
                refuse_unmanaged_keyed(self.merged, name)
            kept = read_kept_keys(file, self.rewriter.lake.location, operator)
            self._transform(
                operator, [keyed_table.path for keyed_table in operator.keyed_tables], kept
            )

    def _note_sinks(self, going: Sequence[OperatorRecord]) -> None:
        """Note what sinks among dropped operators have still to commit."""
        for operator in going:
            try:
                sinks = sinks_among(self.rewriter.lake.location, [operator])
            except StateError as error:  # which does not prevent dropping it
                sinks = [Sink(operator.operator_id, operator.label, (), (), (str(error),))]
            self.dropped_sinks += [sink for sink in sinks if sink.to_commit or sink.problems]

    def _change_sources(self) -> None:
        """Drop partitions, then set offsets, then move positions from old sources to new ones."""
        edit = self.edit
        if not (edit.drop_partitions or edit.set_offsets or edit.move_positions):
            return
        location = self.rewriter.lake.location
        sources = sources_among(location, self.operators, self.metadata.operators)
        dropping = drop_partitions(sources, edit.drop_partitions)
        sources = self._changed(sources, dropping)
        moving = move_offsets(sources, edit.set_offsets)
        sources = self._changed(sources, moving)
        self.dropped_partitions = [dropped for each in dropping for dropped in each.dropped]
        self.offsets = [moved for each in moving for moved in each.moved]
        for name, uid in edit.move_positions.items():
            self._move_positions(name, uid, sources)

    def _changed(
        self, sources: list[SourceState], changes: Sequence[SourceChange]
    ) -> list[SourceState]:
        """Note the changes of sources, and return the sources after them."""
        for change in changes:
            sources = [change.applied_to(source) for source in sources]
            for state, elements in change.elements_by_state().items():
                operator = self._with_state(change.operator_id)
                tables = [one.table for one in operator.operator_states if one.name == state]
                if change.moved and self._deletes_rows(operator, tables):
                    raise ConflictError(
                        "rows are deleted of a state whose offsets are set",
                        place=f"state {operator.label}/{state}",
                        remedy="delete them in an edit of its own",
                    )
                self._transform(operator, tables, ElementsReplaced(elements))
            if change.coordinator is not None:
                self._set_coordinator(change.operator_id, change.coordinator)
        return sources

    def _deletes_rows(self, operator: OperatorRecord, tables: Sequence[str]) -> bool:
        """Return whether rows of some tables are purged."""
        return any(
            not isinstance(each, ElementsReplaced)
            for path in tables
            for each in self.transforms.get((operator.operator_id, path), ())
        )

    def _set_coordinator(self, operator_id: str, data: bytes, name: str = "") -> None:
        for each in self.metadata.operators:
            if each.operator_id == operator_id:
                known = "" if each.coordinator is None else each.coordinator.name
                each.coordinator = InlineHandle(name or known, data)

    def _move_positions(self, name: str, uid: str, sources: Sequence[SourceState]) -> None:
        """Turn an old source into the next one, to which `_rename` gives its uid.

        Raises:
            NotFoundError: There is no such operator, or it has no position.
            ConflictError: It has been moved to another uid.
            EncodeError: It is no old source, or has a position that the next one can't have.
        """
        operator_id = self._id(name)
        source = next((one for one in sources if one.operator_id == operator_id), None)
        if source is None:
            olds = [one.operator for one in sources if one.is_old]
            raise NotFoundError(
                f"operator {name} has no position of an old source",
                remedy=f"old sources with positions: {', '.join(olds) or 'none'}; a"
                " FlinkKafkaConsumer does not write them when its job is stopped with a savepoint:"
                " take one while it runs, and then cancel it",
            )
        if operator_id in self.succeeded:
            raise _two_uids(name)
        successor = successor_of(source, uid, self.edit.stream_arn)
        operator = self._with_state(operator_id)
        state = next(one for one in operator.operator_states if one.name == successor.state)
        table, path = operator.table_of(state), self.new_tables[uid]
        layout = succeeding_layout(self.rewriter.lake.location, operator, state, path)
        transforms = self.transforms.pop((operator_id, state.table), [])
        transforms.append(SourceSucceeded(successor.elements, layout.after.meta_info))
        self.successions[path] = TableChange(layout, pieces_of(table), transforms)
        empty = TableRecord(path, 0, table.partition_by)
        self._replace(replace(operator, states=[], operator_states=[layout.after], tables=[empty]))
        self._set_coordinator(operator_id, successor.coordinator, operator_id_of_uid(uid))
        self.positions += successor.moved
        self.succeeded[operator_id] = state.name, len(successor.elements)

    def _replace(self, changed: OperatorRecord) -> None:
        self.operators = [
            changed if operator.operator_id == changed.operator_id else operator
            for operator in self.operators
        ]

    def _rename(self) -> None:
        """Give operators their new uids, all at once, so that two can exchange theirs."""
        uids: dict[str, str] = {}
        by_new: dict[str, str] = {}  # a uid that an earlier pair gives is a name, too
        known = {each.uid for each in self.metadata.operators}
        for old, new in (*self.edit.rename_uid.items(), *self.edit.move_positions.items()):
            if not new:  # Flink refuses it, too, and reads it as no uid
                raise LakeError(f"operator {old} would have an empty uid", remedy="give another")
            operator_id = by_new[old] if old in by_new and old not in known else self._id(old)
            if operator_id in uids and operator_id in self.succeeded:
                raise _two_uids(old)
            uids[operator_id], by_new[new] = new, operator_id
        self.renamed = {each: operator_id_of_uid(uid) for each, uid in uids.items()}
        counts = Counter(
            self.renamed.get(each.operator_id, each.operator_id) for each in self.metadata.operators
        )
        for uid in uids.values():
            if counts[operator_id_of_uid(uid)] > 1:
                raise ConflictError(
                    f"there is an operator with uid {uid!r}", remedy="choose another uid"
                )
        self.metadata.operators = _with_uids(self.metadata.operators, uids)
        self.operators = _with_uids(self.operators, uids)

    def _with_state(self, name: str) -> OperatorRecord:
        """Return the operator of that name, which has tables."""
        operator_id = self._id(name)
        for operator in self.operators:
            if operator.operator_id == operator_id:
                return operator
        refuse_unmanaged_keyed(self.merged, name)
        raise NotFoundError(f"operator {name!r} has no state", remedy="name one that has some")

    def _find(self, name: str) -> tuple[OperatorRecord, str]:
        try:
            return find_state(self.operators, name, self.record.snapshot_id)
        except NotFoundError:
            refuse_unmanaged_keyed(self.merged, name)
            raise

    def _id(self, name: str) -> str:
        """Return the id of an operator, with state or without."""
        labels = {operator.operator_id: operator.label for operator in self.operators}
        others = {each.operator_id: each.labels for each in self.operators}
        for operator in self.metadata.operators:
            known = others.get(operator.operator_id, ())
            if name in (operator.uid, operator.operator_id, *known):
                return operator.operator_id
        names = [
            labels.get(operator.operator_id) or operator.uid or operator.operator_id
            for operator in self.metadata.operators
        ]
        raise NotFoundError(
            f"snapshot {self.record.snapshot_id} has no operator {name!r}",
            remedy=f"it has: {', '.join(names) or 'none'}{did_you_mean(name, names)}",
        )


def _with_uids(operators: Sequence[Operator], uids: Mapping[str, str]) -> list[Operator]:
    """Return the operators, some with new uids and the ids that Flink derives from them.

    Args:
        operators: The operators.
        uids: The new uids, by the operators' ids.
    """
    return [
        replace(each, operator_id=operator_id_of_uid(uids[each.operator_id]),
                uid=uids[each.operator_id])
        if each.operator_id in uids
        else each
        for each in operators
    ]  # fmt: skip


def _new_tables(job: str, edit: SnapshotEdit, taken: Sequence[str]) -> dict[str, str]:
    """Return the table of each source that goes on for an old one, by its uid."""
    tables: dict[str, str] = {}
    for uid in edit.move_positions.values():
        path = operator_table(job, uid, READER_STATE)
        while path in (*taken, *tables.values()):
            path = path_beside(path, TableRecord(path, 0, ""))
        tables[uid] = path
    return tables


def _two_uids(operator: str) -> ConflictError:
    return ConflictError(f"operator {operator} would have two uids", remedy="give it one")


def _content(operators: Sequence[OperatorRecord]) -> list[OperatorRecord]:
    """Return the operators without the versions of their tables, of which files are the content."""
    return [
        replace(operator, tables=[replace(table, version=0) for table in operator.tables])
        for operator in operators
    ]
