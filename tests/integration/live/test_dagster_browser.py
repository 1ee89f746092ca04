"""Dagster's own UI over the example project, in headless Chromium, by clicks.

The pictures in the documentation are those that these tests take: run them with STATELAKE_PICTURES
set to the directory that they go to.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Page, expect

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.pipelines.live.cluster import FlinkCluster
from statelake.pipelines.requests.imports import Import
from tests.integration.flink.live_cluster import LiveFlink
from tests.support.browser import chromium
from tests.support.dagster_api import DagsterApi, DagsterRun
from tests.support.dagster_server import dagster_dev
from tests.support.lakes import DEMO, golden
from tests.support.savepoints.damaged import damaged
from tests.support.savepoints.golden_cases import golden_cases

# one Dagster, one Chromium and the cluster of the other tests for all of them
pytestmark = [pytest.mark.browser, pytest.mark.flink, pytest.mark.full]

PROJECT = Path(__file__).resolve().parents[3] / "examples" / "dagster_project"
LOCATION = "state_of_flink"
WAIT = 300_000  # milliseconds: so long that a busy machine does it
CHECKS = ("compatibility", "growth", "integrity", "legality", "skew", "staleness")
COMPARED = ("integrity", "skew", "staleness")  # the others have nothing to compare with
NIGHTS = [f"night-{number}" for number in range(1, 6)]
WORDS = "wordcount-hashmap-canonical-p2-m128-flink1.20.0"
LIVE_JOB = """\
type: statelake.dagster.StateLake
attributes:
  lake: "{{ env('STATE_DATA') }}/lake"
  exports: "{{ env('STATE_DATA') }}/exports"
  jobs:
    - name: counting
      savepoints: "{{ env('STATE_DATA') }}/savepoints/counting"
      flink:
        jar: "{{ env('STATE_DATA') }}/counting-1.jar"
        arguments: [counting]
        path_map: {"file:/": /}
"""
CUSTOMERS = """
states:
  customers/customer:
    type: {pojo: "Judge$Customer", fields: {id: long, level: int, name: String}}
    drop: [address, balance, color, scores, tags]
"""
MIGRATION = """\
ops:
  words__migrated_tables:
    config:
      state: customers/customer
      to: customers.yaml
"""
RESCALE = """\
ops:
  rescale:
    config: {parallelism: 3, max_parallelism: 300}
