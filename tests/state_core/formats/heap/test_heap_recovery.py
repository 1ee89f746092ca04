"""Values of the heap's format that only their class could walk: cut where there is one way."""

from __future__ import annotations

import lzma
import struct
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, count, islice, pairwise, permutations
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from statelake import open_snapshot
from statelake.state_core.formats.keyed.heap.heap_recovery import (
    AmbiguousError,
    Chains,
    StateCut,
    entry_starts,
    recover_states,
)
from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata, write_metadata
from statelake.state_core.integrity import check_snapshot
from statelake.state_core.model.handles import InlineHandle, KeyGroupsHandle, RelativeHandle
from statelake.state_core.model.key_groups import key_group_of
from statelake.state_core.serializers.basic.numbers import LongSerializer
from statelake.state_core.serializers.composite.wrappers import VoidNamespaceSerializer
from tests.support.savepoints.golden_cases import GOLDEN

LONG = LongSerializer()
PARTS = VoidNamespaceSerializer(), LONG
GROUPS = 4096
KEY = 7
GROUP = key_group_of(LONG.hash_code(KEY), GROUPS)
KEYS = list(islice((key for key in count() if key_group_of(key, GROUPS) == GROUP), 12))
HEAD = struct.Struct(">hi")


def places_of(data: bytes) -> tuple[list[int], list[int]]:
    """Where an entry may begin, and its value."""
    return entry_starts(data, PARTS, GROUP, GROUPS)


def walk(data: bytes, begin: int, count: int) -> int | None:
    """The state that is not opaque has eight bytes for each key."""
    end = begin + 17 * count
    return end if end <= len(data) else None


def recovered(data: bytes, states: int, opaque: set[int]) -> list[StateCut]:
    """The cut of a key group, of states by Longs."""
    return recover_states(
        data, opaque, states, lambda _, at, count: walk(data, at, count), lambda _: places_of(data)
    )


def all_cuts(data: bytes, states: int, opaque: set[int]) -> Iterator[tuple[object, ...]]:
    """Every way to cut the bytes, tried one after the other."""
    starts, bodies = places_of(data)
    body_of = dict(zip(starts, bodies, strict=True))

    def rest(at: int, order: tuple[int, ...]) -> Iterator[tuple[object, ...]]:
        if not order:
            if at == len(data):
                yield ()
            return
        if at + HEAD.size > len(data):
            return
        state, entries = HEAD.unpack_from(data, at)
        begin = at + HEAD.size
        if state != order[0] or not 0 <= entries <= len(data) - begin:
            return
        if state not in opaque or not entries:
            end = walk(data, begin, entries)
            for behind in rest(end, order[1:]) if end is not None else ():
                yield ((state, end), *behind)
            return
        if begin not in body_of:
            return
        for end in range(begin, len(data) + 1):
            behinds = list(rest(end, order[1:]))
            inner = [one for one in starts if begin < one < end] if behinds else []
            for chosen in combinations(inner, entries - 1):
                chain = (begin, *chosen, end)
                if all(body_of[a] <= b for a, b in pairwise(chain)):
                    for behind in behinds:
                        yield ((state, chain), *behind)

    for order in permutations(range(states)):
        yield from rest(0, order)


def entry(key: int, value: bytes) -> bytes:
    """An entry of the heap: namespace, key, state."""
    return b"\0" + struct.pack(">q", key) + value


def state_of(state: int, entries: list[bytes]) -> bytes:
    """A state of a key group."""
    return HEAD.pack(state, len(entries)) + b"".join(entries)


adversarial = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([b"", b"\0", bytes(9), b"\0\1\0\0\0\0", b"\0\0\0\0\0\0", b"\0\1\0\0\0\1"]),
    st.sampled_from(KEYS).map(lambda key: entry(key, b"")),
    st.sampled_from(KEYS).map(lambda key: b"x" + entry(key, b"y")),
)
values = st.lists(adversarial, max_size=2)


@settings(max_examples=20)
@given(values, values, st.lists(st.integers(0, 2**62), max_size=2), st.permutations([0, 1, 2]))
def test_the_cut_is_the_only_one_or_refused(
    first: list[bytes], second: list[bytes], known: list[int], order: list[int]
) -> None:
    """Against all ways there are, of values that look like entries and like heads of states."""
    parts = {
        0: state_of(0, [entry(key, value) for key, value in zip(KEYS, first, strict=False)]),
        1: state_of(1, [entry(KEY, struct.pack(">q", value)) for value in known]),
        2: state_of(2, [entry(key, value) for key, value in zip(KEYS, second, strict=False)]),
    }
    data = b"".join(parts[state] for state in order)
    ways = set(all_cuts(data, 3, {0, 2}))
    assert ways
    try:
        cuts = recovered(data, 3, {0, 2})
    except AmbiguousError:
        assert len(ways) > 1
        return
    assert len(ways) == 1
    assert [cut.state for cut in cuts] == order
    for cut in cuts:
        written = first if cut.state == 0 else second
        if cut.starts is not None:
            ends = [*cut.starts[1:].tolist(), cut.end]
            found = [data[a + 9 : b] for a, b in zip(cut.starts.tolist(), ends, strict=True)]
            assert found == written


