"""Sources and sinks of real Flink's savepoints: what is decoded is what the jobs had done."""

from __future__ import annotations

from pathlib import Path

import pytest

from statelake import open_snapshot
from statelake.state_core.connectors.elements import elements_of
from statelake.state_core.connectors.files import FileSplit, PendingFiles
from statelake.state_core.connectors.kafka import KafkaEnumerator, KafkaSplit, OldKafkaElement
from statelake.state_core.connectors.sequences import SequenceSplit
from statelake.state_core.connectors.sinks import sinks_of
from statelake.state_core.connectors.sources import (
    SOURCE_STATES,
    SourceState,
    sources_of,
    write_split,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "sources"


def source_of_golden(name: str) -> SourceState:
    """The only source of a golden savepoint."""
    (source,) = sources_of(open_snapshot(GOLDEN / name))
    return source


@pytest.mark.parametrize(
    ("name", "version"), [("kafka-5.0", 3), ("kafka-3.2", 2), ("old-kafka-3.2", None)]
)
def test_kafka(name: str, version: int | None) -> None:
    """Each of the three partitions was read to its end, and its bytes come back."""
    source = source_of_golden(name)
    assert source.kind == "kafka"
    splits = [element.split for element in source.elements]
    assert {split.columns()["partition"]: split.columns()["offset"] for split in splits} == {
        0: 20, 1: 20, 2: 20,
    }  # fmt: skip
    assert {split.columns()["topic"] for split in splits} == {"orders"}
    assert source.waiting == source.finished == ()
    if version is not None:
        assert isinstance(source.enumerator, KafkaEnumerator)
        assert (source.enumerator.version, source.enumerator.discovered) == (version, True)
    (operator,) = (
        operator
        for operator in open_snapshot(GOLDEN / name).operators
        if operator.operator_id == source.operator_id
    )
    stored = [element.data for element in elements_of(operator, SOURCE_STATES)]
    written = [
        write_split(split) for split in splits if isinstance(split, KafkaSplit | OldKafkaElement)
    ]
    assert written == stored


def test_files() -> None:
    """Two of four files of 200 lines are being read, and two wait."""
    source = source_of_golden("files-2.3")
    assert isinstance(source.enumerator, PendingFiles)
    assert {path[-1] for path in source.enumerator.processed} == set("abcd")
    read = [element.split for element in source.elements]
    assert len(read) == len(source.waiting) == 2
    for split in (*read, *source.waiting):
        assert isinstance(split, FileSplit)
        assert (split.start, split.length, split.size) == (0, 1090, 1090)
        assert (split.position is None) == (split in source.waiting)


@pytest.mark.parametrize("name", ["numbers-to-kafka-5.0", "numbers-to-kafka-3.2"])
def test_numbers_on_their_way_to_kafka(name: str) -> None:
    """The numbers that are left, and the transactions with those that were read."""
    source = source_of_golden(name)
    splits = [element.split for element in source.elements]
    assert all(isinstance(split, SequenceSplit) for split in splits)
    assert [split.columns()["last_number"] for split in splits] == [200, 400]
    writing, committing = sinks_of(open_snapshot(GOLDEN / name))
    assert [writer["subtask"] for writer in writing.writers] == [0, 1]
    assert {writer["transactional_id_prefix"] for writer in writing.writers} == {"statelake"}
    known = [
        (row["subtask"], row["checkpoint"], row["transactional_id"], row["state"])
        for row in committing.to_commit
    ]
    assert known == [(0, 1, "statelake-0-1", "received"), (1, 1, "statelake-1-1", "received")]
    assert {row["producer_id"] for row in committing.to_commit} == {0, 1}
    if name.endswith("5.0"):
        assert [writer["precommitted"] for writer in writing.writers] == [
            [{"transactional_id": f"statelake-{subtask}-1", "checkpoint": 1}] for subtask in (0, 1)
        ]


def test_numbers_on_their_way_to_files() -> None:
    """Each writer has a file in progress, in the bucket of the hour."""
    _, writing = sinks_of(open_snapshot(GOLDEN / "numbers-to-files-2.3"))
    assert [writer["subtask"] for writer in writing.writers] == [0, 1]
    for writer in writing.writers:
        assert writer["bucket"] == "2026-11-22--23"
        assert writer["path"].endswith("/out/2026-11-22--23")
        assert writer["in_progress_handle_bytes"] == 317
