"""`_metadata`: every version read, written, and carried over, byte for byte."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import (
    CorruptSnapshotError,
    EncodeError,
    NotASnapshotError,
    StateError,
    UnsupportedFormatError,
)
from statelake.state_core.files.java_stream import read_java_stream, write_java_stream
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
    SubtaskState,
    canonical_savepoint_properties,
    describe_properties,
    read_metadata,
    write_metadata,
)
from statelake.state_core.formats.metadata.handle_codec import (
    write_keyed_handle,
    write_operator_handle,
)
from statelake.state_core.model.handles import (
    ChannelHandle,
    InlineHandle,
    KeyGroupsHandle,
    KeyGroupsKind,
    MergedChannelPart,
    RelativeHandle,
)
from tests.support.savepoints.golden_cases import GOLDEN, GoldenCase, golden_cases
from tests.support.savepoints.metadata_strategies import metadata_of

MAGIC = bytes.fromhex("4960672d")
CASES = golden_cases()
WRITTEN_VERSIONS = (3, 4, 5, 6)

every_case = pytest.mark.parametrize("golden", CASES, ids=[case.name for case in CASES])
every_version = pytest.mark.parametrize("version", WRITTEN_VERSIONS)


def metadata_bytes(golden: GoldenCase) -> bytes:
    """The case's `_metadata`."""
    return (golden.snapshot / "_metadata").read_bytes()


def property_vectors() -> dict[str, bytes]:
    """The checkpoint properties that Flink 2.3.0 serialized, by how it prints them."""
    lines = (GOLDEN / "vectors" / "serializers.txt").read_text("utf-8").splitlines()
    return {
        line: bytes.fromhex(after.split()[1])
        for line, after in pairwise(lines)
        if line.startswith("PROPS")
    }


# ----------------------------------------------------------------------------- real files


@every_case
def test_real_files_come_back(golden: GoldenCase) -> None:
    """Parsed and written again, a file is the same, whichever Flink wrote it."""
    data = metadata_bytes(golden)
    metadata = read_metadata(data)
    assert metadata.version == {"1": 4, "2": 6}[golden.facts["flink"][0]]
    assert write_metadata(metadata) == data


@every_version
@every_case
def test_real_files_in_every_version(golden: GoldenCase, version: int) -> None:
    """A file that is written in another version says the same, but what that version can't say."""
    metadata = replace(read_metadata(metadata_bytes(golden)), version=version)
    found = read_metadata(write_metadata(metadata))
    expected = replace(metadata, properties=b"" if version < 4 else metadata.properties)
    if version < 5:
        expected.operators = [replace(operator, name="", uid="") for operator in expected.operators]
    assert found == expected


@every_case
def test_version_2_is_read(golden: GoldenCase) -> None:
    """The same content as Flink 1.3 to 1.10 would have written it."""
    metadata = read_metadata(metadata_bytes(golden))
    for operator in metadata.operators:
        operator.name = operator.uid = ""
        operator.coordinator = None
    metadata = replace(metadata, version=2, properties=b"")
    assert read_metadata(version_2(metadata)) == metadata


@every_case
def test_properties_are_carried_and_understood(golden: GoldenCase) -> None:
    """The Java object stream at the end is kept as it is, and says what the snapshot is."""
    properties = read_metadata(metadata_bytes(golden)).properties
    assert metadata_bytes(golden).endswith(properties)
    assert properties.startswith(bytes.fromhex("aced0005"))
    assert write_java_stream(read_java_stream(DataInput(properties))) == properties
    form = golden.facts["format"]
    kind = "checkpoint" if form == "checkpoint" else "savepoint"
    assert describe_properties(properties) == (kind, form)


def test_properties_are_those_of_flink() -> None:
    """What we write for a canonical savepoint is what Flink 2.3.0 writes; its others are read."""
    vectors = property_vectors()
    canonical, native, checkpoint = vectors.values()
    assert canonical_savepoint_properties() == canonical
    assert describe_properties(native) == ("savepoint", "native")
    assert describe_properties(checkpoint) == ("checkpoint", "checkpoint")
    for data in vectors.values():
        assert write_java_stream(read_java_stream(DataInput(data))) == data


