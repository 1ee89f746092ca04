"""Do something at a step of a run: before or after the n-th call of one of its functions."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

__all__ = ["Step", "do_at"]

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
