"""What the pages on live clusters show is typed, one after another, on a real one."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.flink.live_cluster import LiveFlink
from tests.support.command import run

pytestmark = [pytest.mark.flink, pytest.mark.full]

DOCS = Path(__file__).parents[3] / "docs"
PAGES = ("live-jobs.md", "live-upgrade.md")
NEW_TYPES = "states:\n  counter/count: {type: String}\n"


@pytest.fixture
def place(
    live_flink: LiveFlink, counter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A directory with the JARs, and the cluster's savepoints; no job is left behind."""
    for name in ("orders-1.jar", "orders-2.jar"):
        shutil.copy(counter, tmp_path / name)
    (tmp_path / "new-types.yaml").write_text(NEW_TYPES)
    savepoints = live_flink.root / "savepoints"
    savepoints.mkdir(exist_ok=True)
    (tmp_path / "savepoints").symlink_to(savepoints)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STATELAKE_FLINK", live_flink.url)
    monkeypatch.setenv("STATELAKE_FLINK_PATH_MAP", f"file:{savepoints}=savepoints")
    yield tmp_path
    with live_flink.client() as cluster:
        for job in cluster.jobs():
            if not job.ended:
                cluster.cancel(job.id)


def shown(page: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Each command of a page, and the lines that it prints there."""
    text = page.read_text("utf-8")
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    for block in (block for kind, block in fenced if not kind):
        for part in re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
            command, *lines = part.splitlines()
            yield shlex.split(command), [line for line in lines if line.strip()]


def plain(text: str) -> str:
    """Without what is another each time: numbers, ids, the names of Java's objects."""
    text = re.sub(r"savepoint-[0-9a-f]{6}-[0-9a-f]{12}|\b[0-9a-f]{32}\b|@[0-9a-f]+\b", "#", text)
    text = re.sub(r"\d[\d:.T+-]*( (s|min|KiB|B)\b)?", "#", text)
    return " ".join(text.split())


def test_what_the_pages_show_is_what_is_printed(place: Path, live_flink: LiveFlink) -> None:
    """All but paths and numbers; what is refused is refused there, too."""
    assert place.is_dir()
    called = 0
    for page in PAGES:
        for words, lines in shown(DOCS / page):
            typed = [word.replace("file:/flink", f"file:{live_flink.root}") for word in words]
            ran = run(*typed[1:])
            refused = any("refused" in line or "put back" in line for line in lines)
            assert ran.code == int(refused), (words, ran.out, ran.err)
            printed = plain(ran.out)
            for line in lines:
                if "/" not in line and "checkpoint  completed" not in line:
                    assert plain(line) in printed, (line, ran.out)
            called += 1
    assert called >= 8
