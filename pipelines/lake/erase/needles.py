"""Needles: a key in every form in which bytes, and the notes of snapshots, may hold it.

Forms that are too short are left out: `42` is in every lake. They are reported, and such a key is
searched by structure only.
"""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote, quote_plus, unquote, unquote_plus

import pyarrow as pa

from statelake.pipelines.keys import key_from_text
from statelake.pipelines.lake.erase.requests import ErasureRequest, only_field, words_of
from statelake.pipelines.lake.query.literals import text_literals, unescaped, without_literals
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.state_core.errors import EncodeError
from statelake.state_core.formats.layout.keys import encode_keys, key_serializer_of
from statelake.state_core.serializers.framework.base import TypeSerializer

KRYO_LENGTH = 64  # longer ASCII texts are written like other texts
SHORT = 64  # a shorter text has a length of one byte
LEAST_BYTES = 5  # without leading and trailing 0x00 and 0xff, which are frequent in numbers
REDACTED = "[erased]"
_HTML = re.compile(r"[&'<=>]")  # characters that Gson, and encoders for web pages, escape in JSON
_PERCENT = re.compile(r"%[0-9A-F]{2}")
_UNRESERVED = ("", "/", "!'()*~")  # by different encoders
_STATEMENT = re.compile(r"\b(?:DELETE\s+FROM|UPDATE|INSERT\s+INTO)\s.*", re.IGNORECASE | re.DOTALL)
_CODE = r"[0-9A-Za-z+/_=-]*"


@dataclass(frozen=True)
class Needle:
    """A form of a word, to be searched.

    Attributes:
        word: The index of its word among the request's words.
        form: Its name.
        data: The bytes.
        digits: Whether it is a number as text, which does not count within a longer word.
    """

    word: int
    form: str
    data: bytes
    digits: bool = False


def needles_of(
    request: ErasureRequest, records: Iterable[SnapshotRecord]
) -> tuple[list[Needle], list[str]]:
    """Return all forms of a request's words, and the names of those that are too short.

    Args:
        request: The request.
        records: Snapshots, whose operators have the key serializers.

    Returns:
        The forms, and the names of those that are not searched.
    """
    serializers = _key_serializers(records)
    keys = set(request.keys)
    forms: dict[bytes, Needle] = {}
    short: dict[str, None] = {}
    words = words_of(request)
    words += [field for key in request.keys for field in only_field(key) if field not in words]
    for number, word in enumerate(words):
        plain = [("text", _bytes(normal)) for normal in _normal_forms(word)]
        if word in keys:
            for normal in _normal_forms(word):
                for serializer in serializers:
                    plain += _written(serializer, normal)
        plain += _of_kryo(word)
        coded = [form for name, data in plain for form in _coded(name, data)]
        if len(word) >= LEAST_BYTES:  # an escape is long even for one character
            coded += _behind_lengths(word) if _is_number(word) else ()
            coded += [(name, _bytes(text)) for name, text in spellings(word)]
        for form, data in coded:
            if len(data.strip(b"\x00\xff")) < LEAST_BYTES:
                short[form] = None
            elif data not in forms:
                digits = form == "text" and _is_number(word)
                forms[data] = Needle(number, form, data, digits)
    return list(forms.values()), list(short)


def without_words(record: SnapshotRecord, words: Sequence[str]) -> str:
    """Return a snapshot's note without whole words, in whatever form it has them.

    The SQL statements of a note with such a word lose all their literals: a literal beside a key
    may be its value. If that is not enough, the whole note is redacted.

    Args:
        record: The snapshot.
        words: The words.
    """
    note = record.note
    if not mentions(note, words):
        return note
    note = _STATEMENT.sub(lambda match: without_literals(match[0]), note)
    for word in words:
        for text in dict.fromkeys((*_normal_forms(word), *(each for _, each in spellings(word)))):
            note = _whole(text).sub(REDACTED, note)
        for code in _codes(word):
            note = re.sub(f"{_CODE}{re.escape(code)}{_CODE}", REDACTED, note)
    return REDACTED if mentions(note, words) else note


def mentions(note: str, words: Sequence[str]) -> bool:
    """Return whether a note has one of some words, plain or escaped."""
    texts = {note, *text_literals(note), unquote(note), unquote_plus(note), unescaped(note)}
    texts |= {unescaped(text) for text in texts} | {text.replace("''", "'") for text in texts}
    texts = {unicodedata.normalize("NFC", text) for text in texts}
    wholes = [_whole(unicodedata.normalize("NFC", word)) for word in words]
    return any(pattern.search(text) for pattern in wholes for text in texts) or any(
        code in note for word in words for code in _codes(word)
    )


def _whole(word: str) -> re.Pattern[str]:
    """Return a pattern of a word that is not part of another; long words match in any case."""
    flags = re.IGNORECASE if len(word) >= LEAST_BYTES else 0
    return re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", flags)


def _codes(word: str) -> set[str]:
    """Return a word in hexadecimal and in base64, if it is long enough."""
    if len(word) < LEAST_BYTES:
        return set()
    forms = (form for normal in _normal_forms(word) for form in _coded("", _bytes(normal)))
    return {data.decode("ascii") for name, data in forms if name}


