"""Queries that each minor version of Flink compiles, over all nodes that keep state.

`python -m tests.integration.flink.sql_versions` compiles them again, by the real planner of each
version, into `tests/golden/vectors/sql-plans-versions.jsonl.xz`.
"""

from __future__ import annotations

import json
import lzma
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statelake.state_core.plans.versions import (
    FILTERED_CHANGES,
    FIRST_ROWS,
    RETRACTING_SINKS,
    UNBOUNDED_OVER,
)
from tests.integration.flink.oracle import FlinkError
from tests.integration.flink.sql_jobs import SqlFlink
from tests.integration.flink.sql_plans import FIRST, LAST, MINI_BATCH, SPLIT, TABLES, TOP

GOLDEN = Path(__file__).parents[2] / "golden" / "vectors" / "sql-plans-versions.jsonl.xz"
VERSIONS = ("1.18.1", "1.19.1", "1.20.0", "2.0.0", "2.1.0", "2.2.0", "2.3.0")
ROWS = 48
PLAIN = (
    "CREATE TABLE Plain (a INT, b BIGINT, c STRING, PRIMARY KEY (a) NOT ENFORCED)"
    " WITH ('connector' = 'halves', 'rows' = 'none', 'updating' = 'true');\n"
)
KEYED = (
    "CREATE TABLE Keyed (c STRING, b BIGINT, PRIMARY KEY (c) NOT ENFORCED)"
    " WITH ('connector' = 'halves');\n"
)
UPSERTS = KEYED.replace("Keyed", "Upserted").replace("'halves'", "'halves', 'upserts' = 'true'")
TEXTS = "SELECT COALESCE(c, '-'), b FROM Changing"
PLACES = "CREATE TABLE Places (a INT, c STRING) WITH ('connector' = 'halves', 'rows' = 'none');\n"
NORMAL = "SET 'table.exec.source.cdc-events-duplicate' = 'true';\n"
TTL = "SET 'table.exec.state.ttl' = '1 h';\n"
CONFLICTS = (2, 3)  # the version from which a query must say what becomes of conflicts
EARLY, LATE = (each.replace("proctime", "ts") for each in (FIRST, LAST))
OVER = "OVER (PARTITION BY a ORDER BY ts"


def _windows(function: str, fields: str = "COUNT(*), SUM(b), MAX(c)") -> str:
    name, _, arguments = function.partition(" ")
    return (
        f"SELECT a, {fields}, window_start FROM TABLE({name}(TABLE MyTable, DESCRIPTOR(ts),"
        f" {arguments})) GROUP BY a, window_start, window_end"
    )


def _ranked(rank: str, most: str, table: str = "MyTable", more: str = "") -> str:
    return f"SELECT a, b, c{more} FROM (SELECT *, {rank} AS rk FROM {table}) WHERE rk {most}"


def _tumbled(table: str) -> str:
    return f"(SELECT * FROM TABLE(TUMBLE(TABLE {table}, DESCRIPTOR(ts), INTERVAL '10' SECOND)))"


