"""What a run tells of itself: seconds, sizes, lag, and the file for Prometheus."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from statelake import Lake
from statelake.pipelines.runtime import RunOptions, RunResult, run_job
from statelake.pipelines.runtime.metrics import HELP, write_metrics
from statelake.state_core.errors import CommitError, ProcessError, StateError
from statelake.state_core.printable import bytes_text
from statelake.state_core.runtime.declarations import StateDeclarations
from statelake.state_core.runtime.process import OneInputStreamProcessFunction, StreamJob
from tests.support.command import run
from tests.support.jobs.alert_orders import EXAMPLE, alerts_module, feed, sink_rows

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"({NAME})\{{({LABEL}(?:,{LABEL})*)\}} (-?[0-9.e+-]+)")


COUNT = StateDeclarations.value_state("count", "Long")


class Counting(OneInputStreamProcessFunction):
    """Counts words."""

    def uses_states(self) -> set[Any]:
        """The count of each."""
        return {COUNT}

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        """One more."""
        state = ctx.get_state(COUNT)
        state.update((state.value() or 0) + 1)


def samples_in(path: Path) -> dict[str, float]:
    """Parse a file as strictly as the text format 0.0.4 is defined."""
    text = path.read_text("utf-8")
    assert text.endswith("\n")
    samples: dict[str, float] = {}
    announced = ""
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            announced = line.split(" ")[2]
        elif line.startswith("# TYPE "):
            assert line == f"# TYPE {announced} gauge"
        else:
            found = SAMPLE.fullmatch(line)
            assert found is not None, line
            assert found[1] == announced
            key = f"{found[1].removeprefix('statelake_run_')}{{{found[2]}}}"
            assert key not in samples
            samples[key] = float(found[3])
    return samples


def test_runs_go_on_until_nothing_is_new(tmp_path: Path) -> None:
    """What arrives while a run is at work is read by the next; the figures are of all."""
    data, calls = tmp_path / "data", []
    feed(data, 0)

    def arrives(done: int, total: int) -> None:
        if not calls:
            feed(data, 1)
        calls.append((done, total))

    job, lake = alerts_module().alerts(str(data)), Lake(tmp_path / "lake")
    done = lake.run(job, engine="local", until_idle=True, progress=arrives)
    assert (done.run, done.runs, done.records) == (2, 2, 602)
    assert sum(done.rows.values()) == sum(len(sink_rows(data / name)) for name in done.rows)
    assert done.lag == {"orders": {"bytes": 0}, "rules": {"bytes": 0}}
    assert set(done.seconds) == {"restore", "process", "write", "commit"}
    assert done.state_bytes > 0
    sizes = {name: sum(f.stat().st_size for f in (data / name).iterdir()) for name in done.lag}
    assert done.read == {name: {"bytes": size} for name, size in sizes.items()}
    idle = lake.run(job, engine="local", until_idle=True)
    assert (idle.run, idle.lag) == (0, done.lag)


def test_what_never_ends_is_refused(tmp_path: Path) -> None:
    """Before anything runs."""
    feed(tmp_path / "data", 0)
    job = alerts_module().alerts(str(tmp_path / "data"))
    for option in ({"always": True}, {"final": True}):
        with pytest.raises(StateError, match="never end"):
            Lake(tmp_path / "lake").run(job, until_idle=True, **option)  # type: ignore[arg-type]


def test_the_lag_is_what_arrived_since(tmp_path: Path) -> None:
    """In bytes of the files."""
    data = tmp_path / "data"
    feed(data, 0)
    job, calls = alerts_module().alerts(str(data)), []

    def arrives(done: int, total: int) -> None:
        if not calls:
            feed(data, 1)
        calls.append((done, total))

    done = Lake(tmp_path / "lake").run(job, engine="local", progress=arrives)
    size = (data / "orders" / "001.jsonl").stat().st_size
    assert done.lag == {"orders": {"bytes": size}, "rules": {"bytes": 0}}
    assert "source orders: " in str(done)
    assert f"{bytes_text((data / 'orders' / '000.jsonl').stat().st_size)} read, " in str(done)


def test_a_source_that_is_gone_when_a_run_has_committed(tmp_path: Path) -> None:
    """Its lag is not known; the run is good all the same."""
    rows = pa.table({"word": ["a", "b"]})
    write_deltalake(tmp_path / "words", rows)
    write_deltalake(tmp_path / "words", rows, mode="append")
    job = StreamJob("words")
    words = job.source("words", str(tmp_path / "words"), format="delta").key_by("word", "String")
    counted = words.process(Counting(), uid="count", output={"word": pa.string()})
    counted.sink("out", str(tmp_path / "out"))

    def lost(step: str) -> None:
        if step.endswith("commit"):
            for path in (tmp_path / "words" / "_delta_log").iterdir():
                path.write_text("{")

    done = Lake(tmp_path / "lake").run(job, engine="local", step=lost)
    assert (done.run, done.read, done.lag) == (1, {"words": {"versions": 2}}, {"words": {}})
    assert "source words: 2 versions read, unknown not read yet" in str(done)


def test_each_step_is_told_when_it_begins(tmp_path: Path) -> None:
    """Sources and operators in their order, run by run, and how far each is."""
    data, told = tmp_path / "data", []
    feed(data, 0)
    job, lake = alerts_module().alerts(str(data)), Lake(tmp_path / "lake")
    lake.run(
        job, engine="local", parallelism=3, step=told.append,
        progress=lambda done, total: told.append(f"{done}/{total}"),
    )  # fmt: skip
    subtasks = ["1/3", "2/3", "3/3"]
    at = told.index("run 1: operator alert")
    assert told[at + 1 : at + 4] == subtasks
    steps = ["restore", "source orders", "source rules", "operator alert",
             "operator count-by-rule", "commit"]  # fmt: skip
    assert [line for line in told if line.startswith("run")] == [f"run 1: {s}" for s in steps]


def test_a_run_that_an_earlier_call_processed_has_no_rate(tmp_path: Path) -> None:
    """Its records were not processed in the seconds of this call."""
    data = tmp_path / "data"
    feed(data, 0)
    job, lake = alerts_module().alerts(str(data)), Lake(tmp_path / "lake")

    def killed(step: str) -> None:
        if step == "prepared":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(job, lake.catalog, RunOptions(engine="local", observe=killed))
    done = lake.run(job, engine="local")
    assert (done.resumed, done.records, done.records_per_second) == (True, 302, 0)


def test_no_further_run_begins_when_it_is_to_stop(tmp_path: Path) -> None:
    """The present run is committed; what arrived meanwhile is for the next call."""
    data, metrics = tmp_path / "data", tmp_path / "run.prom"
    feed(data, 0)
    job, lake, calls = alerts_module().alerts(str(data)), Lake(tmp_path / "lake"), []

    def arrives(step: str) -> None:
        calls.append(step)
        if len(calls) == 1:
            feed(data, 1)

    done = lake.run(
        job, engine="local", until_idle=True, stop=lambda: True, step=arrives, metrics=str(metrics)
    )
    assert (done.run, done.records) == (1, 302)
    assert done.lag["orders"]["bytes"] > 0
    again = lake.run(job, engine="local", until_idle=True)
    assert (again.run, again.runs, again.records) == (2, 1, 300)


INTERRUPTED = """
import os, signal
from pathlib import Path
from statelake.state_core.runtime.declarations import StateDeclarations
from statelake.state_core.runtime.process import OneInputStreamProcessFunction, StreamJob

