"""Jobs are built, and checked as they are: streams, keys, names, legality."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from statelake.state_core.errors import DeclarationError, LegalityError
from statelake.state_core.runtime.declarations import StreamKind
from statelake.state_core.runtime.process import StreamJob
from statelake.state_core.runtime.process.jobs import Stream
from tests.support.jobs.process_functions import Alerting, Counting, Joining

OUT = {"key": pa.int64(), "count": pa.int64()}


def test_a_job_of_two_inputs() -> None:
    """The broadcast side is the first, on whichever side it was written."""
    for swapped in (False, True):
        job = StreamJob("alerts", max_parallelism=64)
        orders = job.source("orders", "lake/orders", event_time="at", delay="5s").key_by("c", int)
        rules = job.source("rules", "rules.jsonl").broadcast()
        one, two = (orders, rules) if swapped else (rules, orders)
        made = one.connect_and_process(two, Alerting(), uid="alert", output=OUT)
        made.sink("alerts", "lake/alerts")
        node = job.build().operators["alert"]
        assert [input_.kind for input_ in node.inputs] == [StreamKind.BROADCAST, StreamKind.KEYED]
        assert node.declaration.max_parallelism == 64
        assert str(node.key_type) == "Long"
        assert (job.sources["orders"].delay, job.sources["orders"].format) == (5000, "delta")
        assert job.sources["rules"].format == "json"
        assert job.sinks["alerts"].input.node == "alert"
        (declared,) = job.declaration().operators
        assert {state.name for state, _ in declared.declared} == {"count", "rules"}


def test_operators_follow_one_another() -> None:
    """What one gives is read by the next."""
    job = StreamJob("counts")
    words = job.source("words", "words.parquet").key_by("word", "String")
    counts = words.process(Counting(), uid="count", output=OUT)
    assert isinstance(counts, Stream)
    counts.key_by(lambda record: record["key"] % 2, int).process(
        Counting(), uid="again", output=OUT
    )
    nodes = job.build().operators
    assert list(nodes) == ["count", "again"]
    assert nodes["again"].inputs[0].node == "count"


def test_an_illegal_state_is_found_when_the_job_is_built() -> None:
    """Keyed state over a stream without keys."""
    job = StreamJob("counts")
    job.source("words", "words.jsonl").process(Counting(), uid="count", output=OUT)
    with pytest.raises(LegalityError, match=r"count.*NONE over Non-Keyed"):
        job.build()


def two_keys(job: StreamJob) -> object:
    """Of two types."""
    one = job.source("a", "x.jsonl").key_by("k", "Long")
    two = job.source("b", "x.jsonl").key_by("k", "String")
    return one.connect_and_process(two, Joining(), uid="u", output=OUT)


WRONG: dict[str, tuple[Callable[[StreamJob], object], str]] = {
    "name": (lambda job: job.source("no/name", "x"), "letters, digits"),
    "taken": (lambda job: (job.source("a", "x"), job.source("a", "y")), "two parts"),
    "format": (lambda job: job.source("a", "x", format="csv"), "delta, parquet, json"),
    "delay": (lambda job: job.source("a", "x", delay="5 weeks"), "write 5s"),
    "key": (lambda job: job.source("a", "x").key_by("k", "Lnog"), "key of 'a'"),
    "inputs": (
        lambda job: job.source("a", "x").process(Alerting(), uid="u", output=OUT),
        "connect_and_process",
    ),
    "broadcast": (
        lambda job: job.source("a", "x").connect_and_process(
            job.source("b", "x"), Alerting(), uid="u", output=OUT
        ),
        "no broadcast input",
    ),
    "sink": (lambda job: job.source("a", "x").sink("s", "y"), "as it is"),
    "nothing": (lambda job: job.build(), "has no operators"),
    "keys": (two_keys, "two types"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said(what: str) -> None:
    """Where, and what to do."""
    build, words = WRONG[what]
    with pytest.raises(DeclarationError, match=words):
        build(StreamJob("job"))


def test_streams_of_two_jobs() -> None:
    """Do not meet."""
    one, two = StreamJob("one"), StreamJob("two")
    rules = one.source("rules", "x").broadcast()
    orders = two.source("orders", "x").key_by("k", "Long")
    with pytest.raises(DeclarationError, match="two jobs"):
        rules.connect_and_process(orders, Alerting(), uid="u", output=OUT)