"""


@dataclass
class Ui:
    """A page of Dagster's UI.

    Attributes:
        page: The page.
        api: The webserver, as the page asks it.
        data: The directory with `savepoints` and `lake`.
        pictures: Where screenshots go.
    """

    page: Page
    api: DagsterApi
    data: Path
    pictures: Path

    def go(self, path: str) -> None:
        """Open a page."""
        self.page.goto(f"{self.api.address}/{path}")

    def job(self, name: str, tab: str = "") -> None:
        """Open a page of a job."""
        self.go(f"locations/{LOCATION}/jobs/{name}{tab}")

    def type_config(self, text: str) -> None:
        """Replace what the editor has, as by pasting."""
        self.page.locator(".CodeMirror").last.click()
        self.page.keyboard.press("Control+A")
        self.page.keyboard.press("Delete")
        self.page.keyboard.insert_text(text)
        self.page.get_by_text("No errors").wait_for()

    def picture(self, name: str) -> None:
        """Take a screenshot."""
        path = self.pictures / f"dagster_{name}.png"
        self.page.screenshot(path=path)
        assert path.stat().st_size > 10_000

    def run_of(self, job: str, **tags: str) -> DagsterRun:
        """The newest run of a job with some tags, when one is over; `__` is a slash."""
        expected = {name.replace("__", "/"): value for name, value in tags.items()}.items()

        def matching(over: list[DagsterRun]) -> list[DagsterRun]:
            return [run for run in over if run.job == job and expected <= run.tags.items()]

        over = self.api.await_runs(lambda runs: bool(matching(runs)), WAIT / 1000)
        return matching(over)[0]


def await_true(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + WAIT / 1000
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def import_customers(lake: Catalog, job: str, name: str) -> None:
    """A snapshot that can be migrated without Spark, which takes long to start."""
    savepoint = golden_cases("pojo", form="canonical")[0].snapshot
    import_snapshot(
        lake, str(savepoint), job, Import(uids=["customers"]), snapshot_id=name, engine="local"
    )


@pytest.fixture(scope="module")
def ui(
    live_flink: LiveFlink, counter: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ui]:
    """The example project, and beside it a component with a job of the live cluster."""
    root = tmp_path_factory.mktemp("browser")
    project, data = root / "project", root / "data"
    shutil.copytree(PROJECT, project)
    lake = project / LOCATION / "defs" / "lake" / "defs.yaml"
    settings = yaml.safe_load(lake.read_text())
    for job in settings["attributes"]["jobs"]:
        job["sensor_seconds"] = 2  # half a minute by default, which a person would wait
    lake.write_text(yaml.safe_dump(settings))
    (project / "customers.yaml").write_text(CUSTOMERS)
    (project / LOCATION / "defs" / "live").mkdir()
    (project / LOCATION / "defs" / "live" / "defs.yaml").write_text(LIVE_JOB)
    for name in ("orders", "words", "counting"):
        (data / "savepoints" / name).mkdir(parents=True)
    savepoint = shutil.copytree(DEMO / "monday", data / "savepoints" / "orders" / "monday")
    os.utime(savepoint / "_metadata")  # taken now, so that it is not stale
    shutil.copy(counter, data / "counting-1.jar")
    for night in NIGHTS:
        import_customers(Catalog(data / "lake"), "words", night)
    environment = {"STATE_DATA": str(data), "STATELAKE_FLINK": live_flink.url}
    dagster = dagster_dev(project, root / "home", concurrent_runs=2, **environment)
    with dagster as address, chromium() as browser:
        page = browser.new_context(viewport={"width": 1300, "height": 820}).new_page()
        page.set_default_timeout(WAIT)
        expect.set_options(timeout=WAIT)
        pictures = Path(os.environ.get("STATELAKE_PICTURES", root))
        yield Ui(page, DagsterApi(address, LOCATION), data, pictures)


def test_a_savepoint_arrives_and_is_materialized_by_a_click(ui: Ui) -> None:
    """A sensor is switched on, a partition appears and is archived; then once more, by hand."""
    page = ui.page
    ui.go(f"locations/{LOCATION}/sensors/orders_new_savepoints")
    switch = page.locator("input[type=checkbox]").first
    switch.wait_for(state="attached")
    assert not switch.is_checked()
    switch.locator("xpath=..").click()
    expect(switch).to_be_checked()
    page.get_by_text("1 partition created").first.wait_for()
    ui.picture("sensor")

    ui.go("assets/orders/state_tables?view=partitions")
    page.get_by_text("monday", exact=True).first.wait_for()
    archived = ui.run_of("orders_archive_and_export", dagster__partition="monday")
    assert archived.status == "SUCCESS"
    assert archived.tags["dagster/sensor_name"] == "orders_new_savepoints"

    ui.go("assets/orders/state_tables?view=checks")
    for name in CHECKS:
        page.get_by_text(name, exact=True).first.wait_for()
    expect(page.get_by_text("Succeeded", exact=True)).to_have_count(len(COMPARED))
    page.get_by_text("integrity", exact=True).first.click()
    page.get_by_text("blocking", exact=True).first.wait_for()
    ui.picture("checks")

    page.get_by_role("button", name="Materialize").first.click()
    page.get_by_text("orders / kinds / scores").first.wait_for()  # its tables come with it
    page.get_by_role("button", name="Confirm").click()
    page.get_by_role("button", name="All", exact=True).click()
    page.get_by_role("button", name="Launch").last.click()
    by_hand = ui.run_of("__ASSET_JOB", dagster__partition="monday")
    assert (by_hand.status, by_hand.tags["dagster/from_ui"]) == ("SUCCESS", "true")

    ui.go("assets/orders/kinds/scores")
    page.get_by_text("user_key", exact=True).first.wait_for()
    ui.picture("table")


def test_a_migration_is_backfilled_from_the_dialog(ui: Ui) -> None:
    """Over five snapshots, with a config that is typed there: one run does them all."""
    for night in NIGHTS:
        ui.api.add_partition("words_snapshots", night)
    ui.api.report_materialized("words/state_tables", NIGHTS)  # they were imported by command
    page = ui.page
    ui.job("words_migrate_snapshots")
    page.get_by_role("button", name="Materialize").first.click()
    page.get_by_role("button", name="All", exact=True).click()
    page.get_by_text("5 partitions selected").wait_for()
    page.get_by_text("Config", exact=True).first.click()
    page.get_by_role("button", name="Add config").click()
    page.get_by_role("button", name="Save config").wait_for()
    ui.type_config(MIGRATION)
    page.get_by_role("button", name="Save config").click()
    page.get_by_text("Config Editor").wait_for(state="hidden")
    ui.picture("backfill")
    page.get_by_role("button", name="Launch backfill").click()
    over = ui.run_of("words_migrate_snapshots")
    assert over.status == "SUCCESS"
    ends = [over.tags[f"dagster/asset_partition_range_{end}"] for end in ("start", "end")]
    assert ends == [NIGHTS[0], NIGHTS[-1]]
    names = {summary.snapshot_id for summary in Catalog(ui.data / "lake").summaries("words")}
    assert names == {*NIGHTS, *(f"{night}-migrated" for night in NIGHTS)}


@pytest.mark.nightly
def test_a_backfill_that_was_killed_is_launched_again(ui: Ui) -> None:
    """One run of two is killed: the other one goes on; what was migrated is left alone then."""
    lake, job = Catalog(ui.data / "lake"), "counting"
    names = [f"day-{number:02}" for number in range(1, 13)]  # a run does ten
    for name in names:
        import_customers(lake, job, name)
        ui.api.add_partition("counting_snapshots", name)

    def migrated() -> dict[str, SnapshotRecord]:
        ids = {summary.snapshot_id for summary in lake.summaries(job)}
        return {name: lake.snapshot(job, name) for name in ids if name.endswith("-migrated")}

    def launch() -> list[DagsterRun]:
        config = {"state": "customers/customer", "to": "customers.yaml"}
        ops = {f"{job}__migrated_tables": {"config": config}}
        launched = ui.api.backfill(f"{job}_migrate_snapshots", names, {"ops": ops})
        await_true(lambda: len(migrated()) >= 2)
        if not killed:  # the one at work: the other one waits for its turn, in a process already
            working = [run for run in ui.api.runs() if run.tags.get("dagster/backfill") == launched]
            first = min(working, key=lambda run: run.began or math.inf)
            process = ui.api.process_of(first.id)
            assert process is not None
            os.kill(process, signal.SIGKILL)
            killed.append(first.id)

        def of_it(over: list[DagsterRun]) -> list[DagsterRun]:
            return [run for run in over if run.tags.get("dagster/backfill") == launched]

        return of_it(ui.api.await_runs(lambda over: len(of_it(over)) == 2, WAIT / 1000))

    killed: list[str] = []
    assert sorted(run.status for run in launch()) == ["FAILURE", "SUCCESS"]
    before = migrated()
    assert 2 + 2 <= len(before) < len(names)
    again = sorted(launch(), key=lambda run: run.began or 0)
    assert [run.status for run in again] == ["SUCCESS", "SUCCESS"]
    # two runs may work at a time, but only one on the tables of a job
    assert (again[0].ended or 0) <= (again[1].began or 0)
    after = migrated()
    assert sorted(after) == [f"{name}-migrated" for name in names]
    assert {name: after[name] for name in before} == before


def test_a_failing_check_blocks_what_is_behind_it(ui: Ui) -> None:
    """A damaged savepoint is imported and judged; it is neither planned nor exported."""
    copied = damaged(golden(WORDS), ui.data / "savepoints" / "orders" / "damaged")

    def flip(data: bytearray) -> None:
        data[9] ^= 2  # of a key, which then belongs to another key group

    copied.change_group(0, copied.groups(0)[5], flip)
    ui.api.switch_on("sensor", "orders_new_savepoints")
    failed = ui.run_of("orders_archive_and_export", dagster__partition="damaged")
    assert failed.status == "FAILURE"
    page = ui.page
    ui.go("assets/orders/state_tables?view=checks")
    page.get_by_text("integrity", exact=True).first.click()
    page.get_by_text("Failed", exact=True).first.wait_for()
    ui.picture("blocked")
    ui.go("assets/orders/exported_savepoint?view=partitions&partition=damaged")
    page.get_by_text("damaged", exact=True).first.wait_for()
    page.get_by_text("Failed (1)", exact=True).wait_for()  # of its partitions
    page.get_by_text("No metadata entries").wait_for()
    names = {summary.snapshot_id for summary in Catalog(ui.data / "lake").summaries("orders")}
    assert "damaged" in names
    assert not list((ui.data / "exports").rglob("damaged-*"))


@pytest.fixture
def counting(ui: Ui, live_flink: LiveFlink) -> Iterator[FlinkCluster]:
    """The cluster, on which the job that counts runs."""
    with live_flink.client() as cluster:
        jar = cluster.upload_jar(str(ui.data / "counting-1.jar"))
        cluster.wait_until_running(cluster.run_jar(jar, arguments=["counting"], parallelism=2))
        cluster.delete_jar(jar)
        yield cluster
        for job in cluster.jobs():
            if job.name == "counting" and not job.ended:
                cluster.cancel(job.id)


def test_a_job_is_rescaled_from_the_launchpad(ui: Ui, counting: FlinkCluster) -> None:
    """By its config, on a real cluster; it runs at the new numbers then."""
    ui.job("counting_rescale_job", "/playground")
    ui.page.get_by_text("No errors").wait_for()
    ui.type_config(RESCALE)
    launch = ui.page.get_by_role("button", name="Launch Run")
    expect(launch).to_be_enabled()
    ui.picture("rescale")
    launch.click()
    assert ui.run_of("counting_rescale_job", dagster__from_ui="true").status == "SUCCESS"
    rescaled = counting.job(counting.find_job("counting").id)
    assert (rescaled.parallelism, rescaled.max_parallelism) == (3, 300)


@pytest.mark.nightly
def test_a_rescale_that_was_killed_is_launched_again(ui: Ui, counting: FlinkCluster) -> None:
    """The job is stopped, and nobody is left to run it; the next run of the same config does."""
    config = {"ops": {"rescale": {"config": {"parallelism": 1, "max_parallelism": 256}}}}
    first = ui.api.launch("counting_rescale_job", config)
    await_true(lambda: any("stop: kept" in message for message in ui.api.messages(first)))
    process = ui.api.process_of(first)
    assert process is not None
    os.kill(process, signal.SIGKILL)
    assert ui.api.ended(first, WAIT / 1000).status == "FAILURE"
    again = ui.api.launch("counting_rescale_job", config)
    assert ui.api.ended(again, WAIT / 1000).status == "SUCCESS"
    rescaled = counting.job(counting.find_job("counting").id)
    assert (rescaled.parallelism, rescaled.max_parallelism) == (1, 256)
    assert "rescale-" in ui.api.metadata(again)["savepoint"]
