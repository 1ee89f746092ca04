"""The addresses of the pages, and the server: on 127.0.0.1, for this machine's browser alone."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Generator, Iterator
from functools import partial
from importlib import resources
from io import RawIOBase, StringIO
from itertools import chain, islice
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

import anyio
import pyarrow as pa
import pyarrow.parquet as pq
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from statelake.pipelines.report.markup import Html
from statelake.pipelines.shown import write_csv
from statelake.pipelines.ui import pages
from statelake.pipelines.ui.audit import Audit
from statelake.pipelines.ui.guard import Guard
from statelake.pipelines.ui.options import Options
from statelake.pipelines.ui.process import opened
from statelake.pipelines.ui.query_pool import (
    PLACE,
    BusyError,
    QueryPool,
    QueryReader,
)
from statelake.pipelines.ui.views import HEAVIEST, Name, Source, refuse_values, without_values
from statelake.state_core.errors import NotFoundError, StateError
from statelake.state_core.printable import printable

HOST = "127.0.0.1"
# what reads state, and so needs a place: all of it, or what has such a word
READING = {
    "/rows": "", "/key": "key", "/top": "", "/diff": "", "/growth": "", "/erasure": "",
    "/sql": "query", "/sql.csv": "", "/sql.parquet": "",
}  # fmt: skip
HIGHEST = 1_000_000_000  # of a page, or a parallelism
Words: TypeAlias = "dict[str, str]"


class Site:
    """The pages of a lake or a directory.

    Args:
        source: The lake or the directory.
        audit: Receives a line for each time values are shown.
    """

    def __init__(self, source: Source, audit: Audit) -> None:
        self.source = source
        self.audit = audit
        self.values = source.options.values
        self.pool = QueryPool(source.options.limits)

    def app(self) -> Starlette:
        """Return the application, for a `Guard`."""
        answers: dict[str, Callable[[Words], Response]] = {
            "/": self.snapshots,
            "/snapshot": self.snapshot,
            "/rows": self.rows,
            "/key": self.key,
            "/top": self.top,
            "/diff": self.diff,
            "/growth": self.growth,
            "/erasures": self.erasures,
            "/erasure": self.erasure,
            "/sql": self.sql,
            "/sql.csv": partial(self.download, "csv"),
            "/sql.parquet": partial(self.download, "parquet"),
            "/page.css": self.style,
        }
        return Starlette(
            routes=[Route(path, self._endpoint(answer)) for path, answer in answers.items()]
        )

    def _endpoint(self, answer: Callable[[Words], Response]) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Any:
            try:
                words = _words(request.scope["query_string"].decode("ascii"))
                words = _words(words.pop(pages.WITH, "")) | words
            except ValueError:  # no UTF-8
                return self._page("Not found", pages.problem("No such address."), code=404)
            work = partial(self._answer, answer, words)
            required = READING.get(request.url.path)
            if required is None or (required and not words.get(required, "").strip()):
                return await run_in_threadpool(work)
            return _Placed(self.pool, work, self._busy)

        return endpoint

    def _answer(self, answer: Callable[[Words], Response], words: Words) -> Response:
        try:
            return answer(words)
        except NotFoundError as error:
            return self._page("Not found", pages.problem(str(error)), code=404)
        except BusyError as error:
            return self._busy(error)
        except StateError as error:
            shown = error if self.values else without_values(error)
            return self._page("That can't be shown", pages.problem(str(shown)), code=400)

    def _busy(self, error: BusyError) -> Response:
        return self._page("Not now", pages.problem(str(error)), code=503)

    def _page(
        self, title: str, *parts: Html, name: Name | None = None, code: int = 200
    ) -> HTMLResponse:
        trail = [] if name is None else [pages.snapshot_link(name)]
        where = self.source.title
        if self.source.masked:
            where += ": values are masked"
        if not self.values:
            where += ": keys and values are not shown"
        return HTMLResponse(pages.page(title, where, *parts, trail=trail), code)

    def snapshots(self, words: Words) -> Response:
        """Answer with the list of all snapshots, or with the only one."""
        listed = self.source.listed()
        if len(listed) == 1 and not self.source.in_lake and "list" not in words:
            only = pages.address("/snapshot", **pages.of(listed[0].name))
            return RedirectResponse(only, 303)
        return self._page("Snapshots", *pages.snapshots(listed, self.source.jobs()))

    def snapshot(self, words: Words) -> Response:
        """Answer with the contents of a snapshot."""
        name, parallelism = _name(words), _number(words.get("parallelism", ""))
        contents, beside = self.source.contents(name), self.source.beside(name)
        return self._page(
            pages.title_of(name),
            *pages.snapshot(name, contents, beside, values=self.values, parallelism=parallelism),
        )

    def rows(self, words: Words) -> Response:
        """Answer with rows of a state; a condition that is refused can be corrected."""
        refuse_values(self.source.options)
        name, operator, state = _name(words), words.get("operator", ""), words.get("state", "")
        where, number = words.get("where", ""), _number(words.get("page", ""))
        mode = words.get("mode", "")
        self.audit.write("rows", name, operator=operator, state=state, where=where)
        shown = partial(pages.rows, name, operator, state, where, number, mode)
        return self._asked(
            f"{operator}/{state}", name,
            lambda: shown(self.source.rows(name, operator, state, where, number, mode)), shown,
        )  # fmt: skip

    def key(self, words: Words) -> Response:
        """Answer with all that is held for a key."""
        refuse_values(self.source.options)
        name, text = _name(words), words.get("key", "")
        shown = partial(pages.key, name, text)
        if not text:
            return self._page("Look up a key", *shown(None), name=name)
        self.audit.write("key", name, key=text)
        return self._asked(f"Key {text}", name, lambda: shown(self.source.key(name, text)), shown)

    def top(self, words: Words) -> Response:
        """Answer with the heaviest keys of an operator."""
        refuse_values(self.source.options)
        name, operator = _name(words), words.get("operator", "")
        self.audit.write("top", name, operator=operator)
        problems: list[str] = []
        weighed = self.source.top(name, operator, HEAVIEST, problems)
        shown = pages.top(name, weighed, problems)
        return self._page(f"Heaviest keys of {operator}", *shown, name=name)

    def erasures(self, words: Words) -> Response:
        """Answer with what was erased from the lake, and proved."""
        return self._page("Erasures and their proof", *pages.erasures(self.source.erasures()))

    def erasure(self, words: Words) -> Response:
        """Answer with what an erasure of a key would change."""
        refuse_values(self.source.options)
        name, key = _name(words), words.get("key", "")
        self.audit.write("plan of an erasure", name, key=key)
        shown = pages.printed(self.source.erasure_plan(key).lines())
        return self._page(f"An erasure of {key}", *shown, name=name)

    def diff(self, words: Words) -> Response:
        """Answer with what differs in two snapshots."""
        job, earlier, later = (words.get(word, "") for word in ("job", "earlier", "later"))
        before, after = Name(job, earlier), Name(job, later)
        if self.values:
            self.audit.write("diff", after, earlier=earlier)
        differences = self.source.diff(before, after)
        return self._page(f"{earlier} → {later}", *pages.diff(after, differences), name=after)

    def growth(self, words: Words) -> Response:
        """Answer with the growth of a job."""
        job = words.get("job", "")
        if self.values and not self.source.masked:
            self.audit.write("growth", Name(job, ""))
        return self._page(f"Growth of {job}", *pages.growth(self.source.growth(job)))

    def sql(self, words: Words) -> Response:
        """Answer with the rows of a query; one that is refused can be corrected."""
        refuse_values(self.source.options)
        name, query = _name(words), words.get("query", "")
        tables = self.source.tables(name)
        shown = partial(pages.sql, name, query, tables)
        if not query.strip():
            return self._page("SQL", *shown(None), name=name)
        self.audit.write("sql", name, query=query)
        return self._asked("SQL", name, lambda: shown(self.source.query(name, query)), shown)

    def _asked(
        self,
        title: str,
        name: Name,
        parts: Callable[[], Iterator[Html]],
        again: Callable[[None], Iterator[Html]],
    ) -> Response:
        """Answer with a form and its result, or with the form and what is wrong with it."""
        try:
            return self._page(title, *parts(), name=name)
        except (NotFoundError, BusyError):
            raise
        except StateError as error:
            message = pages.problem(str(error))
            return self._page(title, message, *again(None), name=name, code=400)

    def download(self, kind: str, words: Words) -> Response:
        """Answer with all rows of a query, as a file."""
        refuse_values(self.source.options)
        name, query = _name(words), words.get("query", "")
        self.audit.write(f"sql as {kind}", name, query=query)
        written, media = {
            "csv": (_csv, "text/csv; charset=utf-8"),
            "parquet": (_parquet, "application/vnd.apache.parquet"),
        }[kind]

        def all_pieces() -> Generator[bytes]:
            with self.source.answer(name, query) as answer:
                yield from written(answer.schema, answer.batches)

        pieces = all_pieces()
        place = PLACE.get()
        assert place is not None  # noqa: S101 - by `READING`
        place.at_end.callback(pieces.close)
        first = list(islice(pieces, 2))  # what can't be written becomes an error
        return _Download(chain(first, pieces), media, f"rows.{kind}")

    def style(self, _: Words) -> Response:
        """Answer with the style of a report, and what these pages add to it."""
        files = (
            (resources.files(f"statelake.pipelines.{package}") / "page.css").read_text("utf-8")
            for package in ("report", "ui")
        )
        return Response("".join(files), media_type="text/css")


class _Download(Response):
    """A file whose pieces are made while it is sent, each in the place of its request."""

    def __init__(self, pieces: Iterator[bytes], media: str, name: str) -> None:
        super().__init__(media_type=media)
        self._pieces = pieces
        self.raw_headers = [
            (b"content-type", media.encode()),
            (b"content-disposition", f'attachment; filename="{name}"'.encode()),
        ]

    async def send(self, place: QueryReader, send: Send) -> None:
        """Send all pieces.

        Raises:
            StateError: One can't be made: what was sent has no end, so it is not taken for all.
        """
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        while piece := await place.run(lambda: next(filter(None, self._pieces), b"")):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


class _Placed:
    """An answer that needs a place; its work ends when the browser leaves.

    Args:
        pool: The places.
        work: Returns the answer.
        busy: Returns the answer if there is no place.
    """

    def __init__(
        self, pool: QueryPool, work: Callable[[], Response], busy: Callable[[BusyError], Response]
    ) -> None:
        self.pool = pool
        self.work = work
        self.busy = busy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def leave() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(leave)
            answer = await self._answered(send)
            if answer is not None:
                await answer(scope, receive, send)
            group.cancel_scope.cancel()

    async def _answered(self, send: Send) -> Response | None:
        """Return the answer; None if it was sent."""
        answer = None
        try:
            async with self.pool.place() as place:
                answer = await place.run(self.work)
                if not isinstance(answer, _Download):
                    return answer
                await answer.send(place, send)
                return None
        except BusyError as error:
            if answer is not None:  # which has no end
                raise
            return self.busy(error)


class _PageServer(uvicorn.Server):
    """The server, which ends all queries when it ends."""

    def __init__(self, config: uvicorn.Config, pool: QueryPool) -> None:
        super().__init__(config)
        self._pool = pool

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End."""
        self._pool.end()
        await super().shutdown(sockets)


