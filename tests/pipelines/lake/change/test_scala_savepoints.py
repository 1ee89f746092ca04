"""Savepoints of jobs with flink-scala-api: read, edited, upgraded to what new versions read.

`last` is of 2.2.4, `first` of 1.2.4; what the library printed of both stands in `lines.txt`.
"""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import statelake as sl
from statelake import open_snapshot
from statelake.pipelines.cli.main import main
from statelake.pipelines.lake.change.migrating import value_type
from statelake.state_core.model.snapshot import Operator
from statelake.state_core.serializers.scala.flinkx_parts import is_older
from tests.support.savepoints.golden_cases import GOLDEN

FLINKX = GOLDEN / "flinkx"
LINES = (FLINKX / "lines.txt").read_text("utf-8").splitlines()
SAVEPOINTS = pytest.mark.parametrize("name", ["last", "first"])
STATES = ("amounts", "customer", "events")


def run(*words: str | Path) -> int:
    """The command's exit code."""
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return int(left.value.code or 0)


def operator_of(savepoint: Path) -> Operator:
    """The one with keyed state."""
    (found,) = (each for each in open_snapshot(savepoint).operators if each.keyed_states)
    return found


def rows_of(savepoint: Path, state: str) -> dict[int, Any]:
    """The values by the number in the key; of a map's one entry."""
    table = operator_of(savepoint).state(state).to_arrow()
    keys = [key["f1"] for key in table.column("key").to_pylist()]
    return dict(zip(keys, table.column("value").to_pylist(), strict=True))


def decimal(value: Any) -> str:
    """As Scala prints it."""
    return f"{Decimal(value).normalize():f}"


def event_text(event: dict[str, Any]) -> str:
    """As Scala prints an event."""
    if event["type"] == "Click":
        return f"Click({event['Click']['f0']},{event['Click']['f1']})"
    if event["type"] == "Purchase":
        return f"Purchase({decimal(event['Purchase']['f0'])})"
    return str(event["type"])


def text_of(number: int, customer: dict[str, Any], events: list[Any], amount: Any) -> str:
    """The line that the job prints of a key."""
    tags = ", ".join(customer["f2"])
    scores = ", ".join(f"{name} -> {score}" for name, score in customer["f3"])
    street, zip_code = customer["f4"].values()
    place = f"Address({street},{'None' if zip_code is None else f'Some({zip_code})'})"
    seen = ", ".join(map(event_text, customer["f5"]))
    either = customer["f7"]
    contact = f"Left({either['left']})" if either["is_left"] else f"Right({either['right']})"
    name = "null" if customer["f1"] is None else customer["f1"]
    whole = (
        f"Customer({customer['f0']},{name},List({tags}),Map({scores}),{place},Vector({seen}),"
        f"{customer['f6']},{contact})"
    )
    held = ", ".join(map(event_text, events))
    shown = "None" if amount is None else f"Some({decimal(amount)})"
    return f"{number} {whole} [{held}] {shown} false"


def lines_of(savepoint: Path) -> list[str]:
    """What the job would print of the savepoint."""
    customers, events, amounts = (
        rows_of(savepoint, name) for name in ("customer", "events", "amounts")
    )
    return [
        text_of(number, customers[number], events[number], amounts[number])
        for number in sorted(customers)
    ]


@SAVEPOINTS
def test_values_are_what_the_library_prints(name: str) -> None:
    """All of them: case classes, sealed traits, collections, options, UUIDs, decimals."""
    assert lines_of(FLINKX / name) == LINES


def test_inspect_shows_the_types(capsys: pytest.CaptureFixture[str]) -> None:
    """With the case classes' names, and Scala's of collections."""
    assert run("inspect", FLINKX / "last") == 0
    shown = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "keyed by scala.Tuple2<String, Integer>" in shown
    assert "String → Option<scala.BigDecimal>" in shown
    assert "SealedTrait<Click<String, Long>, Purchase<scala.BigDecimal>, " in shown
    assert "scala.List<String>, scala.Map<String," in shown
    assert "Address<String, Option<Integer>>" in shown


def test_the_page_on_types_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Line by line."""
    page = (Path(__file__).parents[4] / "docs" / "types.md").read_text("utf-8")
    block = page.split("names them as in Scala:\n\n```text\n")[1].split("```")[0]
    assert run("inspect", FLINKX / "last") == 0
    assert block in capsys.readouterr().out


def test_keys_are_where_scala_hashes_them(capsys: pytest.CaptureFixture[str]) -> None:
    """Tuples since 1.2.7, which is of Scala 2.13 and 3 only."""
    assert run("check", "integrity", FLINKX / "last") == 0
    assert "36 keys hashed" in capsys.readouterr().out


@SAVEPOINTS
def test_an_exported_savepoint_is_as_it_was(name: str, tmp_path: Path) -> None:
    """Each value comes back byte for byte, and each serializer's snapshot."""
    job = sl.Lake(tmp_path / "lake").job("scala", engine="local")
    job.import_snapshot(FLINKX / name, "monday")
    job["monday"].export(tmp_path / "out")
    for state in STATES:
        before, after = (
            operator_of(path).state(state) for path in (FLINKX / name, tmp_path / "out")
        )
        assert after.meta_info == before.meta_info
        assert after.to_arrow().equals(before.to_arrow())


def test_a_field_of_a_case_class_is_edited(tmp_path: Path) -> None:
    """By SQL, as any struct: the other values stay."""
    job = sl.Lake(tmp_path / "lake").job("scala", engine="local")
    job.import_snapshot(FLINKX / "last", "monday", uids=["customers"])
    job["monday"].edit_sql(
        "edited",
        "UPDATE customers.customer SET value = struct_update(value, f1 := 'new',"
        " f4 := struct_update(value.f4, f1 := NULL)) WHERE key.f1 = 4",
    )
    job["edited"].export(tmp_path / "out")
    before, after = (rows_of(path, "customer") for path in (FLINKX / "last", tmp_path / "out"))
    assert after.pop(4) == before[4] | {"f1": "new", "f4": before[4]["f4"] | {"f1": None}}
    before.pop(4)
    assert after == before


def test_upgrade_has_nothing_to_do_for_what_flink_2_reads(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The library's classes and bytes are the same in Flink 1 and 2, since 1.2.7."""
    assert run("upgrade", FLINKX / "last", "--to-flink", "2.3") == 0
    assert "nothing was found that Flink 2 can't restore" in capsys.readouterr().out


def test_upgrade_renews_the_snapshots_of_old_versions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """2.2.3 and later do not read those of before 1.2.7; the values stay as they are."""
    assert run("upgrade", FLINKX / "first", "--to-flink", "2.3") == 1
    assert "3 states that Flink 2 can't restore" in capsys.readouterr().out
    out = tmp_path / "out"
    assert run("upgrade", FLINKX / "first", "--to-flink", "2.3", "--to", out) == 0
    assert lines_of(out) == LINES
    for state in STATES:
        before, after = (operator_of(path).state(state) for path in (FLINKX / "first", out))
        assert is_older(value_type(before.meta_info))
        assert not is_older(value_type(after.meta_info))
        assert after.to_arrow().equals(before.to_arrow())
    assert run("upgrade", out, "--to-flink", "2.3") == 0
