"""Decoders of users: what only a Java class understands as typed columns, and not a byte lost."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake import open_snapshot
from statelake.state_core.errors import EncodeError, IncompatibleError, PluginError, StateError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.writing.unified_encode import StateRows, encode_rows
from statelake.state_core.serializers import Decoder, register_decoder
from statelake.state_core.serializers.basic.numbers import LongSerializer
from statelake.state_core.serializers.composite.collections import ListSerializer, MapSerializer
from statelake.state_core.serializers.composite.evolution import (
    migrate_column,
    migrate_value,
    resolve_decoded,
)
from statelake.state_core.serializers.composite.pojo import PojoSerializer
from statelake.state_core.serializers.composite.structs import TupleSerializer
from statelake.state_core.serializers.framework import plugins
from statelake.state_core.serializers.framework.compatibility import Verdict
from statelake.state_core.serializers.framework.opaque_values import (
    DecodedSerializer,
    OpaqueSerializer,
    opaque_serializer,
    undecoded,
)
from statelake.state_core.serializers.opaque.optional_map import FramedSnapshot
from statelake.state_core.serializers.type_spec import parse_type
from tests.support.savepoints.kryo_savepoint import (
    CAR,
    CAR_TYPE,
    KRYO_STATES,
    car,
    car_bytes,
    kryo_savepoint,
)
from tests.support.savepoints.kryo_savepoint import kryo_snapshot as kryo
from tests.support.serializers.serializer_columns import decode, encode, read, write

pytestmark = pytest.mark.usefixtures("own_registry")

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_types.py"
LONG = LongSerializer()


class Reading(Decoder):
    """Reads and does not write; what begins with 0xFF it does not understand."""

    arrow_type = CAR_TYPE

    def decode(self, data: bytes) -> dict[str, Any] | None:
        """One car."""
        if data[:1] == b"\xff":
            return None
        number, size = struct.unpack_from(">qB", data)
        return {"id": number, "places": list(struct.unpack_from(f">{size}h", data, 9))}


class Measuring(Reading):
    """Says how long a value is, too."""

    def length(self, data: memoryview) -> int:
        """Of the car in front."""
        return 9 + 2 * data[8]


class Writing(Measuring):
    """Writes, too."""

    def encode(self, value: dict[str, Any]) -> bytes:
        """One car; no place is written in another way than Java does."""
        places = value["places"]
        return struct.pack(f">qB{len(places)}h", value["id"], len(places), *places)


class Failing(Reading):
    """Fails in every way that it is told to."""

    def __init__(self, how: str) -> None:
        self.how = how

    def decode(self, data: bytes) -> Any:
        """A mistake."""
        return {"other": 1}["id"] if self.how == "raises" else "no car"


cars = st.builds(
    lambda number, places: {"id": number, "places": places},
    st.integers(0, 2**63 - 1),
    st.lists(st.integers(-(2**15), 2**15 - 1), max_size=3),
)
DECODED = DecodedSerializer(CAR, Writing())
NESTED: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "alone": (DECODED, cars),
    "list": (ListSerializer(DECODED), st.lists(cars, max_size=3)),
    "map": (MapSerializer(LONG, DECODED), st.lists(st.tuples(st.integers(0, 9), cars), max_size=3)),
    "tuple": (TupleSerializer([DECODED, LONG]), st.tuples(cars, st.integers(0, 9))),
    "pojo": (
        PojoSerializer("a.A", [("c", DECODED)]),
        st.none() | st.fixed_dictionaries({"c": st.none() | cars}),
    ),
}


class TestRegistration:
    """`register_decoder`."""

    @pytest.mark.parametrize(
        ("decoder", "why"),
        [
            (len, "is no Decoder, but a builtin"),
            (type("Bare", (Reading,), {"arrow_type": None})(), "Bare has no `arrow_type`"),
        ],
    )
    def test_what_is_none(self, decoder: Any, why: str) -> None:
        """Refused with the class and the reason."""
        with pytest.raises(EncodeError, match=f"decoder of {CAR}: .*{why}"):
            register_decoder(CAR, decoder)

    def test_a_class_has_one(self) -> None:
        """Unless it is said that another takes its place; the same may register again."""
        register_decoder(CAR, Reading())
        register_decoder(CAR, Reading())
        with pytest.raises(EncodeError, match="Reading decodes it already"):
            register_decoder(CAR, Writing())
        register_decoder(CAR, Writing(), replace=True)
        assert opaque_serializer(CAR).name.startswith("com.acme.Car as struct<id: int64")

    def test_found_by_plugins(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A class without a decoder makes the environment's plugins load."""
        assert isinstance(kryo("com.acme.Other").restore_serializer(), OpaqueSerializer)
        monkeypatch.setattr(plugins, "_state", plugins._State())
        monkeypatch.setenv(plugins.ENVIRONMENT, str(EXAMPLE))
        assert kryo().restore_serializer().arrow_type == CAR_TYPE

    def test_out_of_the_way(self) -> None:
        """For tables that were written without it."""
        register_decoder(CAR, Reading())
        with undecoded():
            assert isinstance(kryo().restore_serializer(), OpaqueSerializer)
        assert isinstance(kryo().restore_serializer(), DecodedSerializer)

    def test_a_snapshot_that_is_not_known(self) -> None:
        """Inside a POJO it is framed; then its own name leads to a decoder."""
        out = DataOutput()
        out.write_utf("com.acme.CarSnapshot")
        framed = FramedSnapshot(None, out.to_bytes())
        register_decoder("com.acme.CarSnapshot", Measuring())
        assert framed.restore_serializer().arrow_type == CAR_TYPE


