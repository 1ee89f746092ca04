"""Real marimo, beside the environment: what it needs and what the documentation needs disagree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

from statelake.pipelines.spark.jars import cache_directory

__all__ = ["run_notebook"]

VERSION = "0.25.2"


def _marimo() -> Path:
    """The directory with its packages, installed at the first call."""
    target = (
        cache_directory() / f"marimo-{VERSION}-python{sys.version_info[0]}.{sys.version_info[1]}"
    )
    if not target.is_dir():
        part = target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}.part")
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
             "--target", str(part), f"marimo=={VERSION}"],
            check=True, capture_output=True,
        )  # fmt: skip
        try:
            part.rename(target)
        except OSError:  # another process was first
            shutil.rmtree(part)
    return target


def run_notebook(path: Path, then: str = "") -> str:
    """Run a notebook as marimo does, and some Python over `values`, the names of all its cells.

    Returns:
        What that printed.
    """
    program = (
        f"import importlib.util, sys\nsys.path.append({str(_marimo())!r})\n"
        f"spec = importlib.util.spec_from_file_location('notebook', {str(path)!r})\n"
        "module = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(module)\n"
        f"_, values = module.app.run()\n{then}"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(Path.cwd())},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
