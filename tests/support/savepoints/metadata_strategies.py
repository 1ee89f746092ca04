"""Any `_metadata` that could be: Hypothesis strategies for handles, operators and whole files."""

from __future__ import annotations

from hypothesis import strategies as st

from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    MasterState,
    OperatorMetadata,
    SubtaskState,
)
from statelake.state_core.model.handles import (
    ChangelogByteHandle,
    ChangelogFileHandle,
    ChangelogHandle,
    ChannelHandle,
    DistributionMode,
    EmptySegmentHandle,
    FileHandle,
    IncrementalHandle,
    InlineHandle,
    KeyGroupsHandle,
    KeyGroupsKind,
    MergedChannelPart,
    NestedKeyGroupsHandle,
    OperatorHandle,
    PartitionOffsets,
    RelativeHandle,
    SegmentHandle,
)

__all__ = ["key_groups_handles", "metadata_of", "streams"]

ANY_CHARACTER = st.characters(exclude_categories=())
texts = st.text(ANY_CHARACTER, max_size=12).map(
    lambda text: text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
)
sizes = st.integers(0, 2**63 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
small_ints = st.integers(0, 2**31 - 1)
groups = st.tuples(st.integers(0, 2**14), st.integers(0, 2**14))
offsets = st.lists(sizes, max_size=4).map(tuple)
any_offsets = st.lists(longs, max_size=4).map(tuple)
inline = st.builds(InlineHandle, texts, st.binary(max_size=20))
plain_streams = (
    inline
    | st.builds(RelativeHandle, texts, sizes)
    | st.builds(FileHandle, texts, sizes)
    | st.builds(SegmentHandle, sizes, sizes, st.integers(0, 1), texts, texts)
    | st.just(EmptySegmentHandle())
)
streams = st.none() | st.recursive(
    plain_streams,
    lambda inner: st.builds(NestedKeyGroupsHandle, small_ints.map(lambda n: n % 9), offsets, inner),
    max_leaves=3,
)
files = st.lists(st.tuples(texts, streams), max_size=3).map(tuple)


@st.composite
def key_groups_handles(draw: st.DrawFn) -> KeyGroupsHandle:
    """A handle of key groups; only the newest tag has an id."""
    kind = draw(st.sampled_from(KeyGroupsKind))
    handle_id = draw(texts) if kind is KeyGroupsKind.NATIVE else ""
    return KeyGroupsHandle(kind, draw(st.integers(0, 9)), draw(offsets), draw(streams), handle_id)


@st.composite
def ranged(draw: st.DrawFn, build: type, *rest: st.SearchStrategy[object]) -> object:
    """A handle that begins with a range of key groups."""
    return build(*draw(groups), *(draw(part) for part in rest))


changes = st.lists(st.tuples(st.integers(-1, 200), st.binary(max_size=8)), max_size=3).map(tuple)
incremental = st.builds(
    lambda n, backend, span, *rest: IncrementalHandle(n, backend, *span, *rest),
    longs, texts, groups, streams, files, files, longs, texts,
)  # fmt: skip
flat_keyed = (
    key_groups_handles()
    | incremental
    | ranged(ChangelogByteHandle, longs, longs, changes, texts)
    | ranged(
        ChangelogFileHandle,
        st.lists(st.tuples(longs, streams), max_size=2).map(tuple),
        longs, longs, texts, texts,
    )
)  # fmt: skip
keyed = st.none() | st.recursive(
    flat_keyed,
    lambda inner: ranged(
        ChangelogHandle,
        longs,
        st.lists(st.none() | inner, max_size=2).map(tuple),
        st.lists(st.none() | inner, max_size=2).map(tuple),
        longs, longs, texts,
    ),
    max_leaves=4,
)  # fmt: skip
parts = st.builds(PartitionOffsets, st.sampled_from(DistributionMode), any_offsets)
operator_handles = st.builds(
    OperatorHandle, st.dictionaries(texts, parts, max_size=3), streams
) | st.builds(
    OperatorHandle,
    st.dictionaries(texts, parts, max_size=3),
    streams,
    st.tuples(texts, texts),
    st.booleans(),
)
ints = st.integers(-(2**31), 2**31 - 1)


@st.composite
def channels(draw: st.DrawFn, kind: int, merged: bool) -> ChannelHandle:
    """In-flight buffers of one channel, or merged ones of several."""
    stream = draw(streams)
    if not merged:
        size = draw(sizes)
        part = MergedChannelPart(draw(ints), draw(ints), size, draw(any_offsets))
        return ChannelHandle(kind, draw(ints), (part,), size, stream)
    held = st.builds(MergedChannelPart, ints, ints, longs, any_offsets)
    found = tuple(draw(st.lists(held, max_size=3)))
    return ChannelHandle(kind + 2, draw(ints), found, draw(sizes), stream)


def channel_lists(kind: int, version: int) -> st.SearchStrategy[tuple[ChannelHandle, ...]]:
    """Merged buffers exist from version 6 on."""
    merged = st.booleans() if version >= 6 else st.just(False)
    return st.lists(merged.flatmap(lambda is_merged: channels(kind, is_merged)), max_size=2).map(
        tuple
    )


def subtasks(version: int) -> st.SearchStrategy[SubtaskState]:
    """One subtask's state, or one that had finished."""
    held = st.none() | operator_handles
    return st.builds(SubtaskState, finished=st.just(True)) | st.builds(
        SubtaskState, held, held, keyed, keyed, channel_lists(1, version), channel_lists(2, version)
    )


@st.composite
def operators(draw: st.DrawFn, version: int) -> OperatorMetadata:
    """One operator; a fully finished one has no coordinator state."""
    named = texts if version >= 5 else st.just("")
    operator_id = draw(st.binary(min_size=16, max_size=16)).hex()
    limits = draw(st.integers(1, 40)), draw(st.integers(1, 2**15))
    name, uid = draw(named), draw(named)
    if draw(st.integers(0, 4)) == 0:
        return OperatorMetadata(operator_id, *limits, name, uid, None, None)
    indexes = st.integers(0, limits[0] - 1)
    states = draw(st.dictionaries(indexes, subtasks(version), max_size=3))
    return OperatorMetadata(operator_id, *limits, name, uid, draw(st.none() | inline), states)


masters = st.builds(MasterState, texts, ints, st.binary(max_size=9))


@st.composite
def metadata_of(draw: st.DrawFn, version: int) -> CheckpointMetadata:
    """Any content that a version can hold."""
    return CheckpointMetadata(
        version,
        draw(sizes),
        draw(st.lists(operators(version), max_size=3)),
        draw(st.lists(masters, max_size=2)),
        draw(st.binary(max_size=9)) if version >= 4 else b"",
    )