QUERIES = {
    "aggregates": "SELECT a, COUNT(*), SUM(b), AVG(b), MIN(d), MAX(c),"
    " SUM(CAST(b AS DECIMAL(9, 2))) FROM MyTable GROUP BY a",
    "aggregates without a key": "SELECT COUNT(*), SUM(b), MAX(c) FROM MyTable",
    "first and last values": "SELECT a, FIRST_VALUE(c), LAST_VALUE(b), LISTAGG(c) FROM MyTable"
    " GROUP BY a",
    "aggregates that retract": "SELECT d, COUNT(*), SUM(b), AVG(b), MIN(b), MAX(c) FROM Changing"
    " GROUP BY d",
    "nested aggregates": "SELECT n, COUNT(*), MAX(s) FROM (SELECT a, COUNT(*) AS n, SUM(b) AS s"
    " FROM MyTable GROUP BY a) GROUP BY n",
    "distinct aggregates": "SELECT a, COUNT(DISTINCT c), SUM(DISTINCT b) FILTER (WHERE d > 1),"
    " COUNT(DISTINCT b) FROM MyTable GROUP BY a;\nSELECT DISTINCT d, c FROM MyTable",
    "two phases": f"{MINI_BATCH}SELECT a, COUNT(*), AVG(b), COUNT(DISTINCT c) FROM MyTable"
    " GROUP BY a",
    "a distinct that is split": f"{SPLIT}SELECT a, COUNT(DISTINCT b), SUM(b) FROM MyTable"
    " GROUP BY a",
    "filters": "SELECT a, COUNT(*), SUM(CASE WHEN d > 1 THEN b ELSE 0 END) FROM MyTable"
    " WHERE b IN (1, 2, 3, 5, 8, 13, 21) AND c LIKE 'n%' AND ts > TIMESTAMP '2023-01-01 00:00:00'"
    " AND (d BETWEEN 1 AND 3 OR c IS NULL) GROUP BY a",
    "functions": "SELECT DATE_FORMAT(ts, 'mm'), UPPER(c) || '-' || SUBSTRING(c, 1, 1),"
    " EXTRACT(MINUTE FROM ts), FLOOR(ts TO MINUTE), COUNT(*), MAX(CAST(b AS STRING)),"
    " SUM(ABS(b) / 2) FROM MyTable GROUP BY DATE_FORMAT(ts, 'mm'), UPPER(c) || '-' ||"
    " SUBSTRING(c, 1, 1), EXTRACT(MINUTE FROM ts), FLOOR(ts TO MINUTE)",
    "a time to live": f"{TTL}SELECT a, COUNT(*), SUM(b) FROM MyTable GROUP BY a;\n"
    "SELECT x.a, y.c FROM MyTable x JOIN Other y ON x.a = y.a",
    "joins": "SELECT x.a, x.b, y.c FROM MyTable x JOIN Other y ON x.a = y.a AND x.b < y.b;\n"
    "SELECT x.b, y.c, y.d FROM MyTable x LEFT JOIN Changing y ON x.a = y.a;\n"
    "SELECT x.b, y.d FROM Changing x FULL JOIN Changing y ON x.d = y.d",
    "semi and anti joins": "SELECT a, b FROM MyTable WHERE a IN (SELECT a FROM Other WHERE d > 1);"
    "\nSELECT a, b FROM MyTable x WHERE NOT EXISTS (SELECT 1 FROM Other y WHERE x.d = y.d)",
    "an interval join": "SELECT x.a, x.b, y.c FROM MyTable x JOIN Other y ON x.a = y.a AND x.ts"
    " BETWEEN y.ts - INTERVAL '5' SECOND AND y.ts",
    "a temporal join": "SELECT x.a, x.b, y.c FROM MyTable x JOIN Changing FOR SYSTEM_TIME AS OF"
    " x.ts y ON x.a = y.a",
    "a lookup join": f"{PLACES}SELECT y.c, COUNT(*), SUM(x.b) FROM MyTable x JOIN Places FOR"
    " SYSTEM_TIME AS OF x.proctime y ON x.a = y.a GROUP BY y.c",
    "windows": ";\n".join(
        _windows(each)
        for each in (
            "TUMBLE INTERVAL '10' SECOND",
            "HOP INTERVAL '5' SECOND, INTERVAL '10' SECOND",
            "CUMULATE INTERVAL '5' SECOND, INTERVAL '20' SECOND",
        )
    ),
    "windows of distinct values": _windows(
        "TUMBLE INTERVAL '10' SECOND", "COUNT(DISTINCT c), AVG(b)"
    ),
    "session windows": "SELECT a, COUNT(*), SUM(b), window_start FROM TABLE(SESSION(TABLE MyTable"
    " PARTITION BY a, DESCRIPTOR(ts), INTERVAL '3' SECOND)) GROUP BY a, window_start, window_end",
    "group windows": "SELECT a, SUM(b), MAX(c) FROM MyTable GROUP BY a, TUMBLE(ts, INTERVAL '10'"
    " SECOND);\nSELECT a, COUNT(*), SESSION_START(ts, INTERVAL '3' SECOND) FROM MyTable"
    " GROUP BY a, SESSION(ts, INTERVAL '3' SECOND)",
    "a join of windows": "SELECT x.a, x.b, y.c, x.window_start FROM"
    f" {_tumbled('MyTable')} x JOIN {_tumbled('Other')} y ON x.a = y.a AND x.window_start ="
    " y.window_start AND x.window_end = y.window_end",
    "ranks of windows": "SELECT a, b, c FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY"
    f" window_start, window_end, a ORDER BY b) AS rk FROM {_tumbled('MyTable')}) WHERE rk <= 2;\n"
    "SELECT a, b, c FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, a"
    f" ORDER BY ts DESC) AS rk FROM {_tumbled('MyTable')}) WHERE rk = 1",
    "first rows": _ranked(FIRST, "= 1"),
    "last rows": _ranked(LAST, "= 1"),
    "last rows by time": _ranked(LATE, "= 1"),
    "first rows by time": _ranked(EARLY, "= 1"),
    "ranks": _ranked(TOP, "<= 2") + ";\n" + _ranked(TOP, "<= 2", more=", rk"),
    "ranks of rows that change": _ranked(TOP.replace("BY a", "BY d"), "<= 2", "Changing") + ";\n"
    "SELECT a, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY d ORDER BY n DESC) AS rk FROM"
    " (SELECT a, d, COUNT(*) AS n FROM MyTable GROUP BY a, d)) WHERE rk <= 2",
    "the first rows of all": "SELECT a, b FROM MyTable ORDER BY b LIMIT 3;\n"
    "SELECT a, b FROM MyTable LIMIT 5",
    "rows in the order of time": "SELECT a, b, c FROM MyTable ORDER BY ts",
    "OVER of some rows": f"SELECT a, b, SUM(b) {OVER} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW),"
    f" MAX(c) {OVER} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM MyTable",
    "OVER of some time": f"SELECT a, b, COUNT(*) {OVER} RANGE BETWEEN INTERVAL '4' SECOND PRECEDING"
    " AND CURRENT ROW) FROM MyTable",
    "OVER of all rows": f"SELECT a, b, SUM(b) {OVER} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT"
    " ROW) FROM MyTable",
    "OVER of all time": f"SELECT a, b, SUM(b) {OVER}), MAX(c) {OVER}) FROM MyTable",
    "OVER of all time as before": "SET 'table.exec.unbounded-over.version' = '1';\n"
    f"SELECT a, b, SUM(b) {OVER}), MAX(c) {OVER}) FROM MyTable",
    "OVER as rows come": f"SELECT a, b, SUM(b) {OVER.replace('ts', 'proctime')}) FROM MyTable",
    "OVER in the order of values": f"SELECT a, b, SUM(b) {OVER.replace('BY ts', 'BY b')}) FROM"
    " MyTable",
    "changes that are normalized": f"{NORMAL}{PLAIN}SELECT c, COUNT(*), SUM(b) FROM Plain"
    " WHERE b > 5 GROUP BY c",
    "a sink that materializes rows": f"{KEYED}INSERT INTO Keyed {TEXTS}",
    "a sink of upserts that materializes rows": f"{UPSERTS}INSERT INTO Upserted {TEXTS}",
    "a union": "SELECT k, COUNT(*), SUM(n) FROM (SELECT a AS k, b AS n FROM MyTable WHERE d > 1"
    " UNION ALL SELECT d AS k, b + 1 AS n FROM Other) GROUP BY k",
    "values of arrays": "SELECT e, COUNT(*) FROM MyTable CROSS JOIN UNNEST(ARRAY[a, d]) AS t (e)"
    " GROUP BY e",
    "a pattern": "SELECT a, x, y FROM MyTable MATCH_RECOGNIZE (PARTITION BY a ORDER BY ts MEASURES"
    " A.b AS x, B.b AS y PATTERN (A B) DEFINE B AS B.b > A.b)",
}

