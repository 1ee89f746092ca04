"""Erasure in Dagster: a request is planned, somebody approves, it is proved, and time is kept.

Nothing that Dagster keeps names what is to be erased: every run's log, tags and configuration are
looked through for it.
"""

from __future__ import annotations

import json
import os
import shutil
import traceback
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from statelake import NewKeyedState, NewOperator, write_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.holds import hold_snapshot, release_snapshot
from statelake.pipelines.lake.erase.audit_records import audit_records
from statelake.pipelines.lake.erase.erasing import Erasure, plan_erasure
from statelake.pipelines.lake.erase.requests import ErasureRequest
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.orchestration.component import StateLake
from statelake.pipelines.orchestration.erasure import erasure_ops
from statelake.pipelines.orchestration.erasure.redaction import Redaction
from statelake.pipelines.orchestration.erasure.request_files import RequestDirectory
from statelake.pipelines.orchestration.settings import ErasureSettings, JobSettings
from statelake.state_core.errors import DeclarationError
from tests.support.lakes import DEMO, files_of, import_as, kept_files
from tests.support.people import ALICE, BESIDE_KEYS, files_with, people_savepoint
from tests.support.steps import as_process, do_at, stop

pytestmark = [pytest.mark.full, pytest.mark.thinned(3)]

SECRET = "s3cret-of-the-desk"  # noqa: S105 - to be looked for
ASKED_AT = "2026-01-01T09:00:00Z"
ID = "gdpr-7"
PAGE = Path(__file__).resolve().parents[3] / "docs" / "dagster.md"


class Desk:
    """A lake of two jobs, a directory of requests, and a Dagster of its own."""

    def __init__(self, base: Path, instance: dg.DagsterInstance) -> None:
        self.base = base
        self.instance = instance
        self.requests = base / "requests"
        self.lake = Catalog(base / "lake")
        settings = ErasureSettings(requests=str(self.requests))
        jobs = [JobSettings(name=name, savepoints=str(base)) for name in ("orders", "audit")]
        made = StateLake(lake=str(base / "lake"), jobs=jobs, erasure=settings)
        self.definitions = dg.build_defs_for_component(made)

    def put(self, request: str = ID, **values: Any) -> Path:
        """Write a request."""
        self.requests.mkdir(exist_ok=True)
        path = self.requests / f"{request}.json"
        asked = {"keys": [ALICE], "jobs": ["orders"], "asked_at": ASKED_AT}
        path.write_text(json.dumps(asked | values), "utf-8")
        return path

    def look(self) -> Any:
        """What the sensor asks for; its partitions are added, as the daemon does it."""
        context = dg.build_sensor_context(instance=self.instance)
        asked = self.definitions.resolve_sensor_def("new_erasure_requests")._raw_fn(context)
        if isinstance(asked, dg.SensorResult):
            (partitions,) = asked.dynamic_partitions_requests or ()
            name = str(partitions.partitions_def_name)
            self.instance.add_dynamic_partitions(name, list(partitions.partition_keys))
        return asked

    def run(self, job: str, step: str = "", request: str = ID) -> dg.ExecuteInProcessResult:
        """A run, of which nothing names her or the secret."""
        config = {"ops": {step: {"config": {"request": request}}}} if step else None
        done = self.definitions.resolve_job_def(job).execute_in_process(
            instance=self.instance, run_config=config, raise_on_error=False
        )
        run = self.instance.get_run_by_id(done.run_id)
        assert run is not None
        kept = [str(run.tags), str(run.run_config), *map(str, self.instance.all_logs(done.run_id))]
        assert not [said for said in kept if ALICE in said or SECRET in said]
        return done

    def plan(self, request: str = ID) -> dg.ExecuteInProcessResult:
        """Plan a request."""
        return self.run("plan_erasure", "plan", request)

    def erase(self, request: str = ID) -> dg.ExecuteInProcessResult:
        """Approve of a request's plan."""
        return self.run("erase", "erase", request)

    def error(self, done: dg.ExecuteInProcessResult) -> str:
        """The error that a run ended with."""
        (event,) = (event for event in done.all_events if event.is_step_failure)
        return str(event.step_failure_data.error)

    def failure(self, done: dg.ExecuteInProcessResult) -> str:
        """Why a run failed."""
        assert not done.success
        (event,) = (event for event in done.all_events if event.is_step_failure)
        failure = event.step_failure_data.user_failure_data
        assert failure is not None
        return str(failure.description)

    def check(self) -> Any:
        """What the check of requests says, in a run of its own job."""
        (told,) = self.run("check_erasure_requests").get_asset_check_evaluations()
        return told


