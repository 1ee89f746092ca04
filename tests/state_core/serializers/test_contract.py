"""The contract of every serializer, alone and within others, over the table of samples.

Values are bytes as Flink writes them. A row of a column is exact, and then gives its very bytes
back, or it is marked inexact, and its bytes travel beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import EncodeError, KeyGroupError, StateError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.meta_info import read_serializer_entry, serializer_entry
from statelake.state_core.kernels import skip
from statelake.state_core.kernels.compiler import Kernel
from statelake.state_core.serializers import registered_classes
from statelake.state_core.serializers.basic.numbers import IntSerializer
from statelake.state_core.serializers.composite.structs import ObjectSerializer
from statelake.state_core.serializers.composite.wrappers import VoidNamespaceSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import Target
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer
from statelake.state_core.serializers.framework.registry import (
    read_serializer_snapshot,
    write_serializer_snapshot,
)
from tests.support.serializers.avro_samples import AVRO, avro_samples
from tests.support.serializers.library_samples import (
    LIBRARIES,
    MORE_OF_ONE,
    MORE_OF_TWO,
    any_samples,
)
from tests.support.serializers.serializer_columns import (
    NOBODY,
    cursor_over,
    decode,
    encode,
    read,
    walked,
    write,
)
from tests.support.serializers.serializer_samples import (
    LEAVES,
    OF_ONE,
    OF_TWO,
    Sample,
    padded_nullable,
    samples,
    wrapped,
)

BY_NAME = {leave.name: leave for leave in LEAVES}
STRING, LONG = BY_NAME["String"], BY_NAME["Long"]
TIMER = next(outer for outer in OF_TWO if outer(LONG, LONG).name.startswith("Timer<"))
NULLS = next(each for each in AVRO if '"items":"null"' in each.name)
NESTED = [
    *(
        wrapped(outer, inner)
        for outer in (*OF_ONE, *MORE_OF_ONE)
        for inner in (LONG, STRING, BY_NAME["BigInt"])
    ),
    *(wrapped(outer, STRING, LONG) for outer in (*OF_TWO, *MORE_OF_TWO)),
    wrapped(OF_TWO[0], STRING, wrapped(OF_ONE[0], wrapped(OF_ONE[6], STRING))),
    padded_nullable(),
    # keys without an end of their own: before a namespace of known size, and before another one
    *(wrapped(TIMER, NULLS, BY_NAME[namespace]) for namespace in ("Boolean", "String")),
]
TABLE = [*LEAVES, *LIBRARIES, *AVRO, *NESTED]
every_sample = pytest.mark.parametrize("sample", TABLE, ids=repr)

# what has tests of its own instead, since its bytes are more than a few lines' description
ELSEWHERE = (
    "org.apache.flinkx.",
    "org.apache.flink.table.",
    "org.apache.flink.api.java.typeutils.runtime.PojoSerializerSnapshot",
    # carried, and never understood
    "org.apache.flink.api.java.typeutils.runtime.ValueSerializer",
    "org.apache.flink.api.java.typeutils.runtime.CopyableValueSerializer",
    "org.apache.flink.api.java.typeutils.runtime.kryo.",
    "org.apache.flink.runtime.state.JavaSerializer",
    "org.apache.flink.cep.nfa.NFA$MigratedNFASerializerSnapshot",
    "org.apache.flink.cep.nfa.SharedBuffer$SharedBufferSerializerSnapshot",
    # of which there are no values
    "org.apache.flink.api.scala.typeutils.NothingSerializerSnapshot",
)


def serializer_of(sample: Sample) -> TypeSerializer:
    """The serializer that the sample's snapshot gives."""
    return sample.read_snapshot().restore_serializer()


def batches(sample: Sample) -> st.SearchStrategy[list[bytes]]:
    """A few values."""
    return st.lists(sample.encoded, min_size=1, max_size=5)


