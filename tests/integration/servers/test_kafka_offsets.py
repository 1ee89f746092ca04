"""A real Kafka, and real Flink with its own connector: a job goes on from the offsets set here."""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from statelake import open_snapshot
from statelake.state_core.connectors.sources import sources_of
from statelake.state_core.model.key_groups import operator_id_of_uid
from tests.integration.flink.sources import NEW, OLD, Run, run_sources
from tests.integration.kafka.broker import KafkaBroker
from tests.support.command import run
from tests.support.savepoints.golden_cases import GOLDEN

pytestmark = [pytest.mark.kafka, pytest.mark.flink, pytest.mark.full]

PARTITIONS = 3
RECORDS = 20


def created(kafka: KafkaBroker) -> str:
    """A topic without records."""
    name = f"t{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
        future.result(30)
    return name


def fill(kafka: KafkaBroker, topic: str, offsets: range, prefix: str = "") -> list[str]:
    """Write records that say where they are, `partition:offset` behind a prefix; return them."""
    producer = Producer({"bootstrap.servers": kafka.servers})
    written = []
    for offset in offsets:
        for partition in range(PARTITIONS):
            written.append(f"{prefix}{partition}:{offset}")
            producer.produce(topic, written[-1], partition=partition)
    assert producer.flush(30) == 0
    return written


