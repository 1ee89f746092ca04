"""Hostile lakes: who can write into one reads, writes and removes nothing outside it."""

from __future__ import annotations

from tests.adversary.makers.lake import (
    claim,
    claim_text,
    lake_of,
    link,
    put,
    stolen_token,
    table_at,
)
from tests.adversary.makers.seed import TOKEN
from tests.adversary.playing import Case, over
from tests.support.forged_lakes import USUAL_CLAIMS

__all__ = [
    "BOOTSTRAP",
    "COMMIT",
    "DROP",
    "EDIT",
    "EVERY",
    "EXPORT",
    "IMPORT",
    "KEYS",
    "LAKE_CASES",
    "LIST",
    "LOOK",
    "MERGE",
    "MIGRATE",
    "RUN",
    "TABLE",
]

EXPORT = {
    "export": "export --lake {lake} --job orders --snapshot bad --to {out} --engine local",
}
DROP = {
    "drop": "drop --lake {lake} --job orders --snapshot bad --yes",
    "drop-keep": "drop --lake {lake} --job orders --keep 2 --yes",
}
DROP_KEEP = {"drop-keep": DROP["drop-keep"]}
IMPORT = {"import": "import {seed}/savepoint --lake {lake} --job orders --snapshot next"}
COMMIT = {"commit": "commit --lake {lake} --job orders --parent bad --snapshot next"}
EDIT = {
    "edit": "edit --lake {lake} --job orders --parent bad --snapshot next"
    " --expire counter/session 1s",
}
MERGE = {
    "merge": "edit --lake {lake} --job clean --parent good --snapshot next --merge orders:bad",
}
MIGRATE = {
    "migrate": "migrate --lake {lake} --job orders --snapshot bad --state counter/profile"
    " --to {seed}/wider.json",
}
LOOK = {
    "diff": "diff --lake {lake} --job orders good bad",
    "integrity": "check integrity --lake {lake} --job orders --snapshot bad",
    "plan-rescale": "plan-rescale --lake {lake} --job orders --snapshot bad --parallelism 2",
    "compatibility": "check compatibility --lake {lake} --job orders --snapshot bad"
    " --against {seed}/savepoint",
}
KEYS = {
    "get": "get --lake {lake} --job orders --snapshot bad --key key-3",
    "history": "history --lake {lake} --job orders --key key-3",
    "top": "top --lake {lake} --job orders --snapshot bad",
    "report": "report --lake {lake} --job orders --snapshot bad --to {out}",
}
RUN = {"run": "run {here}/orders_job.py:JOB --lake {lake} --engine local --restore bad"}
BOOTSTRAP = {"bootstrap": "bootstrap {work}/from_lake.json --to {out} --engine local"}
LIST = {"snapshots": "snapshots --lake {lake}"}
EVERY = EXPORT | DROP | IMPORT | COMMIT | EDIT | MIGRATE | MERGE | LOOK | LIST

TABLE = "orders/keyed/counter/name"
ABOVE = "../" * 5  # of a table: what is beside the lake

# a table that is not where a job's tables are
TABLES = {
    "parent": f"../victim/lake/{TABLE}",
    "absolute": f"{{victim}}/lake/{TABLE}",
    "uri": f"file://{{victim}}/lake/{TABLE}",
    "short-uri": f"file:{{victim}}/lake/{TABLE}",
    "object-store": "s3://bucket/victim",
    "other-scheme": "http://127.0.0.1:9/victim",
    "through": f"orders/../../victim/lake/{TABLE}",
    "encoded": f"%2e%2e/victim/lake/{TABLE}",
    "encoded-slash": "..%2Fvictim",
    "empty": "",
    "dot": ".",
    "dot-dot": "..",
    "root": "/",
    "ends-in-dot-dot": f"{TABLE}/..",
    "double-slash": "orders//keyed/counter/name",
    "dot-between": "orders/./keyed/counter/name",
    "slash-behind": f"{TABLE}/",
    "backslash": "..\\victim",
    "home": "~/victim",
    "null-byte": f"{TABLE}\0",
    "line-break": "orders/keyed/counter/na\nme",
    "too-long": "a" * 5000,
    "too-deep": "a/" * 3000 + "a",
    "catalog": "snapshots",
    "signs": "_statelake/alive",
    "other-job": "clean/keyed/counter/name",
}
SOME = ("parent", "absolute", "through", "other-job")

