"""Pairs of Flink SQL queries, with what one vendor's table says of the edit and what we say.

`python -m tests.integration.flink.sql_plans` compiles them again, by real Flink, into
`tests/golden/vectors/sql-plans-2.3.jsonl.xz`.

The vendor's words are those of its page "SQL modifications and impact on compatibility" (Realtime
Compute for Apache Flink, as of 2026-11), each edit alone and within one version of Flink.
"""

from __future__ import annotations

import json
import lzma
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from statelake.state_core.formats.layout.meta_info import (
    VALUE_SERIALIZER,
    parse_state_meta_info,
    serializer_entry,
)
from statelake.state_core.formats.reader import open_snapshot
from statelake.state_core.serializers.sql.row_data import row_in
from tests.integration.flink.generated_queries import drawn_query, write_tables
from tests.integration.flink.sql_jobs import SqlFlink

GOLDEN = Path(__file__).parents[2] / "golden" / "vectors" / "sql-plans-2.3.jsonl.xz"
VERSION = "2.3.0"
COLUMNS = "a INT, b BIGINT, c STRING, d INT, ts TIMESTAMP(3)"
SOURCE = "'connector' = 'halves', 'rows' = 'none', 'format' = 'csv'"
TABLES = "".join(
    f"CREATE TABLE {name} ({COLUMNS}, {more}proctime AS PROCTIME(),"
    f" WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ({options});\n"
    for name, more, options in (
        ("MyTable", "", SOURCE),
        ("Other", "", SOURCE),
        ("Changing", "PRIMARY KEY (a) NOT ENFORCED, ",
         "'connector' = 'halves', 'rows' = 'none', 'updating' = 'true'"),
    )
)  # fmt: skip
MINI_BATCH = "".join(
    f"SET 'table.exec.mini-batch.{name}' = '{value}';\n"
    for name, value in (("enabled", "true"), ("allow-latency", "1 s"), ("size", "10"))
)
FULL, PARTLY, NOT, UNKNOWN = "fully", "partially", "incompatible", "unknown"
SUMS = "SELECT a, SUM(b), MAX(c) FROM MyTable GROUP BY a"
OVER = "OVER (PARTITION BY a ORDER BY ts)"
BOUNDED = OVER.replace(")", " ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)")
OVERS = f"SELECT a, b, c, SUM(b) {OVER}, MAX(c) {OVER} FROM MyTable"
WINDOW = "FROM TABLE(TUMBLE(TABLE MyTable, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
WINDOWS = f"SELECT a, SUM(b), MAX(c), window_start {WINDOW} GROUP BY a, window_start, window_end"
HOP = (
    "FROM TABLE(HOP(TABLE MyTable, DESCRIPTOR(ts), INTERVAL '30' SECOND, INTERVAL '1' MINUTE))"
    " GROUP BY a, window_start, window_end"
)
OLD_WINDOWS = "SELECT a, SUM(b), MAX(c) FROM MyTable GROUP BY a, TUMBLE(ts, INTERVAL '1' MINUTE)"
FIRST = "ROW_NUMBER() OVER (PARTITION BY a ORDER BY proctime ASC)"
LAST = "ROW_NUMBER() OVER (PARTITION BY a ORDER BY proctime DESC)"
TOP = "ROW_NUMBER() OVER (PARTITION BY a ORDER BY b)"
JOIN = "SELECT x.a, x.b, y.c FROM MyTable x JOIN Other y ON x.a = y.a"
INTERVAL = (
    "SELECT x.a, x.b FROM MyTable x JOIN Other y ON x.a = y.a"
    " AND x.ts BETWEEN y.ts - INTERVAL '5' SECOND AND y.ts"
)


def _ranked(fields: str, rank: str, most: int = 1, table: str = "MyTable") -> str:
    return f"SELECT {fields} FROM (SELECT *, {rank} AS rk FROM {table}) WHERE rk <= {most}"


@dataclass(frozen=True)
class Edit:
    """An edit of a query.

    Attributes:
        name: What changes.
        old: The old query.
        new: The new one.
        vendor: What the vendor's table says.
        ours: The worst fate that is found.
        flink: What Flink does by itself, as far as it is silent; empty otherwise.
    """

    name: str
    old: str
    new: str
    vendor: str
    ours: str
    flink: str = ""


