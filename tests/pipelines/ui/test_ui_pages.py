"""The pages of `statelake ui`: each view, of a savepoint, a job of Flink SQL, and a small lake."""

from __future__ import annotations

import csv
import errno
import json
import os
import re
import shutil
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from html.parser import HTMLParser
from io import BytesIO, StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

import statelake as sl
from statelake.pipelines.lake.share.mask_file import read_mask
from statelake.pipelines.ui import audit
from statelake.pipelines.ui.guard import Guard
from statelake.pipelines.ui.options import Options
from statelake.pipelines.ui.pages import script, top
from statelake.pipelines.ui.server import Audit, Site
from statelake.pipelines.ui.views import PAGE_ROWS, Name, Source
from statelake.state_core.errors import DeclarationError, StateError
from statelake.state_core.formats.key_weights import HeavyKey
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.printable import printable
from tests.support.lakes import DEMO, FLINK, demo_lake, files_of
from tests.support.savepoints.hostile_names import HOSTILE, hostile_savepoint
from tests.support.savepoints.sql_jobs import unpack_sql_job, unpack_sql_plans

PORT = 8123
ELEMENTS = {
    "a", "body", "button", "caption", "code", "dd", "div", "dl", "dt", "figcaption", "figure",
    "form", "h1", "h2", "head", "header", "html", "input", "label", "li", "link", "main", "meta",
    "nav", "p", "polyline", "rect", "svg", "table", "tbody", "td", "textarea", "th", "thead",
    "title", "tr", "ul",
}  # fmt: skip


class Opened:
    """Pages with a session, as a browser has it."""

    def __init__(self, location: Path, options: Options | None = None, audit: str = "") -> None:
        self.source = Source(location, options or Options())
        self.log = Audit(audit)
        guard = Guard(Site(self.source, self.log).app(), PORT)
        self.client = TestClient(guard, f"http://127.0.0.1:{PORT}", follow_redirects=False)
        assert self.client.get(f"/?token={guard.token}").status_code == 303

    def answer(self, path: str, **words: str) -> httpx.Response:
        """What a request gets."""
        query = urlencode(words, errors="surrogatepass")
        answer: httpx.Response = self.client.get(f"{path}?{query}" if query else path)
        return answer

    def page(self, path: str, code: int = 200, /, **words: str) -> Seen:
        """A page, looked at."""
        answer = self.answer(path, **words)
        assert answer.status_code == code, answer.text
        return Seen(answer.text)

    def close(self) -> None:
        """End it."""
        self.client.close()
        self.source.close()
        self.log.close()


class Seen(HTMLParser):
    """A page as a browser parses it, of which only known elements and addresses are right."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.markup = text
        self.links: list[str] = []
        self.rows: list[list[str]] = []
        self.words = ""
        self._in_cell = False
        own = f"<script>{script()}</script>"
        assert text.count("<script") == text.count(own)  # no other one
        text = text.replace(own, "")
        assert printable(text.replace("\n", "")) == text.replace("\n", "")
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Look at an element."""
        assert tag in ELEMENTS, tag
        for name, value in attrs:
            assert not name.startswith("on"), name
            assert name != "style"
            if name in ("href", "action", "src"):
                assert re.match(r"/(?!/)|#content$|data:,$", value or ""), value
        words = dict(attrs)
        if tag == "a":
            self.links.append(words["href"] or "")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._in_cell = True
        if tag == "th":
            assert words["scope"] in ("row", "col")
        if tag in ("input", "textarea") and words.get("type") != "hidden":
            assert f'for="{words["id"]}"' in self.markup

    def handle_endtag(self, tag: str) -> None:
        """Leave a cell."""
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        """Gather the text."""
        assert printable(data.replace("\n", "")) == data.replace("\n", "")
        self.words += f"{data} "
        if self._in_cell:
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with two snapshots of the demo's job."""
    return demo_lake(tmp_path_factory.mktemp("ui") / "lake")


@pytest.fixture(scope="module")
def of_lake(lake: Path) -> Iterator[Opened]:
    """Its pages."""
    opened = Opened(lake)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def of_directory() -> Iterator[Opened]:
    """The pages of the directory with both savepoints of the demo."""
    opened = Opened(DEMO)
    yield opened
    opened.close()


def test_all_snapshots_of_a_lake(of_lake: Opened) -> None:
    """The newest first, each with its page."""
    seen = of_lake.page("/")
    assert [row[0] for row in seen.rows[1:]] == ["tuesday", "monday"]
    assert "/snapshot?job=demo&snapshot=monday" in seen.links
    assert "/growth?job=demo" in seen.links


def test_all_snapshots_below_a_directory(of_directory: Opened) -> None:
    """What `scan` finds, and whether it is sound."""
    seen = of_directory.page("/")
    assert {row[0] for row in seen.rows[1:]} == {"monday", "tuesday"}
    assert {row[5] for row in seen.rows[1:]} == {"restorable"}