# a file that is not where a table's files are
FILES = {
    "parent": f"{ABOVE}victim/lake/{TABLE}/{{victim_unit}}",
    "absolute": f"{{victim}}/lake/{TABLE}/{{victim_unit}}",
    "uri": f"file://{{victim}}/lake/{TABLE}/{{victim_unit}}",
    "through": f"_data/../{ABOVE}victim/lake/{TABLE}/{{victim_unit}}",
    "encoded": f"%2e%2e/{ABOVE}victim/lake/{TABLE}/{{victim_unit}}",
    "empty": "",
    "dot": ".",
    "dot-dot": "..",
    "directory": "_data",
    "null-byte": "_data/a\0b.parquet",
    "other-table": "../session/{unit}",
    "log": "_delta_log/00000000000000000000.json",
}

# what a claim may call the tables that it was about to touch
CLAIMED = {
    "parent": ["../victim"],
    "absolute": ["{victim}"],
    "uri": ["file://{victim}"],
    "through": ["orders/../../victim"],
    "encoded": ["%2e%2e/victim"],
    "empty": [""],
    "dot": ["."],
    "dot-dot": [".."],
    "root": ["/"],
    "null-byte": ["orders\0"],
    "other-job": ["clean/keyed/counter/name"],
    "catalog": ["snapshots"],
    "carried": ["_statelake"],
    "second": [TABLE, "../victim"],
    "no-text": [5],
    "nothing": [None],
    "list": [["../victim"]],
}

# the name of a claim is the name of what it removes
TOKENS = {
    "empty": "",
    "dot": ".",
    "dot-dot": "..",
    "hidden": ".hidden",
    "encoded": "%2e%2e",
    "too-short": "abc",
    "capitals": "0123456789ABCDEF",
    "no-token": "readme.txt",
}

# what is no claim
MALFORMED = {
    "nothing": "",
    "no-json": "{{",
    "list": "[]",
    "number": "5",
    "null": "null",
    "no-keys": "{{}}",
    "nested": "[" * 100_000,
    "large-number": '{{"job": "orders", "started": 1e999}}',
}

# fields of a claim with other values than such a field may have
FIELDS = {
    "job-number": {"job": 5},
    "tables-text": {"tables": "../victim"},
    "tables-null": {"tables": None},
    "builds-on-number": {"builds_on": 7},
    "builds-on-numbers": {"builds_on": [7]},
    "snapshot-null": {"snapshot_id": None},
    "more": {"more": 1},
    **{
        name: {"process": {**USUAL_CLAIMS["attempt"]["process"], **said}}
        for name, said in {
            "started-text": {"started": "yesterday"},
            "started-null": {"started": None},
            "process-text": {"process": "x"},
            "process-huge": {"process": 10**30},
            "process-group": {"process": -1},
            "process-all": {"process": 0},
            "host-list": {"host": ["a"]},
        }.items()
    },
}

# links at every level: what is linked, and where to
LINKS = {
    "lake-directory": ("_statelake", "{victim}/_statelake"),
    "signs": ("_statelake/alive", "{victim}/_statelake/alive"),
    "sign": (f"_statelake/alive/{TOKEN}", "{victim}/secret.txt"),
    "carried": ("_statelake/carried", "{victim}/_statelake/carried"),
    "catalog": ("snapshots", "{victim}/lake/snapshots"),
    "catalog-log": ("snapshots/_delta_log", "{victim}/lake/snapshots/_delta_log"),
    "catalog-rows": ("snapshots/job=orders", "{victim}/lake/snapshots/job=orders"),
    "job": ("orders", "{victim}/lake/orders"),
    "area": ("orders/keyed", "{victim}/lake/orders/keyed"),
    "operator": ("orders/keyed/counter", "{victim}/lake/orders/keyed/counter"),
    "table": (TABLE, f"{{victim}}/lake/{TABLE}"),
    "data": (f"{TABLE}/_data", f"{{victim}}/lake/{TABLE}/_data"),
    "log": (f"{TABLE}/_delta_log", f"{{victim}}/lake/{TABLE}/_delta_log"),
    "file": (f"{TABLE}/{{unit}}", f"{{victim}}/lake/{TABLE}/{{victim_unit}}"),
}

