"""Savepoints whose subtasks know different subclasses of a POJO, as those that each has seen."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from pathlib import Path

from statelake import open_snapshot
from statelake.pipelines.lake.change.migrating import value_type
from statelake.state_core.formats.keyed.unified_file import UnifiedKeyedFile
from statelake.state_core.formats.layout.keyed_states import layout_of, with_value
from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.formats.writing.writer import (
    SavepointDirectory,
    encoded_groups,
    keyed_handle,
    write_keyed_part,
)
from statelake.state_core.serializers.composite.pojo_snapshot import PojoSerializerSnapshot
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot

__all__ = ["without_subclasses", "without_unregistered"]


def without_unregistered(known: TypeSerializerSnapshot) -> TypeSerializerSnapshot:
    """The snapshot of a POJO that names no unregistered subclass."""
    assert isinstance(known, PojoSerializerSnapshot)
    fewer = copy(known)
    fewer.pojo = replace(known.pojo, non_registered=())
    return fewer


def without_subclasses(source: Path, to: Path, state: str, subtask: int) -> Path:
    """Write a savepoint again; one subtask's header names no unregistered subclass of a state.

    Entries have the same bytes, those of such a class among them.
    """
    made, metadata = SavepointDirectory(to), read_metadata((source / "_metadata").read_bytes())
    written = {operator.operator_id: operator for operator in metadata.operators}
    for operator in open_snapshot(source).operators:
        for index, file in enumerate(operator.keyed_files):
            assert isinstance(file, UnifiedKeyedFile)
            key = file.header.key_serializer.snapshot.restore_serializer()
            layouts = [layout_of(each, key) for each in file.header.states]
            rows = [
                StateRows(number, file.states[number].name, layout,
                          file.decode(number, entries.of_state(number)))
                for entries in file.entries()
                for number, layout in enumerate(layouts)
            ]  # fmt: skip
            states = list(file.header.states)
            for number, held in enumerate(file.states):
                if held.name == state and index == subtask:
                    fewer = without_unregistered(value_type(held.meta_info))
                    states[number] = with_value(states[number], fewer)
            header = replace(file.header, states=tuple(states))
            groups = encoded_groups([rows], 1)
            part = write_keyed_part(made.directory, header, groups, compressed=False)
            subtasks = written[operator.operator_id].subtasks
            assert subtasks is not None
            subtasks[index].managed_keyed = keyed_handle(part, file.key_groups)
    made.commit(metadata)
    return to
