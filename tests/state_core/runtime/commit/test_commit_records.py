"""Records, keys, markers and ids: Samza's bytes, both ways, and nothing but errors of ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import CheckpointRecordError
from statelake.state_core.runtime.commit.records.records import (
    BLOB_STORE_FACTORY,
    CHANGELOG_FACTORY,
    ChangelogMarker,
    CheckpointId,
    CheckpointLogKey,
    CheckpointV1,
    CheckpointV2,
    SystemStreamPartition,
)
from statelake.state_core.runtime.commit.records.serdes import (
    changelog_markers,
    downgrade,
    read_changelog_marker,
    read_checkpoint_v1,
    read_checkpoint_v2,
    read_key,
    upgrade,
    write_changelog_marker,
    write_checkpoint_v1,
    write_checkpoint_v2,
    write_key,
)
from statelake.state_core.runtime.commit.records.snapshot_index import (
    read_snapshot_index,
    write_snapshot_index,
)
from tests.support.savepoints.golden_cases import GOLDEN

SAMZA = GOLDEN / "samza"
FORMS: dict[str, tuple[Callable[[bytes], object], Callable[..., bytes]]] = {
    "checkpoint-v1": (read_checkpoint_v1, write_checkpoint_v1),
    "checkpoint-v2": (read_checkpoint_v2, write_checkpoint_v2),
    "checkpoint-log-key": (read_key, write_key),
    "snapshot-index": (read_snapshot_index, write_snapshot_index),
}

names = st.text("abcXYZ-_ 0ü", min_size=1, max_size=8)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
partitions = st.builds(
    SystemStreamPartition, names, st.text("ab.-", min_size=1, max_size=6), st.integers(0, 9999)
)
identifiers = st.builds(CheckpointId, st.integers(0, 2**62), st.integers(0, 999_999))
markers = st.builds(ChangelogMarker, partitions, st.none() | st.integers(0, 2**62).map(str))


def golden(name: str) -> bytes:
    """What real Samza 1.8 wrote."""
    return Path(SAMZA / f"{name}.json").read_bytes().strip()


@pytest.mark.parametrize("name", sorted(FORMS))
def test_samzas_bytes_are_read_and_written_alike(name: str) -> None:
    """Of each form, what Samza wrote comes back byte for byte."""
    read, write = FORMS[name]
    assert write(read(golden(name))) == golden(name)


def test_what_samza_said() -> None:
    """The golden record's fields, by their meaning."""
    record = read_checkpoint_v2(golden("checkpoint-v2"))
    orders = SystemStreamPartition("kafka", "orders", 3)
    assert record.id == CheckpointId(1_700_000_000_000, 123_456)
    assert record.input_offsets == record.offsets == {orders: "1234"}
    assert record.markers[BLOB_STORE_FACTORY] == {"store1": "blob-1"}
    changelog = SystemStreamPartition("kafka", "store1-changelog", 3)
    assert changelog_markers(record) == {"store1": ChangelogMarker(changelog, "77")}
    assert read_checkpoint_v1(golden("checkpoint-v1")) == CheckpointV1({orders: "1234"})
    key = read_key(golden("checkpoint-log-key"))
    assert (key.task, key.type, key.version) == ("Partition 3", "checkpoint-v2", 2)


@given(st.builds(CheckpointV1, st.dictionaries(partitions, st.none() | texts, max_size=4)))
def test_version_1_comes_back(record: CheckpointV1) -> None:
    """Any record of version 1."""
    assert read_checkpoint_v1(write_checkpoint_v1(record)) == record


@given(
    st.builds(
        CheckpointV2,
        identifiers,
        st.dictionaries(partitions, texts, max_size=4),
        st.dictionaries(names, st.dictionaries(names, texts, max_size=3), max_size=3),
    )
)
def test_version_2_comes_back(record: CheckpointV2) -> None:
    """Any record of version 2."""
    assert read_checkpoint_v2(write_checkpoint_v2(record)) == record


@given(st.builds(CheckpointLogKey, texts, texts, texts))
def test_keys_come_back(key: CheckpointLogKey) -> None:
    """Any key, of types that are not known too."""
    assert read_key(write_key(key)) == key


@given(markers)
def test_markers_of_changelogs_come_back(marker: ChangelogMarker) -> None:
    """Also that of an empty changelog."""
    assert read_changelog_marker(write_changelog_marker(marker)) == marker