def test_sound_ones_are_first(tmp_path: Path) -> None:
    """A newer one that is damaged is below, and says why."""
    for name in ("a", "b"):
        hostile_savepoint(tmp_path / name)
    (tmp_path / "b" / "_metadata").write_bytes(b"\x00")
    opened = Opened(tmp_path)
    rows = opened.page("/").rows[1:]
    opened.close()
    assert [row[0] for row in rows] == ["a", "b"]
    assert rows[1][5] == "damaged"
    assert rows[1][6]


def test_the_only_snapshot_is_shown_at_once() -> None:
    """Where a snapshot itself is named."""
    opened = Opened(DEMO / "monday")
    answer = opened.answer("/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/snapshot?snapshot=.")
    seen = opened.page("/snapshot", snapshot=".")
    opened.close()
    assert "This snapshot" in seen.words


@pytest.mark.parametrize("name", ["kinds-rocksdb-native-p2-m128-flink2.3.0",
                                  "sql-hashmap-canonical-p2-m128-flink2.3.0"])  # fmt: skip
@pytest.mark.full
def test_a_snapshot_has_what_inspect_says(name: str) -> None:
    """States, kinds, types, entries and bytes; and key groups are drawn."""
    described = sl.open_snapshot(FLINK / name / "savepoint").describe()
    opened = Opened(FLINK / name / "savepoint")
    seen = opened.page("/snapshot", snapshot=".")
    for operator in described.operators:
        assert operator.label in seen.words
        for state in operator.states:
            assert [state.name, f"{state.entries:,}"] in [[row[0], row[4]] for row in seen.rows]
    assert "<rect " in seen.markup
    states = [link for link in seen.links if link.startswith("/rows?")]
    assert len(states) == sum(len(operator.states) for operator in described.operators)
    for link in states:
        assert opened.client.get(link).status_code == 200, link
    opened.close()


@pytest.mark.parametrize("which", ["of_lake", "of_directory"])
def test_rows_are_filtered_and_paged(which: str, request: pytest.FixtureRequest) -> None:
    """All rows once, page by page; a filter is SQL."""
    opened: Opened = request.getfixturevalue(which)
    job = {"job": "demo"} if opened.source.in_lake else {}
    words = {**job, "snapshot": "monday", "operator": "kinds", "state": "total"}
    held = sl.open_snapshot(DEMO / "monday")["kinds"]["total"].to_arrow()
    expected = sorted(held["key"].to_pylist())
    assert len(expected) > PAGE_ROWS
    keys: list[str] = []
    link = f"/rows?{urlencode(words)}"
    while link:
        seen = Seen(opened.client.get(link).text)
        at = seen.rows[0].index("key")
        keys += [row[at] for row in seen.rows[1:]]
        link = next((each for each in seen.links if f"page={len(keys) // PAGE_ROWS}" in each), "")
    assert sorted(keys, key=int) == [str(key) for key in expected]
    seen = opened.page("/rows", where=f"key = {expected[3]}", **words)
    assert [row[at] for row in seen.rows[1:]] == [str(expected[3])]
    for where in (
        "key =",
        "nothing = 1",
        "1=1; DROP TABLE x",
        "key in (SELECT * FROM '/etc/passwd')",
    ):
        refused = opened.page("/rows", 400, where=where, **words)
        assert 'role="alert"' in refused.markup
        assert "root:" not in refused.markup


def test_a_page_that_is_none(of_lake: Opened) -> None:
    """And states and snapshots that are not there."""
    words = {"job": "demo", "snapshot": "monday", "operator": "kinds", "state": "total"}
    for more in ({"page": "-1"}, {"page": "x"}, {"page": "9" * 30}, {"state": "no"},
                 {"operator": "no"}, {"snapshot": "no"}, {"job": "no"}):  # fmt: skip
        of_lake.page("/rows", 404, **(words | more))
    assert of_lake.client.get("/snapshot?snapshot=%FF").status_code == 404
    assert of_lake.answer("/nothing").status_code == 404


@pytest.mark.parametrize("name", ["..", "../monday", "/etc", "monday/../tuesday"])
def test_only_snapshots_that_were_found_are_opened(of_directory: Opened, name: str) -> None:
    """An address names no path."""
    seen = of_directory.page("/snapshot", 404, snapshot=name)
    assert "no snapshot" in seen.words


def test_a_key_and_its_history(of_lake: Opened, of_directory: Opened) -> None:
    """As `get` and `history` have it; in a directory there is no history."""
    (key, *_) = sl.open_snapshot(DEMO / "monday")["kinds"]["total"].to_arrow()["key"].to_pylist()
    seen = of_lake.page("/key", job="demo", snapshot="monday", key=str(key))
    states = {row[0] for row in seen.rows}
    found = sl.Lake(of_lake.source.location).job("demo")["monday"].key_rows(str(key))
    held = {state.name for rows in found for state, batch in rows.batches if batch.num_rows}
    assert held
    assert held <= states
    assert "History" in seen.words
    alone = of_directory.page("/key", snapshot="monday", key=str(key))
    assert "There is none. A lake" in alone.words
    assert held <= {row[0] for row in alone.rows}
    assert (
        "There is no state for this key"
        in of_directory.page("/key", snapshot="monday", key="-77777").words
    )
    of_directory.page("/key", 400, snapshot="monday", key="no number")


