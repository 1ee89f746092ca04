"""Real Flink 1.20 restores what words made of a savepoint, with a class that has new fields."""

from __future__ import annotations

from pathlib import Path

import pytest

from statelake import Lake
from tests.integration.flink.distribution import JAVA_SOURCES
from tests.integration.flink.oracle import FlinkOracle, sorted_lines
from tests.support.savepoints.golden_cases import golden_cases

pytestmark = [pytest.mark.flink, pytest.mark.full]

OLD = "1.20.0"
ADDED = {
    "public Color color;": "public Color color;\n        public String country;\n"
    "        public int points;",
    'fields.put("color", Types.ENUM(Color.class));': 'fields.put("color", Types.ENUM(Color.class));'
    '\n        fields.put("country", Types.STRING);\n        fields.put("points", Types.INT);',
    "public Double balance;": "",
    'fields.put("balance", Types.DOUBLE);': "",
    "public String name;": "public String fullName;",
    'fields.put("name", Types.STRING);': 'fields.put("fullName", Types.STRING);',
}


def new_class(to: Path) -> Path:
    """`Judge.java`, whose customers have other fields."""
    text = (JAVA_SOURCES / "Judge.java").read_text("utf-8")
    for old, new in ADDED.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    source = to / "Judge.java"
    source.write_text(text, "utf-8")
    return source


def test_fields_in_words_are_what_the_new_class_has(tmp_path: Path) -> None:
    """Added with defaults, renamed and dropped; every other value is kept."""
    (golden,) = (
        case
        for case in golden_cases("pojo", form="canonical")
        if case.facts["flink"] == OLD and case.facts["backend"] == "hashmap"
    )
    shop = Lake(tmp_path / "lake").job("shop", engine="local")
    shop.import_snapshot(golden.snapshot, "one", uids=["customers"])
    state = "customers/customer"
    made = shop["one"].migrate(
        add_field=[f"{state}.country=String", f"{state}.points=int"],
        default=["'DE'", "coalesce(old.id, 0) + 1"],
        rename_field=f"{state}.name=fullName",
        drop_field=f"{state}.balance",
    )
    shop[made.made].export(tmp_path / "new")
    expected = golden.expected()
    for line in expected:
        customer = line["customer"]
        customer |= {"country": "DE", "points": (customer["id"] or 0) + 1}
        customer["fullName"] = customer.pop("name")
        del customer["balance"]
    with FlinkOracle(OLD, changed=[new_class(tmp_path)]) as flink:
        lines = flink.restore("pojo", tmp_path / "new", keys=golden.facts["keys"])
    assert sorted_lines(lines) == sorted_lines(expected)
