"""Kryo's values as both versions of Flink wrote them: typed, back to the same bytes, damaged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from statelake.state_core.errors import (
    CorruptSnapshotError,
    EncodeError,
    IncompatibleError,
    StateError,
    UnsupportedFormatError,
)
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.framework.opaque_values import (
    DecodedSerializer,
    OpaqueSerializer,
    undecoded,
)
from statelake.state_core.serializers.framework.plugins import forget_declarations
from statelake.state_core.serializers.framework.registry import read_serializer_snapshot
from statelake.state_core.serializers.kryo.containers import AVRO_ARRAY
from statelake.state_core.serializers.kryo.decoding import (
    KryoDecoder,
    KryoValues,
    declare_classes,
)
from statelake.state_core.serializers.kryo.graph import Item
from statelake.state_core.serializers.kryo.java_types import JavaType
from statelake.state_core.serializers.kryo.serializer import KryoSerializer
from statelake.state_core.serializers.kryo.snapshot import LACKED, KryoSerializerSnapshot
from statelake.state_core.serializers.kryo.tables import FEW, tables_of
from statelake.state_core.serializers.kryo.wire import KryoVersion
from tests.support.savepoints.golden_cases import GOLDEN
from tests.support.savepoints.kryo_jobs import EVENT, kryo_classes, kryo_vectors
from tests.support.savepoints.kryo_savepoint import kryo_snapshot, with_serializers
from tests.support.serializers.serializer_columns import cursor_over, encode

pytestmark = pytest.mark.usefixtures("own_registry")

VECTORS = {flink: kryo_vectors(flink) for flink in (1, 2)}
# classes of the JDK whose values nobody can translate, most of which Kryo does not read back
NOT_KNOWN = (
    "ArrayBlockingQueue",
    "Charset",
    "EnumMap",
    "InetAddress",
    "LongAdder",
    "Named",
    "SimpleTimeZone",
    "StringJoiner",
    "a part of ",
    "a set from a map",
    "checked list",
    "entries of ",
    "keys of ",
    "synchronized ",
    "three copies",
    "unmodifiable ",
    "values of ",
)
# objects in collections that Flink 1 writes as the last one in a field of a type with arguments
UNCERTAIN = ("Generic", "Maybe, and an Optional")
# what Flink 2's own Kryo does not keep
LOST = {
    "ZonedDateTime an hour later": "of Europe/Berlin at .01:00, an offset that Flink 2's Kryo does",
    "Locale with a script": "with a script or extensions, zh-CN-Hans, which Flink 2's Kryo would",
    "Stream.toList with a null": r"with null in it, as of Stream\.toList\(\), which Flink 2's Kryo",
}  # fmt: skip
UTC = timezone.utc


def snapshot_of(vector: dict[str, str]) -> KryoSerializerSnapshot:
    """A vector's serializer."""
    found = read_serializer_snapshot(DataInput(bytes.fromhex(vector["snapshot"])))
    assert isinstance(found, KryoSerializerSnapshot)
    return found


def data_of(vector: dict[str, str]) -> bytes:
    """A vector's value."""
    return bytes.fromhex(vector["value"])


def decoder_of(vector: dict[str, str]) -> KryoDecoder:
    """A vector's decoder."""
    decoder = snapshot_of(vector).decoder()
    assert decoder is not None
    return decoder


def declared(flink: int) -> Iterator[tuple[str, dict[str, str]]]:
    """All vectors, each while the classes of its job are declared."""
    vectors = VECTORS[flink].items()
    of_job = {name: kryo_classes(name, flink) for name, _ in vectors}
    for classes in (of_job["Point"], of_job["Direct"]):
        forget_declarations()
        declare_classes(classes)
        yield from ((name, vector) for name, vector in vectors if of_job[name] == classes)


def read(vector: dict[str, str], flink: int) -> Item | None:
    """A vector's objects."""
    values = snapshot_of(vector).values(KryoVersion(flink))
    return values.read(data_of(vector))


