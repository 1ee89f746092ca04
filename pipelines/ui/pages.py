"""The pages, as HTML. All text is escaped by `report.markup`, and cut where it is long."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from statelake.pipelines.find.growth import Growth
from statelake.pipelines.lake.verify.diffing import Differences
from statelake.pipelines.report.drawing import key_group_chart, subtask_chart
from statelake.pipelines.report.markup import Html, table, tag
from statelake.pipelines.report.page import growth_answer, growth_tables
from statelake.pipelines.shown import bytes_text, json_text, plain
from statelake.pipelines.ui.views import (
    HEAVIEST,
    HERE,
    OPERATOR_STATE,
    PAGE_ROWS,
    Erasures,
    KeyState,
    Listed,
    Name,
    Rows,
    SnapshotContents,
)
from statelake.state_core.formats.description import OperatorDescription
from statelake.state_core.formats.key_weights import HeavyKey, StateWeights
from statelake.state_core.printable import Table, printable

WITH = "with"  # the field of a form that has the other parameters of its address
SHOWN_SNAPSHOTS = 500
SHOWN_BESIDE = 20  # snapshots with which one may be compared
SHOWN_OPERATORS = 100
SHOWN_STATES = 500
SHOWN_ERASURES = 50
SHOWN_KEYS = 20  # the heaviest ones
LONGEST_ADDRESS = 60_000  # bytes: the server's limit is 64 KiB with all headers
PLACE = ("key", "namespace", "user_key")  # of an entry in its state


def address(path: str, **words: str | int) -> str:
    """Return an address below this server; half a surrogate pair of a name stays what it is."""
    given = {word: str(value) for word, value in words.items() if value != ""}
    query = urlencode(given, encoding="utf-8", errors="surrogatepass")
    return f"{path}?{query}" if query else path


def of(name: Name) -> dict[str, str]:
    """Return the words of an address that name a snapshot."""
    return {"job": name.job, "snapshot": name.snapshot}


def _link(text: str, where: str, rel: str = "") -> Html:
    """Return a link to an address, however long that is."""
    words = {"rel": rel} if rel else {}
    return tag("a", text, href=Html(html.escape(where)), **words)


def _whole(text: str) -> Html:
    """Return text that is not cut, line by line, with what can't be seen escaped."""
    return Html(html.escape("\n".join(map(printable, text.splitlines()))))


def _void(name: str, /, **attributes: str | int) -> Html:
    """Return an element without a closing tag."""
    return Html(tag(name, **attributes).removesuffix(f"</{name}>"))


def _input(label: str, name: str, value: str = "", kind: str = "text") -> Html:
    """Return a field with its label."""
    field = _void(
        "input", id=f"of-{name}", name=name, type=kind, value=_whole(value), autocomplete="off"
    )
    return Html(tag("label", label, for_=f"of-{name}") + field)


def _form(path: str, words: dict[str, str], *fields: Html, button: str) -> Html:
    """Return a form, whose fields become parameters of an address beside the given ones.

    These are in one field as in an address, so that a browser changes no character of them.
    """
    query = Html(html.escape(address("", **words).removeprefix("?")))
    hidden = _void("input", type="hidden", name=WITH, value=query)
    button_element = tag("button", button, type="submit")
    return tag("form", hidden, *fields, button_element, method="get", action=path)


def script() -> str:
    """Return the script that completes names in a query: the only one that `guard` lets run."""
    return (resources.files("statelake.pipelines.ui") / "page.js").read_text("utf-8")


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


def problem(text: str) -> Html:
    """Return an error as a part of a page."""
    return tag("p", text, class_="bad", role="alert")


def snapshots(listed: list[Listed], jobs: list[str]) -> Iterator[Html]:
    """Yield the parts of the page of all snapshots."""
    if not listed:
        yield tag("p", "There is no snapshot here.")
        return
    known = 7 if any(each.state for each in listed) else 5  # snapshots of a lake are not checked
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
        yield tag("ul", *grown, tag("li", _link("What was erased, and proved", "/erasures")))
        yield tag("h2", "Snapshots")
    order = "the newest first" if known == 5 else "the sound ones first, and of these the newest"
    yield table(Table(f"Snapshots, {order}", columns[:known], rows, len(listed) - len(rows)))