def with_values(found: st.SearchStrategy[Sample]) -> st.SearchStrategy[tuple[Sample, list[bytes]]]:
    """A type and a few of its values."""
    return found.flatmap(lambda sample: st.tuples(st.just(sample), batches(sample)))


def same(first: Any, other: Any) -> bool:
    """Equal, where NaN is NaN, zeros have signs, and a list of pairs is a map."""
    if isinstance(first, float) and isinstance(other, float):
        if math.isnan(first) or math.isnan(other):
            return math.isnan(first) and math.isnan(other)
        return first == other and math.copysign(1, first) == math.copysign(1, other)
    if isinstance(first, dict) and isinstance(other, dict):
        return first.keys() == other.keys() and all(same(first[key], other[key]) for key in first)
    if isinstance(first, list | tuple) and isinstance(other, list | tuple):
        return len(first) == len(other) and all(map(same, first, other))
    return bool(type(first) is type(other) and first == other)


def has_nan(value: Any) -> bool:
    """Whether there is a NaN in it: Python's float does not keep all of its bits."""
    if isinstance(value, dict):
        return has_nan(list(value.values()))
    if isinstance(value, list | tuple):
        return any(map(has_nan, value))
    return isinstance(value, float) and math.isnan(value)


def exact_pairs(inexact: Iterable[bool], values: Iterable[bytes]) -> list[tuple[int, bytes]]:
    """Rows that their typed value says all about, by number."""
    pairs = enumerate(zip(inexact, values, strict=True))
    return [(row, data) for row, (lost, data) in pairs if not lost]


# ----------------------------------------------------------------------------- the contract


def check_columns(serializer: TypeSerializer, values: list[bytes]) -> None:
    """Bytes, column, bytes; in any part of a column; and the same values as one by one."""
    column, inexact = decode(serializer, values)
    assert column.type == serializer.arrow_type
    shown = column.to_pylist()
    kept = exact_pairs(inexact, values)
    for row, data in kept:
        assert same(read(serializer, data), shown[row])
    rows = pa.array([row for row, _ in kept], pa.int64())
    typed = column.take(rows)
    assert encode(serializer, typed) == [data for _, data in kept]
    for start in range(1, min(3, len(kept))):
        assert encode(serializer, typed.slice(start)) == [data for _, data in kept[start:]]


def check_scalars(serializer: TypeSerializer, values: list[bytes]) -> None:
    """One by one: read, skipped and walked by the same number of bytes, and written back."""
    _, inexact = decode(serializer, values)
    for data, lost in zip(values, inexact, strict=True):
        value = read(serializer, data)
        source = DataInput(data + b"rest" if serializer.self_delimiting else data)
        serializer.skip(source)
        assert source.position == len(data)
        if not lost:
            again = write(serializer, value)
            assert again == data or has_nan(value)
            assert same(read(serializer, again), value)


def test_a_part_up_to_the_end_may_be_empty() -> None:
    """It adds nothing to the least length, whether it is the only field or the last one."""
    end, number = OpaqueSerializer("Unknown"), IntSerializer()
    assert ObjectSerializer("Alone", [("end", end)]).min_length == 0
    assert ObjectSerializer("Last", [("number", number), ("end", end)]).min_length == 4


def check_lengths(serializer: TypeSerializer, values: list[bytes]) -> None:
    """What a serializer says of lengths is true of every value."""
    for data in values:
        assert len(data) >= serializer.min_length or not data
        if serializer.wire_length > 0:
            assert len(data) == serializer.wire_length
        if serializer.length > 0:
            assert len(data) == serializer.length
    if serializer.skip_program() is not None:
        assert walked(serializer, values) in (
            [len(value) for value in values],
            [skip.UNKNOWN] * len(values),
        )


