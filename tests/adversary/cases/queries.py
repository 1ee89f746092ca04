"""Hostile lakes under SQL: rows, links and paths of files, and queries that would leave the lake."""

from __future__ import annotations

from typing import Any

from tests.adversary.cases.lakes import LINKS, SOME, TABLE, TABLES
from tests.adversary.makers.lake import filled, lake_of, link, log_action, put, table_at
from tests.adversary.makers.scene import Maker, Scene
from tests.adversary.playing import Case, over

__all__ = ["QUERY_CASES"]


def sql(query: str, options: str = "--job orders") -> str:
    """A command with a query that is one word, as commands are cut at spaces."""
    return f"sql --lake {{lake}} {options} {query.replace(' ', '/**/')}"


OF_BAD = {
    "sql": sql("SELECT * FROM counter.name", "--job orders --as-of bad"),
    "sql-edit": sql(
        "DELETE FROM counter.name WHERE key_group = 0", "--job orders --edit bad --as next"
    ),
}
NEWEST = {"sql-newest": sql("SELECT * FROM counter.name")}
CATALOG = {
    "sql-states": sql("SELECT * FROM statelake.states", ""),
    "sql-tables": sql("SELECT * FROM statelake.tables", "--json"),
}
SQL = OF_BAD | NEWEST

# what a log may call a file that is elsewhere
ADDED = {
    "parent": "../../../../../victim/secret.txt",
    "absolute": "{victim}/secret.txt",
    "uri": "file://{victim}/secret.txt",
    "encoded": "..%2F..%2F..%2F..%2F..%2Fvictim%2Fsecret.txt",
}

# queries that read or write something else than the lake's tables
LEAVING = {
    "read-text": "SELECT * FROM read_text('{victim}/secret.txt')",
    "read-csv": "SELECT * FROM read_csv('{victim}/secret.txt')",
    "read-blob": "SELECT * FROM read_blob('{victim}/*')",
    "file-as-table": "SELECT * FROM '{victim}/secret.txt'",
    "copy": "COPY (SELECT 1) TO '{out}'",
    "attach": "ATTACH '{out}'",
    "install": "INSTALL httpfs",
    "unlock": "SET enable_external_access = true",
    "export": "EXPORT DATABASE '{out}'",
    "import": "IMPORT DATABASE '{victim}'",
    "pragma": "PRAGMA database_list",
}


def added(path: str) -> Maker:
    """The log of a table names a file at another path."""

    def change(action: dict[str, Any], scene: Scene) -> None:
        if "add" in action:
            action["add"]["path"] = filled(path, scene)

    return log_action(TABLE, change)


QUERY_CASES: list[Case] = [
    *over(SQL | CATALOG, "honest", lake_of, 0),
    *(case for name in SOME for case in over(OF_BAD, f"row/table/{name}", table_at(TABLES[name]))),
    *over(CATALOG, "row/left-out", put("operators/0/max_parallelism", -1), 0),
    *(
        case
        for name in ("table", "data", "log", "file", "area")
        for case in over(SQL, f"link/{name}", link(*LINKS[name]), honest=False, changes=True)
    ),
    *(
        case
        for name, path in ADDED.items()
        for case in over(NEWEST, f"log/{name}", added(path), honest=False)
    ),
    *(Case(f"query/{name}", lake_of, sql(query)) for name, query in LEAVING.items()),
]