def snapshot(
    name: Name,
    contents: SnapshotContents,
    beside: list[tuple[Name, Name]],
    *,
    values: bool,
    parallelism: int = 0,
) -> Iterator[Html]:
    """Yield the parts of a snapshot's page.

    Args:
        name: Its name.
        contents: What it holds.
        beside: The pairs in which it may be compared with another, the earlier one first.
        values: Whether keys and values are shown.
        parallelism: The one by which key groups are dealt out; 0 for that of each operator.
    """
    facts = (tag("div", tag("dt", fact), tag("dd", text)) for fact, text in contents.facts)
    yield tag("dl", *facts)
    if values:
        yield tag("h2", "Look up a key")
        yield _form("/key", of(name), _input("Key, as JSON or text", "key"), button="Show")
        yield tag("p", _link("Query it by SQL", address("/sql", **of(name))))
    if beside:
        yield tag("h2", "Compare with another one")
        links = (
            _link(
                f"From {earlier.snapshot} to {later.snapshot}",
                address("/diff", job=name.job, earlier=earlier.snapshot, later=later.snapshot),
            )
            for earlier, later in beside[:SHOWN_BESIDE]
        )
        yield tag("ul", *(tag("li", link) for link in links))
    yield tag("h2", "Another parallelism")
    given = str(parallelism or "")
    field = _input("Show key groups and subtasks at parallelism", "parallelism", given, "number")
    yield _form("/snapshot", of(name), field, button="Show")
    for number, operator in enumerate(contents.operators[:SHOWN_OPERATORS]):
        yield from _operator(number, name, operator, values=values, parallelism=parallelism)
    left = len(contents.operators) - SHOWN_OPERATORS
    if left > 0:
        yield tag("p", f"… and {left:,} more operators", class_="more")


def _operator(
    number: int, name: Name, operator: OperatorDescription, *, values: bool, parallelism: int
) -> Iterator[Html]:
    yield tag("h2", f"Operator {operator.label}")
    facts = [
        operator.name,
        f"parallelism {operator.parallelism}",
        f"{operator.max_parallelism} key groups",
        bytes_text(operator.total_bytes),
        f"keyed by {operator.key_text}" if operator.key_text else "",
        *(f"{what} {bytes_text(size)}" for what, size in operator.other),
    ]
    yield tag("p", "; ".join(filter(None, facts)))
    if operator.node:
        yield tag("p", f"{operator.node}: {operator.query}")
    rows = []
    for state in operator.states[:SHOWN_STATES]:
        mode = OPERATOR_STATE if state.mode is not None else ""
        where = address("/rows", **of(name), operator=operator.label, state=state.name, mode=mode)
        rows.append(
            (
                _link(state.name, where) if values else state.name,
                state.kind if state.mode is None else f"operator, {state.kind}",
                state.namespace_type,
                state.type_text,
                *state.counts_text,
            )
        )
    columns = ("<State", "<Kind", "<Namespace", "<Value", ">Entries", ">Bytes")
    if rows:
        left = len(operator.states) - len(rows)
        yield table(Table(f"States of {operator.label}", columns, rows, left))
    if operator.problem:
        yield tag("p", f"Not all of its state could be read: {operator.problem}", class_="bad")
    if operator.keyed_states and operator.with_data:
        if values:
            where = address("/top", **of(name), operator=operator.label)
            yield tag("p", _link("Heaviest keys", where))
        yield from _key_groups(number, operator, parallelism)


def _key_groups(number: int, operator: OperatorDescription, parallelism: int) -> Iterator[Html]:
    """Yield the bytes of key groups and of subtasks."""
    if parallelism > operator.max_parallelism:
        text = (
            f"No higher parallelism than {operator.max_parallelism}, its key groups, is possible."
        )
        yield tag("p", text, class_="bad")
        parallelism = 0
    subtasks = parallelism or operator.parallelism
    yield key_group_chart(operator.sizes, subtasks).figure(f"groups-{number}")
    yield subtask_chart(operator.load(subtasks)).figure(f"subtasks-{number}")
    if not operator.counted:
        yield tag("p", "Sizes are estimated: entries were not counted.", class_="note")


