"""Values of Kryo within other types: fields of POJOs and tuples, elements of lists and maps.

Nothing but the value itself tells where it ends. If it holds a class whose form is not known, the
rest of its row can't be read: the whole row is null then, with its exact bytes beside it.
"""

from __future__ import annotations

from typing import Any

from statelake.state_core.errors import StateError, UnknownEndError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.serializers.framework.decoders import DecodedSerializer
from statelake.state_core.serializers.kryo.decoding import KryoDecoder
from statelake.state_core.serializers.kryo.graph import Item


class NestedKryoSerializer(DecodedSerializer):
    """A part of another type that Kryo writes.

    Args:
        java_class: The class of the values.
        decoder: The decoder.
    """

    decoder: KryoDecoder

    def __init__(self, java_class: str, decoder: KryoDecoder) -> None:
        super().__init__(java_class, decoder)
        self.self_delimiting = True

    def read(self, source: DataInput) -> Any:
        """Read one value; None if its column can't hold it."""
        start = source.position
        item = self._next(source)
        return self.decoder.show(item, source.position - start)

    def skip(self, source: DataInput) -> None:
        """Move behind one value."""
        self._next(source)

    def _next(self, source: DataInput) -> Item | None:
        values = self.decoder.values
        try:
            return values.read_next(source, values.version)
        except StateError as error:
            raise UnknownEndError(
                f"{error.problem}, so that the end of this {self.java_class} is not known",
                place=error.place,
                remedy=error.remedy,
            ) from error
