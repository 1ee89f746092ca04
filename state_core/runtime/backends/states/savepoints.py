"""The savepoint strategy of every backend: all entries, in the unified format.

Key group after key group, kernels encode a run of entries, which is written to the file; only one
run is in memory, and with compression one key group's compressed bytes.

Source: `SavepointSnapshotStrategy`, `FullSnapshotAsyncWriter` in `org.apache.flink.runtime.state`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from statelake.state_core.files.compression import IDENTIFIER, compress_snappy
from statelake.state_core.files.wire import DataOutput
from statelake.state_core.formats.layout.meta_info import write_keyed_header
from statelake.state_core.formats.writing.unified_encode import END_OF_KEY_GROUP, copy_entries
from statelake.state_core.formats.writing.writer import KeyedPart, keyed_handle
from statelake.state_core.model.handles import KeyGroupRange, KeyGroupsHandle
from statelake.state_core.runtime.backends.states.snapshots import (
    FullSnapshotResources,
    MergedRun,
    SnapshotTarget,
    merge_by_key_group,
)

if TYPE_CHECKING:
    import pyarrow as pa


@final
@dataclass
class SavepointStrategy:
    """Writes the unified format.

    Attributes:
        prepare: Prepares the snapshot's resources, the only part that differs between backends.
        key_groups: The key groups of this subtask.
        prefix: Bytes of the key-group prefix.
        compressed: Whether key groups are compressed.
    """

    prepare: Callable[[], FullSnapshotResources]
    key_groups: KeyGroupRange
    prefix: int
    compressed: bool = False

    def sync_prepare_resources(self, checkpoint_id: int) -> FullSnapshotResources:
        """Take a view of all states."""
        del checkpoint_id
        return self.prepare()

    def async_snapshot(
        self, resources: FullSnapshotResources, target: SnapshotTarget
    ) -> KeyGroupsHandle | None:
        """Write a file, and return its handle with the offset of each key group."""
        if not resources.header.states:
            return None
        part = KeyedPart(str(uuid.uuid4()))
        with target.directory.open_output(part.name) as file:
            head = DataOutput()
            write_keyed_header(replace(resources.header, compressed=self.compressed), head)
            file.write(head.to_bytes())
            part.size = len(head)
            for merged in merge_by_key_group(resources.iterators()):
                self._write(merged, file, part)
        return keyed_handle(part, self.key_groups)

    def _write(self, merged: MergedRun, file: pa.NativeFile, part: KeyedPart) -> None:
        run = merged.run
        pieces: list[Any] = []
        if merged.new_key_group:
            part.offsets[run.key_group] = part.size
        if merged.new_state:
            pieces.append(run.state_id.to_bytes(2, "big"))
        pieces.append(copy_entries(run.entries, self.prefix, ends_run=merged.state_ends).data.data)
        if merged.key_group_ends:
            pieces.append(END_OF_KEY_GROUP)
        if self.compressed:
            # one stream for each key group: only its first piece begins with the stream's
            # identifier
            whole = compress_snappy(b"".join(pieces))
            pieces = [whole if merged.new_key_group else whole[len(IDENTIFIER) :]]
        for piece in pieces:
            file.write(piece)
            part.size += len(piece)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Do nothing: later checkpoints do not depend on it."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Do nothing: nothing was kept for it."""