def top(
    name: Name, weighed: dict[str, StateWeights], problems: Sequence[str] = ()
) -> Iterator[Html]:
    """Yield the parts of the page of the heaviest keys of an operator."""
    yield from map(problem, problems)
    if len(weighed) > 1:
        yield from _together(name, weighed)
    most = sorted(weighed.items(), key=lambda item: -item[1].size)
    for state, weights in most[:SHOWN_STATES]:
        yield tag("h2", f"{state}, {weights.layout.kind.value}")
        yield tag(
            "p",
            f"{weights.entries:,} entries of {weights.keys:,} keys, {bytes_text(weights.size)}",
        )
        heaviest, busiest = weights.heaviest()[:SHOWN_KEYS], weights.busiest()[:SHOWN_KEYS]
        yield _keys_table(f"Of {state}, by bytes", name, heaviest, weights.size)
        if busiest != heaviest and busiest and busiest[0].entries > 1:
            yield _keys_table(f"Of {state}, by entries", name, busiest, weights.size)
    if len(most) > SHOWN_STATES:
        yield tag("p", f"… and {len(most) - SHOWN_STATES:,} more states", class_="more")


def _together(name: Name, weighed: dict[str, StateWeights]) -> Iterator[Html]:
    """Yield the heaviest keys of all states together, as far as those of each state tell."""
    sums: dict[tuple[str, int], HeavyKey] = {}  # two keys may look the same, as far as shown
    hidden = 0  # at most what a key has in states of whose heaviest it is not one
    for weights in weighed.values():
        heaviest = weights.heaviest()
        complete = len(heaviest) == weights.keys
        hidden += 0 if complete or not heaviest else heaviest[-1].size
        for each in heaviest:
            place = json_text(plain(each.key)), each.key_group
            before = sums.get(place, replace(each, entries=0, size=0))
            sums[place] = replace(
                before, entries=before.entries + each.entries, size=before.size + each.size
            )
    ordered = sorted(sums.values(), key=lambda each: -each.size)
    if not ordered:
        return
    total = sum(weights.size for weights in weighed.values())
    yield tag("h2", "All states together")
    first = [each for each in ordered if each.size == ordered[0].size]
    if len(first) > 1:
        yield tag("p", f"{len(first):,} keys have as much as the first one.")
    if hidden:
        text = f"A key has up to {bytes_text(hidden)} more in states whose heaviest it is not among"
        yield tag("p", f"{text} ({HEAVIEST:,} of each were summed up).")
    yield _keys_table("Of all states, by bytes", name, ordered[:SHOWN_KEYS], total, "Of all")


def _keys_table(
    caption: str, name: Name, keys: list[HeavyKey], size: int, share: str = "Of the state"
) -> Html:
    cells = [
        (
            _key_link(name, plain(key.key)),
            str(key.key_group),
            f"{key.entries:,}",
            bytes_text(key.size),
            f"{100 * key.size / max(1, size):.1f} %",
        )
        for key in keys
    ]
    columns = ("<Key", ">Key group", ">Entries", ">Bytes", f">{share}")
    return table(Table(caption, columns, cells))


def _key_link(name: Name, key: object) -> str:
    """Return a link to all that is held for a key."""
    text = json_text(key)
    return _text_link(name, text, _cell(key) or text)


def _text_link(name: Name, key: str, text: str) -> str:
    """Return a link for a key as JSON; no link if an address can't be that long."""
    where = address("/key", **of(name), key=key)
    return _link(text, where) if len(where) <= LONGEST_ADDRESS else text


def rows(
    name: Name, operator: str, state: str, where: str, number: int, mode: str, part: Rows | None
) -> Iterator[Html]:
    """Yield the parts of the page of a state's rows."""
    words = of(name) | {"operator": operator, "state": state, "mode": mode}
    field = _input("Only where (SQL, such as key = 'a')", "where", where)
    yield _form("/rows", words, field, button="Filter")
    if part is None:
        return
    first = number * PAGE_ROWS + 1
    last = first + len(part.cells) - 1
    caption = f"Rows {first:,} to {last:,}" if part.cells else "No rows"
    yield _rows_table(caption, name, part)
    links = []
    if number:
        before = address("/rows", **words, where=where, page=number - 1 or "")
        links.append(tag("li", _link("Previous rows", before, "prev")))
    if part.more:
        after = address("/rows", **words, where=where, page=number + 1)
        links.append(tag("li", _link("Next rows", after, "next")))
    if links:
        yield tag("nav", tag("ul", *links), aria_label="More rows")


