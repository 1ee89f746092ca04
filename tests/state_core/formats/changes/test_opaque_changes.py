"""Changes to elements of which only their class knows where they end: a change has a length."""

from __future__ import annotations

import struct

import pytest

from statelake.state_core.errors import UnsupportedFormatError
from statelake.state_core.formats.keyed.changelog.change_tables import table_of
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.basic.numbers import LongSerializer
from statelake.state_core.serializers.composite.wrappers import VoidNamespaceSerializer
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer

LONG, VOID, OWN = LongSerializer(), VoidNamespaceSerializer(), OpaqueSerializer("Own")
KEY, ADD = struct.pack(">q", 7), 3


def added(layout: KeyedLayout, content: bytes) -> dict[bytes, bytes]:
    """What a state holds after one change that adds."""
    table = table_of(layout)
    table.add(ADD, KEY + b"\0", KEY, content)
    return dict(table.apply())


@pytest.mark.parametrize("with_ttl", [False, True])
def test_one_element_ends_with_its_change(with_ttl: bool) -> None:
    """Of a list, and of a map; of several nothing says where one ends."""
    value = bytes(8) * with_ttl + b"own, value"
    of_list = KeyedLayout(StateKind.LIST, LONG, VOID, OWN, with_ttl=with_ttl)
    of_map = KeyedLayout(StateKind.MAP, LONG, VOID, OWN, LONG, with_ttl=with_ttl)
    entry = struct.pack(">q?", 5, False) + value
    one, two = struct.pack(">i", 1), struct.pack(">i", 2)
    assert added(of_list, one + value) == {KEY + b"\0": value}
    assert added(of_map, one + entry) == {KEY + b"\0" + entry[:8]: b"\0" + value}
    for layout, content in ((of_list, value), (of_map, entry)):
        with pytest.raises(UnsupportedFormatError, match="only its class knows"):
            added(layout, two + content + content)
