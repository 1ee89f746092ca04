"""The picture in docs/report.md: `python -m tests.support.report_picture docs/images/report.png`.

It is of the report of the demo's first savepoint, at another parallelism than its own.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image

from tests.support.browser import chromium, opened
from tests.support.command import run
from tests.support.lakes import DEMO

__all__ = ["take_picture"]

WIDTH, HEIGHT = 1000, 1900
PARALLELISM = 5
COLOURS = 48


def take_picture(target: Path) -> None:
    """Write the picture, as PNG of few colours."""
    with tempfile.TemporaryDirectory() as directory, chromium() as browser:
        shutil.copytree(DEMO, Path(directory, "demo", "savepoints"))
        os.chdir(directory)  # the page shows the path as it is given
        ran = run("report", "demo/savepoints/monday", "--check", "--limit", 3, "--to", "page.html")
        assert ran.code == 0, ran.err
        with opened(browser, Path("page.html").absolute(), width=WIDTH, height=HEIGHT) as seen:
            seen.page.fill("#parallelism-0", str(PARALLELISM))
            taken = seen.page.screenshot()
    Image.open(BytesIO(taken)).convert("RGB").quantize(COLOURS).save(target, optimize=True)


if __name__ == "__main__":
    take_picture(Path(sys.argv[1]).absolute())