EDITS = (
    Edit("an alias", SUMS, "SELECT a AS x, SUM(b) AS y, MAX(c) FROM MyTable GROUP BY a",
         FULL, "keeps"),
    Edit("an aggregate added", SUMS, "SELECT a, SUM(b), MAX(c), COUNT(c) FROM MyTable GROUP BY a",
         PARTLY, "starts now"),
    Edit("an aggregate removed", SUMS, "SELECT a, MAX(c) FROM MyTable GROUP BY a", FULL, "keeps"),
    Edit("one added, one removed", SUMS, "SELECT a, MAX(c), COUNT(c) FROM MyTable GROUP BY a",
         PARTLY, "starts now"),
    Edit("an aggregate changed", SUMS, "SELECT a, SUM(b), MIN(c) FROM MyTable GROUP BY a",
         PARTLY, "starts now", "restores silently what was MAX(c) as MIN(c)"),
    Edit("an aggregate's expression changed", SUMS,
         "SELECT a, SUM(b), MAX(SUBSTRING(c, 1, 5)) FROM MyTable GROUP BY a",
         PARTLY, "starts now", "restores silently what was MAX(c) as MAX($f2)"),
    Edit("aggregates in another order", SUMS, "SELECT a, MAX(c), SUM(b) FROM MyTable GROUP BY a",
         FULL, "keeps"),
    Edit("aggregates of one type in another order",
         "SELECT a, SUM(b), MIN(b) FROM MyTable GROUP BY a",
         "SELECT a, MIN(b), SUM(b) FROM MyTable GROUP BY a",
         FULL, "keeps", "restores silently, with SUM(b) and MIN(b) exchanged"),
    Edit("a distinct aggregate added", SUMS,
         "SELECT a, SUM(b), MAX(c), COUNT(DISTINCT c) FROM MyTable GROUP BY a",
         NOT, "starts now"),
    Edit("a distinct aggregate removed",
         "SELECT a, SUM(b), COUNT(DISTINCT c), COUNT(DISTINCT b) FROM MyTable GROUP BY a",
         "SELECT a, SUM(b), COUNT(DISTINCT b) FROM MyTable GROUP BY a", NOT, "keeps"),
    Edit("filters of one DISTINCT in another order",
         "SELECT a, COUNT(DISTINCT b) FILTER (WHERE d > 1), COUNT(DISTINCT b) FILTER (WHERE d > 2)"
         " FROM MyTable GROUP BY a",
         "SELECT a, COUNT(DISTINCT b) FILTER (WHERE d > 2), COUNT(DISTINCT b) FILTER (WHERE d > 1)"
         " FROM MyTable GROUP BY a", NOT, "keeps",
         "restores silently, with COUNT(DISTINCT b) FILTER"),
    Edit("a distinct aggregate in the place of another of its values",
         "SELECT a, SUM(DISTINCT b) FROM MyTable GROUP BY a",
         "SELECT a, COUNT(DISTINCT b) FROM MyTable GROUP BY a", "unknown", "starts now",
         "restores silently what was SUM(DISTINCT b) as COUNT(DISTINCT b)"),
    Edit("a distinct aggregate added before one of its values",
         "SELECT a, SUM(DISTINCT b) FROM MyTable GROUP BY a",
         "SELECT a, COUNT(DISTINCT b), SUM(DISTINCT b) FROM MyTable GROUP BY a", "unknown",
         "starts now"),
    Edit("an average in the place of a sum", "SELECT a, SUM(b) FROM MyTable GROUP BY a",
         "SELECT a, AVG(b) FROM MyTable GROUP BY a", "unknown", "starts now"),
    Edit("an average in the place of a sum and a count",
         "SELECT a, SUM(b), COUNT(b) FROM MyTable GROUP BY a",
         "SELECT a, AVG(b) FROM MyTable GROUP BY a", "unknown", "keeps",
         "restores silently what was SUM(b) as AVG(b)"),
    Edit("a sum and an average added beside a count", "SELECT a, COUNT(b) FROM MyTable GROUP BY a",
         "SELECT a, COUNT(b), SUM(b), AVG(b) FROM MyTable GROUP BY a", "unknown", "unknown"),
    Edit("a sum by a count that is new", "SELECT a, SUM(b) FROM MyTable GROUP BY a",
         "SELECT a, SUM(b), SUM(b) / COUNT(*) FROM MyTable GROUP BY a", "unknown", "unknown"),
    Edit("a number by a count that is new", "SELECT a, MAX(b) FROM MyTable GROUP BY a",
         "SELECT a, MAX(b), 100 / COUNT(*) FROM MyTable GROUP BY a", "unknown", "unknown"),
    Edit("HAVING with a count that is new", "SELECT a, SUM(b) FROM MyTable GROUP BY a",
         "SELECT a, SUM(b) FROM MyTable GROUP BY a HAVING COUNT(*) > 3", "unknown", "unknown"),
    Edit("HAVING with what is there", "SELECT a, SUM(b) FROM MyTable GROUP BY a",
         "SELECT a, SUM(b) FROM MyTable GROUP BY a HAVING SUM(b) > 3", "unknown", "keeps"),
    Edit("a distinct aggregate added to one of its values, in hopping windows",
         f"SELECT a, COUNT(DISTINCT b) {HOP}",
         f"SELECT a, COUNT(DISTINCT b), AVG(DISTINCT b) {HOP}", "unknown", "unknown"),
    Edit("a distinct aggregate of other values added, in hopping windows",
         f"SELECT a, COUNT(DISTINCT b) {HOP}",
         f"SELECT a, COUNT(DISTINCT b), COUNT(DISTINCT c) {HOP}", "unknown", "starts now"),
    Edit("a key more in GROUP BY", SUMS, "SELECT a, d, SUM(b), MAX(c) FROM MyTable GROUP BY a, d",
         NOT, "lost"),
    Edit("another key of the same type", SUMS, "SELECT d, SUM(b), MAX(c) FROM MyTable GROUP BY d",
         NOT, "lost", "restores silently: groups of MyTable.a stay and are never read, groups of"
         " MyTable.d begin at zero"),
    Edit("a filter below an aggregate", SUMS,
         "SELECT a, SUM(b), MAX(c) FROM MyTable WHERE b > 10 GROUP BY a",
         NOT, "counted by another filter",
         "continues with counts of the old filter"),
    Edit("mini-batch, two phases", SUMS, MINI_BATCH + SUMS, UNKNOWN, "keeps"),
    Edit("a nested aggregate's inner one added",
         "SELECT a, SUM(s) FROM (SELECT a, d, SUM(b) AS s FROM MyTable GROUP BY a, d) GROUP BY a",
         "SELECT a, SUM(s), MAX(n) FROM (SELECT a, d, SUM(b) AS s, COUNT(*) AS n FROM MyTable"
         " GROUP BY a, d) GROUP BY a", PARTLY, "unknown"),
    Edit("an OVER aggregate added", OVERS, f"{OVERS[:-13]}, COUNT(c) {OVER} FROM MyTable",
         PARTLY, "starts now"),
    Edit("an OVER aggregate added to a bounded window", f"SELECT a, SUM(b) {BOUNDED} FROM MyTable",
         f"SELECT a, SUM(b) {BOUNDED}, COUNT(c) {BOUNDED} FROM MyTable", "unknown", "unknown"),
    Edit("an OVER aggregate removed", OVERS, f"SELECT a, b, c, MAX(c) {OVER} FROM MyTable",
         FULL, "null in old rows"),
    Edit("a column more beside OVER", OVERS, OVERS.replace("a, b, c,", "a, b, c, d,"),
         NOT, "null in old rows"),
    Edit("another window of OVER", OVERS,
         OVERS.replace("ORDER BY ts", "ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW"),
         NOT, "lost"),
    Edit("a window aggregate added", WINDOWS, WINDOWS.replace("MAX(c)", "MAX(c), COUNT(c)"),
         PARTLY, "starts now"),
    Edit("a window aggregate removed", WINDOWS, WINDOWS.replace("SUM(b), ", ""), FULL, "keeps"),
    Edit("a window's property more", WINDOWS,
         WINDOWS.replace("window_start F", "window_start, window_end F"), FULL, "keeps"),
    Edit("another size of a window", WINDOWS, WINDOWS.replace("'1' MINUTE", "'2' MINUTE"),
         NOT, "lost"),
    Edit("another kind of window", WINDOWS,
         WINDOWS.replace("TUMBLE(TABLE MyTable, DESCRIPTOR(ts)",
                         "HOP(TABLE MyTable, DESCRIPTOR(ts), INTERVAL '30' SECOND"),
         NOT, "lost"),
    Edit("a group window's aggregate added", OLD_WINDOWS,
         OLD_WINDOWS.replace("MAX(c)", "MAX(c), COUNT(c)"), PARTLY, "starts now"),
    Edit("deduplication, first: a column more", _ranked("a, b, c", FIRST),
         _ranked("a, b, c, d", FIRST), FULL, "keeps"),
    Edit("deduplication, last: a column more", _ranked("a, b, c", LAST),
         _ranked("a, b, c, d", LAST), NOT, "null in old rows"),
    Edit("deduplication by another key", _ranked("a, b, c", FIRST),
         _ranked("a, b, c", FIRST.replace("BY a", "BY d")), NOT, "lost",
         "restores silently: groups of MyTable.a stay"),
    Edit("deduplication in another order", _ranked("a, b, c", FIRST), _ranked("a, b, c", LAST),
         NOT, "lost"),
    Edit("TopN: the rank in the result", _ranked("a, b, c", TOP, 3), _ranked("a, b, c, rk", TOP, 3),
         FULL, "keeps"),
    Edit("TopN: another N", _ranked("a, b, c", TOP, 3), _ranked("a, b, c", TOP, 5),
         NOT, "starts now"),
    Edit("TopN: a column more", _ranked("a, b, c", TOP, 3), _ranked("a, b, c, d", TOP, 3),
         NOT, "null in old rows"),
    Edit("TopN in another order", _ranked("a, b, c", TOP, 3),
         _ranked("a, b, c", TOP.replace("ORDER BY b", "ORDER BY c"), 3), NOT, "lost"),
    Edit("TopN by another key", _ranked("a, b, c", TOP, 3),
         _ranked("a, b, c", TOP.replace("BY a", "BY d"), 3), NOT, "lost"),
    Edit("a column more through a join", JOIN, JOIN.replace("y.c", "y.c, x.d"),
         NOT, "null in old rows"),
    Edit("a column less through a join", JOIN, JOIN.replace(", y.c", ""), NOT, "keeps"),
    Edit("another type of join", JOIN, JOIN.replace("JOIN", "LEFT JOIN"), NOT, "lost"),
    Edit("another condition of a join", JOIN, JOIN.replace("x.a = y.a", "x.a = y.d"), NOT, "lost"),
    Edit("a filter below a join", JOIN, f"{JOIN} WHERE x.b > 5", NOT, "counted by another filter",
         "continues with counts of the old filter"),
    Edit("a column more through an interval join", INTERVAL, INTERVAL.replace("x.b", "x.b, y.c"),
         NOT, "null in old rows"),
    Edit("other bounds of an interval join", INTERVAL, INTERVAL.replace("'5'", "'9'"),
         NOT, "lost"),
    Edit("the same interval in another unit", INTERVAL.replace("'5' SECOND", "'60' SECOND"),
         INTERVAL.replace("'5' SECOND", "'1' MINUTE"), FULL, "keeps"),
    Edit("an aggregate added above a table that changes",
         "SELECT d, COUNT(*) FROM Changing GROUP BY d",
         "SELECT d, COUNT(*), SUM(b) FROM Changing GROUP BY d", PARTLY, "unknown"),
    Edit("a column more through a join with a table that changes",
         "SELECT x.b, y.c FROM MyTable x JOIN Changing y ON x.a = y.a",
         "SELECT x.b, y.c, y.d FROM MyTable x JOIN Changing y ON x.a = y.a",
         NOT, "null in old rows"),
    Edit("UNION ALL with a table more", "SELECT a, SUM(b) FROM MyTable GROUP BY a",
         "SELECT a, SUM(b) FROM (SELECT a, b FROM MyTable UNION ALL SELECT a, b FROM Other)"
         " GROUP BY a", NOT, "lost"),
    Edit("statements in another order",
         f"{SUMS};\nSELECT a, SUM(b), MAX(c) FROM Other GROUP BY a",
         f"SELECT a, SUM(b), MAX(c) FROM Other GROUP BY a;\n{SUMS}", FULL, "keeps",
         "restores silently: groups of MyTable.a"),
)  # fmt: skip

