"""Headless Chromium, offline, and what a page did in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

__all__ = ["Opened", "chromium", "opened"]

NAMES = ("chromium", "chromium-browser", "google-chrome")


@dataclass
class Opened:
    """A page, and what it did so far.

    Attributes:
        page: The page.
        requests: The addresses that it asked for, its own first.
        refused: Those of them that its own policy refused.
        complaints: What it wrote to the console, and errors of its script.
    """

    page: Page
    requests: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium as the system has it; `CHROMIUM` may name another. Without one, skip the test.

    Raises:
        FileNotFoundError: There is none, and `CI` is set: nothing is skipped there.
    """
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        remedy = "no Chromium: `apt-get install chromium`, or set CHROMIUM to one"
        if os.environ.get("CI"):
            raise FileNotFoundError(remedy)
        pytest.skip(remedy)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(
    browser: Browser, path: Path | str, *, width: int = 1100, height: int = 900, dark: bool = False
) -> Iterator[Opened]:
    """Open a file without a network, or an address.

    Args:
        browser: The browser.
        path: The file, or the address.
        width: Of the window, in pixels.
        height: The same.
        dark: Whether its user prefers dark pages.
    """
    context = browser.new_context(
        offline=isinstance(path, Path),
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
    )
    try:
        seen = Opened(context.new_page())
        seen.page.on("request", lambda request: seen.requests.append(request.url))
        seen.page.on(
            "requestfailed",
            lambda request: request.failure == "csp" and seen.refused.append(request.url),
        )
        seen.page.on("console", lambda message: seen.complaints.append(message.text))
        seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        seen.page.on("dialog", lambda dialog: seen.complaints.append(dialog.message))
        seen.page.goto(path if isinstance(path, str) else path.as_uri())
        yield seen
    finally:
        context.close()