def check_masks(serializer: TypeSerializer, values: list[bytes], mask: list[bool]) -> None:
    """Rows that are not there are null, not read, and not written."""
    wanted = np.array(mask, np.uint8)
    cursor = cursor_over([data if held else b"" for data, held in zip(values, mask, strict=True)])
    column = serializer.decode(cursor.only(wanted))
    cursor.check_at_end()
    column.validate(full=True)
    whole, inexact = decode(serializer, values)
    kept = [held and not lost for held, lost in zip(mask, inexact, strict=True)]
    for shown, alone, held in zip(column.to_pylist(), whole.to_pylist(), kept, strict=True):
        assert not held or same(shown, alone)
    present = np.array(kept, np.uint8)
    sizes = serializer.sizes(column, present)
    expected = [data if held else b"" for data, held in zip(values, kept, strict=True)]
    assert sizes.tolist() == [len(entry) for entry in expected]
    ends = np.cumsum(sizes)
    out = np.full(int(ends[-1]), 0xAA, np.uint8)
    target = Target(out, ends - sizes, present)
    serializer.encode(column, target)
    assert target.position.tolist() == ends.tolist()
    assert out.tobytes() == b"".join(expected)


def check_hashes(serializer: TypeSerializer, values: list[bytes]) -> None:
    """The hash codes of a column are those of its values, where they can be derived."""
    column, inexact = decode(serializer, values)
    rows = [row for row, _ in exact_pairs(inexact, values) if column[row].as_py() is not None]
    if not rows:
        return
    try:
        codes = serializer.hash_codes(column.take(pa.array(rows, pa.int64()))).tolist()
    except KeyGroupError:
        return
    assert codes == [serializer.hash_code(read(serializer, values[row])) for row in rows]
    assert codes == [serializer.hash_code_at(DataInput(values[row])) for row in rows]


def check_contract(sample: Sample, values: list[bytes], mask: list[bool]) -> None:
    """All of it."""
    serializer = serializer_of(sample)
    check_columns(serializer, values)
    check_scalars(serializer, values)
    check_lengths(serializer, values)
    check_masks(serializer, values, mask)
    check_hashes(serializer, values)


# ----------------------------------------------------------------------------- the table


def test_every_class_is_in_the_table() -> None:
    """A snapshot class that is registered has a row, or tests elsewhere."""
    covered = {serializer.java_class for serializer in TABLE}
    left = {name for name in registered_classes() if not name.startswith(ELSEWHERE)}
    assert covered == left


@every_sample
@given(data=st.data())
def test_values(sample: Sample, data: st.DataObject) -> None:
    """Whatever Flink can write is read and comes back, as a column and one by one."""
    values = data.draw(batches(sample))
    mask = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    check_contract(sample, values, mask)


@every_sample
def test_snapshots_come_back(sample: Sample) -> None:
    """A snapshot is written as it was read, and a copy restores the same serializer."""
    source = DataInput(sample.snapshot + b"rest")
    snapshot = read_serializer_snapshot(source)
    assert source.read_rest() == b"rest"
    out = DataOutput()
    write_serializer_snapshot(snapshot, out)
    assert out.to_bytes() == sample.snapshot
    entry = read_serializer_entry(DataInput(serializer_entry(snapshot).encoded), "it")
    restored = entry.snapshot.restore_serializer()
    assert restored.name == snapshot.restore_serializer().name == snapshot.type_name
    assert restored.arrow_type == snapshot.restore_serializer().arrow_type
    assert restored.length == snapshot.restore_serializer().length


@every_sample
def test_a_type_is_compatible_with_itself(sample: Sample) -> None:
    """As is: nothing to migrate, nothing to reconfigure."""
    result = sample.read_snapshot().resolve_schema_compatibility(sample.read_snapshot())
    assert result.verdict.name == "COMPATIBLE_AS_IS"


@every_sample
def test_no_rows_at_all(sample: Sample) -> None:
    """An empty column is one of the type, and takes no bytes."""
    serializer = serializer_of(sample)
    column, inexact = decode(serializer, [])
    assert (len(column), inexact, column.type) == (0, [], serializer.arrow_type)
    assert encode(serializer, column) == []
    assert encode(serializer, pa.array([], serializer.arrow_type)) == []


