"""Time to live switched in a lake: beside other migrations, planned, repeated, refused."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from statelake import Lake
from statelake.pipelines.api import Job
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.state_core.errors import DeclarationError, EncodeError, IncompatibleError
from tests.support.lakes import KINDS, assert_whole, entries, golden, import_golden

OPERATOR = golden("operator-hashmap-canonical-p2-m128-flink2.3.0").snapshot
TAKEN = datetime(2026, 1, 2, tzinfo=timezone.utc)
ALL = ["name", "items", "scores", "total", "avg", "triple", "row"]
TIME = round(TAKEN.timestamp() * 1000)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job with a snapshot, taken at a known time."""
    lake = import_golden(Catalog(tmp_path / "lake"), ("s", KINDS), uids=["kinds"], taken=TAKEN)
    return Lake(lake.location).job("orders", engine="local")


@pytest.mark.full
def test_every_kind_of_state_switched_on_and_off_again_is_what_it_was(
    job: Job, tmp_path: Path
) -> None:
    """In one snapshot; timers stay, and so does each byte of the way back."""
    job["s"].migrate(ttl=[f"kinds/{state}=on" for state in ALL], suffix="-on")
    for state in ALL:
        assert "ttl" in job["s-on"]["kinds"][state].to_arrow().column_names
    made = job["s-on"].migrate(ttl=[f"kinds/{state}=off" for state in ALL], suffix="-off")
    count = sum(len(job["s"]["kinds"][state].to_arrow()) for state in ALL)
    assert (made.made, made.outcome, made.entries) == ("s-on-off", "migrated", count)
    for name in ("s", "s-on-off"):
        job[name].export(str(tmp_path / name))
    assert entries(tmp_path / "s-on-off") == entries(tmp_path / "s")
    assert_whole(job.lake.catalog)


def test_the_time_is_that_of_the_snapshot_or_now(job: Job) -> None:
    """In milliseconds; of now all values have the same."""
    job["s"].migrate(ttl="kinds/total=on", last_access="taken_at", suffix="-a")
    assert set(job["s-a"]["kinds"]["total"].to_arrow()["ttl"].to_pylist()) == {TIME}
    job["s"].migrate(ttl="kinds/items=on", suffix="-b")
    held = job["s-b"]["kinds"]["items"].to_arrow()["ttl"].to_pylist()
    (time,) = {time for times in held for time in times}
    age = datetime.now(timezone.utc) - datetime.fromtimestamp(time / 1000, timezone.utc)
    assert timedelta() <= age < timedelta(minutes=10)


def test_a_new_type_and_time_to_live_in_one_snapshot(job: Job, tmp_path: Path) -> None:
    """The values first: the time may be in a field that the new type has."""
    to = tmp_path / "new.json"
    to.write_text(
        '{"states": {"kinds/total": {"type": "Tuple2<Long, String>", "expressions":'
        ' {"f0": "old + 5", "f1": "\'x\'"}}}}',
        "utf-8",
    )
    job["s"].migrate(str(to), ttl=["kinds/total=on", "kinds/session=off"], last_access="f0")
    made = job["s-migrated"]["kinds"]
    before = job["s"]["kinds"]["total"].to_arrow()["value"].to_pylist()
    assert made["total"].to_arrow()["ttl"].to_pylist() == [value + 5 for value in before]
    assert "ttl" not in made["session"].to_arrow().column_names


def test_a_file_of_types_may_say_what_the_switch_makes(job: Job, tmp_path: Path) -> None:
    """That of the new job; alone it is refused, with the words that switch."""
    to = tmp_path / "types.json"
    to.write_text('{"states": {"kinds/total": {"type": "Long", "ttl": true}}}', "utf-8")
    with pytest.raises(IncompatibleError, match="with --ttl kinds/total=on, or leave"):
        job["s"].migrate(str(to))
    with pytest.raises(IncompatibleError, match="its ttl is none"):
        job["s"].migrate(str(to), ttl="kinds/total=off")
    assert job["s"].migrate(str(to), ttl="kinds/total=on").outcome == "migrated"
    assert not job["s-migrated"].check_compatibility(str(to)).faults


def test_a_switch_is_planned_and_done_once(job: Job) -> None:
    """A second run finds it done; a state that is as it should be needs nothing."""
    ttl = ["kinds/total=on"]
    plan = job.migrate(snapshots="s", ttl=ttl, dry_run=True).outcomes[0]
    assert plan.outcome == "compatible_after_migration"
    assert plan.why == "total: without TTL → with TTL: last access now"
    assert [record.snapshot_id for record in job.snapshots()] == ["s"]
    assert [job.migrate([], ttl=ttl).outcomes[0].outcome for _ in range(2)] == [
        "migrated", "migrated before",
    ]  # fmt: skip
    assert job["s-migrated"].migrate(ttl=ttl, suffix="-x").outcome == "compatible as it is"


def test_a_field_that_is_not_there_is_refused_in_the_plan_too(job: Job) -> None:
    """With the fields that there are."""
    for dry_run in (True, False):
        with pytest.raises(IncompatibleError, match=r"no field 'at'.* f0 or f1 or f2 or now or"):
            job["s"].migrate(ttl="kinds/triple=on", last_access="at", dry_run=dry_run)


@pytest.mark.parametrize("ttl", ["kinds/total", "kinds=on", "kinds/total=yes", "=on"])
def test_a_switch_of_another_form_is_refused(ttl: str, job: Job) -> None:
    """With the form that it has."""
    with pytest.raises(DeclarationError, match="OPERATOR/STATE=on"):
        job["s"].migrate(ttl=ttl)


def test_a_state_switched_twice_is_refused(job: Job) -> None:
    """On and off at once."""
    with pytest.raises(IncompatibleError, match="twice"):
        job["s"].migrate(ttl=["kinds/total=on", "kinds/total=off"])


def test_operator_state_has_no_time_to_live(tmp_path: Path) -> None:
    """As Flink has none there."""
    lake = import_golden(Catalog(tmp_path / "lake"), ("s", OPERATOR), job="rules")
    snapshot = Lake(lake.location).job("rules", engine="local")["s"]
    record = snapshot.record
    (operator, state) = next((o, s) for o in record.operators for s in o.operator_states)
    with pytest.raises(IncompatibleError, match="operator state has no time to live"):
        snapshot.migrate(ttl=f"{operator.label}/{state.name}=on")


@pytest.mark.full
def test_what_has_got_a_time_to_live_expires(job: Job) -> None:
    """By the times that it was given; and what lost it does not."""
    job["s"].migrate(ttl="kinds/total=on", last_access="taken_at", suffix="-on")
    states = job["s-on"].record.operators[0].states
    assert {state.name for state in states if state.ttl} == {"session", "total"}
    gone = job["s-on"].edit("gone").expire("kinds/total", timedelta(hours=1))
    (change,) = gone.at(TAKEN + timedelta(hours=1)).save().changes
    assert change.entries == (len(job["s"]["kinds"]["total"].to_arrow()), 0)
    job["s-on"].migrate(ttl="kinds/total=off", suffix="-off")
    with pytest.raises(EncodeError, match="kinds/total has no time to live"):
        job["s-on-off"].edit("none").expire("kinds/total", timedelta(hours=1)).save()
