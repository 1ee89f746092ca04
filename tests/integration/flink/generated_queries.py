"""Queries of Flink SQL drawn at random, with edits, and the rows that they read.

An edit gives the same query with something added, removed, exchanged or changed. Every column of a
query's result has a label that says what it is, so that two queries' results can be compared in
the columns that both have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

ROWS = 120
COLUMNS = "id BIGINT, g BIGINT, name STRING, v BIGINT, price DOUBLE, ts TIMESTAMP(3)"
TABLES = {
    "o": ("", ""),
    "p": ("proc AS PROCTIME(), ", ""),
    "u": ("PRIMARY KEY (id) NOT ENFORCED, ", ", 'updating' = 'true'"),
    "w": ("PRIMARY KEY (id) NOT ENFORCED, ", ", 'upserts' = 'true'"),  # whose changes are upserts
    "versions": ("PRIMARY KEY (id) NOT ENFORCED, ", ", 'upserts' = 'true'"),
}
INSERTS = ", 'format' = 'csv'"
WATERMARK = "WATERMARK FOR ts AS ts - INTERVAL '1' SECOND"
AGGREGATES = (
    "COUNT(*)", "SUM(v)", "AVG(v)", "AVG(price)", "MIN(v)", "MAX(name)", "MAX(v)", "COUNT(v)",
    "SUM(price)", "COUNT(name)", "SUM(id)", "MIN(id)",
    "SUM(CAST(v AS DECIMAL(12, 2)))", "SUM(v) FILTER (WHERE v > 40)",
)  # fmt: skip
IN_ORDER = ("FIRST_VALUE(name)", "LAST_VALUE(v)")
DISTINCT = ("COUNT(DISTINCT name)", "SUM(DISTINCT v)", "COUNT(DISTINCT v) FILTER (WHERE id > 9)")
FILTERS = ("v > 20", "name <> 'n3'", "id > 5", "v * 2 < 300")
FIELDS = ("id", "g", "name", "v", "price")


def write_tables(to: Path, random: Random) -> str:
    """Write the rows of each table, and return the statements that create them."""
    statements = []
    for table, (columns, options) in TABLES.items():
        file = to / f"{table}.rows"
        if table == "w":  # those of the other table that changes
            file.write_text((to / "u.rows").read_text())
        elif table == "versions":
            file.write_text("\n".join(_versions(Random(ROWS))))
        else:
            file.write_text("\n".join(_rows(random, updates=table == "u")))
        statements.append(
            f"CREATE TABLE {table} ({COLUMNS}, {columns}{WATERMARK})"
            f" WITH ('connector' = 'halves', 'rows' = '{file}'{options or INSERTS});\n"
        )
    return "".join(statements)


def _rows(random: Random, *, updates: bool) -> list[str]:
    """Rows in the order of their time; those of a table with updates retract earlier ones."""
    lines: list[str] = []
    present: dict[int, str] = {}
    for number in range(ROWS):
        if updates and present and random.random() < 0.4 and len(lines) < ROWS - 1:
            key = random.choice(sorted(present))
            if random.random() < 0.3:
                lines.append(f"-D|{present.pop(key)}")
                continue
            new = _row(key, number, random)
            lines += [f"-U|{present[key]}", f"+U|{new}"]
            present[key] = new
            continue
        present[number] = _row(number, number, random)
        lines.append(f"+I|{present[number]}")
    return lines[:ROWS] if not updates else lines


def _versions(random: Random) -> list[str]:
    """Rows of few keys, each as of its time: none is late, and none deleted."""
    known: set[int] = set()
    lines = []
    for number in range(ROWS):
        key = random.randrange(5)
        lines.append(f"{'+U' if key in known else '+I'}|{_row(key, number, random)}")
        known.add(key)
    return lines


def _row(key: int, number: int, random: Random) -> str:
    name = "\\N" if random.random() < 0.1 else f"n{random.randrange(6)}"
    value = "\\N" if random.random() < 0.1 else str(random.randrange(200))
    drawn = random.randrange(400) / 4
    price = drawn if number % 13 != 5 else "\\N"
    return f"{key}|{random.randrange(5)}|{name}|{value}|{price}|{_time(number)}"


def _time(number: int) -> str:
    return f"2024-01-01T00:{number // 60:02}:{number % 60:02}"


@dataclass(frozen=True)
class Query:
    """A query.

    Attributes:
        shape: What it does at last: `agg`, `join`, `interval`, `first`, `last`, `top`, `window`,
            `over`, `distinct`.
        source: What it reads: a table, or a query below.
        where: The conditions on that.
        keys: What it groups by, or is partitioned by.
        items: What it selects beside.
        setting: The type of a join, the number of rows of a TopN, or a window.
        options: Statements before it.
        columns: The columns of its tables.
        having: The condition on its groups.
    """

    shape: str
    source: str
    where: tuple[str, ...]
    keys: tuple[str, ...]
    items: tuple[str, ...]
    setting: str = ""
    options: str = ""
    columns: str = COLUMNS
    having: str = ""

    @property
    def labels(self) -> list[str]:
        """What each column of its result is."""
        window = ["window_start"] if self.shape in WINDOWED else []
        marks = [f"GROUPING({key})" for key in SET_KEYS] if self.shape == "sets" else []
        keys = [] if self.shape in JOINED else list(self.keys)
        return [*keys, *marks, *window, *self.items]

    @property
    def sql(self) -> str:
        """Its text."""
        return self.options + SHAPES[self.shape](self)

    @property
    def tables(self) -> set[str]:
        """The tables that it reads."""
        return {table for table in TABLES if f" {table} " in f"{self.sql} ".replace("\n", " ")
                .replace(",", " ").replace(")", " ").replace("(", " ")}  # fmt: skip


JOINED = ("join", "interval", "over", "temporal", "window-join")
WINDOWED = ("window", "group-window")
FIRING = (*WINDOWED, "window-join", "window-top")  # what sends rows when a window is over
TIMED = (*FIRING, "temporal", "interval")  # what sends them at a watermark
SET_KEYS = ("g", "name")
SETS = (
    "GROUPING SETS ((g), (name))", "GROUPING SETS ((name), (g))", "ROLLUP (g, name)",
    "CUBE (g, name)", "GROUPING SETS ((g, name), (name))", "GROUPING SETS ((g, name), (g), ())",
)  # fmt: skip
FUNCTIONS = "".join(
    f"CREATE FUNCTION {name} AS 'SqlHalves${name.capitalize()}' LANGUAGE JAVA;\n"
    for name in ("weighted", "letters")
)
INNER = "(SELECT g, name, SUM(v) AS v{} FROM o GROUP BY g, name)"
SOURCES = {
    "w": "w",
    "unnested": "(SELECT o.id, o.g, t.name, o.v, o.price FROM o CROSS JOIN UNNEST(ARRAY[o.name,"
    " 'x']) AS t (name))",
    "split": "(SELECT o.id, o.g, t.name, o.v, o.price FROM o LEFT JOIN LATERAL TABLE("
    "letters(o.name)) AS t (name) ON TRUE)",
    "inner": INNER.format(""),
    "inner2": INNER.format(", SUM(id) AS w, MAX(price) AS m"),
    "p": "p",
    "o": "o",
    "u": "u",
    "joined": "(SELECT o.id, o.g, p.name, p.v, o.price FROM o JOIN p ON o.id = p.id)",
    "left": "(SELECT o.id, o.g, u.name, u.v, o.price FROM o LEFT JOIN u ON o.id = u.id)",
    "first": "(SELECT id, g, name, v, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY g, v"
    " ORDER BY proc ASC) AS rn FROM p ) WHERE rn = 1)",
    "grouped": "(SELECT g, name, COUNT(*) AS id, SUM(v) AS v, MAX(price) AS price FROM o"
    " GROUP BY g, name)",
    "changes": "u",
    "last": "(SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY v ORDER BY proc DESC) AS rn"
    " FROM p ) WHERE rn = 1)",
    "late": "(SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY v, name ORDER BY ts DESC)"
    " AS rn FROM p ) WHERE rn = 1)",
    "recounted": "(SELECT g, v, COUNT(*) AS id, MAX(name) AS name, SUM(price) AS price FROM u"
    " GROUP BY g, v)",
    "averaged": "(SELECT g, name, COUNT(v) AS id, AVG(v) AS v, MIN(price) AS price FROM o"
    " GROUP BY g, name)",
    "matched": "(SELECT a.id, a.g, b.name, b.v, a.price FROM u AS a JOIN (SELECT g, name,"
    " SUM(v) AS v FROM o GROUP BY g, name) AS b ON a.g = b.g)",
    "paired": "(SELECT a.id, a.g, b.name, b.v, b.price FROM u AS a JOIN p AS b ON a.v = b.v)",
    "unequal": "(SELECT a.id, a.g, b.name, b.v, b.price FROM u AS a JOIN p AS b ON a.g = b.g AND"
    " a.v > b.v)",
    "regrouped": "(SELECT g, name, COUNT(*) AS id, SUM(v) AS v, MAX(price) AS price FROM o"
    " GROUP BY name, g)",
}


def _where(query: Query, prefix: str = "") -> str:
    parts = [f"{prefix}{each}" for each in query.where]
    return f" WHERE {' AND '.join(parts)}" if parts else ""


def _agg(query: Query) -> str:
    keys = ", ".join(query.keys)
    items = ", ".join((*query.keys, *query.items))
    group = f" GROUP BY {keys}" if keys else ""
    group += f" HAVING {query.having}" if query.having else ""
    return f"SELECT {items} FROM {SOURCES[query.source]} {_where(query)}{group}"


def _sets(query: Query) -> str:
    marks = [f"GROUPING({key})" for key in SET_KEYS]
    items = ", ".join((*query.keys, *marks, *query.items))
    return f"SELECT {items} FROM {SOURCES[query.source]} {_where(query)} GROUP BY {query.setting}"


def _temporal(query: Query) -> str:
    return (
        f"SELECT {', '.join(query.items)} FROM o AS a {query.setting} JOIN versions FOR SYSTEM_TIME"
        f" AS OF a.ts AS b ON a.g = b.id{_where(query, 'a.')}"
    )


def _group_window(query: Query) -> str:
    keys, (function, _, arguments) = ", ".join(query.keys), query.setting.partition(" ")
    window = f"{function}(ts, {arguments})"
    items = ", ".join((*query.keys, f"{function}_START(ts, {arguments})", *query.items))
    return f"SELECT {items} FROM o {_where(query)} GROUP BY {keys}, {window}"


def _tumbled(table: str, query: Query) -> str:
    return f"(SELECT * FROM TABLE(TUMBLE(TABLE {table}, DESCRIPTOR(ts), {query.setting})))"


def _window_join(query: Query) -> str:
    return (
        f"SELECT {', '.join(query.items)} FROM {_tumbled('o', query)} AS a JOIN"
        f" {_tumbled('p', query)} AS b ON {_equal(query)} AND a.window_start = b.window_start AND"
        f" a.window_end = b.window_end{_where(query, 'a.')}"
    )


def _window_top(query: Query) -> str:
    items, keys = ", ".join((*query.keys, *query.items)), ", ".join(query.keys)
    return (
        f"SELECT {items} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end,"
        f" {keys} ORDER BY id DESC) AS rn FROM {_tumbled('o', query)}{_where(query)}) WHERE rn <= 2"
    )


def _join(query: Query) -> str:
    left, right = query.source.split("+")
    items = ", ".join(
        each if each.startswith("a.") or query.setting not in ("SEMI", "ANTI") else "a.id"
        for each in query.items
    )
    return (
        f"SELECT {items} FROM {SOURCES[left]} AS a {query.setting} JOIN {SOURCES[right]} AS b"
        f" ON {_equal(query)}{_where(query, 'a.')}"
    )


def _equal(query: Query) -> str:
    pairs = []
    for key in query.keys:
        sides = [key.replace("CAST(", f"CAST({side}.") for side in "ab"]
        pairs.append(sides if "(" in key else [f"a.{key}", f"b.{key}"])
    return " AND ".join(f"{one} = {other}" for one, other in pairs)


def _interval(query: Query) -> str:
    return (
        f"SELECT {', '.join(query.items)} FROM o AS a {query.setting} JOIN p AS b ON"
        f" {_equal(query)} AND a.ts BETWEEN b.ts - INTERVAL '7' SECOND AND"
        f" b.ts + INTERVAL '7' SECOND{_where(query, 'a.')}"
    )


def _rows_of(query: Query) -> str:
    order = {"first": "proc ASC", "last": "proc DESC", "early": "ts ASC", "late": "ts DESC"}.get(
        query.shape, "id DESC, name DESC"
    )
    most = query.setting if query.shape == "top" else "1"
    source = "p" if query.shape != "top" else SOURCES[query.source]
    items = ", ".join((*query.keys, *query.items))
    return (
        f"SELECT {items} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {', '.join(query.keys)}"
        f" ORDER BY {order}) AS rn FROM {source} {_where(query)}) WHERE rn <= {most}"
    )


def _window(query: Query) -> str:
    keys = ", ".join((*query.keys, "window_start", "window_end"))
    items = ", ".join((*query.keys, "window_start", *query.items))
    function, _, arguments = query.setting.partition(" ")
    by = query.keys[0] if len(query.keys) == 1 else f"({', '.join(query.keys)})"
    table = "TABLE o" if function != "SESSION" else f"TABLE o PARTITION BY {by}"
    return (
        f"SELECT {items} FROM TABLE({function}({table}, DESCRIPTOR(ts), {arguments}))"
        f"{_where(query)} GROUP BY {keys}"
    )


def _over(query: Query) -> str:
    over = f"OVER (PARTITION BY {', '.join(query.keys)} ORDER BY ts {query.setting})"
    items = [f"{each} {over}" if "(" in each else each for each in query.items]
    return f"SELECT {', '.join(items)} FROM o {_where(query)}"


def _distinct(query: Query) -> str:
    return f"SELECT DISTINCT {', '.join(query.keys)} FROM {SOURCES[query.source]} {_where(query)}"


SHAPES: dict[str, Callable[[Query], str]] = {
    "agg": _agg,
    "join": _join,
    "interval": _interval,
    "first": _rows_of,
    "last": _rows_of,
    "early": _rows_of,
    "late": _rows_of,
    "top": _rows_of,
    "window": _window,
    "over": _over,
    "distinct": _distinct,
    "sets": _sets,
    "temporal": _temporal,
    "group-window": _group_window,
    "window-join": _window_join,
    "window-top": _window_top,
}
_MINI_BATCH = "".join(
    f"SET 'table.exec.mini-batch.{name}' = '{value}';\n"
    for name, value in (("enabled", "true"), ("allow-latency", "50 ms"), ("size", "5"))
)
JOINS = ("o+p", "o+u", "u+o", "grouped+o", "o+grouped", "u+grouped")
WINDOWS = (
    "TUMBLE INTERVAL '10' SECOND",
    "HOP INTERVAL '5' SECOND, INTERVAL '10' SECOND",
    "CUMULATE INTERVAL '5' SECOND, INTERVAL '20' SECOND",
    "SESSION INTERVAL '6' SECOND",
)


def drawn_query(random: Random) -> Query:
    """Draw a query."""
    shape = random.choice(
        ["agg"] * 6 + ["join"] * 4 + ["window"] * 2
        + ["interval", "first", "last", "early", "late", "top", "top", "over", "distinct"]
    )  # fmt: skip
    where = tuple(random.sample(FILTERS, random.choice([0, 0, 0, 1])))
    if shape == "agg":
        source = random.choice(["o", "o", "u", "joined", "left", "first", "grouped"])
        pool = [*AGGREGATES, *(DISTINCT if source != "grouped" else ())]
        pool += IN_ORDER if source == "o" else ()
        keys = tuple(random.sample(["g", "name"], random.choice([0, 1, 1, 1, 2])))
        return Query(shape, source, where, keys, _some(random, pool, 3))
    if shape == "join":
        source = random.choice(JOINS)
        fields = [f"{side}.{name}" for side in "ab" for name in FIELDS]
        kind = random.choice(["INNER", "INNER", "LEFT", "RIGHT", "FULL"])
        key = "g" if "grouped" in source else random.choice(["id", "g"])
        return Query(shape, source, where, (key,), _some(random, fields, 4), kind)
    if shape == "interval":
        fields = [f"{side}.{name}" for side in "ab" for name in FIELDS]
        kind = random.choice(["INNER", "LEFT"])
        return Query(shape, "", where, ("g",), _some(random, fields, 4), kind)
    if shape in ("first", "last", "early", "late", "top"):
        source = random.choice(["o", "u", "grouped"]) if shape == "top" else "p"
        fields = [name for name in FIELDS if name != "g"]
        return Query(shape, source, where, ("g",), _some(random, fields, 3), "3")
    if shape == "window":
        pool = [*AGGREGATES[:8], *DISTINCT[:2]]
        return Query(shape, "o", where, ("g",), _some(random, pool, 3), random.choice(WINDOWS))
    if shape == "over":
        items = ("id", *_some(random, ["SUM(v)", "COUNT(*)", "MAX(v)", "AVG(v)", "MIN(id)"], 2))
        bounds = ["ROWS BETWEEN 3 PRECEDING AND CURRENT ROW",
                  "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
                  "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"]  # fmt: skip
        return Query(shape, "o", where, ("g",), items, random.choice(bounds))
    source = random.choice(["o", "u", "joined"])
    return Query(shape, source, where, tuple(random.sample(FIELDS, 2)), ())


# above which new aggregates are computed in full, or refused
UPDATED = (
    "changes", "last", "late", "grouped", "recounted", "averaged", "matched", "paired", "unequal",
)  # fmt: skip
_CONDITIONS = (
    "v > 20", "v * 2 < 300", "v BETWEEN 30 AND 150", "NOT (v < 40 OR v = 77)", "v IS NOT NULL",
    "v IN (1, 2, 3, 50, 60, 70)", "(v > 90) IS NOT TRUE",
)  # fmt: skip
NORMALIZED = "SET 'table.exec.source.cdc-events-duplicate' = 'true';\n"


def folded_pair(random: Random) -> tuple[Query, Query, str]:
    """Draw an aggregate of updated rows, and the same with others beside it."""
    source = random.choice(UPDATED)
    columns = COLUMNS
    for name in random.sample(["v", "id", "price"], random.randint(0, 3)):
        columns = _typed(columns, name, random.choice(NARROW[name]))
    fields = random.sample(["v", "name", "price", "id"], random.randint(1, 3))
    pool = ["COUNT(*)", *(f"COUNT({name})" for name in fields)]
    pool += [f"{function}({name})" for name in fields for function in ("MIN", "MAX")]
    pool += [f"{function}({name})" for name in fields if name not in ("name", "price")
             for function in ("SUM", "AVG")]  # fmt: skip
    if "v" in fields:
        pool += [f"{each} FILTER (WHERE {random.choice(_CONDITIONS)})" for each in pool[:4]]
        pool += ["SUM(v + 3)", "MAX(v * v - id)"] if "id" in fields else ["MIN(v - 100)"]
    pool += ["SUM(price)", "AVG(price)"] if "price" in fields and "DECIMAL" in columns else []
    old = [f"{random.choice(['MIN', 'MAX', 'COUNT'])}({name})" for name in fields]
    options = NORMALIZED if source not in ("last", "late", "grouped", "averaged") else ""
    if random.random() < 0.3:
        options += _MINI_BATCH
    free = [name for name in ("g", "id", "name") if name not in fields]
    keys = tuple(random.sample(free, min(len(free), random.choice([0, 1, 1, 1, 2]))))
    where = (random.choice(_CONDITIONS),) if "v" in fields and random.random() < 0.3 else ()
    query = Query("agg", source, where, keys, tuple(dict.fromkeys(old)), options=options,
                  columns=columns)  # fmt: skip
    unused = [each for each in pool if each not in query.items]
    if random.random() < 0.15:  # which can't be computed
        unused = ["SUM(DISTINCT v)", "COUNT(*) FILTER (WHERE MOD(v, 3) = 1)", "MAX(ABS(v))"]
    added = random.sample(unused, min(len(unused), random.randint(1, 3)))
    items = [*query.items, *added]
    names = ["computed in full"]
    if random.random() < 0.4:
        random.shuffle(items)
    if random.random() < 0.2 and len(query.items) > 1:
        items.remove(query.items[0])
        names.append("removed")
    changed = replace(query, items=tuple(items))
    if random.random() < 0.2 and _MINI_BATCH not in options:
        changed = replace(changed, options=options + _MINI_BATCH)
        names.append("mini-batch")
    return query, changed, f"{' and '.join(names)}, {source}"


def noded_pair(random: Random) -> tuple[Query, Query, str]:
    """Draw a query of a node that others do not have, and an edit of it."""
    kind = random.choice(list(NODED))
    query = NODED[kind](random)
    for _ in range(50):
        name = random.choice([
            "added", "added", "removed", "exchanged", "mini-batch", "having", "set", "set", "inner",
            "inner", "filter",
        ])  # fmt: skip
        made = {**EDITS, "having": _having, "set": _set, "inner": _inner}[name](query, random)
        if made is not None and made != query:
            return query, made, f"{name}, {kind}"
    return query, query, f"nothing, {kind}"


def _plain(random: Random, source: str, more: Sequence[str] = (), options: str = "") -> Query:
    pool = [*AGGREGATES[:8], *more]
    keys = tuple(random.sample(["g", "name"], random.choice([1, 1, 2])))
    where = tuple(random.sample(FILTERS[:1], random.choice([0, 0, 0, 1])))
    return Query("agg", source, where, keys, _some(random, pool, 3), options=options)


def _fields(random: Random) -> tuple[str, ...]:
    return _some(random, [f"{side}.{name}" for side in "ab" for name in FIELDS], 4)


TUMBLED = "INTERVAL '10' SECOND"
NODED: dict[str, Callable[[Random], Query]] = {
    "grouping sets": lambda r: Query(
        "sets", r.choice(["o", "o", "u"]), (), SET_KEYS, _some(r, AGGREGATES[:8], 3),
        r.choice(SETS),
    ),
    "a user's function": lambda r: replace(
        _plain(r, r.choice(["o", "u"]), options=FUNCTIONS),
        items=(*_some(r, AGGREGATES[:8], 2), "weighted(v)"),
    ),
    "UNNEST": lambda r: _plain(r, "unnested"),
    "a user's table function": lambda r: _plain(r, "split", options=FUNCTIONS),
    "upserts": lambda r: _plain(r, "w"),
    "all changes": lambda r: _plain(r, "u"),
    "nested": lambda r: Query(
        "agg", "inner", (), ("g",), _some(r, ["SUM(v)", "COUNT(*)", "AVG(v)"], 3)
    ),
    "a temporal join": lambda r: Query("temporal", "", (), (), _fields(r), r.choice(["", "LEFT"])),
    "a group window": lambda r: Query(
        "group-window", "o", (), ("g",), _some(r, AGGREGATES[:8], 3),
        r.choice([each for each in WINDOWS if not each.startswith("CUM")]),
    ),
    "a join of windows": lambda r: Query("window-join", "", (), ("g",), _fields(r), TUMBLED),
    "TopN of windows": lambda r: Query(
        "window-top", "", (), ("g",), _some(r, ["id", "name", "v", "price"], 3), TUMBLED
    ),
    "windows": lambda r: Query(
        "window", "o", (), ("g",), _some(r, AGGREGATES[:8], 3), r.choice(WINDOWS)
    ),
}  # fmt: skip


def _having(query: Query, random: Random) -> Query | None:
    if query.shape != "agg" or query.having:
        return None
    return replace(query, having=random.choice(["COUNT(*) > 2", "MAX(v) > 150"]))


def _set(query: Query, random: Random) -> Query | None:
    return replace(query, setting=random.choice(SETS)) if query.shape == "sets" else None


def _inner(query: Query, random: Random) -> Query | None:
    """Aggregates that are new in the query below, and above it."""
    if query.source != "inner":
        return None
    pool = ["SUM(w)", "AVG(w)", "COUNT(w)", "SUM(m)", "MAX(w)"]
    return replace(query, source="inner2", items=(*query.items, *_some(random, pool, 2)))


NARROW = {
    "g": ("TINYINT", "SMALLINT", "INT"),
    "id": ("INT", "SMALLINT"),
    "name": ("VARCHAR(10)",),
    "v": ("SMALLINT", "INT"),
    "price": ("DECIMAL(8, 2)",),
}
WIDE = {
    "g": ("SMALLINT", "INT", "BIGINT"),
    "id": ("INT", "BIGINT"),
    "name": ("VARCHAR(12)", "STRING"),
    "v": ("INT", "BIGINT"),
    "price": ("DECIMAL(12, 2)", "DECIMAL(24, 2)"),
}


def drawn_pair(random: Random) -> tuple[Query, Query, str]:
    """Draw a query, and edits of it, with their names."""
    query = drawn_query(random)
    return query, *edited(query, random)


def merged_pair(random: Random) -> tuple[Query, Query, str]:
    """Draw an aggregate of several keys, and edits of which one removes a key."""
    while True:
        query, _, _ = keyed_pair(random)
        changed = None
        if query.shape in ("agg", "window", "distinct"):
            changed = _ungrouped(query, random)
        if changed is None:
            continue
        names = ["a key removed"]
        if random.random() < 0.4:
            edits = {**KEY_EDITS, **{n: EDITS[n] for n in ("added", "removed", "mini-batch")}}
            name = random.choice(sorted(edits))
            made = edits[name](changed, random)
            if made is not None and made != changed:
                changed = made
                names.append(name)
        return query, changed, " and ".join(names)


def _ungrouped(query: Query, random: Random) -> Query | None:
    if len(query.keys) < 2:
        return None
    gone = random.choice(query.keys)
    return replace(query, keys=tuple(key for key in query.keys if key != gone))


def keyed_pair(random: Random) -> tuple[Query, Query, str]:
    """Draw a query of several keys of narrow types, and an edit by which its keys move."""
    while True:
        narrow = random.sample(sorted(NARROW), random.randint(1, 5))
        query = drawn_query(random)
        if query.shape == "agg" or query.shape in ("distinct", "window"):
            pool = ["g", "name"] if query.source in ("grouped", "o", "u") else ["g", "name", "v"]
            pool += ["price"] if query.source != "grouped" else []
            keys = random.sample(pool, random.choice([1, 2, 2, 3][: 1 + len(pool)]))
        elif "grouped" in query.source:
            keys = ["g", "name"]
        else:
            keys = random.sample(["g", "name", "id"], random.choice([1, 2, 2, 3]))
        source = query.source if query.source != "first" else "o"
        # of a key itself an aggregate is none: Flink's planner leaves it out
        items = tuple(e for e in query.items if not set(keys) & set(re.findall(r"\w+", e)))
        if not items and query.shape != "distinct":
            continue
        columns = COLUMNS
        for name in narrow:
            columns = _typed(columns, name, random.choice(NARROW[name]))
        query = replace(query, keys=tuple(keys), items=items, columns=columns, source=source)
        changed, names = query, []
        for _ in range(random.choice([1, 1, 2])):
            name = random.choice(sorted(KEY_EDITS))
            made = KEY_EDITS[name](changed, random)
            if made is not None and made != changed:
                changed = made
                names.append(name)
        if not names:
            continue
        if random.random() < 0.3:
            name = random.choice(["added", "removed", "exchanged", "mini-batch"])
            made = EDITS[name](changed, random)
            if made is not None and made != changed:
                changed = made
                names.append(name)
        return query, changed, " and ".join(names)


def _typed(columns: str, name: str, kind: str) -> str:
    """Return columns of which one has another type."""
    parts = columns.replace("(8, 2)", "(8;2)").replace("(12, 2)", "(12;2)").split(", ")
    made = [f"{name} {kind}" if part.startswith(f"{name} ") else part for part in parts]
    return ", ".join(made).replace(";", ", ")


def _type_of(columns: str, name: str) -> str:
    (found,) = (part for part in columns.replace("(8, 2)", "(8;2)").split(", ")
                if part.startswith(f"{name} "))  # fmt: skip
    return found.removeprefix(f"{name} ").replace(";", ", ")


def _reordered(query: Query, random: Random) -> Query | None:
    keys = list(query.keys)
    random.shuffle(keys)
    return replace(query, keys=tuple(keys)) if len(keys) > 1 else None


def _regrouped(query: Query, _: Random) -> Query | None:
    """The keys of a query below in another order."""
    return replace(query, source=re.sub(r"\bgrouped", "regrouped", query.source))


def _wider(query: Query, name: str, random: Random) -> str | None:
    held = _type_of(query.columns, name)
    if held not in NARROW[name]:
        return None
    wide = WIDE[name]
    return random.choice(wide[wide.index(held) + 1 :] if held in wide else wide)


def _widened(query: Query, random: Random) -> Query | None:
    """A column of the tables has a wider type, mostly one of the keys."""
    name = random.choice(query.keys or ("v",)) if random.random() < 0.8 else "v"
    if name not in NARROW or (kind := _wider(query, name, random)) is None:
        return None
    return replace(query, columns=_typed(query.columns, name, kind))


def _cast(query: Query, random: Random) -> Query | None:
    """A key is cast to a wider type."""
    if query.shape not in ("agg", "join", "interval", "window", "distinct") or not query.keys:
        return None
    at = random.randrange(len(query.keys))
    name = query.keys[at]
    if name not in NARROW or (kind := _wider(query, name, random)) is None:
        return None
    if query.shape == "window" and query.setting.startswith("SESSION"):
        return None
    keys = (*query.keys[:at], f"CAST({name} AS {kind})", *query.keys[at + 1 :])
    return replace(query, keys=keys)


KEY_EDITS: dict[str, Callable[[Query, Random], Query | None]] = {
    "keys in another order": _reordered,
    "keys below in another order": _regrouped,
    "a wider type": _widened,
    "a key cast to a wider type": _cast,
}


def _some(random: Random, pool: Sequence[str], most: int) -> tuple[str, ...]:
    return tuple(random.sample(list(pool), random.randint(1, most)))


def edited(query: Query, random: Random) -> tuple[Query, str]:
    """Return a query with one to three edits, and their names."""
    names = []
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        for _ in range(20):
            name = random.choice(list(EDITS))
            made = EDITS[name](query, random)
            if made is not None and made != query:
                query = made
                names.append(name)
                break
    return query, " and ".join(names)


def _pool(query: Query) -> list[str]:
    if query.shape == "agg" and not query.source.startswith("inner"):
        pool = [*AGGREGATES, *(DISTINCT if query.source != "grouped" else ())]
        return pool + list(IN_ORDER if query.source == "o" else ())
    if query.shape in ("join", "interval", "temporal", "window-join"):
        return [f"{side}.{name}" for side in "ab" for name in FIELDS]
    if query.source.startswith("inner"):
        return ["SUM(v)", "COUNT(*)", "AVG(v)", "COUNT(v)"]
    if query.shape in ("window", "group-window", "sets"):
        return [*AGGREGATES[:8]]
    if query.shape == "over":
        return ["SUM(v)", "COUNT(*)", "MAX(v)", "AVG(v)", "MIN(id)", "v", "name"]
    return [name for name in FIELDS if name not in query.keys]


def _added(query: Query, random: Random) -> Query | None:
    free = [each for each in _pool(query) if each not in query.items]
    if not free or query.shape == "distinct":
        return None
    at = random.randint(0, len(query.items))
    items = (*query.items[:at], random.choice(free), *query.items[at:])
    return replace(query, items=items)


def _removed(query: Query, random: Random) -> Query | None:
    if len(query.items) < 2:
        return None
    gone = random.randrange(len(query.items))
    return replace(query, items=tuple(e for i, e in enumerate(query.items) if i != gone))


def _exchanged(query: Query, random: Random) -> Query | None:
    items = list(query.items)
    random.shuffle(items)
    return replace(query, items=tuple(items))


def _filtered(query: Query, random: Random) -> Query | None:
    if query.where:
        return replace(query, where=())
    return replace(query, where=(random.choice(FILTERS),))


def _key(query: Query, random: Random) -> Query | None:
    if query.shape not in ("agg", "distinct"):
        return None
    free = [name for name in ("g", "name") if name not in query.keys]
    if free and random.random() < 0.6:
        return replace(query, keys=(*query.keys[: random.randint(0, 1)], random.choice(free)))
    return replace(query, keys=tuple(reversed(query.keys)))


def _setting(query: Query, random: Random) -> Query | None:
    if query.shape == "top":
        return replace(query, setting=random.choice(["2", "5"]))
    if query.shape == "join":
        return replace(query, setting=random.choice(["INNER", "LEFT", "FULL"]))
    if query.shape == "window":
        return replace(query, setting=random.choice(WINDOWS))
    return None


def _source(query: Query, random: Random) -> Query | None:
    if query.shape != "agg":
        return None
    return replace(query, source=random.choice(["o", "u", "joined"]))


def _batched(query: Query, _: Random) -> Query | None:
    if query.shape != "agg" or query.options:
        return None
    return replace(query, options=_MINI_BATCH)


EDITS: dict[str, Callable[[Query, Random], Query | None]] = {
    "added": _added,
    "removed": _removed,
    "exchanged": _exchanged,
    "filter": _filtered,
    "key": _key,
    "setting": _setting,
    "source": _source,
    "mini-batch": _batched,
}