COUNT = StateDeclarations.value_state("count", "Long")
HERE = Path(__file__).parent

class Counting(OneInputStreamProcessFunction):
    def uses_states(self):
        return {COUNT}
    def process_record(self, record, output, ctx):
        ctx.get_state(COUNT).update(1)
        if record["word"] == "last":
            (HERE / "words" / "2.jsonl").write_text('{"word": "late"}\\n')
            os.kill(os.getpid(), signal.SIGINT)

JOB = StreamJob("interrupted")
words = JOB.source("words", str(HERE / "words"), format="json").key_by("word", "String")
words.process(Counting(), uid="count", output={})
"""


def test_ctrl_c_ends_after_the_present_run(tmp_path: Path) -> None:
    """What the run did is printed, and the exit code is that of Ctrl-C; the rest comes next."""
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "1.jsonl").write_text('{"word": "one"}\n{"word": "last"}\n')
    (tmp_path / "interrupted_job.py").write_text(INTERRUPTED)
    before = signal.getsignal(signal.SIGINT)
    words = ("run", f"{tmp_path / 'interrupted_job.py'}:JOB", "--lake", tmp_path / "lake")
    ran = run(*words, "--engine", "local", "--until-idle", "--json")
    assert ran.code == 130, ran.err
    assert "stops after this run" in ran.err
    assert (ran.json["run"], ran.json["records"]) == (1, 2)
    assert ran.json["lag"] == {"words": {"bytes": 17}}
    assert signal.getsignal(signal.SIGINT) is before
    again = run(*words, "--engine", "local", "--until-idle", "--json").json
    assert (again["run"], again["records"]) == (2, 1)


def test_the_error_of_a_run_is_told_before_that_of_its_metrics(tmp_path: Path) -> None:
    """A missing directory hides nothing."""
    data = tmp_path / "data"
    feed(data, 0)
    (data / "orders" / "001.jsonl").write_text('{"customer": 1, "amount": null, "at": 1}\n')
    job = alerts_module().alerts(str(data))
    with pytest.raises(ProcessError):
        Lake(tmp_path / "lake").run(job, engine="local", metrics=str(tmp_path / "no" / "f.prom"))


def test_figures_are_written_and_kept_when_a_run_fails(tmp_path: Path) -> None:
    """The failure is told; the last success stays as it was."""
    data, metrics = tmp_path / "data", tmp_path / "alerts.prom"
    feed(data, 0)
    job, lake = alerts_module().alerts(str(data)), Lake(tmp_path / "lake")
    lake.run(job, engine="local", metrics=str(metrics))
    good = samples_in(metrics)
    assert good['failed{job="alerts"}'] == 0
    assert good['records{job="alerts"}'] == 302
    assert good['source_lag_bytes{job="alerts",source="orders"}'] == 0
    assert {name.partition("{")[0] for name in good} == HELP.keys() - {"source_lag_versions"}
    (data / "orders" / "000.jsonl").unlink()
    with pytest.raises(StateError):
        lake.run(job, engine="local", metrics=str(metrics))
    bad = samples_in(metrics)
    assert bad == {**good, 'failed{job="alerts"}': 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alerts.prom", "data", "lake"]


def test_names_are_escaped(tmp_path: Path) -> None:
    """As the format wants: backslash, quotation mark, end of line; nothing else."""
    path = tmp_path / "file.prom"
    done = RunResult(1, records=1, rows={'a"b\\c\nd\te': 2})
    write_metrics(str(path), 'job "x"', done)
    samples = samples_in(path)
    assert samples['output_rows{job="job \\"x\\"",sink="a\\"b\\\\c\\nd\te"}'] == 2


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Nothing of the run is lost by it."""
    with pytest.raises(CommitError, match="can't be written"):
        write_metrics(str(tmp_path / "no" / "file.prom"), "job", RunResult(0))