@pytest.mark.parametrize("flink", [1, 2])
def test_every_value_comes_back_to_its_bytes(flink: int) -> None:
    """Objects with their classes, references and order."""
    assert len(VECTORS[flink]) == {1: 406, 2: 408}[flink]
    for name, vector in declared(flink):
        if name.startswith(NOT_KNOWN) or (flink == 1 and name.startswith(UNCERTAIN)):
            continue
        values = snapshot_of(vector).values(KryoVersion(flink))
        assert values.write(read(vector, flink), KryoVersion(flink)) == data_of(vector), name


def test_flink_1_becomes_what_flink_2_writes() -> None:
    """The same values, read as one version and written as the other, are that one's own bytes."""
    for name, vector in declared(1):
        if not name.startswith((*NOT_KNOWN, *UNCERTAIN, *LOST)):
            newer = snapshot_of(vector).values(KryoVersion.FLINK_2)
            made = newer.write(read(vector, 1), KryoVersion.FLINK_2)
            assert made == data_of(VECTORS[2][name]), name


def test_what_can_not_become_flink_2s_is_refused() -> None:
    """With its class and the reason; no advice to declare what has no fields to declare."""
    for name, vector in declared(1):
        values = snapshot_of(vector).values(KryoVersion.FLINK_2)
        if name.startswith(NOT_KNOWN):
            with pytest.raises(UnsupportedFormatError, match="whose form is not known") as refused:
                read(vector, 1)
            advice = "declare the class" if name.startswith("StringJoiner") else "another class in"
            assert advice in str(refused.value)
        elif name.startswith(UNCERTAIN):
            with pytest.raises(
                UnsupportedFormatError, match="depends on what Flink 1 wrote before"
            ):
                read(vector, 1)
        elif name.startswith(tuple(LOST)):
            (why,) = (why for begin, why in LOST.items() if name.startswith(begin))
            item = read(vector, 1)
            with pytest.raises(EncodeError, match=why):
                values.write(item, KryoVersion.FLINK_2)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("java.util.OptionalInt", "its form is known, .*; leave it out"),
        ("java.time.ZonedDateTime", "its form is known"),
        ("java.time.Duration", "its form is known"),
        ("java.util.concurrent.TimeUnit", "its form is known"),
        ("org.apache.flink.api.java.tuple.Tuple2", "its form is known"),
        ("java.util.EnumMap", "does not write it by its fields"),
        ("java.util.Collections$UnmodifiableRandomAccessList", "does not write it by its fields"),
        ("java.lang.IllegalStateException", "does not write it by its fields, .*another class in"),
        ("sun.nio.cs.UTF_8", "does not write it by its fields"),
    ],
)
def test_fields_of_a_class_that_is_not_written_by_them_are_refused(name: str, why: str) -> None:
    """What follows such a value would be read as something else."""
    with pytest.raises(EncodeError, match=f"classes: {re.escape(name)}: .*{why}"):
        declare_classes({"flink": 1, "classes": {name: {"fields": {"value": "int"}}}})


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        (b"\x7f\1", "a class with the id 125, .*do not trust it"),
        (b"\1\0java.util.ArrayLis\xf4\1\1" + b"\1\0\1\1" * 100, "100 deep .*another class in"),
    ],
)
def test_nobody_is_told_to_declare_what_is_no_class(data: bytes, advice: str) -> None:
    """An id that is not registered, and lists in lists in lists."""
    values = snapshot_of(VECTORS[1]["ArrayList"]).values(KryoVersion.FLINK_1)
    with pytest.raises(StateError, match=advice) as refused:
        values.read(data)
    assert "declare" not in str(refused.value)


def test_arrays_of_avro_become_lists_as_flink_1_itself_reads_them() -> None:
    """By the id of their registration, which Flink 2 has for a serializer of another form."""
    kryo = with_serializers(snapshot_of(VECTORS[1]["List of numbers"]))
    older, newer = (kryo.values(version) for version in KryoVersion)
    array = Item("java.util.ArrayList", [Item("java.lang.Long", 5), None])
    plain = older.write(array, KryoVersion.FLINK_1)
    name = b"\1\0java.util.ArrayLis\xf4"
    number = older.classes.numbers[AVRO_ARRAY]
    item = older.read(plain.replace(name, bytes([number + 2])))
    assert plain.startswith(name)
    assert newer.write(item, KryoVersion.FLINK_2) == newer.write(array, KryoVersion.FLINK_2)
    after = kryo.for_flink_2().values(KryoVersion.FLINK_2)
    assert after.classes.numbers[AVRO_ARRAY] == number
    with pytest.raises(
        UnsupportedFormatError, match=r"GenericData\$Array, whose form is not known"
    ):
        after.read(bytes([number + 2, 1, 3]))


