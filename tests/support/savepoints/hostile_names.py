"""A savepoint whose names and keys are markup, scripts and orders to terminals."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from statelake import NewKeyedState, NewOperator, write_snapshot

__all__ = ["HOSTILE", "hostile_savepoint"]

HOSTILE = (
    "<script>window.broken=1</script>",
    "</script><script>window.broken=1</script>",
    "</style></title></table><img src=x onerror=window.broken=1>",
    "\"'><svg onload=window.broken=1>",
    "<!--<script>",
    "javascript:window.broken=1",
    "https://example.org/a.png",
    "&lt;b&gt;&amp;",
    "\u2028window.broken=1\u2029",
    "\u202eabc\x1b[31mred\x07\x00",
    "]]>{{7*7}}${window.broken=1}",
)


def hostile_savepoint(path: Path) -> Path:
    """Write a savepoint with an operator, a state, keys, user keys and values of each."""
    texts = pa.array(HOSTILE)
    operators = []
    for name in HOSTILE:
        rows = pa.table({"key": texts, "value": texts})
        entries = pa.table({"key": texts, "user_key": texts, "value": texts})
        pojo = {"pojo": f"acme.{name}", "fields": {"a": "String"}}
        fields = pa.table({"key": texts, "value": [{"a": text} for text in HOSTILE]})
        states = (
            NewKeyedState(name, rows, value="String"),
            NewKeyedState(f"map {name}", entries, "map", "String", "String"),
            NewKeyedState(f"pojo {name}", fields, value=pojo),
        )
        operators.append(NewOperator(name, "String", states, parallelism=2, name=name))
    write_snapshot(path, operators, metadata_version=6)
    return path
