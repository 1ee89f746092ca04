"""A report in headless Chromium: no request, no complaint, and a script that computes as Flink."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from statelake.pipelines.report.contents import Report
from statelake.pipelines.report.gathering import savepoint_report
from statelake.pipelines.report.page import page_of
from statelake.pipelines.requests.reading import SavepointPage
from statelake.state_core.formats.description import OperatorDescription, StateDescription
from statelake.state_core.model.redistribution import plan_key_groups
from statelake.state_core.printable import bytes_text, printable
from tests.support.browser import chromium, opened
from tests.support.lakes import DEMO
from tests.support.savepoints.hostile_names import HOSTILE, hostile_savepoint

pytestmark = pytest.mark.browser

Rows = list[list[str]]


def reported(savepoint: str, limit: int, *, check: bool = False) -> Report:
    """The report of a savepoint."""
    return savepoint_report(SavepointPage(savepoint, "page.html", limit=limit, check=check))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests of this module."""
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def report() -> Report:
    """That of the demo's savepoint."""
    return reported(str(DEMO / "monday"), 5, check=True)


def written(path: Path, report: Report) -> Path:
    """The page of a report as a file."""
    path.write_text(page_of(report), "utf-8")
    return path


def subtasks(page: Page, number: int = 0) -> Rows:
    """The rows that a subtask has each."""
    rows: Rows = page.eval_on_selector_all(
        f"#subtasks-{number} tr",
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))",
    )
    return rows


def expected(operator: OperatorDescription, parallelism: int, shown: int = 100) -> Rows:
    """The same as Flink assigns key groups, and Python writes numbers."""
    plan = plan_key_groups(operator.key_groups, operator.max_parallelism, parallelism)
    return [
        [
            str(subtask.subtask), f"{subtask.first} to {subtask.last}", f"{subtask.entries:,}",
            bytes_text(subtask.state_bytes),
        ]
        for subtask in plan[:shown]
    ]  # fmt: skip


