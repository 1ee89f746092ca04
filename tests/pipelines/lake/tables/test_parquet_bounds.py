"""What a Parquet file of a lake may unpack to, and that what statelake writes can be read."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statelake.pipelines.lake.tables.parquet_bounds import (
    BoundedWriter,
    open_parquet,
    parquet_input,
)
from statelake.pipelines.lake.tables.thrift_compact import read_struct
from statelake.state_core.errors import OversizedError
from tests.support.thrift import write_struct

MOST = 1 << 20  # of bytes that a bomb has


def packed(rows: pa.Table, **options: Any) -> bytes:
    """A Parquet file of rows."""
    out = io.BytesIO()
    pq.write_table(rows, out, **{"compression": "zstd", **options})
    return out.getvalue()


def same(value: object, count: int) -> pa.Array:
    """A value many times, that takes no memory here."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([value]))


def read(data: bytes) -> pa.Table:
    """Its rows, if it may be read."""
    return open_parquet(pa.BufferReader(data), "bomb.parquet").read()


def rows_that_are_equal() -> bytes:
    """Nine million rows in a few kilobytes."""
    return packed(pa.table({"value": np.zeros(9_000_000, np.int8)}))


def one_value() -> bytes:
    """100 MiB of zeros in one value."""
    return packed(pa.table({"value": [bytes(100 << 20)]}), use_dictionary=False)


def a_dictionary() -> bytes:
    """100,000 rows that mean the same text of 10 kB."""
    return packed(pa.table({"value": same("a" * 10_000, 100_000)}), store_schema=False)


def a_dictionary_in_lists() -> bytes:
    """The same in lists of structs."""
    text = pa.StructArray.from_arrays([same("a" * 10_000, 100_000)], ["text"])
    offsets = pa.array(np.arange(0, 100_001, 10), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, text)
    return packed(pa.table({"value": lists}), store_schema=False)


def shared_beginnings() -> bytes:
    """40,000 texts of 10 kB that differ in their ends."""
    texts = pa.array([f"{'a' * 10_000}{number}" for number in range(2_000)])
    return packed(
        pa.table({"value": pa.concat_arrays([texts] * 20)}),
        use_dictionary=False,
        column_encoding={"value": "DELTA_BYTE_ARRAY"},
    )


def elements() -> bytes:
    """One row with 80 million elements."""
    values = pa.array(np.zeros(80_000_000, np.int32))
    lists = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    return packed(pa.table({"value": lists}))


def columns() -> bytes:
    """A thousand columns of a hundred thousand nulls."""
    nulls = pa.nulls(100_000, pa.int64())
    return packed(pa.table({f"value {number}": nulls for number in range(1_000)}))


