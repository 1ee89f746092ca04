"""Do something at a step of a run: before or after the n-th call of one of its functions."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

from statelake.pipelines.lake.catalog import processes
from statelake.pipelines.lake.catalog.attempts import Attempt
from statelake.pipelines.lake.erase.erasing import Erasure

__all__ = ["EndError", "Step", "as_process", "die_as_gone", "do_at", "end", "stop"]

Step: TypeAlias = "tuple[Any, str, str, int]"


def do_at(patch: pytest.MonkeyPatch, step: Step, action: Callable[[], object]) -> None:
    """Do `action` once, at a step.

    Args:
        patch: Takes it back.
        step: A class or module, a function of it, `before` or `after`, and which call.
        action: May raise, and may call the same function.
    """
    owner, name, when, nth = step
    real, lock, calls = getattr(owner, name), threading.Lock(), [0]

    @functools.wraps(real)
    def watched(*args: Any, **kwargs: Any) -> Any:
        with lock:
            calls[0] += 1
            now = calls[0] == nth
        if now and when == "before":
            action()
        result = real(*args, **kwargs)
        if now and when == "after":
            action()
        return result

    patch.setattr(owner, name, watched)


def as_process(patch: pytest.MonkeyPatch, number: int, table: str | None = None) -> None:
    """Let this process say that it is another one.

    Args:
        patch: Takes it back.
        number: Its number.
        table: The table of processes that shows it, as of another container; this one's by default.
    """
    patch.setattr(processes, "os", SimpleNamespace(getpid=lambda: number))
    if table is not None:
        patch.setattr(processes, "_process_table", lambda: table)


def die_as_gone(patch: pytest.MonkeyPatch) -> None:
    """Let this process be one that is gone: it takes nothing back, and gives no sign of life."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    as_process(patch, gone.pid)
    patch.setattr(Attempt, "__exit__", lambda attempt, *_: attempt._beats._ended.set())
    patch.setattr(Erasure, "_take_back", lambda _: None)


class EndError(Exception):
    """Where a run is made to end."""


def stop() -> None:
    """End the run."""
    raise EndError


def end(work: Callable[[], object], step: Step, way: str) -> None:
    """Run something that ends at a step, by an error or by death."""
    with pytest.MonkeyPatch.context() as patch:
        do_at(patch, step, stop)
        if way == "death":
            die_as_gone(patch)
        with pytest.raises(EndError):
            work()
