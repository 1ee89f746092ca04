"""What the Dagster UI shows of names that anybody may have chosen."""

from __future__ import annotations

from dataclasses import replace

import dagster as dg
import numpy as np
import pytest

from statelake import open_snapshot
from statelake.pipelines.orchestration.metadata import (
    faults_list,
    printed_table,
    savepoint_metadata,
)
from statelake.pipelines.orchestration.resources import Locations
from statelake.pipelines.report.drawing import key_group_chart
from statelake.pipelines.shown import as_markdown
from statelake.state_core.runtime.declarations.findings import Finding, JobFindings, Severity
from tests.support.lakes import WORDS

ODD = "a|b\n<img src=x>![p](http://x)`\x1b[31m\u202e&"
SHOWN = "a\\|b\\\\n&lt;img src=x&gt;!\\[p\\](http://x)\\`\\\\x1b\\[31m\\\\u202e&amp;"


def test_names_are_no_markup() -> None:
    """No column more, no picture from elsewhere, no HTML, nothing that can't be seen."""
    assert as_markdown(ODD) == SHOWN
    assert as_markdown("größe `键😀`") == "größe \\`键😀\\`"


def test_options_of_a_location_stay_behind_the_names_below_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of savepoints and of checkpoint logs; a path has none."""
    places = Locations(savepoints="s3://key:secret@states/in/?region=eu", checkpoints="logs/")
    assert places.savepoint("monday") == "s3://key:secret@states/in/monday?region=eu"
    assert places.checkpoint_log("nightly") == "logs/nightly"
    monkeypatch.setenv("STATELAKE_SAVEPOINTS", "what?is a path")
    assert Locations().savepoint("monday") == "what?is a path/monday"


def test_a_table_of_odd_names() -> None:
    """An operator and its states are one row, whatever they are called."""
    snapshot = open_snapshot(WORDS)
    (operator,) = (operator for operator in snapshot.operators if operator.keyed_states)
    states = tuple(replace(keyed_state, name=ODD) for keyed_state in operator.keyed_states)
    odd = replace(operator, uid=ODD, name=ODD, keyed_states=states)
    shown = savepoint_metadata(replace(snapshot, operators=(odd,)))["operators"]
    assert isinstance(shown, dg.MarkdownMetadataValue)
    _, _, row = str(shown.md_str).split("\n")
    assert row.count(SHOWN) == 2 + len(states)
    assert row.replace("\\|", "").count("|") == 7


def test_faults_and_findings_of_odd_names() -> None:
    """A fault is one line of a list; a finding one row."""
    faults = faults_list([ODD, "b"])
    assert faults.value == f"- {SHOWN}\n- b"
    assert faults_list([]).value == "none"
    found = Finding(Severity.FAULT, "rule", ODD, "problem", "remedy", state=ODD)
    shown = str(printed_table(JobFindings([found]).table).value)
    assert shown.count("\n") == 2
    assert shown.count(SHOWN) == 2


@pytest.mark.parametrize("title", ["of $x$", "of $\\frac", "of [a](b)\x1b", "of <b>"])
def test_a_picture_of_an_operator_of_any_name(title: str) -> None:
    """Brackets are no link, and what stands below the picture is no markup."""
    shown = key_group_chart(np.array([1, 2, 3]), 1).markdown(title)
    assert shown.startswith(f"![{as_markdown(title)}](data:image/svg+xml;base64,")
