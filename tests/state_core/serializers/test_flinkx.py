"""Types of flink-scala-api, beside what the library says of them (`test_library_vectors`)."""

from __future__ import annotations

from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from statelake.state_core.errors import EncodeError, KeyGroupError, StateError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers import register, registered_classes
from statelake.state_core.serializers.basic.numbers import IntSerializer, LongSerializer
from statelake.state_core.serializers.basic.text import StringSerializer
from statelake.state_core.serializers.composite.evolution import migrate_column, migrate_value
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import Verdict
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer
from statelake.state_core.serializers.framework.registry import (
    read_serializer_snapshot,
    write_serializer_snapshot,
)
from statelake.state_core.serializers.scala.flinkx import CountedClassSerializer
from statelake.state_core.serializers.scala.flinkx_parts import (
    DEFAULTS,
    FLINKX,
    UNCOMPARED,
    is_older,
    renewed,
)
from statelake.state_core.serializers.scala.flinkx_simple import UuidSerializer
from statelake.state_core.serializers.scala.flinkx_snapshots import (
    CaseClassSerializerSnapshot,
    CollectionSerializerSnapshot,
    CoproductSerializerSnapshot,
    MappedSerializerSnapshot,
)
from statelake.state_core.serializers.scala.sealed import (
    CaseObjectSerializer,
    SealedSerializer,
    labels_of,
)
from statelake.state_core.serializers.type_spec import parse_type
from tests.state_core.serializers.test_contract import (
    check_columns,
    check_hashes,
    check_masks,
    check_scalars,
)
from tests.state_core.serializers.test_library_vectors import (
    FLINKX as FILES,
)
from tests.state_core.serializers.test_library_vectors import (
    TYPES,
    Line,
    serializer_of,
    snapshot,
    title,
)
from tests.support.serializers.serializer_columns import decode, encode, read, walked, write

EVERY = [line for line in TYPES.values() if line["file"] in FILES]
VALUED = [line for line in EVERY if line["values"]]
LAST = "flinkx-2.2.4"


def click(*fields: TypeSerializerSnapshot, name: str = "com.acme.Click") -> Any:
    """The snapshot of a case class."""
    made = CaseClassSerializerSnapshot.around(*fields)
    made.case_class = name
    return made


def listed(element: TypeSerializerSnapshot) -> Any:
    """The snapshot of a `List`."""
    made = CollectionSerializerSnapshot.around(element)
    made.words = (f"{FLINKX}ListSerializer", "com.acme.Click")
    return made


def sealed(names: list[str], *parts: TypeSerializerSnapshot) -> Any:
    """The snapshot of a sealed trait."""
    made = CoproductSerializerSnapshot.around(*parts)
    made.names = tuple(names)
    return made


TEXT, LONG, INT = parse_type("String"), parse_type("Long"), parse_type("Integer")


# ----------------------------------------------------------------------------------- contract


@pytest.mark.parametrize("line", VALUED, ids=title)
def test_contract(line: Line) -> None:
    """Columns, parts of them, rows that are not there, and the same one by one."""
    serializer = serializer_of(line)
    once = [bytes.fromhex(value["bytes"]) for value in line["values"]]
    values = [*once, *reversed(once)][:4]
    check_columns(serializer, values)
    check_scalars(serializer, values)
    check_hashes(serializer, values)
    for mask in product((False, True), repeat=len(values)):
        check_masks(serializer, values, list(mask))
    for data in values:
        assert len(data) >= serializer.min_length
        assert serializer.wire_length in (-1, len(data))


@pytest.mark.parametrize("line", VALUED, ids=title)
def test_values_within_lists(line: Line) -> None:
    """A list finds the end of each element, unless elements have no bytes."""
    element = serializer_of(line)
    if not element.min_length or element.skip_program() is None:  # Unit, Option[Nothing]
        return
    one = listed(snapshot(line["file"], line["type"])).restore_serializer()
    once = [bytes.fromhex(value["bytes"]) for value in line["values"]]
    data = [b"\0\0\0" + bytes([len(once)]) + b"".join(once), bytes(4)]
    column, inexact = decode(one, data)
    assert column.to_pylist()[1] == []
    kept = [row for row, lost in enumerate(inexact) if not lost]
    assert encode(one, column.take(pa.array(kept))) == [data[row] for row in kept]
    assert walked(one, data) == [len(value) for value in data]