SELF = "FROM MyTable x JOIN MyTable y ON x.a = y.d"
TWICE = (
    "SELECT k, SUM(n) FROM (SELECT {} AS k, {} AS n FROM MyTable{} UNION ALL"
    " SELECT {} AS k, {} AS n FROM MyTable{}) GROUP BY k"
)
NORMAL = (
    "SET 'table.exec.source.cdc-events-duplicate' = 'true';\n"
    "CREATE TABLE Plain (a INT, b BIGINT, c STRING, PRIMARY KEY (a) NOT ENFORCED)"
    " WITH ('connector' = 'halves', 'rows' = 'none', 'updating' = 'true');\n"
)
TWO_SCANS = "two scans of one table in another order"
SUM0 = "an average added, so that a sum begins with 0"
SPLIT = f"{MINI_BATCH}SET 'table.optimizer.distinct-agg.split.enabled' = 'true';\n"
NO_REUSE = "".join(
    f"SET 'table.optimizer.reuse-{what}-enabled' = 'false';\n" for what in ("source", "sub-plan")
)
OTHER_TYPE = "DROP TABLE MyTable;\n" + TABLES.partition(";\n")[0] + ";\n"
# edits of queries that read a table twice, and others that are only told by more than names
ALIKE = (
    Edit("an aggregate of the other side of a self join",
         f"SELECT x.c, SUM(x.b), MAX(y.b) {SELF} GROUP BY x.c",
         f"SELECT x.c, SUM(y.b), MAX(x.b) {SELF} GROUP BY x.c", "", "starts now"),
    Edit("a key of the other side of a self join",
         f"SELECT x.c, COUNT(*) {SELF} GROUP BY x.c",
         f"SELECT y.c, COUNT(*) {SELF} GROUP BY y.c", "", "lost"),
    Edit("a filter of the other side of a self join",
         f"SELECT x.c, y.b {SELF} WHERE x.b > 5",
         f"SELECT x.c, y.b {SELF} WHERE y.b > 5", "", "counted by another filter"),
    Edit("a filter of the other side, below an aggregate",
         f"SELECT x.c, COUNT(*) {SELF} WHERE x.b > 5 GROUP BY x.c",
         f"SELECT x.c, COUNT(*) {SELF} WHERE y.b > 5 GROUP BY x.c", "",
         "counted by another filter"),
    Edit("a condition of a self join, mirrored",
         f"SELECT x.c, y.b {SELF} AND x.b > y.b",
         f"SELECT x.c, y.b {SELF} AND y.b > x.b", "", "lost"),
    Edit("columns exchanged in a union of a table with itself",
         TWICE.format("a", "b", "", "d", "b * 2", ""),
         TWICE.format("a", "b * 2", "", "d", "b", ""), "", "starts now"),
    Edit("a filter in the other branch of a union of a table with itself",
         TWICE.format("a", "1", " WHERE b > 5", "d", "2", ""),
         TWICE.format("a", "1", "", "d", "2", " WHERE b > 5"), "", "lost"),
    Edit("a filter that is left to the node that normalizes changes",
         f"{NORMAL}SELECT c, SUM(b) FROM Plain WHERE b > 5 GROUP BY c",
         f"{NORMAL}SELECT c, SUM(b) FROM Plain WHERE b > 6 GROUP BY c", "",
         "counted by another filter"),
    Edit(TWO_SCANS, f"{NO_REUSE}{SUMS};\nSELECT a, b FROM MyTable WHERE b > 5",
         f"{NO_REUSE}SELECT a, b FROM MyTable WHERE b > 5;\n{SUMS}", "", "keeps"),
    Edit(SUM0, "SELECT a, SUM(b), COUNT(b) FROM MyTable GROUP BY a",
         "SELECT a, SUM(b), COUNT(b), AVG(b) FROM MyTable GROUP BY a", "", "keeps"),
    Edit("an average removed, so that a sum begins with NULL",
         "SELECT a, SUM(b), COUNT(b), AVG(b) FROM MyTable GROUP BY a",
         "SELECT a, SUM(b), COUNT(b) FROM MyTable GROUP BY a", "", "keeps"),
    Edit("a column of another distinct that is split",
         f"{SPLIT}SELECT a, COUNT(DISTINCT b) FROM MyTable GROUP BY a",
         f"{SPLIT}SELECT a, COUNT(DISTINCT d) FROM MyTable GROUP BY a", "", "unknown"),
    Edit("a key that can be null no longer", SUMS,
         OTHER_TYPE.replace("a INT", "a INT NOT NULL") + SUMS, "", "keeps"),
)  # fmt: skip


