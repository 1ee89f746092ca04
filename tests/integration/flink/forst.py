"""Checkpoints of ForSt, by real Flink: `tests/golden/forst/forst.tar.xz`.

    python -m tests.integration.flink.forst tests/golden/forst/forst.tar.xz

Two checkpoints of the job `async-changes`, whose tables lie where ForSt itself works on them, in
`shared/op_..._attempt_0/db`; and of the same moments of the same job native savepoints of the
heap, since ForSt writes no canonical ones.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.integration.flink.oracle import FlinkOracle

__all__ = ["VARIANTS"]

VARIANTS = {
    "shared": {},
    "local": {"state.backend.forst.primary-dir": "local-dir"},
    "merged": {"execution.checkpointing.file-merging.enabled": "true"},
    "full": {"execution.checkpointing.incremental": "false"},
}
KEYS, GENERATIONS, INLINED = 12, 2, 1 << 20


def _write(flink: FlinkOracle, work: Path, to: Path) -> None:
    options = {"keys": KEYS, "generations": GENERATIONS}
    checkpoints = flink.checkpoints("async-changes", work, backend="forst", **options)
    savepoints = flink.checkpoints(
        "async-changes", work, backend="hashmap", each="NATIVE", inline=INLINED, **options
    )[::2]
    for number, (checkpoint, savepoint) in enumerate(zip(checkpoints, savepoints, strict=True), 1):
        shutil.copytree(checkpoint, to / f"chk-{number}")
        shutil.copytree(savepoint, to / f"heap-{number}")
    shutil.copytree(checkpoints[0].parent / "shared", to / "shared")


def main(target: str) -> None:
    """Write the archive."""
    with (
        FlinkOracle("2.3.0") as flink,
        tempfile.TemporaryDirectory(prefix="forst-") as directory,
    ):
        _write(flink, Path(directory) / "written", Path(directory) / "golden")
        with tarfile.open(target, "w:xz") as archive:
            for path in sorted((Path(directory) / "golden").iterdir()):
                archive.add(path, path.name)


if __name__ == "__main__":
    main(sys.argv[1])