def test_timers_of_one_queue_are_shown_alone(of_lake: Opened) -> None:
    """Those of all queues share a table."""
    words = {"job": "demo", "snapshot": "monday", "operator": "kinds"}
    for domain in ("event", "processing"):
        state = f"_timer_state/{domain}_user-timers"
        seen = of_lake.page("/rows", state=state, where="domain <> 'x' OR true", **words)
        assert {row[2] for row in seen.rows[1:]} == {domain}


def test_the_heaviest_keys_of_all_states_together(of_lake: Opened) -> None:
    """Each with what all states hold for it."""
    weighed = sl.open_snapshot(DEMO / "monday").top(1000, operator="kinds")["kinds"]
    sums: Counter[int] = Counter()
    for weights in weighed.values():
        for each in weights.heaviest():
            sums[each.key] += each.size
    seen = of_lake.page("/top", job="demo", snapshot="monday", operator="kinds")
    assert "All states together" in seen.words
    assert [row[3] for row in seen.rows[1:21]] == [f"{size} B" for _, size in sums.most_common(20)]
    assert seen.rows[1][0] in {str(key) for key, size in sums.items() if size == max(sums.values())}


def test_snapshots_are_compared_by_time(of_lake: Opened) -> None:
    """From whichever page."""
    for name in ("monday", "tuesday"):
        seen = of_lake.page("/snapshot", job="demo", snapshot=name)
        assert "From monday to tuesday" in seen.words


def test_columns_of_a_query_are_no_times(of_lake: Opened) -> None:
    """Whatever they are called: only those of state are."""
    words = {"job": "demo", "snapshot": "monday"}
    query = "SELECT true AS ttl, 5 AS timestamp"
    assert of_lake.page("/sql", query=query, **words).rows[1] == ["true", "5"]


@pytest.mark.parametrize("which", ["of_lake", "of_directory"])
def test_two_snapshots(which: str, request: pytest.FixtureRequest) -> None:
    """Only what differs, with the counts of `diff`."""
    opened: Opened = request.getfixturevalue(which)
    job = {"job": "demo"} if opened.source.in_lake else {}
    lake = request.getfixturevalue("lake")
    expected = sl.Lake(lake).job("demo", engine="local")["monday"].diff("tuesday")
    seen = opened.page("/diff", earlier="monday", later="tuesday", **job)
    rows = {(row[0], row[1]): row[2:] for row in seen.rows if len(row) == 6}
    for each in expected:
        counts = [each.status, *map("{:,}".format, (each.added, each.removed, each.changed))]
        shown = rows.get((each.operator, each.state))
        assert shown == (None if each.status == "same" else counts)
    assert (
        "They hold the same" in opened.page("/diff", earlier="monday", later="monday", **job).words
    )


def test_what_differs_is_shown_field_by_field(tmp_path: Path) -> None:
    """A field that is the same in both is left out, and a key leads to its page."""
    fields = {"earlier": [(1, "a", 0.5), (2, "b", 0.5)], "later": [(1, "a", 0.75), (3, "b", 0.5)]}
    for name, values in fields.items():
        rows = pa.table(
            {
                "key": [value[0] for value in values],
                "value": [dict(zip(("f0", "f1", "f2"), value, strict=True)) for value in values],
            }
        )
        state = sl.NewKeyedState("row", rows, value="Row<Long, String, Double>")
        made = sl.NewOperator("o", "Long", (state,), parallelism=1)
        sl.write_snapshot(tmp_path / name, [made], metadata_version=6)
    opened = Opened(tmp_path)
    seen = opened.page("/diff", earlier="earlier", later="later")
    opened.close()
    assert seen.rows[2:] == [
        ["Is", "Key", "Field", "Before", "After"],
        ["changed", "1", "value.f2", "0.5", "0.75"],
        ["removed", "2", "value.f0", "2", ""], ["removed", "2", "value.f1", "b", ""],
        ["removed", "2", "value.f2", "0.5", ""],
        ["added", "3", "value.f0", "", "3"], ["added", "3", "value.f1", "", "b"],
        ["added", "3", "value.f2", "", "0.5"],
    ]  # fmt: skip
    assert "/key?snapshot=later&key=1" in seen.links


def test_the_heaviest_keys_are_those_of_top(of_lake: Opened, of_directory: Opened) -> None:
    """By bytes, each with its page: its history says since when."""
    weighed = sl.open_snapshot(DEMO / "monday").top(20, operator="kinds")["kinds"]
    for opened, job in ((of_lake, {"job": "demo"}), (of_directory, {})):
        words = {**job, "snapshot": "monday"}
        (link,) = [
            each for each in opened.page("/snapshot", **words).links if each.startswith("/top?")
        ]
        seen = Seen(opened.client.get(link).text)
        for state, weights in weighed.items():
            key = weights.heaviest()[0]
            assert f"{state}, {weights.layout.kind.value}" in seen.words
            assert [str(key.key), str(key.key_group)] in [row[:2] for row in seen.rows]
        keys = [each for each in seen.links if each.startswith("/key?")]
        assert len(keys) >= len(weighed)
        assert opened.client.get(keys[0]).status_code == 200
        opened.page("/top", 404, operator="no", **words)