KEYS = "SELECT a, c, SUM(b), MAX(c) FROM MyTable GROUP BY a, c"
BY_TWO = JOIN.replace("= y.a", "= y.a AND x.d = y.d")

SESSION = (
    "SELECT {0}, SUM(b), window_start FROM TABLE(SESSION(TABLE MyTable PARTITION BY {1},"
    " DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY {0}, window_start, window_end"
)
BY_A_AND_D = "SELECT a, d, SUM(b), MAX(c) FROM MyTable GROUP BY a, d"
SUMS_BY_A = SUMS.replace("SUM(b)", "SUM(b) AS s")
RANKED = "ROW_NUMBER() OVER (ORDER BY s)"
NARROW = OTHER_TYPE.replace("a INT", "a SMALLINT")
# edits by which keys move
KEY_EDITS = (
    Edit("GROUP BY in another order", KEYS, KEYS.replace("BY a, c", "BY c, a"), UNKNOWN, "keeps"),
    Edit("a key cast to a wider type", SUMS,
         "SELECT CAST(a AS BIGINT), SUM(b), MAX(c) FROM MyTable GROUP BY CAST(a AS BIGINT)",
         UNKNOWN, "keeps"),
    Edit("a key's column of a wider type", SUMS, OTHER_TYPE.replace("a INT", "a BIGINT") + SUMS,
         UNKNOWN, "keeps"),
    Edit("a key's column of a narrower type", SUMS, NARROW + SUMS, UNKNOWN, "lost"),
    Edit("a join's conditions in another order", BY_TWO,
         BY_TWO.replace("x.a = y.a AND x.d = y.d", "x.d = y.d AND x.a = y.a"), UNKNOWN, "keeps",
         "restores silently: groups of MyTable.a = Other.a, MyTable.d = Other.d stay"),
    Edit("a join's key of a wider type", JOIN, OTHER_TYPE.replace("a INT", "a BIGINT") + JOIN,
         UNKNOWN, "keeps"),
    Edit("deduplication by a column of a wider type", _ranked("a, b, c", LAST),
         OTHER_TYPE.replace("a INT", "a BIGINT") + _ranked("a, b, c", LAST), UNKNOWN, "keeps"),
    Edit("TopN by a column of a wider type", _ranked("a, b, c", TOP, 3),
         OTHER_TYPE.replace("a INT", "a BIGINT") + _ranked("a, b, c", TOP, 3), UNKNOWN, "keeps"),
    Edit("OVER by a column of a wider type", OVERS,
         OTHER_TYPE.replace("a INT", "a BIGINT") + OVERS, UNKNOWN, "keeps"),
    Edit("a window aggregate's key of a wider type", WINDOWS,
         OTHER_TYPE.replace("a INT", "a BIGINT") + WINDOWS, UNKNOWN, "keeps"),
    Edit("a session's keys in another order", SESSION.format("a, d", "(a, d)"),
         SESSION.format("d, a", "(d, a)"), UNKNOWN, "keeps",
         "restores silently: groups of MyTable.a, MyTable.d stay"),
    Edit("a key less in GROUP BY", BY_A_AND_D, SUMS, NOT, "keeps"),
    Edit("a key less, and another order", f"{BY_A_AND_D}, c",
         "SELECT d, a, SUM(b) FROM MyTable GROUP BY d, a", NOT, "keeps"),
    Edit("a key less of a window aggregate", WINDOWS.replace("BY a,", "BY a, d,"), WINDOWS,
         NOT, "keeps"),
    Edit("a key less of a session", SESSION.format("a, d", "(a, d)"), SESSION.format("a", "a"),
         NOT, "lost"),
    Edit("a key less beside DISTINCT", BY_A_AND_D.replace("SUM(b)", "COUNT(DISTINCT b)"),
         SUMS.replace("SUM(b)", "COUNT(DISTINCT b)"), NOT, "unknown"),
    Edit("a key less beside FIRST_VALUE", BY_A_AND_D.replace("MAX", "FIRST_VALUE"),
         SUMS.replace("MAX", "FIRST_VALUE"), NOT, "unknown"),
    Edit("a key less above a table that changes",
         "SELECT b, d, COUNT(*) FROM Changing GROUP BY b, d",
         "SELECT d, COUNT(*) FROM Changing GROUP BY d", NOT, "keeps"),
    Edit("a key less below TopN",
         _ranked("a, s", RANKED, 3, f"({SUMS_BY_A}, d)").replace("a, SUM", "a, d, SUM"),
         _ranked("a, s", RANKED, 3, f"({SUMS_BY_A})"), NOT, "lost"),
    Edit("no key any more", SUMS, "SELECT SUM(b), MAX(c) FROM MyTable", NOT, "lost"),
    Edit("a condition less of a join", BY_TWO, JOIN, NOT, "lost"),
    Edit("a sum of a column of a wider type", "SELECT c, SUM(a) FROM MyTable GROUP BY c",
         OTHER_TYPE.replace("a INT", "a BIGINT") + "SELECT c, SUM(a) FROM MyTable GROUP BY c",
         UNKNOWN, "unknown"),
)  # fmt: skip
KEY_PLANS = GOLDEN.with_name("sql-key-plans-2.3.jsonl.xz")
LAST_ROWS = "SET 'table.exec.source.cdc-events-duplicate' = 'true';\n"
TTL = "SET 'table.exec.state.ttl' = '1 h';\n"
CHANGED = f"{LAST_ROWS}SELECT d, MAX(b) FROM Changing GROUP BY d"
LAST_COUNTED = f"SELECT d, COUNT(b) FROM ({_ranked('*', LAST)}) GROUP BY d"
COUNTED = "SELECT n, COUNT(*) FROM ({}) GROUP BY n".format(
    "SELECT a, COUNT(*) AS n, SUM(b) AS s, AVG(d) AS e, LAST_VALUE(c) AS l FROM MyTable GROUP BY a"
)
PAIRED = (
    f"{LAST_ROWS}SELECT x.d, COUNT(y.c) FROM Changing x {{}} JOIN MyTable y ON x.b = y.b"
    " GROUP BY x.d"
)
NESTED = COUNTED.replace("COUNT(*) FROM", "COUNT(*), MIN(s), MIN(e), MIN(l) FROM")