def whole_forms(request: ErasureRequest, records: Iterable[SnapshotRecord]) -> set[bytes]:
    """Return the forms of keys that are compared with whole keys, however short.

    They are text, JSON, and serialized keys.

    Args:
        request: The request.
        records: Snapshots, whose operators have the key serializers.
    """
    serializers = _key_serializers(records)
    words = words_of(ErasureRequest("", request.keys))
    forms = {form.encode() for word in words for form in (word, json.dumps(word))}
    for word in request.keys:
        for serializer in serializers:
            forms.update(data for _, data in _written(serializer, word))
        if re.fullmatch(r"-?\d{1,19}", word, re.ASCII):
            for size in (4, 8):  # numbers as serdes of any framework write them
                with suppress(OverflowError):
                    forms.add(int(word).to_bytes(size, "big", signed=True))
    return forms - {b""}


def _key_serializers(records: Iterable[SnapshotRecord]) -> list[TypeSerializer]:
    """Return the key serializers of operators, each once, with and without names of columns."""
    snapshots = {
        (operator.key_serializer, names)
        for record in records
        for operator in record.operators
        if operator.states
        for names in {(), tuple(operator.key_names)}
    }
    return [key_serializer_of(snapshot, names=names) for snapshot, names in sorted(snapshots)]


def _written(key: TypeSerializer, word: str) -> Iterator[tuple[str, bytes]]:
    """Yield a key as its serializer writes it, and as a Parquet column holds it."""
    with suppress(EncodeError):
        column = pa.array([key_from_text(word, key)], key.arrow_type)
        yield f"{key.name}, serialized", encode_keys(key, column)[0].as_py()
        while pa.types.is_struct(column.type) and column.type.num_fields == 1:
            column = column.field(0)
        kind = column.type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind):
            size = kind.bit_width // 8
            data = bytes(column.buffers()[1])[:size]
            yield f"{key.name} in a column", data
            if pa.types.is_integer(kind) and size < 4:  # Parquet has no shorter integers
                yield (
                    f"{key.name} in a column",
                    column.cast(pa.int32()).buffers()[1][:4].to_pybytes(),
                )
        elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            yield f"{key.name} in a column", column[0].as_py()


def _is_number(word: str) -> bool:
    return word.lstrip("-").isdigit()


def _of_kryo(word: str) -> Iterator[tuple[str, bytes]]:
    """Yield a short ASCII text as Kryo writes it, with a flag in the last character."""
    if word.isascii() and 1 < len(word) < KRYO_LENGTH:
        data = _bytes(word)
        yield "text of Kryo's", data[:-1] + bytes([data[-1] | 0x80])


def _behind_lengths(word: str) -> Iterator[tuple[str, bytes]]:
    """Yield a text after its length, so that it is whole even if a letter follows."""
    data = _bytes(word)
    size = len(data)
    if size < SHORT:
        yield "text of Flink's", bytes([size + 1]) + data
        yield "text of Avro's", bytes([2 * size]) + data
    yield "text of Java's", size.to_bytes(2, "big") + data
    yield "text of Parquet's", size.to_bytes(4, "little") + data


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _normal_forms(word: str) -> list[str]:
    """Return a word, and its equivalent normal forms of Unicode, NFC and NFD."""
    return list(
        dict.fromkeys((word, *(unicodedata.normalize(form, word) for form in ("NFC", "NFD"))))
    )


def spellings(word: str) -> Iterator[tuple[str, str]]:
    """Yield a word as it is escaped in SQL, JSON, SQL within JSON, and addresses."""
    for normal in _normal_forms(word):
        escaped = normal.replace("\\", "\\\\")
        in_sql = {
            normal.replace("'", "''"),
            escaped.replace("'", "\\'"),
            escaped.replace("'", "''"),
        }
        yield from (("text in SQL", text) for text in sorted(in_sql))
        for text in (normal, *sorted(in_sql)):
            yield from (("text in JSON", each) for each in _in_json(text))
        for unreserved in _UNRESERVED:
            for encode in (quote, quote_plus):
                coded = encode(_bytes(normal), safe=unreserved)
                yield "text in an address", coded
                yield "text in an address", _PERCENT.sub(lambda match: match[0].lower(), coded)


def _in_json(text: str) -> Iterator[str]:
    """Yield a text as encoders of JSON escape it, also as JSON within JSON."""
    for ascii_alone in (False, True):
        coded = json.dumps(text, ensure_ascii=ascii_alone)[1:-1]
        for written in (
            coded,
            coded.replace("/", "\\/"),
            _HTML.sub(lambda match: f"\\u{ord(match[0]):04x}", coded),
        ):
            upper = re.sub(r"\\u[0-9a-f]{4}", lambda match: "\\u" + match[0][2:].upper(), written)
            for each in (written, upper):
                yield each
                yield json.dumps(each)[1:-1]


def _coded(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield bytes as they are, and in the encodings of bytes in JSON."""
    yield name, data
    yield f"{name}, hexadecimal", data.hex().encode()
    yield f"{name}, hexadecimal", data.hex().upper().encode()
    for before in range(3):  # the bytes of a group of three that come before
        coded = base64.b64encode(bytes(before) + data)
        first, last = -(-before * 8 // 6), (before + len(data)) * 8 // 6
        for code in {coded, coded.replace(b"+", b"-").replace(b"/", b"_")}:
            yield f"{name}, base64", code[first:last]
