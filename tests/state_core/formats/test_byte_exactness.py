"""What is decoded is encoded to the very bytes that Flink wrote, entry by entry, file by file."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from statelake import open_snapshot
from statelake.state_core.files.compression import open_stream
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.keyed.unified_file import UnifiedKeyedFile
from statelake.state_core.formats.layout.keyed_states import parse_keyed_state
from statelake.state_core.formats.layout.meta_info import write_keyed_header
from statelake.state_core.formats.writing.unified_encode import (
    StateRows,
    encode_key_groups,
    encode_rows,
)
from statelake.state_core.formats.writing.writer import encoded_groups
from statelake.state_core.model.entries import Entries, KeyedFile
from statelake.state_core.serializers import registered_classes
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

pytestmark = pytest.mark.thinned(2)

# the jobs of these have enums in their state, and `types` everything else that there is
ENUM = "org.apache.flink.api.common.typeutils.base.EnumSerializer$EnumSerializerSnapshot"
WITH_ENUMS = ("types-", "pojo-hashmap-native-")
CASES = [
    golden_case
    for golden_case in golden_cases()
    if golden_case.facts["case"] != "operator"
    and (ENUM in registered_classes() or not golden_case.name.startswith(WITH_ENUMS))
]
CANONICAL = [case for case in CASES if case.facts["format"] == "canonical"]
ROCKSDB = [case for case in CANONICAL if case.facts["backend"] == "rocksdb"]

every_case = pytest.mark.parametrize("golden", CASES, ids=[case.name for case in CASES])
every_canonical = pytest.mark.parametrize(
    "golden", CANONICAL, ids=[case.name for case in CANONICAL]
)


def prefix_of(golden: GoldenCase) -> int:
    """Bytes of the key-group prefix."""
    return 1 if golden.facts["max_parallelism"] <= 128 else 2


def keyed_files(golden: GoldenCase) -> list[KeyedFile]:
    """Every file with keyed state."""
    operators = open_snapshot(golden.snapshot).operators
    return [file for operator in operators for file in operator.keyed_files]


def unified_files(golden: GoldenCase) -> list[UnifiedKeyedFile]:
    """The same, of canonical savepoints."""
    files = keyed_files(golden)
    assert files
    return [file for file in files if isinstance(file, UnifiedKeyedFile)]


def pieces(entries: Entries) -> list[tuple[int, int, bytes, bytes]]:
    """State, key group, key bytes and value bytes of each entry."""
    data = entries.data.tobytes()
    columns = zip(
        entries.state_of.tolist(), entries.group_of.tolist(), entries.key_start.tolist(),
        entries.key_end.tolist(), entries.value_start.tolist(), entries.value_end.tolist(),
        strict=True,
    )  # fmt: skip
    return [(state, group, data[a:b], data[c:d]) for state, group, a, b, c, d in columns]


def stored_group(file: UnifiedKeyedFile, group: int) -> bytes:
    """A key group's bytes as they lie in the file, decompressed."""
    (span,) = (span for span in file.file.spans if span.group == group)
    stream = open_stream(file.file.source, span.start, span.end, compressed=file.compressed)
    out = np.empty(64 * (span.end - span.start), np.uint8)
    return out[: stream.read_into(out)].tobytes()


def rows_of(file: KeyedFile) -> list[StateRows]:
    """Every state of a file, decoded, as rows that are to be written."""
    found = []
    for index, state in enumerate(file.states):
        _, layout = parse_keyed_state(state.meta_info, file.key_serializer)
        for entries in file.entries():
            mine = entries.of_state(index)
            if len(mine):
                found.append(StateRows(index, state.name, layout, file.decode(index, mine)))
    return found


def parsed(data: bytes, prefix: int) -> Iterator[tuple[int, bytes, bytes]]:
    """The entries of one key group, read by the format's own rules and nothing of ours."""
    source = DataInput(data)
    state = source.read_short()
    while state != -1:
        key = bytearray(source.read_bytes(source.read_int()))
        value = source.read_bytes(source.read_int())
        last = key[0] & 0x80
        key[0] &= 0x7F
        yield state, bytes(key[prefix:]), value
        if last:
            state = source.read_short()
    assert source.remaining == 0


@every_case
@pytest.mark.full
def test_each_entry_comes_back_byte_for_byte(golden: GoldenCase) -> None:
    """Every entry of every state: bytes, columns, and the same bytes again, for key and value."""
    files = keyed_files(golden)
    assert files
    entries_seen = 0
    for file in files:
        for index, state in enumerate(file.states):
            _, layout = parse_keyed_state(state.meta_info, file.key_serializer)
            for entries in file.entries():
                mine = entries.of_state(index)
                if not len(mine):
                    continue
                before = pieces(mine)
                rows = StateRows(index, state.name, layout, file.decode(index, mine))
                assert pieces(encode_rows(rows, prefix_of(golden))) == before
                entries_seen += len(before)
    assert entries_seen >= golden.facts["keys"] // 40


@every_canonical
def test_key_groups_come_back_with_the_same_entries(golden: GoldenCase) -> None:
    """Key groups that we encode hold exactly the entries that Flink wrote there."""
    prefix = prefix_of(golden)
    for file in unified_files(golden):
        buffer, groups = encode_key_groups(rows_of(file), prefix)
        data = buffer.tobytes()
        assert [group.group for group in groups] == [group for group, _ in file.group_bytes()]
        for group in groups:
            ours = sorted(parsed(data[group.start : group.end], prefix))
            flinks = sorted(parsed(stored_group(file, group.group), prefix))
            assert ours == flinks


@pytest.mark.parametrize("golden", ROCKSDB, ids=[case.name for case in ROCKSDB])
def test_whole_key_groups_of_rocksdb_come_back(golden: GoldenCase) -> None:
    """RocksDB writes states by id and entries in their order, as we do: the same bytes in all."""
    prefix = prefix_of(golden)
    for file in unified_files(golden):
        written = {group: bytes(data) for group, data in encoded_groups([rows_of(file)], prefix)}
        assert written == {group: stored_group(file, group) for group, _ in file.group_bytes()}


@every_canonical
def test_the_head_in_the_file_is_the_head_written(golden: GoldenCase) -> None:
    """Byte for byte, up to the first key group."""
    for file in unified_files(golden):
        out = DataOutput()
        write_keyed_header(file.header, out)
        head = np.empty(file.header.size, np.uint8)
        file.file.source.read_into(0, head)
        assert out.to_bytes() == head.tobytes()
        begin = min((span.start for span in file.file.spans), default=file.header.size)
        assert begin == file.header.size


@every_canonical
def test_prefixes_are_as_long_as_the_max_parallelism_wants(golden: GoldenCase) -> None:
    """One byte up to 128 key groups, two above; each key begins with its key group."""
    prefix = prefix_of(golden)
    for file in unified_files(golden):
        assert file.file.prefix == prefix
        for group, _ in file.group_bytes():
            source = DataInput(stored_group(file, group))
            source.read_short()
            key = source.read_bytes(source.read_int())
            assert int.from_bytes(key[:prefix], "big") & ~(0x80 << 8 * (prefix - 1)) == group
