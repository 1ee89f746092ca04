"""Flink CDC's sources, in savepoints with bytes of its own serializers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake import open_snapshot
from statelake.state_core.connectors.cdc import (
    MYSQL,
    OTHERS,
    CdcEnumerator,
    CdcSplit,
    read_cdc_enumerator,
    read_cdc_split,
)
from statelake.state_core.connectors.offsets import move_offsets, parse_new_offset
from statelake.state_core.connectors.sources import (
    SourceState,
    SplitElement,
    read_split,
    sources_of,
)
from statelake.state_core.errors import EncodeError, NotFoundError

GOLDEN = Path(__file__).parents[2] / "golden" / "sources"
SERVER = "24bc7850-2c16-11e6-a073-0242ac110002"
NAMES = [path.name for path in sorted(GOLDEN.glob("*-cdc-*"))]


def golden(name: str) -> SourceState:
    """The only source of a golden savepoint."""
    (source,) = sources_of(open_snapshot(GOLDEN / name))
    return source


def shown(source: SourceState, names: Iterable[str]) -> list[tuple[Any, ...]]:
    """Where each split is, and some of its columns."""
    return [
        (status, subtask, *(split.columns().get(name) for name in names))
        for status, subtask, split in source.splits()
    ]


def test_the_log_of_mysql() -> None:
    """The binary log by file and position, with GTIDs; its snapshot's chunks are read."""
    source = golden("mysql-cdc-binlog-3.5")
    assert source.kind == MYSQL
    assert shown(source, ["split_id", "file", "position", "skipped_events", "gtids"]) == [
        ("assigned", 0, "binlog-split", "mysql-bin.000004", 4711, 3, f"{SERVER}:1-77"),
        ("finished", None, "shop.orders:0", "mysql-bin.000003", 154, None, f"{SERVER}:1-5"),
        ("finished", None, "shop.orders:1", "mysql-bin.000003", 154, None, f"{SERVER}:1-5"),
    ]
    assert isinstance(source.enumerator, CdcEnumerator)
    assert source.enumerator.details() == {
        "status": "initial_assigning_finished", "tables_waiting": [], "table_in_work": None,
        "log_assigned": True, "chunks_read": 2,
    }  # fmt: skip


def test_gtids_alone() -> None:
    """A log without a snapshot, from GTIDs."""
    source = golden("mysql-cdc-gtid-3.5")
    assert shown(source, ["file", "position", "gtids"]) == [
        ("assigned", 0, None, None, f"{SERVER}:1-100")
    ]
    assert isinstance(source.enumerator, CdcEnumerator)
    assert source.enumerator.status is None


@pytest.mark.parametrize("name", ["mysql-cdc-snapshot-3.5", "postgres-cdc-snapshot-3.5"])
def test_a_snapshot_in_work(name: str) -> None:
    """Chunks with their borders, one of them read; what waits, and the table that is split."""
    source = golden(name)
    assert shown(source, ["split_id", "table", "chunk_start", "chunk_end", "read"]) == [
        ("assigned", 0, "shop.orders:0", "shop.orders", None, "100", True),
        ("assigned", 1, "shop.orders:1", "shop.orders", "100", None, False),
        ("waiting", None, "shop.lines:0", "shop.lines", None, "500", False),
    ]
    assert isinstance(source.enumerator, CdcEnumerator)
    assert source.enumerator.details() == {
        "status": "initial_assigning", "tables_waiting": ["shop.returns"],
        "table_in_work": "shop.lines", "log_assigned": False, "chunks_read": 1,
    }  # fmt: skip


def test_the_log_of_postgres() -> None:
    """By its LSN and the last transaction."""
    source = golden("postgres-cdc-stream-3.5")
    assert source.kind == OTHERS
    assert shown(source, ["split_id", "lsn", "transaction"])[0] == (
        "assigned", 0, "stream-split", "0/16C5587", "740",
    )  # fmt: skip
    assert shown(golden("postgres-cdc-initial-3.5"), ["lsn"]) == [("assigned", 0, "0/0")]