@pytest.mark.parametrize("within", NESTED)
@given(st.data())
def test_bytes_come_back(within: str, data: st.DataObject) -> None:
    """With `encode` and `length`, from the typed values alone, in every nesting."""
    serializer, values = NESTED[within]
    rows = [write(serializer, value) for value in data.draw(st.lists(values, max_size=4))]
    column, inexact = decode(serializer, rows)
    assert not any(inexact)
    assert encode(serializer, column) == rows
    for row in rows:
        assert write(serializer, read(serializer, row)) == row
        source = DataInput(row)
        serializer.skip(source)
        assert source.remaining == 0


@pytest.mark.parametrize("within", NESTED)
@given(st.data())
def test_damaged_bytes_give_errors_of_ours(within: str, data: st.DataObject) -> None:
    """Whatever the decoder does with them."""
    serializer, values = NESTED[within]
    row = bytearray(write(serializer, data.draw(values)))
    at = data.draw(st.integers(0, max(len(row) - 1, 0)))
    if data.draw(st.booleans()):
        row = row[:at]
    elif row:
        row[at] = data.draw(st.integers(0, 255))
    try:
        column, inexact = decode(serializer, [bytes(row)])
    except StateError:
        return
    assert inexact[0] or encode(serializer, column) == [bytes(row)]


class TestColumns:
    """What stands beside a typed value."""

    def test_without_encode_every_row_keeps_its_bytes(self) -> None:
        """Since nobody could write them again."""
        serializer = DecodedSerializer(CAR, Reading())
        column, inexact = decode(serializer, [car_bytes(1), car_bytes(2)])
        assert column.to_pylist() == [car(1), car(2)]
        assert inexact == [True, True]

    def test_what_would_be_written_otherwise_keeps_its_bytes(self) -> None:
        """Here there is something behind the value."""
        serializer = DecodedSerializer(CAR, type("W", (Writing,), {"length": Decoder.length})())
        _, inexact = decode(serializer, [car_bytes(1), car_bytes(1) + b"more"])
        assert inexact == [False, True]

    def test_what_it_does_not_understand_is_null(self) -> None:
        """And keeps its bytes."""
        column, inexact = decode(DecodedSerializer(CAR, Reading()), [b"\xff123", car_bytes(5)])
        assert column.to_pylist() == [None, car(5)]
        assert inexact == [True, True]

    def test_without_length_it_stands_last_only(self) -> None:
        """As bytes do; with it, anywhere."""
        assert not DecodedSerializer(CAR, Reading()).self_delimiting
        assert DecodedSerializer(CAR, Measuring()).self_delimiting

    @pytest.mark.parametrize(
        ("how", "why"),
        [
            ("raises", "decode failed .*KeyError: 'id'"),
            ("lies", "decode returned 'no car' .* is no struct"),
        ],
    )
    def test_mistakes_of_a_decoder(self, how: str, why: str) -> None:
        """They are told with the class and the place; nothing is nulled in silence."""
        with pytest.raises(PluginError, match=rf"byte [09].*Failing\.{why}"):
            decode(DecodedSerializer(CAR, Failing(how)), [car_bytes(3)])

    @pytest.mark.parametrize("size", [0, -1, 10, 10**20])
    def test_lengths_that_can_not_be(self, size: int) -> None:
        """They would never end, or read what is another's."""
        decoder = type("L", (Writing,), {"length": lambda *_: size})()
        with pytest.raises(StateError, match=f"returned length {size}; 9 bytes left"):
            decode(DecodedSerializer(CAR, decoder), [car_bytes(3)])

    def test_an_edit_needs_encode(self) -> None:
        """Without it the error says so."""
        column = pa.array([car(1)], CAR_TYPE)
        with pytest.raises(EncodeError, match=r"decoder of com\.acme\.Car has no `encode`"):
            encode(DecodedSerializer(CAR, Reading()), column)