@every_sample
def test_nulls_are_written_or_refused(sample: Sample) -> None:
    """A null of a column is the type's own null, or an error that says so; never something else."""
    serializer = serializer_of(sample)
    column = pa.nulls(1, serializer.arrow_type)
    try:
        (data,) = encode(serializer, column)
    except EncodeError:
        with pytest.raises(EncodeError):
            write(serializer, None)
    else:
        assert read(serializer, data) is None
        assert write(serializer, None) == data


# ----------------------------------------------------------------------------- any nesting


@given(found=with_values(any_samples()))
def test_any_nesting(found: tuple[Sample, list[bytes]]) -> None:
    """The whole contract for types within types within types."""
    sample, values = found
    check_contract(sample, values, [row % 2 == 0 for row in range(len(values))])


@given(found=with_values(any_samples() | samples(1, avro_samples())))
def test_python_s_interpreter_keeps_the_contract(found: tuple[Sample, list[bytes]]) -> None:
    """As it runs the kernels over small snapshots."""
    sample, values = found
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "__call__", Kernel.interpret)
        check_contract(sample, values, [row % 2 == 0 for row in range(len(values))])


def test_below_the_null_of_a_struct_may_be_anything() -> None:
    """Arrow says nothing of a field there, such as of one that has a single value."""
    serializer = VoidNamespaceSerializer()
    filled = pa.array([None, "", None])
    sizes = serializer.sizes(filled, np.array([1, 0, 1], np.uint8))
    assert sizes.tolist() == [1, 0, 1]
    for present in (np.array([1, 1, 0], np.uint8), NOBODY):
        with pytest.raises(EncodeError, match="holds a value that is not null"):
            serializer.sizes(filled, present)
    with pytest.raises(EncodeError, match="holds a value that is not null"):
        serializer.sizes(pa.array([""]), NOBODY)
    assert serializer.sizes(pa.array([], pa.string()), NOBODY).tolist() == []


@given(found=with_values(samples(1, avro_samples())))
def test_avro_of_any_schema(found: tuple[Sample, list[bytes]]) -> None:
    """And for Avro, alone and in lists, maps, tuples and all else."""
    sample, values = found
    check_contract(sample, values, [row % 2 == 0 for row in range(len(values))])


@given(data=st.data(), found=with_values(any_samples() | samples(1, avro_samples())))
def test_damaged_bytes(data: st.DataObject, found: tuple[Sample, list[bytes]]) -> None:
    """Changed or cut bytes: a value or an error of ours, the same one by one and as a column."""
    sample, values = found
    serializer = serializer_of(sample)
    damaged = data.draw(damages(values[0]))
    try:
        value = read(serializer, damaged)
    except (StateError, AssertionError):  # or there were bytes behind it
        with pytest.raises(StateError):
            decode(serializer, [damaged])
        return
    column, (lost,) = decode(serializer, [damaged])
    if not lost:
        assert same(column[0].as_py(), value)
        assert encode(serializer, column) == [damaged]


def damages(good: bytes) -> st.SearchStrategy[bytes]:
    """The bytes cut off, with some of them replaced, or with others behind them."""
    places = st.integers(0, max(0, len(good) - 1))
    counts = st.sampled_from([2**31 - 1, -(2**31), -1, 65536, 2, 0])
    numbers = counts.map(lambda number: number.to_bytes(4, "big", signed=True))
    return (
        places.map(lambda at: good[:at])
        | st.tuples(places, st.binary(min_size=1, max_size=2) | numbers).map(
            lambda held: good[: held[0]] + held[1] + good[held[0] + len(held[1]) :]
        )
        | st.binary(min_size=1, max_size=3).map(lambda more: good + more)
        | st.binary(max_size=12)
    )