def a_lying_footer() -> bytes:
    """A page of 100 MiB that its footer calls one of a few bytes."""
    data = one_value()
    size = int.from_bytes(data[-8:-4], "little")
    footer, _ = read_struct(data[-8 - size : -8])
    for row_group in footer[4][1][1]:
        for chunk in row_group[1][1][1]:
            chunk[3][1][6] = (6, 100)
    new = write_struct(footer)
    return data[: -8 - size] + new + len(new).to_bytes(4, "little") + b"PAR1"


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "make",
    [
        rows_that_are_equal, one_value, a_dictionary, a_dictionary_in_lists, shared_beginnings,
        elements, columns, a_lying_footer,
    ],
)  # fmt: skip
@pytest.mark.full
def test_a_file_that_unpacks_to_more_than_its_bytes_allow_is_refused(
    make: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any of it is unpacked as a whole."""
    data = make()
    assert len(data) < MOST
    monkeypatch.setattr(pq.ParquetFile, "read", None)
    with pytest.raises(OversizedError, match=r"bomb\.parquet"):
        read(data)


def test_a_column_whose_name_is_no_text_is_a_fault_of_the_file() -> None:
    """One bit of its footer may make it so."""
    data = packed(pa.table({"value": [1]}), store_schema=False)
    with pytest.raises(pa.ArrowInvalid, match="the name of a column is no text"):
        read(data.replace(b"value", b"val\xf5e"))


def test_a_file_without_a_row_is_read() -> None:
    """Its columns may have no page, or a dictionary of nothing."""
    rows = pa.table({"value": pa.array([], pa.string())})
    assert read(packed(rows)) == rows


@pytest.mark.parametrize("dictionary", [True, False])
def test_honest_texts_are_read(dictionary: bool) -> None:
    """Also of a dictionary whose longest text is far longer than most."""
    texts = pa.array(["b" * 100_000, *(f"text {number % 1000}" for number in range(200_000))])
    rows = pa.table({"value": texts, "nested": pa.StructArray.from_arrays([texts], ["text"])})
    assert read(packed(rows, use_dictionary=dictionary)) == rows


def test_texts_with_shared_beginnings_are_read() -> None:
    """As other tools write them."""
    texts = pa.array([f"orders/{number:09}" for number in range(50_000)])
    encoding = {"value": "DELTA_BYTE_ARRAY"}
    data = packed(pa.table({"value": texts}), use_dictionary=False, column_encoding=encoding)
    assert read(data).column("value").combine_chunks() == texts


@pytest.mark.parametrize(
    "make",
    [
        lambda: {"value": [bytes(100 << 20)]},
        lambda: {"value": [bytes(1 << 20)] * 300},
        lambda: {"value": np.zeros(9_000_000, np.int8)},
        lambda: {f"value {number}": pa.nulls(100_000, pa.int8()) for number in range(1_000)},
    ],
    ids=["one value", "values", "rows", "columns"],
)
@pytest.mark.full
def test_what_statelake_writes_can_be_read_whatever_it_packs_to(
    make: Callable[[], dict[str, Any]], tmp_path: Path
) -> None:
    """State may be nothing but zeros, and is never refused once it is in a lake."""
    rows = pa.table(make())
    path = tmp_path / "zeros.parquet"
    with (
        pa.OSFile(str(path), "wb") as out,
        BoundedWriter(out, rows.schema, compression="zstd", use_dictionary=False) as writer,
    ):
        writer.write_table(rows)
    assert path.stat().st_size < 20 << 20
    with pa.OSFile(str(path)) as source:
        assert open_parquet(source, str(path)).read().num_rows == rows.num_rows
    assert pq.read_metadata(path).num_rows == rows.num_rows


def test_a_column_of_bytes_has_no_statistics(tmp_path: Path) -> None:
    """Arrow copies the smallest and the largest value six times to write neither."""
    fields = pa.struct([("number", pa.int64()), ("bytes", pa.binary())])
    schema = pa.schema(
        {
            "key": pa.string(), "bytes": pa.binary(), "large": pa.large_binary(), "value": fields,
            "list": pa.list_(fields), "large_list": pa.large_list(pa.int8()),
            "array": pa.list_(pa.int8(), 2), "map": pa.map_(pa.string(), fields),
        }
    )  # fmt: skip
    value = {"number": 1, "bytes": b"1"}
    row = {
        "key": "k", "bytes": b"1", "large": b"1", "value": value, "list": [value],
        "large_list": [1], "array": [1, 2], "map": [("k", value)],
    }  # fmt: skip
    path = tmp_path / "rows.parquet"
    with pa.OSFile(str(path), "wb") as out, BoundedWriter(out, schema) as writer:
        writer.write_table(pa.Table.from_pylist([row], schema))
    row_group = pq.read_metadata(path).row_group(0)
    columns = [row_group.column(index) for index in range(row_group.num_columns)]
    without = [column.path_in_schema for column in columns if not column.is_stats_set]
    assert without == ["bytes", "large"]


def test_a_column_that_is_named_often_is_refused() -> None:
    """Columns of a footer that all lead to the same bytes would be unpacked as often."""
    numbers = np.random.default_rng(1).random(10_000)
    rows = pa.table({"a": numbers} | {f"b{index}": np.zeros(10_000) for index in range(5)})
    data = packed(rows)
    size = int.from_bytes(data[-8:-4], "little")
    footer, _ = read_struct(data[-8 - size : -8])
    (row_group,) = footer[4][1][1]
    row_group[1][1][1][1:] = row_group[1][1][1][:1] * 5
    new = write_struct(footer)
    forged = data[: -8 - size] + new + len(new).to_bytes(4, "little") + b"PAR1"
    with pytest.raises(pa.ArrowInvalid, match="beyond the end"):
        read(forged)


def test_heads_of_pages_in_a_store_are_not_asked_for() -> None:
    """Each would be a request; what the footer says is held against the bytes."""

    class Store(io.BytesIO):
        reads = 0

        def read(self, size: int | None = -1, /) -> bytes:
            self.reads += 1
            return super().read(size)

    store = Store(packed(pa.table({"value": np.random.default_rng(1).random(1_000_000)})))
    source = pa.PythonFile(store, "r")
    open_parquet(source, "honest.parquet")
    assert store.reads < 5
    with pytest.raises(OversizedError):
        open_parquet(pa.PythonFile(io.BytesIO(rows_that_are_equal()), "r"), "bomb.parquet")


@pytest.mark.parametrize("data", [b"", b"PAR1", bytes(1000)])
def test_bytes_are_read_from_memory_of_arrows_own(data: bytes) -> None:
    """A thread of Arrow's that drops Python's memory when Python has ended aborts the process."""
    held = sys.getrefcount(data)
    source = parquet_input(data)
    assert sys.getrefcount(data) == held
    assert source.read() == data
