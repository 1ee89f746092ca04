"""Hostile records of runs: what a lake says of a run neither reads nor writes outside it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from tests.adversary.makers.lake import filled
from tests.adversary.makers.scene import Maker, Scene
from tests.adversary.playing import Case

__all__ = ["RUN_CASES"]

RUN = "run {here}/orders_job.py:JOB --lake {lake} --engine local"
RUNS = "orders/_runs"


def runs_of(scene: Scene) -> Path:
    """The records of the job's runs."""
    return (scene.lake if scene.lake.exists() else scene.with_runs()) / RUNS


def prepared(**said: Any) -> Maker:
    """A second run that was prepared and cut off, whose record says something else."""

    def make(scene: Scene) -> None:
        _second(scene, prepared=True)
        _change(runs_of(scene) / "00000002" / "prepared.json", said, scene)

    return make


def planned(**said: Any) -> Maker:
    """A second run that was planned and cut off, whose plan says something else."""

    def make(scene: Scene) -> None:
        _second(scene, prepared=False)
        _change(runs_of(scene) / "00000002" / "plan.json", said, scene)

    return make


def word(name: str, text: str | bytes) -> Maker:
    """A second run with a file that is no record."""

    def make(scene: Scene) -> None:
        _second(scene, prepared=name != "plan.json")
        data = text if isinstance(text, bytes) else text.encode()
        (runs_of(scene) / "00000002" / name).write_bytes(data)

    return make


def in_runs(path: str, text: str) -> Maker:
    """A file among the records."""

    def make(scene: Scene) -> None:
        target = runs_of(scene) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    return make


def run_link(path: str, to: str) -> Maker:
    """A link among the records, in place of what is there."""

    def make(scene: Scene) -> None:
        target = Path(os.path.normpath(runs_of(scene) / path))
        if target.is_dir():
            shutil.rmtree(target)
        elif target.exists():
            target.unlink()
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(filled(to, scene))

    return make


def _second(scene: Scene, *, prepared: bool) -> None:
    """A copy of the first run's record as the second's, which is not done."""
    runs = runs_of(scene)
    shutil.copytree(runs / "00000001", runs / "00000002")
    (runs / "00000002" / "done.json").unlink()
    ends = {"orders": {"files": {"0.jsonl": 34, "1.jsonl": 34}}}
    begins = {"orders": {"files": {"0.jsonl": 34}}}
    plan = {"run": 2, "restore": "run-00000001", "ends": ends, "begins": begins}
    _change(runs / "00000002" / "plan.json", plan, scene)
    came_to = runs / "00000002" / "prepared.json"
    if not prepared:
        came_to.unlink()
        return
    old, new = (f"_data/orders-{run:08d}-" for run in (1, 2))
    came_to.write_text(came_to.read_text("utf-8").replace(old, new), "utf-8")
    for written in (scene.data / "kept" / "_data").iterdir():
        shutil.copytree(written, written.with_name(written.name.replace("00000001", "00000002")))


def _change(path: Path, changes: dict[str, Any], scene: Scene) -> None:
    content = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**content, **filled(changes, scene)}), "utf-8")


OUTSIDE = {
    "parent": "../../../../victim/savepoint",
    "absolute": "{victim}/savepoint",
    "uri": "file://{victim}/savepoint",
    "through": "attempt-x/../../../../../victim/savepoint",
    "encoded": "%2e%2e/%2e%2e/%2e%2e/%2e%2e/victim/savepoint",
    "empty": "",
    "dot-dot": "..",
    "null-byte": "attempt\0",
}
OUTPUTS = {
    "parent": "../../victim/part-00000.snappy.parquet",
    "absolute": "{victim}/part-00000.snappy.parquet",
    "uri": "file://{victim}/part-00000.snappy.parquet",
    "through": "_data/../../../victim/part-00000.snappy.parquet",
    "encoded": "%2e%2e/%2e%2e/victim/part-00000.snappy.parquet",
    "empty": "",
    "log": "_delta_log/00000000000000000000.json",
}
INPUTS = {
    "parent": "../../victim/orders.jsonl",
    "absolute": "{victim}/orders.jsonl",
    "uri": "file://{victim}/orders.jsonl",
    "through": "x/../../../victim/orders.jsonl",
    "encoded": "%2e%2e/%2e%2e/victim/orders.jsonl",
    "empty": "",
    "dot-dot": "..",
    "null-byte": "a\0",
    "not-there": "9.jsonl",
}