@pytest.mark.parametrize("parallelism", [1, 3, 128])
def test_another_parallelism_is_drawn(of_directory: Opened, parallelism: int) -> None:
    """Key groups in the colours of its subtasks, and each subtask's bytes."""
    operator = sl.open_snapshot(DEMO / "monday").describe().operators[0]
    seen = of_directory.page("/snapshot", snapshot="monday", parallelism=str(parallelism))
    assert str(operator.load(parallelism)) in seen.words
    subtasks = seen.markup.partition('id="subtasks-0"')[2].partition("</svg>")[0]
    assert subtasks.count("<rect ") == parallelism
    refused = of_directory.page("/snapshot", snapshot="monday", parallelism="129")
    assert "No higher parallelism than 128" in refused.words
    assert str(operator.load(2)) in refused.words
    of_directory.page("/snapshot", 404, snapshot="monday", parallelism="x")


def test_erasures_and_their_proof(tmp_path: Path) -> None:
    """The plan of one, its record, and the audit; nothing is written by a look."""
    path = tmp_path / "lake"
    sl.Lake(path).job("demo", engine="local").import_snapshot(DEMO / "monday", "monday")
    (key, *_) = sl.open_snapshot(DEMO / "monday")["kinds"]["total"].to_arrow()["key"].to_pylist()
    opened = Opened(path)
    assert "Nothing was erased" in opened.page("/erasures").words
    before = files_of(path)
    of_key = opened.page("/key", job="demo", snapshot="monday", key=str(key))
    (link,) = [each for each in of_key.links if each.startswith("/erasure?")]
    plan = Seen(opened.client.get(link).text)
    assert ["demo", "kinds", "total", "1", "1", "1"] in plan.rows
    assert files_of(path) == before
    erasure = sl.Lake(path).erase("gdpr-4711", keys=[key], carried="keep")
    erasure.execute()
    assert erasure.audit().clean
    seen = opened.page("/erasures")
    assert "gdpr-4711: audit" in seen.words
    assert "gdpr-4711: erase" in seen.words
    assert "none was changed" in seen.words
    assert ["demo", "kinds", "total", "1", "1", "1"] in seen.rows
    for record in sl.Lake(path).audit_records():
        assert record.digest in seen.words
    assert str(key) not in seen.markup
    opened.close()


def test_what_was_erased_is_on_no_masked_page(tmp_path: Path) -> None:
    """A copy of before the erasure is not shown any more."""
    keys = pa.table({"key": ["ann", "bob"], "value": [1, 2]})
    operator = sl.NewOperator("a", "String", (sl.NewKeyedState("n", keys, value="Long"),))
    sl.write_snapshot(tmp_path / "sp", [operator], metadata_version=5)
    job = sl.Lake(tmp_path / "lake").job("j", engine="local")
    job.import_snapshot(tmp_path / "sp", "monday")
    (tmp_path / "mask.yaml").write_text("others: keep\n")
    rows = {"job": "j", "snapshot": "monday", "operator": "a", "state": "n"}
    options = Options(mask=read_mask(str(tmp_path / "mask.yaml")))
    with closing(Opened(tmp_path / "lake", options)) as opened:
        assert "bob" in opened.page("/rows", **rows).words
        sl.Lake(tmp_path / "lake").erase("gdpr", keys=["bob"]).execute()
        seen = opened.page("/rows", **rows).words
        assert ("ann" in seen, "bob" in seen) == (True, False)


def test_a_directory_has_no_erasures(of_directory: Opened) -> None:
    """Nor the plan of one."""
    of_directory.page("/erasures", 404)
    of_directory.page("/erasure", 400, snapshot="monday", key="1")


def test_growth(of_lake: Opened, of_directory: Opened) -> None:
    """Sentences first, a line, and a table; a directory has none."""
    seen = of_lake.page("/growth", job="demo")
    told = sl.Lake(of_lake.source.location).job("demo").growth()
    at = [seen.words.index(printable(sentence)) for sentence in told.sentences]
    assert at == sorted(at)
    assert seen.markup.index("<polyline") > seen.markup.index("<p>")
    assert [row[0] for row in seen.rows[1:3]] == ["monday", "tuesday"]
    of_lake.page("/growth", 404, job="no")
    of_directory.page("/growth", 404)