def _more(query: str, added: str) -> str:
    return query.replace(" FROM", f", {added} FROM", 1)


# aggregates added above rows that are updated, of which another node holds all, or not
FOLD_EDITS = (
    Edit("COUNT, SUM and AVG added above the last rows of a table", CHANGED,
         _more(CHANGED, "COUNT(b), SUM(b), AVG(b)"), UNKNOWN, "computed in full"),
    Edit("MIN added above the last rows of a table", CHANGED, _more(CHANGED, "MIN(b)"), UNKNOWN,
         "computed in full"),
    Edit("MAX added above deduplication, last", LAST_COUNTED, _more(LAST_COUNTED, "MAX(b)"),
         UNKNOWN, "computed in full"),
    Edit("MAX added above another aggregate", NESTED, _more(NESTED, "MAX(s), SUM(e)"), UNKNOWN,
         "computed in full"),
    Edit("MAX added above an inner join", PAIRED.format("INNER"),
         _more(PAIRED.format("INNER"), "MAX(y.c), SUM(x.d)"), UNKNOWN, "computed in full"),
    Edit("mini-batch, and MIN added above the last rows of a table", CHANGED,
         MINI_BATCH + _more(CHANGED, "MIN(b)"), UNKNOWN, "computed in full"),
    Edit("MAX added above an outer join", PAIRED.format("LEFT"),
         _more(PAIRED.format("LEFT"), "MAX(y.c)"), UNKNOWN, "unknown"),
    Edit("MAX added of LAST_VALUE", NESTED, _more(NESTED, "MAX(l)"), UNKNOWN, "unknown"),
    Edit("DISTINCT added above the last rows of a table", CHANGED,
         _more(CHANGED, "COUNT(DISTINCT b)"), UNKNOWN, "unknown"),
    Edit("FILTER added above the last rows of a table", CHANGED,
         _more(CHANGED, "SUM(b) FILTER (WHERE b > 3)"), UNKNOWN, "computed in full"),
    Edit("MAX added of a sum of columns", CHANGED, _more(CHANGED, "MAX(b + 1)"), UNKNOWN,
         "computed in full"),
    Edit("MIN added behind a filter", CHANGED.replace(" GROUP", " WHERE b > 3 GROUP"),
         _more(CHANGED.replace(" GROUP", " WHERE b > 3 GROUP"), "MIN(b)"), UNKNOWN,
         "computed in full"),
    Edit("MAX added of another function", CHANGED, _more(CHANGED, "MAX(ABS(b))"), UNKNOWN,
         "unknown"),
    Edit("MAX added of a column that the last rows lack", CHANGED, _more(CHANGED, "MAX(c)"),
         UNKNOWN, "unknown"),
    Edit("MIN added where rows have a time to live", TTL + CHANGED,
         TTL + _more(CHANGED, "MIN(b)"), UNKNOWN, "unknown"),
)  # fmt: skip
FOLD_PLANS = GOLDEN.with_name("sql-fold-plans-2.3.jsonl.xz")
BY_SETS = "SELECT a, d, SUM(b){} FROM MyTable GROUP BY {}"
TWO_SETS = BY_SETS.format("", "GROUPING SETS ((a), (d))")
BOTH = "SELECT a, SUM(s){} FROM (SELECT a, d, SUM(b) AS s{} FROM MyTable GROUP BY a, d) GROUP BY a"
HAVING = "SELECT a, SUM(b) FROM MyTable GROUP BY a HAVING SUM(b) > {}"
UPDATED_TOP = TOP.replace("BY a", "BY d")
UNNESTED = "SELECT e, COUNT(*){} FROM MyTable CROSS JOIN UNNEST(ARRAY[a, d]) AS t (e) GROUP BY e"
# edits of grouping sets, and those of which the sink has something that the new job does not know
SINK_EDITS = (
    *(
        Edit(f"an aggregate added to {by.partition(' (')[0]}", BY_SETS.format("", by),
             BY_SETS.format(", MAX(c)", by), UNKNOWN, "starts now")
        for by in ("GROUPING SETS ((a), (d))", "ROLLUP (a, d)", "CUBE (a, d)")
    ),
    Edit("a grouping set added", TWO_SETS, BY_SETS.format("", "GROUPING SETS ((a), (d), (a, d))"),
         UNKNOWN, "starts now"),
    Edit("a grouping set of another column added", TWO_SETS,
         BY_SETS.format("", "GROUPING SETS ((a), (d), (c))"), UNKNOWN, "starts now"),
    Edit("a grouping set removed", BY_SETS.format("", "GROUPING SETS ((a), (d), ())"), TWO_SETS,
         UNKNOWN, "keeps"),
    Edit("grouping sets in another order", TWO_SETS,
         BY_SETS.format("", "GROUPING SETS ((d), (a))"), UNKNOWN, "keeps",
         "restores silently: groups of MyTable.a, MyTable.d, the number of the grouping set stay"),
    Edit("a sum added at both levels of a nested aggregate", BOTH.format("", ""),
         BOTH.format(", SUM(t)", ", SUM(CHAR_LENGTH(c)) AS t"), UNKNOWN, "starts now"),
    Edit("HAVING made stricter", HAVING.format(3), HAVING.format(9), UNKNOWN, "keeps"),
    Edit("TopN: one row, and two", _ranked("a, b, c", TOP, 1), _ranked("a, b, c", TOP, 2), UNKNOWN,
         "unknown", "restores silently without data-state-with-append"),
    Edit("TopN of one row: a column more", _ranked("a, b, c", TOP, 1),
         _ranked("a, b, c, d", TOP, 1), UNKNOWN, "null in old rows"),
    Edit("TopN: less rows", _ranked("a, b, c", TOP, 5), _ranked("a, b, c", TOP, 3), UNKNOWN,
         "unknown", "continues; a key that has 5 goes on with 5"),
    Edit("TopN of rows that are updated: one row, and two",
         _ranked("d, b", UPDATED_TOP, 1, "Changing"), _ranked("d, b", UPDATED_TOP, 2, "Changing"),
         UNKNOWN, "starts now"),
    Edit("an aggregate added behind UNNEST", UNNESTED.format(""), UNNESTED.format(", SUM(b)"),
         UNKNOWN, "starts now"),
)  # fmt: skip
SINK_PLANS = GOLDEN.with_name("sql-sink-plans-2.3.jsonl.xz")