RUN_CASES: list[Case] = [
    Case("honest/next", Scene.with_runs, RUN, 0),
    Case("honest/prepared", prepared(), RUN, 0),
    Case("honest/planned", planned(), RUN, 0),
    *(Case(f"prepared/savepoint/{name}", prepared(savepoint=path), RUN, changes=True)
      for name, path in OUTSIDE.items()),
    *(Case(f"prepared/output/{name}", prepared(outputs={"kept": [[path, 691, 1]]}), RUN, changes=True)
      for name, path in OUTPUTS.items()),
    *(Case(f"prepared/value/{name}", prepared(**fields), RUN, changes=True)
      for name, fields in (
          ("attempt-dot-dot", {"attempt": ".."}), ("attempt-path", {"attempt": "../../victim"}),
          ("attempt-empty", {"attempt": ""}), ("attempt-number", {"attempt": 5}),
          ("savepoint-number", {"savepoint": 5}), ("outputs-list", {"outputs": [1]}),
          ("outputs-text", {"outputs": {"kept": "x"}}), ("outputs-short", {"outputs": {"kept": [[]]}}),
          ("size-negative", {"outputs": {"kept": [["_data/a.parquet", -1, 1]]}}),
          ("size-huge", {"outputs": {"kept": [["_data/a.parquet", 2**70, 1]]}}),
          ("markers-list", {"markers": []}), ("marker-number", {"markers": {"counter-0": 5}}),
          ("counts-text", {"counts": "x"}), ("unknown-key", {"evil": 1}),
          ("version", {"version": 99}), ("version-text", {"version": "1"}),
      )),
    *(Case(f"plan/input/{name}", planned(ends={"orders": {"files": {path: 40}}}), RUN, changes=True)
      for name, path in INPUTS.items()),
    *(Case(f"plan/value/{name}", planned(**fields), RUN, changes=True)
      for name, fields in (
          ("parallelism-0", {"parallelism": 0}), ("parallelism-huge", {"parallelism": 2**31 - 1}),
          ("parallelism-text", {"parallelism": "2"}), ("max-parallelism", {"max_parallelism": 2**31 - 1}),
          ("max-parallelism-0", {"max_parallelism": 0}), ("time-text", {"processing_time": "now"}),
          ("time-huge", {"processing_time": 10**30}), ("ends-list", {"ends": []}),
          ("no-source", {"ends": {}}), ("offset-text", {"ends": {"orders": "x"}}),
          ("offset-negative", {"ends": {"orders": {"files": {"0.jsonl": -5}}}}),
          ("offset-huge", {"ends": {"orders": {"files": {"0.jsonl": 2**62}}}}),
          ("offset-list", {"ends": {"orders": {"files": ["0.jsonl"]}}}),
          ("restore-none", {"restore": "none"}), ("restore-path", {"restore": "../../victim"}),
          ("restore-number", {"restore": 5}), ("unknown-key", {"evil": 1}), ("run-other", {"run": 7}),
          ("latest-text", {"latest": "x"}), ("watermark-text", {"watermark": "x"}),
      )),
    *(Case(f"{name}/{kind}", word(f"{name}.json", text), RUN, changes=True)
      for name in ("plan", "prepared")
      for kind, text in (
          ("nothing", ""), ("no-json", "{"), ("list", "[]"), ("number", "5"), ("null", "null"),
          ("nested", "[" * 100_000), ("not-utf-8", b"\xff{}"), ("no-keys", "{}"),
          ("version-alone", '{"version": 1}'),
      )),
    *(Case(f"lock/{kind}", in_runs("running.json", text), RUN, changes=True)
      for kind, text in (
          ("nothing", ""), ("no-json", "{"), ("list", "[]"), ("null", "null"), ("no-keys", "{}"),
          ("nested", "[" * 100_000), ("process-text", '{"host": "h", "process": "x", "started": 1e10}'),
          ("time-text", '{"host": "h", "process": 1, "started": "x"}'),
      )),
    Case("number/huge", in_runs(f"{'9' * 40}/plan.json", "{}"), RUN, 0),
    Case("number/other-digits", in_runs("\u0661\u0662/plan.json", "{}"), RUN, 0),
    Case("number/zero", in_runs("00000000/plan.json", "{}"), RUN, 0),
    *(Case(f"link/{name}", run_link(path, to), RUN, changes=True)
      for name, path, to in (
          ("runs", "../_runs", "{victim}"), ("run", "00000001", "{victim}"),
          ("next-run", "00000002", "{victim}"), ("plan", "00000002/plan.json", "{victim}/secret.txt"),
          ("prepared", "00000001/prepared.json", "{victim}/secret.txt"),
          ("lock", "running.json", "{victim}/secret.txt"), ("records", "checkpoints", "{victim}"),
          ("done", "00000001/done.json", "{victim}/secret.txt"),
      )),
]  # fmt: skip