# -------------------------------------------------------------------------------- case classes


def test_a_value_of_an_older_class_has_fewer_fields() -> None:
    """What it lacks is null, and its bytes stay: the defaults are only in the class."""
    one = click(TEXT, LONG, INT).restore_serializer()
    older = b"\0\0\0\1\2a"
    whole = write(one, ("b", 2, 3))
    column, inexact = decode(one, [older, whole])
    assert inexact == [True, False]
    assert column.to_pylist()[0] == {"f0": "a", "f1": None, "f2": None} == read(one, older)
    assert walked(one, [older, whole]) == [len(older), len(whole)]


def test_more_fields_than_the_class_has_are_refused() -> None:
    """As the library does, which then finds no constructor."""
    one = click(TEXT).restore_serializer()
    for refused in (lambda data: read(one, data), lambda data: decode(one, [data])):
        with pytest.raises(StateError, match=r"2 fields of com\.acme\.Click, which has 1"):
            refused(b"\0\0\0\2\2a\2b")


class Uncounted(CaseClassSerializerSnapshot):
    """As the docs tell a user to write it."""

    counted = False


@pytest.mark.usefixtures("own_registry")
def test_case_classes_without_the_number_of_fields() -> None:
    """Before 1.1.5, and with DISABLE_CASE_CLASS_ARITY_USAGE: a class of three lines reads them."""
    data = b"\2a" + (7).to_bytes(8, "big")
    first = bytes.fromhex(TYPES["flinkx-1.2.4", "Click"]["snapshot"])
    one = read_serializer_snapshot(DataInput(first)).restore_serializer()
    with pytest.raises(StateError, match="which has 2") as error:
        decode(one, [data])
    assert "DISABLE_CASE_CLASS_ARITY_USAGE" in str(error.value)
    assert "`counted = False`" in str(error.value)
    register(Uncounted, replace=True)
    other = read_serializer_snapshot(DataInput(first)).restore_serializer()
    assert decode(other, [data])[0].to_pylist() == [{"f0": "a", "f1": 7}]
    assert write(other, read(other, data)) == data


def test_a_null_that_every_version_reads_is_written() -> None:
    """1.2.8 to 2.0.4 know -1 only, later ones any number below 0; before, there is no null."""
    one = click(INT).restore_serializer()
    assert write(one, None) == b"\xff" * 4 + bytes(4)
    assert encode(one, pa.array([None], one.arrow_type)) == [b"\xff" * 4 + bytes(4)]
    older = CountedClassSerializer("com.acme.Click", [IntSerializer()], current=False)
    for refused in (
        lambda: write(older, None),
        lambda: encode(older, pa.array([None], older.arrow_type)),
        lambda: read(older, b"\xff" * 8),
        lambda: decode(older, [b"\xff" * 8]),
    ):
        with pytest.raises(StateError):
            refused()


def test_padding_of_null_that_is_not_zero_keeps_its_bytes() -> None:
    """The library skips it, and writes zeros."""
    one = click(INT).restore_serializer()
    column, inexact = decode(one, [b"\xff" * 4 + b"\0\0\0\1", b"\xff" * 4 + bytes(4)])
    assert (column.to_pylist(), inexact) == ([None, None], [True, False])
    with pytest.raises(StateError, match="the padding of a null"):
        decode(one, [b"\xff" * 4 + b"\0"])


@pytest.mark.parametrize(
    "made",
    [click(TEXT), click(INT, INT, name="scala.Tuple2$x"), listed(TEXT), sealed(["a"], TEXT)],
)
def test_hash_codes_that_are_not_derived(made: TypeSerializerSnapshot) -> None:
    """A case class may define its own, and collections have Scala's."""
    with pytest.raises(KeyGroupError, match="can't be derived"):
        made.restore_serializer().hash_code(None)


# ------------------------------------------------------------------------------ sealed traits