class TestSavepoint:
    """All kinds of state, through the library."""

    @pytest.fixture
    def savepoint(self, tmp_path: Path) -> Path:
        """A savepoint with values of Kryo's."""
        return kryo_savepoint(tmp_path / "savepoint")

    def test_without_a_decoder(self, savepoint: Path) -> None:
        """Bytes, and the class's name."""
        state = open_snapshot(savepoint).operator("kinds").state("name")
        assert state.value_type == "binary (com.acme.Car)"
        assert state.to_arrow().schema.field("value").type == pa.binary()

    @pytest.mark.parametrize("decoder", [Reading(), Measuring(), Writing()])
    def test_there_and_back(self, savepoint: Path, decoder: Decoder) -> None:
        """Typed as far as the decoder goes, and every entry's bytes are what they were."""
        register_decoder(CAR, decoder)
        operator = open_snapshot(savepoint).operator("kinds")
        seen = 0
        for file in operator.keyed_files:
            for index, state in enumerate(file.states):
                if state.name not in KRYO_STATES:
                    continue
                for entries in file.entries():
                    mine = entries.of_state(index)
                    batch = file.decode(index, mine)
                    seen += len(batch)
                    rows = StateRows(index, state.name, file.layouts[index], batch)
                    again = encode_rows(rows, 1)
                    assert _values(again) == _values(mine)
        assert seen == 120 + 96 + 180 + 120
        apart = type(decoder) is not Reading
        types = {name: operator.state(name).schema.field("value").type for name in KRYO_STATES}
        assert types["name"] == types["scores"] == types["session"] == CAR_TYPE
        assert types["items"] == (pa.list_(CAR_TYPE) if apart else pa.binary())
        table = operator.state("name").to_arrow()
        exact = type(decoder) is Writing
        assert (table.column("raw_value").null_count == len(table)) is exact
        ids = sorted(value["id"] for value in table.column("value").to_pylist())
        assert len(set(ids)) == 120
        assert all(value == car(value["id"]) for value in table.column("value").to_pylist())


def _values(entries: Any) -> list[bytes]:
    data = entries.data.tobytes()
    bounds = zip(entries.value_start.tolist(), entries.value_end.tolist(), strict=True)
    return [data[start:end] for start, end in bounds]


POJO = {"pojo": "com.acme.Auto", "fields": {"id": "long", "places": "List<Short>", "doors": "int"}}


class TestMigration:
    """From what a decoder gives to a type that Flink knows."""

    def test_the_verdict_needs_a_decoder(self) -> None:
        """Without one nobody knows; with one it can be done, which Flink could not."""
        new = parse_type(POJO)
        assert new.resolve_schema_compatibility(kryo()).verdict is Verdict.INCOMPATIBLE
        found = resolve_decoded(new, kryo())
        assert found.verdict is Verdict.UNKNOWN
        assert "register_decoder" in str(found.reasons[0])
        register_decoder(CAR, Reading())
        found = resolve_decoded(new, kryo())
        assert found.verdict is Verdict.COMPATIBLE_AFTER_MIGRATION
        assert "Flink by itself would refuse" in str(found.reasons[0])

    def test_what_it_does_not_change(self) -> None:
        """Between types that are understood Flink's verdict stands."""
        register_decoder(CAR, Reading())
        assert resolve_decoded(parse_type("Long"), parse_type("String")).verdict is (
            Verdict.INCOMPATIBLE
        )
        assert resolve_decoded(kryo(), kryo()).verdict is Verdict.UNKNOWN

    @pytest.mark.parametrize(
        ("spec", "why"),
        [
            ({"avro": {"type": "record", "name": "A", "fields": [{"name": "colour",
              "type": "string"}]}}, "gives no field 'colour'"),
            ({"pojo": "A", "fields": {"id": "List<Long>"}}, r"Car\.id: int64 can't become list"),
            ("String", "can't become string"),
        ],
    )  # fmt: skip
    def test_types_that_the_values_do_not_fit(self, spec: Any, why: str) -> None:
        """Known before any value is read."""
        register_decoder(CAR, Reading())
        found = resolve_decoded(parse_type(spec), kryo())
        assert found.verdict is Verdict.INCOMPATIBLE
        with pytest.raises(AssertionError, match=why):
            raise AssertionError(str(found.reasons[0]))

    def test_fields_by_name(self) -> None:
        """In the new type's order, what is new as Java begins it, numbers as far as they fit."""
        new = parse_type(POJO).restore_serializer()
        old = DecodedSerializer(CAR, Reading())
        column = pa.array([car(1), None, car(2)], CAR_TYPE)
        moved = migrate_column(old, new, column)
        assert moved.type == new.arrow_type
        assert moved.to_pylist() == [car(1) | {"doors": 0}, None, car(2) | {"doors": 0}]
        assert migrate_value(old, new, car(2)) == car(2) | {"doors": 0}

    def test_a_number_that_does_not_fit(self) -> None:
        """Is an error, not cut."""
        new = parse_type({"pojo": "A", "fields": {"id": "int"}}).restore_serializer()
        old = DecodedSerializer(CAR, Reading())
        assert migrate_column(old, new, pa.array([car(7)], CAR_TYPE)).to_pylist() == [{"id": 7}]
        with pytest.raises(IncompatibleError, match=r"Car\.id: int64 can't become int32"):
            migrate_column(old, new, pa.array([car(2**40)], CAR_TYPE))
