"""Values of Kryo's in a lake, with a user's decoder or without: edited, migrated, exported.

What is exported unchanged is what was imported, byte by byte, whichever decoder there was when.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.change.changes import ValueChange
from statelake.pipelines.lake.change.migrating import migrate_snapshot
from statelake.pipelines.lake.edit.committing import commit_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.state_core.errors import EncodeError, IncompatibleError, LakeError
from statelake.state_core.serializers import Decoder, register_decoder
from statelake.state_core.serializers.framework import opaque_values
from statelake.state_core.serializers.framework.compatibility import Verdict
from statelake.state_core.serializers.type_spec import parse_type
from tests.support.lakes import (
    LOCAL,
    assert_whole,
    edit,
    entries,
    exported,
    import_as,
    rows_of,
    unit_paths,
)
from tests.support.savepoints.kryo_savepoint import (
    CAR,
    CAR_TYPE,
    KRYO_STATES,
    car,
    car_bytes,
    kryo_savepoint,
)

pytestmark = [pytest.mark.usefixtures("own_registry"), pytest.mark.thinned(3)]


class Cars(Decoder):
    """Reads, and says how long a value is."""

    arrow_type = CAR_TYPE

    def decode(self, data: bytes) -> dict[str, Any] | None:
        """One car."""
        number, size = struct.unpack_from(">qB", data)
        return {"id": number, "places": list(struct.unpack_from(f">{size}h", data, 9))}

    def length(self, data: memoryview) -> int:
        """Of the car in front."""
        return 9 + 2 * data[8]


class WritingCars(Cars):
    """Writes, too."""

    def encode(self, value: dict[str, Any]) -> bytes:
        """One car."""
        places = value["places"]
        return struct.pack(f">qB{len(places)}h", value["id"], len(places), *places)


class EvenCars(Cars):
    """Understands every other."""

    def decode(self, data: bytes) -> dict[str, Any] | None:
        """One car, if its number is even."""
        return None if data[7] % 2 else super().decode(data)


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A savepoint with values of Kryo's."""
    return kryo_savepoint(tmp_path_factory.mktemp("kryo") / "savepoint")


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """An empty lake."""
    return Catalog(tmp_path / "lake")


def types_of(lake: Catalog, snapshot_id: str) -> dict[str, pa.DataType]:
    """The type of each Kryo state's `value`, as Delta has it."""
    record = lake.snapshot("orders", snapshot_id)
    (operator,) = (operator for operator in record.operators if operator.uid == "kinds")
    tables = {state.name: state.table for state in operator.states if state.name in KRYO_STATES}
    found = {name: rows_of(lake, record, path) for name, path in tables.items()}
    return {name: rows.schema.field("value").type for name, rows in found.items()}


TYPED = {
    "name": CAR_TYPE, "items": pa.list_(CAR_TYPE), "scores": CAR_TYPE, "session": CAR_TYPE,
}  # fmt: skip
BYTES = dict.fromkeys(KRYO_STATES, pa.binary())