def test_sql_and_its_files(of_lake: Opened) -> None:
    """A table, and all rows as CSV and Parquet."""
    query = "SELECT key, value\nFROM kinds.total\nORDER BY key"
    of = {"job": "demo", "snapshot": "monday"}
    held = sl.open_snapshot(DEMO / "monday")["kinds"]["total"].to_arrow().sort_by("key")
    assert "kinds.total" in of_lake.page("/sql", **of).words
    seen = of_lake.page("/sql", query=query, **of)
    assert [row[0] for row in seen.rows[1:]] == list(map(str, held["key"].to_pylist()))
    assert f">{query}</textarea>" in seen.markup
    links = [link for link in seen.links if link.startswith("/sql.")]
    as_csv, as_parquet = (of_lake.client.get(link) for link in links)
    read = list(csv.reader(StringIO(as_csv.text)))
    assert [row[0] for row in read] == ["key", *map(str, held["key"].to_pylist())]
    assert pq.read_table(BytesIO(as_parquet.content))["key"].to_pylist() == held["key"].to_pylist()
    assert as_csv.headers["content-disposition"] == 'attachment; filename="rows.csv"'


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM demo.kinds.total", "COPY (SELECT 1) TO '/tmp/x.csv'", "ATTACH 'x.db'",
        "SELECT * FROM read_text('/etc/passwd')", "INSTALL httpfs", "SELECT 1; SELECT 2",
        "SET enable_external_access = true", "SELECT * FROM '/etc/passwd'", "PRAGMA database_list",
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/sql", "/sql.csv", "/sql.parquet"])
def test_sql_only_reads_and_only_the_lake(
    of_lake: Opened, lake: Path, query: str, path: str
) -> None:
    """Nothing changes, no file is read, and the page says why."""
    before = files_of(lake)
    seen = of_lake.page(path, 400, job="demo", snapshot="monday", query=query)
    assert 'role="alert"' in seen.markup
    assert "root:" not in seen.markup
    assert files_of(lake) == before


@pytest.mark.parametrize("query", ["SELECT '\ud800'", "SELECT 'infinity'::TIMESTAMP AS t"])
def test_what_no_page_can_show_is_told(query: str, of_lake: Opened) -> None:
    """Half of a surrogate, and a time that Python does not have: the form, and what is wrong."""
    words = {"job": "demo", "snapshot": "tuesday", "query": query}
    for path in ("/sql", "/sql.csv"):
        seen = of_lake.page(path, 400, **words)
        assert "unpaired surrogate" in seen.words or "outside the years 1 to 9999" in seen.words


def test_what_parquet_does_not_have_is_told(of_lake: Opened) -> None:
    """Before a byte is sent; a page and CSV have it."""
    words = {"job": "demo", "snapshot": "tuesday", "query": "SELECT union_value(a := 1) AS u"}
    assert "Parquet has no such column" in of_lake.page("/sql.parquet", 400, **words).words
    assert of_lake.answer("/sql.csv", **words).text == "u\n1\n"
    assert of_lake.page("/sql", **words).rows[1] == ["1"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT count(*) FROM range(100000000) a, range(100000000) b", "--query-seconds"),
        ("SELECT list(range) FROM range(100000000)", "--query-memory"),
        ("SELECT repeat('x', 100000000)", "fewer columns or rows"),
    ],
)
@pytest.mark.full
def test_a_query_that_takes_too_much_is_ended(lake: Path, query: str, said: str) -> None:
    """The page says what to do, and the next one is answered."""
    options = Options(query_memory=64 << 20, query_seconds=1 if "seconds" in said else 60)
    with closing(Opened(lake, options)) as opened:
        of = {"job": "demo", "snapshot": "monday"}
        seen = opened.page("/sql", 400, query=query, **of)
        assert 'role="alert"' in seen.markup
        assert said in seen.words
        assert opened.page("/sql", query="SELECT 1 AS a, 2 AS a", **of).rows[0] == ["a", "a"]


def test_a_directory_that_got_another_snapshot(tmp_path: Path) -> None:
    """All pages show what is there now: also those whose content was read before."""
    place, of = tmp_path / "all" / "newest", {"snapshot": "newest"}
    opened = None
    for count, name in enumerate(("before", "after"), start=1):
        rows = pa.table({"key": range(count), "value": range(count)})
        operator = sl.NewOperator("carts", "Long", (sl.NewKeyedState(name, rows, value="Long"),))
        shutil.rmtree(place, ignore_errors=True)
        sl.write_snapshot(place, [operator], metadata_version=6)
        opened = opened or Opened(tmp_path / "all")
        assert [row[0] for row in opened.page("/snapshot", **of).rows[1:]] == [name]
        found = opened.page("/rows", operator="carts", state=name, **of)
        assert len(found.rows) == 1 + count
    assert opened is not None
    opened.close()


def test_a_key_that_no_address_can_hold(tmp_path: Path) -> None:
    """It is shown, and is no link that the server would refuse; shorter ones are links."""
    keys = ["short", "long" * 20_000]
    rows = pa.table({"key": keys, "value": keys})
    operator = sl.NewOperator("o", "String", (sl.NewKeyedState("v", rows, value="String"),))
    for name, among in (("one", rows), ("two", rows.slice(0, 0))):
        state = sl.NewKeyedState("v", among, value="String")
        sl.write_snapshot(tmp_path / name, [replace(operator, states=(state,))], metadata_version=6)
    opened = Opened(tmp_path)
    for path, words in (
        ("/rows", {"snapshot": "one", "operator": "o", "state": "v"}),
        ("/top", {"snapshot": "one", "operator": "o"}),
        ("/diff", {"earlier": "one", "later": "two"}),
    ):
        seen = opened.page(path, **words)
        assert [link for link in seen.links if link.startswith("/key")] == [
            "/key?snapshot=one&key=%22short%22" if path != "/diff" else
            "/key?snapshot=two&key=%22short%22"
        ]  # fmt: skip
        assert any(cell.startswith("longlong") for row in seen.rows for cell in row)
    opened.close()