def test_serializers_of_the_job_s_own_are_in_the_class_that_flink_2_has() -> None:
    """As objects, of registered classes and by default; of such classes no form is declared."""
    of_job = {"com__acme__Day": "com.acme.Days", "com__acme__Hour": "com.acme.Hours"}
    kryo = with_serializers(snapshot_of(VECTORS[1]["UUID 28"]), **of_job)
    older = kryo.values(KryoVersion.FLINK_1)
    number = older.classes.numbers["com.acme.Hour"]
    declare_classes({"flink": 1, "classes": {"com.acme.Hour": {"fields": {"of": "int"}}}})
    with pytest.raises(
        UnsupportedFormatError, match=r"com\.acme\.Hour, .* a serializer of its own"
    ):
        older.read(bytes([number + 2, 1, 5]))
    upgraded = kryo.for_flink_2()
    out = DataOutput()
    upgraded.write_snapshot(out)
    assert not any(name in out.to_bytes() for name in LACKED)
    holder = b"sr\0\x32org.apache.flink.api.common.SerializableSerializer\x41\x0e\xbe\x4d"
    assert out.to_bytes().count(holder) == 4
    for before, after in zip(kryo.maps, upgraded.maps, strict=True):
        assert [entry.name for entry in after] == [entry.name for entry in before]
    assert upgraded.kryo is KryoVersion.FLINK_2
    assert [entry.value.count(b"com.acme.Hours") for entry in upgraded.maps[1]] == [1]


def test_classes_of_the_jdk_that_are_written_by_their_fields_can_be_declared() -> None:
    """Both versions write a `StringJoiner` so, and a constant of an enum by its number."""
    text = dict.fromkeys(("prefix", "delimiter", "suffix", "emptyValue"), "String")
    fields = {**text, "elts": "String[]", "size": "int", "len": "int"}
    days = {"enum": ["NANOSECONDS", "MICROSECONDS"]}
    classes = {
        "java.util.StringJoiner": {"fields": fields, "final": True},
        "java.util.concurrent.TimeUnit": days,
    }
    declare_classes({"flink": 1, "classes": classes})
    vector = VECTORS[1]["StringJoiner"]
    values = snapshot_of(vector).values(KryoVersion.FLINK_2)
    made = values.write(read(vector, 1), KryoVersion.FLINK_2)
    assert made == data_of(VECTORS[2]["StringJoiner"])


TYPED: dict[str, tuple[pa.DataType, Any]] = {
    "Integer 1": (pa.int32(), -70000),
    "Long 2": (pa.int64(), 1 << 40),
    "Character 6": (pa.string(), "ß"),
    "Double 9": (pa.float64(), -1e300),
    "String 17": (pa.string(), "\U0001d11e"),
    "BigInteger 18": (pa.decimal128(38, 0), Decimal(-12345678901234567890)),
    "BigDecimal 20": (pa.string(), "-12.50"),
    "Date 23": (
        pa.timestamp("us", "UTC"),
        datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC),
    ),
    "Timestamp 25": (
        pa.timestamp("us", "UTC"),
        datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC),
    ),
    "UUID 28": (pa.string(), "123e4567-e89b-12d3-a456-426614174000"),
    "BitSet 34": (pa.list_(pa.int64()), [5, -(1 << 63)]),
    "LocalDate 39": (pa.date32(), date(2024, 2, 29)),
    "LocalTime 41": (pa.string(), "01:02:03.000000004"),
    "LocalTime 43": (pa.string(), "07:00"),
    "LocalDateTime 44": (pa.timestamp("us"), datetime(2024, 2, 29, 1, 2, 3, 4)),  # noqa: DTZ001
    "Duration 45": (
        pa.struct({"seconds": pa.int64(), "nanos": pa.int64()}),
        {"seconds": -2, "nanos": 500_000_000},
    ),
    "Month 52": (pa.string(), "MAY"),
    "byte[] 55": (pa.binary(), b"\1\xff"),
    "int[] 58": (pa.list_(pa.int32()), [1, -1, 1 << 30]),
    "int[][] 66": (pa.list_(pa.list_(pa.int32())), [[1], []]),
    "String[] 63": (pa.list_(pa.string()), ["a", None]),
    "ArrayList": (
        pa.string(),
        '[1, "two", null, {"@class": "java.lang.Long", "value": 3}, "two"]',
    ),
    "HashMap": (pa.string(), '{"a": 1, "b": {"@class": "java.lang.Long", "value": 2}}'),
    "singleton map": (
        pa.string(),
        '{"@class": "java.util.Collections$SingletonMap", "value": [["a", 1]]}',
    ),
    "Tier with a body": (pa.string(), "SILVER"),
    "Point": (pa.struct({"x": pa.int32(), "y": pa.int32()}), {"x": 1, "y": -1}),
}