class TestRoundTrips:
    """Import and export."""

    @pytest.mark.parametrize("decoder", [Cars(), WritingCars(), EvenCars()])
    def test_with_a_decoder(
        self, lake: Catalog, savepoint: Path, tmp_path: Path, decoder: Decoder
    ) -> None:
        """Typed columns, and the exported savepoint has the very bytes."""
        register_decoder(CAR, decoder)
        import_as(lake, savepoint, "one")
        assert types_of(lake, "one") == TYPED
        assert exported(lake, "one", tmp_path / "out") == entries(savepoint)
        assert_whole(lake)

    def test_imported_without_and_used_with_it(
        self, lake: Catalog, savepoint: Path, tmp_path: Path
    ) -> None:
        """A decoder that came later changes no table that is there, and is in no one's way."""
        import_as(lake, savepoint, "one")
        register_decoder(CAR, Cars())
        assert types_of(lake, "one") == BYTES
        assert exported(lake, "one", tmp_path / "out") == entries(savepoint)
        edit(lake, "orders/keyed/kinds/name").delete(f"key < {KEY}")
        commit_snapshot(ChildSnapshot(lake, "orders", "one", "two", engine=LOCAL))
        assert types_of(lake, "two") == BYTES
        assert_whole(lake)

    def test_imported_with_and_used_without_it(
        self, lake: Catalog, savepoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The error says what is missing."""
        register_decoder(CAR, Cars())
        import_as(lake, savepoint, "one")
        monkeypatch.setattr(opaque_values, "_decoders", {})
        opaque_values.plugins.note_change()
        with pytest.raises(LakeError, match="decoders of yours, name them: --plugins"):
            export_snapshot(lake, "orders", "one", tmp_path / "out", engine=LOCAL)

    @pytest.mark.full
    def test_the_next_import_has_it(self, lake: Catalog, savepoint: Path, tmp_path: Path) -> None:
        """Then files of bytes are not kept beside typed ones; and typed ones are kept."""
        import_as(lake, savepoint, "one")
        register_decoder(CAR, Cars())
        two = import_as(lake, savepoint, "two")
        three = import_as(lake, savepoint, "three")
        assert types_of(lake, "one") == BYTES
        assert types_of(lake, "two") == types_of(lake, "three") == TYPED
        assert unit_paths(two) == unit_paths(three)
        for name in ("one", "two", "three"):
            assert exported(lake, name, tmp_path / name) == entries(savepoint)
        assert_whole(lake)


class TestEdits:
    """Typed values that someone changes."""

    def test_an_edit_is_written_by_encode(
        self, lake: Catalog, savepoint: Path, tmp_path: Path
    ) -> None:
        """And every other value's bytes stay."""
        register_decoder(CAR, WritingCars())
        import_as(lake, savepoint, "one")
        value = "named_struct('id', cast(1000 as bigint), 'places', value.places)"
        edit(lake, "orders/keyed/kinds/name").update({"value": value}, predicate=f"key = {KEY}")
        commit_snapshot(ChildSnapshot(lake, "orders", "one", "two", engine=LOCAL))
        before, after = entries(savepoint), exported(lake, "two", tmp_path / "out")
        changed = [
            (old, new)
            for state, rows in before.items()
            for old, new in zip(rows, after[state], strict=True)
            if old != new
        ]
        ((old, new),) = changed
        assert old[:2] == new[:2]
        assert new[2] == struct.pack(">q", 1000) + old[2][8:]

    def test_an_edit_without_encode_is_refused(self, lake: Catalog, savepoint: Path) -> None:
        """When it is committed, not when Flink reads it."""
        register_decoder(CAR, Cars())
        import_as(lake, savepoint, "one")
        value = "named_struct('id', cast(1000 as bigint), 'places', value.places)"
        edit(lake, "orders/keyed/kinds/name").update({"value": value}, predicate=f"key = {KEY}")
        with pytest.raises(EncodeError, match=r"decoder of com\.acme\.Car has no `encode`"):
            commit_snapshot(ChildSnapshot(lake, "orders", "one", "two", engine=LOCAL))


KEY = -1086239448971
AUTO = {"pojo": "com.acme.Auto", "fields": {"id": "long", "places": "List<Short>", "doors": "int"}}
AVRO = {
    "avro": {
        "type": "record",
        "name": "Auto",
        "fields": [
            {"name": "places", "type": {"type": "array", "items": "int"}},
            {"name": "id", "type": "long"},
        ],
    }
}


def change(state: str, spec: Any) -> ValueChange:
    """What a file would say."""
    return ValueChange("kinds", state, parse_type(spec), spec=spec)


class TestMigration:
    """Kryo to something that Flink evolves."""

    @pytest.mark.parametrize("state", KRYO_STATES)
    @pytest.mark.parametrize("when", ["before the import", "behind it"])
    def test_to_a_pojo(
        self, lake: Catalog, savepoint: Path, tmp_path: Path, state: str, when: str
    ) -> None:
        """Every value has its fields, in every kind of state; the other states are as they were."""
        if when == "before the import":
            register_decoder(CAR, Cars())
        import_as(lake, savepoint, "one")
        if when == "behind it":
            register_decoder(CAR, Cars())
        done = migrate_snapshot(
            ChildSnapshot(lake, "orders", "one", "two", engine=LOCAL), change(state, AUTO)
        )
        assert done.result.verdict is Verdict.COMPATIBLE_AFTER_MIGRATION
        out = tmp_path / "out"
        found = exported(lake, "two", out)
        before = entries(savepoint)
        different = {name for name in before if before[name] != found[name]}
        assert {name for _, name in different} == {state}
        old = open_snapshot(savepoint).operator("kinds").state(state).to_arrow()
        new = open_snapshot(out).operator("kinds").state(state)
        assert new.value_type == "com.acme.Auto"
        assert _shown(new.to_arrow()) == _shown(old, doors=0)
        assert new.to_arrow().column("raw_value").null_count == len(old)
        assert_whole(lake)

    def test_to_avro(self, lake: Catalog, savepoint: Path, tmp_path: Path) -> None:
        """Fields in another order and wider."""
        register_decoder(CAR, Cars())
        import_as(lake, savepoint, "one")
        migrate_snapshot(
            ChildSnapshot(lake, "orders", "one", "two", engine=LOCAL), change("name", AVRO)
        )
        out = tmp_path / "out"
        exported(lake, "two", out)
        table = open_snapshot(out).operator("kinds").state("name").to_arrow()
        assert all(value == car(value["id"]) for value in table.column("value").to_pylist())

    def test_without_a_decoder(self, lake: Catalog, savepoint: Path) -> None:
        """Nobody knows; nothing is registered."""
        import_as(lake, savepoint, "one")
        with pytest.raises(IncompatibleError, match=r"com\.acme\.Auto: only a decoder for its"):
            migrate_snapshot(
                ChildSnapshot(lake, "orders", "one", "two", engine=LOCAL), change("name", AUTO)
            )
        assert [summary.snapshot_id for summary in lake.summaries("orders")] == ["one"]

    @pytest.mark.parametrize("when", ["before the import", "behind it"])
    def test_values_that_the_decoder_does_not_understand(
        self, lake: Catalog, savepoint: Path, when: str
    ) -> None:
        """Would be lost, so the migration stops and says which."""
        if when == "before the import":
            register_decoder(CAR, EvenCars())
        import_as(lake, savepoint, "one")
        if when == "behind it":
            register_decoder(CAR, EvenCars())
        for state in KRYO_STATES:
            with pytest.raises(EncodeError, match="does not understand, that of key"):
                migrate_snapshot(
                    ChildSnapshot(lake, "orders", "one", "two", engine=LOCAL), change(state, AUTO)
                )
        assert [summary.snapshot_id for summary in lake.summaries("orders")] == ["one"]

    def test_a_list_needs_lengths(self, lake: Catalog, savepoint: Path) -> None:
        """Without them its elements are not apart."""
        register_decoder(CAR, type("Short", (Cars,), {"length": Decoder.length})())
        import_as(lake, savepoint, "one")
        with pytest.raises(IncompatibleError, match="give their decoder a `length`"):
            migrate_snapshot(
                ChildSnapshot(lake, "orders", "one", "two", engine=LOCAL), change("items", AUTO)
            )


def _shown(table: pa.Table, **more: int) -> list[Any]:
    """Key, user key, values as dicts and time of last access of every row, sorted."""
    names = [column for column in ("key", "user_key", "ttl") if column in table.schema.names]
    rows = table.select([*names, "value"]).to_pylist()
    found = [(*(row[name] for name in names), _cars(row["value"], more)) for row in rows]
    return sorted(found, key=str)


def _cars(value: Any, more: dict[str, int]) -> Any:
    """A value, decoded here if it is bytes."""
    if isinstance(value, list):
        return [_cars(item, more) for item in value]
    return value | more if isinstance(value, dict) else value


def test_the_numbers_of_the_savepoint(savepoint: Path) -> None:
    """What the claims above are about: as many values as there are, each another."""
    register_decoder(CAR, Cars())
    operator = open_snapshot(savepoint).operator("kinds")
    values = [
        value
        for name in KRYO_STATES
        for row in operator.state(name).to_arrow().column("value").to_pylist()
        for value in (row if isinstance(row, list) else [row])
    ]
    assert len({value["id"] for value in values}) == len(values) > 500
    assert all(car_bytes(value["id"])[8] == len(value["places"]) for value in values)
