"""`statelake checkpoints` over a checkpoint topic and changelogs of a real Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from statelake.state_core.runtime.commit import ChangelogBackend
from statelake.state_core.runtime.commit.backends.kafka import (
    KafkaChangelogs,
    KafkaCheckpointLog,
    KafkaCluster,
)
from tests.integration.kafka.broker import KafkaBroker
from tests.support.command import run
from tests.support.jobs.committed_job import CommittedJob

pytestmark = [pytest.mark.kafka, pytest.mark.full]

TASK = "Partition 0"


def test_a_topic_of_checkpoints(kafka: KafkaBroker, tmp_path: Path) -> None:
    """Listed, shown, migrated from version 1 and verified; removing is the brokers' matter."""
    cluster = KafkaCluster(kafka.servers, {"log_level": 0}, patience=30)
    log = KafkaCheckpointLog(cluster, "checkpoints")
    log.create()
    cluster.create("counts-log", 1)
    job = CommittedJob(tmp_path, log, backup=["changelog"], write_versions=(1,))
    job.backends[1] = ChangelogBackend(KafkaChangelogs(cluster))
    job.run(TASK, [{b"a": b"1"}, {b"b": b"2"}], read_versions="1")
    where = f"kafka://{kafka.servers}"
    words = ("--log", f"{where}/checkpoints")
    (listed,) = run("checkpoints", "list", *words, "--json").json
    assert (listed["task"], listed["version"]) == (TASK, 1)
    named = ("--changelog", "counts=kafka.counts-log")
    (done,) = run("checkpoints", "migrate", *words, *named, "--json").json
    assert done["outcome"] == "migrated"
    shown = run("checkpoints", "show", *words, "--task", TASK).json
    assert shown["key"]["type"] == "checkpoint-v2"
    verified = run("checkpoints", "verify", *words, "--changelogs", where, "--json")
    assert verified.code == 0
    assert [marker["outcome"] for marker in verified.json["markers"]] == ["sound"]
    job.write_versions = (2,)
    assert job.run(TASK, [{b"c": b"3"}], read_versions="2") == {b"a": b"1", b"b": b"2"}
    dropped = run("checkpoints", "drop", *words, "--keep", "1")
    assert dropped.code == 3
    assert "can't be removed from a topic" in dropped.err
