"""The oracle itself: what it says when Flink refuses, when its JVM ends, and without a Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from statelake import open_snapshot
from tests.integration.conftest import running
from tests.integration.flink.oracle import FlinkError, FlinkOracle

pytestmark = pytest.mark.flink


@pytest.mark.full
def test_flinks_refusal_is_told_and_it_answers_on(flink: FlinkOracle, tmp_path: Path) -> None:
    """A savepoint that is not there: Flink's own words, each time, from the same JVM."""
    for name in ("first", "second"):
        with pytest.raises(FlinkError, match=rf"^Flink 2\.3\.0: .*Cannot find .*/{name}'"):
            flink.restore("wordcount", tmp_path / name)
    assert flink.process.poll() is None


@pytest.mark.full
def test_a_savepoint_waits_for_all_tasks(flink: FlinkOracle, tmp_path: Path) -> None:
    """Of a job whose tasks have yet to start, Flink takes no savepoint: it is asked again."""
    savepoint = flink.generate("windows", tmp_path, keys=0)
    operators = open_snapshot(savepoint).operators
    assert {operator.uid for operator in operators} >= {"tumbling", "sliding"}
    tables = [
        operator.state(state.name).to_arrow()
        for operator in operators
        for state in operator.keyed_states
    ]
    assert sum(len(table) for table in tables) == 0


def test_the_last_words_of_a_jvm_are_told() -> None:
    """A JVM that can't begin leaves its reason in the error, and no directory."""
    with pytest.raises(FlinkError, match="Invalid maximum heap size"):
        FlinkOracle("2.3.0", heap="none")


def test_a_jvm_that_ended_is_told(tmp_path: Path) -> None:
    """Killed from outside, it answers no question with silence; closing it is no error."""
    with FlinkOracle("2.3.0", heap="64m") as oracle:
        left = Path(oracle._directory.name)
        oracle.process.kill()
        oracle.process.wait()
        with pytest.raises(FlinkError, match="exit code -9"):
            oracle.restore("wordcount", tmp_path / "savepoint")
    assert not left.exists()


def test_patience_ends(tmp_path: Path) -> None:
    """A JVM that does not answer in time is ended, and that is said."""
    with FlinkOracle("2.3.0", heap="64m") as oracle:
        oracle.patience = 0
        with pytest.raises(FlinkError, match="gave no answer in 0 s"):
            oracle.restore("wordcount", tmp_path / "savepoint")


def test_without_java_its_tests_fail_and_say_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A machine without Java has not passed: no test is skipped."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.fail.Exception, match="no Java found") as failed, running("2.3.0"):
        raise AssertionError
    assert "install Java 17" in str(failed.value)
    assert "\n" not in str(failed.value)
