"""Who may ask `statelake ui`: each refusal, and a real server."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.error import HTTPError

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from statelake.pipelines.report.markup import digest
from statelake.pipelines.ui.guard import POLICY, USED, Guard
from statelake.pipelines.ui.pages import script
from tests.support.lakes import DEMO
from tests.support.served_pages import PROGRAM, served

PORT = 8123
HERE = f"127.0.0.1:{PORT}"


@pytest.fixture
def guard() -> Guard:
    """A guard before an application that tells a secret."""

    async def app(scope: object, receive: object, send: object) -> None:
        request = Request(scope, receive, send)  # type: ignore[arg-type] # as ASGI has it
        await PlainTextResponse(f"secret of {request.url.path}")(scope, receive, send)  # type: ignore[arg-type]

    return Guard(app, PORT)


@pytest.fixture
def client(guard: Guard) -> TestClient:
    """A browser without a session."""
    return TestClient(guard, f"http://{HERE}", follow_redirects=False)


def assert_refused(answer: httpx.Response, code: int = 403) -> None:
    """It has no content but what a used token means, and the headers that every answer has."""
    assert answer.status_code == code
    assert answer.content in (b"", USED.encode())
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


def test_the_token_is_exchanged_once_for_a_cookie(guard: Guard, client: TestClient) -> None:
    """A cookie that no script reads, and that no other site's page makes a browser send."""
    assert_refused(client.get("/"))
    answer = client.get(f"/?token={guard.token}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert guard.token.lower() not in cookie
    assert client.get("/").text == "secret of /"
    policy = client.get("/").headers["content-security-policy"]
    assert f"script-src {digest(script())};" in policy  # no other script, and none from elsewhere
    other = TestClient(guard, f"http://{HERE}", follow_redirects=False)
    assert_refused(other.get(f"/?token={guard.token}"))
    assert client.get(f"/?token={guard.token}").headers["location"] == "/"  # it is in already


@pytest.mark.parametrize("query", ["", "token=", "token=x", "token=%FF", "token=%00", "toke=1"])
def test_a_wrong_token_is_refused(client: TestClient, query: str) -> None:
    """Without a word."""
    assert_refused(client.get(f"/?{query}"))


def test_two_tokens_are_refused(guard: Guard, client: TestClient) -> None:
    """And the right one is not used up by that; it has no effect elsewhere."""
    assert_refused(client.get(f"/?token={guard.token}&token={guard.token}"))
    assert_refused(client.get(f"/snapshot?token={guard.token}"))
    assert client.get(f"/?token={guard.token}").status_code == 303


@pytest.mark.parametrize("cookie", ["", "x", "é", f"statelake-{PORT}=", f"statelake-{PORT}=x"])
def test_a_wrong_cookie_is_refused(client: TestClient, cookie: str) -> None:
    """The cookie has a secret of its own."""
    assert_refused(client.get("/", headers={"cookie": cookie.encode("utf-8")}))


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"}, {"host": f"evil.example:{PORT}"}, {"host": "127.0.0.1"},
        {"host": "127.0.0.1:80"}, {"host": f"0.0.0.0:{PORT}"}, {"host": f"[::1]:{PORT}"},
        {"host": f"127.0.0.1:{PORT}.evil.example"}, {"host": ""},
        {"origin": "https://evil.example"}, {"origin": "null"},
        {"origin": f"https://{HERE}"}, {"origin": "http://127.0.0.1:1"},
        {"origin": f"http://localhost:{PORT}"},
        {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": " cross-site "}, {"sec-fetch-site": "Cross-Site"},
        {"sec-fetch-site": "same-origin, cross-site"}, {"sec-fetch-site": "cross-site;a=1"},
        {"sec-fetch-site": '"same-origin"'}, {"sec-fetch-site": "Same-Origin"},
        {"sec-fetch-site": "another-site"}, {"sec-fetch-site": ""},
    ],
    ids=str,
)  # fmt: skip
def test_other_hosts_and_origins_are_refused(
    guard: Guard, client: TestClient, headers: Mapping[str, str]
) -> None:
    """With a session, too; and a token is not exchanged for them."""
    assert_refused(client.get(f"/?token={guard.token}", headers=headers))
    assert client.get(f"/?token={guard.token}").status_code == 303
    cookie = {"cookie": "; ".join(f"{name}={value}" for name, value in client.cookies.items())}
    assert_refused(client.get("/", headers={**cookie, **headers}))
    assert client.get("/", headers=cookie).status_code == 200


def test_a_site_that_is_said_twice_is_refused(guard: Guard, client: TestClient) -> None:
    """Of two values no one counts."""
    client.get(f"/?token={guard.token}")
    for second in ("same-origin", "cross-site"):
        twice = [("sec-fetch-site", "same-origin"), ("sec-fetch-site", second)]
        assert_refused(client.get("/", headers=twice))


@pytest.mark.parametrize(
    "headers",
    [
        {"host": f"localhost:{PORT}"}, {"host": f"LOCALHOST:{PORT}"},
        {"origin": f"http://{HERE}"}, {"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"},
        {"sec-fetch-site": " same-origin\t"}, {},
    ],
    ids=str,
)  # fmt: skip
def test_our_own_pages_are_answered(
    guard: Guard, client: TestClient, headers: Mapping[str, str]
) -> None:
    """By either name of this machine."""
    client.get(f"/?token={guard.token}")
    cookie = {"cookie": "; ".join(f"{name}={value}" for name, value in client.cookies.items())}
    assert client.get("/", headers={**cookie, **headers}).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"])
def test_only_get_is_answered(guard: Guard, client: TestClient, method: str) -> None:
    """With a session, too."""
    client.get(f"/?token={guard.token}")
    assert_refused(client.request(method, "/"), 405)


@pytest.mark.full
def test_the_command_serves_this_machine_alone(tmp_path: Path) -> None:
    """On 127.0.0.1, with a token, until it is interrupted; and leaves nothing."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with served(DEMO, "--audit", tmp_path / "audit", temporary=temporary) as address:
        at, port = address.partition("?")[0], int(address.split(":")[2].partition("/")[0])
        opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(CookieJar()), urllib.request.ProxyHandler({})
        )
        with opener.open(address) as answer:
            assert "monday" in answer.read().decode()
            assert "server" not in answer.headers
        query = "sql?snapshot=monday&query=SELECT+count(*)+FROM+kinds.total"
        with opener.open(f"{at}{query}") as answer:
            assert "<td" in answer.read().decode() or answer.status == 200
        with pytest.raises(HTTPError) as refused:
            urllib.request.urlopen(address)  # noqa: S310 - our own
        assert (refused.value.code, b"was used already" in refused.value.read()) == (403, True)
        for found in {each[4][0] for each in socket.getaddrinfo(socket.gethostname(), None)}:
            if not str(found).startswith(("127.", "::1")):
                with pytest.raises(OSError, match=r"refused|unreachable|timed out|Errno"):
                    socket.create_connection((str(found), port), 2)
        assert any(temporary.iterdir())
    assert list(temporary.iterdir()) == []
    assert '"look": "sql"' in (tmp_path / "audit").read_text()


def test_a_port_that_is_taken() -> None:
    """Is said on one line."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM, "ui", str(DEMO), "--port", str(port)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert ran.returncode == 3
    assert ran.stderr.startswith(f"error: port {port} can't be used")