# versions from which a query can be run
SINCE = {"session windows": (1, 19), "OVER in the order of values": (2, 1)}
# what a version keeps otherwise, by the query in which it shows
CHANGED = {
    "first rows by time": FIRST_ROWS,
    "OVER of all rows": UNBOUNDED_OVER,
    "OVER of all time": UNBOUNDED_OVER,
    "changes that are normalized": FILTERED_CHANGES,
    "a sink that materializes rows": RETRACTING_SINKS,
}


def is_changed(name: str, old: str, new: str) -> bool:
    """Return whether a version between two of Flink keeps what a query holds otherwise."""
    return name in CHANGED and minor_of(old) < CHANGED[name].since <= minor_of(new)


@dataclass(frozen=True)
class Statements:
    """Some queries in one job: settings, tables, and what is inserted or selected."""

    settings: tuple[str, ...]
    tables: tuple[str, ...]
    queries: tuple[str, ...]

    @classmethod
    def of(cls, names: Iterable[str], version: str) -> Statements:
        """Return queries of the same settings, as a version of Flink takes them."""
        parts = [part for name in names for part in QUERIES[name].split(";\n")]
        kinds = [part.partition(" ")[0] for part in parts]
        settings, tables = (
            tuple(
                dict.fromkeys(part for part, kind in zip(parts, kinds, strict=True) if kind == word)
            )
            for word in ("SET", "CREATE")
        )
        conflicts = " ON CONFLICT DO DEDUPLICATE" if minor_of(version) >= CONFLICTS else ""
        queries = tuple(
            part + conflicts * part.startswith("INSERT INTO Upserted")
            for part, kind in zip(parts, kinds, strict=True)
            if kind not in ("SET", "CREATE")
        )
        return cls(settings, tables, queries)

    @property
    def sql(self) -> str:
        """Their text, with the tables that all may read."""
        return TABLES + ";\n".join((*self.settings, *self.tables, *self.queries))