# an export reads neither signs of life nor Delta's log
NOT_READ = ("signs", "sign", "log")
LINK_CODES = {
    "file": {"drop": 0, "drop-keep": 0, "import": 0},
    "signs": {"import": 0},  # which is done before its first sign of life
    "sign": {"import": 0},
}

# links that only a drop would come to, beside what is honest
STRAY_LINKS = {
    "table": ("orders/keyed/counter/stray", f"{{victim}}/lake/{TABLE}"),
    "operator": ("orders/keyed/stray", "{victim}/lake/orders/keyed/counter"),
    "timers": ("orders/timers/stray", "{victim}"),
    "files": (f"{TABLE}/_data/stray", "{victim}/_data"),
    "attempt": (f"{TABLE}/_data/{TOKEN}", f"{{victim}}/_data/{TOKEN}"),
    "deeper": (f"{TABLE}/_data/{TOKEN}/deeper", f"{{victim}}/_data/{TOKEN}"),
    "carried": (f"_statelake/carried/{'0' * 64}", "{victim}/secret.txt"),
    "loop": (f"{TABLE}/_data/loop", "{lake}"),
}

# values of a row that can't be
VALUES = {
    "max-parallelism-0": ("operators/0/max_parallelism", 0),
    "max-parallelism-negative": ("operators/0/max_parallelism", -1),
    "max-parallelism-huge": ("operators/0/max_parallelism", 2**31 - 1),
    "max-parallelism-other": ("operators/0/max_parallelism", 3),
    "parallelism-0": ("operators/0/parallelism", 0),
    "parallelism-huge": ("operators/0/parallelism", 2**31 - 1),
    "no-tables": ("operators/0/tables", []),
    "null-tables": ("operators/0/tables", None),
    "no-files": ("operators/0/tables/0/units", []),
    "no-states": ("operators/0/states", []),
    "key-group-negative": ("operators/0/states/0/key_groups/0/key_group", -5),
    "key-group-beyond": ("operators/0/states/0/key_groups/0/key_group", 4),
    "key-group-huge": ("operators/0/states/0/key_groups/0/key_group", 2**62),
    "key-group-twice": ("operators/0/states/0/key_groups/0/key_group", 1),
    "entries-negative": ("operators/0/states/0/key_groups/0/entries", -1),
    "entries-huge": ("operators/0/states/0/key_groups/0/entries", 2**62),
    "bytes-negative": ("operators/0/states/0/key_groups/0/state_bytes", -(2**40)),
    "bytes-huge": ("operators/0/states/0/key_groups/0/state_bytes", 2**62),
    "file-first-negative": ("operators/0/tables/0/units/0/first", -5),
    "file-last-beyond": ("operators/0/tables/0/units/0/last", 2**40),
    "file-backwards": ("operators/0/tables/0/units/0/first", 3),
    "file-partition": ("operators/0/tables/0/units/0/partition", 77),
    "file-rows-negative": ("operators/0/tables/0/units/0/rows", -2),
    "file-size-negative": ("operators/0/tables/0/units/0/size", -2),
    "version-negative": ("operators/0/tables/0/version", -1),
    "partition-column": ("operators/0/tables/0/partition_by", "../victim"),
    "state-without-table": ("operators/0/states/0/table", "orders/keyed/counter/none"),
    "operator-id": ("operators/0/operator_id", "../victim"),
    "operator-id-other": ("operators/0/operator_id", "0" * 32),
    "state-kind": ("operators/0/states/0/kind", "evil"),
    "state-name-other": ("operators/0/states/0/name", "session"),
    "meta-info-empty": ("operators/0/states/0/meta_info", b""),
    "meta-info-damaged": ("operators/0/states/0/meta_info", b"\xff" * 40),
    "key-serializer-empty": ("operators/0/key_serializer", b""),
    "key-serializer-damaged": ("operators/0/key_serializer", b"\0\0\0\2\xff"),
    "metadata-empty": ("metadata", b""),
    "metadata-damaged": ("metadata", b"\x49\x60\x67\x2d\0\0\0\5\xff"),
    "metadata-version": ("metadata_version", 99),
    "compression": ("compression", "evil"),
    "mode": ("operators/0/operator_states/0/mode", "EVIL"),
    "elements-huge": ("operators/0/operator_states/0/elements", 2**62),
    "subtask-beyond": ("operators/0/operator_states/0/subtasks/0/subtask", 2**40),
    "subtask-negative": ("operators/0/operator_states/0/subtasks/0/subtask", -1),
}

