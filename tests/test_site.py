"""The documentation is a site: it is built without a broken link, and fetches nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from statelake.pipelines.cli.main import COMMANDS
from tests.support.browser import chromium, opened

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[1]
FETCHED = re.compile(
    r'<(?:script|img|iframe)[^>]*\ssrc="(?:https?:)?//[^"]*"'
    r'|<link[^>]*\shref="(?:https?:)?//[^"]*"|url\(["\']?https?:'
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built so that a warning is an error."""
    directory = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(directory), strict=True))
    return directory


def test_every_page_of_docs_is_in_the_site(site: Path) -> None:
    """What is not in the navigation is found by nobody."""
    index = (site / "index.html").read_text("utf-8")
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    assert [page for page in sorted(pages) if f'href="{page}.html"' not in index] == []


def test_the_reference_has_every_command_by_its_own_help(site: Path) -> None:
    """And the classes that programs use."""
    commands = (site / "commands.html").read_text("utf-8")
    assert [name for name in COMMANDS if f'id="{name}"' not in commands] == []
    assert "Usage: statelake export" in commands
    python = (site / "python.html").read_text("utf-8")
    for name in ("open_snapshot", "Lake", "StateError", "KeyedState"):
        assert f"{name}" in python


def test_the_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    """It can be read offline, and tells nobody who reads it."""
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(pages) > 20
    assert {page.name for page in pages if FETCHED.search(page.read_text("utf-8"))} == set()


def test_the_search_works_in_a_page_that_is_opened_as_a_file(site: Path) -> None:
    """Without a server, and without a network."""
    with chromium() as browser, opened(browser, site / "index.html") as seen:
        seen.page.locator("input.md-search__input").click()
        seen.page.keyboard.type("murmur")
        seen.page.wait_for_selector('.md-search-result__item a[href*="rescale.html"]')
        assert seen.complaints == []
        assert [address for address in seen.requests if not address.startswith("file:")] == []
