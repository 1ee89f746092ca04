"""Write a savepoint: keyed files in the unified format, and `_metadata`, which completes it.

`_metadata` comes last and appears whole, so a crash leaves no savepoint. On a local disk everything
is written beside the target, synced to the disk, and moved there at the end; leftovers of a dead
process are removed by the next one. There a file may be written as several parts, each by a task,
which are then moved into the first of them.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from statelake.state_core.errors import SnapshotError, StateError
from statelake.state_core.files.compression import IDENTIFIER, compress_snappy
from statelake.state_core.files.confinement import PART, Buffer
from statelake.state_core.files.filesystem import ConfinedDirectory, Directory
from statelake.state_core.files.held_directories import HeldDirectory, left_directories, remove_left
from statelake.state_core.files.moves import Move, move_all, plan_moves
from statelake.state_core.files.wire import DataOutput
from statelake.state_core.formats.layout.keyed_states import as_key_value
from statelake.state_core.formats.layout.meta_info import KeyedHeader, write_keyed_header
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    canonical_savepoint_properties,
    is_canonical_savepoint,
    read_metadata,
    write_metadata,
)
from statelake.state_core.formats.metadata.stream_map import named_files
from statelake.state_core.formats.writing.unified_encode import StateRows, encode_key_groups
from statelake.state_core.model.handles import (
    KeyGroupRange,
    KeyGroupsHandle,
    KeyGroupsKind,
    RelativeHandle,
)

READ_BYTES = 8 << 20


@dataclass
class KeyedPart:
    """A part of a keyed file: some key groups, and perhaps the header.

    Attributes:
        name: Its name in the savepoint's directory.
        size: Its bytes.
        offsets: The start of each key group that has data.
    """

    name: str
    size: int = 0
    offsets: dict[int, int] = field(default_factory=dict)


def write_keyed_part(
    directory: Directory,
    header: KeyedHeader | None,
    groups: Iterable[tuple[int | None, Buffer]],
    *,
    compressed: bool,
    attempt: str = "",
) -> KeyedPart:
    """Write one part.

    Args:
        directory: The target directory.
        header: The file's header, if this is its first part.
        groups: Key groups, ascending, each with its bytes in the unified format; None for more
            bytes of the previous key group, which may begin in another part.
        compressed: Whether each key group is compressed.
        attempt: The prefix of the file's name, from a `SavepointDirectory`.
    """
    part = KeyedPart(f"{attempt}{uuid.uuid4()}")
    with directory.open_output(part.name) as file:
        if header is not None:
            head = DataOutput()
            states = tuple(map(as_key_value, header.states))
            write_keyed_header(replace(header, compressed=compressed, states=states), head)
            file.write(head.to_bytes())
            part.size = len(head)
        for group, data in groups:
            written = compress_snappy(data) if compressed else data
            if group is not None:
                part.offsets[group] = part.size
                if compressed and not len(data):
                    written = IDENTIFIER  # the key group's bytes follow
            elif compressed:
                written = written[len(IDENTIFIER) :]  # a stream has it once
            file.write(written)
            part.size += len(written)
    return part


def encoded_groups(
    chunks: Iterable[list[StateRows]], prefix: int
) -> Iterator[tuple[int, memoryview]]:
    """Yield encoded rows of whole key groups, in ascending order, for `write_keyed_part`.

    Raises:
        EncodeError: A value that its serializer can't write.
    """
    for states in chunks:
        buffer, groups = encode_key_groups(states, prefix)
        for group in groups:
            yield group.group, buffer.data[group.start : group.end]


def keyed_handle(part: KeyedPart, key_groups: KeyGroupRange) -> KeyGroupsHandle:
    """Return the handle of a whole file with these key groups."""
    groups = range(key_groups.first, key_groups.last + 1)
    offsets = tuple(part.offsets.get(group, 0) for group in groups)
    stream = RelativeHandle(part.name, part.size)
    return KeyGroupsHandle(KeyGroupsKind.SAVEPOINT, key_groups.first, offsets, stream)


def require_free(location: str | os.PathLike[str]) -> None:
    """Refuse a place to which no savepoint can be written.

    Raises:
        SnapshotError: It is a file or a link, or a directory that is not empty.
    """
    target = Directory(location)
    if target.is_other():
        raise _taken(target, "a file or a link is there")
    if target.names():
        raise _taken(target, "the directory is not empty")


def _taken(target: Directory, problem: str) -> SnapshotError:
    return SnapshotError(
        problem,
        place=target.full(),
        remedy="choose another, or remove it: a savepoint is never written over",
    )


class SavepointDirectory:
    """A savepoint in the making; its directory must not exist yet.

    Args:
        location: The target directory.
        again: Whether the same savepoint of the same command may already exist, on a local disk.

    Attributes:
        attempt: The prefix of names of files that tasks write, as these may run more than once.

    Raises:
        SnapshotError: The target already exists, and is not an empty directory.
    """

    def __init__(self, location: str | os.PathLike[str], *, again: bool = False) -> None:
        self.attempt = f"{uuid.uuid4().hex[:8]}-"
        self.target = Directory(location)
        self._again = again and self.target.local and self.target.is_file("_metadata")
        if not self._again:
            require_free(location)
        self.directory = self.target.confined()
        self._held: HeldDirectory | None = None
        self._metadata: bytes | None = None
        if not self.target.local:
            self.directory.create()
            return
        for left in left_directories(f"{self.target.root}.", PART):
            remove_left(left)
        self.directory = self._part()

    def _part(self) -> ConfinedDirectory:
        """The directory beside the target in which everything is written on a local disk."""
        above = Directory(posixpath.dirname(self.target.root)).confined()
        above.create()
        try:
            self._held = HeldDirectory(f"{self.target.root}.", PART)
        except OSError as error:
            raise SnapshotError(
                f"can't be written: {error.strerror}",
                place=above.full(),
                remedy="check permissions and space",
            ) from error
        return Directory(self._held.path).confined()

    def join(
        self,
        groups: Iterable[Sequence[KeyedPart]],
        run: Callable[[Callable[[list[Move]], None], list[list[Move]]], Iterable[None]] = map,
    ) -> list[KeyedPart]:
        """Join each group of consecutive parts to a file; the parts are gone afterwards.

        Args:
            groups: The parts of each file: one, unless the directory is on a local disk.
            run: Runs the tasks that move parts.

        Raises:
            SnapshotError: A part can't be read or removed, or the file can't be written.
        """
        joined: list[KeyedPart] = []
        moves: list[Move] = []
        for parts in groups:
            file = KeyedPart(parts[0].name)
            for part in parts:
                if part.name != file.name:
                    moves.append(
                        Move(self.directory, part.name, 0, part.size, file.name, file.size)
                    )
                file.offsets.update({g: at + file.size for g, at in part.offsets.items()})
                file.size += part.size
            joined.append(file)
        for _ in run(move_all, plan_moves(moves)):
            pass
        for move in moves:
            self.directory.delete(move.path)
        return joined

    def delete_leftovers(self, kept: Iterable[str]) -> None:
        """Remove other files of this attempt: leftovers of tasks that ran more than once."""
        for name in set(self.directory.names()).difference(kept):
            if name.startswith(self.attempt):
                self.directory.delete(name)

    def commit(self, metadata: CheckpointMetadata) -> str:
        """Write `_metadata`, move everything to its place, and return the location.

        An existing target stays if it is the same savepoint, and is otherwise refused.

        From version 4 on `_metadata` ends with the checkpoint's properties, which are always those
        of a canonical savepoint here.
        """
        kept = is_canonical_savepoint(metadata.properties)
        properties = metadata.properties if kept else canonical_savepoint_properties()
        finished = replace(metadata, properties=properties)
        if self.directory.local:
            written = [path for path, _ in self.directory.files_below()]
            self.directory.sync_files([*written, *named_files(metadata)])
        self._metadata = write_metadata(finished)
        self.directory.write("_metadata", self._metadata)
        if self._again:
            if _content(self.target.confined()) != _content(self.directory):
                raise _taken(self.target, "the directory is not empty")
            self.abandon()
        elif self.directory.local:
            try:
                os.replace(self.directory.root, self.target.root)
            except OSError as error:  # the target exists by now, and is not empty
                raise SnapshotError(
                    "another has written there meanwhile", place=self.target.full(),
                    remedy="look at what is there, and choose another directory",
                ) from error  # fmt: skip
            self._release()
            self.target.child("..").sync_files([""])
        return self.target.root if self.target.local else self.target.given

    def abandon(self) -> None:
        """Remove the written files, but not another process's savepoint at the target.

        Nor this one, if it was interrupted when it was complete in its store.
        """
        if self.directory.local or not self.directory.is_file("_metadata"):
            self.directory.delete_tree()
        elif self.directory.read("_metadata") != self._metadata:
            self.delete_leftovers(())
        self._release()

    def _release(self) -> None:
        if self._held is not None:
            self._held.release()


def _content(directory: ConfinedDirectory) -> str:
    """Return a savepoint's identity, independent of its file names; empty without a savepoint."""
    try:
        metadata = directory.read("_metadata")
        names = named_files(read_metadata(metadata))
        if {path for path, _ in directory.files_below()} != {"_metadata", *names}:
            return ""
        for name in names:
            digest = hashlib.sha256()
            with directory.open_input(name) as file:
                while data := file.read(READ_BYTES):
                    digest.update(data)
            metadata = metadata.replace(name.encode(), digest.digest())
    except (StateError, OSError):
        return ""
    return hashlib.sha256(metadata).hexdigest()