def test_keys_that_look_the_same_are_not_one() -> None:
    """A key that is not decoded is shown as `null`, as others are: key groups tell them apart."""

    def weighed(kind: StateKind) -> Any:
        keys = [HeavyKey(None, group, 1, 10 * group) for group in (9, 5)]
        return SimpleNamespace(
            entries=2, keys=2, size=140, heaviest=lambda: keys, busiest=lambda: keys,
            layout=SimpleNamespace(kind=kind),
        )  # fmt: skip

    held = {"a": weighed(StateKind.VALUE), "b": weighed(StateKind.LIST)}
    seen = Seen("".join(top(Name("", "one"), held)))
    assert [row[:3] for row in seen.rows[:3]] == [
        ["Key", "Key group", "Entries"], ["null", "9", "2"], ["null", "5", "2"],
    ]  # fmt: skip


@pytest.mark.full
def test_pages_of_rows_are_all_rows_in_order(tmp_path: Path) -> None:
    """Of keyed states, each queue of timers, and operator state: nothing twice or left out."""
    few = pa.table({"key": range(7), "value": range(7)})
    pairs = pa.table({"key": [1] * 230, "user_key": range(230), "value": range(230)})
    timers = [
        sl.NewKeyedState.timers(
            domain, pa.table({"key": [each % 40 for each in range(many)], "timestamp": range(many)})
        )
        for domain, many in (("event", 250), ("processing", 130))
    ]
    keyed = (
        sl.NewKeyedState("few", few, value="Long"),
        sl.NewKeyedState("none", few.slice(0, 0), value="Long"),
        sl.NewKeyedState("pairs", pairs, kind="map", value="Long", user_key="Long"),
        *timers,
    )
    listed = sl.NewOperatorState("listed", pa.table({"value": range(120)}), "split", "Long")
    operator = sl.NewOperator("o", "Long", keyed, (listed,), parallelism=2, max_parallelism=16)
    sl.write_snapshot(tmp_path / "one", [operator], metadata_version=6)
    source, name = Source(tmp_path, Options()), Name("", "one")
    counts = {}
    for state in source.contents(name).operators[0].states:
        found, number, more = [], 0, True
        while more:
            page = source.rows(name, "o", state.name, "", number)
            found, number, more = [*found, *page.values], number + 1, page.more
            assert len(page.values) == PAGE_ROWS or not more
        at = page.columns.index("value" if "value" in page.columns else "timestamp")
        assert len({row[at] for row in found}) == len(found) == state.entries
        if state.mode is None:
            assert [row[0] for row in found] == sorted(row[0] for row in found)
        assert not source.rows(name, "o", state.name, "", number + 5).values
        assert source.rows(name, "o", state.name, "true", 0).values == found[:PAGE_ROWS]
        counts[state.name] = len(found)
    assert sorted(counts.values()) == [0, 7, 120, 130, 230, 250]
    source.close()


def test_states_of_one_name_have_rows_of_their_own(tmp_path: Path) -> None:
    """Keyed and operator state may have the same name: each link leads to its own, page by page."""
    keyed = sl.NewKeyedState("v", pa.table({"key": range(120), "value": range(120)}), value="Long")
    listed = sl.NewOperatorState("v", pa.table({"value": range(500, 750)}), "split", "Long")
    operator = sl.NewOperator("o", "Long", (keyed,), (listed,), max_parallelism=16)
    sl.write_snapshot(tmp_path / "one", [operator], metadata_version=6)
    opened = Opened(tmp_path)
    links = [each for each in opened.page("/snapshot", snapshot="one").links if "/rows" in each]
    for link, values in zip(links, (range(120), range(500, 750)), strict=True):
        found: list[int] = []
        paths = [link]
        while paths:
            seen = Seen(opened.client.get(paths[0]).text)
            at = seen.rows[0].index("value")
            found += [int(row[at]) for row in seen.rows[1:]]
            paths = [
                each for each in seen.links if each.endswith(f"page={len(found) // PAGE_ROWS}")
            ]
        assert sorted(found) == list(values)
    opened.close()


