"""HTTP calls to a Flink cluster: credentials, retries, and errors.

A call may be tried again if it can't take effect twice: a `GET`, a call with an id of the caller's
by which Flink recognises it, and any call that never left this machine.
"""

from __future__ import annotations

import io
import json
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from http.client import HTTPResponse
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

import requests
from requests.adapters import HTTPAdapter
from typing_extensions import Self
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, HTTPError, MaxRetryError, NewConnectionError
from urllib3.exceptions import TimeoutError as PoolTimeoutError

from statelake.pipelines.live.root_causes import root_cause
from statelake.state_core.errors import (
    ClusterError,
    DeclarationError,
    NotFoundError,
    StateError,
    UnreachableClusterError,
)

TIMEOUT_SECONDS = 30.0
LARGEST_ANSWER = 64 << 20
"""The largest number of bytes of a response."""

HEADS = 1 << 20
"""The largest number of bytes around it: headers, and the lengths of its chunks."""

MOST_VALUES = 1 << 20
"""The largest number of values in it: each takes far more memory than its text."""

RETRIES = 3
FIRST_PAUSE_SECONDS = 0.25
TRANSIENT = {429, 502, 503, 504}
HIDDEN = "***"
SHORTEST_SECRET = 4
_PIECE = 1 << 16


@dataclass(frozen=True)
class ConnectionSettings:
    """The address of a cluster's REST API, and the credentials.

    Attributes:
        url: `http://host:8081`, or behind a proxy with a path. A user and password in it are
            removed from it.
        user: For basic authentication.
        password: The password for it.
        token: A bearer token, instead of a user.
        headers: Further headers, which are treated as secrets.
        ca_file: The certificates (PEM) to verify the server's; the usual ones if empty.
        certificate: A client's certificate (PEM).
        key: Its private key, where it is not in the same file.
        timeout: Seconds that a call may take.
    """

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: str = ""
    certificate: str = ""
    key: str = ""
    timeout: float = TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        url, user, password = _taken_apart(self.url)
        object.__setattr__(self, "url", url)
        if user and not self.user:
            object.__setattr__(self, "user", user)
            object.__setattr__(self, "password", password)
        if self.user and self.token:
            raise DeclarationError(
                "a user and a bearer token", place=self.url, remedy="give one of the two"
            )
        if not self.timeout > 0:
            raise DeclarationError(
                "a timeout of zero", place=self.url, remedy="give a positive number of seconds"
            )
        for path in filter(None, (self.ca_file, self.certificate, self.key)):
            if not Path(path).is_file():
                raise DeclarationError(
                    f"there is no file {path!r}", place=self.url, remedy="give a file in PEM format"
                )

    @classmethod
    def from_environment(
        cls, url: str = "", environment: Mapping[str, str] = os.environ
    ) -> ConnectionSettings:
        """Return the settings in `STATELAKE_FLINK` and the variables that begin with it.

        `STATELAKE_FLINK_USER`, `_PASSWORD`, `_TOKEN`, `_HEADERS` (a JSON object, or lines
        `Name: value`), `_CA`, `_CERT`, `_KEY`, `_TIMEOUT` (seconds).

        Args:
            url: The cluster; by default `STATELAKE_FLINK`.
            environment: Instead of the process's own.

        Raises:
            DeclarationError: A setting is not valid; the message has no secret.
        """

        def variable(name: str) -> str:
            return environment.get(f"STATELAKE_FLINK{name}", "")

        timeout = variable("_TIMEOUT") or str(TIMEOUT_SECONDS)
        try:
            seconds = float(timeout)
        except ValueError as error:
            raise _wrong_variable("TIMEOUT", f"{timeout!r} is not a number of seconds") from error
        return cls(
            url or variable(""),
            variable("_USER"), variable("_PASSWORD"), variable("_TOKEN"),
            _headers(variable("_HEADERS")), variable("_CA"), variable("_CERT"), variable("_KEY"),
            seconds,
        )  # fmt: skip

    @staticmethod
    def has_credentials(environment: Mapping[str, str] = os.environ) -> bool:
        """Return whether the environment has credentials, which other clusters do not get."""
        names = ("USER", "PASSWORD", "TOKEN", "HEADERS", "CERT", "KEY")
        return any(environment.get(f"STATELAKE_FLINK_{name}") for name in names)

    def secrets(self) -> list[str]:
        """Return the texts that no message may contain, the longest first."""
        parts = [self.password, self.token, *self.headers.values()]
        return sorted({part for part in parts if len(part) >= SHORTEST_SECRET}, key=len)[::-1]