def test_a_file_that_is_no_regular_one_is_never_replaced(tmp_path: Path) -> None:
    """Such as a device, without which the machine would have a file in its place."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(CommitError, match="not a regular file"):
            write_metrics(str(tmp_path / name), "job", RunResult(0))
    assert (tmp_path / "pipe").is_fifo()


def test_a_run_that_failed_is_told_of_although_its_figures_cannot_be_written(
    tmp_path: Path,
) -> None:
    """The cause is the run's."""
    job = alerts_module().alerts(str(tmp_path / "data"))
    with pytest.raises(StateError, match="'x' is not a backend"):
        Lake(str(tmp_path / "lake")).run(
            job, commit_to=["x"], metrics=str(tmp_path / "no" / "file.prom")
        )


def test_the_command_writes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its options."""
    data = tmp_path / "data"
    monkeypatch.setenv("ALERTS_DATA", str(data))
    feed(data, 0)
    example = Path(shutil.copy(EXAMPLE, tmp_path / "figures_example.py"))
    ran = run(
        "run", f"{example}:JOB", "--lake", tmp_path / "lake", "--engine", "local", "--until-idle",
        "--metrics", tmp_path / "alerts.prom", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert (ran.json["runs"], ran.json["lag"]["orders"]) == (1, {"bytes": 0})
    assert ran.json["records_per_second"] > 0
    assert samples_in(tmp_path / "alerts.prom")['number{job="alerts"}'] == 1
