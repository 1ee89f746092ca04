"""What operations ask of an object store: `python -m benchmarks.requests [--entries N] [--list]`.

Requests and bytes of each operation, counted by a relay before a real S3 API (S3Proxy, in a JVM on
loopback). Savepoint, lake and export all lie in the store. S3 bills PUT, POST and LIST at about
twelve times the price of GET and HEAD, and DELETE not at all.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from statelake import NewKeyedState, NewOperator, open_snapshot, write_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.model.key_groups import operator_id_of_uid
from tests.integration.s3.proxy import ENVIRONMENT, S3Proxy
from tests.integration.s3.relay import OPERATIONS, Relay, Traffic
from tests.support.command import run

PARALLELISM = 4
JOB = "bench"
COUNT = f'SELECT count(*) FROM "{operator_id_of_uid("counter")}".count'  # noqa: S608 - ours


def write_savepoint(location: str, entries: int) -> int:
    """A savepoint of `ValueState<Long>` by `String`; its bytes."""
    keys = pa.array(np.char.add("key-", np.arange(entries).astype("U")))
    values = pa.array(np.random.default_rng(1).integers(0, 1 << 62, entries))
    rows = pa.table({"key": keys, "value": values})
    state = NewKeyedState("count", rows, value="Long")
    write_snapshot(location, [NewOperator("counter", "String", (state,), parallelism=PARALLELISM)])
    return sum(size for _, size in Directory(location).files_below())


def show(what: str, traffic: Traffic, size: int) -> None:
    """A line of the table."""
    counts = " | ".join(f"{traffic.requests[operation]:,}" for operation in OPERATIONS)
    per_gigabyte = traffic.total / size * 1e9
    print(
        f"| {what} | {counts} | {traffic.total:,} | {per_gigabyte:,.0f} "
        f"| {traffic.received / 1e6:,.1f} | {traffic.sent / 1e6:,.1f} |",
        flush=True,
    )


def operations(at: Callable[[str], str]) -> list[tuple[str, Callable[[], Any]]]:
    """Each operation with its name, in the order in which they are done.

    Args:
        at: Gives the location of a directory.
    """
    lake = at("lake")
    words = ("--lake", lake, "--job", JOB)

    def add(name: str) -> Any:
        return import_snapshot(
            Catalog(lake), at("savepoint"), JOB, snapshot_id=name, engine="local"
        )

    def write(to: str, max_parallelism: int | None = None) -> Any:
        return export_snapshot(
            Catalog(lake), JOB, "first", at(to), max_parallelism=max_parallelism, engine="local"
        )

    return [
        ("open the savepoint", lambda: open_snapshot(at("savepoint"))),
        ("import it", lambda: add("first")),
        ("import it unchanged", lambda: add("second")),
        ("import it unchanged once more", lambda: add("third")),
        ("list the snapshots", lambda: succeed("snapshots", "--lake", lake, "--json")),
        ("`sql`: count", lambda: succeed("sql", *words, COUNT)),
        ("`get` of one key", lambda: succeed("get", *words, "--snapshot", "first", "--key=key-7")),
        ("export", lambda: write("export")),
        ("export, other max parallelism", lambda: write("wide", 256)),
        (
            "drop one snapshot of three",
            lambda: succeed("drop", *words, "--snapshot", "second", "--yes"),
        ),
        ("drop the others", lambda: succeed("drop", *words, "--keep", "0", "--yes")),
    ]


def succeed(*words: str) -> None:
    """Run a command."""
    ran = run(*words)
    if ran.code:
        raise RuntimeError(ran.err)


def main() -> None:
    """Count, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=4_000_000)
    parser.add_argument("--list", action="store_true", help="show each request, too")
    given = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    with S3Proxy(heap="3g") as store, Relay(store.port) as relay:
        size = write_savepoint(store.location("bench/savepoint"), given.entries)
        print(f"\n### A savepoint of {size / 1e6:,.0f} MB in {PARALLELISM} files, in S3\n")
        print(f"| what | {' | '.join(OPERATIONS)} | all | all a GB | MB in | MB out |")
        print(f"|---|{'---:|' * (len(OPERATIONS) + 4)}")
        asked = {}
        for what, operation in operations(lambda to: relay.through(store.location(f"bench/{to}"))):
            relay.taken()
            operation()
            traffic = relay.taken()
            show(what, traffic, size)
            asked[what] = traffic.asked
    if given.list:
        for what, requests in asked.items():
            print(f"\n### {what}\n", *requests, sep="\n")


if __name__ == "__main__":
    main()
