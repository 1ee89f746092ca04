"""Keys alone, by which rows are chosen: typed or as exact bytes, in every kind of state."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from statelake.state_core.errors import (
    CorruptSnapshotError,
    EncodeError,
    KeyGroupError,
    UnknownHashError,
)
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.layout.keys import encode_keys, keys_of
from statelake.state_core.formats.writing.rehash import assign_key_groups
from statelake.state_core.formats.writing.unified_encode import StateRows, key_bytes
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.basic.numbers import LongSerializer
from statelake.state_core.serializers.basic.text import StringSerializer
from statelake.state_core.serializers.composite.pojo import PojoSerializer
from statelake.state_core.serializers.composite.wrappers import VoidNamespaceSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer
from tests.support.serializers.serializer_columns import write

LONG, TEXT, VOID = LongSerializer(), StringSerializer(), VoidNamespaceSerializer()
ODD = "x\ud800"  # half a character: no column can hold it
NAMES = ("plain", ODD, "", "x\ufffd")


def entries_of(keys: list[bytes], value: bytes) -> Entries:
    """Entries of these keys, all with the same value."""
    pieces = [piece for key in keys for piece in (key, value)]
    ends = np.cumsum([len(piece) for piece in pieces]).astype(np.int64)
    starts = np.concatenate(([0], ends[:-1])).astype(np.int64)
    return Entries(
        np.frombuffer(b"".join(pieces), np.uint8),
        np.zeros(len(keys), np.int16),
        np.zeros(len(keys), np.int64),
        starts[::2].copy(), ends[::2].copy(), starts[1::2].copy(), ends[1::2].copy(),
        lambda at: f"byte {at}",
    )  # fmt: skip


def rows_of(layout: KeyedLayout, keys: list[bytes], value: bytes) -> StateRows:
    """Rows decoded from entries of these keys, all with the same value."""
    return StateRows(0, "s", layout, layout.decode(entries_of(keys, value)))


LAYOUTS = {
    "value": (KeyedLayout(StateKind.VALUE, TEXT, VOID, LONG), b"", b"\0"),
    "map": (KeyedLayout(StateKind.MAP, TEXT, VOID, LONG, LONG), b"", b"\0" + bytes(8)),
    "window": (KeyedLayout(StateKind.VALUE, TEXT, LONG, LONG), b"", bytes(8)),
    "timers": (KeyedLayout(StateKind.TIMERS, TEXT, VOID), b"\x80" + bytes(7), b"\0"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_keys_without_what_stands_around_them(name: str) -> None:
    """No timestamp before, no namespace, length or user key behind; exact bytes where they are."""
    layout, before, behind = LAYOUTS[name]
    keys = [write(TEXT, other) for other in NAMES]
    value = b"" if name == "timers" else (b"\0" if name == "map" else b"") + bytes(8)
    rows = rows_of(layout, [before + key + behind for key in keys], value)
    assert rows.batch.column("raw_key").null_count == len(NAMES) - 1
    assert key_bytes(rows).to_pylist() == keys
    typed = [other for other in NAMES if other != ODD]
    listed = encode_keys(TEXT, pa.array(typed)).to_pylist()
    assert [key in listed for key in keys] == [other != ODD for other in NAMES]


def test_two_keys_of_variable_length_are_told_apart_by_their_trailers() -> None:
    """Where the namespace is text too, lengths stand behind both."""
    layout = KeyedLayout(StateKind.VALUE, TEXT, TEXT, LONG)
    assert layout.ambiguous
    keys = [write(TEXT, name) for name in NAMES]
    space = write(TEXT, "w")
    raw = [key + bytes([len(key)]) + space + bytes([len(space)]) for key in keys]
    assert key_bytes(rows_of(layout, raw, bytes(8))).to_pylist() == keys


def test_keys_whose_end_only_the_job_knows() -> None:
    """They can't be chosen by, nor can anybody say where they belong."""
    layout = KeyedLayout(StateKind.VALUE, OpaqueSerializer("acme.Key"), TEXT, LONG)
    rows = rows_of(layout, [b"anything"], bytes(8))
    with pytest.raises(EncodeError, match="whose end only the job knows"):
        key_bytes(rows)
    with pytest.raises(UnknownHashError, match="whose hash is not known"):
        assign_key_groups(rows, 128)


@pytest.mark.parametrize(
    "layout",
    [
        KeyedLayout(StateKind.TIMERS, OpaqueSerializer("acme.Key"), VOID),
        KeyedLayout(StateKind.TIMERS, LONG, OpaqueSerializer("acme.Window")),
        KeyedLayout(StateKind.MAP, OpaqueSerializer("acme.Key"), VOID, LONG, LONG),
    ],
    ids=["timers of keys", "timers of windows", "map"],
)
def test_keys_whose_end_only_the_job_knows_come_back(layout: KeyedLayout) -> None:
    """All of them as one, behind the time of a timer."""
    timers = layout.kind is StateKind.TIMERS
    raw = [b"\x80" + bytes(6) + b"\x07" + key for key in (b"anything", b"", b"\0")]
    batch = rows_of(layout, raw, b"" if timers else bytes(9)).batch
    if timers:
        assert batch.column("timestamp").to_pylist() == [7, 7, 7]
        assert batch.column("key").to_pylist() == [key[8:] for key in raw]
    assert layout.key_writer(batch).to_binary().to_pylist() == raw


@pytest.mark.parametrize("piece", [b"", b"\x80\0\0"])
@pytest.mark.parametrize("kind", [StateKind.VALUE, StateKind.TIMERS])
@pytest.mark.parametrize("key", [OpaqueSerializer("acme.Key"), LONG], ids=["opaque", "Long"])
def test_key_bytes_that_are_too_short(kind: StateKind, key: TypeSerializer, piece: bytes) -> None:
    """Shorter than a namespace, or the time of a timer: whoever reads them tells of damage."""
    layout = KeyedLayout(kind, key, LONG, None if kind is StateKind.TIMERS else LONG)
    value = b"" if kind is StateKind.TIMERS else bytes(8)
    entries = entries_of([piece, piece], value)
    with pytest.raises(CorruptSnapshotError):
        layout.decode(entries)
    if not layout.opaque_key:  # whose keys are all of the bytes
        with pytest.raises(CorruptSnapshotError):
            keys_of(layout, entries)


def test_keys_whose_class_alone_knows_its_hash() -> None:
    """That is another error than a key in a key group that is not its own."""
    pojo = PojoSerializer("acme.P", [("name", TEXT)])
    layout = KeyedLayout(StateKind.VALUE, pojo, VOID, LONG)
    keys = [write(pojo, {"name": "a"})]
    rows = rows_of(layout, [key + b"\0" for key in keys], bytes(8))
    assert key_bytes(rows).to_pylist() == keys
    with pytest.raises(UnknownHashError, match=r"state 's': .*can't be derived") as raised:
        assign_key_groups(rows, 128)
    assert isinstance(raised.value, KeyGroupError)