def _wrong_variable(name: str, problem: str) -> DeclarationError:
    return DeclarationError(problem, place=f"STATELAKE_FLINK_{name}")


def _headers(text: str) -> dict[str, str]:
    """Parse headers from JSON, or from lines."""
    if not text.strip():
        return {}
    remedy = "give a JSON object of texts, or lines `Name: value`"
    if text.lstrip().startswith("{"):
        try:
            headers = json.loads(text)
        except (ValueError, RecursionError):
            headers = None  # the error would show the text
    else:
        pairs = [line.partition(":") for line in text.splitlines() if line.strip()]
        headers = {name.strip(): value.strip() if colon else None for name, colon, value in pairs}
    if not isinstance(headers, dict) or not all(
        isinstance(value, str) for value in headers.values()
    ):
        raise DeclarationError("not valid headers", place="STATELAKE_FLINK_HEADERS", remedy=remedy)
    if not all(name and name.isprintable() and ":" not in name for name in headers):
        raise DeclarationError(
            "a header without a name", place="STATELAKE_FLINK_HEADERS", remedy=remedy
        )
    return headers


def _taken_apart(url: str) -> tuple[str, str, str]:
    """Return a URL without its user and password, then the user and the password."""
    problem = ""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port, problem = urlsplit(""), None, None, "that is not a URL"
    if not url:
        problem = "no Flink cluster is given"
    elif not problem and (parts.scheme not in ("http", "https") or not host):
        problem = "that is not the URL of a REST API"
    elif parts.query or parts.fragment:
        problem = "a URL with a query"
    if problem:
        raise DeclarationError(
            problem,
            place="--flink, or STATELAKE_FLINK",
            remedy="give one like http://jobmanager:8081",
        )
    shown = f"[{host}]" if ":" in str(host) else host
    place = f"{parts.scheme}://{shown}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
    return place, unquote(parts.username or ""), unquote(parts.password or "")