def metadata(done: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """What a run says of a request."""
    assert done.success
    (event,) = done.get_asset_materialization_events()
    assert event.materialization.partition is not None
    return {name: value.value for name, value in event.materialization.metadata.items()}


@pytest.fixture(scope="module")
def two_days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with two snapshots of a job, and a savepoint of a third day."""
    base = tmp_path_factory.mktemp("people")
    for day in range(3):
        people = pa.table({"key": [ALICE, "bob", "carol"], "value": [200, day, 50]})
        visits = NewKeyedState("visits", people, value="Long")
        write_snapshot(base / f"day-{day}", [NewOperator("users", "String", (visits,))])
    lake = Catalog(base / "lake")
    for day in range(2):
        import_as(lake, base / f"day-{day}", f"day-{day}", uids=("users",))
    return base


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    """A Dagster of its own, and a secret in the environment."""
    monkeypatch.setenv("STATELAKE_ERASE_SECRET", SECRET)
    (tmp_path / "home").mkdir()
    settings = {"telemetry": {"enabled": False}}
    with dg.DagsterInstance.local_temp(str(tmp_path / "home"), settings) as made:
        yield made


@pytest.fixture
def desk(two_days: Path, tmp_path: Path, instance: dg.DagsterInstance) -> Desk:
    """A copy of that lake."""
    shutil.copytree(two_days, tmp_path / "base")
    return Desk(tmp_path / "base", instance)


def test_a_request_is_planned_approved_erased_and_proved(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """The sensor starts the plan, which writes nothing; the second job erases, and audits."""
    desk = Desk(tmp_path / "base", instance)
    for day in range(2):
        savepoint = people_savepoint(desk.base / f"day-{day}", day, people=20)
        import_as(desk.lake, savepoint, f"day-{day}", uids=("users", "places"))
    # every person is a friend of hers
    desk.put(requested_by="privacy desk", where=BESIDE_KEYS, all=True)
    before = files_of(desk.base / "lake")
    assert files_with(desk.base / "lake", ALICE)
    (asked,) = desk.look().run_requests
    assert (asked.run_key, asked.tags["statelake/request"]) == (ID, ID)
    assert asked.run_config["ops"] == {"plan": {"config": {"request": ID}}}
    assert isinstance(desk.look(), dg.SkipReason)

    plan = metadata(desk.plan())
    assert files_of(desk.base / "lake") == before
    assert plan["snapshots"] == "2 of 2"
    assert plan["rows"] > 0 < plan["files"]
    assert "| orders | users | profile |" in plan["states"]
    assert "the imported snapshot" in plan["not erased from here"]
    assert plan["stands against it"] == "none"
    assert plan["promised"] - plan["asked"] == timedelta(days=30).total_seconds()

    proof = metadata(desk.erase())
    assert files_with(desk.base / "lake", ALICE) == []
    assert (proof["clean"], proof["hits"], proof["rows left"]) == (True, 0, 0)
    assert (proof["rows erased"], proof["files written again"]) == (plan["rows"], plan["files"])
    records = audit_records(desk.lake)
    assert [(record.kind, record.request) for record in records] == [("erase", ID), ("audit", ID)]
    assert records[0].requested_by.startswith("privacy desk, Dagster run ")
    assert proof["digest of the record"] == records[1].digest


def test_nothing_is_erased_that_was_not_planned_like_that(desk: Desk) -> None:
    """Without a plan, of a request that was changed since, and from what the plan has not named."""
    before = files_of(desk.base / "lake")
    desk.put(jobs=[])
    assert "was never planned; launch plan_erasure" in desk.failure(desk.erase())
    assert desk.plan().success
    for change in ({"keys": [ALICE, "person-001"]}, {"jobs": ["orders"]}, {"carried": "drop"}):
        desk.put(**{"jobs": [], **change})
        assert "was changed since it was planned" in desk.failure(desk.erase())
    desk.put(jobs=[])
    assert files_of(desk.base / "lake") == before
    import_as(desk.lake, desk.base / "day-2", "first", "audit", uids=("users",))
    said = desk.failure(desk.erase())
    assert "the plan of 'gdpr-7' is stale" in said
    assert "of job 'audit'" in said
    assert desk.plan().success
    assert metadata(desk.erase())["snapshots erased from"] == 3


def test_new_snapshots_do_not_make_a_plan_stale(desk: Desk) -> None:
    """She is erased from these, too."""
    desk.put()
    assert desk.plan().success
    import_as(desk.lake, desk.base / "day-2", "day-2", uids=("users",))
    assert metadata(desk.erase())["snapshots erased from"] == 3
    assert files_with(desk.base / "lake", ALICE) == []


def test_a_hold_is_told_by_the_plan_and_stops_the_erasure(desk: Desk) -> None:
    """In the words of the lake's own error, but for hers; when it is released it is erased."""
    desk.put()
    hold_snapshot(desk.lake, "orders", "day-0", f"case 12 against {ALICE}")
    before = kept_files(desk.lake)
    said = metadata(desk.plan())["stands against it"]
    told = desk.failure(desk.erase())
    for words in (said.replace("\\", ""), told):
        assert "day-0" in words
        assert "case 12 against [erased]" in words
    assert kept_files(desk.lake) == before
    release_snapshot(desk.lake, "orders", "day-0")
    assert metadata(desk.erase())["clean"]


@pytest.mark.parametrize("step", ["write_files", "rewrite_logs", "close"])
def test_what_was_killed_is_gone_on_with_by_the_same_launch(
    desk: Desk, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the snapshots were changed, and behind that."""
    desk.put()
    assert desk.plan().success
    with monkeypatch.context() as patch:
        do_at(patch, (Erasure, step, "before", 1), stop)
        assert desk.failure(desk.erase()).startswith("EndError; its message may contain")
    assert metadata(desk.erase())["clean"]
    assert files_with(desk.base / "lake", ALICE) == []


@pytest.mark.parametrize(
    ("key", "rows", "step"),
    [
        ("bob", 2, "rewrite_logs"), ("somebody-else-9", 0, "close"),
        ("bob", 2, "write_files"), ("bob", 2, ""),
    ],
)  # fmt: skip
def test_a_request_that_was_changed_and_planned_again_is_erased_as_it_is_now(
    desk: Desk, key: str, rows: int, step: str
) -> None:
    """Also if the erasure that was killed, or done, was of somebody else, who goes as begun."""
    desk.put()
    assert desk.plan().success
    with pytest.MonkeyPatch.context() as patch:
        if step:
            do_at(patch, (Erasure, step, "before", 1), stop)
        assert desk.erase().success == (not step)
    desk.put(keys=[key])
    assert "was changed since it was planned" in desk.failure(desk.erase())
    assert desk.plan().success
    erased = metadata(desk.erase())
    assert (erased["rows erased"], erased["rows left"]) == (rows, 0)
    left = {state.rows for state in plan_erasure(desk.lake, ErasureRequest(ID, ["bob"])).states}
    assert left == (set() if rows else {2})
    switched = step != "write_files"
    assert (files_with(desk.base / "lake", ALICE) == []) == switched
    assert desk.check().passed


def test_what_goes_on_erases_nothing_that_was_not_planned(desk: Desk) -> None:
    """What was begun ends, but the new plan is stale, and has to be made again."""
    nobody = NewKeyedState("visits", pa.table({"key": ["dave"], "value": [1]}), value="Long")
    write_snapshot(desk.base / "nobody", [NewOperator("users", "String", (nobody,))])
    import_as(desk.lake, desk.base / "nobody", "nobody", "audit", uids=("users",))
    desk.put()
    assert desk.plan().success
    with pytest.MonkeyPatch.context() as patch:
        do_at(patch, (Erasure, "rewrite_logs", "before", 1), stop)
        desk.failure(desk.erase())
    desk.put(keys=["bob"], jobs=["audit"])
    assert metadata(desk.plan())["rows"] == 0
    import_as(desk.lake, desk.base / "day-2", "day-2", "audit", uids=("users",))
    told = desk.failure(desk.erase())
    assert "asked for now is not erased: the plan of 'gdpr-7' is stale" in told
    assert files_with(desk.base / "lake" / "orders", ALICE) == []
    assert metadata(desk.plan())["rows"] == 1
    assert desk.erase().success


@pytest.mark.parametrize("step", ["find", "rewrite_logs"])
def test_of_two_launches_at_once_one_erases(
    step: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one names the process that does; launched again it says what was erased."""
    desk.put()
    desk.plan()
    other: list[dg.ExecuteInProcessResult] = []

    def launch() -> None:
        with monkeypatch.context() as patch:
            as_process(patch, os.getppid())
            other.append(desk.erase())

    with monkeypatch.context() as patch:
        do_at(patch, (Erasure, step, "before", 1), launch)
        done = desk.erase()
    erased = metadata(done)
    assert (erased["rows erased"], erased["clean"]) == (2, True)
    failure = desk.failure(other[0])
    assert f"erasure '{ID}' is running by process {os.getpid()} on " in failure
    again = metadata(desk.erase())
    assert (again["rows erased"], again["clean"]) == (2, True)
    assert [each.kind for each in audit_records(desk.lake)] == ["erase", "audit", "audit"]


def test_what_was_killed_before_its_audit_is_audited(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not erased twice; meanwhile the check says that it was not audited."""
    desk.put()
    assert desk.plan().success
    with monkeypatch.context() as patch:
        do_at(patch, (erasure_ops, "audit_erasure", "before", 1), stop)
        desk.failure(desk.erase())
    told = desk.check()
    assert (told.passed, told.metadata["erased, not audited"].value) == (True, "- gdpr-7")
    assert metadata(desk.erase())["clean"]
    assert [record.kind for record in audit_records(desk.lake)] == ["erase", "audit"]


def test_an_audit_that_finds_something_fails_the_run(desk: Desk) -> None:
    """And the promise is not kept, until nothing is left."""
    desk.put()
    assert desk.plan().success
    (desk.base / "lake" / "copy.txt").write_text(f"a copy of {ALICE}")
    assert "its audit is not clean" in desk.failure(desk.erase())
    told = desk.check()
    assert not told.passed
    assert "something is left" in told.metadata["expired"].value
    (desk.base / "lake" / "copy.txt").unlink()
    assert metadata(desk.erase())["clean"]
    assert desk.check().passed


def test_a_predicate_of_every_row_is_told_by_the_plan(desk: Desk) -> None:
    """And refused, unless the request says that it is meant."""
    desk.put(where={"users/visits": "value < 900"})
    said = metadata(desk.plan())["stands against it"]
    assert said.startswith("- the predicate is true of every row of users/visits; ")
    assert "true of every row of users/visits" in desk.failure(desk.erase())


def test_that_nothing_of_it_is_there_is_recorded(desk: Desk) -> None:
    """Somebody who is in no snapshot has a right to be told so."""
    desk.put(keys=["somebody-else-9"], where={})
    assert metadata(desk.plan())["rows"] == 0
    proof = metadata(desk.erase())
    assert (proof["rows erased"], proof["clean"]) == (0, True)
    assert desk.check().passed


def test_what_has_no_bytes_of_its_own_is_looked_for_by_rows(desk: Desk) -> None:
    """A predicate without words can't be searched for in files."""
    desk.put(keys=[], where={"users/visits": "value > 100"})
    assert metadata(desk.plan())["rows"] > 0
    proof = metadata(desk.erase())
    assert (proof["clean"], proof["rows left"]) == (True, 0)
    assert proof["searched"].startswith("rows of snapshots alone")


@pytest.mark.full
def test_the_page_shows_what_is_told(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """Its request, planned and erased over the snapshots of the page on erasure."""
    desk = Desk(tmp_path / "base", instance)
    for name in ("monday", "tuesday"):
        import_snapshot(desk.lake, DEMO / name, "orders", snapshot_id=name)
    page = PAGE.read_text("utf-8").partition("## Requests for erasure")[2].partition("\n## ")[0]
    (written,) = (block for block in page.split("```")[1::2] if block.startswith("json"))
    desk.requests.mkdir()
    (desk.requests / "gdpr-4711.json").write_text(written.removeprefix("json"))
    plan = metadata(desk.plan("gdpr-4711"))
    proof = metadata(desk.erase("gdpr-4711"))
    table = page.partition("| `erasure_plan` |")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(table) == 5
    for planned, shown, proved, result in (line.strip("| ").split(" | ") for line in table):
        assert (shown, result) == (str(plan[planned]), str(proof[proved]).lower())


class TestCheck:
    """`no_expired_requests`."""

    def test_names_those_whose_time_has_passed(self, desk: Desk) -> None:
        """By what was promised for each; what is erased is done with."""
        now = datetime.now(timezone.utc)
        desk.put()
        desk.put("young", asked_at=(now - timedelta(days=29)).isoformat())
        desk.put("hasty", asked_at=now.isoformat(), promised=(now - timedelta(1)).isoformat())
        desk.put("patient", promised=(now + timedelta(days=9)).isoformat())
        told = desk.check()
        assert told.severity is dg.AssetCheckSeverity.ERROR
        lines = told.metadata["expired"].value.replace("\\", "").splitlines()
        assert [line.split(":")[0] for line in lines] == [f"- {ID}", "- hasty"]
        assert (told.passed, told.metadata["open"].value) == (False, 4)
        (desk.requests / "hasty.json").unlink()
        assert desk.plan().success
        assert desk.erase().success
        told = desk.check()
        assert (told.passed, told.metadata["expired"].value) == (True, "none")
        desk.put(keys=[ALICE, "bob"])
        told = desk.check()
        assert not told.passed, "more is asked for than was erased"

    def test_a_file_that_is_no_request_may_hide_a_promise(self, desk: Desk) -> None:
        """It fails, and names the file."""
        desk.put("broken").write_text("{")
        told = desk.check()
        assert not told.passed
        assert "broken.json" in told.metadata["no requests"].value.replace("\\", "")

    def test_records_that_were_changed(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        """They prove nothing."""
        desk.put(keys=["somebody-else-9"], where={})
        assert desk.plan().success
        assert desk.erase().success
        forged = [replace(record, said="{}") for record in audit_records(desk.lake)]
        monkeypatch.setattr(
            "statelake.pipelines.orchestration.erasure.erasure_definitions.audit_records",
            lambda _: forged,
        )
        told = desk.check()
        assert not told.passed
        assert told.metadata["records"].value.startswith("record 0 was changed")


BAD: dict[str, tuple[Any, str]] = {
    "no JSON": (f'{{"keys": ["{ALICE}"', "it is not JSON"),
    "no text": (b'{"keys": ["\xff\xfe"]}', "it is not JSON (UnicodeDecodeError)"),
    "nested": ("[" * 100_000, "it is not JSON (RecursionError)"),
    "a list": ([ALICE], "a request is an object of keys, where, jobs"),
    "another field": ({ALICE: 1}, "a request is an object of keys, where, jobs"),
    "twice": (f'{{"keys": ["{ALICE}"], "keys": []}}', "a name stands in it twice"),
    "nothing": ({"asked_at": ASKED_AT}, "it names nothing that is to go"),
    "a number": ({"keys": [7]}, "`keys` is not a list of texts"),
    "half a character": ({"keys": ["\ud800"]}, "`keys` is not a list of texts"),
    "no time": ({"keys": [ALICE]}, "`asked_at` is not a time with its zone"),
    "no zone": ({"keys": [ALICE], "asked_at": "2026-01-01"}, "`asked_at` is not a time"),
    "tomorrow": ({"keys": [ALICE], "asked_at": "9999-01-01T00:00:00Z"}, "is in the future"),
    "carried": ({"keys": [ALICE], "carried": ALICE}, "`carried` is not drop or keep"),
    "her own request": (
        {"keys": [ALICE], "asked_at": ASKED_AT, "requested_by": f"{ALICE}, by mail"},
        "`requested_by` names what is to be erased",
    ),
    "long": (json.dumps({"keys": ["x" * (5 << 20)]}), "no request is longer than 4 MiB"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_named_and_nothing_in_it(tmp_path: Path, case: str) -> None:
    """The message says what is wrong, without a word of what may be personal."""
    content, problem = BAD[case]
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    path = tmp_path / "bad.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DeclarationError) as raised:
        RequestDirectory(str(tmp_path), 30).read("bad")
    said = "".join(traceback.format_exception(raised.value))
    assert problem in said
    assert str(path) in said
    assert ALICE not in said


def test_a_bad_file_stops_no_other(desk: Desk) -> None:
    """It is told, and named; the other one is planned, and so is this one when it is mended."""
    path = desk.put("bad", carried="perhaps")
    desk.put()
    assert [asked.run_key for asked in desk.look().run_requests] == [ID]
    problem = f"{path}: `carried` is not drop or keep"
    assert problem in str(desk.look().skip_message)
    assert problem in desk.error(desk.plan("bad"))
    desk.put("bad")
    assert [asked.run_key for asked in desk.look().run_requests] == ["bad"]


def test_files_that_are_called_like_no_request(desk: Desk) -> None:
    """They are told, and stop no other; what does not end in .json is somebody else's."""
    path = desk.put()
    shutil.copy(path, desk.requests / "no id.json")
    shutil.copy(path, desk.requests / "gdpr-8.json.part")
    assert [asked.run_key for asked in desk.look().run_requests] == [ID]
    said = str(desk.look().skip_message)
    assert "'no id' is not a valid request id" in said
    assert not desk.check().passed
    shutil.rmtree(desk.requests)
    with pytest.raises(FileNotFoundError, match="no such directory of requests"):
        desk.look()


def test_an_id_that_names_what_is_to_be_erased_is_refused(desk: Desk) -> None:
    """It would stand in names and tags, and in the records that no erasure touches."""
    desk.put(ALICE)
    said = str(desk.look().skip_message)
    assert f"{desk.requests}: a file there is called by what is to be erased" in said
    assert ALICE not in said
    desk.put("gdpr-4711", keys=["4711"])
    with pytest.raises(DeclarationError, match="called by what is to be erased"):
        RequestDirectory(str(desk.requests), 30).read("gdpr-4711")


def test_a_link_is_no_request(desk: Desk, tmp_path: Path) -> None:
    """Whoever may write there reads nothing of others' with it."""
    desk.put()
    (tmp_path / "elsewhere.json").write_text((desk.requests / f"{ID}.json").read_text())
    (desk.requests / "link.json").symlink_to(tmp_path / "elsewhere.json")
    assert not desk.plan("link").success
    assert not desk.check().passed


def test_without_a_secret_nothing_is_planned(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could say later what a plan was of."""
    desk.put()
    monkeypatch.delenv("STATELAKE_ERASE_SECRET")
    assert "set STATELAKE_ERASE_SECRET" in desk.failure(desk.plan())


class TestRedaction:
    """Errors say what they may."""

    def test_of_a_predicate_that_can_not_be_understood(self, desk: Desk) -> None:
        """DuckDB repeats what it was given, so that none of its words are kept."""
        desk.put(keys=[], where={"users/visits": f"value.nothing = '{ALICE}'"})
        assert desk.failure(desk.plan()).startswith("QueryError; its message may contain")

    def test_of_a_state_that_is_nowhere(self, desk: Desk) -> None:
        """Our own errors are kept."""
        desk.put(keys=[], where={"users/nothing": "true"})
        said = desk.failure(desk.plan())
        assert said.startswith("no snapshot has a state")

    @pytest.mark.parametrize(
        ("key", "said", "told"),
        [
            ("alice", "'alice' is no Long, and malice is", "'[erased]' is no Long, and malice is"),
            ('"al\\nice"', "'al\\nice' is none", "'[erased]' is none"),
            ("x" * 90, f"'{'x' * 79} is none", "'[erased] is none"),
            ('{"f0":"alice","f1":7123}', "'alice', 7123", "'[erased]', [erased]"),
        ],
    )
    def test_of_words(self, key: str, said: str, told: str) -> None:
        """As they are, escaped, cut short, and the fields of a key."""
        assert Redaction(ErasureRequest("x", [key])).text(said) == told


class TestDefinitions:
    """What the component makes of it."""

    def test_it_runs_alone_in_the_pools_of_all_jobs(self, desk: Desk) -> None:
        """So that no import or pruning of the lake runs beside it."""
        dg.Definitions.validate_loadable(desk.definitions)
        erase = desk.definitions.resolve_job_def("erase")
        run = desk.instance.create_run_for_job(
            erase, run_config={"ops": {"erase": {"config": {"request": ID}}}}
        )
        assert run.run_op_concurrency is not None
        assert run.run_op_concurrency.all_pools == {"orders_lake", "audit_lake"}
        form = erase.get_node_named("erase").definition.config_field
        assert form is not None
        assert set(form.config_type.fields) == {"request"}

    def test_two_lakes_in_a_project(self, tmp_path: Path) -> None:
        """With a prefix their names do not collide."""
        made = [
            dg.build_defs_for_component(
                StateLake(
                    lake=str(tmp_path / name),
                    jobs=[JobSettings(name=name, savepoints="savepoints")],
                    erasure=ErasureSettings(requests="requests", prefix=name),
                )
            )
            for name in ("eu", "us")
        ]
        both = dg.Definitions.merge(*made)
        dg.Definitions.validate_loadable(both)
        names = {job.name for job in both.get_repository_def().get_all_jobs()}
        assert {"eu_erase", "us_erase", "eu_plan_erasure", "us_plan_erasure"} <= names
        keys = {key.to_user_string() for key in both.resolve_asset_graph().asset_check_keys}
        assert "eu/erasure_requests:no_expired_requests" in keys

    @pytest.mark.parametrize("field", ["requests", "also", "blobs", "changelogs"])
    def test_credentials_are_refused(self, field: str) -> None:
        """As in every other location."""
        location = "s3://key:secret@bucket/x"
        erasure = {"requests": "r"} | {field: location if field == "requests" else [location]}
        with pytest.raises(ValueError, match="must not have credentials"):
            StateLake.model_validate(
                {"lake": "l", "jobs": [{"name": "o", "savepoints": "s"}], "erasure": erasure}
            )
