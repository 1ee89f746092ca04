"""Kryo's values where they stand: unknown ones among others, hostile ones, keys, declarations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from statelake.state_core.errors import IncompatibleError, OversizedError, UnsupportedFormatError
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.layout.keys import encode_key
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.basic.numbers import LongSerializer
from statelake.state_core.serializers.composite.pojo import PojoSerializer
from statelake.state_core.serializers.composite.wrappers import VoidNamespaceSerializer
from statelake.state_core.serializers.framework.opaque_values import (
    DecodedSerializer,
    OpaqueSerializer,
    described_type,
    restore_bounded,
    restore_key,
)
from statelake.state_core.serializers.framework.plugins import forget_declarations
from statelake.state_core.serializers.kryo.decoding import KryoDecoder, declare_classes
from statelake.state_core.serializers.kryo.graph import Classes, Item
from statelake.state_core.serializers.kryo.wire import KryoOutput, KryoVersion
from tests.support.savepoints.kryo_savepoint import kryo_snapshot

pytestmark = pytest.mark.usefixtures("own_registry")

ARRAY_LIST, UUID, TEXT = "java.util.ArrayList", "java.util.UUID", "java.lang.String"
ID = "123e4567-e89b-12d3-a456-426614174000"
BAG = {"com.acme.Bag": {"fields": {"items": "List<String>"}}}


def written(java_class: str, value: Any, flink: int = 1) -> bytes:
    """An object as that Flink's Kryo writes it."""
    version = KryoVersion(flink)
    return kryo_snapshot(java_class).values(version).write(Item(java_class, value), version)


def decoder_of(java_class: str) -> KryoDecoder:
    """What decodes the values of a class."""
    decoder = kryo_snapshot(java_class).decoder()
    assert decoder is not None
    return decoder


def bag_of(list_class: str) -> bytes:
    """A bag whose list is empty, and of any class."""
    out = KryoOutput(KryoVersion.FLINK_1)
    for number, name in ((0, "com.acme.Bag"), (1, list_class)):
        out.varint(1)
        out.varint(number)
        out.string(name)
        out.varint(1)
    out.varint(0)
    return out.out.to_bytes()


def rows_of(java_class: str, values: list[bytes]) -> dict[str, list[Any]]:
    """Values of a state, decoded where each one's end is known."""
    serializer = restore_bounded(kryo_snapshot(java_class))
    layout = KeyedLayout(StateKind.VALUE, LongSerializer(), VoidNamespaceSerializer(), serializer)
    parts = [
        part for at, value in enumerate(values) for part in (at.to_bytes(8, "big") + b"\0", value)
    ]
    bounds = np.cumsum([0, *map(len, parts)]).astype(np.int64)
    entries = Entries(
        np.frombuffer(b"".join(parts), np.uint8),
        np.zeros(len(values), np.int16),
        np.zeros(len(values), np.int64),
        bounds[:-1:2].copy(),
        bounds[1::2].copy(),
        bounds[1::2].copy(),
        bounds[2::2].copy(),
        lambda position: f"byte {position}",
    )
    batch = layout.decode(entries)
    assert layout.value_writer(batch).to_binary().to_pylist() == values
    return batch.select(["value", "raw_value"]).to_pydict()


class TestAmongOthers:
    """Values whose ends are known."""

    def test_an_unknown_class_is_null_and_bytes(self) -> None:
        """It ends no import, though all that the field's type says is known."""
        declare_classes({"flink": 1, "classes": BAG})
        unknown = bag_of("java.util.Collections$UnmodifiableRandomAccessList")
        rows = rows_of("com.acme.Bag", [bag_of(ARRAY_LIST), unknown])
        assert rows == {"value": [{"items": []}, None], "raw_value": [None, unknown]}

    @pytest.mark.parametrize(("said", "is_of"), [(1, 2), (2, 1)])
    def test_a_wrong_version_is_told(self, said: int, is_of: int) -> None:
        """And not that the snapshot is damaged."""
        declare_classes({"flink": said})
        with pytest.raises(IncompatibleError, match=f"say `flink: {is_of}`"):
            rows_of(UUID, [written(UUID, ID, is_of)])