# ----------------------------------------------------------------------------- any content


@given(data=st.sampled_from(WRITTEN_VERSIONS).flatmap(metadata_of))
def test_any_content_is_read_as_it_was_written(data: CheckpointMetadata) -> None:
    """All handles in all places: read back equal, and written again the same."""
    written = write_metadata(data)
    found = read_metadata(written)
    assert found == data
    assert write_metadata(found) == written


@given(data=metadata_of(3), cut=st.integers(1, 400))
def test_a_file_that_is_cut_off_is_refused(data: CheckpointMetadata, cut: int) -> None:
    """No proper beginning of a file of version 3 is a file."""
    written = write_metadata(data)
    with pytest.raises(StateError):
        read_metadata(written[: max(0, len(written) - cut)])


# ----------------------------------------------------------------------------- refusals


def version_2(metadata: CheckpointMetadata) -> bytes:
    """The file as `MetadataV2Serializer` of Flink 1.10 wrote it, channels left out."""
    out = DataOutput()
    out.write_bytes(MAGIC)
    out.write_int(2)
    out.write_long(metadata.checkpoint_id)
    out.write_int(0)
    out.write_int(len(metadata.operators))
    for operator in metadata.operators:
        assert operator.subtasks is not None
        out.write_bytes(bytes.fromhex(operator.operator_id))
        out.write_int(operator.parallelism)
        out.write_int(operator.max_parallelism)
        out.write_int(1)  # chain length
        out.write_int(len(operator.subtasks))
        for index, subtask in operator.subtasks.items():
            out.write_int(index)
            out.write_long(-1)  # duration
            out.write_int(0)  # legacy states
            for handle in (subtask.managed_operator, subtask.raw_operator):
                out.write_int(0 if handle is None else 1)
                if handle is not None:
                    write_operator_handle(handle, out)
            write_keyed_handle(subtask.managed_keyed, out)
            write_keyed_handle(subtask.raw_keyed, out)
    return out.to_bytes()


def tiny(version: int = 6, **changes: object) -> CheckpointMetadata:
    """One operator with one subtask that holds nothing."""
    operator = OperatorMetadata("00" * 16, 1, 128, subtasks={0: SubtaskState()})
    return CheckpointMetadata(version, 1, [replace(operator, **changes)])


@pytest.mark.parametrize("version", [-1, 0, 1, 7, 1 << 20])
def test_unknown_versions_are_named(version: int) -> None:
    """A version that is not known is refused with the versions that are, and what to do."""
    data = MAGIC + version.to_bytes(4, "big", signed=True) + bytes(40)
    with pytest.raises(UnsupportedFormatError, match=rf"version {version}; versions 2 to 6"):
        read_metadata(data)


@pytest.mark.parametrize("version", [0, 1, 2, 7])
def test_versions_that_are_not_written(version: int) -> None:
    """As in Flink, version 2 is only read; the message says which to choose."""
    with pytest.raises(UnsupportedFormatError, match="choose 3"):
        write_metadata(replace(tiny(), version=version))


@pytest.mark.parametrize("data", [b"", b"\x49\x60\x67", b"PK\x03\x04" + bytes(60), bytes(8)])
def test_other_files_are_told_apart(data: bytes) -> None:
    """Without the magic number it is another kind of file, whatever is in it."""
    with pytest.raises(NotASnapshotError, match="49 60 67 2D"):
        read_metadata(data, "there/_metadata")


