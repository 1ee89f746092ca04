"""Keys of every type, and a savepoint whose operator is keyed by one of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa

from statelake import NewKeyedState, NewOperator, write_snapshot
from statelake.state_core.serializers.type_spec import parse_type

__all__ = ["KEYS", "POJO", "keyed_savepoint"]

POJO = {"pojo": "acme.Id", "fields": {"name": "String", "number": "int"}}
# by name, a type and keys of it
KEYS: dict[str, tuple[Any, list[Any]]] = {
    "text": ("String", ["a b", "", '"quoted"', "ü😀", "42", "null"]),
    "numbers": ("Long", [0, -1, 2**63 - 1]),
    "small numbers": ("Byte", [0, -128, 127]),
    "truths": ("Boolean", [True, False]),
    "fractions": ("Double", [0.5, -3.0, float("inf")]),
    "days": ("LocalDate", [date(2026, 11, 22), date(1969, 12, 31)]),
    "tuples": (
        "Tuple2<String, Long>",
        [{"f0": "a", "f1": 1}, {"f0": "a", "f1": 2}, {"f0": "", "f1": 1}],
    ),
    "POJOs": (POJO, [{"name": "a", "number": 1}, {"name": None, "number": 2}]),
    "rows": ("Row<String, Integer>", [{"f0": "a", "f1": 1}, {"f0": None, "f1": 1}]),
}


def keyed_savepoint(path: Path, spec: Any, keys: Sequence[Any]) -> pa.DataType:
    """Write a savepoint whose operator `op` has a value, a map and a timer of each key.

    Returns:
        The type of the column of keys.
    """
    kind = parse_type(spec).restore_serializer().arrow_type
    rows = {"key": pa.array(keys, kind)}
    if spec is POJO:  # whose class alone knows its hash
        rows["key_group"] = pa.array([index * 40 for index in range(len(keys))], pa.int32())
    numbers = pa.array(range(len(keys)), pa.int64())
    states = (
        NewKeyedState("count", pa.table(rows | {"value": numbers}), value="Long"),
        NewKeyedState(
            "of", pa.table(rows | {"user_key": numbers, "value": numbers}), "map", "Long", "Long"
        ),
        NewKeyedState.timers("event", pa.table(rows | {"timestamp": numbers})),
    )
    write_snapshot(path, [NewOperator("op", spec, states)], metadata_version=6)
    return kind
