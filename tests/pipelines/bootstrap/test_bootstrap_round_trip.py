"""Any table with unique keys comes back from the savepoint that it became."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
from hypothesis import given
from hypothesis import strategies as st

from statelake import open_snapshot
from statelake.pipelines.bootstrap.bootstrapping import bootstrap

TEXT = st.text(max_size=12)
LONG = st.integers(-(1 << 63), (1 << 63) - 1)
INT = st.integers(-(1 << 31), (1 << 31) - 1)
# the type as it is written down, its column in the source, and its values
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "Long": (pa.int64(), LONG),
    "Integer": (pa.int32(), INT),
    "String": (pa.string(), TEXT),
    "Double": (pa.float64(), st.floats(allow_nan=False)),
    "Boolean": (pa.bool_(), st.booleans()),
    "byte[]": (pa.binary(), st.binary(max_size=9)),
    "Tuple2<String, Long>": (
        pa.struct({"f0": pa.string(), "f1": pa.int64()}),
        st.fixed_dictionaries({"f0": TEXT, "f1": LONG}),
    ),
    "Row<Integer, String>": (
        pa.struct({"f0": pa.int32(), "f1": pa.string()}),
        st.fixed_dictionaries({"f0": st.none() | INT, "f1": st.none() | TEXT}),
    ),
}
KEYS = ("Long", "Integer", "String", "Tuple2<String, Long>")
KINDS = ("value", "list", "map", "reducing", "aggregating")


@given(st.data(), st.sampled_from(KINDS), st.sampled_from(KEYS), st.sampled_from(list(TYPES)))
def test_what_went_in_comes_out(data: st.DataObject, kind: str, key: str, value: str) -> None:
    """Every kind of state, at any parallelism, of a table in memory and of a Parquet file."""
    key_column, keys = TYPES[key]
    value_column, values = TYPES[value]
    row: dict[str, st.SearchStrategy[Any]] = {"key": keys, "value": values}
    schema = {"key": key_column, "value": value_column}
    if kind == "list":
        row["value"] = st.lists(values, min_size=1, max_size=4)
        schema["value"] = pa.list_(value_column)
    said = {"kind": kind, "type": value, "source": "rows"}
    if kind == "map":
        row["user_key"], schema["user_key"] = TEXT, pa.string()
        said["user_key_type"] = "String"
    unique = tuple(name for name in ("key", "user_key") if name in row)
    rows = data.draw(
        st.lists(
            st.fixed_dictionaries(row), max_size=30,
            unique_by=lambda drawn: str([drawn[name] for name in unique]),
        )
    )  # fmt: skip
    table = pa.Table.from_pylist(rows, pa.schema(schema))
    parallelism = data.draw(st.integers(1, 5))
    spec = {"operators": {"op": {"key_type": key, "states": {"s": said}}}}
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "rows.parquet"
        pyarrow.parquet.write_table(table, path, row_group_size=7)
        for where, source in {"table": table, "file": str(path)}.items():
            bootstrap(
                None, spec, Path(name) / where, sources={"rows": source},
                parallelism=parallelism, engine="local",
            )  # fmt: skip
            state = open_snapshot(Path(name) / where, uids=["op"]).operator("op").state("s")
            found = state.to_arrow().select(list(schema)).to_pylist()
            assert sorted(map(repr, found)) == sorted(map(repr, table.to_pylist()))
