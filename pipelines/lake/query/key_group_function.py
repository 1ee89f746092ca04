"""`key_group(key, max_parallelism)` in SQL: the key group of a key in Flink.

The type of the column determines the Java class of the key, and so its hash: text as `String`,
BIGINT as `Long`, and so on. A type that several classes have is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.errors import UnknownHashError
from statelake.state_core.model.key_groups import check_parallelism, key_groups_of_hashes
from statelake.state_core.serializers.basic.numbers import (
    BooleanSerializer,
    ByteSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntSerializer,
    LongSerializer,
    ShortSerializer,
)
from statelake.state_core.serializers.basic.text import StringSerializer

KEY_GROUP_FUNCTION = "key_group"
_SERIALIZERS = (
    StringSerializer, LongSerializer, IntSerializer, ShortSerializer, ByteSerializer,
    DoubleSerializer, FloatSerializer, BooleanSerializer,
)  # fmt: skip


def key_group(keys: Any, max_parallelism: Any) -> pa.Array:
    """Return the key group of each key.

    Args:
        keys: Keys, as DuckDB passes a column to a function; without nulls.
        max_parallelism: The max parallelism for each key.

    Raises:
        UnknownHashError: The column's type is not that of one Java class.
        KeyGroupError: There is no such max parallelism.
    """
    column = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    serializers = {serializer().arrow_type: serializer() for serializer in _SERIALIZERS}
    serializer = serializers.get(column.type)
    if serializer is None:
        raise UnknownHashError(
            f"key_group() knows no hash of {column.type}: several Java classes look like it",
            remedy="give text, a number or a boolean, or read the column key_group",
        )
    codes = np.array(serializer.hash_codes(column), np.int32)
    groups = np.empty(len(codes), np.int32)
    for most in pc.unique(max_parallelism).to_pylist():
        check_parallelism(most, 1)
        rows = pc.equal(max_parallelism, most).to_numpy(zero_copy_only=False).astype(bool)
        groups[rows] = key_groups_of_hashes(codes[rows], most)
    return pa.array(groups)
