"""What commands print is what is there, whatever names look like."""

from __future__ import annotations

import pytest

from pipelines.cli.commands.terminal import print_table, tell


def test_a_name_that_looks_like_markup(capsys: pytest.CaptureFixture[str]) -> None:
    """It is printed, and no part of it is taken for a style."""
    tell("wrote /sp/[bold]1[/bold] of [red]", marked="[bold]1")
    print_table("of [i]x", ("<name", ">entries"), [("[kafka, orders, 0]", "1")])
    said = capsys.readouterr().out
    for name in ("wrote /sp/[bold]1[/bold] of [red]", "of [i]x", "[kafka, orders, 0]"):
        assert name in said


def test_a_long_line_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """What a script reads is not folded."""
    tell("x" * 500)
    assert capsys.readouterr().out == "x" * 500 + "\n"
