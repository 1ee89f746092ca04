"""A store that fails: what commands do is done once and whole, or said to be undone."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.integrity import check_snapshot
from tests.integration.s3.faults import seeded_faults
from tests.integration.s3.proxy import S3Proxy
from tests.integration.s3.relay import Fault, Relay, Request
from tests.support.command import Ran, run
from tests.support.lakes import WORDS, Contents, entries

pytestmark = [pytest.mark.s3, pytest.mark.full]

JOB = "words"
KEY = "word-10"
AT_MOST = 12  # runs of one command until it has come through
SHARE = 0.06


@pytest.fixture
def relay(s3: S3Proxy) -> Iterator[Relay]:
    """A relay before the store."""
    with Relay(s3.port) as made:
        yield made


class Places:
    """A savepoint, a lake and exports in a directory of their own, seen directly and by a relay.

    Args:
        s3: The store.
        relay: Before it.
    """

    def __init__(self, s3: S3Proxy, relay: Relay) -> None:
        self.relay = relay
        self.root = f"faults/{uuid.uuid4().hex[:12]}"
        self._s3 = s3
        savepoint = Directory(self.at("savepoint"))
        for path in WORDS.iterdir():
            savepoint.write(path.name, path.read_bytes())

    def at(self, name: str) -> str:
        """Where something is."""
        return self._s3.location(f"{self.root}/{name}")

    def spoiled(self, name: str) -> str:
        """The same through the relay."""
        return self.relay.through(self.at(name))

    def snapshots(self) -> dict[str, int]:
        """The snapshots of the lake, each with its entries; all are whole."""
        lake = Catalog(self.at("lake"))
        if not lake.exists():
            return {}
        records, bad = lake.records()
        assert bad == []
        for record in records:
            for table in (table for operator in record.operators for table in operator.tables):
                opened = lake.table(table.path)
                named = {file.path for file in opened.files(table.version)}
                assert named == {unit.path for unit in table.units}
                for unit in table.units:
                    assert opened.directory.size(unit.path) == unit.size
        return {record.snapshot_id: record.entries for record in records}


def until_through(
    places: Places, *words: str, done: Callable[[], bool], errors: Counter[str]
) -> Ran:
    """Run a command until it is done, or has said that it is not and is done all the same."""
    for _ in range(AT_MOST):
        ran = run(*words)
        assert ran.code in {0, 3}, ran.err
        if ran.code == 0 or done():
            return ran
        errors[ran.err] += 1
        places.snapshots()
    raise AssertionError(f"not done after {AT_MOST} runs: {errors}")


def go_through(places: Places, errors: Counter[str]) -> dict[str, Any]:
    """Import, edit, export, drop and erase; what there is then."""
    lake, local = places.spoiled("lake"), ("--engine", "local")
    job = ("--lake", lake, "--job", JOB)

    def come(*words: str, done: Callable[[], bool]) -> Ran:
        return until_through(places, *words, done=done, errors=errors)

    def has(*names: str) -> Callable[[], bool]:
        return lambda: set(places.snapshots()) == set(names)

    source = places.spoiled("savepoint")
    come("import", source, *job, "--snapshot", "one", *local, done=has("one"))
    come(
        "sql", *job, "--edit", "one", "--as", "two",
        f"DELETE FROM counter.count WHERE key = '{KEY}'", done=has("one", "two"),
    )  # fmt: skip
    outcome: dict[str, Any] = {"snapshots": places.snapshots()}
    for name in ("one", "two"):
        outcome[name] = exported(places, name, job, errors)
    come("drop", *job, "--snapshot", "two", "--yes", done=has("one"))
    outcome["dropped"] = places.snapshots()
    come(
        "erase", "--lake", lake, "--request", "r1", f"--key={KEY}", "--carried", "keep", "--yes",
        done=lambda: False,
    )  # fmt: skip
    outcome["erased"] = places.snapshots()
    outcome["export"] = exported(places, "one", job, errors)
    return outcome


def exported(places: Places, name: str, job: tuple[str, ...], errors: Counter[str]) -> Contents:
    """A snapshot, exported: what is there is a whole savepoint, or none."""
    for number in range(AT_MOST):
        to = f"export-{name}-{number}-{uuid.uuid4().hex[:6]}"
        words = ("--snapshot", name, "--to", places.spoiled(to), "--engine", "local")
        ran = run("export", *job, *words)
        assert ran.code in {0, 3}, ran.err
        if Directory(places.at(to)).is_file("_metadata"):
            assert check_snapshot(places.at(to)).sound
            return entries(places.at(to))
        assert ran.code == 3
        errors[ran.err] += 1
    raise AssertionError(f"not exported after {AT_MOST} runs: {errors}")


@pytest.fixture(scope="session")
def unspoiled(s3: S3Proxy) -> dict[str, Any]:
    """What comes of it without faults."""
    with Relay(s3.port) as relay:
        errors: Counter[str] = Counter()
        outcome = go_through(Places(s3, relay), errors)
    assert not errors
    before, edited = outcome["snapshots"]["one"], outcome["snapshots"]["two"]
    assert outcome["erased"]["one"] <= edited == before - 1
    return outcome


def spoil(s3: S3Proxy, relay: Relay, unspoiled: dict[str, Any], faults: int) -> Counter[str]:
    """Go through it with other seeds until there were so many faults; the errors that it told."""
    errors: Counter[str] = Counter()
    rounds = 0
    while sum(relay.faults.values()) < faults:
        places = Places(s3, relay)
        relay.plan = seeded_faults(rounds, SHARE)
        assert go_through(places, errors) == unspoiled
        rounds += 1
    if os.environ.get("STATELAKE_FAULTS"):
        told = {fault.name: count for fault, count in relay.faults.items()}
        print(f"{sum(told.values())} faults in {rounds} rounds: {told}; errors: {dict(errors)}")  # noqa: T201
    return errors


@pytest.mark.full
def test_sixty_faults(s3: S3Proxy, relay: Relay, unspoiled: dict[str, Any]) -> None:
    """Import, edit, export, drop and erase give what they give without."""
    spoil(s3, relay, unspoiled, 60)


@pytest.mark.full
@pytest.mark.nightly
def test_a_thousand_faults(s3: S3Proxy, relay: Relay, unspoiled: dict[str, Any]) -> None:
    """The same, of other seeds."""
    spoil(s3, relay, unspoiled, 1000)


def test_a_store_that_takes_its_time(
    s3: S3Proxy, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for, longer than Arrow itself would: asked again, it would take as long."""
    monkeypatch.setattr(f"{Relay.__module__}.DELAY_SECONDS", 4.0)
    relay.plan = lambda _: Fault.DELAY
    path = f"slow/{uuid.uuid4().hex[:12]}"
    Directory(relay.through(s3.location(""))).write(path, b"1")
    assert relay.faults == {Fault.DELAY: 1}
    assert Directory(s3.location("")).read(path) == b"1"


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.LOST_ERROR, Fault.TAKEN])
def test_the_answer_to_each_commit_is_lost(s3: S3Proxy, relay: Relay, fault: Fault) -> None:
    """Import and drop commit once, and know it."""
    places = Places(s3, relay)
    spoiled: set[str] = set()

    def first_of_each(request: Request) -> Fault | None:
        if not request.conditional or request.path in spoiled:
            return None
        spoiled.add(request.path)
        return fault

    relay.plan = first_of_each
    job = ("--lake", places.spoiled("lake"), "--job", JOB)
    source = places.spoiled("savepoint")
    for name in ("one", "two"):
        ran = run("import", source, *job, "--snapshot", name, "--engine", "local")
        assert (ran.code, ran.err) == (0, ""), ran.err
    assert run("drop", *job, "--snapshot", "one", "--yes").code == 0
    assert set(places.snapshots()) == {"two"}
    # one version of the tables of words and of timers; of the catalog its first, two a snapshot
    # (the attempt, and its end), and the drop, which leaves no file to delete
    assert relay.faults[fault] == len(spoiled) == 2 + 1 + 2 * 2 + 1
    catalog = Catalog(places.at("lake")).table("snapshots")
    assert catalog.versions_after(-1) == [5, 4, 3, 2, 1, 0]
