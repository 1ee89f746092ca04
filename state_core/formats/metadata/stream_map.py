"""The streams of a `_metadata`: change all, or those outside managed keyed state; list files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    SubtaskState,
)
from statelake.state_core.model.handles import (
    ChangelogFileHandle,
    ChangelogHandle,
    ChannelHandle,
    IncrementalHandle,
    KeyedHandle,
    KeyGroupsHandle,
    NestedKeyGroupsHandle,
    OperatorHandle,
    RelativeHandle,
    StreamHandle,
    keyed_streams,
)

_Key = TypeVar("_Key")
StreamMap = Callable[[StreamHandle], StreamHandle]


def map_streams(
    metadata: CheckpointMetadata, change: StreamMap, *, keyed: bool = False
) -> CheckpointMetadata:
    """Return the same `_metadata` with every stream changed but those of managed keyed state.

    Args:
        metadata: The content.
        change: Returns the handle that takes the place of another.
        keyed: Whether those of managed keyed state are changed, too, if it is one stream.
    """

    def of_operator(handle: OperatorHandle | None) -> OperatorHandle | None:
        if handle is None or handle.stream is None:
            return handle
        return replace(handle, stream=change(handle.stream), merged_dirs=None)

    def of_raw_keyed(handle: KeyedHandle) -> KeyedHandle:
        if not isinstance(handle, KeyGroupsHandle) or handle.stream is None:
            return handle  # raw state is always a stream with key groups
        return replace(handle, stream=change(handle.stream))

    of_keyed = of_raw_keyed if keyed else lambda handle: handle
    return _mapped(metadata, change, of_operator, of_keyed, of_raw_keyed)


def moved_streams(
    metadata: CheckpointMetadata, change: StreamMap, directory: Callable[[str], str]
) -> CheckpointMetadata:
    """Return the same `_metadata` for files that lie elsewhere.

    Args:
        metadata: The content.
        change: Returns the handle of a file in its new place; called for every stream.
        directory: Returns the new place of a directory of merged files.
    """

    def of_stream(stream: StreamHandle) -> StreamHandle:
        if isinstance(stream, NestedKeyGroupsHandle):
            inner = stream.stream
            return stream if inner is None else replace(stream, stream=of_stream(inner))
        return change(stream)

    def of_operator(handle: OperatorHandle | None) -> OperatorHandle | None:
        if handle is None:
            return None
        dirs, stream = handle.merged_dirs, handle.stream
        return replace(
            handle,
            stream=stream and of_stream(stream),
            merged_dirs=dirs and (directory(dirs[0]), directory(dirs[1])),
        )

    def of_files(
        files: tuple[tuple[_Key, StreamHandle | None], ...],
    ) -> tuple[tuple[_Key, StreamHandle | None], ...]:
        return tuple((key, stream and of_stream(stream)) for key, stream in files)

    def of_keyed(handle: KeyedHandle) -> KeyedHandle:
        if isinstance(handle, KeyGroupsHandle):
            return replace(handle, stream=handle.stream and of_stream(handle.stream))
        if isinstance(handle, IncrementalHandle):
            return replace(
                handle,
                meta=handle.meta and of_stream(handle.meta),
                shared=of_files(handle.shared),
                private=of_files(handle.private),
            )
        if isinstance(handle, ChangelogHandle):
            return replace(
                handle,
                materialized=tuple(each and of_keyed(each) for each in handle.materialized),
                changes=tuple(each and of_keyed(each) for each in handle.changes),
            )
        if isinstance(handle, ChangelogFileHandle):
            return replace(handle, streams=of_files(handle.streams))
        return handle

    return _mapped(metadata, of_stream, of_operator, of_keyed, of_keyed)


def _mapped(
    metadata: CheckpointMetadata,
    change: StreamMap,
    of_operator: Callable[[OperatorHandle | None], OperatorHandle | None],
    of_keyed: Callable[[KeyedHandle], KeyedHandle],
    of_raw_keyed: Callable[[KeyedHandle], KeyedHandle],
) -> CheckpointMetadata:
    def of_channel(handle: ChannelHandle) -> ChannelHandle:
        return handle if handle.stream is None else replace(handle, stream=change(handle.stream))

    def of_subtask(subtask: SubtaskState) -> SubtaskState:
        return replace(
            subtask,
            managed_operator=of_operator(subtask.managed_operator),
            raw_operator=of_operator(subtask.raw_operator),
            managed_keyed=subtask.managed_keyed and of_keyed(subtask.managed_keyed),
            raw_keyed=subtask.raw_keyed and of_raw_keyed(subtask.raw_keyed),
            inputs=tuple(of_channel(input_) for input_ in subtask.inputs),
            outputs=tuple(of_channel(output) for output in subtask.outputs),
        )

    operators = [operator.with_subtasks(of_subtask) for operator in metadata.operators]
    return replace(metadata, operators=operators)


def named_files(metadata: CheckpointMetadata) -> set[str]:
    """Return the files that a savepoint's handles name."""
    streams = [
        subtask.managed_keyed.stream
        for operator in metadata.operators
        for subtask in (operator.subtasks or {}).values()
        if isinstance(subtask.managed_keyed, KeyGroupsHandle)
    ]

    def note(handle: StreamHandle) -> StreamHandle:
        streams.append(handle)
        return handle

    map_streams(metadata, note)
    return {stream.path for stream in streams if isinstance(stream, RelativeHandle)}


def streams_of(metadata: CheckpointMetadata) -> list[StreamHandle]:
    """Return all streams that handles name."""
    streams: list[StreamHandle | None] = []
    for operator in metadata.operators:
        for subtask in (operator.subtasks or {}).values():
            handles = (subtask.managed_operator, subtask.raw_operator)
            streams += [handle.stream for handle in handles if handle is not None]
            for keyed in (subtask.managed_keyed, subtask.raw_keyed):
                streams += keyed_streams(keyed) if keyed is not None else []
            streams += [channel.stream for channel in (*subtask.inputs, *subtask.outputs)]
    return [stream for stream in streams if stream is not None]


def keyed_handles(metadata: CheckpointMetadata) -> Iterator[KeyedHandle]:
    """Yield all handles of keyed state, also those within others."""

    def with_inner(handle: KeyedHandle) -> Iterator[KeyedHandle]:
        yield handle
        if isinstance(handle, ChangelogHandle):
            for inner in (*handle.materialized, *handle.changes):
                if inner is not None:
                    yield from with_inner(inner)

    for operator in metadata.operators:
        for subtask in (operator.subtasks or {}).values():
            for handle in (subtask.managed_keyed, subtask.raw_keyed):
                if handle is not None:
                    yield from with_inner(handle)


def logs_of(metadata: CheckpointMetadata) -> set[StreamHandle]:
    """Return the streams of a changelog, whose handles count the bytes before compression."""
    return {
        stream
        for handle in keyed_handles(metadata)
        if isinstance(handle, ChangelogFileHandle)
        for _, stream in handle.streams
        if stream is not None
    }