def compiles(name: str, version: str) -> bool:
    """Return whether a version of Flink compiles a query, and runs it."""
    return minor_of(version) >= SINCE.get(name, (1, 18))


def minor_of(version: str) -> tuple[int, int]:
    """Return a minor version, such as 2.3 of 2.3.0."""
    major, minor, _ = map(int, version.split("."))
    return major, minor


def write_rows(sql: str, to: Path) -> str:
    """Write the rows of all tables, and return the statements that read them."""
    plain = [
        f"{k * 7 % 5}|{k * 11 % 29}|{_text(k)}|{k % 4}|2024-01-01T00:00:{k:02}" for k in range(ROWS)
    ]
    changes = _changes([f"{k}|{k * 11 % 29}|{_text(k)}|{k % 4}" for k in range(12)])
    rows = {
        "MyTable": [f"+I|{row}" for row in plain],
        "Other": [f"+I|{row}" for row in plain[:1] + plain[1::2]],
        "Changing": [f"{row}|2024-01-01T00:00:{k:02}" for k, row in enumerate(changes)],
        "Plain": [row.rpartition("|")[0] for row in changes],
        "Places": [f"+I|{k}|place-{k % 3}" for k in range(5)],
    }
    for table, lines in rows.items():
        (to / table).write_text("\n".join(lines))
        before, create, after = sql.partition(f"CREATE TABLE {table} (")
        sql = before + create + after.replace("'none'", f"'{to / table}'", 1)
    return sql


def _text(number: int) -> str:
    return "\\N" if number % 11 == 3 else f"n{number % 6}"


def _changes(rows: Sequence[str]) -> list[str]:
    """Return changes: each row comes, most are updated, some go, and some of those come again."""
    lines = [f"+I|{row}" for row in rows]
    for index, row in enumerate(rows):
        key, b, c, d = row.split("|")
        new = f"{key}|{int(b) + 3}|{c}|{int(d) ^ 1}"
        lines += [f"-U|{row}", f"+U|{new}"]
        if index % 3 == 0:
            lines.append(f"-D|{new}")
        if index % 6 == 0:
            lines.append(f"+I|{row}")
    return lines


def compile_all(to: Path = GOLDEN) -> None:
    """Compile all queries in each version; a plan is null where a version has no such query."""
    plans: dict[str, dict[str, Any]] = {name: {} for name in QUERIES}
    for version in VERSIONS:
        with (
            tempfile.TemporaryDirectory() as directory,
            SqlFlink(version, Path(directory)) as flink,
        ):
            for name in QUERIES:
                try:
                    plans[name][version] = flink.compile(Statements.of([name], version).sql)[1]
                except FlinkError as error:  # noqa: PERF203 - of this query alone
                    print(f"{version}, {name}: {str(error)[:2000]}")  # noqa: T201 - a tool's log
                    plans[name][version] = None
    lines = [json.dumps({"name": name, "plans": found}) for name, found in plans.items()]
    to.write_bytes(lzma.compress("\n".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    compile_all()