@pytest.fixture(scope="module")
def topic(kafka: KafkaBroker) -> str:
    """A topic with records."""
    name = created(kafka)
    fill(kafka, name, range(RECORDS))
    return name


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("kafka", NEW),
        pytest.param("kafka", OLD, marks=pytest.mark.nightly),
        pytest.param("old-kafka", OLD, marks=pytest.mark.nightly),
    ],
)
def test_a_restored_job_goes_on_from_the_offsets_set(
    kind: str, version: str, kafka: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    """It reads just what lies from there on, at another parallelism too; then it goes on."""
    source = (kind, kafka.servers, topic)
    whole = PARTITIONS * RECORDS
    ((lines, savepoint),) = run_sources([Run(source, whole, to=tmp_path / "written")], version)
    assert len(set(lines)) == len(lines) == whole
    assert savepoint is not None
    shown = run("offsets", savepoint, "--json")
    (described,) = shown.json["sources"]
    assert described["kind"] == "kafka"
    assert {split["partition"]: split["offset"] for split in described["splits"]} == dict.fromkeys(
        range(PARTITIONS), RECORDS
    )
    lake = ("--lake", tmp_path / "lake", "--job", "job")
    assert run("import", savepoint, *lake, "--snapshot", "whole").code == 0
    given = tmp_path / "offsets.txt"
    given.write_text(f"# what is read again\n{topic}:1=earliest\n", "utf-8")
    edited = run(
        "edit", *lake, "--parent", "whole", "--snapshot", "again",
        "--set-offsets", f"{topic}:0=7", "--set-offsets", given, "--json",
    )  # fmt: skip
    assert (edited.code, edited.err) == (0, "")
    assert {(moved["partition"], moved["before"], moved["after"]) for moved in
            edited.json["offsets"]} == {(0, RECORDS, 7), (1, RECORDS, "earliest")}  # fmt: skip
    for parallelism in (2, 3):
        exported = tmp_path / f"again-{parallelism}"
        words = ("--snapshot", "again", "--to", exported, "--parallelism", parallelism)
        assert run("export", *lake, *words).code == 0
    expected = Counter(
        [f"0:{offset}" for offset in range(7, RECORDS)]
        + [f"1:{offset}" for offset in range(RECORDS)]
    )
    count = sum(expected.values())
    read = run_sources(
        [
            Run(source, count, tmp_path / "again-2", tmp_path / "after"),
            Run(source, count, tmp_path / "again-3", parallelism=3),
        ],
        version,
    )
    assert [Counter(lines) for lines, _ in read] == [expected, expected]
    after = read[0][1]
    assert after is not None
    (left,) = sources_of(open_snapshot(after))
    assert {element.split.columns()["offset"] for element in left.elements} == {RECORDS}


@pytest.mark.parametrize("version", [OLD, pytest.param(NEW, marks=pytest.mark.nightly)])
def test_a_new_source_goes_on_where_the_old_consumer_stood(
    version: str, kafka: KafkaBroker, tmp_path: Path
) -> None:
    """It reads what is new, and from an offset that was set; a dropped topic is not read."""
    kept, dropped = created(kafka), created(kafka)
    for name, prefix in ((kept, "kept "), (dropped, "dropped ")):
        fill(kafka, name, range(RECORDS), prefix)
    old = ("old-kafka", kafka.servers, f"{kept},{dropped}")
    whole = 2 * PARTITIONS * RECORDS
    ((_, savepoint),) = run_sources([Run(old, whole, to=tmp_path / "written")], OLD)
    later = range(RECORDS, RECORDS + 5)
    new, others = fill(kafka, kept, later, "kept "), fill(kafka, dropped, later, "dropped ")
    lake = ("--lake", tmp_path / "lake", "--job", "job")
    assert run("import", savepoint, *lake, "--snapshot", "whole").code == 0
    moving = ("edit", *lake, "--parent", "whole", "--move-positions", operator_id_of_uid("records"),
              "moved")  # fmt: skip
    more = ("--drop-partitions", dropped, "--set-offsets", f"{kept}:0={RECORDS - 3}")
    runs = []
    for snapshot, words, parallelism, count in (
        ("both", (), 2, len(new) + len(others)),
        ("less", more, 2, len(new) + 3),
        ("less", (), 3, len(new) + 3),
    ):
        if parallelism == 2:
            edited = run(*moving, "--snapshot", snapshot, *words, "--json")
            assert (edited.code, edited.err) == (0, "")
        exported = tmp_path / f"{snapshot}-{parallelism}"
        to = ("--snapshot", snapshot, "--to", exported, "--parallelism", parallelism)
        assert run("export", *lake, *to).code == 0
        source = ("kafka", kafka.servers, kept, "moved")
        runs.append(Run(source, count, exported, tmp_path / "after", parallelism=parallelism))
    read = run_sources(runs, version)
    # a partition that is in the state is read, though nobody subscribes to its topic
    assert Counter(read[0][0]) == Counter([*new, *others])
    again = [f"kept 0:{offset}" for offset in range(RECORDS - 3, RECORDS)]
    for lines, _ in read[1:]:
        assert Counter(lines) == Counter([*new, *again])
    after = read[1][1]
    assert after is not None
    (left,) = sources_of(open_snapshot(after))
    assert {element.split.columns()["offset"] for element in left.elements} == {RECORDS + 5}
    assert not left.waiting


def test_offsets_of_a_time(kafka: KafkaBroker, tmp_path: Path) -> None:
    """Each partition is read from its first record of then, and from its end if there is none."""
    begin = datetime.now(timezone.utc) - timedelta(hours=1)  # later ones no broker would take
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(30)
    producer = Producer({"bootstrap.servers": kafka.servers})
    for offset in range(5):
        for partition in range(2):
            at = begin + timedelta(minutes=offset + 2 * partition)
            milliseconds = round(at.timestamp() * 1000)
            producer.produce("orders", b"x", partition=partition, timestamp=milliseconds)
    assert producer.flush(30) == 0
    then = (begin + timedelta(seconds=210)).isoformat()
    lake = ("--lake", tmp_path / "lake", "--job", "job")
    golden = GOLDEN / "sources" / "kafka-5.0"
    assert run("import", golden, *lake, "--snapshot", "s").code == 0
    ran = run(
        "edit", *lake, "--parent", "s", "--snapshot", "then", "--json",
        "--offsets-from-timestamp", then, "--bootstrap-servers", kafka.servers,
    )  # fmt: skip
    assert (ran.code, ran.err) == (0, "")
    moved = {each["partition"]: each["after"] for each in ran.json["offsets"]}
    assert moved == {0: 4, 1: 2, 2: 0}