def test_state_of_flink_1_1_is_refused() -> None:
    """A version 2 file with state of the old `Checkpointed` interface."""
    data = bytearray(version_2(tiny()))
    at = len(data) - 14  # the legacy count, before two flags and two null handles
    assert data[at - 8 : at + 4] == b"\xff" * 8 + bytes(4)
    data[at : at + 4] = (1).to_bytes(4, "big")
    with pytest.raises(UnsupportedFormatError, match="Checkpointed"):
        read_metadata(bytes(data))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"parallelism": 0}, "parallelism 0"),
        ({"max_parallelism": -5}, "max parallelism -5"),
        ({"subtasks": {1: SubtaskState()}}, "subtask 1 of an operator with 1"),
        ({"subtasks": {9: SubtaskState(finished=True)}}, "subtask 9 of an operator with 1"),
        ({"coordinator": RelativeHandle("somewhere", 3)}, "coordinator state that is not inlined"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, object], problem: str) -> None:
    """Numbers that can't be true of an operator."""
    with pytest.raises(CorruptSnapshotError, match=problem):
        read_metadata(write_metadata(tiny(**changes)))


def test_bytes_behind_the_end_are_refused() -> None:
    """Up to version 3 nothing may follow the last operator."""
    with pytest.raises(CorruptSnapshotError, match="2 bytes behind"):
        read_metadata(write_metadata(tiny(3)) + b"ab")


def test_a_finished_operator_has_no_coordinator() -> None:
    """Neither does Flink write one."""
    handle = InlineHandle("coordinator", b"state")
    with pytest.raises(CorruptSnapshotError, match="finished operator"):
        write_metadata(tiny(coordinator=handle, subtasks=None))


@pytest.mark.parametrize("version", [3, 4, 5])
def test_merged_channels_before_version_6(version: int) -> None:
    """They become handles of one channel each, as Flink wrote them then."""
    file = RelativeHandle("channels", 90)
    parts = MergedChannelPart(0, 0, 30, (4, 19)), MergedChannelPart(1, 2, 16, (34,))
    merged = [ChannelHandle(kind, 0, parts, 46, file) for kind in (3, 4)]
    state = SubtaskState(inputs=(merged[0],), outputs=(merged[1],))
    written = read_metadata(write_metadata(tiny(version, subtasks={0: state})))
    (operator,) = written.operators
    assert operator.subtasks is not None
    for kind, handles in ((1, operator.subtasks[0].inputs), (2, operator.subtasks[0].outputs)):
        assert handles == tuple(ChannelHandle(kind, 0, (part,), part.size, file) for part in parts)


def test_names_longer_than_the_format_holds() -> None:
    """64 KiB is the most that Java's `writeUTF` can say."""
    assert read_metadata(write_metadata(tiny(uid="u" * 65535))).operators[0].uid == "u" * 65535
    with pytest.raises(EncodeError, match="65536 bytes"):
        write_metadata(tiny(uid="u" * 65536))


@pytest.mark.parametrize("tag", [1, 15, 20, 255])
def test_unknown_handles_are_named(tag: int) -> None:
    """A handle has no length: an unknown tag ends the reading, with its number and place."""
    data = bytearray(write_metadata(tiny(3)))
    at = len(data) - 10  # managed keyed state, before the raw one and two counts
    data[at] = tag
    problem = rf"offset {at + 1}: unknown keyed state handle, tag {tag};"
    with pytest.raises(UnsupportedFormatError, match=problem):
        read_metadata(bytes(data))


def test_raw_state_may_lack_key_groups() -> None:
    """An operator writes those that it has something for; the others have the offset -1."""
    stream = InlineHandle("raw", b"content")
    raw = KeyGroupsHandle(KeyGroupsKind.NATIVE, 3, (-1, 0, -1, 4), stream)
    made = tiny(subtasks={0: SubtaskState(raw_keyed=raw)})
    assert read_metadata(write_metadata(made)) == made
    wrong = replace(raw, offsets=(-2, 0, -1, 4))
    with pytest.raises(CorruptSnapshotError, match="key group at offset -2"):
        read_metadata(write_metadata(tiny(subtasks={0: SubtaskState(raw_keyed=wrong)})))


def test_handles_nest_only_so_deep() -> None:
    """A changelog handle within a changelog handle, and so on, without end."""
    head = write_metadata(tiny(3))[:-10]
    one = bytes([8]) + bytes(16) + (1).to_bytes(4, "big")
    with pytest.raises(UnsupportedFormatError, match="tag 8"):
        read_metadata(head + one * 2000)
