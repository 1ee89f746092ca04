"""Queries that nobody waits for, in a real process: they end, and pages answer."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode

import pytest

from statelake.state_core.files.held_directories import SQL_PREFIX
from tests.support.lakes import demo_lake
from tests.support.served_pages import PROGRAM, served

AT_ONCE, WAITING = 2, 16
OF = {"job": "demo", "snapshot": "monday"}
ENDLESS = "SELECT range FROM range(1000000000000)"
SILENT = "SELECT count(*) FROM range(100000000) a, range(100000000) b"
LARGE = "SELECT list(range) FROM range(100000000)"


class Browser:
    """A browser that has exchanged the token."""

    def __init__(self, address: str) -> None:
        jar = CookieJar()
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(jar), urllib.request.ProxyHandler({})
        )
        self._opener.open(address).close()
        self._host = address.split("/")[2]
        self._cookie = "; ".join(f"{each.name}={each.value}" for each in jar)

    def page(self, path: str, **words: str) -> tuple[int, str]:
        """The status of a page, and its text."""
        try:
            with self._opener.open(f"http://{self._host}{path}?{urlencode(words)}") as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def asked(self, path: str, **words: str) -> socket.socket:
        """A connection that has sent a request, and does not read."""
        host, _, port = self._host.partition(":")
        connection = socket.create_connection((host, int(port)))
        connection.sendall(
            f"GET {path}?{urlencode(words)} HTTP/1.1\r\nHost: {self._host}\r\n"
            f"Cookie: {self._cookie}\r\n\r\n".encode()
        )
        return connection


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """The directory of temporary ones."""
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp"


def wait_for_queries(temporary: Path, count: int) -> None:
    """Wait until that many queries run: each has a directory to which it spills."""
    while len(list(temporary.glob(f"{SQL_PREFIX}*"))) != count:
        time.sleep(0.02)


def statuses(connections: list[socket.socket], count: int) -> Iterator[str]:
    """Wait for that many answers, and yield how each begins."""
    with selectors.DefaultSelector() as selector:
        for each in connections:
            selector.register(each, selectors.EVENT_READ)
        while len(selector.get_map()) > len(connections) - count:
            for key, _ in selector.select():
                selector.unregister(key.fileobj)
                yield key.fileobj.recv(12).decode()  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with two snapshots of the demo's job."""
    return demo_lake(tmp_path_factory.mktemp("limits") / "lake")


@pytest.mark.full
def test_abandoned_queries_end_and_pages_answer(lake: Path, temporary: Path) -> None:
    """With 45 of them; an interrupt ends the process, and nothing is left of what runs."""
    words = ("--queries", str(AT_ONCE), "--query-memory", "64MiB", "--query-seconds", "600")
    with served(lake, *words, temporary=temporary) as address:
        browser = Browser(address)
        with ExitStack() as stack:
            paths = ["/sql.csv"] * 45
            abandoned = [
                stack.enter_context(browser.asked(path, query=ENDLESS, **OF)) for path in paths
            ]
            refused = len(abandoned) - AT_ONCE - WAITING
            found = Counter(statuses(abandoned, AT_ONCE + refused))
            assert found == {"HTTP/1.1 200": AT_ONCE, "HTTP/1.1 503": refused}
            wait_for_queries(temporary, AT_ONCE)
            assert [browser.page(path)[0] for path in ("/", "/page.css")] == [200, 200]
            assert browser.page("/snapshot", **OF)[0] == 200
            assert "--queries" in browser.page("/rows", operator="o", state="s", **OF)[1]
        wait_for_queries(temporary, 0)
        assert browser.page("/sql", query="SELECT 41 + 1", **OF)[0] == 200
        with browser.asked("/sql", query=SILENT, **OF):  # of which nothing was sent
            wait_for_queries(temporary, 1)
        wait_for_queries(temporary, 0)
        code, text = browser.page("/sql.csv", query=LARGE, **OF)
        assert (code, "--query-memory" in text) == (400, True)
        left = [browser.asked(path, query=SILENT, **OF) for path in ("/sql", "/sql.parquet")]
        wait_for_queries(temporary, AT_ONCE)
    for each in left:
        each.close()
    assert list(temporary.iterdir()) == []


@pytest.mark.full
def test_an_interrupt_ends_what_can_not_be_ended(lake: Path, temporary: Path) -> None:
    """A page that is no query: the process leaves without it, and removes what it had made."""
    program = f"""
import time
from statelake.pipelines.ui.views import Source
from statelake.state_core.files.held_directories import SQL_PREFIX, held_temporary
Source.top = lambda *_: (held_temporary(SQL_PREFIX), time.sleep(600))
{PROGRAM}"""
    with served(lake, temporary=temporary, program=program) as address:
        asked = Browser(address).asked("/top", operator="kinds", **OF)
        wait_for_queries(temporary, 1)
    asked.close()
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
@pytest.mark.full
def test_a_signal_ends_what_answers_an_assistant(
    lake: Path, temporary: Path, number: int, code: int
) -> None:
    """The first one, though its input is open and a query runs."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {},
             "clientInfo": {"name": "test", "version": "1"}}  # fmt: skip
    query = {"name": "sql", "arguments": {"query": SILENT, **OF}}
    with subprocess.Popen(
        [sys.executable, "-u", "-c", PROGRAM, "mcp", str(lake), "--values"], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temporary)},
    ) as running:  # fmt: skip
        assert running.stdin is not None
        for words in (
            {"id": 1, "method": "initialize", "params": hello},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": query},
        ):
            running.stdin.write(json.dumps({"jsonrpc": "2.0", **words}) + "\n")
            running.stdin.flush()
        wait_for_queries(temporary, 1)
        running.send_signal(number)
        assert running.wait(60) == code
    assert list(temporary.iterdir()) == []