@settings(max_examples=20)
@given(st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=12))
def test_random_values_are_found(written: list[bytes]) -> None:
    """Of so many key groups hardly any bytes look like a key of this one."""
    entries = [entry(key, value) for key, value in zip(KEYS, written, strict=False)]
    data = state_of(0, entries)
    starts, _ = places_of(data)
    assume(len([at for at in starts if at >= HEAD.size]) == len(written))
    (cut,) = recovered(data, 1, {0})
    assert cut.starts is not None
    lengths = [len(one) for one in entries]
    assert [b - a for a, b in zip(cut.starts, [*cut.starts[1:], cut.end], strict=True)] == lengths


def test_a_value_that_holds_an_entry_is_refused() -> None:
    """It may as well be an entry, and the one behind it a part of its value."""
    inside = b"value" + entry(KEYS[2], b"inside")
    data = state_of(0, [entry(KEYS[0], inside), entry(KEYS[1], b"value")])
    with pytest.raises(AmbiguousError, match="more ways than one"):
        recovered(data, 1, {0})


def test_bytes_that_fit_in_no_way_are_refused() -> None:
    """More entries are declared than there can be."""
    data = HEAD.pack(0, 2) + entry(KEY, b"value")
    with pytest.raises(AmbiguousError, match="in no way"):
        recovered(data, 1, {0})


def test_work_is_bounded() -> None:
    """Heads of states without end, each of which the rest might follow."""
    data = state_of(0, [entry(KEY, b"\0\1\0\0\0\1" * 200)]) + b"!"
    with pytest.raises(AmbiguousError):
        recovered(data, 3, {0, 1, 2})


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 8)), min_size=1, max_size=6))
def test_chains_are_counted(places: list[tuple[int, int]]) -> None:
    """As all subsets say."""
    spans = dict(sorted(places))
    starts = sorted(spans)
    bodies = [start + spans[start] for start in starts]
    body_of = dict(zip(starts, bodies, strict=True))
    chains = Chains(starts, bodies)
    for end in range(30):
        for entries in range(1, len(starts) + 2):
            ways = [
                (starts[0], *chosen)
                for chosen in combinations(starts[1:], entries - 1)
                if all(
                    body_of[a] <= b
                    for a, b in zip(
                        (starts[0], *chosen), (*chosen, end), strict=True
                    )
                )
            ]  # fmt: skip
            assert chains.ways_to(end, entries) == min(2, len(ways))
            if len(ways) == 1:
                assert tuple(chains.cut(end, entries).tolist()) == ways[0]


def few(form: str, to: Path) -> Path:
    """A savepoint of real Flink, of a job whose serializers are its own."""
    to.mkdir()
    packed = (GOLDEN / "own" / f"few-{form}.metadata.xz").read_bytes()
    (to / "_metadata").write_bytes(lzma.decompress(packed))
    return to


@pytest.mark.full
def test_flinks_heap_with_serializers_of_its_own(tmp_path: Path) -> None:
    """The native savepoint has, entry by entry, what the canonical one has, which has lengths.

    21 of its key groups can be cut in one way only because the order of states is known.
    """
    native = open_snapshot(few("native", tmp_path / "native")).operator("own")
    canonical = open_snapshot(few("canonical", tmp_path / "canonical")).operator("own")
    for state in canonical.keyed_states:
        found, wanted = (
            sorted(map(repr, one.to_arrow().to_pylist()))
            for one in (native.state(state.name), state)
        )
        assert found == wanted
    assert canonical.state("money").to_arrow().num_rows == 40


def test_of_a_file_that_was_cut_off_no_value_is_taken(tmp_path: Path) -> None:
    """Its last value would seem to end where the file does."""
    place = few("native", tmp_path / "native")
    metadata = read_metadata((place / "_metadata").read_bytes())
    keyed, *_ = (
        subtask
        for operator in metadata.operators
        for subtask in (operator.subtasks or {}).values()
        if isinstance(subtask.managed_keyed, KeyGroupsHandle)
    )
    handle = keyed.managed_keyed
    assert isinstance(handle, KeyGroupsHandle)
    assert isinstance(handle.stream, InlineHandle)
    data = handle.stream.data
    keyed.managed_keyed = replace(handle, stream=RelativeHandle("state", len(data)))
    (place / "_metadata").write_bytes(write_metadata(metadata))
    (place / "state").write_bytes(data)
    assert not check_snapshot(place).faults
    assert not any("only its class" in str(one) for one in check_snapshot(place).unchecked)
    (place / "state").write_bytes(data[:-1])
    report = check_snapshot(place)
    assert report.faults
    assert any("only its class knows" in str(unchecked) for unchecked in report.unchecked)
