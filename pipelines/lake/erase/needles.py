"""A key in every form in which it may stand in bytes.

Forms that say too little are left out: `42` is in every lake. What is left out is said, and such a
key is looked for by structure alone.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from pipelines.keys import key_from_text
from pipelines.lake.erase.requests import ErasureRequest, words_of
from pipelines.lake.tables.records import SnapshotRecord
from state_core.errors import EncodeError
from state_core.formats.layout.keys import encode_keys, key_serializer_of
from state_core.serializers.framework.base import TypeSerializer

__all__ = ["LEAST_BYTES", "Needle", "needles_of", "whole_forms"]

LEAST_BYTES = 5  # that are neither 0x00 nor 0xff, of which numbers have many in front


@dataclass(frozen=True)
class Needle:
    """A form that is searched for.

    Attributes:
        word: The index, among the request's words, of the one that it is a form of.
        form: What it is called.
        data: The bytes.
        digits: Whether it is a number as text, which is none of ours within a longer word.
    """

    word: int
    form: str
    data: bytes
    digits: bool = False


def needles_of(
    asked: ErasureRequest, records: Iterable[SnapshotRecord]
) -> tuple[list[Needle], list[str]]:
    """All forms of what was asked, and forms that say too little.

    Args:
        asked: What was erased.
        records: Snapshots, whose operators say how keys are written.

    Returns:
        The forms, and the names of those that are not searched for.
    """
    serializers = _key_serializers(records)
    keys = set(asked.keys)
    forms: dict[bytes, Needle] = {}
    short: dict[str, None] = {}
    for number, word in enumerate(words_of(asked)):
        plain = [("text", word.encode())]
        if word in keys:
            for serializer in serializers:
                plain += _written(serializer, word)
        for name, data in plain:
            for form, coded in _coded(name, data):
                if len(coded.strip(b"\x00\xff")) < LEAST_BYTES:
                    short[form] = None
                elif coded not in forms:
                    digits = form == "text" and word.lstrip("-").isdigit()
                    forms[coded] = Needle(number, form, coded, digits)
    return list(forms.values()), list(short)


def whole_forms(asked: ErasureRequest, records: Iterable[SnapshotRecord]) -> set[bytes]:
    """What a key may be as a whole where bytes are keys, however short: text, JSON, or serialized.

    Args:
        asked: What is to be erased.
        records: Snapshots, whose operators say how keys are written.
    """
    serializers = _key_serializers(records)
    words = words_of(ErasureRequest("", asked.keys))
    forms = {form.encode() for word in words for form in (word, json.dumps(word))}
    for word in asked.keys:
        for serializer in serializers:
            forms.update(data for _, data in _written(serializer, word))
        if re.fullmatch(r"-?\d{1,19}", word, re.ASCII):
            for size in (4, 8):  # as serdes of any framework write numbers
                with suppress(OverflowError):
                    forms.add(int(word).to_bytes(size, "big", signed=True))
    return forms - {b""}


def _key_serializers(records: Iterable[SnapshotRecord]) -> list[TypeSerializer]:
    """What writes the keys of operators, each once."""
    snapshots = {
        operator.key_serializer
        for record in records
        for operator in record.operators
        if operator.states
    }
    return [key_serializer_of(snapshot) for snapshot in sorted(snapshots)]


def _written(key: TypeSerializer, word: str) -> Iterator[tuple[str, bytes]]:
    """A key as its serializer writes it, and as a column of Parquet's holds it."""
    with suppress(EncodeError):
        column = pa.array([key_from_text(word, key)], key.arrow_type)
        yield f"{key.name}, serialized", encode_keys(key, column)[0].as_py()
        kind = column.type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind):
            size = kind.bit_width // 8
            data = bytes(column.buffers()[1])[:size]
            yield f"{key.name} in a column", data
            if pa.types.is_integer(kind) and size < 4:  # Parquet has no shorter number
                yield (
                    f"{key.name} in a column",
                    column.cast(pa.int32()).buffers()[1][:4].to_pybytes(),
                )
        elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            yield f"{key.name} in a column", column[0].as_py()


def _coded(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    """Bytes as they are, and in the codes in which JSON holds bytes."""
    yield name, data
    yield f"{name}, hexadecimal", data.hex().encode()
    yield f"{name}, hexadecimal", data.hex().upper().encode()
    for before in range(3):  # how many bytes of a group of three are something else's
        coded = base64.b64encode(bytes(before) + data)
        first, last = -(-before * 8 // 6), (before + len(data)) * 8 // 6
        for code in {coded, coded.replace(b"+", b"-").replace(b"/", b"_")}:
            yield f"{name}, base64", code[first:last]
