"""The log of who read which keys and values: a line of JSON for each request."""

from __future__ import annotations

import errno
import json
import os
import stat
from datetime import datetime, timezone

from statelake.pipelines.lake.erase.audit_records import requester_here
from statelake.pipelines.ui.views import Name
from statelake.state_core.errors import StateError

# without waiting for the other end of a pipe
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Audit:
    """A file with a line of JSON for each request of keys and values, written before the answer.

    Args:
        path: The file, which is created if it is missing, and readable by its owner alone from
            then on; empty for none.

    Raises:
        StateError: It can't be written, is a link, is not a regular file, or belongs to another
            user, who could read the requests.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = -1
        if path:
            try:
                self._file = os.open(path, _FLAGS, 0o600)
                self._close_others_out()
            except OSError as error:
                self.close()
                is_link = error.errno == errno.ELOOP
                raise self._fault(OSError("it is a link") if is_link else error) from error

    def _close_others_out(self) -> None:
        kept = os.fstat(self._file)
        if not stat.S_ISREG(kept.st_mode):
            raise OSError("it is not a regular file")
        if kept.st_nlink > 1:
            raise OSError("another hard link leads to it")
        if kept.st_mode & 0o077:  # of a file that was there before
            os.fchmod(self._file, 0o600)

    def write(self, look: str, name: Name, **words: str) -> None:
        """Write a line.

        Raises:
            StateError: It can't be written, so that nothing is shown.
        """
        if self._file < 0:
            return
        entry = {
            "at": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            "by": requester_here(), "look": look, "job": name.job, "snapshot": name.snapshot,
        } | words  # fmt: skip
        line = json.dumps(entry).encode("ascii") + b"\n"
        try:
            written = os.write(self._file, line)
            os.fsync(self._file)
        except OSError as error:
            raise self._fault(error) from error
        if written != len(line):
            raise self._fault(OSError("not all of a line was written"))

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _fault(self, error: OSError) -> StateError:
        return StateError(
            f"the audit file can't be written ({error.strerror or error})", place=self.path,
            remedy="name another one with --audit: a regular file of your own, or none yet",
        )  # fmt: skip
