"""An S3 of a few lines on loopback, which says what it was asked; any bucket is there.

It stands in where a test asks who was asked: whether S3 would answer so, S3Proxy's tests see.
"""

from __future__ import annotations

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from typing_extensions import Self


class Asked(NamedTuple):
    """One request.

    Attributes:
        method: Its method.
        path: Its bucket and key.
        host: The host that it was sent to, by its own word.
        agent: The client's name.
        signed_by: What its signature says: the key and the region.
    """

    method: str
    path: str
    host: str
    agent: str
    signed_by: tuple[str, ...]


class FakeStore:
    """The store, while it is entered.

    Attributes:
        objects: The content of each object, by bucket and key.
        asked: All requests.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.asked: list[Asked] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def host(self) -> str:
        """Its host and port."""
        return f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def note(self, asked: Asked) -> None:
        """Keep a request."""
        with self._lock:
            self.asked.append(asked)

    def put(self, name: str, data: bytes, *, is_new: bool) -> bool:
        """Put an object; return whether its name was free, if it has to be."""
        with self._lock:
            if is_new and name in self.objects:
                return False
            self.objects[name] = data
        return True


def _listing(store: FakeStore, bucket: str, given: dict[str, str]) -> bytes:
    prefix, delimiter = given.get("prefix", ""), given.get("delimiter", "")
    keys, prefixes = [], set()
    for name in sorted(store.objects):
        key = name.removeprefix(f"{bucket}/")
        rest = key.removeprefix(prefix)
        if not name.startswith(f"{bucket}/{prefix}") or key <= given.get("start-after", ""):
            continue
        if delimiter and delimiter in rest:
            prefixes.add(prefix + rest.partition(delimiter)[0] + delimiter)
        else:
            keys.append(key)
    parts = [
        f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        f"<ETag>{_etag(data)}</ETag><Size>{len(data)}</Size></Contents>"
        for key in keys
        for data in [store.objects[f"{bucket}/{key}"]]
    ]
    parts += [
        f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>"
        for each in sorted(prefixes)
    ]
    return (
        f"<ListBucketResult><Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix>"
        f"<KeyCount>{len(keys) + len(prefixes)}</KeyCount><MaxKeys>1000</MaxKeys>"
        f"<IsTruncated>false</IsTruncated>{''.join(parts)}</ListBucketResult>"
    ).encode()


def _handler(store: FakeStore) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self._body()
            parts = urlsplit(self.path)
            name = unquote(parts.path).lstrip("/")
            given = {
                key: values[-1]
                for key, values in parse_qs(parts.query, keep_blank_values=True).items()
            }
            credential = self.headers.get("authorization", "").partition("Credential=")[2]
            signed = credential.partition(",")[0].split("/")
            store.note(
                Asked(
                    self.command, name, self.headers.get("host", ""),
                    self.headers.get("user-agent", ""), (signed[0], *signed[2:3]),
                )
            )  # fmt: skip
            bucket, _, key = name.partition("/")
            if self.command == "PUT" and key:
                is_new = "if-none-match" in self.headers
                self._send(200 if store.put(name, body, is_new=is_new) else 412, etag=_etag(body))
            elif self.command == "POST" and "delete" in given:
                self._delete(bucket, body.decode())
            elif self.command == "DELETE":
                store.objects.pop(name, None)
                self._send(204)
            elif not key and self.command == "GET":
                self._send(200, _listing(store, bucket, given))
            elif not key:
                self._send(200)
            elif name in store.objects:
                self._object(store.objects[name])
            else:
                self._send(404, b"<Error><Code>NoSuchKey</Code></Error>")

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815 - the base's names

        def _body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("content-length", 0)))

        def _delete(self, bucket: str, text: str) -> None:
            for part in text.split("<Key>")[1:]:
                store.objects.pop(f"{bucket}/{part.partition('</Key>')[0]}", None)
            self._send(200, b"<DeleteResult></DeleteResult>")

        def _object(self, data: bytes) -> None:
            wanted = self.headers.get("range", "").removeprefix("bytes=")
            if not wanted or self.command == "HEAD":
                self._send(200, data, etag=_etag(data))
                return
            first, _, last = wanted.partition("-")
            begin = int(first) if first else max(0, len(data) - int(last))
            end = min(int(last), len(data) - 1) if first and last else len(data) - 1
            if begin >= len(data):
                self._send(416)
                return
            span = f"bytes {begin}-{end}/{len(data)}"
            self._send(206, data[begin : end + 1], etag=_etag(data), content_range=span)

        def _send(self, status: int, body: bytes = b"", **headers: str) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.send_header("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *_args: object) -> None:  # noqa: A002 - the base's name
            """Say nothing."""

    return Handler


def _etag(data: bytes) -> str:
    return f'"{hashlib.sha256(data).hexdigest()}"'