def _rows_table(caption: str, name: Name, part: Rows) -> Html:
    at = part.columns.index("key") if part.keys else -1
    shown: list[list[str]] = []
    for number, cells in enumerate(part.cells):
        row = list(cells)
        if at >= 0:
            row[at] = _text_link(name, part.keys[number], row[at])
        shown.append(row)
    return table(Table(caption, [f"<{column}" for column in part.columns], shown))


def key(name: Name, text: str, key_state: KeyState | None) -> Iterator[Html]:
    """Yield the parts of a key's page."""
    yield _form("/key", of(name), _input("Key, as JSON or text", "key", text), button="Show")
    if key_state is None:
        return
    yield tag("h2", f"Held in {title_of(name)}")
    yield from map(problem, key_state.problems)
    if not key_state.tables and not key_state.problems:
        yield tag("p", "There is no state for this key.")
    yield from printed(key_state.tables)
    if key_state.history is not None:
        yield tag("h2", "History")
        yield from printed(key_state.history.lines())
        yield tag("p", "What was added in the oldest snapshot was there then, or before.")
        plan = address("/erasure", **of(name), key=text)
        yield tag("p", _link("What an erasure of this key would change", plan))
    else:
        yield tag("h2", "History")
        yield tag("p", f"There is none. {key_state.trouble}")


def erasures(recorded: Erasures) -> Iterator[Html]:
    """Yield the parts of the page of erasures and audits."""
    for request in recorded.unfinished:
        yield problem(f"Erasure {request} has not ended: give its request again.")
    if recorded.broken is not None:
        yield problem(
            f"Record {recorded.broken.number} was changed, or one before it was removed: compare it"
            " with a copy."
        )
    elif recorded.records:
        yield tag("p", "Each record has the hash of the one before: none was changed.")
    else:
        yield tag("p", "Nothing was erased.")
    for record in recorded.records[:SHOWN_ERASURES]:
        yield tag("h2", f"{record.request}: {record.kind}")
        content: dict[str, Any] = record.to_json()["said"]
        facts = {
            "recorded": record.recorded_at, "by": record.requested_by, "record": str(record.number),
        }  # fmt: skip
        tables: list[Html] = []
        for word, value in content.items():
            called = word.replace("_", " ")
            if isinstance(value, list) and value and isinstance(value[0], dict):
                tables.append(_records_table(f"{called} of record {record.number}", value))
            elif isinstance(value, dict) and value:
                cells = [(name, _cell(each)) for name, each in value.items()]
                tables.append(table(Table(called, ("<Name", "<Value"), cells)))
            elif value not in ("", [], {}):
                facts[called] = f"{value:,}" if type(value) is int else _cell(value)
        shown = (tag("div", tag("dt", fact), tag("dd", value)) for fact, value in facts.items())
        yield tag("dl", *shown)
        yield from tables
        yield tag("p", "Its hash: ", tag("code", record.digest), class_="note")
    left = len(recorded.records) - SHOWN_ERASURES
    if left > 0:
        yield tag("p", f"… and {left:,} older records", class_="more")


def _records_table(caption: str, values: list[Any]) -> Html:
    """Return a table of objects of JSON, whose words are its columns."""
    shown = [value for value in values[:SHOWN_STATES] if isinstance(value, dict)]
    words = sorted(
        dict.fromkeys(word for value in shown for word in value),
        key=lambda word: isinstance(shown[0].get(word), int),
    )  # names before numbers
    cells = [[_cell(value.get(word)) for word in words] for value in shown]
    columns = [f"<{word.replace('_', ' ')}" for word in words]
    return table(Table(caption, columns, cells, len(values) - len(shown)))


