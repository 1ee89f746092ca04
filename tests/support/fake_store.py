"""An S3 of a few lines on loopback, which says what it was asked; any bucket is there.

It stands in where a test asks who was asked, or needs a store at once: whether S3 would answer so,
S3Proxy's tests see.
"""

from __future__ import annotations

import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from typing_extensions import Self

PAGE = 1000


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
        uploads: The parts of each upload that was not completed.
        asked: All requests.
        page: How many names an answer to a listing has at most; more follow in others.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.asked: list[Asked] = []
        self.page = PAGE
        self._begun = 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def host(self) -> str:
        """Its host and port."""
        return f"127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        """Its port."""
        return int(self._server.server_port)

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

    def begin(self) -> str:
        """Begin an upload in parts; return its id."""
        with self._lock:
            self._begun += 1
            self.uploads[f"upload-{self._begun}"] = {}
            return f"upload-{self._begun}"

    def complete(self, name: str, upload: str, numbers: list[int]) -> bytes | None:
        """Put an object of an upload's parts; return its content, or None without parts."""
        with self._lock:
            if (parts := self.uploads.pop(upload, None)) is None:
                return None
            self.objects[name] = b"".join(parts[number] for number in numbers)
            return self.objects[name]

    def files(self, bucket: str) -> list[tuple[str, bytes]]:
        """The keys of a bucket, sorted, with their content."""
        with self._lock:
            held = sorted(self.objects.items())
        start = f"{bucket}/"
        return [(name[len(start) :], data) for name, data in held if name.startswith(start)]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


def _listing(store: FakeStore, bucket: str, given: dict[str, str]) -> bytes:
    prefix, delimiter = given.get("prefix", ""), given.get("delimiter", "")
    after = given.get("continuation-token") or given.get("start-after", "")
    found: dict[str, str] = {}
    for key, data in store.files(bucket):
        rest = key.removeprefix(prefix)
        if not key.startswith(prefix):
            continue
        if delimiter and delimiter in rest:
            name = prefix + rest.partition(delimiter)[0] + delimiter
            text = f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
        else:
            name = key
            text = (
                f"<Contents><Key>{escape(key)}</Key>"
                "<LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                f"<ETag>{_etag(data)}</ETag><Size>{len(data)}</Size></Contents>"
            )
        if name > after:
            found[name] = text
    page = dict(islice(found.items(), min(store.page, int(given.get("max-keys", PAGE)))))
    more = len(page) < len(found)
    last = f"<NextContinuationToken>{escape([*page][-1])}</NextContinuationToken>" if more else ""
    return (
        f"<ListBucketResult><Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix>"
        f"<KeyCount>{len(page)}</KeyCount><MaxKeys>{PAGE}</MaxKeys>"
        f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>{last}{''.join(page.values())}"
        "</ListBucketResult>"
    ).encode()


def _handler(store: FakeStore) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

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
            if "uploads" in given or "uploadId" in given:
                self._upload(name, body, given)
            elif self.command == "PUT" and key:
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
            elif (data := store.objects.get(name)) is not None:
                self._object(data)
            else:
                self._send(404, b"<Error><Code>NoSuchKey</Code></Error>")

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815 - the base's names

        def _body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("content-length", 0)))

        def _upload(self, name: str, body: bytes, given: dict[str, str]) -> None:
            """Begin an upload, take a part of it, complete it, or give it up."""
            bucket, _, key = name.partition("/")
            where = f"<Bucket>{bucket}</Bucket><Key>{escape(key)}</Key>"
            upload = given.get("uploadId", "")
            if "uploads" in given:
                text = f"{where}<UploadId>{store.begin()}</UploadId>"
                self._send(200, _xml("InitiateMultipartUploadResult", text))
            elif upload not in store.uploads:
                self._send(404, _xml("Error", "<Code>NoSuchUpload</Code>"))
            elif self.command == "PUT":
                store.uploads[upload][int(given["partNumber"])] = body
                self._send(200, etag=_etag(body))
            elif self.command == "DELETE":
                store.uploads.pop(upload, None)
                self._send(204)
            else:
                numbers = re.findall(r"<PartNumber>(\d+)</PartNumber>", body.decode())
                data = store.complete(name, upload, [*map(int, numbers)])
                text = f"{where}<ETag>{_etag(data or b'')}</ETag>"
                self._send(200, _xml("CompleteMultipartUploadResult", text))

        def _delete(self, bucket: str, text: str) -> None:
            keys = [part.partition("</Key>")[0] for part in text.split("<Key>")[1:]]
            for key in keys:
                store.objects.pop(f"{bucket}/{unescape(key)}", None)
            told = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
            self._send(200, _xml("DeleteResult", told))

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


def _xml(name: str, text: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?><{name}>{text}</{name}>'.encode()


def _etag(data: bytes) -> str:
    return f'"{hashlib.sha256(data).hexdigest()}"'
