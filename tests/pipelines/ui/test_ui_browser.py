"""`statelake ui` in headless Chromium: each view by clicks and by keys, and for everybody.

The pictures in the documentation are those that these tests take: run them with STATELAKE_PICTURES
set to the directory of them.
"""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

import statelake as sl
from benchmarks.audit import make_lake
from statelake.state_core.printable import printable
from tests.support.browser import Opened, chromium, opened
from tests.support.lakes import DEMO, FLINK, demo_lake
from tests.support.savepoints.hostile_names import HOSTILE, hostile_savepoint
from tests.support.served_pages import served

pytestmark = pytest.mark.browser

SQL = FLINK / "sql-hashmap-canonical-p2-m128-flink2.3.0" / "savepoint"
ENTRIES = 5_000_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests of this module."""
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's job, with two snapshots, and an erasure with its proof."""
    path = demo_lake(tmp_path_factory.mktemp("ui") / "lake", "orders")
    erasure = sl.Lake(path).erase("gdpr-4711", keys=[-783633772217], carried="keep")
    erasure.execute()
    erasure.audit()
    return path


@contextmanager
def looked(browser: Browser, *words: str | Path, dark: bool = False) -> Iterator[Opened]:
    """Open the pages of a lake or a directory; no page complains or asks for what is not ours."""
    with served(*words) as address, opened(browser, address, dark=dark) as seen:
        yield seen
        here = address.partition("?")[0]
        assert [each for each in seen.requests if not each.startswith((here, "data:"))] == []
        assert seen.complaints == []


def assert_for_everybody(seen: Opened) -> None:
    """No rule of axe-core is broken."""
    found = Axe().run(seen.page)
    assert found.violations_count == 0, found.generate_report()


def link(seen: Opened, said: str) -> None:
    """Follow the first link with that text."""
    seen.page.get_by_role("link", name=said, exact=True).first.click()


def headline(seen: Opened) -> str:
    """The page's own."""
    return seen.page.inner_text("h1")


def cells(seen: Opened, number: int = 0) -> list[list[str]]:
    """The rows of a table, as text."""
    rows: list[list[str]] = (
        seen.page.locator("table")
        .nth(number)
        .evaluate(
            "table => [...table.rows].map(row => [...row.cells].map(cell => cell.textContent))"
        )
    )
    return rows


def picture(seen: Opened, name: str) -> None:
    """Take a picture, which names no directory, where somebody asked for it."""
    if directory := os.environ.get("STATELAKE_PICTURES"):
        seen.page.set_viewport_size({"width": 1000, "height": 760})
        seen.page.evaluate("document.querySelector('header .note').textContent = 'lake'")
        seen.page.screenshot(path=Path(directory) / f"ui_{name}.png")


def sizes_of_keys(lake: Path) -> Counter[int]:
    """The bytes that all states of an operator hold for each key."""
    sums: Counter[int] = Counter()
    weighed = sl.Lake(lake).job("orders")["tuesday"].top(1000, operator="kinds")["kinds"]
    for weights in weighed.values():
        sums.update({each.key: each.size for each in weights.heaviest()})
    return sums


@pytest.mark.full
def test_snapshots_and_keys_are_found_by_clicks(browser: Browser, lake: Path) -> None:
    """From the first page to rows, a key, its history and differences."""
    sums = sizes_of_keys(lake)
    with looked(browser, lake) as seen:
        assert headline(seen) == "Snapshots"
        assert [row[0] for row in cells(seen)[1:]] == ["tuesday", "monday"]
        assert_for_everybody(seen)
        picture(seen, "snapshots")

        link(seen, "tuesday")
        assert headline(seen) == "orders, tuesday"
        assert_for_everybody(seen)
        seen.page.get_by_label("Show key groups and subtasks at parallelism").fill("5")
        seen.page.get_by_role("button", name="Show").last.click()
        assert seen.page.locator("#subtasks-0 rect").count() == 5
        seen.page.evaluate("document.querySelectorAll('h2')[3].scrollIntoView()")
        picture(seen, "snapshot")

        link(seen, "Heaviest keys")
        assert seen.page.locator("h2").first.inner_text() == "All states together"
        key = cells(seen)[1][0]
        assert sums[int(key)] == max(sums.values())
        assert_for_everybody(seen)
        link(seen, key)
        assert headline(seen) == f"Key {key}"
        assert seen.page.get_by_role("heading", name="History").count() == 1
        assert_for_everybody(seen)
        picture(seen, "key")

        link(seen, "What an erasure of this key would change")
        assert "nothing was written" in seen.page.inner_text("main")
        assert_for_everybody(seen)

        link(seen, "tuesday")
        link(seen, "total")
        assert len(cells(seen)) == 101
        assert_for_everybody(seen)
        link(seen, "Next rows")
        assert seen.page.inner_text("caption").startswith("Rows 101 to ")
        seen.page.get_by_label(re.compile("^Only where")).fill("key > 0 AND")
        seen.page.get_by_role("button", name="Filter").click()
        assert seen.page.get_by_role("alert").count() == 1
        seen.page.get_by_label(re.compile("^Only where")).fill("key < 0")
        seen.page.get_by_role("button", name="Filter").click()
        at = cells(seen)[0].index("key")
        assert all(row[at].startswith("-") for row in cells(seen)[1:])
        seen.page.go_back()
        assert seen.page.get_by_role("alert").count() == 1
        assert all("400 (Bad Request)" in told for told in seen.complaints)
        seen.complaints.clear()

        link(seen, "tuesday")
        link(seen, "From monday to tuesday")
        assert headline(seen) == "monday → tuesday"
        assert_for_everybody(seen)
        picture(seen, "diff")


