"""The addresses of the pages, and the server: on 127.0.0.1, for this machine's browser alone."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from functools import partial
from importlib import resources
from io import RawIOBase, StringIO
from itertools import chain, islice
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

import pyarrow as pa
import pyarrow.parquet as pq
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from statelake.pipelines.report.markup import Html
from statelake.pipelines.shown import write_csv
from statelake.pipelines.ui import pages
from statelake.pipelines.ui.audit import Audit
from statelake.pipelines.ui.guard import Guard
from statelake.pipelines.ui.views import Name, Options, Source, refuse_values, without_values
from statelake.state_core.errors import NotFoundError, StateError
from statelake.state_core.printable import printable

HOST = "127.0.0.1"
HIGHEST = 1_000_000_000  # of a page, or a parallelism
Words: TypeAlias = "dict[str, str]"


class Site:
    """The pages of a lake or a directory.

    Args:
        source: The lake or the directory.
        audit: Gets a line for each look at values.
    """

    def __init__(self, source: Source, audit: Audit) -> None:
        self.source = source
        self.audit = audit
        self.values = source.options.values

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

    def _endpoint(self, answer: Callable[[Words], Response]) -> Callable[[Request], Response]:
        def endpoint(request: Request) -> Response:
            try:
                words = _words(request.scope["query_string"].decode("ascii"))
                words = _words(words.pop(pages.WITH, "")) | words
            except ValueError:  # no UTF-8
                return self._page("Not found", pages.problem("No such address."), code=404)
            try:
                return answer(words)
            except NotFoundError as error:
                return self._page("Not found", pages.problem(str(error)), code=404)
            except StateError as error:
                said = error if self.values else without_values(error)
                return self._page("That can't be shown", pages.problem(str(said)), code=400)

        return endpoint

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
        """Answer with what a snapshot holds."""
        name, parallelism = _name(words), _number(words.get("parallelism", ""))
        held, beside = self.source.held(name), self.source.beside(name)
        return self._page(
            pages.title_of(name),
            *pages.snapshot(name, held, beside, values=self.values, parallelism=parallelism),
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
        shown = pages.top(name, self.source.top(name, operator))
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
        found = self.source.diff(before, after)
        return self._page(f"{earlier} → {later}", *pages.diff(after, found), name=after)

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
        except NotFoundError:
            raise
        except StateError as error:
            said = pages.problem(str(error))
            return self._page(title, said, *again(None), name=name, code=400)

    def download(self, kind: str, words: Words) -> Response:
        """Answer with all rows of a query, as a file."""
        refuse_values(self.source.options)
        name, query = _name(words), words.get("query", "")
        self.audit.write(f"sql as {kind}", name, query=query)
        schema, batches = self.source.batches(name, query)
        written, media = {
            "csv": (_csv, "text/csv; charset=utf-8"),
            "parquet": (_parquet, "application/vnd.apache.parquet"),
        }[kind]
        pieces = written(schema, batches)
        first = list(islice(pieces, 2))  # what can't be written is told, and not cut off
        return StreamingResponse(
            chain(first, pieces), media_type=media,
            headers={"content-disposition": f'attachment; filename="rows.{kind}"'},
        )  # fmt: skip

    def style(self, _: Words) -> Response:
        """Answer with the style of a report, and what these pages add to it."""
        files = (
            (resources.files(f"statelake.pipelines.{package}") / "page.css").read_text("utf-8")
            for package in ("report", "ui")
        )
        return Response("".join(files), media_type="text/css")


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
    source = Source(location, options)
    log = None
    try:
        log = Audit(audit)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listening.bind((HOST, port))
            except OSError as error:
                raise StateError(
                    f"port {port} can't be used ({error.strerror})", remedy="give another --port"
                ) from error
            used = int(listening.getsockname()[1])
            guard = Guard(Site(source, log).app(), used)
            config = uvicorn.Config(
                guard, log_level="critical", access_log=False, server_header=False, lifespan="off",
                ws="none", proxy_headers=False, timeout_graceful_shutdown=1,
            )  # fmt: skip
            listening.listen()
            ready(f"http://{HOST}:{used}/?token={guard.token}")
            uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        return
    finally:
        source.close()
        if log is not None:
            log.close()
