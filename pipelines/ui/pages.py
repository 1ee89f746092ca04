"""The pages, as HTML. All text is escaped by `report.markup`, and cut where it is long."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import urlencode

import numpy as np

from statelake.pipelines.lake.verify.diffing import Differences
from statelake.pipelines.operations.growth import Growth
from statelake.pipelines.report.drawing import key_group_chart
from statelake.pipelines.report.markup import Html, table, tag
from statelake.pipelines.shown import bytes_text, json_text, plain
from statelake.pipelines.ui.views import HERE, PAGE_ROWS, Held, KeyState, Listed, Name, Rows
from statelake.state_core.model.description import OperatorDescription
from statelake.state_core.printable import Table, printable

WITH = "with"  # of a form: the words of its address that are no fields
SHOWN_SNAPSHOTS = 500
SHOWN_BESIDE = 20  # snapshots with which one may be compared
SHOWN_OPERATORS = 100
SHOWN_STATES = 500
WIDE, HIGH = 1000, 300  # of the line chart, in its own units


def address(path: str, **words: str | int) -> str:
    """Return an address below this server; half a surrogate pair of a name stays what it is."""
    said = {word: str(value) for word, value in words.items() if value != ""}
    query = urlencode(said, encoding="utf-8", errors="surrogatepass")
    return f"{path}?{query}" if query else path


def of(name: Name) -> dict[str, str]:
    """Return the words of an address that name a snapshot."""
    return {"job": name.job, "snapshot": name.snapshot}


def _link(said: str, where: str, rel: str = "") -> Html:
    """Return a link to an address, however long that is."""
    words = {"rel": rel} if rel else {}
    return tag("a", said, href=Html(html.escape(where)), **words)


def _whole(said: str) -> Html:
    """Return text that is not cut, line by line, with what can't be seen escaped."""
    return Html(html.escape("\n".join(map(printable, said.splitlines()))))


def _void(name: str, /, **attributes: str | int) -> Html:
    """Return an element without an end."""
    return Html(tag(name, **attributes).removesuffix(f"</{name}>"))


def _input(label: str, name: str, value: str = "") -> Html:
    """Return a field with its label."""
    field = _void(
        "input", id=f"of-{name}", name=name, type="text", value=_whole(value), autocomplete="off"
    )
    return Html(tag("label", label, for_=f"of-{name}") + field)


def _form(path: str, words: dict[str, str], *fields: Html, button: str) -> Html:
    """Return a form, whose fields become words of an address beside those that are given.

    These are in one field as in an address, so that a browser changes no character of them.
    """
    query = Html(html.escape(address("", **words).removeprefix("?")))
    hidden = _void("input", type="hidden", name=WITH, value=query)
    button_element = tag("button", button, type="submit")
    return tag("form", hidden, *fields, button_element, method="get", action=path)


def page(title: str, where: str, *parts: Html, trail: Sequence[Html] = ()) -> str:
    """Return a whole page.

    Args:
        title: Its title.
        where: The lake or directory.
        parts: What it has.
        trail: Links to what is above.
    """
    head = tag(
        "head",
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", f"{title}, statelake"),
        Html('<link rel="stylesheet" href="/page.css">'),
        Html('<link rel="icon" href="data:,">'),
    )
    links = [_link("All snapshots", "/"), *trail]
    body = tag(
        "body",
        tag("a", "Skip to the content", href="#content", class_="skip"),
        tag(
            "header",
            tag("nav", tag("ul", *(tag("li", each) for each in links)), aria_label="Pages"),
            tag("p", where, class_="note"),
        ),
        tag("main", tag("h1", title), *parts, id="content", tabindex=-1),
    )
    return f'<!DOCTYPE html>\n<html lang="en">{head}{body}</html>\n'


def snapshot_link(name: Name) -> Html:
    """Return a link to a snapshot's page."""
    return _link(name.snapshot, address("/snapshot", **of(name)))


def problem(said: str) -> Html:
    """Return an error as a part of a page."""
    return tag("p", said, class_="bad", role="alert")


def snapshots(listed: list[Listed], jobs: list[str]) -> Iterator[Html]:
    """Yield the parts of the page of all snapshots."""
    if not listed:
        yield tag("p", "There is no snapshot here.")
        return
    known = 7 if any(each.state for each in listed) else 5  # a lake has sound ones alone
    rows = [
        (
            snapshot_link(each.name),
            each.job,
            each.kind,
            f"{each.taken:%Y-%m-%d %H:%M}",
            bytes_text(each.size),
            each.state,
            each.reason,
        )[:known]
        for each in listed[:SHOWN_SNAPSHOTS]
    ]
    columns = ("<Snapshot", "<Job", "<Kind", "<Written (UTC)", ">State", "<Is", "<Because")
    if jobs:
        grown = (tag("li", _link(job, address("/growth", job=job))) for job in jobs)
        yield tag("h2", "Growth of each job")
        yield tag("ul", *grown)
        yield tag("h2", "Snapshots")
    yield table(
        "Snapshots, the sound ones first, and of these the newest", columns[:known], rows,
        left_out=len(listed) - len(rows),
    )  # fmt: skip