class _Credentials(requests.auth.AuthBase):
    """The authentication of a call. It is always set: otherwise requests would read `~/.netrc`."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings

    def __call__(self, call: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._settings.token:
            call.headers["Authorization"] = f"Bearer {self._settings.token}"
        elif self._settings.user:
            basic = requests.auth.HTTPBasicAuth(self._settings.user, self._settings.password)
            basic(call)
        return call


class Connection:
    """Calls to one cluster.

    Args:
        settings: Its address and the credentials.
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self.settings = settings
        self.retries = RETRIES
        self._session = requests.Session()
        self._session.auth = _Credentials(settings)
        self._session.mount("http://", _Adapter(max_retries=0))
        self._session.mount("https://", _Adapter(max_retries=0))
        self._session.headers.update(settings.headers)
        self._session.headers["Accept"] = "application/json"
        self._session.headers["Accept-Encoding"] = "identity"
        if settings.certificate:
            key = settings.key
            self._session.cert = (settings.certificate, key) if key else settings.certificate

    def __repr__(self) -> str:
        return f"Connection({self.settings.url!r})"

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def get(self, path: str) -> Any:
        """Return the response to a `GET`, as parsed JSON.

        Raises:
            NotFoundError: The cluster has nothing at that path (404).
            UnreachableClusterError: The cluster does not answer.
            ClusterError: The cluster answers with an error, or with something other than JSON.
        """
        return self.call("GET", path, again=True)

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        upload: str = "",
        again: bool = False,
    ) -> Any:
        """Make a call.

        Args:
            method: `GET`, `POST`, `PATCH`, `DELETE`.
            path: The path below the URL, with a `/` before it.
            body: The body, sent as JSON.
            upload: A file to send instead, as `jarfile`.
            again: Whether the same call may arrive twice.

        Returns:
            The response, as parsed JSON; None if it is empty.

        Raises:
            NotFoundError: The cluster has nothing at that path (404).
            UnreachableClusterError: The cluster does not answer.
            ClusterError: The cluster answers with an error, or with something other than JSON.
        """
        pause = FIRST_PAUSE_SECONDS
        for left in range(self.retries, -1, -1):
            try:
                return self._once(method, path, body, upload)
            except _TryAgainError as failure:
                if not left or not (again or failure.never_sent):
                    raise failure.error from None
            time.sleep(pause)
            pause *= 3
        raise AssertionError  # the last try returns or raises

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None, upload: str) -> Any:
        place = f"{method} {self.settings.url}{path}"
        try:
            with _Call(self.settings.timeout), self._sent(method, path, body, upload) as response:
                text = _read(response, place)
                status, location = response.status_code, response.headers.get("Location", "")
        except (ValueError, TypeError) as error:  # the error's text would show the URL and headers
            raise ClusterError(
                f"not a valid HTTP request ({type(error).__name__})",
                place=place,
                remedy="check the URL and STATELAKE_FLINK_HEADERS",
            ) from None
        except _EndlessError:
            raise _too_large("a response whose headers or chunks do not end", place) from None
        except requests.exceptions.SSLError as error:
            raise ClusterError(
                f"no secure connection ({self._hidden(_innermost(error))})",
                place=place,
                remedy="give its authority's certificates in STATELAKE_FLINK_CA, and a client's "
                "own in STATELAKE_FLINK_CERT and _KEY",
            ) from None
        except (requests.RequestException, HTTPError, TimeoutError) as error:
            raise self._transport_failure(error, place) from None
        if status in TRANSIENT:
            raise _TryAgainError(self._refusal(status, text, place), never_sent=False)
        if 300 <= status < 400:
            raise ClusterError(
                f"it redirects to {self._hidden(location.partition('?')[0])!r}",
                place=place,
                remedy="redirects are not followed, as they would send credentials: if that is "
                "the cluster, give its URL",
            )
        if not 200 <= status < 300:
            raise self._refusal(status, text, place)
        if not text.strip():
            return None
        try:
            return _parsed(text, place)
        except (ValueError, RecursionError):
            raise ClusterError(
                f"its response is not JSON: {self._hidden(_beginning(text))!r}",
                place=place,
                remedy="check that the URL is that of Flink's REST API (port 8081 by default)",
            ) from None

    def _sent(
        self, method: str, path: str, body: Mapping[str, Any] | None, upload: str
    ) -> requests.Response:
        options: dict[str, Any] = {
            "timeout": self.settings.timeout,
            "stream": True,
            "allow_redirects": False,
            # set for each call: requests prefers the environment to a session's settings
            "verify": self.settings.ca_file or True,
        }
        url = self.settings.url + path
        if not upload:
            return self._session.request(method, url, json=body, **options)
        with Path(upload).open("rb") as file:
            parts = {"jarfile": (Path(upload).name, file, "application/x-java-archive")}
            return self._session.request(method, url, files=parts, **options)

    def _transport_failure(self, error: Exception, place: str) -> _TryAgainError:
        """Return the error of a request without a response, and whether it was ever sent."""
        never_sent = _never_sent(error)
        if isinstance(error, requests.Timeout | TimeoutError | PoolTimeoutError) and not never_sent:
            problem = f"no answer within {self.settings.timeout:g} s"
            remedy = "check the cluster, or give it more time (STATELAKE_FLINK_TIMEOUT)"
        else:
            problem = f"no connection ({self._hidden(_innermost(error))})"
            remedy = "check that the cluster runs, and that this machine can reach it"
        return _TryAgainError(
            UnreachableClusterError(problem, place=place, remedy=remedy), never_sent=never_sent
        )

    def _refusal(self, status: int, text: str, place: str) -> StateError:
        message = _errors_in(text)
        cause = self._hidden(root_cause(message) if message else _beginning(text))
        problem = f"HTTP {status}: {cause}" if cause else f"HTTP {status}"
        if status == 404:
            return NotFoundError(problem, place=place)
        remedy = ""
        if status in (401, 403):
            remedy = "give credentials: STATELAKE_FLINK_USER and _PASSWORD, _TOKEN, or _HEADERS"
        return ClusterError(problem, place=place, remedy=remedy)

    def _hidden(self, text: str) -> str:
        """Return a text without the secrets."""
        for secret in self.settings.secrets():
            text = text.replace(secret, HIDDEN)
        return text


class _TryAgainError(Exception):
    """A failure that a retry may avoid.

    Attributes:
        error: The error to raise if retries fail, too.
        never_sent: Whether the cluster can't have seen the call.
    """

    def __init__(self, error: StateError, *, never_sent: bool) -> None:
        super().__init__()
        self.error = error
        self.never_sent = never_sent


