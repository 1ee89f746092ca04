"""The figures of a job's last run as a text file that Prometheus' node exporter collects.

Format: Prometheus' text exposition format 0.0.4. After a failed run, the figures of the last
successful run stay, and `statelake_run_failed` is 1.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

from statelake.pipelines.runtime.running import RunResult
from statelake.state_core.errors import CommitError

HELP = {
    "failed": "Whether the last run failed.",
    "last_success_timestamp_seconds": "When the last run succeeded, in seconds since 1970.",
    "number": "The number of the last run with input.",
    "records": "Input records of the last run with input.",
    "records_per_second": "Input records a second, over all steps.",
    "step_seconds": "Seconds of each step of the last run with input.",
    "state_bytes": "The size of the state, as a savepoint.",
    "output_rows": "Rows that the last run with input wrote to each sink.",
    "source_lag_bytes": "Bytes of a source's files that no run has read.",
    "source_lag_versions": "Versions of a source's table that no run has read.",
}
MOST_BYTES = 1 << 20
_SAMPLE = re.compile(r"statelake_run_(\w+)\{.*\} \S+", re.ASCII)


def write_metrics(path: str, job: str, done: RunResult | None) -> None:
    """Replace the file of a job's figures.

    Args:
        path: The file, which belongs to this job alone.
        job: The job's name.
        done: The result of the run; None if it failed.

    Raises:
        CommitError: The file can't be written.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        raise CommitError(
            "the metrics can't be written: not a regular file",
            place=path,
            remedy="what the run committed stays: give a file in a directory that exists",
        )
    try:
        samples = {**_kept(target), **_samples(job, done)}
        text = "".join(
            f"# HELP statelake_run_{name} {HELP[name]}\n# TYPE statelake_run_{name} gauge\n"
            + "".join(f"{line}\n" for line in samples[name])
            for name in HELP
            if samples.get(name)
        )
        part = target.with_name(f".{target.name}.part")  # a name that is not collected
        part.write_text(text, "utf-8")
        part.replace(target)
    except OSError as error:
        raise CommitError(
            f"the metrics can't be written: {error.strerror}",
            place=path,
            remedy="what the run committed stays: give a file in a directory that exists",
        ) from error


def _samples(job: str, done: RunResult | None) -> dict[str, list[str]]:
    """Return the samples that a run changes, by figure."""

    def sample(name: str, value: float, **labels: str) -> str:
        texts = ",".join(
            f'{key}="{_escaped(text)}"' for key, text in {"job": job, **labels}.items()
        )
        return f"statelake_run_{name}{{{texts}}} {value}"

    if done is None:
        return {"failed": [sample("failed", 1)]}
    figures = {"failed": 0.0, "last_success_timestamp_seconds": round(time.time(), 3)}
    if done.run:
        figures |= {
            "number": done.run, "records": done.records, "state_bytes": done.state_bytes,
            "records_per_second": done.records_per_second,
        }  # fmt: skip
    samples = {name: [sample(name, value)] for name, value in figures.items()}
    for unit in ("bytes", "versions"):
        name = f"source_lag_{unit}"
        samples[name] = [
            sample(name, lag[unit], source=source)
            for source, lag in done.lag.items()
            if unit in lag
        ]
    if done.run:
        samples["step_seconds"] = [
            sample("step_seconds", round(took, 3), step=step) for step, took in done.seconds.items()
        ]
        samples["output_rows"] = [
            sample("output_rows", count, sink=sink) for sink, count in done.rows.items()
        ]
    return samples


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _kept(path: Path) -> dict[str, list[str]]:
    """Return the samples that the file has, by figure."""
    kept: dict[str, list[str]] = {}
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file.read(MOST_BYTES).split("\n"):
                if match := _SAMPLE.fullmatch(line):
                    kept.setdefault(match[1], []).append(line)
    return kept
