"""All that walks over columns finds the same in them: whatever is nested, null, or a slice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statelake.pipelines.bootstrap.bootstrap_columns import _by_columns
from statelake.pipelines.keys import _may_be_inexact
from statelake.pipelines.lake.catalog.catalog_rows import without_views
from statelake.pipelines.lake.share.ciphers import Cipher
from statelake.pipelines.lake.share.masking import FORMAT, NULL, MaskRule, check_rule, masked
from statelake.pipelines.lake.share.parts import _parts
from statelake.pipelines.lake.tables.delta_commit import _has_time_without_zone
from statelake.pipelines.lake.tables.parquet_bounds import _leaf_paths
from statelake.pipelines.lake.tables.table_rows import _renamed_type
from statelake.pipelines.shown import from_plain, plain
from statelake.state_core.formats.layout.conforming import conform
from statelake.state_core.model.finding import SearchValue, _paths_in
from statelake.state_core.nested import elements_of, leaf_types, leaves, struct_of
from statelake.state_core.serializers.framework.columns import equal_rows, odd_nans

CIPHER = Cipher(b"0123456789abcdef")
AROUND: dict[str, Callable[[pa.DataType], pa.DataType]] = {
    "struct": lambda kind: pa.struct([("a", kind), ("b", kind)]),
    "list": pa.list_,
    "large list": pa.large_list,
    "list of two": lambda kind: pa.list_(kind, 2),
    "map to": lambda kind: pa.map_(pa.string(), kind),
    "map from": lambda kind: pa.map_(kind, pa.string()),
}
NAMES = list(AROUND)
SHAPES = [
    (outer, middle, NAMES[(at + within) % len(NAMES)])
    for at, outer in enumerate(NAMES)
    for within, middle in enumerate(NAMES)
]


def nested(shape: tuple[str, ...], leaf: pa.DataType) -> pa.DataType:
    """A type of three levels above a leaf."""
    for name in reversed(shape):
        leaf = AROUND[name](leaf)
    return leaf


def values_of(kind: pa.DataType, leaf: Callable[[int], Any], at: int, null: bool = True) -> Any:
    """A value of a type, with nulls at each level where they may be."""
    if null and at % 4 == 3:
        return None
    if pa.types.is_struct(kind):
        return {f.name: values_of(f.type, leaf, at + i + 1) for i, f in enumerate(kind)}
    if pa.types.is_map(kind):
        return [
            (values_of(kind.key_type, leaf, at + i, null=False),
             values_of(kind.item_type, leaf, at + 2 * i + 1))
            for i in range(at % 3)
        ]  # fmt: skip
    if pa.types.is_nested(kind):
        size = kind.list_size if pa.types.is_fixed_size_list(kind) else at % 3
        return [values_of(kind.value_type, leaf, at + i) for i in range(size)]
    return f"of a map {at}" if pa.types.is_string(kind) else leaf(at)


def columns_of(
    shape: tuple[str, ...], leaf: pa.DataType, value: Callable[[int], Any]
) -> Iterator[pa.Array]:
    """Columns with nulls at each level: one from its start, one from within, and an empty one."""
    kind = nested(shape, leaf)
    column = pa.array([values_of(kind, value, at) for at in range(11)], kind)
    yield from (column, column.slice(2, 7), column.slice(5, 0))


def leaf_values(value: Any) -> Iterator[Any]:
    """All values within a value of Python."""
    if isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from leaf_values(each)
    elif value is not None:
        yield value


def each_changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """A value of Python with all values within it changed."""
    if isinstance(value, dict):
        return {name: each_changed(each, change) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(each_changed(each, change) for each in value)
    return None if value is None else change(value)


def test_walks_rows_of_each_leaf() -> None:
    """Each value is in one leaf, and of the row that has it."""
    for shape in SHAPES:
        for column in columns_of(shape, pa.large_string(), str):
            seen = [
                (int(row), value)
                for leaf in leaves(column)
                for row, value in zip(
                    leaf.rows(np.arange(len(leaf.values)))[0], leaf.values.to_pylist(), strict=True
                )
                if value is not None
            ]
            rows = enumerate(column.to_pylist())
            wanted = [(row, value) for row, each in rows for value in leaf_values(each)]
            assert Counter(seen) == Counter(wanted), shape


def test_walks_of_a_search() -> None:
    """A value is found as often as it is there, and each path leads to it."""
    for shape in SHAPES:
        for column in columns_of(shape, pa.large_string(), str):
            rows = column.to_pylist()
            batch = pa.record_batch([column], ["value"])
            for text in {"5", *leaf_values(rows)}:
                places, count = _paths_in(batch, SearchValue(text, contains=False), None)
                assert count == len(places) == list(leaf_values(rows)).count(text), shape
                assert {at for at, _ in places} == {
                    at for at, row in enumerate(rows) if text in leaf_values(row)
                }


def test_paths_of_a_search() -> None:
    """A path has the fields, and the index of each element and entry."""
    kind = nested(("list", "struct", "map to"), pa.int32())
    column = pa.array([[], [None, {"a": [("x", 1), ("y", 7)], "b": None}]], kind)
    places, _ = _paths_in(
        pa.record_batch([column], ["value"]), SearchValue(7, contains=False), None
    )
    assert places == [(1, "value[1].a[1].value")]


@pytest.mark.parametrize(
    "kind", [pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.dictionary(pa.int8(), pa.int64()))]
)
def test_a_search_in_dictionaries(kind: pa.DataType) -> None:
    """Values of a dictionary are found as others are."""
    value: Any = [7] if pa.types.is_list(kind) else "7"
    batch = pa.record_batch([pa.array([None, value], kind)], ["value"])
    assert _paths_in(batch, SearchValue("7", contains=False), None)[1] == 1


def test_walks_of_a_mask() -> None:
    """All values are masked, and each part by itself; shapes, nulls and types stay."""
    for shape in SHAPES:
        for column in columns_of(shape, pa.string(), lambda at: f"text {at}"):
            rule = MaskRule("value", (), FORMAT)
            check_rule(rule, column.type)
            made = masked(column, rule, CIPHER)
            made.validate(full=True)
            assert made.type == column.type
            assert made.to_pylist() == each_changed(column.to_pylist(), CIPHER.text), shape
            by_part = column
            for steps, _ in leaf_types(column.type):
                part = MaskRule("value", steps, FORMAT)
                check_rule(part, column.type)
                by_part = masked(by_part, part, CIPHER)
            assert by_part.equals(made), shape


def test_a_mask_of_parts() -> None:
    """A part that is null, whatever is below it, and nothing else."""
    kind = nested(("large list", "struct", "list of two"), pa.string())
    column = pa.array([None, [{"a": ["x", "y"], "b": ["z", None]}, None]], kind)
    rule = MaskRule("value", ("[]", "a"), NULL)
    check_rule(rule, kind)
    assert masked(column, rule, CIPHER).to_pylist() == [None, [{"a": None, "b": ["z", None]}, None]]


def test_parts_of_all_that_masks() -> None:
    """A mask is asked for each leaf that there is."""
    for shape in SHAPES:
        kind = nested(shape, pa.int32())
        assert [(part.steps, part.kind) for part in _parts(None, kind, ())] == list(
            leaf_types(kind)
        )


def test_walks_of_a_comparison() -> None:
    """Equal rows are equal, and a row with another value anywhere is not."""
    for shape in SHAPES:
        pairs = zip(
            columns_of(shape, pa.int32(), int), columns_of(shape, pa.int32(), lambda at: at % 7),
            strict=True,
        )  # fmt: skip
        for column, other in pairs:
            wanted = [a == b for a, b in zip(column.to_pylist(), other.to_pylist(), strict=True)]
            assert equal_rows(column, column).all()
            assert equal_rows(column, other).tolist() == wanted, shape


def test_walks_of_a_check_of_floats() -> None:
    """A row with an odd NaN anywhere is one, unless the NaN is hidden by a null."""
    odd = np.frombuffer(b"\x01\x00\xc0\x7f", np.float32)[0]
    for shape in SHAPES:
        kind = nested(shape, pa.float32())
        values = [values_of(kind, lambda at: odd if at % 5 == 2 else 1.0, at) for at in range(11)]
        rows = [
            any(np.isnan(value) for value in leaf_values(each) if not isinstance(value, str))
            for each in values
        ]
        for first, count in ((0, 11), (2, 7), (5, 0)):
            marked = odd_nans(pa.array(values, kind).slice(first, count)).tolist()
            assert marked == rows[first : first + count], shape


def test_walks_over_types() -> None:
    """No type is too deep for what asks of types: times, decimals, views, names, JSON."""
    for shape in SHAPES:
        assert _has_time_without_zone(nested(shape, pa.timestamp("us")))
        assert not _has_time_without_zone(nested(shape, pa.timestamp("us", "UTC")))
        assert _may_be_inexact(nested(shape, pa.decimal128(9, 2)))
        assert not _may_be_inexact(nested(shape, pa.int32()))
        rows, named = (pa.struct([(name, pa.int8())]) for name in ("f0", "named"))
        assert _renamed_type(nested(shape, rows), nested(shape, named)) == nested(shape, named)
        for column in columns_of(shape, pa.int32(), int):
            assert conform(column, column.type, "") is column
            for value in column.to_pylist():
                assert from_plain(plain(value, column.type), column.type) == value, shape


def test_views_below_lists_and_maps() -> None:
    """Views of text and bytes become text and bytes."""
    for shape in SHAPES:
        if "large list" in shape or "list of two" in shape:
            continue  # no catalog has these
        viewed = pa.table({"value": pa.nulls(1, nested(shape, pa.binary_view()))})
        assert without_views(viewed).schema.field(0).type == nested(shape, pa.binary()), shape


@pytest.mark.parametrize("around", ["list", "large list", "list of two", "map to"])
def test_constants_below_lists_and_maps(around: str) -> None:
    """Fields of a constant get their columns, and a field that is not there is refused."""
    kind = AROUND[around](struct_of(["id", "ID"], [pa.int8(), pa.int8()]))
    for value, column in (({"id": 1, "ID": 2}, {"id": 1, "ID_2": 2}), ({"no": 1}, None)):
        several: Any = {"a": value} if around == "map to" else [value, value]
        if column is None:
            with pytest.raises(ValueError, match="no field 'no'"):
                _by_columns(several, kind)
        else:
            made = pa.array([_by_columns(several, kind)], kind).to_pylist()[0]
            assert made == ([("a", column)] if around == "map to" else [column, column])


def test_columns_of_parquet() -> None:
    """The paths to measured columns are those of the file."""
    for shape in SHAPES:
        field = pa.field("value", nested(shape, pa.int32()))
        file = BytesIO()
        pq.write_table(pa.table([pa.nulls(0, field.type)], pa.schema([field])), file)
        columns = pq.ParquetFile(file).schema
        assert list(_leaf_paths(field)) == [column.path for column in columns], shape


def test_elements_within_nulls() -> None:
    """What Arrow allows to be behind a null is no element."""
    offsets, mask = pa.array([0, 2, 3], pa.int32()), pa.array([True, False])
    lists = pa.ListArray.from_arrays(offsets, pa.array([1, 2, 3]), mask=mask)
    bounds, elements = elements_of(lists)
    assert (bounds.tolist(), elements.to_pylist()) == ([0, 0, 1], [3])
    (leaf,) = leaves(lists)
    assert leaf.values.to_pylist() == [3]