def diff(name: Name, differences: Differences) -> Iterator[Html]:
    """Yield the parts of the page of two snapshots."""
    if differences.unread:
        yield tag("p", differences.unread_text, class_="note")
    if differences.same:
        yield tag("p", "They hold the same.")
        return
    title = f"What differs in {differences.later} from {differences.earlier}"
    columns = ("<Operator", "<State", "<Is=status", ">Added:,", ">Removed:,", ">Changed:,")
    yield table(Table.of(title, columns, differences))
    for each in differences:
        if each.examples:
            yield tag("h2", f"{each.operator}/{each.state}")
            rows = [row for example in each.examples for row in _differing(name, example)]
            heads = ("<Is", "<Key", "<Namespace", "<User key", "<Field", "<Before", "<After")
            shown = [at for at in range(len(heads)) if at == 0 or any(row[at] for row in rows)]
            count, known = len(each.examples), each.added + each.removed + each.changed
            entries = "1 entry" if count == 1 else f"{count:,} entries"
            if known > count:
                entries = f"{entries}, the first of {known:,},"
            cells = [[row[at] for at in shown] for row in rows]
            title = f"What differs in {entries} of {each.state}"
            yield table(Table(title, [heads[at] for at in shown], cells))


def _differing(name: Name, example: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield a row for each field that differs in an entry."""
    before, after = (
        dict(_fields("", plain(example.get(side, {})))) for side in ("before", "after")
    )
    values = [{**after, **before}.get(word) for word in PLACE]
    place = [
        example["change"],
        "" if values[0] is None else _key_link(name, values[0]),
        *("" if value is None else _cell(value) for value in values[1:]),
    ]
    for field in dict.fromkeys([*before, *after]):
        if field in (*PLACE, "key_group"):
            continue
        if before.get(field) != after.get(field) or (field in before) != (field in after):
            yield [*place, field, _cell(before.get(field)), _cell(after.get(field))]


def _fields(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a row, those of rows within it by their path."""
    for word, inner in value.items():
        below = f"{path}.{word}" if path else word
        if isinstance(inner, dict) and inner and below not in PLACE:
            yield from _fields(below, inner)
        else:
            yield below, inner


def _cell(value: object) -> str:
    shown = plain(value)
    return shown if isinstance(shown, str) else "" if shown is None else json_text(shown)


def growth(measured: Growth) -> Iterator[Html]:
    """Yield the parts of the page of a job's growth."""
    yield from growth_answer(measured)
    columns = (
        "<Snapshot", "<Taken (UTC)=taken_text", ">Entries=total.entries:,", ">Bytes=total.size:B"
    )  # fmt: skip
    shown = measured.steps[-SHOWN_SNAPSHOTS:]
    left = len(measured.steps) - len(shown)
    yield table(Table.of("Snapshots, the oldest first", columns, shown, left=left))
    yield from growth_tables(measured)


def sql(name: Name, query: str, tables: dict[str, list[str]], part: Rows | None) -> Iterator[Html]:
    """Yield the parts of the page of queries; its script completes the names of the last list."""
    label = tag("label", "SELECT that DuckDB runs", for_="of-query")
    box = tag(
        "textarea", _whole(query), id="of-query", name="query", rows=6, spellcheck="false",
        autocomplete="off", aria_describedby="completing",
    )  # fmt: skip
    offers = tag("ul", id="offers", role="listbox", aria_label="Names", hidden="hidden")
    status = tag("p", id="completing", role="status", class_="note")
    yield _form("/sql", of(name), Html(label + box), button="Run")
    yield Html(status + offers)  # below the button, which they must not move
    if part is not None:
        more = ", the first ones" if part.more else ""
        count = "1 row" if len(part.cells) == 1 else f"{len(part.cells):,} rows"
        yield table(Table(f"{count}{more}", [f"<{name}" for name in part.columns], part.cells))
        links = (
            tag("li", _link(f"All rows as {kind}", address(path, **of(name), query=query)))
            for kind, path in (("CSV", "/sql.csv"), ("Parquet", "/sql.parquet"))
        )
        yield tag("ul", *links)
    yield tag("h2", "Tables")
    items = (
        tag("li", tag("code", each), *(Html(f" {tag('code', column)}") for column in columns))
        for each, columns in islice(tables.items(), SHOWN_STATES)
    )
    yield tag("ul", *items, id="names")
    yield Html(f"<script>{script()}</script>")


def printed(lines: Iterable[str | Table]) -> Iterator[Html]:
    """Yield the text form of a result as HTML elements."""
    for line in lines:
        if isinstance(line, str):
            yield tag("p", line)
        elif line.rows:
            yield table(line)


def title_of(name: Name) -> str:
    """Return the name of a snapshot as a title."""
    here = "This snapshot" if name.snapshot == HERE else name.snapshot
    return f"{name.job}, {here}" if name.job else here
