"""Snapshots of unknown classes: kept as bytes, although their length is not stored.

A serializer snapshot is a class name, a version and a payload without a length, so the end of an
unknown class's payload can't be read. But the end of the *whole* is known: a header ends where the
first key group or element begins. Of all possible lengths of the payload, the smallest is taken
with which all following bytes can be parsed, to the last one.

Source: `TypeSerializerSnapshot.readVersionedSnapshot`, which leaves the length to the class.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from statelake.state_core.bounds import UNKNOWN_WORK, Budget
from statelake.state_core.errors import StateError, UnknownSerializerError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.config_snapshots import UnknownSerializerSnapshot

_Read = TypeVar("_Read")
_CLASS = re.compile(r"[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*")
ATTEMPT_WORK = 1 << 12  # the least work of an attempt, however little it reads
SEARCHED_AT_ONCE = 64
_CONTROL = re.compile(rb"[\x00-\x1f]")
MAX_VERSION = 1 << 16
MAX_STATES = 1 << 12


def read_whole(source: DataInput, read: Callable[[DataInput], _Read]) -> _Read:
    """Read the whole content of a source that may contain snapshots of unknown classes.

    Args:
        source: The source, which is read to its end.
        read: The reader, which moves the source behind its content.

    Raises:
        UnknownSerializerError: A class is unknown, and the rest can't be parsed with any length of
            its payload, or any combination of lengths of several.
        StateError: The errors of `read`.
    """
    start = source.position
    source.budget = source.budget or Budget(source.limit)
    try:
        return read(source)
    except UnknownSerializerError as error:
        refused = error
    content = _LengthSearch(source, start, read).run([])
    if content is None:
        raise refused
    return content


class _LengthSearch(Generic[_Read]):
    """A search for lengths of payloads, depth first, the shortest first."""

    def __init__(self, source: DataInput, start: int, read: Callable[[DataInput], _Read]) -> None:
        self.source = source
        self.start = start
        self.read = read
        self.work = 0

    def run(self, lengths: list[int]) -> _Read | None:
        """Return the content for these lengths of the first payloads; None if parsing fails."""
        if self._is_tired:
            return None
        payloads = _Payloads(lengths)
        read = self._attempt(payloads)
        if read is not None or not payloads.plausible:
            return read
        candidates = self._lengths(self.source.position, payloads.same())
        deeper = (self.run([*lengths, length]) for length in candidates)
        return next((result for result in deeper if result is not None), None)

    @property
    def _is_tired(self) -> bool:
        return self.work > UNKNOWN_WORK.most

    def _attempt(self, payloads: _Payloads) -> _Read | None:
        """Read the source, down to the first payload whose length is not given."""
        source = self.source
        source.budget = Budget(source.limit)
        source.position, source.nesting, source.unknown = self.start, 0, payloads
        try:
            read = self.read(source)
        except UnknownSerializerError:
            return None
        except StateError:
            payloads.named.clear()
            return None
        finally:
            source.unknown = None
            self.work += source.position - self.start + ATTEMPT_WORK
        return None if source.remaining else read

    def _lengths(self, begin: int, same: int | None) -> Iterator[int]:
        """Yield the possible lengths of a payload, first that of another of its class."""
        if same is not None and begin + same <= self.source.limit:
            yield same
        for end in range(begin, self.source.limit + 1):
            if self._is_tired:
                return
            self.work += 1
            if end - begin != same and self._plausible(end):
                yield end - begin

    def _plausible(self, end: int) -> bool:
        """Return whether a name, or a count of states before a name, can begin here."""
        limit = self.source.limit
        if end == limit or self._is_name(end):
            return True
        if limit - end < 2:
            return False
        count = int.from_bytes(self.source.data[end : end + 2], "big")
        return count < MAX_STATES and (end + 2 == limit or self._is_name(end + 2))

    def _is_name(self, at: int) -> bool:
        data = self.source.data
        begin = at + 2
        length = int.from_bytes(data[at:begin], "big")
        if not 0 < length <= self.source.limit - begin:
            return False
        self.work += length // SEARCHED_AT_ONCE
        return _CONTROL.search(data, begin, begin + length) is None


class _Payloads:
    """A factory of unknown classes' snapshots, with payloads of given lengths."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths
        self.named: list[tuple[str, int]] = []

    def __call__(self, java_class: str, version: int, source: DataInput) -> TypeSerializerSnapshot:
        """Return the snapshot with the next payload."""
        self.named.append((java_class, version))
        if len(self.named) > len(self.lengths):
            raise UnknownSerializerError(f"{java_class!r} is unknown", place=source.place)
        payload = source.read_bytes(self.lengths[len(self.named) - 1])
        return UnknownSerializerSnapshot(java_class, version, payload)

    @property
    def plausible(self) -> bool:
        """Return whether the last name has no length yet, and looks like a class."""
        if len(self.named) <= len(self.lengths):
            return False
        java_class, version = self.named[-1]
        return bool(_CLASS.fullmatch(java_class)) and 0 <= version < MAX_VERSION

    def same(self) -> int | None:
        """Return the length of a payload of the same class and version; None without one."""
        *before, last = self.named
        return dict(zip(before, self.lengths, strict=True)).get(last)
