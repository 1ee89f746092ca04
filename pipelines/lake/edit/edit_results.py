"""The results of edits, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from statelake.pipelines.lake.tables.records import OperatorRecord, SnapshotRecord
from statelake.state_core.connectors.offsets import DroppedPartition, MovedOffset
from statelake.state_core.connectors.sinks import Sink
from statelake.state_core.connectors.successors import MovedPosition
from statelake.state_core.printable import Printed, Table, bytes_text, saved_text


@dataclass(frozen=True)
class StateChange:
    """The change of one state: entries and bytes, before and after.

    Attributes:
        operator: Its operator, by its new name.
        state: The state.
        entries: Before and after.
        state_bytes: Before and after.
    """

    operator: str
    state: str
    entries: tuple[int, int]
    state_bytes: tuple[int, int]


@dataclass(frozen=True)
class EditResult(Printed):
    """The result of an edit.

    Attributes:
        record: The new snapshot.
        changes: The states whose size changed.
        offsets: The partitions of Kafka, and the logs, with another offset.
        dropped_partitions: The partitions of Kafka that sources do not have any more.
        positions: Where new sources go on in place of old ones.
        dropped_sinks: Sinks, dropped in whole or in part, that had something to commit.
        expired_at: The time for which entries were checked for expiry; None if they were not.
        dry_run: Whether no snapshot was made.
    """

    JSON = (
        "snapshot_id=record.snapshot_id", "parent=record.parent", "entries=record.entries",
        "state_bytes=record.state_bytes", "written_bytes=record.written_bytes", "saved_bytes",
        "operators", "changes", "offsets", "expired_at?", "dropped_partitions?", "positions?",
        "dropped_sinks?", "planned=dry_run?",
    )  # fmt: skip

    record: SnapshotRecord
    changes: list[StateChange]
    offsets: Sequence[MovedOffset] = ()
    dropped_partitions: Sequence[DroppedPartition] = ()
    positions: Sequence[MovedPosition] = ()
    dropped_sinks: Sequence[Sink] = ()
    expired_at: datetime | None = None
    dry_run: bool = False

    @property
    def operators(self) -> list[str]:
        """The labels of the new snapshot's operators."""
        return [operator.label for operator in self.record.operators]

    @property
    def saved_bytes(self) -> int:
        """The bytes of keys and values that the new snapshot lacks."""
        return sum(change.state_bytes[0] - change.state_bytes[1] for change in self.changes)

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: lines and tables."""
        record = self.record
        yield (
            f"{'would make' if self.dry_run else 'made'} {record.snapshot_id} from {record.parent}:"
            f" {record.entries:,} entries, {bytes_text(record.state_bytes)} of state"
            f" ({saved_text(self.saved_bytes)})"
            + ("" if self.dry_run else f"; wrote {bytes_text(record.written_bytes)}")
        )
        if self.changes:
            sizes = (
                "<operator", "<state", ">entries=entries.0:,", ">now=entries.1:,",
                ">bytes=state_bytes.0:B", ">now=state_bytes.1:B",
            )  # fmt: skip
            changes = sorted(self.changes, key=lambda each: (each.operator, each.state))
            yield Table.of("", sizes, changes)
        if self.offsets:
            columns = (
                "<source=operator", "<topic", ">partition:-", ">offset=before:-", ">now=after:-"
            )  # fmt: skip
            yield Table.of("", columns, self.offsets)
        if self.dropped_partitions:
            dropped = [
                (each.operator, each.topic, str(each.partition), _cell(each.offset),
                 each.status if each.subtask is None else f"subtask {each.subtask}")
                for each in self.dropped_partitions
            ]  # fmt: skip
            columns = ("<source", "<dropped topic", ">partition", ">offset", "<was")
            yield Table("", columns, dropped)
        if self.positions:
            going = [
                (each.operator, each.uid, each.split, str(each.position),
                 "-" if each.subtask is None else f"subtask {each.subtask}")
                for each in self.positions
            ]  # fmt: skip
            yield Table("", ("<source", "<now", "<split", ">goes on at", "<where"), going)
        for sink in self.dropped_sinks:
            yield "dropped with what is not committed yet, which nobody will commit:"
            yield from sink.lines()


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


def changed_states(
    before: Sequence[OperatorRecord], after: Sequence[OperatorRecord]
) -> list[StateChange]:
    """Return the states whose files have changed; operators and states are the same."""
    files = {table.path: table.units for operator in before for table in operator.tables}
    sizes, now = state_sizes(before), state_sizes(after)
    changes = []
    for operator in after:
        edited = {table.path for table in operator.tables if table.units != files[table.path]}
        for state in operator.all_states:
            if state.table in edited:
                key = operator.operator_id, state.name
                entries, state_bytes = zip(sizes[key], now[key], strict=True)
                changes.append(StateChange(operator.label, state.name, entries, state_bytes))
    return changes


def state_sizes(operators: Sequence[OperatorRecord]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return entries and bytes, by operator id and state; the keyed one of two of one name."""
    return {
        (operator.operator_id, state.name): (state.entries, state.state_bytes)
        for operator in operators
        for state in reversed(operator.all_states)
    }