def _words(query: str) -> Words:
    return dict(parse_qsl(query, encoding="utf-8", errors="surrogatepass"))


def _name(words: Words) -> Name:
    return Name(words.get("job", ""), words.get("snapshot", ""))


def _number(text: str) -> int:
    """Return the number of a page, or a parallelism; 0 for an empty text.

    Raises:
        NotFoundError: It is no such number.
    """
    if not text:
        return 0
    if not text.isascii() or not text.isdecimal() or len(text) > 10 or int(text) > HIGHEST:
        raise NotFoundError(f"no number {text[:20]!r}", remedy="give a whole number from 1 on")
    return int(text)


def _csv(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield rows as CSV, a batch at a time, with control characters escaped."""
    names = StringIO()
    write_csv(names, schema, (), printable)
    yield names.getvalue().encode()
    for batch in batches:
        out = StringIO()
        write_csv(out, schema, (batch,), printable)
        yield out.getvalue().partition("\n")[2].encode()


class _Pieces(RawIOBase):
    """A file that is sent while it is written, and not held."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._end = 0

    def writable(self) -> bool:
        """Return that it is written."""
        return True

    def tell(self) -> int:
        """Return how much was written."""
        return self._end

    def write(self, data: Any, /) -> int:
        """Append bytes."""
        self._pieces.append(bytes(data))
        self._end += len(self._pieces[-1])
        return len(self._pieces[-1])

    def taken(self) -> bytes:
        """Return what was written since the last call."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def _parquet(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield rows as a Parquet file, a batch at a time.

    Raises:
        StateError: Parquet has no such type.
    """
    out = _Pieces()
    try:
        file = pq.ParquetWriter(out, schema, compression="zstd", write_page_checksum=True)
    except pa.ArrowNotImplementedError as error:
        raise StateError(
            f"Parquet has no such column ({error})", remedy="cast it to VARCHAR, or take CSV"
        ) from error
    with file:
        for batch in batches:
            file.write_batch(batch)
            yield out.taken()
    yield out.taken()


def serve(
    location: str | os.PathLike[str],
    options: Options,
    *,
    port: int = 0,
    audit: str = "",
    ready: Callable[[str], None],
) -> None:
    """Serve the pages until the process is interrupted.

    Args:
        location: The lake, the directory, or one snapshot.
        options: What is shown, and how it is read.
        port: The port; 0 for any that is free.
        audit: The file that gets a line for each look at values; empty for none.
        ready: Called with the address, which has the token.

    Raises:
        SnapshotError: The directory can't be listed.
        StateError: The port is taken, or the audit file can't be written.
    """
    with opened(location, options, audit) as (source, log), socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
        except OSError as error:
            raise StateError(
                f"port {port} can't be used ({error.strerror})", remedy="give another --port"
            ) from error
        used = int(listening.getsockname()[1])
        site = Site(source, log)
        guard = Guard(site.app(), used)
        config = uvicorn.Config(
            guard, log_level="critical", access_log=False, server_header=False, lifespan="off",
            ws="none", proxy_headers=False, timeout_graceful_shutdown=1,
        )  # fmt: skip
        listening.listen()
        ready(f"http://{HOST}:{used}/?token={guard.token}")
        _PageServer(config, site.pool).run(sockets=[listening])
