"""Requests for files that show snapshots: pages of HTML, notebooks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from statelake.pipelines.requests.request import Request, given, option
from statelake.pipelines.requests.shared import PlannedReading, Reading, SavepointPlace

if TYPE_CHECKING:
    from statelake.pipelines.engine import Progress


class ShownFile(Request):
    """A file that is written."""

    to: str | os.PathLike[str] = option("The file to write.", "FILE", kw_only=False)
    overwrite: bool = option("Replace an existing file.", default=False)


class Page(ShownFile):
    """A page of HTML that shows a snapshot."""

    check: bool = option("Look for faults, as `check integrity` does.", default=False)
    limit: int = option(
        "The number of heaviest keys of each state; 0 is faster.", default=5, least=0, most=100
    )


class SavepointPage(Page, SavepointPlace, PlannedReading):
    """A page of HTML that shows a savepoint or checkpoint."""

    progress: Progress | None = given(
        "Called with (done, total) after each operator.", default=None
    )


class Notebook(ShownFile, Reading):
    """A notebook that opens a lake, a directory of snapshots or one snapshot."""

    to: str | os.PathLike[str] = option("The file to write.", "FILE.py", kw_only=False)
    location: str | os.PathLike[str] = given(
        "The lake, the directory, or the snapshot.", kw_only=False
    )
    snapshot: str = option("The snapshot that is chosen at first.", default="")
    job: str = given("The job of a lake that is chosen at first.", default="")