class TestHostile:
    """Few bytes that ask for much."""

    def test_a_text_in_many_places(self) -> None:
        """Its characters count each time."""
        declare_classes({"flink": 1})
        text = Item(TEXT, "ab" * 15_000)
        data = written(ARRAY_LIST, [text] * 30_000)
        assert len(data) < 130_000
        assert decoder_of(ARRAY_LIST).decode(data) is None
        few = [Item(TEXT, "paid")] * 300
        assert decoder_of(ARRAY_LIST).decode(written(ARRAY_LIST, few)) is not None

    def test_nulls_that_take_no_bytes(self) -> None:
        """They are counted in all of a value."""
        out = KryoOutput(KryoVersion.FLINK_2)
        out.varint(1)
        out.varint(0)
        out.string(ARRAY_LIST, always=True)
        out.varint(1)
        out.flagged(True, 3)
        out.varint(1)
        out.varint(0)
        out.out.write_boolean(False)
        for _ in range(2):
            out.varint(1)
            out.flagged(True, 40_001)
            out.varint(0)
        declare_classes({"flink": 2})
        values = decoder_of(ARRAY_LIST).values
        with pytest.raises(OversizedError, match="elements that take no bytes"):
            values.read(out.out.to_bytes())

    def test_long_names_of_classes(self) -> None:
        """They are no classes, and are not gone through for each element."""
        declare_classes({"flink": 2})
        out = KryoOutput(KryoVersion.FLINK_2)
        out.varint(1)
        out.varint(0)
        out.string("[" * 60_000 + "I", always=True)
        out.varint(1)
        out.varint(20_001)
        out.out.write_bytes(bytes(20_000))
        with pytest.raises(UnsupportedFormatError, match="name has 60001 characters"):
            decoder_of(ARRAY_LIST).values.read(out.out.to_bytes())
        classes = Classes({}, frozenset(), frozenset({"a.Tier"}), {})
        bodies = ("a.Tier", "a.Tier$1", "a.Tier$12", "a.Tier$x", "a.Tier$", "a.Other$1")
        assert [classes.enum_of(name) for name in bodies] == ["a.Tier"] * 3 + [""] * 3

    @pytest.mark.parametrize("levels", [30, 40, 255, 3000])
    def test_arrays_of_arrays(self, levels: int) -> None:
        """A class as deep as any string says is a column, or bytes."""
        declare_classes({"flink": 1})
        serializer = restore_bounded(kryo_snapshot("[" * levels + "I"))
        assert isinstance(serializer, DecodedSerializer | OpaqueSerializer)
        assert isinstance(serializer, DecodedSerializer) or levels > 30

    @pytest.mark.parametrize("flink", [1, 2])
    def test_numbers_of_many_digits(self, flink: int) -> None:
        """Python makes no text of them, so they are bytes."""
        declare_classes({"flink": flink})
        many = 10**5000
        for java_class, value in (
            ("java.math.BigInteger", many),
            ("java.math.BigDecimal", (many, 3)),
            (ARRAY_LIST, [Item("java.math.BigInteger", many)]),
            (ARRAY_LIST, [Item("java.math.BigDecimal", (many, 3))]),
        ):
            data = written(java_class, value, flink)
            assert decoder_of(java_class).decode(data) is None
            assert rows_of(java_class, [data])["raw_value"] == [data]
        kept = written(ARRAY_LIST, [Item("java.math.BigInteger", 10**4200)], flink)
        assert decoder_of(ARRAY_LIST).encode(decoder_of(ARRAY_LIST).decode(kept)) == kept

    def test_a_snapshot_that_registers_nothing(self) -> None:
        """There is no place for the mark of Flink 2."""
        with pytest.raises(UnsupportedFormatError, match="registers no class"):
            kryo_snapshot(UUID).for_flink_2()


def test_keys_stay_bytes() -> None:
    """Entries are found by them, and equal values may have several."""
    declare_classes({"flink": 1})
    for java_class in (UUID, ARRAY_LIST):
        assert isinstance(restore_bounded(kryo_snapshot(java_class)), DecodedSerializer)
        key = restore_key(kryo_snapshot(java_class))
        assert isinstance(key, OpaqueSerializer)
        assert encode_key(key, b"T\1\x94", 128).encoded == b"T\1\x94"


class TestDeclarations:
    """What a table keeps of them."""

    def described(self, java_class: str, said: dict[str, Any], nested: bool) -> str:
        """The type that is kept."""
        declare_classes(said)
        serializer = restore_bounded(kryo_snapshot(java_class))
        return described_type(PojoSerializer("a.A", [("x", serializer)]) if nested else serializer)

    @pytest.mark.parametrize("nested", [False, True])
    def test_all_that_matters_counts(self, nested: bool) -> None:
        """The version, fields and constants within; not what is declared of others."""
        tier = {"com.acme.Tier": {"enum": ["A", "B"]}}
        shop = {"com.acme.Shop": {"fields": {"tiers": "List<com.acme.Tier>", "x": "int"}}}
        variants = [
            {"flink": 1, "classes": {**shop, **tier}},
            {"flink": 2, "classes": {**shop, **tier}},
            {"flink": 1, "classes": {**shop, "com.acme.Tier": {"enum": ["B", "A"]}}},
            {"flink": 1, "classes": {**shop, "com.acme.Tier": {
                "enum": ["A", "B"], "final": False}}},
            {"flink": 1, "classes": {**tier, "com.acme.Shop": {"fields": {
                "tiers": "Set<com.acme.Tier>", "x": "int"}}}},
            {"flink": 1, "types": {"com.acme.Shop": "com.acme.Shop<Long>"},
             "classes": {**shop, **tier}},
        ]  # fmt: skip
        kept = set()
        for variant in variants:
            forget_declarations()
            kept.add(self.described("com.acme.Shop", variant, nested))
        assert len(kept) == len(variants)
        forget_declarations()
        more = {"flink": 1, "classes": {**shop, **tier, **BAG}}
        assert self.described("com.acme.Shop", more, nested) in kept

    def test_what_may_be_anything_depends_on_all(self) -> None:
        """A list of what nobody says may have any class within."""
        first = self.described(ARRAY_LIST, {"flink": 1}, nested=False)
        forget_declarations()
        assert self.described(ARRAY_LIST, {"flink": 1, "classes": BAG}, nested=False) != first
