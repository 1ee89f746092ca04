"""Checkpoints with a log of changes, by real Flink: `tests/golden/changelog/changelog.tar.xz`.

    python -m tests.integration.flink.change_logs tests/golden/changelog/changelog.tar.xz

For each backend three checkpoints of the job `changes`, the first before anything was materialized,
the others after; then one of the same job at parallelism 3, restored from the third, whose log is
that of both. Beside each is a canonical savepoint of the same moment.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.integration.flink.oracle import FlinkOracle

__all__ = ["BACKENDS", "changelog_options", "run_generations"]

BACKENDS = ("hashmap", "rocksdb")
KEYS, GENERATIONS = 12, 3
INLINED = 1 << 20


def changelog_options(log: Path, materialized: str) -> dict[str, str]:
    """Flink's options for a log of changes.

    Args:
        log: Where its files are to be.
        materialized: How often the state itself is written.
    """
    return {
        "state.changelog.enabled": "true",
        "state.changelog.storage": "filesystem",
        "state.changelog.dstl.dfs.base-path": log.as_uri(),
        "state.changelog.periodic-materialize.interval": materialized,
    }


def run_generations(
    flink: FlinkOracle, backend: str, to: Path, **options: object
) -> list[tuple[Path, Path]]:
    """Run the job: each checkpoint, and the savepoint of the same moment."""
    places = flink.checkpoints("changes", to, backend=backend, each="CANONICAL", **options)
    return list(zip(places[1::2], places[::2], strict=True))


def _write(flink: FlinkOracle, backend: str, work: Path, to: Path) -> None:
    log = {"keys": KEYS, "inline": INLINED}
    some = changelog_options(work, "600 ms")
    pairs = run_generations(
        flink, backend, work, generations=GENERATIONS, pause=1500, **log, **some
    )
    never = changelog_options(work, "10 min")
    rescaled = run_generations(
        flink, backend, work, generations=1, first=GENERATIONS, parallelism=3, **log, **never,
        **{
            "execution.state-recovery.path": pairs[-1][0].as_uri(),
            "execution.state-recovery.claim-mode": "CLAIM",
        },
    )  # fmt: skip
    for part, moments in ((to / backend, pairs), (to / backend / "rescaled", rescaled)):
        for number, (checkpoint, savepoint) in enumerate(moments, 1):
            shutil.copytree(checkpoint, part / f"chk-{number}")
            shutil.copytree(savepoint, part / f"savepoint-{number}")
        _copy_logs((pairs[0][0].parent, moments[0][0].parent), part)


def _copy_logs(jobs: Iterable[Path], to: Path) -> None:
    """What the jobs' checkpoints have in common, in one place."""
    for job in jobs:
        for shared in ("dstl", "shared"):
            if (job / shared).is_dir():
                shutil.copytree(job / shared, to / shared, dirs_exist_ok=True)


def main(target: str) -> None:
    """Write the archive."""
    with (
        FlinkOracle("2.3.0") as flink,
        tempfile.TemporaryDirectory(prefix="changelog-") as directory,
    ):
        for backend in BACKENDS:
            _write(flink, backend, Path(directory) / "written", Path(directory) / "golden")
        with tarfile.open(target, "w:xz") as archive:
            for path in sorted((Path(directory) / "golden").iterdir()):
                archive.add(path, path.name)


if __name__ == "__main__":
    main(sys.argv[1])
