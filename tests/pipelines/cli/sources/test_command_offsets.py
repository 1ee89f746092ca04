"""`statelake offsets`, and `edit --set-offsets`: what they print, write and refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.state_core.connectors.kafka import (
    UNASSIGNED,
    EnumeratedPartition,
    KafkaEnumerator,
    KafkaSplit,
)
from statelake.state_core.connectors.sources import sources_of
from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata, write_metadata
from statelake.state_core.model.handles import InlineHandle
from statelake.state_core.model.key_groups import operator_id_of_uid
from tests.support.command import run
from tests.support.lakes import KINDS, edit

GOLDEN = Path(__file__).parents[3] / "golden" / "sources"
KAFKA = GOLDEN / "kafka-5.0"
PLACE = ("--job", "orders", "--parent", "s", "--snapshot", "edited")


def imported(tmp_path: Path, golden: Path = KAFKA) -> Catalog:
    """A lake with a golden savepoint."""
    lake = Catalog(tmp_path / "lake")
    import_snapshot(lake, str(golden), "orders", snapshot_id="s", engine="local")
    return lake


def offsets_in(savepoint: Path) -> dict[tuple[object, object], object]:
    """The offset of each partition that readers have."""
    return {
        (split["topic"], split["partition"]): split["offset"]
        for source in sources_of(open_snapshot(savepoint))
        for split in (element.split.columns() for element in source.elements)
    }


@pytest.mark.parametrize(
    "name",
    [
        "kafka-5.0",
        "kafka-3.2",
        "old-kafka-3.2",
        "files-2.3",
        "numbers-to-kafka-5.0",
        "mysql-cdc-binlog-3.5",
        "postgres-cdc-snapshot-3.5",
        "kinesis-source-5.1",
        "kinesis-consumer-5.1",
        "pulsar-source-4.1",
        "iceberg-committer-1.9",
        "paimon-committer-1.0",
        "delta-files-0.6",
    ],
)
def test_a_lake_says_what_the_savepoint_says(name: str, tmp_path: Path) -> None:
    """For scripts and for people; and what is exported has the same."""
    lake = imported(tmp_path, GOLDEN / name)
    place = ("--lake", lake.location, "--job", "orders")
    for options in ((), ("--json",)):
        shown = run("offsets", GOLDEN / name, *options)
        assert (shown.code, shown.err) == (0, "")
        assert run("offsets", *place, *options).out == shown.out
    assert run("export", *place, "--snapshot", "s", "--to", tmp_path / "out").code == 0
    exported = run("offsets", tmp_path / "out", "--json").json
    assert exported == run("offsets", GOLDEN / name, "--json").json


def test_splits_by_sql(tmp_path: Path) -> None:
    """In typed columns, of all snapshots, be they of Kafka, of files or of numbers."""
    lake = imported(tmp_path)
    words = ("--lake", lake.location, *PLACE, "--set-offsets", "orders:0=latest")
    assert run("edit", *words).code == 0
    for name in ("files-2.3", "numbers-to-kafka-5.0"):
        import_snapshot(lake, str(GOLDEN / name), name, snapshot_id="s", engine="local")

    def rows(query: str) -> list[tuple[object, ...]]:
        ran = run("sql", "--lake", lake.location, "--json", query)
        assert (ran.code, ran.err) == (0, "")
        return [tuple(json.loads(line).values()) for line in ran.out.splitlines()]

    kafka = 'SELECT snapshot, partition, "offset", offset_word FROM statelake.splits'
    assert rows(f"{kafka} WHERE topic = 'orders' ORDER BY ALL") == [
        ("edited", 0, None, "latest"), ("edited", 1, 20, None), ("edited", 2, 20, None),
        ("s", 0, 20, None), ("s", 1, 20, None), ("s", 2, 20, None),
    ]  # fmt: skip
    others = "SELECT source, status, count(*), max(last_number), max(length) FROM statelake.splits"
    assert rows(f"{others} WHERE job <> 'orders' GROUP BY ALL ORDER BY ALL") == [
        ("file", "assigned", 2, None, 1090), ("file", "waiting", 2, None, 1090),
        ("sequence", "assigned", 2, 400, None),
    ]  # fmt: skip


def test_one_operator(tmp_path: Path) -> None:
    """By its uid or id; one that neither reads nor writes is an error."""
    lake = imported(tmp_path)
    for place in ((KAFKA,), ("--lake", lake.location, "--job", "orders")):
        whole = run("offsets", *place, "--json").json
        (source,) = whole["sources"]
        for name in ("records", source["operator_id"]):
            assert run("offsets", *place, "--operator", name, "--json").json == whole
        ran = run("offsets", *place, "--operator", "telling")
        assert (ran.code, ran.out) == (3, "")
        assert "operator 'telling'" in ran.err
    ran = run("offsets", KINDS)
    assert ran.out.startswith(("no operator has the state of a source", "source: number sequence"))


@pytest.mark.parametrize("name", ["kafka-5.0", "kafka-3.2", "old-kafka-3.2"])
def test_offsets_are_set(name: str, tmp_path: Path) -> None:
    """Those that are named, by the command and a file; no other, and nothing else."""
    lake = imported(tmp_path, GOLDEN / name)
    path = tmp_path / "offsets.txt"
    path.write_text("\n# of the night\norders:2 = 7\n", "utf-8")
    words = ("--lake", lake.location, *PLACE, "--set-offsets", "orders:0=earliest")
    ran = run("edit", *words, "--set-offsets", path, "--json")
    assert (ran.code, ran.err) == (0, "")
    moved = {(each["partition"], each["before"], each["after"]) for each in ran.json["offsets"]}
    assert moved == {(0, 20, "earliest"), (2, 20, 7)}
    assert run(
        "export", "--lake", lake.location, "--job", "orders", "--snapshot", "edited",
        "--to", tmp_path / "out",
    ).code == 0  # fmt: skip
    assert offsets_in(tmp_path / "out") == {
        ("orders", 0): "earliest", ("orders", 1): 20, ("orders", 2): 7,
    }  # fmt: skip
    words = ("--lake", lake.location, "--job", "orders", "--parent", "edited")
    back = run(
        "edit", *words, "--snapshot", "back",
        "--set-offsets", "orders:0=20", "--set-offsets", "orders:2=20",
    )  # fmt: skip
    assert back.code == 0
    assert "earliest" in back.out
    for snapshot in ("s", "back"):
        to = ("--snapshot", snapshot, "--to", tmp_path / snapshot)
        assert run("export", "--lake", lake.location, "--job", "orders", *to).code == 0
    whole, again = (
        [
            [part.encoded() for state in operator.operator_states for part in state.parts]
            for operator in open_snapshot(tmp_path / snapshot).operators
        ]
        for snapshot in ("s", "back")
    )
    assert whole == again


def with_waiting(topic: str, number: int, savepoint: Path) -> KafkaEnumerator:
    """Write the golden savepoint with one more partition, and return what it had of others."""
    metadata = read_metadata((KAFKA / "_metadata").read_bytes(), "golden")
    (source,) = sources_of(open_snapshot(KAFKA))
    enumerator, coordinator = source.enumerator, source.coordinator
    assert isinstance(enumerator, KafkaEnumerator)
    assert coordinator is not None
    waiting = EnumeratedPartition(KafkaSplit(topic, number, "earliest", None), UNASSIGNED)
    partitions = (*enumerator.partitions, waiting)
    data = replace(enumerator, partitions=partitions).encode()
    for operator in metadata.operators:
        if operator.operator_id == source.operator_id:
            operator.coordinator = InlineHandle("c", replace(coordinator, data=data).encode())
    savepoint.mkdir()
    (savepoint / "_metadata").write_bytes(write_metadata(metadata))
    return enumerator


@pytest.mark.parametrize("topic", ["\ud800", "\x1b[31mred", "[bold]a\nb", "=1+1"])
def test_topics_that_no_broker_has(topic: str, tmp_path: Path) -> None:
    """They are escaped, for people, in JSON and in SQL."""
    with_waiting(topic, 3, tmp_path / "hostile")
    lake = imported(tmp_path, tmp_path / "hostile")
    place = ("--lake", lake.location, "--job", "orders")
    query = "SELECT topic FROM statelake.splits WHERE partition = 3"
    for words in (("offsets", *place), ("offsets", *place, "--json"),
                  ("sql", "--lake", lake.location, query)):  # fmt: skip
        ran = run(*words)
        assert (ran.code, ran.err) == (0, "")
        assert "\x1b" not in ran.out
        ran.out.encode("utf-8")


def test_a_partition_that_no_reader_has_got(tmp_path: Path) -> None:
    """Its offset lies in the coordinator's state, which is carried; nothing else is another."""
    savepoint = tmp_path / "waiting"
    enumerator = with_waiting("orders", 3, savepoint)
    lake = imported(tmp_path, savepoint)
    words = ("--lake", lake.location, *PLACE, "--set-offsets", "orders:3=5")
    ran = run("edit", *words, "--set-offsets", "orders:1=6", "--json")
    assert (ran.code, ran.err) == (0, "")
    place = ("--lake", lake.location, "--job", "orders", "--snapshot", "edited")
    assert run("export", *place, "--to", tmp_path / "out").code == 0
    (edited,) = sources_of(open_snapshot(tmp_path / "out"))
    assert edited.waiting == (KafkaSplit("orders", 3, 5, None),)
    assert isinstance(edited.enumerator, KafkaEnumerator)
    assert edited.enumerator.partitions[:3] == enumerator.partitions
    assert offsets_in(tmp_path / "out") == {("orders", 0): 20, ("orders", 1): 6, ("orders", 2): 20}
    shown = run("offsets", "--lake", lake.location, "--job", "orders", "--snapshot", "s").out
    assert [line.split() for line in shown.splitlines()][-1] == [
        "orders", "3", "earliest", "waiting",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ("orders:9=1", 3, "no source has a partition orders:9"),
        ("order:0=1", 3, "there are: orders:0, orders:1, orders:2"),
        ("other/orders:0=1", 3, "no operator 'other' is a source of Kafka"),
        ("orders:0=soon", 3, "'soon' is no offset"),
        ("orders=1", 3, "names no partition and offset"),
        ("none.txt", 3, "none.txt"),
    ],
)
def test_nothing_is_made_of_what_is_refused(
    given: str, code: int, said: str, tmp_path: Path
) -> None:
    """The error names it, and there is no new snapshot."""
    lake = imported(tmp_path)
    ran = run("edit", "--lake", lake.location, *PLACE, "--set-offsets", given)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
    assert [summary.snapshot_id for summary in lake.summaries("orders")] == ["s"]