def test_a_marker_needs_no_version() -> None:
    """It is written first, and says nothing that the reader needs."""
    marker = ChangelogMarker(SystemStreamPartition("kafka", "orders", 3), "77")
    text = write_changelog_marker(marker)
    assert text.startswith('{"version":1,"changelog-ssp":{')
    assert read_changelog_marker(text.replace('"version":1,', "")) == marker


@given(identifiers, st.dictionaries(names, markers, max_size=3))
def test_version_1_keeps_changelogs_and_id(
    identifier: CheckpointId, ends: dict[str, ChangelogMarker]
) -> None:
    """From version 2 down and up again, nothing is lost but other backends' markers."""
    changelogs = {store: marker.changelog for store, marker in ends.items()}
    ends = {
        store: ends[store]
        for store in {partition: name for name, partition in changelogs.items()}.values()
    }
    changelogs = {store: changelogs[store] for store in ends}
    orders = SystemStreamPartition("input system", "orders", 3)
    ours = {store: write_changelog_marker(marker) for store, marker in ends.items()}
    record = CheckpointV2(
        identifier, {orders: "5"}, {CHANGELOG_FACTORY: ours, BLOB_STORE_FACTORY: {"s": "blob"}}
    )
    again = upgrade(downgrade(record), changelogs)
    assert again.input_offsets == record.input_offsets
    assert again.markers.get(CHANGELOG_FACTORY, {}) == ours
    if ends:
        assert again.id == identifier


@pytest.mark.parametrize("name", sorted(FORMS))
@given(st.data())
def test_broken_bytes_are_refused_in_one_way(name: str, data: st.DataObject) -> None:
    """Cut, changed or mixed bytes are a record or an error of ours."""
    read, _ = FORMS[name]
    good = golden(name)
    at = data.draw(st.integers(0, len(good) - 1))
    change = data.draw(st.sampled_from([b"", b"null", b"[]", b"{", b'"', b"\xff", b"-", b"1e9"]))
    bad = good[:at] + change + good[at + data.draw(st.integers(0, 30)) :]
    try:
        found = read(bad)
    except CheckpointRecordError as error:
        found = error
    assert isinstance(found, CheckpointRecordError | type(read(good)))


@pytest.mark.parametrize("text", ["", "1", "1-", "-1", "1--5", "a-b", "1-2-3", " 1-2", "\u0661-2"])
def test_what_is_no_id(text: str) -> None:
    """An id is two numbers, as Samza can read them."""
    with pytest.raises(CheckpointRecordError, match="no checkpoint id"):
        CheckpointId.parse(text)


@given(identifiers, identifiers)
def test_ids_are_ordered_as_numbers(first: CheckpointId, other: CheckpointId) -> None:
    """By time, whatever their texts' order is; and their texts come back."""
    assert (first < other) == ((first.millis, first.nanos) < (other.millis, other.nanos))
    assert CheckpointId.parse(str(first)) == first


@given(st.integers(0, 2**60), identifiers)
def test_ids_go_up_though_clocks_go_back(nanoseconds: int, last: CheckpointId) -> None:
    """The next id is greater than the last one at any time."""
    assert CheckpointId.create(nanoseconds, last) > last
    assert CheckpointId.create(nanoseconds) == CheckpointId(*divmod(nanoseconds, 1_000_000))


def test_a_system_has_no_dots() -> None:
    """Since records join the three names by dots, and a topic may have some."""
    with pytest.raises(CheckpointRecordError, match="no partition of a stream"):
        SystemStreamPartition("my.kafka", "orders", 1)
    dotted = SystemStreamPartition("kafka", "my.orders.eu", 1)
    record = CheckpointV2(CheckpointId(1, 2), {dotted: "7"})
    assert read_checkpoint_v2(write_checkpoint_v2(record)).input_offsets == {dotted: "7"}


def test_fields_of_later_releases_are_skipped() -> None:
    """As Samza does."""
    later = golden("checkpoint-v2").replace(b'{"checkpoint-id"', b'{"new":[1],"checkpoint-id"')
    assert read_checkpoint_v2(later) == read_checkpoint_v2(golden("checkpoint-v2"))


def test_a_changelogs_offset_names_its_checkpoint() -> None:
    """In version 1; an input's is none, and is refused as one."""
    log = SystemStreamPartition("kafka", "log", 0)
    found = CheckpointV1({log: "5-6:null"}).changelog_offset(log)
    assert found == (CheckpointId(5, 6), None)
    assert CheckpointV1({}).changelog_offset(log) is None
    with pytest.raises(CheckpointRecordError, match="no offset of a changelog"):
        CheckpointV1({log: "77"}).changelog_offset(log)
