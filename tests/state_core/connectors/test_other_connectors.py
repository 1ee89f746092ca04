"""Kinesis, Pulsar, and committers of tables: savepoints with bytes of their own serializers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake import open_snapshot
from statelake.state_core.connectors.elements import StateElement, elements_of
from statelake.state_core.connectors.kinesis import KinesisEnumerator, read_kinesis_enumerator
from statelake.state_core.connectors.offsets import check_readers
from statelake.state_core.connectors.pulsar import PulsarEnumerator, read_pulsar_enumerator
from statelake.state_core.connectors.sinks import SINK_STATES, sink_of, sinks_of
from statelake.state_core.connectors.sources import (
    SOURCE_STATES,
    SourceState,
    SplitElement,
    sources_of,
)
from statelake.state_core.errors import EncodeError

GOLDEN = Path(__file__).parents[2] / "golden" / "sources"
NUMBER = "49590338271490256608559692538361571095921575989136588898"
SINKS = ["iceberg-committer-1.9", "iceberg-sink-1.9", "paimon-committer-1.0", "delta-files-0.6",
         "delta-table-0.6", "pulsar-sink-4.1"]  # fmt: skip
SOURCES = ["kinesis-source-5.1", "kinesis-consumer-5.1", "pulsar-source-4.1"]


def source(name: str) -> SourceState:
    """The source of a golden savepoint that does not count."""
    (found,) = (one for one in sources_of(open_snapshot(GOLDEN / name)) if one.kind != "sequence")
    return found


def shown(source: SourceState, names: Iterable[str]) -> list[tuple[Any, ...]]:
    """Where each split is, and some of its columns."""
    return [
        (status, subtask, *(split.columns()[name] for name in names))
        for status, subtask, split in source.splits()
    ]


def pending(name: str, *names: str) -> list[tuple[Any, ...]]:
    """Some columns of what a golden savepoint has to commit."""
    (sink,) = sinks_of(open_snapshot(GOLDEN / name))
    return [tuple(row.get(name) for name in names) for row in sink.to_commit]


def test_the_streams_source_of_kinesis() -> None:
    """A shard after a record, one from a time, one that is read; another one waits."""
    found = source("kinesis-source-5.1")
    names = ["split_id", "starts", "sequence_number", "timestamp_ms", "read"]
    assert shown(found, names) == [
        ("assigned", 0, "shardId-000000000000", "after_sequence_number", NUMBER, None, False),
        ("assigned", 0, "shardId-000000000002", "trim_horizon", None, None, True),
        ("assigned", 1, "shardId-000000000001", "at_timestamp", None, 1767225600000, False),
        ("waiting", None, "shardId-000000000003", "trim_horizon", None, None, False),
    ]
    assert isinstance(found.enumerator, KinesisEnumerator)
    assert found.enumerator.details() == {"shards": 2, "last_shard": "shardId-000000000003"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("kinesis-source-5.1", "shard .*/shardId-0+, .*/shardId-0+2, which"),
        ("pulsar-source-4.1", r"partition persistent:\S+/lines, persistent:\S+/orders:0, which"),
        ("mysql-cdc-binlog-3.5", "split binlog-split, which"),
        ("mysql-cdc-snapshot-3.5", "split .*, which"),
        ("postgres-cdc-stream-3.5", "split stream-split, which"),
        ("files-2.3", ""),
        ("kinesis-consumer-5.1", ""),
        ("numbers-to-files-2.3", ""),
    ],
)
def test_readers_are_neither_lost_nor_doubled(name: str, said: str) -> None:
    """Of every source whose enumerator is known; what it looks for anew may go."""
    before = max(sources_of(open_snapshot(GOLDEN / name)), key=lambda one: one.kind != "sequence")
    first = before.elements[0]
    less = replace(before, elements=tuple(e for e in before.elements if e.subtask != first.subtask))
    if said:
        with pytest.raises(EncodeError, match=f"nobody would read {said} no reader would have"):
            check_readers(before, less)
    else:
        check_readers(before, less)
    more = replace(before, elements=(*before.elements, replace(first, subtask=9)))
    with pytest.raises(EncodeError, match="is assigned twice, in the state of two readers"):
        check_readers(before, more)
    check_readers(before, replace(before, elements=before.elements[::-1]))


def test_readers_beside_an_enumerator_that_is_not_known_stay() -> None:
    """Or with one that has the same shard to assign: the error says which it is."""
    before = source("kinesis-source-5.1")
    element = before.elements[0]
    waits = replace(element, split=before.waiting[0])
    more = replace(before, elements=(*before.elements, waits))
    with pytest.raises(EncodeError, match=r"shardId-000000000003 would be assigned twice: a read"):
        check_readers(before, more)
    unknown = replace(before, coordinator_bytes=b"\0\0\0\7")
    with pytest.raises(EncodeError, match="enumerator's state is of a version that is not known"):
        check_readers(unknown, replace(unknown, elements=(element,)))


def test_the_old_consumer_of_kinesis() -> None:
    """POJOs and numbers by Kryo, of which one is a word."""
    assert shown(source("kinesis-consumer-5.1"), ["stream", "starts", "sequence_number"]) == [
        ("assigned", 0, "orders", "after_sequence_number", NUMBER),
        ("assigned", 0, "orders", "earliest", None),
    ]


def test_pulsar() -> None:
    """The last message of each partition, where it stops, and an open transaction."""
    found = source("pulsar-source-4.1")
    orders, lines = (f"persistent://public/default/{name}" for name in ("orders", "lines"))
    names = ["topic", "partition", "message_id", "stops", "transaction"]
    assert shown(found, names) == [
        ("assigned", 0, orders, 0, "12:345", "NeverStopCursor", None),
        ("assigned", 0, lines, None, "13:1", "MessageIdStopCursor", "(3,16)"),
        ("assigned", 1, orders, 1, None, "PublishTimestampStopCursor", None),
    ]
    assert isinstance(found.enumerator, PulsarEnumerator)
    assert found.enumerator.partitions == ((orders, 0), (orders, 1), (lines, -1))
    assert pending("pulsar-sink-4.1", "checkpoint", "transaction", "topic") == [
        (1, "(3,17)", "persistent://public/default/out")
    ]


def test_iceberg() -> None:
    """The manifests of each checkpoint, of data and of deletes; a checkpoint without any."""
    names = ("checkpoint", "manifest", "content", "files", "rows")
    place = "/tmp/table/metadata/"  # noqa: S108 - what the savepoint has
    assert pending("iceberg-committer-1.9", *names) == [
        (7, f"{place}b-0.avro", "data", 1, 10),
        (8, None, None, None, None),
        (9, f"{place}c-0.avro", "data", 1, 10),
        (9, f"{place}c-1.avro", "deletes", 1, 2),
    ]
    assert pending("iceberg-sink-1.9", *names, "operator_id") == [
        (1, f"{place}a-0.avro", "data", 1, 10, "writer-1"),
        (1, f"{place}a-1.avro", "deletes", 1, 2, "writer-1"),
    ]


def test_manifests_that_are_there(tmp_path: Path) -> None:
    """Those below the directory that is named are looked for, through no link; others are not."""
    (sink,) = sinks_of(open_snapshot(GOLDEN / "iceberg-committer-1.9"))
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    paths = [f"{tmp_path}/a", f"file://{tmp_path}/a", f"file:{tmp_path}/b", f"{tmp_path}/link",
             f"{tmp_path}/../{tmp_path.name}/a", "s3://bucket/a", None]  # fmt: skip
    rows = tuple({"manifest": path} for path in paths)
    looked = replace(sink, to_commit=rows).looked_up(str(tmp_path))
    said = [row.get("there") for row in looked.to_commit]
    assert said == [True, True, False, None, None, None, None]
    assert list(looked.lines())


def test_paimon() -> None:
    """The files of each checkpoint; a name of up to seven bytes lies elsewhere in its row."""
    names = ("checkpoint", "watermark", "bucket", "file", "change", "bytes", "rows")
    assert pending("paimon-committer-1.0", *names) == [
        (4, 1767225600000, 3, "data-a-0.parquet", "new", 1016, 10),
        (4, 1767225600000, 3, "a.parquet", "new", 1009, 10),
        (5, None, 3, "data-b-0.parquet", "new", 1016, 10),
    ]


@pytest.mark.parametrize("name", ["delta-files-0.6", "delta-table-0.6"])
def test_delta(name: str) -> None:
    """Both committers: files with their partitions."""
    assert pending(name, "application", "checkpoint", "partition", "file", "rows", "bytes") == [
        ("application", 4, "year=2026", "part-0.parquet", 10, 1000),
        ("application", 4, None, "part-1.parquet", 3, 1000),
    ]


ELEMENTS = [
    element
    for name in (*SINKS, *SOURCES)
    for operator in open_snapshot(GOLDEN / name).operators
    for element in elements_of(operator, {*SINK_STATES, *SOURCE_STATES})
]
ENUMERATORS = [found.data for name in SOURCES if (found := source(name).coordinator) is not None]


@given(st.data())
def test_any_bytes(data: st.DataObject) -> None:
    """Damaged or cut: nothing is raised, and what is read as a split gives the same bytes."""
    element = data.draw(st.sampled_from(ELEMENTS))
    enumerator = data.draw(st.sampled_from(ENUMERATORS))
    for original in (element.data, enumerator):
        damaged = bytearray(original)
        for _ in range(data.draw(st.integers(0, 3))):
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
        for found in (bytes(damaged), cut):
            made = StateElement(element.state, 0, 0, found)
            if element.state in SINK_STATES:
                sink = sink_of("id", "sink", [made])
                assert sink is not None
                assert list(sink.lines())
            else:
                split = SplitElement.of(made).split
                assert split.encode() in found
                assert split.columns()
            for read, version in ((read_kinesis_enumerator, 1), (read_pulsar_enumerator, 3)):
                state = read(version, found)
                assert state is None or state.encode() == found