def compile_all(to: Path = GOLDEN, edits: Sequence[Edit] = (*EDITS, *ALIKE)) -> None:
    """Compile the plans of all edits."""
    lines = []
    with tempfile.TemporaryDirectory() as directory, SqlFlink(VERSION, Path(directory)) as flink:
        for edit in edits:
            plans = [flink.compile(TABLES + query)[1] for query in (edit.old, edit.new)]
            lines.append(json.dumps({"name": edit.name, "plans": plans}))
    to.write_bytes(lzma.compress("\n".join(lines).encode()))


SHOP = Path(__file__).parents[2] / "golden" / "sqljobs"
SHOP_OPTIONS = "'connector' = 'halves', 'format' = 'csv', 'rows'"
SHOP_TABLES = (
    f"CREATE TABLE orders (id BIGINT, customer BIGINT, shop STRING, amount BIGINT, item STRING)"
    f" WITH ({SHOP_OPTIONS} = '%s/orders');\n"
    f"CREATE TABLE customers (id BIGINT, name STRING, city STRING)"
    f" WITH ({SHOP_OPTIONS} = '%s/customers');\n"
)
SHOP_OLD = """
SELECT shop, COUNT(amount) AS orders, SUM(amount) AS total FROM orders GROUP BY shop;
SELECT o.id, o.amount, c.name FROM orders AS o JOIN customers AS c ON o.customer = c.id
"""
SHOP_NEW = """
SELECT shop, SUM(amount) AS total, COUNT(amount) AS orders, MAX(item) AS item FROM orders
    GROUP BY shop;
SELECT o.id, o.amount, c.name, c.city FROM orders AS o JOIN customers AS c ON o.customer = c.id
"""


