"""Which process says something of itself, and whether it is still there.

That is advice: it says whether to wait, and no more. What is safe never depends on it. A process is
known to be gone only where the same table of processes would show it: the same start of the
kernel, and the same namespace of process numbers. Elsewhere nobody knows: equal numbers mean
nothing in two containers, and clocks nothing at all.
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
    """What a note says of the process that writes it.

    Returns:
        `host` and `started` for people; `process`, when it began as the kernel counts (`begun`),
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
    """Whether a process certainly does no more; False where nobody knows."""
    if not process.get("processes") or process["processes"] != _process_table():
        return False
    return bool(_begun(int(process["process"])) != process["begun"])


def is_this_process(process: Mapping[str, Any]) -> bool:
    """Whether a note is of this very process."""
    own = this_process()
    return all(process.get(name) == own[name] for name in ("process", "begun", "processes"))


def described(process: Mapping[str, Any]) -> str:
    """A process, as messages call it."""
    return f"process {process['process']} on {process['host']}"


def read_note(directory: Directory, path: str, rules: Mapping[str, Rule]) -> dict[str, Any]:
    """What a process says of itself in a file, and of what it does.

    Args:
        directory: Where the file is.
        path: The file.
        rules: What it says beside its process.

    Raises:
        MissingFileError: The file is gone.
        DamagedLakeError: No process of ours wrote that.
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
    """What tells the table of processes that this one sees from all others; empty if nothing does.

    Source: proc(5), `random/boot_id`; namespaces(7).
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}:{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _begun(process: int) -> str | None:
    """When a process began, in ticks of its kernel; None if no process has that number.

    Source: proc(5), `stat`, field 22.
    """
    try:
        text = Path(f"/proc/{process}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # behind the name, which may have spaces and parentheses, the third field is next
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else fields[19]