# values that only a look at the tables can tell
UNSOUND = {
    "file-size-huge": ("operators/0/tables/0/units/0/size", 2**62),
    "version-beyond": ("operators/0/tables/0/version", 2**40),
}

# a row that can't be believed holds up whoever needs it; it is dropped by its name
OF_OTHERS = {"drop": 0, "import": 0}
NOT_OURS = "statelake did not write that: see who else writes into the lake"

LAKE_CASES: list[Case] = [
    # what is not hostile goes on as ever, or nothing below would be worth anything
    *over(EVERY | KEYS, "honest", lake_of, 0),
    *(
        case
        for name, path in TABLES.items()
        for case in over(EXPORT | DROP | IMPORT, f"row/table/{name}", table_at(path), OF_OTHERS)
    ),
    *(
        case
        for name in SOME
        for case in over(
            COMMIT | EDIT | MERGE | MIGRATE | LOOK | KEYS, f"row/table/{name}", table_at(TABLES[name])
        )
    ),
    *(
        case
        for name, path in FILES.items()
        for case in over(
            EXPORT | KEYS | {"integrity": LOOK["integrity"]},
            f"row/file/{name}",
            put("operators/0/tables/0/units/0/path", path),
        )
    ),
    *(
        case
        for name, tables in CLAIMED.items()
        for case in over(DROP_KEEP | IMPORT, f"claim/table/{name}", claim(tables=tables), says=NOT_OURS)
    ),
    *(
        case
        for name, token in TOKENS.items()
        for case in over(DROP_KEEP | IMPORT, f"claim/token/{name}", claim(token), says=NOT_OURS)
    ),
    *(
        case
        for name in ("parent", "absolute")
        for case in over(
            COMMIT | EDIT | MIGRATE, f"claim/table/{name}", claim(tables=CLAIMED[name]), says=NOT_OURS
        )
    ),
    *(
        case
        for name, text in MALFORMED.items()
        for case in over(
            DROP_KEEP, f"claim/malformed/{name}", claim_text(text), says=NOT_OURS
        )
    ),
    *(
        case
        for name, fields in FIELDS.items()
        for case in over(DROP_KEEP, f"claim/field/{name}", claim(**fields), says=NOT_OURS)
    ),
    *over(DROP_KEEP | IMPORT, "claim/token/of-a-snapshot", stolen_token, 0),
    *(
        case
        for name, (path, to) in LINKS.items()
        for case in over(
            (EXPORT if name not in NOT_READ else {}) | DROP | IMPORT, f"link/{name}",
            link(path, to), LINK_CODES.get(name, {}), honest=False, changes=True,
        )
    ),
    *(
        case
        for name in ("catalog", "job", "table", "data")
        for case in over(KEYS, f"link/{name}", link(*LINKS[name]), honest=False)
    ),
    Case("link/file/top", link(*LINKS["file"]), KEYS["top"], honest=False),
    *(
        case
        for name, (path, to) in STRAY_LINKS.items()
        for case in over(DROP_KEEP, f"stray/{name}", link(path, to), 0)
    ),
    *(
        Case(f"row/value/{name}", put(place, value), EXPORT["export"])
        for name, (place, value) in VALUES.items()
    ),
    *(
        Case(f"row/value/{name}", put(place, value), LOOK["integrity"], 1)
        for name, (place, value) in UNSOUND.items()
    ),
]  # fmt: skip
