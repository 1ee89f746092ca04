"""A program that a drill runs and cancels: what is said where it may run on."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from statelake.pipelines.live.canary import DrillResult, drill
from statelake.pipelines.live.cluster import FlinkCluster
from statelake.pipelines.live.connection import ConnectionSettings
from statelake.pipelines.live.jars import JarRun
from statelake.state_core.errors import UnreachableClusterError
from tests.support.fake_rest import Answer, FakeRest
from tests.support.lakes import WORDS

TIMEOUT = 0.2
NO_JOB = Answer({"errors": ["Job not found"]}, 404)
VERTEX = {"parallelism": 2, "maxParallelism": 128, "status": "RUNNING"}
Odd = Callable[[str, str], "Answer | None"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits long between two tries; no proxy stands before loopback."""
    monkeypatch.setattr("statelake.pipelines.live.connection.FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


class Cluster:
    """Runs what is submitted; answers otherwise where it is told to.

    Args:
        odd: Returns another answer, or None.

    Attributes:
        state: The job's; empty before it is submitted.
    """

    def __init__(self, odd: Odd = lambda *_: None) -> None:
        self.odd = odd
        self.state = ""

    def __call__(self, method: str, path: str) -> Answer:
        """Return what Flink would, but for what is odd."""
        if path.endswith("/run"):
            self.state = self.state or "RUNNING"
        other = self.odd(method, path)
        if other is not None:
            return other
        if path.endswith("/run"):
            return Answer({"jobid": "a" * 32})
        if not self.state:
            return NO_JOB
        if method == "PATCH":
            self.state = "CANCELED"
        if path.endswith("/checkpoints"):
            return Answer({"counts": {"completed": 1}, "history": []})
        return Answer(
            {"jid": path.split("/")[2], "name": "x", "state": self.state, "vertices": [VERTEX]}
        )


def rehearsed(rest: FakeRest) -> DrillResult:
    """The drill, by a client that is in a hurry."""
    with FlinkCluster(ConnectionSettings(rest.url, timeout=TIMEOUT), poll_seconds=0.01) as cluster:
        cluster.connection.retries = 0
        return drill(WORDS, cluster, JarRun(jar_id="orders.jar"), timeout=2)


def submitted(rest: FakeRest) -> str:
    """The id under which the job was submitted."""
    (body,) = (body.decode() for _, path, _, body in rest.asked if path.endswith("/run"))
    return body.partition('"jobId": "')[2][:32]


def test_a_submission_that_is_answered_too_late_may_be_a_job_yet() -> None:
    """Flink answers when `main` has ended: what it starts then has to be cancelled by hand."""
    cluster = Cluster(lambda _, path: Answer(delay=2 * TIMEOUT) if "/jars/" in path else NO_JOB)
    with FakeRest(cluster) as rest:
        with pytest.raises(UnreachableClusterError, match="no answer within") as raised:
            rehearsed(rest)
        assert f"look for job {submitted(rest)}, and cancel it" in str(raised.value)


@pytest.mark.parametrize("answer", [Answer(delay=2 * TIMEOUT), Answer("", 502)])
def test_a_cluster_that_is_gone_after_the_submission(answer: Answer) -> None:
    """Its job is named, whether it is silent or busy."""
    with FakeRest(Cluster(lambda _, path: None if path.endswith("/run") else answer)) as rest:
        with pytest.raises(UnreachableClusterError, match=r"no answer|HTTP 502") as raised:
            rehearsed(rest)
        assert f"job {submitted(rest)}, " in str(raised.value)
        assert "it writes its sinks until then" in str(raised.value)


@pytest.mark.parametrize("status", [404, 500])
def test_a_cancellation_that_is_refused_is_told(status: int) -> None:
    """Also by 404, as a proxy does: the job is known, and runs."""
    refusal = Answer({"errors": ["no PATCH"]}, status)
    with FakeRest(Cluster(lambda method, _: refusal if method == "PATCH" else None)) as rest:
        with pytest.raises(UnreachableClusterError, match="is not cancelled") as raised:
            rehearsed(rest)
        assert f"job {submitted(rest)}, which was run to see if it restores" in str(raised.value)
        assert sum(method == "PATCH" for method, *_ in rest.asked) == 1


@pytest.mark.parametrize("status", [404, 409])
def test_a_job_that_ends_while_it_is_cancelled_is_no_fault(status: int) -> None:
    """Flink answers that it did."""

    def ends(method: str, _: str) -> Answer | None:
        if method != "PATCH":
            return None
        cluster.state = "FINISHED"
        return Answer({"errors": ["terminated without cancellation"]}, status)

    cluster = Cluster(ends)
    with FakeRest(cluster) as rest:
        assert rehearsed(rest).restores


def test_one_that_never_ends_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is named."""
    monkeypatch.setitem(FlinkCluster.cancel.__kwdefaults__, "timeout", 0.3)
    stays = Answer({}, 202)
    with FakeRest(Cluster(lambda method, _: stays if method == "PATCH" else None)) as rest:
        began = time.monotonic()
        with pytest.raises(UnreachableClusterError, match="waited too long") as raised:
            rehearsed(rest)
        assert time.monotonic() - began < 0.6
        assert submitted(rest) in str(raised.value)
