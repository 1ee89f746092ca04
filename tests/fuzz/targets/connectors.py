"""What sources and sinks keep in a snapshot: elements of their states, and coordinators."""

from __future__ import annotations

from pathlib import Path

from statelake import open_snapshot
from statelake.state_core.connectors.elements import StateElement, elements_of
from statelake.state_core.connectors.offsets import NewOffset, check_assignment, move_offsets
from statelake.state_core.connectors.sinks import SINK_STATES, sink_of
from statelake.state_core.connectors.sources import SOURCE_STATES, source_of
from tests.fuzz.targets import Fuzzing, chosen, seeded
from tests.support.savepoints.golden_cases import GOLDEN

__all__ = ["fuzz_sources"]

COORDINATOR = ""  # in the place of a state's name
FORMS = (COORDINATOR, *sorted(SOURCE_STATES), *sorted(SINK_STATES))
NEW = [NewOffset("orders", 0, 7)]


def fuzz_sources(_: Path) -> Fuzzing:
    """Elements of sources and sinks, and the states of coordinators, alone and with an element."""
    seeds: list[tuple[int, bytes]] = []
    for directory in sorted((GOLDEN / "sources").iterdir()):
        snapshot = open_snapshot(directory)
        for operator in snapshot.operators:
            elements = elements_of(operator, {*SOURCE_STATES, *SINK_STATES})
            seeds += [(FORMS.index(element.state), element.data) for element in elements]
        coordinators = [operator.coordinator for operator in snapshot.metadata.operators]
        seeds += [(0, handle.data) for handle in coordinators if handle is not None]
    return Fuzzing(seeded(sorted(set(seeds))), _read)


def _read(data: bytes) -> None:
    form, content = chosen(data, len(FORMS))
    state = FORMS[form]
    elements = [StateElement(state, subtask, 0, content) for subtask in (0, 1)]
    if state in SINK_STATES:
        assert sink_of("id", "sink", elements) is not None
        return
    coordinator = content if state == COORDINATOR else None
    source = source_of("id", "source", elements[:1] if coordinator is None else [], coordinator)
    if source is None:
        return
    for _, _, split in source.splits():
        assert split.columns()
    assert source.coordinator is None or source.coordinator.encode() == coordinator
    check_assignment(source)
    if source.kind == "kafka":
        assert move_offsets([source], NEW)