def snapshot(name: Name, held: Held, beside: list[Name], *, values: bool) -> Iterator[Html]:
    """Yield the parts of a snapshot's page."""
    facts = (tag("div", tag("dt", fact), tag("dd", said)) for fact, said in held.facts)
    yield tag("dl", *facts)
    if values:
        yield tag("h2", "Look up a key")
        yield _form("/key", of(name), _input("Key, as JSON or text", "key"), button="Show")
    if beside:
        yield tag("h2", "Compare with an earlier one")
        compared = (
            address("/diff", job=name.job, earlier=each.snapshot, later=name.snapshot)
            for each in beside[:SHOWN_BESIDE]
        )
        links = map(_link, (each.snapshot for each in beside), compared)
        yield tag("ul", *(tag("li", link) for link in links))
    if values:
        yield tag("p", _link("Query it by SQL", address("/sql", **of(name))))
    for number, operator in enumerate(held.operators[:SHOWN_OPERATORS]):
        yield from _operator(number, name, operator, values=values)
    left = len(held.operators) - SHOWN_OPERATORS
    if left > 0:
        yield tag("p", f"… and {left:,} more operators", class_="more")


def _operator(
    number: int, name: Name, operator: OperatorDescription, *, values: bool
) -> Iterator[Html]:
    yield tag("h2", f"Operator {operator.label}")
    said = [
        operator.name,
        f"parallelism {operator.parallelism}",
        f"{operator.max_parallelism} key groups",
        bytes_text(operator.total_bytes),
        f"keyed by {operator.key_text}" if operator.key_text else "",
        *(f"{what} {bytes_text(size)}" for what, size in operator.other),
    ]
    yield tag("p", "; ".join(filter(None, said)))
    if operator.node:
        yield tag("p", f"{operator.node}: {operator.query}")
    rows = []
    for state in operator.states[:SHOWN_STATES]:
        where = address("/rows", **of(name), operator=operator.label, state=state.name)
        rows.append(
            (
                _link(state.name, where) if values else state.name,
                state.kind if state.mode is None else f"operator, {state.kind}",
                state.namespace_type,
                state.type_text,
                "" if state.entries is None else f"{state.entries:,}",
                "" if state.size is None else bytes_text(state.size),
            )
        )
    columns = ("<State", "<Kind", "<Namespace", "<Value", ">Entries", ">Bytes")
    if rows:
        yield table(
            f"States of {operator.label}", columns, rows, left_out=len(operator.states) - len(rows)
        )
    if operator.keyed_states and np.any(operator.sizes):
        yield key_group_chart(operator.sizes, operator.parallelism).figure(f"groups-{number}")
        how = "" if operator.counted else " Sizes are estimated: entries were not counted."
        yield tag("p", f"{operator.load()}{how}")


def rows(
    name: Name, operator: str, state: str, where: str, number: int, found: Rows | None
) -> Iterator[Html]:
    """Yield the parts of the page of a state's rows."""
    words = of(name) | {"operator": operator, "state": state}
    field = _input("Only where (SQL, such as key = 'a')", "where", where)
    yield _form("/rows", words, field, button="Filter")
    if found is None:
        return
    first = number * PAGE_ROWS + 1
    last = first + len(found.cells) - 1
    caption = f"Rows {first:,} to {last:,}" if found.cells else "No rows"
    yield _rows_table(caption, name, found)
    links = []
    if number:
        before = address("/rows", **words, where=where, page=number - 1 or "")
        links.append(tag("li", _link("Previous rows", before, "prev")))
    if found.more:
        after = address("/rows", **words, where=where, page=number + 1)
        links.append(tag("li", _link("Next rows", after, "next")))
    if links:
        yield tag("nav", tag("ul", *links), aria_label="More rows")


def _rows_table(caption: str, name: Name, found: Rows) -> Html:
    at = found.columns.index("key") if found.keys else -1
    shown: list[list[str]] = []
    for number, cells in enumerate(found.cells):
        row = list(cells)
        if at >= 0:
            row[at] = _link(row[at], address("/key", **of(name), key=found.keys[number]))
        shown.append(row)
    return table(caption, [f"<{column}" for column in found.columns], shown)


def key(name: Name, text: str, found: KeyState | None) -> Iterator[Html]:
    """Yield the parts of a key's page."""
    yield _form("/key", of(name), _input("Key, as JSON or text", "key", text), button="Show")
    if found is None:
        return
    yield tag("h2", "Held now")
    if not found.tables:
        yield tag("p", "Nothing is held for this key.")
    yield from printed(found.tables)
    if found.history is not None:
        yield tag("h2", "History")
        yield from printed(found.history.lines())


