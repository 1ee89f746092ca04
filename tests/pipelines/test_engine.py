"""Engines: the local one maps in order and tells of progress; which one `auto` takes."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.pipelines.engine import LocalEngine
from statelake.pipelines.engine_choice import choose_engine
from statelake.state_core.errors import MissingExtraError


class TaskError(Exception):
    """What a task fails with."""


def double(value: int) -> int:
    """A slice."""
    return 2 * value


def fail_at_three(value: int) -> int:
    """A slice that fails for one task."""
    if value == 3:
        raise TaskError
    return value


threads = pytest.mark.parametrize("engine", [LocalEngine(1), LocalEngine(2), LocalEngine(16)])


@threads
@given(st.lists(st.integers(), max_size=20))
def test_results_are_in_order(engine: LocalEngine, tasks: list[int]) -> None:
    """As many as tasks, each where its task was."""
    assert engine.map(double, tasks) == [2 * task for task in tasks]


@threads
@pytest.mark.parametrize("count", [0, 1, 7])
def test_progress(engine: LocalEngine, count: int) -> None:
    """It is told after each task how many of how many are done."""
    told: list[tuple[int, int]] = []
    engine.map(double, range(count), lambda done, total: told.append((done, total)))
    assert told == [(done, count) for done in range(1, count + 1)]


@threads
@pytest.mark.parametrize("tasks", [[3], [1, 3], list(range(50))])
def test_the_first_error_ends_it(engine: LocalEngine, tasks: list[int]) -> None:
    """The task's own error comes out, and no task runs on behind it."""
    before = threading.active_count()
    with pytest.raises(TaskError):
        engine.map(fail_at_three, tasks)
    assert threading.active_count() == before


def test_an_error_cancels_what_has_not_begun() -> None:
    """Tasks behind a failed one are not started once it is known."""
    done: list[int] = []

    def work(value: int) -> None:
        if value == 0:
            raise TaskError
        done.append(value)

    with pytest.raises(TaskError):
        LocalEngine(1).map(work, range(1000))
    assert done == []


def test_threads_work_together() -> None:
    """Two tasks that wait for each other end."""
    meeting = threading.Barrier(2, timeout=60)
    assert sorted(LocalEngine(2).map(lambda _: meeting.wait(), range(2))) == [0, 1]


class NoSpark:
    """In the place of the module that would import pyspark and start a JVM."""

    @staticmethod
    def SparkEngine() -> str:  # noqa: N802 - the class's name
        """Say that it would be Spark."""
        return "spark"


@pytest.fixture
def nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cluster, whatever this machine is set up for; Spark's engine is named, not started."""
    for name in (
        "STATELAKE_MASTER", "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS",
        "SPARK_CONF_DIR", "SPARK_HOME",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.setitem(sys.modules, "statelake.pipelines.spark.engine", NoSpark)


@pytest.mark.usefixtures("nothing_configured")
class TestChoice:
    """`auto` is this process, unless Spark is told to run on a cluster; size does not matter."""

    @pytest.mark.parametrize("wanted", ["auto", "local"])
    def test_local(self, wanted: str) -> None:
        """Where nothing is configured, it runs here."""
        assert isinstance(choose_engine(wanted), LocalEngine)

    def test_an_engine(self) -> None:
        """An engine is taken as it is."""
        engine = LocalEngine(1)
        assert choose_engine(engine) is engine

    def test_spark(self) -> None:
        """Asked for, it is Spark, with nothing configured too."""
        assert choose_engine("spark") == "spark"

    @pytest.mark.parametrize(
        ("name", "value", "engine"),
        [
            ("STATELAKE_MASTER", "spark://host:7077", "spark"),
            ("STATELAKE_MASTER", "yarn", "spark"),
            ("STATELAKE_MASTER", "local-cluster[2,1,512]", "spark"),
            ("STATELAKE_MASTER", "local[8]", "local"),
            ("STATELAKE_MASTER", "local", "local"),
            ("SPARK_REMOTE", "sc://host:15002", "spark"),
            ("SPARK_REMOTE", "local[*]", "local"),
            ("PYSPARK_GATEWAY_PORT", "41234", "spark"),
            ("PYSPARK_SUBMIT_ARGS", "--master yarn pyspark-shell", "spark"),
            ("PYSPARK_SUBMIT_ARGS", "--master=k8s://https://host pyspark-shell", "spark"),
            ("PYSPARK_SUBMIT_ARGS", "--conf spark.master=spark://host:7077 shell", "spark"),
            ("PYSPARK_SUBMIT_ARGS", "--master local[2] --conf spark.x=y pyspark-shell", "local"),
            ("PYSPARK_SUBMIT_ARGS", "--packages 'open", "local"),
        ],
    )
    def test_auto_follows_the_environment(
        self, name: str, value: str, engine: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each way to tell Spark of a cluster is heard; a local one is none."""
        monkeypatch.setenv(name, value)
        chosen = choose_engine("auto")
        assert getattr(chosen, "name", chosen) == engine
        assert isinstance(choose_engine("local"), LocalEngine)

    @pytest.mark.parametrize(
        ("line", "engine"),
        [
            ("spark.master   spark://host:7077", "spark"),
            ("spark.master=yarn", "spark"),
            ("spark.master local[4]", "local"),
            ("# spark.master yarn", "local"),
            ("spark.master.rest.enabled true", "local"),
        ],
    )
    def test_auto_follows_sparks_own_settings(
        self, line: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`spark-defaults.conf` is read where Spark would read it."""
        (tmp_path / "conf").mkdir()
        (tmp_path / "conf" / "spark-defaults.conf").write_text(f"spark.ui.enabled false\n{line}\n")
        for name, value in (("SPARK_HOME", tmp_path), ("SPARK_CONF_DIR", tmp_path / "conf")):
            with monkeypatch.context() as patch:
                patch.setenv(name, str(value))
                chosen = choose_engine("auto")
                assert getattr(chosen, "name", chosen) == engine

    @pytest.mark.parametrize(("master", "engine"), [("yarn", "spark"), ("local[2]", "local")])
    def test_auto_follows_an_active_session(
        self, master: str, engine: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A program's own session on a cluster is used; its own on this machine is not needed."""
        context = SimpleNamespace(_active_spark_context=SimpleNamespace(master=master))
        monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(SparkContext=context))
        monkeypatch.setattr("statelake.pipelines.engine_choice.has_extra", lambda _: True)
        chosen = choose_engine("auto")
        assert getattr(chosen, "name", chosen) == engine

    def test_without_spark(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A cluster that PySpark is not there for is none; asked for, that is an error."""
        monkeypatch.setenv("SPARK_REMOTE", "sc://host:15002")
        monkeypatch.setitem(sys.modules, "pyspark", None)
        for name in [
            module for module in sys.modules if module.startswith("statelake.pipelines.spark")
        ]:
            monkeypatch.delitem(sys.modules, name)
        assert isinstance(choose_engine("auto"), LocalEngine)
        with pytest.raises(MissingExtraError, match=r"needs PySpark, .*'statelake\[spark\]'"):
            choose_engine("spark")
