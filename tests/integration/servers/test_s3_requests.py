"""What operations ask of an object store is bounded: what is billed, and what makes one wait."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.state_core.files.filesystem import Directory
from tests.integration.s3.proxy import S3Proxy
from tests.integration.s3.relay import Relay, Traffic
from tests.support.command import run
from tests.support.lakes import LOCAL, WORDS, entries

pytestmark = [pytest.mark.s3, pytest.mark.full]

JOB = "words"
# of the golden savepoint: two files of state, two tables, in the lake two snapshots at most
# `dear` are PUT, POST and LIST, at twelve times the price of GET and HEAD
BOUNDS = {
    "open": {"all": 8, "dear": 0},
    "import": {"all": 78, "dear": 28},
    "import unchanged": {"all": 93, "dear": 16},
    "list": {"all": 17, "dear": 1},
    "sql": {"all": 29, "dear": 4},
    "get": {"all": 24, "dear": 2},
    "export": {"all": 25, "dear": 5},
    "drop": {"all": 133, "dear": 33},  # one of them lists what runs of the job have left
}


@pytest.fixture
def relay(s3: S3Proxy) -> Iterator[Relay]:
    """A relay before the store."""
    with Relay(s3.port) as made:
        yield made


@pytest.fixture
def at(s3: S3Proxy, relay: Relay) -> Callable[[str], str]:
    """Where something is, as it is reached through the relay; there is a savepoint."""
    root = f"requests/{uuid.uuid4().hex[:12]}"
    for path in WORDS.iterdir():
        Directory(s3.location(f"{root}/savepoint")).write(path.name, path.read_bytes())
    return lambda name: relay.through(s3.location(f"{root}/{name}"))


def command(*words: str) -> None:
    """Run one that comes through."""
    ran = run(*words)
    assert ran.code == 0, ran.err


def test_requests_of_each_operation(relay: Relay, at: Callable[[str], str]) -> None:
    """No more than the table says."""
    lake = at("lake")
    words = ("--lake", lake, "--job", JOB)

    def add(name: str) -> Any:
        return import_snapshot(Catalog(lake), at("savepoint"), JOB, snapshot_id=name, engine=LOCAL)

    operations: dict[str, Callable[[], Any]] = {
        "open": lambda: open_snapshot(at("savepoint")),
        "import": lambda: add("one"),
        "import unchanged": lambda: add("two"),
        "list": lambda: command("snapshots", "--lake", lake, "--json"),
        "sql": lambda: command("sql", *words, "SELECT count(*) FROM counter.count"),
        "get": lambda: command("get", *words, "--snapshot", "one", "--key=word-10"),
        "export": lambda: export_snapshot(Catalog(lake), JOB, "one", at("export"), engine=LOCAL),
        "drop": lambda: command("drop", *words, "--snapshot", "one", "--yes"),
    }
    by_operation = {}
    for name, operation in operations.items():
        relay.taken()
        operation()
        traffic = relay.taken()
        by_operation[name] = {"all": traffic.total, "dear": dear(traffic)}
    over = {
        name: counts
        for name, counts in by_operation.items()
        if any(count > BOUNDS[name][what] for what, count in counts.items())
    }
    assert over == {}
    assert entries(at("export")) == entries(WORDS)


def dear(traffic: Traffic) -> int:
    """The requests that are billed most."""
    return sum(traffic.requests[kind] for kind in ("PUT", "POST", "LIST"))


def test_nothing_is_fetched_twice(relay: Relay, at: Callable[[str], str]) -> None:
    """An import reads each byte of the state once, an unchanged one too; no directory is made."""
    for name in ("one", "two"):
        relay.taken()
        import_snapshot(Catalog(at("lake")), at("savepoint"), JOB, snapshot_id=name, engine=LOCAL)
        traffic = relay.taken()
        fetched = [one for one in traffic.asked if one.startswith("GET") and "/savepoint/" in one]
        state = [line for line in fetched if "/_metadata" not in line]
        assert len(state) == len(set(state)) > 0
        folders = [line for line in traffic.asked if line.startswith("PUT") and line.endswith("/")]
        assert folders == []