def test_labels_are_short_where_they_can_be() -> None:
    """Two classes of one name, and one that is called like the field of names, are whole."""
    assert labels_of(["com.acme.Event$Click", "com.acme.Closed$", "Bare"]) == [
        "Click", "Closed", "Bare",
    ]  # fmt: skip
    assert labels_of(["a.Click", "b.Click", "c.type", "$"]) == ["a.Click", "b.Click", "c.type", "$"]
    assert labels_of(["a.Type", "a.Url", "b.URL"]) == ["a.Type", "a.Url", "b.URL"]  # as columns


def test_values_of_no_type_are_refused() -> None:
    """A number and a label that no type has; a null where a value must be."""
    one = SealedSerializer("It", [("A", LongSerializer()), ("B", CaseObjectSerializer("B"))], None)
    for data in (b"\2", b"\x80", b"\xff"):
        with pytest.raises(StateError, match="of It, which has 2"):
            read(one, data)
        with pytest.raises(StateError, match="of It, which has 2"):
            decode(one, [data])
    for value in ("B", {"type": "C"}, {}, None, 7):
        with pytest.raises(EncodeError):
            write(one, value)
    for value in ({"type": "C", "A": None}, {"type": None, "A": None}, None):
        with pytest.raises(EncodeError):
            encode(one, pa.array([value], one.arrow_type))


def test_more_types_than_a_byte_can_number_are_bytes() -> None:
    """128 are read, 129 are not: the library can't read them itself."""
    names = [f"com.acme.C{index}" for index in range(129)]
    assert isinstance(sealed(names, *[TEXT] * 129).restore_serializer(), OpaqueSerializer)
    assert sealed(names[:128], *[TEXT] * 128).restore_serializer().arrow_type != pa.binary()


def test_types_are_migrated_by_their_labels() -> None:
    """A type may be added, of which no value is there; an enumeration may get contents."""
    first = SealedSerializer("It", [("A", IntSerializer())], -128)
    more = SealedSerializer("It", [("A", IntSerializer()), ("B", StringSerializer())], -128)
    values = [{"type": "A", "A": 5}, None]
    wanted = [{"type": "A", "A": 5, "B": None}, None]
    column = pa.array(values, first.arrow_type)
    assert migrate_column(first, more, column).to_pylist() == wanted
    assert migrate_value(first, more, values[0]) == wanted[0]
    constants = SealedSerializer("It", [("A", CaseObjectSerializer("A"))], -128)
    mixed = SealedSerializer("It", [("A", CaseObjectSerializer("A")), ("B", IntSerializer())], -128)
    names = pa.array(["A", None])
    assert migrate_column(constants, mixed, names).to_pylist() == [{"type": "A", "B": None}, None]
    assert migrate_value(constants, mixed, "A") == {"type": "A", "B": None}
    assert migrate_column(constants, constants, names).equals(names)
    assert migrate_value(mixed, constants, {"type": "A", "B": None}) == "A"


# ------------------------------------------------------------------------------------- others


def test_uuids_in_any_case_are_written() -> None:
    """Text that `UUID.fromString` would take; nothing else."""
    one = UuidSerializer()
    text = "6BA7B810-9DAD-11D1-80B4-00C04FD430C8"
    (data,) = encode(one, pa.array([text]))
    assert data == write(one, text) == write(one, text.lower())
    assert decode(one, [data])[0].to_pylist() == [text.lower()]
    with pytest.raises(EncodeError, match="'no' is no UUID"):
        write(one, "no")
    with pytest.raises(StateError, match="a UUID of 15 bytes"):
        read(one, b"\0\0\0\x0f" + bytes(15))
    with pytest.raises(StateError, match="a UUID of 15 bytes"):
        decode(one, [b"\0\0\0\x0f" + bytes(16)])


def test_what_a_user_serializes_stays_bytes() -> None:
    """A collection of his own serializer, of elements without bytes; a mapper to a type unknown."""
    own = listed(TEXT)
    own.words = ("com.acme.BagSerializer", "java.lang.String")
    assert own.restore_serializer().name == "binary (com.acme.BagSerializer)"
    empty = snapshot(LAST, "List<Closed>").restore_serializer()
    assert empty.name == f"binary ({FLINKX}ListSerializer)"
    mapped = MappedSerializerSnapshot()
    source = DataOutput()
    source.write_utf("com.acme.Mapper")
    source.write_utf("com.acme.OwnSerializer")
    mapped.read_snapshot(1, DataInput(source.to_bytes()))
    assert mapped.restore_serializer().name == "binary (com.acme.Mapper)"
    again = DataOutput()
    mapped.write_snapshot(again)
    assert again.to_bytes() == source.to_bytes()
    with pytest.raises(EncodeError, match=r"com\.acme\.Mapper maps to what is not known"):
        renewed(mapped)


