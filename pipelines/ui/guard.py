"""Access to the pages: for those with the token printed at the start, from our pages or none.

A page of another site can make a browser send requests to 127.0.0.1, and can give its own name that
address (DNS rebinding). So besides the cookie, which no other site's page makes a browser send, the
host and the origin of each request are checked. A refused request gets no content.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from statelake.pipelines.report.markup import digest
from statelake.pipelines.ui.pages import script

POLICY = (
    f"default-src 'none'; style-src 'self'; img-src 'self' data:; script-src {digest(script())};"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
USED = "This address was used already, or belongs to another process: start `statelake ui` again.\n"
OURS = ("same-origin", "none")  # of `Sec-Fetch-Site`; older browsers and other programs send none


class Guard:
    """Passes on requests with the token or its cookie, and refuses all others.

    Args:
        app: The application.
        port: The port on which requests arrive.

    Attributes:
        token: The token, which is exchanged for a cookie once.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        self.app = app
        self.token = secrets.token_urlsafe(32)
        self._used = False
        self._using = threading.Lock()
        self._cookie = secrets.token_urlsafe(32)
        self._name = f"statelake-{port}"  # a cookie is sent to every port
        self._hosts = (f"127.0.0.1:{port}", f"localhost:{port}")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *given]}
            await send(message)

        answer = self._answer(scope) or self.app
        await answer(scope, receive, send_guarded)

    def _answer(self, scope: Scope) -> Response | None:
        """Return the refusal or the exchange of a request; None if the application answers."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return Response(status_code=403)
        if any(origin != f"http://{hosts[0].lower()}" for origin in headers.getlist("origin")):
            return Response(status_code=403)
        # a case-sensitive token; several values, or an unknown one, are refused
        sites = [site.strip(" \t") for site in headers.getlist("sec-fetch-site")]
        if len(sites) > 1 or not {*sites} <= {*OURS}:
            return Response(status_code=403)
        if scope["method"] != "GET":
            return Response(status_code=405, headers={"allow": "GET"})
        given = parse_qs(scope["query_string"].decode("ascii", "replace")).get("token", [])
        cookie = cookie_parser(headers.get("cookie", "")).get(self._name, "")
        known = hmac.compare_digest(cookie.encode(), self._cookie.encode())
        if scope["path"] == "/" and given:
            return RedirectResponse("/", 303) if known else self._exchanged(given)
        return None if known else Response(status_code=403)

    def _exchanged(self, given: list[str]) -> Response:
        with self._using:
            right = len(given) == 1 and hmac.compare_digest(
                given[0].encode("utf-8", "surrogatepass"), self.token.encode()
            )
            if self._used or not right:
                return PlainTextResponse(USED, status_code=403)
            self._used = True
        answer = RedirectResponse("/", 303)
        answer.set_cookie(self._name, self._cookie, httponly=True, samesite="strict")
        return answer
