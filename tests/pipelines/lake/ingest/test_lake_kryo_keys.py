"""Kryo where an entry's key is, of maps and of the stream, and in lists: savepoints of real Flink.

The heap's own format has no lengths, so that nothing but Kryo itself tells where such a key ends.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.state_core.errors import StateError, UnsupportedFormatError
from statelake.state_core.formats.layout import keyed_states
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.framework import plugins
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.opaque_values import written_by
from statelake.state_core.serializers.kryo import decoding
from statelake.state_core.serializers.kryo.graph import Item
from statelake.state_core.serializers.kryo.snapshot import KryoSerializerSnapshot
from statelake.state_core.serializers.kryo.wire import KryoVersion
from tests.support.lakes import Contents, entries, exported, import_as
from tests.support.savepoints.kryo_jobs import jdk_savepoint, kryo_lines
from tests.support.savepoints.kryo_savepoint import kryo_snapshot

pytestmark = pytest.mark.usefixtures("own_registry")

VERSIONS = {"1.20": KryoVersion.FLINK_1, "2.3": KryoVersion.FLINK_2}
NATIVE = ("native", "native-compressed")
UIDS = ("mapped", "counted")
MAPS = ("counts", "pairs", "lists")
NULL = b"\1"  # the flag of a map's value; the heap's canonical format has null behind it, too


def item_of(data: bytes, version: KryoVersion) -> Any:
    """The object in some bytes."""
    snapshot = KryoSerializerSnapshot()
    return snapshot.values(version).read(data)


def shown(item: Item | None) -> str:
    """An object as its `toString` in the job."""
    if item is None:
        return "null"
    if isinstance(item.value, list):
        return f"[{', '.join(map(shown, item.value))}]"
    return str(item.value)


def counts_of(savepoint: Path, version: KryoVersion) -> dict[int, dict[str, str]]:
    """The entries of the map with UUIDs as keys, by the key of the stream."""
    found: dict[int, dict[str, str]] = {}
    for row in open_snapshot(savepoint, uids=UIDS)["mapped"]["counts"].to_arrow().to_pylist():
        user_key = shown(item_of(row["user_key"], version))
        found.setdefault(row["key"], {})[user_key] = str(row["value"])
    return found


def held(savepoint: Path) -> Contents:
    """The entries of a savepoint, without what follows the flag of null."""
    return {
        place: [
            (*entry[:2], NULL if place[1] in MAPS and entry[2][:1] == NULL else entry[2])
            for entry in found
        ]
        for place, found in entries(savepoint).items()
    }


@pytest.mark.parametrize("form", NATIVE)
@pytest.mark.parametrize("name", VERSIONS)
def test_the_heaps_own_format_has_the_entries_of_the_canonical_one(
    name: str, form: str, tmp_path: Path
) -> None:
    """All of them, byte by byte: of maps, of a list of UUIDs, and of a stream keyed by them."""
    native = jdk_savepoint(tmp_path / "native", f"keys-{form}-{name}")
    canonical = jdk_savepoint(tmp_path / "canonical", f"keys-canonical-{name}")
    assert held(native) == held(canonical)


@pytest.mark.parametrize("form", ["canonical", *NATIVE])
@pytest.mark.parametrize("name", VERSIONS)
def test_keys_of_maps_are_the_bytes_of_what_flink_has(name: str, form: str, tmp_path: Path) -> None:
    """As Flink printed them, having restored the savepoint."""
    savepoint = jdk_savepoint(tmp_path / "savepoint", f"keys-{form}-{name}")
    lines = {line["key"]: line["counts"] for line in kryo_lines("keys") if line.get("counts")}
    assert counts_of(savepoint, VERSIONS[name]) == lines


@pytest.mark.parametrize("form", ["canonical", *NATIVE])
@pytest.mark.parametrize("name", VERSIONS)
def test_an_export_has_the_same_entries(name: str, form: str, tmp_path: Path) -> None:
    """By way of a lake, whose keys by Kryo are bytes; of timers, too."""
    savepoint = jdk_savepoint(tmp_path / "savepoint", f"keys-{form}-{name}")
    lake = Catalog(tmp_path / "lake")
    import_as(lake, savepoint, "monday")
    assert exported(lake, "monday", tmp_path / "out") == entries(savepoint)


@pytest.mark.parametrize("name", VERSIONS)
def test_keys_of_an_unknown_class_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several of them side by side have no ends that anybody knows; the error says what to do."""
    monkeypatch.setattr(decoding, "_is_known", lambda *_: False)
    plugins.note_change()
    savepoint = jdk_savepoint(tmp_path / "savepoint", f"keys-native-{name}")
    with pytest.raises(UnsupportedFormatError, match="--kryo") as refused:
        open_snapshot(savepoint, uids=UIDS)["mapped"]["counts"].to_arrow()
    assert "binary (java.util." in str(refused.value)


@pytest.mark.parametrize("name", VERSIONS)
def test_keys_of_the_stream_stay_bytes(name: str, tmp_path: Path) -> None:
    """Flink finds entries by them, and equal keys may have several forms."""
    savepoint = jdk_savepoint(tmp_path / "savepoint", f"keys-native-{name}")
    table = open_snapshot(savepoint, uids=UIDS)["counted"]["number"].to_arrow()
    assert table.schema.field("key").type == pa.binary()
    numbers = {
        shown(item_of(row["key"], VERSIONS[name])): row["value"] for row in table.to_pylist()
    }
    assert numbers == {line["id"]: line["number"] for line in kryo_lines("keys") if "id" in line}


def test_timers_of_lakes_of_before_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their keys are text in the table, of which an export would make no keys of Flink's."""
    savepoint = jdk_savepoint(tmp_path / "savepoint", "keys-canonical-2.3")
    with written_by(2):
        typed = kryo_snapshot("java.util.UUID").restore_nested()

    def before(kind: StateKind, key: TypeSerializer, *parts: Any) -> KeyedLayout:
        of_timers = kind is StateKind.TIMERS and not key.self_delimiting
        return KeyedLayout(kind, typed if of_timers else key, *parts)

    lake = Catalog(tmp_path / "lake")
    with monkeypatch.context() as patch:
        patch.setattr(keyed_states, "KeyedLayout", before)
        plugins.note_change()
        import_as(lake, savepoint, "monday")
    plugins.note_change()
    with pytest.raises(StateError, match="import it again"):
        exported(lake, "monday", tmp_path / "out")