def test_a_line_of_a_file_is_named(tmp_path: Path) -> None:
    """By its number."""
    lake = imported(tmp_path)
    path = tmp_path / "offsets.txt"
    path.write_text("orders:0=1\norders:x=2\n", "utf-8")
    ran = run("edit", "--lake", lake.location, *PLACE, "--set-offsets", path)
    assert ran.code == 3
    assert f"{path}:2" in ran.err
    path.write_text("# nothing\n", "utf-8")
    ran = run("edit", "--lake", lake.location, *PLACE, "--set-offsets", path)
    assert ran.code == 3
    assert "no offset is given" in ran.err


@pytest.mark.parametrize(
    "given",
    [
        ("--offsets-from-timestamp", "2026-11-20"),
        ("--bootstrap-servers", "kafka:9092", "--set-offsets", "orders:0=1"),
        ("--offsets-from-timestamp", "2026-11-20", "--bootstrap-servers", "kafka:9092",
         "--set-offsets", "orders:0=1"),
    ],
)  # fmt: skip
def test_what_does_not_go_together(given: tuple[str, ...], tmp_path: Path) -> None:
    """Wrong usage, before the lake is looked at."""
    ran = run("edit", "--lake", tmp_path, *PLACE, *given)
    assert (ran.code, ran.out) == (2, "")


