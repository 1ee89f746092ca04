"""Requests for snapshots below a directory: a scan, copies."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from statelake.pipelines.requests.request import Request, given, option
from statelake.pipelines.requests.shared import External, path_map_option

if TYPE_CHECKING:
    from statelake.pipelines.engine import Progress


class FindSnapshots(Request):
    """Every savepoint and checkpoint below a directory."""

    directory: str | os.PathLike[str] = given("A path or URI.", kw_only=False)
    job_id: str = option("Only those of a job, by its id.", "ID", default="")
    latest: bool = option("Only the newest.", default=False)
    sound: bool = option("Only those that can be restored.", default=False)
    deep: bool = option("Read every byte, as `check integrity` does.", default=False)
    path_map: Sequence[str] = path_map_option()
    progress: Progress | None = given(
        "Called with (done, total) after each snapshot.", default=None
    )


class Copying(External):
    """The options for copying snapshots."""

    verify: bool = option(
        "Read every byte back, and compare; the default.", default=True,
        flag="--verify/--no-verify",
    )  # fmt: skip
    threads: int | None = option(
        "How many files are copied at once.", default=None, least=1, more=True
    )
    path_map: Sequence[str] = path_map_option()


class CopySnapshot(Copying):
    """A copy of a savepoint or checkpoint."""

    snapshot: str | os.PathLike[str] = given("Its directory, a path or URI.", kw_only=False)
    dest: str | os.PathLike[str] = given(
        "The directory of the copy: empty, or that of the same copy which was interrupted.",
        kw_only=False,
    )
    progress: Progress | None = given("Called with (done, total) bytes.", default=None)


class CopyCheckpoints(Copying):
    """Copies of a job's checkpoints."""

    directory: str | os.PathLike[str] = given(
        "The directory that has the job's `chk-N`, a path or URI.", kw_only=False
    )
    dest: str | os.PathLike[str] = given(
        "The directory of the copies, each in its `chk-N`.", kw_only=False
    )
    since: int | datetime | None = given(
        "Only checkpoints from this id on, or written since this time.", default=None
    )
    progress: Progress | None = given(
        "Called with (done, total) bytes of the checkpoint that is copied.", default=None
    )