def take_example(to: Path = SHOP) -> None:
    """Take a savepoint of a job of two queries, with its plan and that of a changed job."""
    to.mkdir(exist_ok=True)
    orders = [f"+I|{k}|{k % 4}|shop-{k % 3}|{k * 7 % 90}|item-{k % 5}" for k in range(24)]
    customers = [f"+I|{k}|name-{k}|city-{k}" for k in range(4)]
    with tempfile.TemporaryDirectory() as directory, SqlFlink(VERSION, Path(directory)) as flink:
        for name, rows in (("orders", orders), ("customers", customers)):
            (Path(directory) / name).write_text("\n".join(rows))
        tables = SHOP_TABLES.replace("%s", directory)
        files = {}
        for name, queries in (("old", SHOP_OLD), ("new", SHOP_NEW)):
            files[name], plan = flink.compile(tables + queries.strip())
            text = json.dumps(plan, indent=1).replace(directory, "/data")
            (to / f"{name}.json.xz").write_bytes(lzma.compress(text.encode()))
        ranges = {"orders": (0, 24), "customers": (0, 4)}
        taken, _ = flink.run(files["old"], ranges, inline=1 << 20)
        empty, _ = flink.run(files["new"], dict.fromkeys(ranges, (0, 0)), inline=1 << 20)
        for name, savepoint in (("shop", taken), ("shop-new-empty", empty)):
            packed = lzma.compress((savepoint / "_metadata").read_bytes())
            (to / f"{name}.metadata.xz").write_bytes(packed)


PAID_TABLE = (
    "SET 'table.exec.source.cdc-events-duplicate' = 'true';\n"
    "CREATE TABLE payments (id BIGINT, shop STRING, amount DECIMAL(10, 2), PRIMARY KEY (id) NOT"
    " ENFORCED) WITH ('connector' = 'halves', 'updating' = 'true', 'rows' = '%s/payments');\n"
)
PAID = "SELECT shop, COUNT(*) AS payments, SUM(amount) AS total FROM payments GROUP BY shop"


def take_payments(to: Path = SHOP) -> None:
    """Take a savepoint of an aggregate of a table's last rows, with its plan and a changed one."""
    lines = [f"+I|{k}|shop-{k % 3}|{k * 7 % 90}.50" for k in range(24)]
    lines += [f"{kind}|{k}|shop-{k % 3}|{amount}.50" for k in range(0, 24, 4)
              for kind, amount in (("-U", k * 7 % 90), ("+U", 100 + k))]  # fmt: skip
    with tempfile.TemporaryDirectory() as directory, SqlFlink(VERSION, Path(directory)) as flink:
        (Path(directory) / "payments").write_text("\n".join(lines))
        table = PAID_TABLE.replace("%s", directory)
        files = {}
        changed = _more(PAID, "MAX(amount) AS max_amount, AVG(amount) AS average")
        for name, query in (("old", PAID), ("new", changed)):
            files[name], plan = flink.compile(table + query)
            text = json.dumps(plan, indent=1).replace(directory, "/data")
            (to / f"payments-{name}.json.xz").write_bytes(lzma.compress(text.encode()))
        taken, _ = flink.run(files["old"], {"payments": (0, len(lines))}, inline=1 << 20)
        packed = lzma.compress((taken / "_metadata").read_bytes())
        (to / "payments.metadata.xz").write_bytes(packed)


# all that Flink holds in data views: sets of distinct values, and what functions hold of rows that
# may be retracted
VIEWS = (
    (
        "SELECT a, COUNT(DISTINCT c), SUM(DISTINCT b) FILTER (WHERE d > 1), COUNT(DISTINCT b),"
        " COLLECT(d) FROM MyTable GROUP BY a"
    ),
    (
        "SELECT d, MIN(b), MAX(c), FIRST_VALUE(b), LAST_VALUE(c), LISTAGG(c), COUNT(DISTINCT c),"
        " COUNT(DISTINCT c) FILTER (WHERE b > 3) FROM Changing GROUP BY d"
    ),
    (
        f"SELECT a, COUNT(DISTINCT c), MAX(b), window_start {WINDOW} GROUP BY a, window_start,"
        " window_end"
    ),
    (
        "SELECT a, b, MIN(b) OVER w, COUNT(DISTINCT c) OVER w, LAST_VALUE(c) OVER w FROM MyTable"
        " WINDOW w AS (PARTITION BY a ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)"
    ),
    (
        "SELECT a, b, COUNT(DISTINCT c) OVER w, LAG(b, 2) OVER w FROM MyTable WINDOW w AS"
        " (PARTITION BY a ORDER BY ts)"
    ),
)


