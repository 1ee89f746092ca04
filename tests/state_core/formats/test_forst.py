"""Checkpoints of ForSt: tables in directories of its own, states of version 2."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.state_core.errors import MissingFileError
from statelake.state_core.formats.layout.keyed_states import as_key_value
from statelake.state_core.formats.layout.meta_info import (
    USER_KEY_SERIALIZER,
    VALUE_SERIALIZER,
    BackendStateType,
    StateMetaInfo,
    serializer_entry,
)
from statelake.state_core.formats.layout.state_compatibility import OperatorSchema, check_operators
from statelake.state_core.formats.reader import Snapshot
from statelake.state_core.formats.writing.new_states import NewKeyedState
from statelake.state_core.serializers.composite.wrappers import AsyncTtlSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import Verdict
from statelake.state_core.serializers.type_spec import parse_type
from tests.support.savepoints.change_logs import rows_of
from tests.support.savepoints.forst import CHECKPOINTS, savepoint_of, unpack


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of them, in a place where Flink never wrote them."""
    return unpack(tmp_path_factory.mktemp("forst"))


SESSION = ("changes", "session")


def rows(snapshot: Snapshot) -> dict[tuple[str, str], list[Any]]:
    """The rows of each state, without times of last access, of which the heap keeps none."""
    found = rows_of(snapshot)
    session = snapshot.operator(SESSION[0]).state(SESSION[1]).to_arrow()
    values = session.select(["key_group", "key", "value"]).to_pylist()
    return {**found, SESSION: sorted(map(repr, values))}


def meta_infos(snapshot: Snapshot) -> dict[tuple[str, str], StateMetaInfo]:
    """What the headers say of each state."""
    return {
        (operator.label, state.name): state
        for operator in snapshot.operators
        for file in operator.keyed_files
        for state in file.header.states  # type: ignore[attr-defined]
    }


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_the_rows_are_those_of_the_heap(name: str, places: Path) -> None:
    """Row by row, in every state, by whatever path Flink named the tables."""
    found, wanted = (
        rows(open_snapshot(one)) for one in (places / name, savepoint_of(places / name))
    )
    assert found == wanted
    assert len(found) == 12


def test_an_export_has_the_states_that_the_heap_has(places: Path, tmp_path: Path) -> None:
    """Version 2 registers elements, and values with their user keys; version 1 lists and maps."""
    lake, target = Catalog(tmp_path / "lake"), tmp_path / "out"
    import_snapshot(lake, str(places / "chk-2"), "job", snapshot_id="s", engine="local")
    export_snapshot(lake, "job", "s", target, engine="local")
    held = meta_infos(open_snapshot(places / "chk-2"))
    kinds = {state.kind for state in held.values()}
    assert kinds == {BackendStateType.KEY_VALUE_V2, BackendStateType.PRIORITY_QUEUE}
    wanted = meta_infos(open_snapshot(places / "heap-2"))
    found = meta_infos(open_snapshot(target))
    for name, state in found.items():
        if state.kind is BackendStateType.KEY_VALUE and name != SESSION:
            assert {role: entry.encoded for role, entry in state.serializers.items()} == {
                role: entry.encoded for role, entry in wanted[name].serializers.items()
            }
            assert state.options == wanted[name].options
        assert as_key_value(state) == state
    assert rows_of(open_snapshot(target)) == rows_of(open_snapshot(places / "chk-2"))


def verdicts(old: Snapshot, new: Snapshot) -> dict[tuple[str, str], Verdict]:
    """Of each state, whether the new snapshot's job could use it."""
    schemas = (
        [
            OperatorSchema(
                operator.label,
                operator.keyed_files[0].header.key_serializer.snapshot,  # type: ignore[attr-defined]
                {
                    state.name: state
                    for state in operator.keyed_files[0].header.states  # type: ignore[attr-defined]
                },
            )
            for operator in snapshot.operators
            if operator.keyed_files
        ]
        for snapshot in (old, new)
    )
    found = check_operators(*schemas)
    return {(verdict.operator, verdict.state): verdict.result.verdict for verdict in found}


def test_either_version_follows_the_other(places: Path) -> None:
    """As a job finds what was exported; the heap's asynchronous state has no time to live."""
    forst, heap = (open_snapshot(places / name) for name in ("chk-2", "heap-2"))
    for old, new in ((forst, heap), (heap, forst)):
        found = verdicts(old, new)
        assert found.pop(SESSION) is Verdict.COMPATIBLE_AFTER_MIGRATION
        assert set(found.values()) == {Verdict.COMPATIBLE_AS_IS}


@pytest.mark.parametrize("kind", ["value", "list", "map", "reducing", "aggregating"])
@pytest.mark.parametrize("with_ttl", [False, True])
def test_every_kind_as_version_one(kind: str, with_ttl: bool) -> None:
    """What Flink would have registered as the whole list or map, with or without time to live."""
    key = parse_type("Long")
    user_key = "String" if kind == "map" else ""
    made = NewKeyedState("s", (), kind, "Long", user_key, with_ttl=with_ttl).meta_info(key)
    whole = made.serializers[VALUE_SERIALIZER].snapshot
    parts = getattr(whole, "nested", ()) if kind in ("list", "map") else (whole,)
    value = parts[-1]
    if with_ttl:
        value = AsyncTtlSerializerSnapshot.around(*value.nested)
    entries = {**made.serializers, VALUE_SERIALIZER: serializer_entry(value)}
    if kind == "map":
        entries[USER_KEY_SERIALIZER] = serializer_entry(parts[0])
    version_two = replace(made, kind=BackendStateType.KEY_VALUE_V2, serializers=entries)
    found = as_key_value(version_two)
    assert (found.kind, found.options) == (made.kind, made.options)
    for role, entry in made.serializers.items():
        assert found.serializers[role].encoded == entry.encoded
    assert found.serializers.keys() == made.serializers.keys()
    for old, new in ((made, version_two), (version_two, made), (version_two, version_two)):
        schemas = ([OperatorSchema("o", key, {"s": state})] for state in (old, new))
        assert {one.result.verdict for one in check_operators(*schemas)} == {
            Verdict.COMPATIBLE_AS_IS
        }


def test_a_checkpoint_without_its_shared_directory(places: Path, tmp_path: Path) -> None:
    """The error says what is to be copied beside it."""
    shutil.copytree(places / "chk-2", tmp_path / "chk-2")
    with pytest.raises(MissingFileError, match="copy the whole checkpoint: chk-N with"):
        open_snapshot(tmp_path / "chk-2")