@pytest.mark.parametrize("flink", [1, 2])
@pytest.mark.parametrize("name", TYPED)
def test_typed(flink: int, name: str) -> None:
    """Each has the column of its class, and is written from there as it was, or kept beside."""
    declare_classes({**EVENT, "flink": flink})
    vector = VECTORS[flink][name]
    decoder = decoder_of(vector)
    kind, expected = TYPED[name]
    assert decoder.arrow_type == kind
    column = pa.array([decoder.decode(data_of(vector))], kind)
    assert column.to_pylist() == [expected]
    if name not in ("ArrayList", "Tier with a body"):  # one text twice, and a constant's own class
        assert decoder.encode(column[0].as_py()) == data_of(vector)


@pytest.mark.parametrize("flink", [1, 2])
def test_fields(flink: int) -> None:
    """An object of every type of field, those of its superclass too."""
    declare_classes({**EVENT, "flink": flink})
    value = decoder_of(VECTORS[flink]["Event"]).decode(data_of(VECTORS[flink]["Event"]))
    assert value["owner"] == "größe"
    assert value["any"] == '{"@class": "java.util.Arrays$ArrayList", "value": [1, "two"]}' or (
        flink == 1 and '"value": [1, "two"], "with": "java.io.Serializable"' in value["any"]
    )
    assert (value["letter"], value["total"], value["none"]) == ("ß", 1 << 40, None)
    assert (value["tier"], value["tiers"]) == ("SILVER", ["GOLD", None])
    assert value["points"] == [{"x": 2, "y": 3}, None]
    assert value["groups"] == [("g", [1, 2])]
    assert (value["tags"], value["ids"], value["price"]) == (["x", "yy"], [3], "12.50")
    empty = decoder_of(VECTORS[flink]["empty Event"]).decode(data_of(VECTORS[flink]["empty Event"]))
    assert [name for name, field in empty.items() if field is None] == [
        "owner", "boxed", "none", "name", "any", "tier", "tiers", "point", "points", "numbers",
        "words", "tags", "groups", "price",
    ]  # fmt: skip