def write_view_rows(to: Path) -> str:
    """Write rows of the tables, and return the statements that read them into data views."""
    rows = [(k % 3, k, f"n{k % 4}", k % 2) for k in range(12)]
    lines = [f"{a}|{b}|{c}|{d}|2024-01-01T00:00:{b:02}" for a, b, c, d in rows]
    (to / "MyTable").write_text("\n".join(f"+I|{line}" for line in lines))
    changing = [f"+I|{k}|{line.partition('|')[2]}" for k, line in enumerate(lines)]
    gone = [f"-D{each[2:]}" for each in changing[:4]]
    (to / "Changing").write_text("\n".join([*changing, *gone]))
    sql = TABLES + ";\n".join(VIEWS)
    for table in ("MyTable", "Changing"):
        before, create, after = sql.partition(f"CREATE TABLE {table} (")
        sql = before + create + after.replace("'none'", f"'{to / table}'", 1)
    return sql


def take_views(to: Path = SHOP) -> None:
    """Take a savepoint of all data views, with its plan, in two versions of Flink."""
    for version in ("1.20.0", VERSION):
        with (
            tempfile.TemporaryDirectory() as directory,
            SqlFlink(version, Path(directory)) as flink,
        ):
            file, plan = flink.compile(write_view_rows(Path(directory)))
            taken, _ = flink.run(file, {"MyTable": (0, 12), "Changing": (0, 16)}, inline=1 << 20)
            text = json.dumps(plan, indent=1).replace(directory, "/data")
            packed = {"json": text.encode(), "metadata": (taken / "_metadata").read_bytes()}
            for kind, content in packed.items():
                (to / f"views-{version}.{kind}.xz").write_bytes(lzma.compress(content))


EXTREMES = GOLDEN.with_name("sql-extremes.jsonl.xz")
EXTREMES_OF = (
    "b", "CAST(b AS TINYINT)", "CAST(b AS SMALLINT)", "a", "CAST(b AS FLOAT)", "CAST(b AS DOUBLE)",
    "c", "CAST(c AS VARCHAR(7))", "CAST(c AS CHAR(3))", "CAST(b AS DECIMAL(20, 3))",
    "CAST(b AS DECIMAL(12, 2))", "CAST(ts AS DATE)", "CAST(ts AS TIME(0))", "ts",
    "CAST(ts AS TIMESTAMP(9))", "CAST(ts AS TIMESTAMP_LTZ(3))",
)  # fmt: skip


def take_extremes(to: Path = EXTREMES) -> None:
    """Write the types and serializers of MIN and MAX of rows that may be retracted."""
    lines = []
    calls = ", ".join(f"MIN({of}), MAX({of})" for of in EXTREMES_OF)
    query = f"{TABLES}SELECT d, {calls} FROM Changing GROUP BY d"
    for version in ("1.20.0", VERSION):
        with (
            tempfile.TemporaryDirectory() as directory,
            SqlFlink(version, Path(directory)) as flink,
        ):
            nothing = Path(directory) / "none"
            nothing.touch()
            plan, _ = flink.compile(query.replace("'rows' = 'none'", f"'rows' = '{nothing}'"))
            taken, _ = flink.run(plan, {"Changing": (0, 0)})
            states = {
                state.name: parse_state_meta_info(state.meta_info).serializers[VALUE_SERIALIZER]
                for operator in open_snapshot(taken).operators
                for state in operator.keyed_states
            }
            row = row_in(states["accState"].snapshot)
            for at, (kind, nested) in enumerate(zip(row.types, row.nested, strict=True)):
                if kind.type.root == "STRUCTURED_TYPE":
                    parts = (kind.stream, serializer_entry(nested).encoded,
                             states[f"agg{at}$map"].encoded)  # fmt: skip
                    line = {"flink": version, "bytes": [part.hex() for part in parts]}
                    lines.append(json.dumps(line))
    to.write_bytes(lzma.compress("\n".join(lines).encode()))


TOPOLOGIES = GOLDEN.with_name("sql-topologies.jsonl.xz")


def take_topologies(to: Path = TOPOLOGIES) -> None:
    """Run queries without their plans, and write each plan with the ids of the job's operators."""
    lines = []
    for version in (VERSION, "1.20.0"):
        with (
            tempfile.TemporaryDirectory() as directory,
            SqlFlink(version, Path(directory)) as flink,
        ):
            for seed in range(15):
                random = Random(seed)
                tables = write_tables(Path(directory), random)
                query = drawn_query(random)
                file, plan = flink.compile(tables + query.sql)
                ranges = dict.fromkeys(sorted(query.tables), (0, 9))
                sql = file.with_suffix(".sql")
                taken, _ = flink.run(sql, ranges, parallelism=random.choice([1, 3]))
                ids = [each.operator_id for each in open_snapshot(taken).operators]
                text = json.dumps({"plan": plan, "ids": sorted(ids)})
                lines.append(text.replace(directory, "/data"))
    to.write_bytes(lzma.compress("\n".join(lines).encode()))


if __name__ == "__main__":
    compile_all()
    compile_all(KEY_PLANS, KEY_EDITS)
    compile_all(FOLD_PLANS, FOLD_EDITS)
    compile_all(SINK_PLANS, SINK_EDITS)
    take_example()
    take_payments()
    take_views()
    take_extremes()
    take_topologies()