class _Call:
    """A call with a time limit: its connection is closed when the time is over.

    A timeout of a socket begins anew with each byte.

    Args:
        seconds: The time limit.

    Raises:
        TimeoutError: The connection was closed.
    """

    current: ContextVar[_Call | None] = ContextVar("call", default=None)

    def __init__(self, seconds: float) -> None:
        self._is_over = False
        self._sockets: list[socket.socket] = []
        self._timer = Timer(seconds, self._close_all)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._outer = self.current.set(self)
        self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        self.current.reset(self._outer)
        for connection in self._sockets:
            connection.close()
        if self._is_over and not isinstance(error, StateError):
            raise TimeoutError from None

    def take(self, connection: socket.socket) -> None:
        """Add a connection to close: a duplicate of its descriptor, as TLS takes the original."""
        self._sockets.append(socket.socket(fileno=os.dup(connection.fileno())))
        if self._is_over:
            self._close_all()

    def _close_all(self) -> None:
        self._is_over = True
        for connection in list(self._sockets):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _EndlessError(Exception):
    """The headers or chunk lengths of a response are too long."""


class _Bounded(io.RawIOBase):
    """The input of a connection for one response, up to a number of bytes."""

    def __init__(self, stream: io.RawIOBase) -> None:
        self._stream = stream
        self._left = LARGEST_ANSWER + HEADS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count = self._stream.readinto(buffer)
        self._left -= count or 0
        if self._left < 0:
            raise _EndlessError
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()


class _Response(HTTPResponse):
    """A response whose lines and headers are bounded, too."""

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_Bounded(sock.makefile("rb", buffering=0)))


class _Connection(HTTPConnection):
    """A connection that a call may close."""

    response_class = _Response

    def _new_conn(self) -> socket.socket:
        return _taken(super()._new_conn())

    def putrequest(self, *arguments: Any, **options: Any) -> None:
        if self.sock is not None:
            _taken(self.sock)
        super().putrequest(*arguments, **options)


class _SecureConnection(_Connection, HTTPSConnection):
    """A TLS connection that a call may close."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


class _Adapter(HTTPAdapter):
    """Opens connections that a call may close, also through proxies."""

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options)
        manager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}
        return manager


def _taken(connection: socket.socket) -> socket.socket:
    call = _Call.current.get()
    if call is not None:
        call.take(connection)
    return connection


def _parsed(text: str, place: str) -> Any:
    """Parse JSON, unless it has too many values."""
    if sum(map(text.count, ",[{")) > MOST_VALUES:
        raise _too_large(f"a response of more than {MOST_VALUES} values", place)
    return json.loads(text)


def _too_large(problem: str, place: str) -> ClusterError:
    remedy = "Flink's REST API has no such responses: check the URL"
    return ClusterError(problem, place=place, remedy=remedy)


def _read(response: requests.Response, place: str) -> str:
    """Read the whole response, unless it is too long."""
    pieces, size = [], 0
    while piece := response.raw.read1(_PIECE, decode_content=True):
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST_ANSWER:
            raise _too_large(f"a response of more than {LARGEST_ANSWER >> 20} MiB", place)
    return b"".join(pieces).decode("utf-8", "replace")


def _never_sent(error: Exception) -> bool:
    """Return whether no connection was made."""
    reason = error.args[0] if error.args else None
    if isinstance(reason, MaxRetryError):
        reason = reason.reason
    return isinstance(reason, NewConnectionError | ConnectTimeoutError)


def _innermost(error: BaseException) -> str:
    """Return the innermost error's message, without addresses of Python objects."""
    while True:
        inner = error.args[0] if error.args and isinstance(error.args[0], BaseException) else None
        reason = getattr(error, "reason", None)
        inner = inner or (reason if isinstance(reason, BaseException) else None)
        inner = inner or error.__cause__ or error.__context__
        if inner is None or inner is error:
            break
        error = inner
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__


def _errors_in(text: str) -> str:
    """Return Flink's message for a failed call, from `{"errors": [...]}`."""
    try:
        answer = _parsed(text, "")
    except (ClusterError, ValueError, RecursionError):
        return ""
    errors = answer.get("errors") if isinstance(answer, dict) else None
    if not isinstance(errors, list):
        return ""
    return "\n".join(error for error in errors if isinstance(error, str))


def _beginning(text: str) -> str:
    short = " ".join(text[:400].split())
    return short if len(short) <= 100 else f"{short[:100]}..."