def test_another_position_of_a_log(tmp_path: Path) -> None:
    """A log of MySQL is moved in a lake, SQL says so, and so does what is exported."""
    lake = imported(tmp_path, GOLDEN / "mysql-cdc-binlog-3.5")
    words = ("--set-offsets", "binlog-split=mysql-bin.000003:200")
    ran = run("edit", "--lake", lake.location, *PLACE, *words)
    assert (ran.code, ran.err) == (0, "")
    assert "mysql-bin.000004:4711" in ran.out
    query = "SELECT snapshot, file, position FROM statelake.splits WHERE split_id = 'binlog-split'"
    found = run("sql", "--lake", lake.location, f"{query} ORDER BY snapshot", "--json").out
    rows = [json.loads(line) for line in found.splitlines()]
    assert [tuple(row.values()) for row in rows] == [
        ("edited", "mysql-bin.000003", 200), ("s", "mysql-bin.000004", 4711),
    ]  # fmt: skip
    place = ("--lake", lake.location, "--job", "orders", "--snapshot", "edited")
    assert run("export", *place, "--to", tmp_path / "out").code == 0
    shown = run("offsets", tmp_path / "out", "--json").json["sources"][0]["splits"]
    assert (shown[0]["file"], shown[0]["position"], shown[0]["gtids"]) == (
        "mysql-bin.000003", 200, None,
    )  # fmt: skip


