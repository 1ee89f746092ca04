"""Dagster's own UI over the example project, in headless Chromium, by clicks.

The pictures in the documentation are those that this test takes: run it with STATELAKE_PICTURES
set to the directory that they go to.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import chromium
from tests.support.dagster_server import dagster_dev
from tests.support.lakes import DEMO

pytestmark = [pytest.mark.browser, pytest.mark.full]  # two runs of processes of their own

PROJECT = Path(__file__).resolve().parents[3] / "examples" / "dagster_project"
WAIT = 180_000  # milliseconds
CHECKS = ("compatibility", "growth", "integrity", "legality", "skew", "staleness")
RUNS = """{runsOrError(filter: {statuses: [SUCCESS]}) {
    ... on Runs {results {tags {key value}}}
}}"""


def successes(page: Page, address: str) -> list[dict[str, str]]:
    """The tags of the runs that succeeded, the newest first."""
    answer = page.request.post(f"{address}/graphql", data={"query": RUNS}).json()
    return [
        {tag["key"]: tag["value"] for tag in run["tags"]}
        for run in answer["data"]["runsOrError"]["results"]
    ]


def await_successes(page: Page, address: str, count: int) -> dict[str, str]:
    """The tags of the newest run, when so many have succeeded."""
    until = time.monotonic() + WAIT / 1000
    while len(found := successes(page, address)) < count:
        assert time.monotonic() < until, "the runs did not succeed in time"
        page.wait_for_timeout(1000)
    return found[0]


def test_a_savepoint_arrives_and_is_materialized_by_a_click(tmp_path: Path) -> None:
    """A sensor is switched on, a partition appears and is archived; then once more, by hand."""
    pictures = Path(os.environ.get("STATELAKE_PICTURES", tmp_path))
    savepoint = shutil.copytree(DEMO / "monday", tmp_path / "data/savepoints/orders/monday")
    os.utime(savepoint / "_metadata")  # taken now, so that it is not stale
    with (
        dagster_dev(PROJECT, tmp_path / "home", STATE_DATA=str(tmp_path / "data")) as address,
        chromium() as browser,
    ):
        page = browser.new_context(viewport={"width": 1300, "height": 820}).new_page()
        page.set_default_timeout(WAIT)
        expect.set_options(timeout=WAIT)

        page.goto(f"{address}/locations/state_of_flink/sensors/orders_new_savepoints")
        switch = page.locator("input[type=checkbox]").first
        switch.wait_for(state="attached")
        assert not switch.is_checked()
        switch.locator("xpath=..").click()
        expect(switch).to_be_checked()
        page.get_by_text("1 partition created").first.wait_for()
        page.screenshot(path=pictures / "dagster_sensor.png")

        page.goto(f"{address}/assets/orders/state_tables?view=partitions")
        page.get_by_text("monday", exact=True).first.wait_for()
        tags = await_successes(page, address, 1)
        assert tags["dagster/partition"] == "monday"
        assert tags["dagster/sensor_name"] == "orders_new_savepoints"

        page.goto(f"{address}/assets/orders/state_tables?view=checks")
        for name in CHECKS:
            page.get_by_text(name, exact=True).first.wait_for()
        expect(page.get_by_text("Succeeded", exact=True)).to_have_count(len(CHECKS))
        page.get_by_text("integrity", exact=True).first.click()
        page.get_by_text("blocking", exact=True).first.wait_for()
        page.screenshot(path=pictures / "dagster_checks.png")

        page.get_by_role("button", name="Materialize").first.click()
        page.get_by_text("orders / kinds / scores").first.wait_for()  # its tables come with it
        page.get_by_role("button", name="Confirm").click()
        page.get_by_role("button", name="All", exact=True).click()
        page.get_by_role("button", name="Launch").last.click()
        tags = await_successes(page, address, 2)
        assert (tags["dagster/from_ui"], tags["dagster/partition"]) == ("true", "monday")

        page.goto(f"{address}/assets/orders/kinds/scores")
        page.get_by_text("user_key", exact=True).first.wait_for()
        page.screenshot(path=pictures / "dagster_table.png")
    for name in ("sensor", "checks", "table"):
        assert (pictures / f"dagster_{name}.png").stat().st_size > 10_000
