"""What a run tells of itself: seconds, sizes, lag, and the file for Prometheus."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from statelake import Lake
from statelake.pipelines.runtime import RunResult
from statelake.pipelines.runtime.metrics import HELP, write_metrics
from statelake.state_core.errors import CommitError, StateError
from tests.support.command import run
from tests.support.jobs.alert_orders import EXAMPLE, alerts_module, feed, sink_rows

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"({NAME})\{{({LABEL}(?:,{LABEL})*)\}} (-?[0-9.e+-]+)")


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