READERS = 'records."SourceReaderState"'
COPY = f"INSERT INTO {READERS} SELECT * REPLACE (7 AS position) FROM {READERS} WHERE subtask = 0"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("sql", f"DELETE FROM {READERS} WHERE subtask = 0"),
            "nobody would read partition orders:",
        ),
        (("sql", COPY), "is assigned twice, in the state of two readers"),
        (("edit", "--purge", "records/SourceReaderState", "subtask = 0"), "nobody would read"),
        (("edit", "--drop-state", "records/SourceReaderState"), r"orders:0, \S+:\d, \S+:\d, which"),
        (("commit",), "nobody would read partition"),
    ],
    ids=["delete", "insert", "purge", "drop", "commit"],
)
def test_rows_of_a_source_are_edited_as_its_offsets_are(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    """No partition gets two readers, or none while the enumerator takes it for assigned."""
    lake = imported(tmp_path)
    command, *changes = words
    if command == "commit":
        table = lake.snapshot("orders", "s").operators[0].operator_states[0].table
        edit(lake, table).delete("subtask = 0")
    names = {"sql": ("--edit", "s", "--as", "edited"), "commit": ("--parent", "s")}
    more = ("--snapshot", "edited") if command == "commit" else ()
    place = names.get(command, PLACE[2:])
    ran = run(command, "--lake", lake.location, "--job", "orders", *place, *more, *changes)
    assert (ran.code, ran.out) == (3, "")
    assert re.search(f"source records: .*{said}", ran.err)
    assert [summary.snapshot_id for summary in lake.summaries("orders")] == ["s"]


def test_rows_of_a_merged_source_do_not_go(tmp_path: Path) -> None:
    """Of which the parent has nothing: its partitions would have no reader either."""
    lake = imported(tmp_path, GOLDEN / "files-2.3")
    import_snapshot(lake, str(KAFKA), "kafka", snapshot_id="s", engine="local")
    words = ("--merge", "kafka:s", "--purge", "records/SourceReaderState", "subtask = 1")
    ran = run("edit", "--lake", lake.location, *PLACE, *words)
    assert (ran.code, ran.out) == (3, "")
    assert "nobody would read partition orders:" in ran.err


def test_rows_of_other_sources_may_go(tmp_path: Path) -> None:
    """A file that no reader has is no fault that can be seen; a source as a whole starts anew."""
    lake = imported(tmp_path, GOLDEN / "files-2.3")
    place = ("--lake", lake.location, "--job", "orders", "--edit", "s", "--as", "edited")
    assert run("sql", *place, 'DELETE FROM lines."SourceReaderState" WHERE subtask = 0').code == 0
    lake = imported(tmp_path / "kafka")
    ran = run("edit", "--lake", lake.location, *PLACE, "--drop-operator", "records")
    assert ran.code == 0, ran.err


OLD_KAFKA = "3fa48b0327e87264fb4461f7bc35084c"
OLD_KINESIS = "135ea738cbfced0a8a0a8100c5d357fc"
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"


@pytest.mark.parametrize(
    ("name", "operator", "more"),
    [
        ("old-kafka-3.2", OLD_KAFKA, ()),
        ("kinesis-consumer-5.1", OLD_KINESIS, ("--stream-arn", ARN)),
    ],
)
def test_positions_move_to_the_new_source(
    name: str, operator: str, more: tuple[str, ...], tmp_path: Path
) -> None:
    """Which has its own id, its state's own type, and the old one's place; the plan says so."""
    lake = imported(tmp_path, GOLDEN / name)
    words = ("edit", "--lake", lake.location, *PLACE, "--move-positions", operator, "new", *more)
    plan = run(*words, "--dry-run", "--json")
    ran = run(*words, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert plan.json["positions"] == ran.json["positions"]
    assert {(each["operator"], each["uid"]) for each in ran.json["positions"]} == {
        (operator, "new")
    }
    assert [each["state"] for each in ran.json["changes"]] == ["SourceReaderState"]
    place = ("--lake", lake.location, "--job", "orders", "--snapshot", "edited")
    assert run("check", "integrity", *place).code == 0
    assert run("sql", *place[:4], 'SELECT * FROM new."SourceReaderState"').code == 0
    assert run("export", *place, "--to", tmp_path / "out").code == 0
    before, after = open_snapshot(GOLDEN / name), open_snapshot(tmp_path / "out")
    old, new = (
        next(one for one in sources_of(snapshot) if one.operator_id == operator_id)
        for snapshot, operator_id in ((before, operator), (after, operator_id_of_uid("new")))
    )
    assert [(each.subtask, each.position) for each in new.elements] == [
        (each.subtask, each.position) for each in old.elements
    ]
    assert operator not in {each.operator_id for each in after.metadata.operators}
    assert len(after.metadata.operators) == len(before.metadata.operators)
    (moved,) = (each for each in after.operators if each.operator_id == new.operator_id)
    real = open_snapshot(KAFKA).operator("records").operator_states[0]
    assert [state.meta_info for state in moved.operator_states] == [real.meta_info]
    assert moved.operator_states[0].mode is real.mode
    (described,) = (one for one in after.metadata.operators if one.operator_id == new.operator_id)
    assert described.coordinator is not None
    assert (described.coordinator.name, described.uid) == (
        new.operator_id, "" if after.metadata.version < 5 else "new",
    )  # fmt: skip


def test_offsets_are_set_while_positions_move(tmp_path: Path) -> None:
    """And partitions dropped; what is imported after that has a table of its own."""
    lake = imported(tmp_path, GOLDEN / "old-kafka-3.2")
    words = ("--set-offsets", "orders:0=7", "--drop-partitions", "orders:1")
    moving = ("--move-positions", OLD_KAFKA, "records")
    ran = run("edit", "--lake", lake.location, *PLACE, *words, *moving)
    assert (ran.code, ran.err) == (0, "")
    place = ("--lake", lake.location, "--job", "orders", "--snapshot", "edited")
    assert run("export", *place, "--to", tmp_path / "out").code == 0
    assert offsets_in(tmp_path / "out") == {("orders", 0): 7, ("orders", 2): 20}
    import_snapshot(lake, str(tmp_path / "out"), "orders", snapshot_id="next", engine="local")
    for snapshot in ("s", "edited", "next"):
        assert run("check", "integrity", *place[:4], "--snapshot", snapshot).code == 0
    edited, parsed = (lake.snapshot("orders", name) for name in ("edited", "next"))
    assert edited.operators[0].tables[0].path == "orders/operator/records/SourceReaderState"
    assert parsed.operators[0].label == operator_id_of_uid("records")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Catalog]:
    """A lake with a golden savepoint, by its name; tests leave it as it is."""
    return cache(lambda name: imported(tmp_path_factory.mktemp("whole"), GOLDEN / name))


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("old-kafka-3.2", (OLD_KAFKA, ""), "an empty uid"),
        ("old-kafka-3.2", ("records", "new"), "no operator 'records'"),
        ("old-kafka-3.2", (OLD_KAFKA, "new", "--rename-uid", OLD_KAFKA, "x"), "two uids"),
        ("old-kafka-3.2", ("dd5addfc57d33319df1fb0a52e0270be", "new"), f"positions: {OLD_KAFKA}"),
        (
            "old-kafka-3.2",
            (OLD_KAFKA, "new", "--purge", f"{OLD_KAFKA}/topic-partition-offset-states",
             "subtask = 0"),
            "1 of the rows whose positions move",
        ),
        ("kafka-5.0", ("records", "new"), "source records: this is no old source"),
        ("kinesis-consumer-5.1", (OLD_KINESIS, "new"), "--stream-arn arn:aws:kinesis:"),
    ],
)  # fmt: skip
def test_positions_that_do_not_move(
    name: str, given: tuple[str, ...], said: str, whole: Callable[[str], Catalog]
) -> None:
    """The operator or the shard is named, and there is no new snapshot."""
    lake = whole(name)
    ran = run("edit", "--lake", lake.location, *PLACE, "--move-positions", *given)
    assert (ran.code, ran.out) == (3, "")
    assert said in ran.err
    assert [summary.snapshot_id for summary in lake.summaries("orders")] == ["s"]


