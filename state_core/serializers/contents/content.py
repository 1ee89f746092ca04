"""Texts and bytes that hold something else: JSON, or messages of Avro."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.framework.base import TypeSerializer, named
from statelake.state_core.serializers.framework.columns import Cursor, I64Array, Target, U8Array
from statelake.state_core.serializers.framework.layouts import ByteLayout


class UnfitError(Exception):
    """A value is not of the declared form."""


class Content(ABC):
    """A form of values within text or bytes.

    Attributes:
        arrow_type: The type of the column.
        name: The form, as types name it.
    """

    arrow_type: pa.DataType
    name: str

    @abstractmethod
    def read(self, data: bytes) -> Any:
        """Return the value of a text in UTF-8, or of bytes, in Arrow's form.

        Raises:
            UnfitError: It is not of the form.
        """

    @abstractmethod
    def write(self, value: Any) -> bytes:
        """Return the text in UTF-8, or the bytes, of a value.

        Raises:
            EncodeError: It is no value of the column.
        """


class ContentSerializer(TypeSerializer):
    """A text, or bytes, typed by what they hold.

    A value of another form is null in the column, and its exact bytes are kept beside it, as are
    those of one that would be written otherwise: with spaces, or with a field more.

    Args:
        inner: The serializer of the text or bytes.
        content: What they hold.
    """

    name = named("{inner} of {content}")

    def __init__(self, inner: TypeSerializer, content: Content) -> None:
        self.content = content
        self.inner = inner
        self.arrow_type = content.arrow_type
        self.length = inner.length
        self.self_delimiting = inner.self_delimiting

    @property
    def byte_layout(self) -> ByteLayout:
        """The layout of what it wraps."""
        return self.inner

    def skip(self, source: DataInput) -> None:
        """Move behind one value."""
        self.inner.skip(source)

    def read(self, source: DataInput) -> Any:
        """Read one value; None if it is null, or not of the form."""
        stored = self.inner.read(source)
        if stored is None:
            return None
        try:
            return self.content.read(_bytes_of(stored))
        except UnfitError:
            return None

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one value."""
        encoded: Any = None if value is None else self.content.write(value)
        if encoded is not None and pa.types.is_string(self.inner.arrow_type):
            encoded = encoded.decode()
        self.inner.write(encoded, out)

    def _decode_values(self, cursor: Cursor) -> list[Any]:
        """Read the texts or bytes as a column, and what they hold one by one."""
        values: list[Any] = [None] * cursor.rows
        for row, data in enumerate(self.inner.decode(cursor).cast(pa.binary()).to_pylist()):
            if data is None:
                continue
            try:
                values[row] = self.content.read(data)
            except UnfitError:
                cursor.inexact[row] = 1
                continue
            if not self._is_written(values[row], data):
                cursor.inexact[row] = 1
        return values

    def _is_written(self, value: Any, data: bytes) -> bool:
        """Return whether a value would be written as these bytes."""
        try:
            return self.content.write(value) == data
        except EncodeError:
            return False

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return the sizes of the texts or bytes."""
        return self.inner.sizes(self._held(values, present), present)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write the texts or bytes."""
        self.inner.encode(self._held(values, target.present), target)

    def _held(self, values: pa.Array, present: U8Array) -> pa.Array:
        wanted = np.ones(len(values), np.uint8) if present.size == 0 else present
        encoded = [
            None if value is None or not here else self.content.write(value)
            for value, here in zip(values.to_pylist(), wanted.tolist(), strict=True)
        ]
        return pa.array(encoded, pa.binary()).cast(self.inner.arrow_type)


def _bytes_of(data: str | bytes) -> bytes:
    return data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