@pytest.mark.parametrize(
    ("name", "given", "before", "after"),
    [
        (
            "mysql-cdc-binlog-3.5",
            "binlog-split=mysql-bin.000003:200",
            "mysql-bin.000004:4711",
            None,
        ),
        ("mysql-cdc-binlog-3.5", f"binlog-split={SERVER}:1-9", "mysql-bin.000004:4711", None),
        ("mysql-cdc-gtid-3.5", "binlog-split=earliest", f"{SERVER}:1-100", None),
        ("postgres-cdc-stream-3.5", "stream-split=0/16c5348", "0/16C5587", "0/16C5348"),
    ],
)
def test_another_position(name: str, given: str, before: str, after: str | None) -> None:
    """The log has it; all other bytes of the split are as they were."""
    source = golden(name)
    (change,) = move_offsets([source], [parse_new_offset(given)])
    ((place, data),) = change.elements.items()
    expected = after or given.partition("=")[2]
    (moved,) = change.moved
    assert (moved.partition, moved.before, moved.after) == (None, before, expected)
    old, new = source.elements[0].split, read_split(place[0], data)
    assert isinstance(old, CdcSplit)
    assert isinstance(new, CdcSplit)
    assert new.shown_offset() == expected
    assert new.fields == old.fields


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("mysql-cdc-binlog-3.5", "binlog-split=0/16C5348", "no position in the binary log"),
        ("mysql-cdc-binlog-3.5", "stream-split=0/16C5348", "no reader has the log"),
        ("mysql-cdc-binlog-3.5", "other/binlog-split=latest", "no reader has the log"),
        ("mysql-cdc-snapshot-3.5", "binlog-split=earliest", "no reader has the log"),
        ("postgres-cdc-stream-3.5", "stream-split=mysql-bin.000003:200", "no position in the log"),
        ("postgres-cdc-stream-3.5", "stream-split=0/0", "no position in the log"),
    ],
)
def test_refused(name: str, given: str, said: str) -> None:
    """What is no position of that database, or no log that is read."""
    with pytest.raises((EncodeError, NotFoundError), match=said) as caught:
        move_offsets([golden(name)], [parse_new_offset(given)])
    assert caught.value.remedy


def test_a_log_is_read_once() -> None:
    """Two readers with it, an enumerator that does not know it, two positions, two sources."""
    source = golden("mysql-cdc-gtid-3.5")
    wanted = parse_new_offset("binlog-split=earliest")
    (held,) = source.elements
    twice = (held, SplitElement(held.state, 1, 0, held.split))
    other = golden("mysql-cdc-binlog-3.5")
    assigned = SourceState("id", "records", twice, source.coordinator_bytes)
    for sources, offsets, said in (
        ([assigned], [wanted], "assigned twice"),
        ([SourceState("id", "records", (held,), None)], [wanted], "would be assigned twice"),
        ([source], [wanted, wanted], "two offsets"),
        (
            [source, SourceState("id", "others", other.elements, other.coordinator_bytes)],
            [wanted], "several sources",
        ),
    ):  # fmt: skip
        with pytest.raises(EncodeError, match=said):
            move_offsets(sources, offsets)


@given(st.data())
def test_any_bytes(data: st.DataObject) -> None:
    """Damaged or cut, they are a split or an enumerator with the same bytes, or neither."""
    source = golden(data.draw(st.sampled_from(NAMES)))
    coordinator = source.coordinator
    assert coordinator is not None
    split = source.elements[0].split
    forms = ((split.encode(), split.version), (coordinator.data, coordinator.enumerator_version))
    made, version = data.draw(st.sampled_from(forms))
    damaged = bytearray(made)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    for found in (bytes(damaged), cut):
        read = read_cdc_split(version or 0, found)
        assert read is None or (read.encode() == found and read.columns() and read.shown_offset())
        enumerator = read_cdc_enumerator(version or 0, found)
        assert enumerator is None or enumerator.encode() == found
