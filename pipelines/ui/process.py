"""The process that serves pages or answers assistants: its memory, and its end."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from statelake.pipelines.engine import wait_for_threads
from statelake.pipelines.lake.query.limits import QueryLimits
from statelake.pipelines.ui.audit import Audit
from statelake.pipelines.ui.options import Options
from statelake.pipelines.ui.views import Source
from statelake.state_core.files.held_directories import remove_held_temporary

BESIDE, STACK = 1 << 30, 8 << 20  # bytes for all but queries, and of each thread's stack
PATIENCE = 2.0  # seconds until threads that can't be ended are left behind


@contextmanager
def opened(
    location: str | os.PathLike[str], options: Options, audit: str
) -> Iterator[tuple[Source, Audit]]:
    """Open what this process serves, until a signal ends it; nothing temporary is left.

    Args:
        location: The lake, the directory, or one snapshot.
        options: What is shown, and how it is read.
        audit: The file that gets a line for each look at values; empty for none.

    Raises:
        SnapshotError: The directory can't be listed.
        StateError: The audit file can't be written.
    """
    bound_memory(options.limits)
    code: int | None = None
    with closing(Source(location, options)) as source, closing(Audit(audit)) as log:
        try:
            yield source, log
            code = 0
        except KeyboardInterrupt:
            code = 0
        except SystemExit as error:  # of another signal
            code = error.code if isinstance(error.code, int) else 1
            raise
        finally:
            if code is not None:
                leave_threads(code)


def bound_memory(limits: QueryLimits) -> None:
    """Bound the memory of this process: what DuckDB does not count fails, and not the machine.

    Arrow and Python get as much as DuckDB. Only Linux knows such a bound.
    """
    with suppress(OSError, ValueError):  # not Linux, or a lower bound is there
        status = Path("/proc/self/status").read_text("ascii")
        taken = int(status.partition("VmData:")[2].split()[0]) << 10
        stacks = STACK * (limits.at_once + 1) * (os.cpu_count() or 1)
        most = taken + 2 * limits.at_once * (limits.memory or 0) + stacks + BESIDE
        _, highest = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (most, highest))


def leave(code: int) -> NoReturn:
    """End the process at once, without its temporary directories."""
    remove_held_temporary()
    with suppress(OSError, RuntimeError):  # the pipe is closed, or a signal interrupted a write
        sys.stdout.flush()
    os._exit(code)


def leave_threads(code: int) -> None:
    """End the process if threads are still at work after a while: nothing can end what they do."""
    if not wait_for_threads(PATIENCE):
        leave(code)


def leave_at_signals() -> None:
    """Have the first SIGINT or SIGTERM end the process, though a thread reads standard input."""
    for number, code in ((signal.SIGINT, 0), (signal.SIGTERM, 128 + signal.SIGTERM)):
        signal.signal(number, lambda *_, code=code: leave(code))