class TestVersions:
    """Which Kryo wrote a value."""

    def test_a_wrong_declaration_is_refused(self) -> None:
        """What is edited would be written for another Flink."""
        declare_classes({"flink": 2})
        with pytest.raises(IncompatibleError, match="as Flink 1 writes it, and not as Flink 2"):
            decoder_of(VECTORS[1]["UUID 28"]).decode(data_of(VECTORS[1]["UUID 28"]))

    def test_avro_says_it(self) -> None:
        """A job with Avro has a serializer of another class in each version."""
        lines = (GOLDEN / "vectors" / "serializers.txt").read_text("utf-8").splitlines()
        payload = next(line for line in lines if line.startswith("## Kryo(UUID)")).split("=")[-1]
        snapshot = KryoSerializerSnapshot()
        snapshot.read_snapshot(2, DataInput(bytes.fromhex(payload)))
        assert snapshot.kryo is KryoVersion.FLINK_2
        assert snapshot.decoder() is None
        declare_classes({"flink": 1})
        decoder = snapshot.decoder()
        assert decoder is not None
        data = bytes.fromhex("5401d3129be867453e1200401714664256a4")
        assert decoder.decode(data) == TYPED["UUID 28"][1]
        assert decoder.encode(TYPED["UUID 28"][1]) == data
        older = payload.replace(
            b"\0\x32org.apache.flink.api.common.SerializableSerializer".hex(),
            b"\0\x42org.apache.flink.api.common.ExecutionConfig$SerializableSerializer".hex(),
        )
        was, longer = f"{0xB6 + 0x61:08x}", f"{0xB6 + 0x71:08x}"
        older = older.replace(was, longer)
        snapshot.read_snapshot(2, DataInput(bytes.fromhex(older)))
        assert snapshot.kryo is KryoVersion.FLINK_1
        upgraded = snapshot.for_flink_2()
        assert upgraded.kryo is KryoVersion.FLINK_2
        assert bytes.fromhex(payload[payload.index("aced") :][:300]) in upgraded.payload

    def test_the_mark_of_what_was_rewritten(self) -> None:
        """It goes before what a user says, and all else is as it was."""
        declare_classes({"flink": 1})
        snapshot = snapshot_of(VECTORS[1]["UUID 28"])
        upgraded = snapshot.for_flink_2()
        assert (snapshot.kryo, upgraded.kryo) == (None, KryoVersion.FLINK_2)
        assert upgraded.registered == snapshot.registered
        decoder = upgraded.decoder()
        assert decoder is not None
        assert decoder.values.version is KryoVersion.FLINK_2


def test_what_is_not_known_stays_bytes() -> None:
    """All of it, if nobody says how; a class that nobody declared; and all of it on request."""
    for name in ("Point", "UUID 28", "ArrayList"):
        plain = snapshot_of(VECTORS[1][name]).restore_serializer()
        assert isinstance(plain, OpaqueSerializer)
    declare_classes({"flink": 1})
    assert isinstance(snapshot_of(VECTORS[1]["Point"]).restore_serializer(), OpaqueSerializer)
    assert isinstance(snapshot_of(VECTORS[1]["UUID 28"]).restore_serializer(), DecodedSerializer)
    with undecoded():
        plain = snapshot_of(VECTORS[1]["UUID 28"]).restore_serializer()
    assert isinstance(plain, OpaqueSerializer)
    within = VECTORS[1]["Events"]
    assert decoder_of(within).decode(data_of(within)) is None


def test_what_has_itself_within_stays_bytes() -> None:
    """No column holds a ring."""
    declare_classes({**EVENT, "flink": 1})
    ring = read(VECTORS[1]["Ring"], 1)
    assert ring is not None
    assert ring.value["next"] is ring
    assert decoder_of(VECTORS[1]["Ring"]).decode(data_of(VECTORS[1]["Ring"])) is None


def test_lists_of_known_elements() -> None:
    """A state's type with its arguments makes a typed column of it."""
    declare_classes({"flink": 2, "types": {"java.util.List": "List<Long>"}})
    decoder = decoder_of(VECTORS[2]["List of numbers"])
    assert decoder.arrow_type == pa.list_(pa.int64())
    assert decoder.decode(data_of(VECTORS[2]["List of numbers"])) == [1, 2]
    assert decoder.encode([1, 2]) == data_of(VECTORS[2]["List of numbers"])
    assert decoder.decode(data_of(VECTORS[2]["List with a null"])) is None


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"classs": {}}, "'classs' is not known"),
        ({"flink": 3}, "flink: 3 is neither 1 nor 2"),
        ({"flink": True}, "flink: True is neither 1 nor 2"),
        ({"flink": None}, "the Flink that wrote the values is not given"),
        ({"classes": ["a"]}, "`classes` is no mapping"),
        ({"classes": {"a.A": {}}}, "classes: a.A: neither fields nor constants"),
        ({"classes": {"a.A": {"fields": {"x": "int"}, "enum": ["A"]}}}, "neither .*, or both"),
        ({"classes": {"a.A": {"fields": {"x": "List<"}}}}, "classes: a.A, x: .* no Java type"),
        ({"classes": {"a.A": {"fields": {"x": "List<int"}}}}, "is not closed"),
        ({"classes": {"a.A": {"fields": {"x": "int]"}}}}, "behind a complete Java type"),
        ({"classes": {"a.A": {"fields": {"x": 1}}}}, "1 is no Java type"),
        ({"classes": {"a.A": {"enum": []}}}, "`enum` is no list of names"),
        ({"classes": {"a.A": {"enum": "A"}}}, "`enum` is no list of names"),
        ({"classes": {"a.A": {"enum": ["A"], "final": "yes"}}}, "final: 'yes' is no boolean"),
        ({"classes": {"a.A": {"enum": ["A"], "of": 1}}}, "'of' is not known"),
    ],
)
def test_mistakes_of_a_file(said: dict[str, Any], why: str) -> None:
    """Each is told with its place."""
    with pytest.raises(EncodeError, match=why):
        declare_classes({"flink": 1, **said})