# ----------------------------------------------------------------------------------- verdicts


def test_fields_that_were_added_within_a_collection_may_be_read() -> None:
    """The library compares nothing there; whether it reads them is up to the class's defaults."""
    before, after = click(TEXT), click(TEXT, LONG)
    assert after.resolve_schema_compatibility(before).verdict is Verdict.INCOMPATIBLE
    for outer in (listed, lambda part: listed(sealed(["com.acme.Click"], part))):
        found = outer(after).resolve_schema_compatibility(outer(before))
        assert found.verdict is Verdict.UNKNOWN
        assert found.reasons[0].rule == DEFAULTS
        back = outer(before).resolve_schema_compatibility(outer(after))
        assert back.verdict is Verdict.INCOMPATIBLE
        assert back.reasons[0].rule == UNCOMPARED


def test_types_that_were_added_within_a_collection_are_read() -> None:
    """Behind the others, as the numbers of these stay; not before them."""
    before = sealed(["A", "B"], TEXT, LONG)
    assert (
        listed(sealed(["A", "B", "C"], TEXT, LONG, INT))
        .resolve_schema_compatibility(listed(before))
        .verdict
        is Verdict.COMPATIBLE_AS_IS
    )
    for other in (
        sealed(["B", "A"], LONG, TEXT),
        sealed(["A"], TEXT),
        sealed(["A", "C"], TEXT, LONG),
    ):
        found = listed(other).resolve_schema_compatibility(listed(before))
        assert found.verdict is Verdict.INCOMPATIBLE


def test_what_would_need_a_migration_is_refused_within_a_collection() -> None:
    """The library migrates nothing there, so that a POJO's old bytes would be read as new ones."""
    before = parse_type({"pojo": "com.acme.P", "fields": {"id": "Long"}})
    after = parse_type({"pojo": "com.acme.P", "fields": {"id": "Long", "name": "String"}})
    assert after.resolve_schema_compatibility(before).verdict is Verdict.COMPATIBLE_AFTER_MIGRATION
    found = listed(after).resolve_schema_compatibility(listed(before))
    assert found.verdict is Verdict.INCOMPATIBLE
    assert found.reasons[0].rule == UNCOMPARED


# ----------------------------------------------------------------------------------- versions


@pytest.mark.parametrize(
    "line", [line for line in TYPES.values() if line["file"] in FILES], ids=title
)
def test_older_snapshots_are_renewed(line: Line) -> None:
    """Those of 1.2.4 become what 1.2.9 writes, but for case classes, which later versions read."""
    before = snapshot(line["file"], line["type"])
    after = renewed(before)
    assert not is_older(after)
    assert is_older(before) == (after is not before)
    assert after.restore_serializer().name == before.restore_serializer().name
    assert line["file"] == "flinkx-1.2.4" or after is before
    out = DataOutput()
    write_serializer_snapshot(after, out)
    again = read_serializer_snapshot(DataInput(out.to_bytes()))
    assert again.restore_serializer().name == after.restore_serializer().name
    later = TYPES.get(("flinkx-1.2.9", line["type"]))
    if after is not before and later is not None and CASE_CLASS not in later["snapshot"]:
        assert out.to_bytes().hex() == later["snapshot"]


CASE_CLASS = b"ScalaCaseClassSerializerSnapshot".hex()


def test_every_snapshot_class_is_in_the_vectors() -> None:
    """But orderings other than that of text."""
    written = "".join(line["snapshot"] for line in TYPES.values() if line["file"] == LAST)
    names = [name for name in registered_classes() if name.startswith(FLINKX)]
    missing = [name for name in names if name.encode().hex() not in written]
    assert [name for name in missing if "Ordering" not in name] == []
    assert len(missing) < len(names) / 2
