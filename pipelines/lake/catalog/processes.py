"""The process that wrote a claim, and whether it is still running.

That is advice: it only says whether to wait. Safety never depends on it. A process is known to be
gone only if this process would see it in its table of processes: the same boot of the kernel, and
the same namespace of process numbers. Otherwise it is unknown: equal numbers mean nothing in two
containers, and clocks nothing at all.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from statelake.pipelines.lake.tables.record_rules import Rule, broken_rule
from statelake.state_core.errors import DamagedLakeError
from statelake.state_core.files.filesystem import Directory

LONGEST_NOTE = 16 << 20
_TEXT = Rule(lambda value: isinstance(value, str), "text")
_LATER = Rule(lambda value: value is None or isinstance(value, str), "text")
PROCESS_RULES: Mapping[str, Rule] = {
    "host": _TEXT,
    "process": Rule(lambda value: type(value) is int and 0 < value < 1 << 31, "a process's number"),
    "begun": _LATER,  # notes of older versions have neither
    "processes": _LATER,
    "started": Rule(lambda value: isinstance(value, int | float) and value >= 0, "a time"),
}


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


def read_note(directory: Directory, path: str, rules: Mapping[str, Rule]) -> dict[str, Any]:
    """Read a note in a file: the description of a process, and of its work.

    Args:
        directory: The directory of the file.
        path: The file.
        rules: The rules of its fields besides the process.

    Raises:
        MissingFileError: The file does not exist.
        DamagedLakeError: It is not a valid note.
    """
    if directory.size(path) > LONGEST_NOTE:
        raise _foreign("no note is that long", directory.full(path))
    try:
        note = json.loads(directory.read(path))
    except (ValueError, RecursionError) as error:
        raise _foreign(f"no note of ours ({error})", directory.full(path)) from error
    if not isinstance(note, dict):
        raise _foreign("no note of ours", directory.full(path))
    fault = broken_rule(note, {**PROCESS_RULES, **rules})
    if fault is not None:
        raise _foreign(f"{fault[0]}: {fault[1]}", directory.full(path))
    return dict(note)


def _foreign(problem: str, place: str) -> DamagedLakeError:
    return DamagedLakeError(
        problem, place=place, remedy="statelake did not write that note: remove the file"
    )


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