def test_files_that_disagree() -> None:
    """One Flink wrote it all."""
    declare_classes({"flink": 1})
    with pytest.raises(EncodeError, match="flink: 2, and another file says otherwise"):
        declare_classes({"flink": 2})


SEEDS = [
    (flink, name)
    for flink in (1, 2)
    for name in (
        "Event",
        "Events",
        "registered",
        "a list twice",
        "TreeMap",
        "List of nulls",
        "Odd",
        "Within",
        "Locales",
        "ZonedDateTime",
        "ZonedDateTime with an offset",
        "URL",
    )
]


class TestDamaged:
    """Bytes that nobody wrote."""

    @example((2, "Event"), [(135, 128)], 0)  # a map where the field's type has one argument
    @settings(max_examples=600, deadline=2000)
    @given(
        st.sampled_from(SEEDS),
        st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=6),
        st.integers(0, 10**6),
    )
    @pytest.mark.full
    def test_only_errors_of_ours(
        self, seed: tuple[int, str], changes: list[tuple[int, int]], end: int
    ) -> None:
        """Whatever is changed or cut off, the value is one, or none."""
        flink, name = seed
        vector = VECTORS[flink][name]
        data = bytearray(data_of(vector))
        for at, byte in changes:
            data[at % len(data)] = byte
        forget_declarations()
        declare_classes(kryo_classes(name, flink))
        decoder = decoder_of(vector)
        for cut in (len(data), end % len(data)):
            try:
                value = decoder.decode(bytes(data[:cut]))
            except IncompatibleError:
                continue
            column = pa.array([value], decoder.arrow_type)
            column.validate(full=True)
            (kept,) = column.to_pylist()
            assert (kept is None) == (value is None)
            if kept is not None:
                again = pa.array([decoder.decode(decoder.encode(kept))], decoder.arrow_type)
                assert repr(again.to_pylist()) == repr([kept])

    def test_a_class_that_is_declared_otherwise_than_it_is(self) -> None:
        """The error names the class and the words, since damage would look the same."""
        outer, inner = {"fields": {"at": "a.Inner"}}, {"fields": {"name": "String"}}
        declared = {"flink": 1, "classes": {"a.Outer": outer, "a.Inner": inner}}
        declare_classes(declared)
        values = snapshot_of(VECTORS[1]["ArrayList"]).values(KryoVersion.FLINK_1)
        item = Item("a.Outer", {"at": Item("a.Inner", {"name": Item("java.lang.String", "word")})})
        data = values.write(item, KryoVersion.FLINK_1)
        assert values.read(data) is not None
        forget_declarations()
        declare_classes(
            {"flink": 1, "classes": {"a.Outer": outer, "a.Inner": {**inner, "final": True}}}
        )
        values = snapshot_of(VECTORS[1]["ArrayList"]).values(KryoVersion.FLINK_1)
        with pytest.raises(CorruptSnapshotError, match=r"a\.Outer.*`final: true`"):
            values.read(data)

    def test_counts_that_are_not_there(self) -> None:
        """A length is held against the bytes that are left."""
        declare_classes({"flink": 1})
        values = snapshot_of(VECTORS[1]["ArrayList"]).values(KryoVersion.FLINK_1)
        for data, why in [
            ("5701ffffffff0f", "elements declared, 0 bytes left"),
            ("570103", "elements declared"),
            ("5705", "object 3, of 0 read"),
            ("ff7f", "a class with the id 16381"),
            ("010561", "class name 5, of 0 read"),
            ("5701010301c3", "null|bytes"),
        ]:
            with pytest.raises(StateError, match=why):
                values.read(bytes.fromhex(data))

    def test_deep_and_shared_objects(self) -> None:
        """Neither the stack nor the memory is what bytes ask for."""
        declare_classes({"flink": 1})
        decoder = decoder_of(VECTORS[1]["ArrayList"])
        deep = bytes.fromhex("570101") * 5000 + bytes.fromhex("5700")
        assert decoder.decode(deep) is None
        values = snapshot_of(VECTORS[1]["ArrayList"]).values(KryoVersion.FLINK_1)
        item = Item("java.util.ArrayList", [])
        for _ in range(60):  # each twice in the next: 2^60 in all
            item = Item("java.util.ArrayList", [item, item])
        bomb = values.write(item, KryoVersion.FLINK_1)
        assert len(bomb) < 1000
        assert decoder.decode(bomb) is None


