"""Real connectors: what they write is as the golden savepoints, and they read what is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statelake import open_snapshot
from statelake.state_core.connectors.cdc import CdcSplit
from statelake.state_core.connectors.offsets import move_offsets, parse_new_offset
from statelake.state_core.connectors.sinks import sinks_of
from statelake.state_core.connectors.sources import read_split, sources_of
from tests.integration.flink.connector_states import answers, written_states

GOLDEN = Path(__file__).parents[2] / "golden" / "sources"
GTIDS = "24bc7850-2c16-11e6-a073-0242ac110002:1-9"


def content(savepoint: Path) -> list[Any]:
    """What a savepoint's sources and sinks have, but for the numbers that a sequence counted."""
    snapshot = open_snapshot(savepoint)
    sources = [one.to_json() for one in sources_of(snapshot) if one.kind != "sequence"]
    return [*sources, *(sink.to_json() for sink in sinks_of(snapshot))]


@pytest.mark.full
@pytest.mark.parametrize("name", ["mysql-cdc", "postgres-cdc", "iceberg", "paimon", "pulsar"])
def test_as_the_golden_ones(name: str, tmp_path: Path) -> None:
    """The same connector writes the same again."""
    for state, savepoint in written_states(name, tmp_path).items():
        assert content(savepoint) == content(GOLDEN / state)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "golden", "given", "said"),
    [
        ("mysql-cdc", "mysql-cdc-binlog-3.5", "binlog-split=mysql-bin.000003:200",
         ("file=mysql-bin.000003", "pos=200", "kind=SPECIFIC")),
        ("mysql-cdc", "mysql-cdc-binlog-3.5", f"binlog-split={GTIDS}",
         (f"gtids={GTIDS}", "kind=SPECIFIC")),
        ("mysql-cdc", "mysql-cdc-gtid-3.5", "binlog-split=latest", ("kind=LATEST",)),
        ("postgres-cdc", "postgres-cdc-stream-3.5", "stream-split=0/16C5348",
         ("LSN{0/16C5348}", "txId=null")),
    ],
)  # fmt: skip
def test_the_connector_reads_another_position(
    name: str, golden: str, given: str, said: tuple[str, ...]
) -> None:
    """Its own serializer reads the changed split, and starts where it was told to."""
    (change,) = move_offsets(sources_of(open_snapshot(GOLDEN / golden)), [parse_new_offset(given)])
    (((state, _, _), data),) = change.elements.items()
    split = read_split(state, data)
    assert isinstance(split, CdcSplit)
    (answer,) = answers(name, [("starts", split.encode().hex())])
    assert all(text in answer for text in said), answer