@pytest.mark.full
def test_growth_erasures_and_sql_are_found_by_clicks(
    browser: Browser, lake: Path, tmp_path: Path
) -> None:
    """From the first page, too; and rows are downloaded."""
    with looked(browser, lake) as seen:
        link(seen, "orders")
        assert headline(seen) == "Growth of orders"
        assert seen.page.locator("polyline").count() == 1
        assert_for_everybody(seen)
        picture(seen, "growth")

        link(seen, "All snapshots")
        link(seen, "What was erased, and proved")
        assert seen.page.get_by_role("heading", name="gdpr-4711: audit").count() == 1
        assert_for_everybody(seen)

        link(seen, "All snapshots")
        link(seen, "monday")
        link(seen, "Query it by SQL")
        seen.page.get_by_label("SELECT that DuckDB runs").fill("SELECT count(*) FROM kinds.total")
        seen.page.get_by_role("button", name="Run").click()
        total = sl.Lake(lake).job("orders")["monday"]["kinds"]["total"].to_arrow().num_rows
        assert cells(seen)[1] == [str(total)]
        assert_for_everybody(seen)
        for name in ("CSV", "Parquet"):
            with seen.page.expect_download() as downloaded:
                link(seen, f"All rows as {name}")
            downloaded.value.save_as(tmp_path / f"rows.{name}")
        assert (tmp_path / "rows.CSV").read_text() == f"count_star()\n{total}\n"


@pytest.mark.full
def test_each_view_is_reached_by_keys_alone(browser: Browser, lake: Path) -> None:
    """What has the focus is seen, the content can be skipped to, and names are completed."""

    def focus(text: str) -> None:
        for _ in range(200):
            page.keyboard.press("Tab")
            said = page.evaluate(
                "(document.activeElement.labels?.[0] ?? document.activeElement).textContent"
            )
            if said == text:
                assert (
                    page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
                )
                return
        raise AssertionError(f"{text} is never reached")

    def enter(text: str) -> None:
        with page.expect_navigation():
            focus(text)
            page.keyboard.press("Enter")

    with looked(browser, lake) as seen:
        page = seen.page
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "content"
        enter("monday")
        focus("Key, as JSON or text")
        key = str(sl.Lake(lake).job("orders")["monday"]["kinds"]["total"].to_arrow()["key"][0])
        page.keyboard.type(key)
        with page.expect_navigation():
            page.keyboard.press("Enter")
        assert headline(seen) == f"Key {key}"
        enter("monday")
        enter("Query it by SQL")
        focus("SELECT that DuckDB runs")
        page.keyboard.type("SELECT count(*) FROM kinds.tot")
        assert page.get_by_role("option").first.inner_text() == "orders.kinds.total"
        assert "Enter or Tab inserts" in page.get_by_role("status").inner_text()
        page.keyboard.press("ArrowDown")
        chosen = page.get_by_role("option", selected=True)
        assert page.evaluate("document.activeElement.getAttribute('aria-activedescendant')") == (
            chosen.get_attribute("id")
        )
        assert_for_everybody(seen)
        picture(seen, "sql")
        page.keyboard.press("Enter")
        assert page.get_by_role("option").count() == 0
        page.keyboard.type(" WHERE ke")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Tab")
        page.keyboard.type(f" = {key} AND va")
        page.keyboard.press("Escape")
        page.keyboard.type("lue IS NOT NULL")
        query = page.input_value("textarea")
        assert query == (
            f"SELECT count(*) FROM orders.kinds.total WHERE key = {key} AND value IS NOT NULL"
        )
        with page.expect_navigation():
            page.keyboard.press("Control+Enter")
        assert cells(seen)[1] == ["1"]
        page.keyboard.press("Tab")  # the text does not keep the focus for ever
        focus("Run")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.full