# shared objects, nanoseconds, and collections of another class than the usual one
SHARED = {
    "Instant 37", "Instant 38", "OffsetDateTime 54", "ArrayList", "LinkedList", "Arrays.asList",
    "a list twice", "Event", "Events", "empty Event", "ZonedDateTime", "ZonedDateTime in UTC",
    "Locales", "Odd", "Within", "a Tuple2 twice", "an OptionalInt twice",
    "ObjectNode",
}  # fmt: skip
UNSURE = {"Maybe, and an Optional after it", "Generic, and a Tuple2 after it"}
INEXACT = {1: SHARED | {"ZonedDateTime with odd seconds"}, 2: SHARED | UNSURE}
NONE = {"null", "Ring", "a list with itself"}
NONE_BY_FLINK = {1: NONE | UNSURE | {"Locale with a script", "Generic"}, 2: NONE}


@pytest.mark.parametrize("flink", [1, 2])
def test_columns_give_values_back(flink: int) -> None:
    """From a column, JSON too, each value is written as it was, but for what it can't say."""
    inexact, none = set(), set()
    for name, vector in declared(flink):
        decoder = snapshot_of(vector).decoder()
        if decoder is None or name.endswith(" in a list"):  # which has one object twice
            continue
        value = decoder.decode(data_of(vector))
        (value,) = pa.array([value], decoder.arrow_type).to_pylist()
        if value is None:
            none.add(name)
        elif decoder.encode(value) != data_of(vector):
            inexact.add(name)
    assert (inexact, none) == (INEXACT[flink], NONE_BY_FLINK[flink])


@pytest.mark.parametrize("flink", [1, 2])
def test_an_enum_of_the_jdk_is_a_line_of_the_table(flink: int) -> None:
    """A unit of time is a string in a column, and comes back to its bytes."""
    kryo = kryo_snapshot().of_class("java.time.temporal.ChronoUnit")
    values = KryoValues(kryo.registered, KryoVersion(flink), recorded=True)
    column = KryoSerializer(kryo.type_class, KryoDecoder(values, JavaType(kryo.type_class)))
    mark = b"\1" if flink == 1 else b""  # only Kryo 2.24 numbers constants
    number = values.classes.numbers[kryo.type_class] + 2
    stored = [bytes([number]) + mark + b"\7"] * 8
    assert column.decode(cursor_over(stored)).to_pylist() == ["HALF_DAYS"] * 8
    assert encode(column, pa.array(["HALF_DAYS"] * 8)) == stored


def test_an_int_of_more_than_32_bits_is_damage() -> None:
    """In an array, too: by the kernel as by the reader of one value."""
    vector = VECTORS[1]["int[] 58"]
    damaged = data_of(vector)[:-1] + b"\x78"
    values = snapshot_of(vector).values(KryoVersion.FLINK_1)
    with pytest.raises(CorruptSnapshotError, match="more than 32 bits"):
        values.read(damaged)
    cursor = cursor_over([damaged] * FEW)
    ((*_, roots, _),) = tables_of(values, cursor.data, cursor.position, cursor.end)
    assert (roots < 0).all()