def test_a_plan_gives_names_and_json_has_columns(tmp_path: Path) -> None:
    """Of a savepoint; a lake has those of its imports."""
    shop, (plan, _) = unpack_sql_job("shop", tmp_path / "shop"), unpack_sql_plans(tmp_path)
    with closing(Opened(shop, Options(plan=str(plan)))) as opened:
        assert "GroupAggregate[4]" in opened.page("/snapshot", snapshot=".").words
        assert "count_amount" in opened.page("/key", snapshot=".", key="shop-1").words
    texts = pa.table({"key": ["a"], "value": ['{"city":"Bonn"}']})
    state = sl.NewKeyedState("profile", texts, value="String")
    operator = sl.NewOperator("crm", "String", (state,))
    sl.write_snapshot(tmp_path / "crm", [operator], metadata_version=5)
    rows = {"snapshot": ".", "operator": "crm", "state": "profile", "where": "value.city = 'Bonn'"}
    with closing(Opened(tmp_path / "crm", Options(decode=("crm/profile=json",)))) as opened:
        assert "Bonn" in opened.page("/rows", **rows).words
    sl.Lake(tmp_path / "lake").job("crm", engine="local").import_snapshot(tmp_path / "crm")
    with pytest.raises(DeclarationError, match="a lake: it has the columns of its imports"):
        Source(tmp_path / "lake", Options(plan=str(plan)))


def test_no_values_shows_none(lake: Path) -> None:
    """Nor a field to ask for them; names and sizes are shown."""
    opened = Opened(lake, Options(values=False))
    of = {"job": "demo", "snapshot": "tuesday"}
    for path in ("/rows", "/key", "/top", "/erasure", "/sql", "/sql.csv", "/sql.parquet"):
        opened.page(path, 400, key="1", operator="kinds", state="total", query="SELECT 1", **of)
    for path, more in (("/", {}), ("/snapshot", of), ("/growth", of)):
        seen = opened.page(path, **more)
        assert 'name="key"' not in seen.markup
        assert not [
            link for link in seen.links if link.startswith(("/rows", "/key", "/sql", "/top"))
        ]
    seen = opened.page("/diff", job="demo", earlier="monday", later="tuesday")
    assert "Entries that differ" not in seen.markup
    assert all(len(row) == 6 for row in seen.rows)
    opened.close()


@pytest.mark.parametrize("values", [True, False])
def test_notes_of_people_are_shown_with_values_alone(tmp_path: Path, *, values: bool) -> None:
    """Who wrote one may have named a key."""
    job = sl.Lake(tmp_path / "lake").job("demo", engine="local")
    job.import_snapshot(DEMO / "monday", "monday", note="because of alice")
    job.import_snapshot(DEMO / "tuesday", "tuesday", note="because of alice")
    of = {"job": "demo", "snapshot": "monday"}
    paths = {"/": {}, "/snapshot": of, "/growth": of, "/erasures": {},
             "/diff": {"job": "demo", "earlier": "monday", "later": "tuesday"}}  # fmt: skip
    with closing(Opened(tmp_path / "lake", Options(values=values))) as opened:
        shown = {
            path: "alice" in opened.answer(path, **words).text for path, words in paths.items()
        }
    assert shown == {path: values and path == "/snapshot" for path in paths}


SECRET = "a secret of more than 16 bytes"  # noqa: S105 - of no use elsewhere
PEOPLE = ("alice@example.org", "bob@example.org")


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Options]:
    """Two savepoints with names in keys and values, and a mask of them."""
    monkeypatch.setenv("UI_SECRET", SECRET)
    for number in (1, 2):
        rows = pa.table(
            {"key": pa.array(PEOPLE), "value": pa.array(f"{each}{number}" for each in PEOPLE)}
        )
        state = sl.NewKeyedState("mail", rows, value="String")
        operator = sl.NewOperator("customers", "String", (state,), parallelism=1)
        path = tmp_path / "all" / f"savepoint-{number}"
        sl.write_snapshot(path, [operator], metadata_version=6)
    mask = tmp_path / "mask.yaml"
    mask.write_text("secret: {env: UI_SECRET}\nkeys: {customers: format}\nothers: keep\n"
                    "states: {customers/mail: format}\n")  # fmt: skip
    return tmp_path / "all", Options(mask=read_mask(str(mask)))


@pytest.mark.parametrize("in_lake", [False, True])
def test_a_mask_is_on_every_page(
    people: tuple[Path, Options], tmp_path: Path, *, in_lake: bool
) -> None:
    """Of rows, keys, differences and SQL, on masked copies alone."""
    location, options = people
    names = ["savepoint-1", "savepoint-2"]
    if in_lake:
        job = sl.Lake(tmp_path / "lake").job("people", engine="local")
        for name in names:
            job.import_snapshot(location / name, name)
        location = tmp_path / "lake"
    opened = Opened(location, options)
    job_word = {"job": "people"} if in_lake else {}
    of = {**job_word, "snapshot": names[0]}
    rows = opened.page("/rows", operator="customers", state="mail", **of)
    at = rows.rows[0].index("key")
    masked = [row[at] for row in rows.rows[1:]]
    pages = [
        opened.page("/"), opened.page("/snapshot", **of), rows,
        opened.page("/diff", earlier=names[0], later=names[1], **job_word),
        opened.page("/sql", query="SELECT * FROM customers.mail", **of),
        opened.page("/key", key=masked[0], **of),
    ]  # fmt: skip
    if in_lake:
        pages.append(opened.page("/growth", job="people"))
    downloaded = opened.answer("/sql.csv", query="SELECT * FROM customers.mail", **of).text
    opened.close()
    assert len(masked) == len(PEOPLE)
    assert "mail" in pages[-1].words or in_lake
    for text in (*(page.markup for page in pages), downloaded):
        for person in PEOPLE:
            assert person not in text
            assert person.partition("@")[0] not in text
    assert "values are masked" in pages[0].words


