"""Pages of `statelake ui` over a large state: `python -m benchmarks.ui_pages`.

`ValueState<Long>` by `String`. Of 5,000,000 entries each page is to be there within a second, but
for the heaviest keys, which read all of an operator. Beside each page the command with the same
answer, a whole process.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

from starlette.testclient import TestClient

from benchmarks.audit import make_lake
from benchmarks.measuring import Row, print_table
from benchmarks.small_matters import run
from statelake.pipelines.ui.audit import Audit
from statelake.pipelines.ui.guard import Guard
from statelake.pipelines.ui.options import Options
from statelake.pipelines.ui.server import Site
from statelake.pipelines.ui.views import PAGE_ROWS, Source

REPEAT = 3
PORT = 8123
SNAPSHOT = {"job": "orders", "snapshot": "s1"}
STATE = {**SNAPSHOT, "operator": "counter", "state": "count"}
COUNT = "SELECT count(*), sum(value) FROM counter.count"
ROWS = "SELECT * FROM counter.count ORDER BY ALL LIMIT 100"
KEY = "key-000000000042"
OF_KEY = f"SELECT * FROM counter.count WHERE key = '{KEY}'"  # noqa: S608 - our own


def pages(entries: int) -> list[tuple[str, str, dict[str, str], tuple[str, ...]]]:
    """Each page: its title, path and words, and the command with the same answer."""
    last = str(entries // PAGE_ROWS - 1)
    sql = ("sql", "--job", "orders", "--as-of", "s1")
    of = ("--job", "orders", "--snapshot", "s1")
    return [
        ("all snapshots", "/", {}, ("snapshots",)),
        ("a snapshot", "/snapshot", SNAPSHOT, ("types", *of)),
        ("the first rows", "/rows", STATE, (*sql, ROWS)),
        ("the last rows", "/rows", STATE | {"page": last},
         (*sql, f"{ROWS} OFFSET {entries - PAGE_ROWS}")),
        ("rows by a filter", "/rows", STATE | {"where": f"key = '{KEY}'"}, (*sql, OF_KEY)),
        ("a key", "/key", SNAPSHOT | {"key": KEY}, ("get", *of, "--key", KEY)),
        ("two snapshots", "/diff", {"job": "orders", "earlier": "s0", "later": "s1"},
         ("diff", "s0", "s1", "--job", "orders")),
        ("a query", "/sql", SNAPSHOT | {"query": COUNT}, (*sql, COUNT)),
        ("the heaviest keys", "/top", SNAPSHOT | {"operator": "counter"}, ("top", *of)),
    ]  # fmt: skip


def measure(work: Path, entries: int) -> list[Row]:
    """A row for each page: the slowest of some visits behind the first, for warm caches."""
    location = make_lake(work, entries, 2).location
    source = Source(location, Options())
    guard = Guard(Site(source, Audit("")).app(), PORT)
    client = TestClient(guard, f"http://127.0.0.1:{PORT}", follow_redirects=False)
    client.get(f"/?token={guard.token}")
    rows = []
    for title, path, words, command in pages(entries):
        took = []
        for _ in range(REPEAT + 1):
            begin = time.perf_counter()
            answer = client.get(f"{path}?{urlencode(words)}")
            took.append(time.perf_counter() - begin)
            if answer.status_code != 200:
                raise SystemExit(f"{title}: {answer.text}")
        page = max(took[1:])
        theirs = max(run(*command, "--lake", location).seconds for _ in range(REPEAT))
        rows.append(Row(title, f"{page:.2f} s", f"`{command[0]}` {theirs:.2f} s", theirs / page))
    source.close()
    return rows


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=5_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        rows = measure(Path(name), given.entries)
    print_table(f"Pages of {given.entries:,} entries of `ValueState<Long>` by `String`", rows)


if __name__ == "__main__":
    main()
