"""Java objects of Flink's own whose fields stand one behind the other, under their names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from state_core.files.wire import DataInput
from state_core.serializers.composite.structs import StructSerializer, TupleSerializer
from state_core.serializers.framework.base import TypeSerializer, to_int32
from state_core.serializers.framework.columns import I32Array

__all__ = ["ObjectSerializer"]


class ObjectSerializer(TupleSerializer):
    """A struct of named fields, none of which the object itself marks as absent.

    The last field may take everything up to the end; the others say where they end.

    Args:
        java_name: What the type is called.
        fields: Each field's name and serializer.
    """

    def __init__(self, java_name: str, fields: list[tuple[str, TypeSerializer]]) -> None:
        StructSerializer.__init__(self, fields)
        self.java_name = java_name
        self.self_delimiting = fields[-1][1].self_delimiting

    @property
    def name(self) -> str:
        """The class."""
        return self.java_name

    @property
    def least(self) -> int:
        """What the fields take at least."""
        return sum(one.least for _, one in self.fields if one.self_delimiting)

    def hash_code(self, value: Any) -> int:
        """`Objects.hash` of the fields: a tuple's hash that begins with 1."""
        return to_int32(super().hash_code(value) + self._seed)

    def hash_code_at(self, source: DataInput) -> int:
        """The same, of the fields' very bytes."""
        return to_int32(super().hash_code_at(source) + self._seed)

    def hash_codes(self, values: pa.Array) -> I32Array:
        """The same of every row."""
        codes: I32Array = super().hash_codes(values) + np.int32(self._seed)
        return codes

    @property
    def _seed(self) -> int:
        return to_int32(31 ** len(self.fields))