def test_looks_are_in_the_audit_file(tmp_path: Path) -> None:
    """A line for each, before it is shown; what can't be written is not shown."""
    path = tmp_path / "looks.jsonl"
    opened = Opened(DEMO, audit=str(path))
    opened.page("/key", snapshot="monday", key="4")
    opened.page("/rows", snapshot="monday", operator="kinds", state="total", where="key = 4")
    opened.page("/sql", snapshot="monday", query="SELECT 1")
    opened.page("/snapshot", snapshot="monday")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["look"], line["snapshot"]) for line in lines] == [
        ("key", "monday"), ("rows", "monday"), ("sql", "monday"),
    ]  # fmt: skip
    assert (lines[0]["key"], lines[1]["where"]) == ("4", "key = 4")
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(StateError, match="audit file can't be written"):
        Audit(str(tmp_path / "no" / "file"))
    opened.close()


def test_an_audit_file_that_was_there_is_the_owners_alone(tmp_path: Path) -> None:
    """It has the keys that were asked for; what it held stays."""
    path = tmp_path / "looks.jsonl"
    path.write_text("before\n")
    path.chmod(0o644)
    log = Audit(str(path))
    log.write("key", Name("demo", "monday"), key="1")
    log.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().startswith("before\n{")


@pytest.mark.parametrize("kind", ["link", "link to none", "hard link", "pipe", "directory"])
def test_an_audit_file_is_a_regular_one(kind: str, tmp_path: Path) -> None:
    """Nothing is written through a link, and no pipe is waited for."""
    path, other = tmp_path / "looks.jsonl", tmp_path / "other"
    if kind != "link to none":
        other.write_text("before\n")
    if kind.startswith("link"):
        path.symlink_to(other)
    elif kind == "hard link":
        path.hardlink_to(other)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(StateError, match=r"looks\.jsonl: the audit file can't be written"):
        Audit(str(path))
    assert not other.exists() or other.read_text() == "before\n"


def test_an_audit_file_that_fails_hides_what_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk."""
    opened = Opened(DEMO, audit=str(tmp_path / "looks.jsonl"))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(audit, "os", SimpleNamespace(write=full, close=os.close))
    seen = opened.page("/key", 400, snapshot="monday", key="4")
    opened.close()
    assert "audit file can't be written" in seen.words


def walked(opened: Opened, most: int = 400) -> dict[str, Seen]:
    """Every page to which links lead, from the first on."""
    seen: dict[str, Seen] = {}
    left = ["/?list=1"]
    while left and len(seen) < most:
        link = left.pop(0)
        if link in seen or not link.startswith("/") or link.startswith(("/sql.", "/page.css")):
            continue
        answer = opened.client.get(link)
        if link == "/" and answer.status_code == 303:  # to the only snapshot
            left.append(answer.headers["location"])
            continue
        assert answer.status_code == 200, (link, answer.text)
        seen[link] = Seen(answer.text)
        left += seen[link].links
    return seen


@pytest.mark.full
def test_hostile_names_are_text_on_every_page(tmp_path: Path) -> None:
    """`Seen` refuses any element, attribute or address that is not ours."""
    for name in ("one", "two"):
        hostile_savepoint(tmp_path / "all" / name)
    opened = Opened(tmp_path / "all")
    seen = walked(opened)
    opened.close()
    kinds = {link.partition("?")[0] for link in seen}
    assert kinds == {"/", "/snapshot", "/rows", "/key", "/top", "/diff", "/sql"}
    assert all(printable(name) in "".join(page.words for page in seen.values()) for name in HOSTILE)


NAMES = st.text(
    st.sampled_from([*"<>&\"'/;=`x y", "\u202e", "\u2066", "\x1b", "\x07", "\u2028", "é"]),
    min_size=1, max_size=20,
)  # fmt: skip


@given(operator=NAMES, state=NAMES, key=NAMES, value=NAMES)
@pytest.mark.full
def test_no_name_becomes_markup(
    tmp_path_factory: pytest.TempPathFactory, operator: str, state: str, key: str, value: str
) -> None:
    """Whatever a snapshot has; and every link leads to a page."""
    path = tmp_path_factory.mktemp("names") / "savepoint"
    rows = pa.table({"key": [key], "value": [value]})
    held = sl.NewKeyedState(state, rows, value="String")
    made = sl.NewOperator(operator, "String", (held,), parallelism=1)
    sl.write_snapshot(path, [made], metadata_version=6)
    opened = Opened(path)
    seen = walked(opened)
    opened.close()
    assert {link.partition("?")[0] for link in seen} >= {"/snapshot", "/rows", "/key"}
