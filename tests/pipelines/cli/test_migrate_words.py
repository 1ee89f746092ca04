"""Migrations in words: fields added, renamed, dropped, of other types; none is lost unsaid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statelake import Lake, LakeSnapshot
from statelake.pipelines.api import Job
from statelake.state_core.errors import (
    DeclarationError,
    IncompatibleError,
    NotFoundError,
    StateError,
)
from tests.support.command import run
from tests.support.lakes import DEMO
from tests.support.savepoints.golden_cases import GOLDEN

pytestmark = pytest.mark.thinned(2)

POJO = GOLDEN / "flink" / "pojo-hashmap-canonical-p2-m128-flink1.20.0" / "savepoint"
CUSTOMER = "customers/customer"


@pytest.fixture
def shop(tmp_path: Path) -> Job:
    """A job of a lake, with a snapshot of customers that are POJOs."""
    job = Lake(tmp_path / "lake").job("shop", engine="local")
    job.import_snapshot(POJO, "one", uids=["customers"])
    return job


def values(snapshot: LakeSnapshot, state: str = CUSTOMER) -> dict[Any, Any]:
    """The values of a state, by key."""
    operator, _, name = state.partition("/")
    rows = snapshot[operator][name].to_arrow().select(["key", "value"]).to_pylist()
    return {row["key"]: row["value"] for row in rows}


def zip_of(value: dict[str, Any]) -> int:
    """The default of a field in a test."""
    address = value["address"]
    return 7 if address is None else int(address["zip"])


def test_fields_are_added_with_a_default_or_as_java_begins(shop: Job) -> None:
    """No other field has to be named, and each keeps its values."""
    words = [f"{CUSTOMER}.{field}" for field in ("country=String", "points=int", "level=Integer")]
    made = shop["one"].migrate(
        add_field=words, default=["'DE'", "coalesce(old.address.zip, 7)", "NULL"]
    )
    assert (made.why.count("by an expression"), "as Java has it" in made.why) == (3, False)
    before, after = values(shop["one"]), values(shop[made.made])
    assert len(before) > 10
    assert after == {
        key: value | {"country": "DE", "points": zip_of(value), "level": None}
        for key, value in before.items()
    }
    made = shop["one"].migrate(add_field=words, suffix="-plain")
    assert made.why.count("the field is new, and begins as Java has it") == 3
    assert values(shop[made.made]) == {
        key: value | {"country": None, "points": 0, "level": None} for key, value in before.items()
    }


def test_fields_are_renamed_dropped_and_widened_in_several_states_at_once(shop: Job) -> None:
    """Also fields of a POJO in a POJO, and of a list's elements; in one new snapshot."""
    made = shop["one"].migrate(
        add_field=f"{CUSTOMER}.points=int",
        rename_field=[f"{CUSTOMER}.name=full_name", f"{CUSTOMER}.address.street=road"],
        drop_field=f"{CUSTOMER}.balance",
        change=[f"{CUSTOMER}.address.zip=Long", "customers/past.zip=String"],
        expression=f"{CUSTOMER}.id=old.id * 10",
    )
    before, after = values(shop["one"]), values(shop[made.made])
    for key, value in before.items():
        address = value.pop("address")
        moved = address and {"road": address["street"], "zip": address["zip"]}
        value |= {"full_name": value.pop("name"), "address": moved, "points": 0}
        value["id"] = value["id"] and value["id"] * 10
        del value["balance"]
        assert after[key] == value
    past = [values(shop[name], "customers/past") for name in ("one", made.made)]
    assert past[1] == {
        key: [each | {"zip": str(each["zip"])} for each in elements]
        for key, elements in past[0].items()
    }
    assert [record.snapshot_id for record in shop.snapshots()] == ["one", "one-migrated"]


def test_a_whole_value_becomes_another_type(tmp_path: Path) -> None:
    """Over all snapshots of a job; a second run finds what the first has made."""
    orders = Lake(tmp_path / "lake").job("orders", engine="local")
    for name in ("monday", "tuesday"):
        orders.import_snapshot(DEMO / name, name)
    words = {"change": ["kinds/total=Double"], "expression": ["kinds/total=old / 100"]}
    first = orders.migrate(**words)
    assert [each.outcome for each in first.outcomes] == ["migrated", "migrated"]
    assert first.states == ["kinds/total"]
    assert first.outcomes[0].why == "Long → Double: by an expression"
    assert [each.outcome for each in orders.migrate(**words).outcomes] == ["migrated before"] * 2
    before = values(orders["tuesday"], "kinds/total")
    after = values(orders["tuesday-migrated"], "kinds/total")
    assert after == {key: value / 100 for key, value in before.items()}