@pytest.mark.parametrize("ci", ["true", ""], ids=["in CI", "elsewhere"])
def test_no_chromium_is_a_failure_in_ci_and_said_elsewhere(
    ci: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In CI nothing is skipped; either way it says how to get one."""
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CI", ci)
    raised = FileNotFoundError if ci else pytest.skip.Exception
    with pytest.raises(raised, match="apt-get install chromium"), chromium():
        pass


@pytest.mark.thinned(4)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1100, 390], ids=["desk", "phone"])
@pytest.mark.full
def test_it_opens_without_a_network(
    browser: Browser, report: Report, tmp_path: Path, width: int, dark: bool
) -> None:
    """No request but for itself, no complaint, as wide as the window, in the user's colours."""
    path = written(tmp_path / "report.html", report)
    with opened(browser, path, width=width, dark=dark) as seen:
        assert seen.page.title() == "State of monday"
        assert seen.page.evaluate("document.documentElement.scrollWidth") == width
        paper = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(20, 24, 29)" if dark else "rgb(255, 255, 255)")
        assert seen.page.locator("svg rect").count() == 128
        assert seen.requests == [path.as_uri()]
        assert seen.complaints == []


@pytest.mark.full
def test_the_script_says_what_python_says(browser: Browser, report: Report, tmp_path: Path) -> None:
    """At the snapshot's own parallelism the script writes the table again as it was."""
    path = written(tmp_path / "report.html", report)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    without = page.inner_text("main")
    context.close()
    with opened(browser, path) as seen:
        assert seen.page.inner_text("main") == without
        assert subtasks(seen.page) == expected(report.operators[0], 2)


@pytest.mark.full
def test_another_parallelism_gives_what_flink_assigns(
    browser: Browser, report: Report, tmp_path: Path, vectors: Path
) -> None:
    """Row by row, its skew, and the colours of the bars; real Flink's own vectors at 3."""
    operator = report.operators[0]
    with opened(browser, written(tmp_path / "report.html", report)) as seen:
        for parallelism in (1, 3, 5, 7, 64, 100, 127, 128):
            seen.page.fill("#parallelism-0", str(parallelism))
            assert subtasks(seen.page) == expected(operator, parallelism)
            load = operator.load(parallelism)
            summary = seen.page.inner_text("#summary-0")
            assert summary.startswith(f"At parallelism {parallelism}: ")
            assert f"; skew {load.skew:.3f};" in summary
            colours = seen.page.eval_on_selector_all(
                "#groups-0 rect", "bars => bars.map(bar => bar.getAttribute('class'))"
            )
            assert colours == [
                ("first", "second")[subtask.subtask % 2]
                for subtask in load.subtasks
                for _ in range(subtask.first, subtask.last + 1)
            ]
            more = "… and 28 more" if parallelism == 128 else "… and 27 more"
            assert seen.page.inner_text("#more-0") == (more if parallelism > 100 else "")
        seen.page.fill("#parallelism-0", "3")
        owners = {
            group: int(subtask)
            for subtask, groups, *_ in subtasks(seen.page)
            for group in range(int(groups.split(" to ")[0]), int(groups.split(" to ")[1]) + 1)
        }
        told = json.loads((vectors / "keygroups.json").read_text("utf-8"))
        assert len(told) > 100
        assert all(owners[key["kg128"]] == key["op128p3"] for key in told)
        assert seen.complaints == []


def test_no_parallelism_that_is_none(browser: Browser, report: Report, tmp_path: Path) -> None:
    """It says which there are, leaves the table, and sends nothing."""
    with opened(browser, written(tmp_path / "report.html", report)) as seen:
        for typed in ("0", "129", "-1", "1.5", ""):
            seen.page.fill("#parallelism-0", typed)
            said = seen.page.inner_text("#summary-0")
            assert said == "The parallelism is a whole number from 1 to 128."
            assert subtasks(seen.page) == expected(report.operators[0], 2)
        seen.page.press("#parallelism-0", "Enter")
        assert len(seen.requests) == 1
        assert seen.complaints == []


def test_many_key_groups_and_numbers_between_two(browser: Browser, tmp_path: Path) -> None:
    """Several key groups to a bar; sizes between two decimals are rounded as Python does."""
    groups = 1000
    sizes = np.arange(groups, dtype=np.int64) % 7 * 320 + 1280  # 1.25, 1.5625, ... KiB
    entries = np.ones(groups, np.int64)
    state = StateDescription(
        "s", "value", "Long", value_type="Long", entries=groups, size=int(sizes.sum()),
        key_groups=np.stack([np.arange(groups), entries, sizes]),
    )  # fmt: skip
    operator = OperatorDescription(
        "0" * 32,
        "o",
        "",
        3,
        groups,
        keyed_states=(state,),
        key_groups=state.key_groups,
        counted=True,
    )
    path = written(tmp_path / "report.html", Report("t", (), (operator,)))
    with opened(browser, path) as seen:
        assert seen.page.locator("#groups-0 rect").count() == 250
        for parallelism in (3, 400, 1000):
            seen.page.fill("#parallelism-0", str(parallelism))
            assert subtasks(seen.page) == expected(operator, parallelism)
        assert "1.2 KiB" in seen.page.inner_text("#subtasks-0")
        assert seen.complaints == []


@pytest.mark.full
def test_a_hostile_snapshot_runs_nothing(browser: Browser, tmp_path: Path) -> None:
    """Its names are read as they are, no script of theirs runs, and nothing is asked for."""
    gathered = savepoint_report(
        SavepointPage(str(hostile_savepoint(tmp_path / "sp")), "page.html", limit=20, check=True)
    )
    path = written(tmp_path / "report.html", gathered)
    with opened(browser, path) as seen:
        headlines = seen.page.locator("h2[id]").all_text_contents()
        assert sorted(headlines) == sorted(map(printable, HOSTILE))
        cells = set(seen.page.locator("td, th").all_text_contents())
        assert cells >= {printable(name) for name in HOSTILE}
        seen.page.fill("#parallelism-0", "5")
        for link in seen.page.locator("a").all():
            link.click()
        assert seen.page.evaluate("window.broken") is None
        assert seen.page.locator("img, iframe, object, link, svg svg").count() == 0
        asked = {address.partition("#")[0] for address in seen.requests}
        assert asked == {path.as_uri()}
        assert seen.complaints == []


def test_the_policy_holds_what_escaping_would_let_through(
    browser: Browser, report: Report, tmp_path: Path
) -> None:
    """If markup of others got in all the same, its scripts, styles and pictures did nothing."""
    broken = (
        '<script>window.broken=1</script><img src="https://example.org/a.png" onerror="broken=1">'
        '<style>body{display:none}</style><svg onload="window.broken=1"></svg>'
    )
    path = tmp_path / "report.html"
    path.write_text(page_of(report).replace("<main>", f"<main>{broken}"), "utf-8")
    with opened(browser, path) as seen:
        assert seen.page.evaluate("window.broken") is None
        assert seen.page.evaluate("getComputedStyle(document.body).display") == "block"
        assert seen.requests[1:] == seen.refused == ["https://example.org/a.png"]
        assert len(seen.complaints) >= 3
        assert all("Content Security Policy" in told for told in seen.complaints)
        assert subtasks(seen.page) == expected(report.operators[0], 2)