def diff(found: Differences) -> Iterator[Html]:
    """Yield the parts of the page of two snapshots."""
    if found.same:
        yield tag("p", "They hold the same.")
        return
    yield table(
        f"What differs in {found.later} from {found.earlier}",
        ("<Operator", "<State", "<Is", ">Added", ">Removed", ">Changed"),
        [
            (
                each.operator, each.state, each.status,
                *map("{:,}".format, (each.added, each.removed, each.changed)),
            )
            for each in found
        ],
    )  # fmt: skip
    for each in found:
        if each.examples:
            yield tag("h2", f"Some of {each.operator}/{each.state}")
            names = list(dict.fromkeys(word for example in each.examples for word in example))
            cells = (
                [_cell(example.get(word)) for word in names] for example in map(dict, each.examples)
            )
            yield table("Entries that differ", [f"<{word}" for word in names], cells)


def _cell(value: object) -> str:
    shown = plain(value)
    return shown if isinstance(shown, str) else "" if shown is None else json_text(shown)


def growth(found: Growth) -> Iterator[Html]:
    """Yield the parts of the page of a job's growth."""
    for sentence in found.sentences:
        yield tag("p", sentence)
    yield _line_chart(found)
    steps = [
        (
            each.snapshot, f"{each.taken_at:%Y-%m-%d %H:%M}", f"{each.total.entries:,}",
            bytes_text(each.total.size),
        )
        for each in found.steps[-SHOWN_SNAPSHOTS:]
    ]  # fmt: skip
    yield table(
        "Snapshots, the oldest first", ("<Snapshot", "<Taken (UTC)", ">Entries", ">Bytes"), steps,
        left_out=len(found.steps) - len(steps),
    )  # fmt: skip
    states = [
        (
            each.label, each.kind, bytes_text(each.first.size), bytes_text(each.last.size),
            f"{each.last.entries - each.first.entries:+,}", each.cause,
        )
        for each in found.states[:SHOWN_STATES]
    ]  # fmt: skip
    yield table(
        "States, the one that grew most first",
        ("<State", "<Kind", ">First", ">Last", ">Entries", "<Cause"),
        states,
        left_out=len(found.states) - len(states),
    )


def _line_chart(found: Growth) -> Html:
    """Return a line of all state's bytes by time, from 0 to the highest."""
    steps = found.steps
    begins = steps[0].taken_at
    days = [(each.taken_at - begins).total_seconds() for each in steps]
    span, highest = days[-1] or 1, max(1, *(each.total.size for each in steps))
    points = " ".join(
        f"{WIDE * day / span:.1f},{HIGH - HIGH * each.total.size / highest:.1f}"
        for day, each in zip(days, steps, strict=True)
    )
    picture = tag(
        "svg", tag("polyline", points=points, class_="line"), viewBox=f"0 0 {WIDE} {HIGH}",
        preserveAspectRatio="none", role="img", aria_labelledby="line-caption",
    )  # fmt: skip
    caption = (
        f"Bytes of keys and values from {begins:%Y-%m-%d %H:%M} to"
        f" {steps[-1].taken_at:%Y-%m-%d %H:%M} UTC; the top is {bytes_text(highest)}, the bottom 0."
    )
    return tag("figure", picture, tag("figcaption", caption, id="line-caption"))


def sql(name: Name, query: str, tables: list[str], found: Rows | None) -> Iterator[Html]:
    """Yield the parts of the page of queries."""
    label = tag("label", "SELECT that DuckDB runs", for_="of-query")
    box = tag("textarea", _whole(query), id="of-query", name="query", rows=6, spellcheck="false")
    yield _form("/sql", of(name), Html(label + box), button="Run")
    if found is not None:
        more = ", the first ones" if found.more else ""
        yield table(
            f"{len(found.cells):,} rows{more}", [f"<{column}" for column in found.columns],
            found.cells,
        )  # fmt: skip
        links = (
            tag("li", _link(f"All rows as {kind}", address(path, **of(name), query=query)))
            for kind, path in (("CSV", "/sql.csv"), ("Parquet", "/sql.parquet"))
        )
        yield tag("ul", *links)
    yield tag("h2", "Tables")
    yield tag("ul", *(tag("li", tag("code", each)) for each in tables[:SHOWN_STATES]))


def printed(lines: Iterable[str | Table]) -> Iterator[Html]:
    """Yield what people read as elements."""
    for line in lines:
        if isinstance(line, str):
            yield tag("p", line)
        elif line.rows:
            cells = (
                ["; ".join(cell) if isinstance(cell, list) else cell for cell in row]
                for row in line.rows
            )
            yield table(line.title, line.columns, cells, left_out=line.left)


def title_of(name: Name) -> str:
    """Return the name of a snapshot as a title."""
    here = "This snapshot" if name.snapshot == HERE else name.snapshot
    return f"{name.job}, {here}" if name.job else here