def test_a_field_that_a_file_leaves_out_is_asked_for_by_name(shop: Job, tmp_path: Path) -> None:
    """Nothing is made, until a word or the file says that it goes."""
    text = shop["one"].types().to_yaml()
    path = tmp_path / "types.yaml"
    path.write_text(text.replace("        balance: Double\n", ""), "utf-8")
    for dry_run in (True, False):
        with pytest.raises(IncompatibleError, match=r"lacks 'balance'.*--drop-field") as refused:
            shop["one"].migrate(str(path), dry_run=dry_run)
        assert f"{CUSTOMER}.balance" in str(refused.value)
    words = ("--lake", shop.lake.catalog.location, "--job", "shop", "--snapshot", "one")
    assert run("migrate", *words, "--to", path).code == 1
    assert run("migrate", *words, "--to", path, "--drop-field", f"{CUSTOMER}.balance").code == 0
    assert "balance" not in next(iter(values(shop["one-migrated"]).values()))
    marked = "    type:\n      pojo: Judge$Customer"
    path.write_text(
        path.read_text("utf-8").replace(marked, f"    drop: [balance]\n{marked}", 1), "utf-8"
    )
    assert shop["one"].migrate(str(path), suffix="-2").outcome == "migrated"


def test_a_field_that_an_expression_uses_is_not_lost(shop: Job, tmp_path: Path) -> None:
    """Its values are in another one."""
    path = tmp_path / "types.yaml"
    text = (
        shop["one"].types().to_yaml().replace("        balance: Double\n", "        cents: Long\n")
    )
    path.write_text(text, "utf-8")
    words = f"{CUSTOMER}.cents=CAST(old.balance * 100 AS BIGINT)"
    assert shop["one"].migrate(str(path), expression=words).outcome == "migrated"


def test_the_plan_comes_first(shop: Job) -> None:
    """Rows, states, differences in words, and an example before and after; nothing is made."""
    words = ("--lake", shop.lake.catalog.location, "--job", "shop", "--snapshot", "one")
    add = ("--add-field", f"{CUSTOMER}.country=String", "--default", "'DE'", "--dry-run")
    ran = run("migrate", *words, *add, "--json")
    ((plan,),) = [outcome["plan"] for outcome in ran.json]
    assert (plan["state"], plan["entries"]) == (CUSTOMER, len(values(shop["one"])))
    assert plan["words"] == ["field `country: String` added, 'DE'"]
    example = plan["example"]
    assert example["after"] == example["before"] | {"country": "DE"}
    shown = run("migrate", *words, *add).out
    assert "field `country: String` added, 'DE'" in shown
    assert "a dry run: nothing was changed" in shown
    assert [record.snapshot_id for record in shop.snapshots()] == ["one"]


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        ({"add_field": f"{CUSTOMER}.id=Long"}, DeclarationError, "a field 'id' of Long already"),
        ({"add_field": f"{CUSTOMER}.new=Lnog"}, StateError, "Lnog is no known type"),
        ({"add_field": f"{CUSTOMER}.new"}, DeclarationError, "is not STATE.FIELD=TYPE"),
        ({"add_field": "customers/custom.new=Long"}, NotFoundError, "begins with no state"),
        ({"drop_field": f"{CUSTOMER}.blance"}, NotFoundError, "no field 'blance'.*balance"),
        ({"rename_field": f"{CUSTOMER}.id=name"}, DeclarationError, "a field 'name' already"),
        ({"add_field": f"{CUSTOMER}.name.new=Long"}, IncompatibleError, "has no fields"),
        ({"add_field": [f"{CUSTOMER}.a=Long"], "default": ["1", "2"]}, DeclarationError, "2 def"),
        ({"change": f"{CUSTOMER}.name=Long"}, StateError, "state customers/customer, name: old"),
        ({}, DeclarationError, "give --to"),
    ],
)
def test_words_that_can_not_be_are_told(
    words: dict[str, Any], error: type[StateError], said: str, shop: Job
) -> None:
    """What is wrong, and what there is; no snapshot is made."""
    with pytest.raises(error, match=said):
        shop["one"].migrate(**words)
    assert len(shop.snapshots()) == 1
