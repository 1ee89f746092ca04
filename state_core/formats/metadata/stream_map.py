"""The streams of a `_metadata`: change those outside managed keyed state, and list all files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
    SubtaskState,
)
from statelake.state_core.model.handles import (
    ChannelHandle,
    KeyedHandle,
    KeyGroupsHandle,
    OperatorHandle,
    RelativeHandle,
    StreamHandle,
    keyed_streams,
)

StreamMap = Callable[[StreamHandle], StreamHandle]


def map_streams(metadata: CheckpointMetadata, change: StreamMap) -> CheckpointMetadata:
    """Return the same `_metadata` with every stream changed but those of managed keyed state."""

    def of_operator(handle: OperatorHandle | None) -> OperatorHandle | None:
        if handle is None or handle.stream is None:
            return handle
        return replace(handle, stream=change(handle.stream), merged_dirs=None)

    def of_raw_keyed(handle: KeyedHandle | None) -> KeyedHandle | None:
        if not isinstance(handle, KeyGroupsHandle) or handle.stream is None:
            return handle  # raw state is always a stream with key groups
        return replace(handle, stream=change(handle.stream))

    def of_channel(handle: ChannelHandle) -> ChannelHandle:
        return handle if handle.stream is None else replace(handle, stream=change(handle.stream))

    def of_subtask(subtask: SubtaskState) -> SubtaskState:
        return replace(
            subtask,
            managed_operator=of_operator(subtask.managed_operator),
            raw_operator=of_operator(subtask.raw_operator),
            raw_keyed=of_raw_keyed(subtask.raw_keyed),
            inputs=tuple(of_channel(input_) for input_ in subtask.inputs),
            outputs=tuple(of_channel(output) for output in subtask.outputs),
        )

    def of_state(operator: OperatorMetadata) -> OperatorMetadata:
        if operator.subtasks is None:
            return operator
        subtasks = {index: of_subtask(subtask) for index, subtask in operator.subtasks.items()}
        return replace(operator, subtasks=subtasks)

    return replace(metadata, operators=[of_state(operator) for operator in metadata.operators])


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