def test_a_job_of_flink_sql(browser: Browser, *, dark: bool) -> None:
    """Its operators and rows out of a savepoint, on a phone, too."""
    described = sl.open_snapshot(SQL).describe()
    with looked(browser, SQL, dark=dark) as seen:
        assert headline(seen) == "This snapshot"
        text = seen.page.inner_text("main")
        assert all(operator.label in text for operator in described.operators)
        assert_for_everybody(seen)
        paper = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(20, 24, 29)" if dark else "rgb(255, 255, 255)")
        seen.page.locator("a[href^='/rows?']").first.click()
        assert len(cells(seen)) > 1
        assert_for_everybody(seen)
        seen.page.set_viewport_size({"width": 390, "height": 800})
        assert seen.page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.full
def test_five_million_entries(browser: Browser, tmp_path: Path) -> None:
    """The first rows and the last, a filter, a key, a sum, and what a whole state's keys weigh."""
    make_lake(tmp_path, ENTRIES, 2)
    with looked(browser, tmp_path / "lake") as seen:
        link(seen, "s1")
        link(seen, "count")
        assert len(cells(seen)) == 101
        here = seen.page.url
        seen.page.goto(f"{here}&page={ENTRIES // 100 - 1}")
        assert len(cells(seen)) == 101
        assert seen.page.get_by_role("link", name="Next rows").count() == 0
        seen.page.get_by_label(re.compile("^Only where")).fill("key = 'key-000000000042'")
        seen.page.get_by_role("button", name="Filter").click()
        link(seen, "key-000000000042")
        assert headline(seen) == 'Key "key-000000000042"'
        link(seen, "s1")
        link(seen, "Query it by SQL")
        seen.page.get_by_label("SELECT that DuckDB runs").fill("SELECT count(*) FROM counter.count")
        seen.page.get_by_role("button", name="Run").click()
        assert cells(seen)[1] == [str(ENTRIES)]
        link(seen, "s1")
        link(seen, "Heaviest keys")
        assert f"{ENTRIES:,} entries of {ENTRIES:,} keys" in seen.page.inner_text("main")


@pytest.mark.full
def test_a_hostile_snapshot_runs_nothing(browser: Browser, tmp_path: Path) -> None:
    """Its names and values are read as they are, and no script but ours runs."""
    path = hostile_savepoint(tmp_path / "sp")
    with looked(browser, path) as seen:
        headlines = seen.page.locator("h2").all_text_contents()
        assert {f"Operator {printable(name)}" for name in HOSTILE} <= set(headlines)
        links = seen.page.locator("main a").evaluate_all("all => all.map(each => each.href)")
        assert any("/rows?" in each for each in links)
        assert any("/top?" in each for each in links)
        for each in links:
            seen.page.goto(each)
            assert seen.page.evaluate("window.broken") is None
            assert seen.page.locator("img, iframe, object, svg svg").count() == 0
        seen.page.evaluate(
            "() => { const own = document.createElement('script');"
            " own.textContent = 'window.broken = 1'; document.body.append(own); }"
        )
        assert seen.page.evaluate("window.broken") is None
        assert len(seen.complaints) == 1
        assert "Content Security Policy" in seen.complaints.pop()


@pytest.mark.full
def test_a_page_of_another_origin_gets_nothing(browser: Browser) -> None:
    """By no request, frame, picture, script or form, although the browser has the cookie."""

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>elsewhere</title>")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as other,
        served(DEMO) as address,
        opened(browser, address) as seen,
    ):
        threading.Thread(target=other.serve_forever, daemon=True).start()
        here = address.partition("?")[0]
        assert headline(seen) == "Snapshots"
        codes: list[int] = []
        seen.page.on("response", lambda got: got.url.startswith(here) and codes.append(got.status))
        seen.page.goto(f"http://127.0.0.1:{other.server_port}/")
        read = seen.page.evaluate(
            """async (at) => {
              const read = [];
              for (const mode of ["cors", "no-cors"])
                await fetch(at, {mode, credentials: "include"})
                  .then((answer) => answer.text()).then((text) => read.push(text), () => 0);
              for (const name of ["img", "script", "iframe"]) {
                const each = document.createElement(name);
                each.src = `${at}?list=${name}`;
                const ended = new Promise((done) => { each.onload = each.onerror = done; });
                document.body.append(each);
                await ended;
              }
              return read.join("");
            }""",
            here,
        )
        assert read == ""
        asked = [each for each in seen.requests if each.startswith(here)]
        assert {f"{here}?list={name}" for name in ("img", "script", "iframe")} <= set(asked)
        assert set(codes) == {403}  # of those whose answer a page's tools may see
        seen.page.goto(here)  # its user goes back to it
        assert headline(seen) == "Snapshots"
        other.shutdown()
