"""The process that wrote a claim, and whether it is still running.

This is a hint whether to wait. Safety never depends on it. A process is known to have ended only if
this process would see it in its table of processes: after the same boot of the kernel, in the same
namespace of process numbers. Otherwise nothing is known: two containers use the same numbers for
different processes, and clocks prove nothing.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from statelake.state_core.errors import DamagedLakeError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.files.outside import checked, parse_json

LONGEST_NOTE = 16 << 20
Work = TypeVar("Work")


class Process(msgspec.Struct, kw_only=True):
    """The description of a process; older notes have neither `begun` nor `processes`."""

    host: str
    process: Annotated[int, Meta(gt=0, lt=1 << 31)]
    begun: str | None = None
    processes: str | None = None
    started: Annotated[float, Meta(ge=0)]


def this_process() -> dict[str, Any]:
    """Return the description of this process for its claims.

    Returns:
        `host` and `started` for people; `process`, its start time in the kernel's ticks (`begun`),
        and the table of processes that shows it (`processes`).
    """
    return {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "begun": _begun(os.getpid()) or "",
        "processes": _process_table(),
        "started": time.time(),
    }


def is_gone(process: Mapping[str, Any]) -> bool:
    """Return whether a process has certainly ended; False if it is not known."""
    if not process.get("processes") or process["processes"] != _process_table():
        return False
    return bool(_begun(int(process["process"])) != process["begun"])


def is_this_process(process: Mapping[str, Any]) -> bool:
    """Return whether a description is of this very process."""
    own = this_process()
    return all(process.get(name) == own[name] for name in ("process", "begun", "processes"))


def described(process: Mapping[str, Any]) -> str:
    """Return the name of a process in messages."""
    return f"process {process['process']} on {process['host']}"


def read_note(directory: Directory, path: str, kind: type[Work]) -> tuple[Work, dict[str, Any]]:
    """Read a note in a file: the description of a process, and of its work.

    Args:
        directory: The directory of the file.
        path: The file.
        kind: The type of the work.

    Returns:
        The work, and all of the note, with the process.

    Raises:
        MissingFileError: The file does not exist.
        DamagedLakeError: It is not a valid note.
    """
    refused = partial(
        DamagedLakeError,
        place=directory.full(path),
        remedy="statelake did not write that note: remove the file",
    )
    if directory.size(path) > LONGEST_NOTE:
        raise refused("no note is that long")
    note: dict[str, Any] = parse_json(directory.read(path), refused, LONGEST_NOTE)
    checked(note, Process, refused)
    return checked(note, kind, refused), note


@cache
def _process_table() -> str:
    """Return the identity of this process's table of processes; empty if it is not known.

    Source: proc(5), `random/boot_id`; namespaces(7).
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}:{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _begun(process: int) -> str | None:
    """Return when a process began, in ticks of its kernel; None if no process has that number.

    Source: proc(5), `stat`, field 22.
    """
    try:
        text = Path(f"/proc/{process}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # the third field follows the name, which may have spaces and parentheses
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else fields[19]