def test_positions_move_once(tmp_path: Path) -> None:
    """Also of a source that is named by its uid, and again by its id."""
    lake = imported(tmp_path, GOLDEN / "old-kafka-3.2")
    run("edit", "--lake", lake.location, *PLACE, "--rename-uid", OLD_KAFKA, "old")
    again = ("--job", "orders", "--parent", "edited", "--snapshot", "again")
    moves = ("--move-positions", "old", "new", "--move-positions", operator_id_of_uid("old"), "x")
    ran = run("edit", "--lake", lake.location, *again, *moves)
    assert (ran.code, ran.out) == (3, "")
    assert "would have two uids" in ran.err


def test_offsets_are_not_set_in_rows_that_go(whole: Callable[[str], Catalog]) -> None:
    """Nobody is told of an offset that the new snapshot does not have."""
    lake = whole("old-kafka-3.2")
    state = f"{OLD_KAFKA}/topic-partition-offset-states"
    words = ("--set-offsets", "orders:0=7", "--purge", state, "subtask = 1")
    ran = run("edit", "--lake", lake.location, *PLACE, *words)
    assert (ran.code, ran.out) == (3, "")
    assert f"state {state}: rows are deleted of a state whose offsets are set" in ran.err


@pytest.mark.parametrize(
    "name", ["kafka-5.0", pytest.param("kafka-3.2", marks=pytest.mark.nightly), "old-kafka-3.2"]
)
def test_partitions_are_taken_out(name: str, tmp_path: Path) -> None:
    """Of readers and enumerator, and nothing else; the rows of others are as they were."""
    lake = imported(tmp_path, GOLDEN / name)
    words = ("--drop-partitions", "orders:1", "--set-offsets", "orders:2=3")
    ran = run("edit", "--lake", lake.location, *PLACE, *words)
    assert (ran.code, ran.err) == (0, "")
    assert "dropped topic" in ran.out
    place = ("--lake", lake.location, "--job", "orders", "--snapshot", "edited")
    assert run("check", "integrity", *place).code == 0
    assert run("export", *place, "--to", tmp_path / "out").code == 0
    assert offsets_in(tmp_path / "out") == {("orders", 0): 20, ("orders", 2): 3}
    (source,) = sources_of(open_snapshot(tmp_path / "out"))
    if isinstance(source.enumerator, KafkaEnumerator):
        partitions = {each.split.partition for each in source.enumerator.partitions}
        assert partitions == {0, 2}
    again = ("--job", "orders", "--parent", "edited", "--snapshot", "again")
    ran = run("edit", "--lake", lake.location, *again, "--drop-partitions", "orders:1")
    assert (ran.code, ran.out) == (3, "")
    assert "no source has a partition orders:1" in ran.err


