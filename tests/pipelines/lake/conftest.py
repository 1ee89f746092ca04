"""Lakes with golden savepoints in them."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from tests.support.lakes import import_golden
from tests.support.savepoints.golden_cases import GOLDEN

DEMO = Path(__file__).parents[3] / "pipelines" / "cli" / "demo" / "savepoints"
WIDE = GOLDEN / "flink" / "wordcount-hashmap-canonical-p2-m1024-flink2.3.0" / "savepoint"
JOB = "orders"


@pytest.fixture(autouse=True)
def no_directories_of_other_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary directories of its own: those of processes that others killed are cleaned, too."""
    temporary = tmp_path.parent / f"{tmp_path.name}-temporary"
    temporary.mkdir(exist_ok=True)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """A lake with the demo's two savepoints: monday, tuesday."""
    imports = [(name, DEMO / name) for name in ("monday", "tuesday")]
    return import_golden(Catalog(tmp_path / "lake"), *imports, job=JOB, partitions=8)


@pytest.fixture
def listing() -> Callable[[Path], dict[str, str]]:
    """Every file below a directory, with the digest of its content."""

    def digests(root: Path) -> dict[str, str]:
        return {
            str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }

    return digests
