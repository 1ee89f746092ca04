"""Checkpoints and their keys as Samza 1.8's JSON, byte for byte where its own order is fixed.

Unknown fields are skipped, as in Samza: a later release may have more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from statelake.state_core.errors import CheckpointRecordError
from statelake.state_core.runtime.commit.records.records import (
    CHANGELOG_FACTORY,
    ChangelogMarker,
    Checkpoint,
    CheckpointId,
    CheckpointLogKey,
    CheckpointV1,
    CheckpointV2,
    SystemStreamPartition,
    as_v1,
    as_v2,
)

MARKER_VERSION = 1
_T = TypeVar("_T")


def to_json(value: object) -> bytes:
    """Return JSON as written by Jackson: without spaces, with other scripts unescaped."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def json_object(data: bytes | str, what: str) -> dict[str, Any]:
    """Parse bytes as a JSON object.

    Raises:
        CheckpointRecordError: The bytes are not a JSON object.
    """
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CheckpointRecordError(f"malformed JSON: {error}", place=what) from error
    if not isinstance(parsed, dict):
        raise CheckpointRecordError("this is not a JSON object", place=what)
    return parsed


def well_formed(what: str, build: Callable[[], _T]) -> _T:
    """Build a record, and convert errors of its fields to those of a record.

    Args:
        what: The name of the record, for messages.
        build: Builds the record from its fields.

    Raises:
        CheckpointRecordError: A field is missing, or of the wrong type.
    """
    try:
        return build()
    except CheckpointRecordError as error:
        raise error.within(what) from error
    except KeyError as error:
        raise CheckpointRecordError(f"field {error} is missing", place=what) from error
    except (AttributeError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise CheckpointRecordError(f"a field has an invalid value: {error}", place=what) from error


def write_key(key: CheckpointLogKey) -> bytes:
    """Return the bytes of a record's key."""
    return to_json(
        {
            "systemstreampartition-grouper-factory": key.grouper,
            "taskName": key.task,
            "type": key.type,
        }
    )


def read_key(data: bytes) -> CheckpointLogKey:
    """Read the key of a record.

    Raises:
        CheckpointRecordError: The bytes are not a key.
    """
    what = "the key of a checkpoint record"
    fields = json_object(data, what)
    return well_formed(
        what,
        lambda: CheckpointLogKey(
            _text(fields["systemstreampartition-grouper-factory"]),
            _text(fields["taskName"]),
            _text(fields["type"]),
        ),
    )


def write_checkpoint_v1(checkpoint: CheckpointV1) -> bytes:
    """Return the bytes of a record of version 1."""
    return to_json(
        {
            str(partition): {
                "system": partition.system,
                "partition": str(partition.partition),
                "offset": offset,
                "stream": partition.stream,
            }
            for partition, offset in checkpoint.offsets.items()
        }
    )


def read_checkpoint_v1(data: bytes) -> CheckpointV1:
    """Read a record of version 1.

    Raises:
        CheckpointRecordError: The bytes are not such a record.
    """
    what = "a checkpoint record of version 1"
    fields = json_object(data, what)

    def build() -> CheckpointV1:
        offsets = {
            SystemStreamPartition(
                _text(field["system"]), _text(field["stream"]), int(_text(field["partition"]))
            ): None if field["offset"] is None else _text(field["offset"])
            for field in fields.values()
        }
        return CheckpointV1(offsets)

    return well_formed(what, build)


def write_checkpoint_v2(checkpoint: CheckpointV2) -> bytes:
    """Return the bytes of a record of version 2."""
    offsets = checkpoint.input_offsets.items()
    return to_json(
        {
            "checkpoint-id": str(checkpoint.id),
            "input-offsets": {f"{p.system}.{p.stream}.{p.partition}": at for p, at in offsets},
            "state-checkpoint-markers": {
                factory: dict(stores) for factory, stores in checkpoint.markers.items()
            },
            "version": CheckpointV2.version,
        }
    )


def read_checkpoint_v2(data: bytes) -> CheckpointV2:
    """Read a record of version 2.

    Raises:
        CheckpointRecordError: The bytes are not such a record.
    """
    what = "a checkpoint record of version 2"
    fields = json_object(data, what)

    def build() -> CheckpointV2:
        inputs: Mapping[str, Any] = fields["input-offsets"]
        markers: Mapping[str, Mapping[str, Any]] = fields["state-checkpoint-markers"]
        return CheckpointV2(
            CheckpointId.parse(_text(fields["checkpoint-id"])),
            {_partition(name): _text(offset) for name, offset in inputs.items()},
            {
                factory: {store: _text(marker) for store, marker in stores.items()}
                for factory, stores in markers.items()
            },
        )

    return well_formed(what, build)


def write_changelog_marker(marker: ChangelogMarker) -> str:
    """Return the marker of a changelog, as in a record of version 2."""
    changelog = marker.changelog
    written = {
        "version": MARKER_VERSION,
        "changelog-ssp": {
            "system": changelog.system,
            "partition": changelog.partition,
            "stream": changelog.stream,
            "keyBucket": changelog.key_bucket,
        },
        "changelog-offset": marker.offset,
    }
    return to_json(written).decode("utf-8")


def read_changelog_marker(text: str) -> ChangelogMarker:
    """Parse the marker of a changelog.

    Raises:
        CheckpointRecordError: The text is not a marker.
    """
    what = "the marker of a changelog"
    fields = json_object(text, what)

    def build() -> ChangelogMarker:
        changelog = fields["changelog-ssp"]
        offset = fields["changelog-offset"]
        return ChangelogMarker(
            SystemStreamPartition(
                _text(changelog["system"]),
                _text(changelog["stream"]),
                int(changelog["partition"]),
                int(changelog.get("keyBucket", -1)),
            ),
            None if offset is None else _text(offset),
        )

    return well_formed(what, build)


def changelog_markers(checkpoint: CheckpointV2) -> dict[str, ChangelogMarker]:
    """Return the markers of a checkpoint's changelogs, by store."""
    written = checkpoint.markers.get(CHANGELOG_FACTORY, {})
    return {store: read_changelog_marker(marker) for store, marker in written.items()}


def downgrade(checkpoint: CheckpointV2) -> CheckpointV1:
    """Return a checkpoint in version 1."""
    return as_v1(checkpoint, changelog_markers(checkpoint))


def upgrade(
    checkpoint: Checkpoint, changelogs: Mapping[str, SystemStreamPartition]
) -> CheckpointV2:
    """Return a checkpoint of either version in version 2.

    Args:
        checkpoint: The checkpoint, in either version.
        changelogs: The changelog of each store that has one.
    """
    if isinstance(checkpoint, CheckpointV2):
        return checkpoint
    identifier, inputs, ends = as_v2(checkpoint, changelogs)
    markers = {store: write_changelog_marker(marker) for store, marker in ends.items()}
    return CheckpointV2(identifier, inputs, {CHANGELOG_FACTORY: markers} if markers else {})


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _partition(name: str) -> SystemStreamPartition:
    # a topic may have dots, a system has none
    system, _, rest = name.partition(".")
    stream, separator, partition = rest.rpartition(".")
    if not separator:
        raise ValueError(f"{name!r} is not system.stream.partition")
    return SystemStreamPartition(system, stream, int(partition))
