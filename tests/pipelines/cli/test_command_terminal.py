"""What commands print is what is there, whatever names look like."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import statelake as sl
from statelake.pipelines.cli.commands.terminal import as_json, plain, print_table, tell
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.state_core.printable import Table
from tests.support.command import run
from tests.support.lakes import DEMO, KINDS, import_as


def test_a_name_that_looks_like_markup(capsys: pytest.CaptureFixture[str]) -> None:
    """It is printed, and no part of it is taken for a style."""
    tell("wrote /sp/[bold]1[/bold] of [red]", marked="[bold]1")
    print_table(Table("of [i]x", ("<name", ">entries"), [("[kafka, orders, 0]", "1")]))
    said = capsys.readouterr().out
    for name in ("wrote /sp/[bold]1[/bold] of [red]", "of [i]x", "[kafka, orders, 0]"):
        assert name in said


def test_a_long_line_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """What a script reads is not folded."""
    tell("x" * 500)
    assert capsys.readouterr().out == "x" * 500 + "\n"


UNSEEN = "a\x1b[31mb\nc\x85\u202ed\ud800"
ESCAPED = "a\\x1b[31mb\\nc\\x85\\u202ed\\ud800"


def test_names_give_a_terminal_no_orders(capsys: pytest.CaptureFixture[str]) -> None:
    """In a line, a title, a column's name and a cell: they are escaped, and one line stays one."""
    tell(f"wrote {UNSEEN}", marked=UNSEEN)
    assert capsys.readouterr().out == f"wrote {ESCAPED}\n"
    print_table(Table(UNSEEN, (f"<{UNSEEN}",), [(UNSEEN,)]))
    said = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in said] == [ESCAPED] * 3


def test_a_cell_of_several_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines that are meant stay lines; a name makes no more of them."""
    print_table(Table("", ("<why", "<n"), [(["one", "tw\no"], "1")]))
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert said == [["why", "n"], ["one", "1"], ["tw\\no"]]


def test_a_columns_name_that_looks_like_markup(capsys: pytest.CaptureFixture[str]) -> None:
    """A query may call its columns anything."""
    print_table(Table("", ("<[red]x", "<[/]"), [("1", "2")]))
    assert capsys.readouterr().out.split() == ["[red]x", "[/]", "1", "2"]


def test_json_is_escaped_and_the_same_value(capsys: pytest.CaptureFixture[str]) -> None:
    """What can't be seen is escaped as JSON has it, so that scripts get the very name."""
    as_json({UNSEEN: [UNSEEN]})
    said = capsys.readouterr().out
    assert json.loads(said) == {UNSEEN: [UNSEEN]}
    assert said.isascii()
    assert set(said) & {chr(code) for code in range(32)} == {"\n"}


def test_import_says_what_each_state_is(tmp_path: Path) -> None:
    """Timers have a kind and no value; no queue's name stands where values' types do."""
    said = run(
        "import", DEMO / "monday", "--lake", tmp_path / "lake", "--job", "j"
    ).out.splitlines()
    begins = {name: said[1].index(name) for name in ("kind", "value")}
    rows = {(line[begins["kind"] : begins["value"]].strip(), line[begins["value"] :].strip())
            for line in said[2:]}  # fmt: skip
    assert {("reducing", "Long"), ("map", "Double"), ("list", "Integer")} <= rows
    assert {row for row in rows if "timers" in row[0]} == {
        ("timers event_user-timers", ""), ("timers processing_user-timers", ""),
    }  # fmt: skip
    assert not any("timers" in value for _, value in rows)


def test_tables_are_listed_in_one_order(tmp_path: Path) -> None:
    """By their names, in whichever order a savepoint has the states."""
    lake = ("--lake", tmp_path / "lake", "--job", "j")
    listed = []
    for name in ("monday", "tuesday"):
        said = run("import", DEMO / name, *lake, "--snapshot", name).out.splitlines()[2:]
        listed.append([line.split()[0] for line in said if "/operator/" not in line])
        shown = run("sql", *lake, "--as-of", name, "SHOW TABLES").out.splitlines()
        own = [line.strip() for line in shown if line.startswith("j.kinds")]
        assert own == sorted(own)
    assert listed[0] == listed[1] == sorted(listed[0])


def test_a_second_import_of_a_savepoint_says_of_which_snapshot_it_is_a_copy(tmp_path: Path) -> None:
    """Under another name it is a snapshot of its own, which the next savepoint is not."""
    lake = ("--lake", tmp_path / "lake", "--job", "j")
    for name, savepoint, same in (
        ("monday", "monday", False), ("copy", "monday", True), ("tuesday", "tuesday", False),
    ):  # fmt: skip
        ran = run("import", DEMO / savepoint, *lake, "--snapshot", name)
        assert ran.code == 0, ran.err
        assert ("it is the same savepoint as monday" in ran.out) == same
    ran = run("import", DEMO / "monday", *lake, "--snapshot", "again")
    assert "it is the same savepoint as copy" in ran.out


def test_python_prints_what_the_command_prints(tmp_path: Path) -> None:
    """A result has its lines and its JSON; only the spaces between columns may differ."""
    import_as(Catalog(tmp_path), KINDS, "monday")
    plans = sl.Lake(tmp_path).job("orders")["monday"].plan_rescale(3)
    words = ("--lake", tmp_path, "--job", "orders", "--snapshot", "monday", "--parallelism", 3)
    assert run("plan-rescale", *words).out.split() == " ".join(map(str, plans)).split()
    shown = run("plan-rescale", *words, "--json").json
    assert shown == plain([plan.to_json() for plan in plans])
