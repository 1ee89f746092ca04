"""Checkpoints and their keys as Samza 1.8's JSON, byte for byte where its own order is fixed.

Unknown fields are skipped, as in Samza: a later release may have more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
from msgspec import field

from statelake.state_core.errors import CheckpointRecordError
from statelake.state_core.files.outside import decoded, matching
from statelake.state_core.runtime.commit.records.records import (
    CHANGELOG_FACTORY,
    ChangelogMarker,
    Checkpoint,
    CheckpointId,
    CheckpointLogKey,
    CheckpointV1,
    CheckpointV2,
    SystemStreamPartition,
)

MARKER_VERSION = 1
_DIGITS = re.compile(r"\d{1,10}", re.ASCII)
_Number = Annotated[str, matching(r"\d{1,10}")]


class _OffsetJson(msgspec.Struct):
    system: str
    partition: _Number
    offset: str | None
    stream: str


class _CheckpointJson(msgspec.Struct):
    id: str = field(name="checkpoint-id")
    inputs: dict[str, str] = field(name="input-offsets")
    markers: dict[str, dict[str, str]] = field(name="state-checkpoint-markers")
    version: Any = CheckpointV2.version


class _PartitionJson(msgspec.Struct, rename="camel"):
    system: str
    partition: int
    stream: str
    key_bucket: int = -1


class _MarkerJson(msgspec.Struct, kw_only=True):
    version: Any = MARKER_VERSION
    changelog: _PartitionJson = field(name="changelog-ssp")
    offset: str | None = field(name="changelog-offset")


def to_json(value: object) -> bytes:
    """Return JSON as written by Jackson: without spaces, with other scripts unescaped."""
    content = msgspec.to_builtins(value)
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Name the record that is read in errors."""
    try:
        yield
    except CheckpointRecordError as error:
        raise error.within(what) from error


def write_key(key: CheckpointLogKey) -> bytes:
    """Return the bytes of a record's key."""
    return to_json(key)


def read_key(data: bytes) -> CheckpointLogKey:
    """Read the key of a record.

    Raises:
        CheckpointRecordError: The bytes are not a key.
    """
    with reading("the key of a checkpoint record"):
        return decoded(data, CheckpointLogKey, CheckpointRecordError)


def write_checkpoint_v1(checkpoint: CheckpointV1) -> bytes:
    """Return the bytes of a record of version 1."""
    offsets = checkpoint.offsets.items()
    return to_json(
        {str(p): _OffsetJson(p.system, str(p.partition), at, p.stream) for p, at in offsets}
    )


def read_checkpoint_v1(data: bytes) -> CheckpointV1:
    """Read a record of version 1.

    Raises:
        CheckpointRecordError: The bytes are not such a record.
    """
    with reading("a checkpoint record of version 1"):
        offsets = decoded(data, dict[str, _OffsetJson], CheckpointRecordError)
        return CheckpointV1(
            {
                SystemStreamPartition(at.system, at.stream, int(at.partition)): at.offset
                for at in offsets.values()
            }
        )


def write_checkpoint_v2(checkpoint: CheckpointV2) -> bytes:
    """Return the bytes of a record of version 2."""
    offsets = checkpoint.input_offsets.items()
    inputs = {f"{p.system}.{p.stream}.{p.partition}": at for p, at in offsets}
    markers = {factory: dict(stores) for factory, stores in checkpoint.markers.items()}
    return to_json(_CheckpointJson(str(checkpoint.id), inputs, markers))


def read_checkpoint_v2(data: bytes) -> CheckpointV2:
    """Read a record of version 2.

    Raises:
        CheckpointRecordError: The bytes are not such a record.
    """
    with reading("a checkpoint record of version 2"):
        record = decoded(data, _CheckpointJson, CheckpointRecordError)
        inputs = {_partition(name): offset for name, offset in record.inputs.items()}
        return CheckpointV2(CheckpointId.parse(record.id), inputs, record.markers)


def write_changelog_marker(marker: ChangelogMarker) -> str:
    """Return the marker of a changelog, as in a record of version 2."""
    at = marker.changelog
    changelog = _PartitionJson(at.system, at.partition, at.stream, at.key_bucket)
    return to_json(_MarkerJson(changelog=changelog, offset=marker.offset)).decode("utf-8")


def read_changelog_marker(text: str) -> ChangelogMarker:
    """Parse the marker of a changelog.

    Raises:
        CheckpointRecordError: The text is not a marker.
    """
    with reading("the marker of a changelog"):
        marker = decoded(text, _MarkerJson, CheckpointRecordError)
        at = marker.changelog
        changelog = SystemStreamPartition(at.system, at.stream, at.partition, at.key_bucket)
        return ChangelogMarker(changelog, marker.offset)


def changelog_markers(checkpoint: CheckpointV2) -> dict[str, ChangelogMarker]:
    """Return the markers of a checkpoint's changelogs, by store."""
    written = checkpoint.markers.get(CHANGELOG_FACTORY, {})
    return {store: read_changelog_marker(marker) for store, marker in written.items()}


def downgrade(checkpoint: CheckpointV2) -> CheckpointV1:
    """Return a checkpoint in version 1, which has only the markers of changelogs."""
    offsets: dict[SystemStreamPartition, str | None] = dict(checkpoint.input_offsets)
    for marker in changelog_markers(checkpoint).values():
        end = "null" if marker.offset is None else marker.offset
        offsets[marker.changelog] = f"{checkpoint.id}:{end}"
    return CheckpointV1(offsets)


def upgrade(
    checkpoint: Checkpoint, changelogs: Mapping[str, SystemStreamPartition]
) -> CheckpointV2:
    """Return a checkpoint of either version in version 2, with changelogs separated from inputs.

    Args:
        checkpoint: The checkpoint, in either version.
        changelogs: The changelog of each store that has one: version 1 does not distinguish it from
            an input.
    """
    if isinstance(checkpoint, CheckpointV2):
        return checkpoint
    inputs = {
        partition: offset
        for partition, offset in checkpoint.offsets.items()
        if partition not in set(changelogs.values()) and offset is not None
    }
    identifier, markers = CheckpointId(0, 0), {}
    for store, partition in changelogs.items():
        end = checkpoint.changelog_offset(partition)
        if end is not None:
            identifier = max(identifier, end[0])
            markers[store] = write_changelog_marker(ChangelogMarker(partition, end[1]))
    return CheckpointV2(identifier, inputs, {CHANGELOG_FACTORY: markers} if markers else {})


def _partition(name: str) -> SystemStreamPartition:
    # a topic may have dots, a system has none
    system, _, rest = name.partition(".")
    stream, separator, partition = rest.rpartition(".")
    if not separator or not _DIGITS.fullmatch(partition):
        raise CheckpointRecordError(f"{name!r:.100} is not system.stream.partition")
    return SystemStreamPartition(system, stream, int(partition))