def test_what_a_dropped_committer_had_to_commit(tmp_path: Path) -> None:
    """Its transactions are listed, as `offsets` does; those of one that stays are not."""
    lake = imported(tmp_path, GOLDEN / "numbers-to-kafka-5.0")
    shown = run("offsets", GOLDEN / "numbers-to-kafka-5.0", "--json").json["sinks"]
    committer = "Sink Committer: kafka"
    place = ("edit", "--lake", lake.location, *PLACE)
    for words in (
        ("--drop-operator", committer),
        ("--keep-operator", "numbers"),
        ("--drop-state", f"{committer}/streaming_committer_raw_states"),
    ):
        ran = run(*place, *words, "--dry-run", "--json")
        assert ran.json["dropped_sinks"] == [sink for sink in shown if sink["to_commit"]]
    ran = run(*place, "--drop-operator", "numbers", "--dry-run", "--json")
    assert (ran.code, "dropped_sinks" in ran.json) == (0, False)
    said = run(*place, "--drop-operator", committer).out
    assert "statelake-0-1" in said
    assert "statelake-1-1" in said


def test_a_committer_that_cannot_be_read_is_dropped(tmp_path: Path) -> None:
    """And it is said that nobody knows what it had to commit."""
    lake = imported(tmp_path, GOLDEN / "numbers-to-kafka-5.0")
    operators = {each.label: each for each in lake.snapshot("orders", "s").operators}
    (table,) = operators["Sink Committer: kafka"].tables
    for unit in table.units:
        (tmp_path / "lake" / table.path / unit.path).unlink()
    words = ("edit", "--lake", lake.location, *PLACE)
    ran = run(*words, "--drop-operator", "Sink Committer: kafka")
    assert (ran.code, ran.err) == (0, "")
    assert "? not all is known" in ran.out
