"""Bytes of sinks that are damaged, cut or of another version: nothing is raised, all is a row."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from statelake import open_snapshot
from statelake.state_core.connectors.elements import StateElement, elements_of
from statelake.state_core.connectors.sinks import SINK_STATES, sink_of

GOLDEN = Path(__file__).parents[2] / "golden" / "sources"
KNOWN = {"bytes", "bucket", "transactional_id", "transactional_id_prefix"}
ELEMENTS = [
    element
    for name in ("numbers-to-kafka-5.0", "numbers-to-kafka-3.2", "numbers-to-files-2.3")
    for operator in open_snapshot(GOLDEN / name).operators
    for element in elements_of(operator, SINK_STATES)
]


@given(st.data())
def test_any_bytes_are_rows(data: st.DataObject) -> None:
    """A row says what it holds, or how many bytes it has."""
    element = data.draw(st.sampled_from(ELEMENTS))
    damaged = bytearray(element.data)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    for found in (bytes(damaged), cut):
        sink = sink_of("id", "sink", [StateElement(element.state, 0, 0, found)])
        assert sink is not None
        for row in (*sink.writers, *sink.to_commit):
            assert row.keys() & KNOWN
