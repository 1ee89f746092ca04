"""Queries whose nodes keep state that only all of the node explains, each with a changed one.

`python -m tests.integration.flink.whole_nodes` compiles them again, by real Flink, into
`tests/golden/vectors/sql-whole-plans.jsonl.xz`.
"""

from __future__ import annotations

import json
import lzma
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.integration.flink.sql_jobs import SqlFlink
from tests.integration.flink.sql_versions import TABLES

GOLDEN = Path(__file__).parents[2] / "golden" / "vectors" / "sql-whole-plans.jsonl.xz"
VERSIONS = ("1.20.0", "2.3.0")
# a query that comes first, so that all nodes behind it get other numbers
ANOTHER = "SELECT c, COUNT(*) FROM Aside GROUP BY c"
ASIDE = "CREATE TABLE Aside (c STRING) WITH ('connector' = 'halves', 'rows' = 'none');\n"
PLACES = "CREATE TABLE Places (a INT, c STRING) WITH ('connector' = 'halves', 'rows' = 'none'%s);\n"
RESOLVED = "SET 'table.optimizer.non-deterministic-update.strategy' = 'TRY_RESOLVE';\n"
FUNCTION = "CREATE FUNCTION processed AS 'ProcessedTables';\n"
MULTI_JOINS = "SET 'table.optimizer.multi-join.enabled' = 'true';\n"
PATTERN = (
    "SELECT a, x, y FROM MyTable MATCH_RECOGNIZE (PARTITION BY a ORDER BY ts MEASURES A.b AS x,"
    " B.b AS y PATTERN (A B) DEFINE B AS B.b < A.b - %s)"
)


@dataclass(frozen=True)
class WholeNode:
    """A node whose state is kept as a whole.

    Attributes:
        kind: Its kind in a plan.
        setup: Settings, tables and functions.
        query: The query.
        changed: The same with another such node.
        since: The version of Flink that has it first.
        keys: The names of the columns of its key.
        old_keys: Those in Flink 1, if they are others.
        says: What is said of it when it changes.
    """

    kind: str
    setup: str
    query: str
    changed: str
    since: str = "1.20.0"
    keys: tuple[str, ...] = ()
    says: str = ""
    old_keys: tuple[str, ...] = ()

    def old(self, query: str = "") -> str:
        """Return the statements of the job, or of one of another query."""
        return TABLES + ASIDE + self.setup + (query or self.query)

    def new(self) -> str:
        """Return those of a job of the same query, behind another one."""
        return self.old(f"{ANOTHER};\n{self.query}")


LOOKED_UP = (
    "SELECT x.a, y.c, x.b FROM %s x LEFT JOIN Places FOR SYSTEM_TIME AS OF x.proctime y ON x.%s"
    " = y.a"
)
JOINED = "SELECT x.a, x.b, y.c, z.d FROM MyTable x JOIN Other y ON x.a = y.a JOIN Changing z ON"
NODES = (
    WholeNode("match", "", PATTERN % 1, PATTERN % 2, keys=("a",), says="MATCH_RECOGNIZE"),
    WholeNode("lookup-join", RESOLVED + PLACES % "", LOOKED_UP % ("Changing", "d"),
              LOOKED_UP % ("Changing", "b"), keys=("a",), says="by which rows are taken back",
              old_keys=("d",)),
    WholeNode("lookup-join", PLACES % ", 'async' = 'true'", LOOKED_UP % ("MyTable", "d"),
              LOOKED_UP % ("MyTable", "a"), says="records that wait for lookups"),
    WholeNode("process-table-function", FUNCTION,
              "SELECT * FROM processed(input => TABLE MyTable PARTITION BY a, uid => 'counts')",
              "SELECT * FROM processed(input => TABLE MyTable PARTITION BY d, uid => 'counts')",
              "2.3.0", ("a",), "what a process table function holds"),
    WholeNode("multi-join", MULTI_JOINS, f"{JOINED} x.a = z.a",
              f"{JOINED} x.a = z.a AND x.b > z.b", "2.3.0", ("a",), "the conditions as they were"),
)  # fmt: skip


def compile_all(to: Path = GOLDEN) -> None:
    """Compile each query, the same behind another one, and the changed one."""
    lines = []
    for version in VERSIONS:
        with (
            tempfile.TemporaryDirectory() as directory,
            SqlFlink(version, Path(directory)) as flink,
        ):
            for at, node in enumerate(NODES):
                if node.since <= version:
                    texts = (node.old(), node.new(), node.old(node.changed))
                    plans = [flink.compile(text)[1] for text in texts]
                    line = {"flink": version, "node": at, "plans": plans}
                    lines.append(json.dumps(line).replace(directory, "/data"))
    to.write_bytes(lzma.compress("\n".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    compile_all()
