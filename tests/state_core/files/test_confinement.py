"""What data says of a path: one rule, and no link on the way, whenever it is put there."""

from __future__ import annotations

import fcntl
import os
import pickle
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from statelake.state_core.errors import MissingFileError, SnapshotError, StateError, UnsafePathError
from statelake.state_core.files import confinement
from statelake.state_core.files.confinement import ConfinedTree, relative_path, written_is_synced
from statelake.state_core.files.filesystem import ConfinedDirectory, Directory

SECRET = b"not to be read, nor to be changed"
REFUSED = {
    "": "empty",
    "/": "absolute",
    "/etc/passwd": "absolute",
    "//host/share": "absolute",
    "file:/etc/passwd": "URI",
    "file:///etc/passwd": "URI",
    "s3://bucket/key": "URI",
    "C:/windows": "URI",
    "x:y": "URI",
    ".": "normalized",
    "./a": "normalized",
    "a/.": "normalized",
    "a/./b": "normalized",
    "a//b": "normalized",
    "a/": "normalized",
    "..": "above",
    "../victim": "above",
    "a/..": "above",
    "a/../../victim": "above",
    "..\\victim": "backslash",
    "a\\b": "backslash",
    "a\0b": "characters",
    "a\nb": "characters",
    "a\x7fb": "characters",
    "\x1b[2Ja": "characters",
    "a\ud800": "characters",
}
ACCEPTED = (
    "a", "a/b", "...", "a/...", ".hidden", "a..b", "~", "~root/.ssh", "a b", "50%41", "%2e%2e",
    "%2e%2e/victim", "a=b:c", "a/b:c", "run#2", "what?", "größe-键", "-rf", "*", "$HOME",
)  # fmt: skip


@pytest.mark.parametrize(("path", "reason"), REFUSED.items())
def test_paths_that_lead_elsewhere_are_refused(path: str, reason: str) -> None:
    """Each with what is wrong, who said it, and what to do."""
    with pytest.raises(UnsafePathError, match=reason) as found:
        relative_path(path, what="the table of row 3", place="lake/snapshots", inside="the lake")
    assert str(found.value).startswith("lake/snapshots: the table of row 3 at ")
    assert "not inside the lake" in found.value.problem
    assert "do not trust" in found.value.remedy


@pytest.mark.parametrize("path", ACCEPTED)
def test_names_are_taken_as_they_are(path: str) -> None:
    """Nothing in a name means anything but itself."""
    assert relative_path(path, what="a file") == path


@given(st.text(st.sampled_from("./\\:a%~ \0\n\ud800é"), max_size=12))
def test_what_is_accepted_stays_below(path: str) -> None:
    """A path is refused with a reason, or is below by what the operating system does with it."""
    with suppress(UnsafePathError):  # with a reason for each
        relative_path(path, what="a file")
        below = os.path.normpath(f"/anchor/{path}")
        assert below == f"/anchor/{path}"
        assert Path("/anchor", path).is_relative_to("/anchor")


def test_a_long_path_is_shown_in_part() -> None:
    """A message can be read."""
    with pytest.raises(UnsafePathError) as found:
        relative_path("../" * 20_000, what="a file")
    assert len(str(found.value)) < 400


# ----------------------------------------------------------------------------- links


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Path]:
    """A directory with honest files beside a victim, which stays as it is byte for byte."""
    lake, victim = tmp_path / "lake", tmp_path / "victim"
    for path in (lake / "a/b/c/file", lake / "file", victim / "file", victim / "b/c/file"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(SECRET if path.is_relative_to(victim) else b"honest")
    before = _content(victim)
    yield lake
    assert _content(victim) == before


def _content(directory: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted([directory, *directory.rglob("*")])
    }


def confined(path: Path) -> ConfinedDirectory:
    """The directory of data."""
    return Directory(path).confined()


def written(directory: ConfinedDirectory, path: str) -> None:
    """Write a file piece by piece."""
    with directory.open_output(path) as file:
        file.write(b"changed")


def called(name: str, directory: ConfinedDirectory, path: str) -> object:
    """Do what takes nothing but a path."""
    return getattr(directory, name)(path)


def read_into(directory: ConfinedDirectory, path: str) -> None:
    """Read from a file."""
    directory.read_into(path, 0, np.empty(1, np.uint8))


def moved_from(directory: ConfinedDirectory, path: str) -> None:
    """Move a file into another one."""
    directory.write("another", b"")
    directory.move_into(path, "another", 0, 0, 1)


def moved_to(directory: ConfinedDirectory, path: str) -> None:
    """Move another file into one."""
    directory.write("another", b"changed")
    directory.move_into("another", path, 0, 0, 7)


TAKING_A_PATH = (
    "exists", "is_file", "size", "modified", "read", "source", "open_input",
    "delete", "delete_tree", "names", "files_below", "checked_path", "followed",
)  # fmt: skip
OPERATIONS: dict[str, Callable[[ConfinedDirectory, str], object]] = {
    "read_into": read_into,
    "moved_from": moved_from,
    "moved_to": moved_to,
    "resize": lambda directory, path: directory.resize(path, 1),
    "sync_files": lambda directory, path: directory.sync_files([path]),
    "open_output": written,
    "write": lambda directory, path: directory.write(path, b"changed"),
    "create": lambda directory, path: directory.child(path).create(),
    "child": lambda directory, path: directory.child(path).write("file", b"changed"),
} | {name: partial(called, name) for name in TAKING_A_PATH}
every_operation = pytest.mark.parametrize("name", OPERATIONS)


@every_operation
@pytest.mark.parametrize("path", [path for path in REFUSED if path])
def test_every_operation_holds_to_the_rule(lake: Path, name: str, path: str) -> None:
    """Whatever takes a path."""
    with pytest.raises(UnsafePathError):
        OPERATIONS[name](confined(lake), path)
    with pytest.raises(UnsafePathError):
        OPERATIONS[name](confined(lake).child("a"), path)


@every_operation
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_links_are_not_followed_at_any_level(lake: Path, name: str, level: int) -> None:
    """Neither a directory on the way nor the file itself."""
    parts = ["a", "b", "c", "file"]
    link = lake.joinpath(*parts[: level + 1])
    link.rename(lake / "away")
    link.symlink_to([lake.parent / "victim", *(lake.parent / "victim" / p for p in
                     ("b", "b/c", "b/c/file"))][level])  # fmt: skip
    with pytest.raises(UnsafePathError, match="is a link that leads to"):
        OPERATIONS[name](confined(lake), "a/b/c/file")
    if level:
        with pytest.raises(UnsafePathError, match="is a link that leads to"):
            OPERATIONS[name](confined(lake).child("a"), "b/c/file")


@every_operation
def test_links_that_lead_nowhere_are_not_followed(lake: Path, name: str) -> None:
    """No file is made where a dangling link leads, or a link to itself."""
    (lake / "new").symlink_to(lake.parent / "victim/new")
    (lake / "round").symlink_to("round")
    for path in ("new", "new/file", "round", "round/file"):
        with pytest.raises(StateError, match=r"link|no such file|No such file"):
            OPERATIONS[name](confined(lake), path)


def test_the_directory_itself_may_be_a_link(lake: Path) -> None:
    """Who named it is trusted with it; what is below is not."""
    (lake.parent / "named").symlink_to(lake)
    directory = confined(lake.parent / "named")
    assert directory.read("a/b/c/file") == b"honest"
    directory.write("new/file", b"new")
    assert (lake / "new/file").read_bytes() == b"new"
    directory.delete_tree("new")
    assert directory.names() == ["a", "file"]
    (lake / "link").symlink_to(lake.parent / "victim")
    with pytest.raises(UnsafePathError):
        directory.read("link/file")


def test_what_is_confined_stays_so(lake: Path) -> None:
    """No child of a child leads out, nor is one an anchor of its own."""
    child = confined(lake).child("a").confined().child("b")
    assert child.uri == f"{lake}/a/b"
    with pytest.raises(UnsafePathError):
        child.child("..")
    (lake / "a").rename(lake / "away")
    (lake / "a").symlink_to(lake.parent / "victim")
    with pytest.raises(UnsafePathError):
        child.read("c/file")


def test_links_that_stay_inside_can_be_asked_for(lake: Path) -> None:
    """As a snapshot may have them; where they lead out, another directory may have been allowed."""
    (lake / "within").symlink_to("a/b")
    (lake / "out").symlink_to(lake.parent / "victim")
    directory = confined(lake)
    assert directory.followed("within/c/file").name == f"{lake}/a/b/c/file"
    with pytest.raises(UnsafePathError, match=r"leads to .*victim/file, outside"):
        directory.followed("out/file")
    found = directory.followed("out/file", [confined(lake.parent / "victim")])
    assert found.name == f"{lake.parent}/victim/file"
    with pytest.raises(UnsafePathError):
        directory.child("within").followed("c/file")


# ----------------------------------------------------------------------------- while it is used


def swapped(
    monkeypatch: pytest.MonkeyPatch, function: str, name: str, swap: Callable[[], None]
) -> None:
    """Run `swap` just before the system is asked for something of that name."""
    real = getattr(os, function)

    def swapping(path: object, *args: object, **kwargs: object) -> object:
        if path == name:
            monkeypatch.setattr(os, function, real)
            swap()
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, function, swapping)


@every_operation
@pytest.mark.parametrize("at", ["b", "c", "file"])
def test_links_put_there_meanwhile_are_not_followed(
    lake: Path, name: str, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever an operation is: it goes on in what it opened, or is refused."""

    def swap() -> None:
        (lake / "a").rename(lake / "away")
        (lake / "a").symlink_to(lake.parent / "victim")

    for function in ("open", "stat", "unlink", "mkdir"):
        with monkeypatch.context() as patch:
            swapped(patch, function, at, swap)
            try:
                found = OPERATIONS[name](confined(lake), "a/b/c/file")
            except StateError:
                found = None
            assert found != SECRET
        assert (lake / "a").is_symlink() or function != "open" or at == "file"
        if (lake / "a").is_symlink():
            (lake / "a").unlink()
            (lake / "away").rename(lake / "a")
        (lake / "a/b/c").mkdir(exist_ok=True, parents=True)
        if not (lake / "a/b/c/file").is_file():
            (lake / "a/b/c/file").unlink(missing_ok=True)
            (lake / "a/b/c/file").write_bytes(b"honest")


def test_a_file_that_was_reached_before_is_known_again(lake: Path) -> None:
    """Another in its place, through a link, is not read; an honest one is."""
    directory = confined(lake)
    for _ in range(3):
        assert directory.read("a/b/c/file") == b"honest"
    (lake / "a").rename(lake / "away")
    (lake / "a").symlink_to(lake.parent / "victim")
    with pytest.raises(UnsafePathError):
        directory.read("a/b/c/file")
    (lake / "a").unlink()
    (lake / "a/b/c").mkdir(parents=True)
    (lake / "a/b/c/file").write_bytes(b"later")
    assert directory.read("a/b/c/file") == b"later"


def outcome(name: str, directory: ConfinedDirectory) -> object:
    """What an operation ends in."""
    try:
        found = OPERATIONS[name](directory, "a/b/c/file" if name != "delete_tree" else "a/b")
    except StateError as error:
        return type(error)
    assert found != SECRET
    return "done"


@pytest.mark.full
def test_a_race_is_never_won(lake: Path) -> None:
    """One puts links there and takes them away; the other reads, writes, lists and removes."""
    ended = Event()

    def swapping() -> None:
        for number in count():
            with suppress(OSError):  # the other has made or removed a directory there
                (lake / "a/b").rename(lake / f"a/{number}")
                (lake / "a/b").symlink_to(lake.parent / "victim/b")
                sleep(0.0002)
                (lake / "a/b").unlink()
                (lake / f"a/{number}").rename(lake / "a/b")
            if ended.is_set():
                return

    thread = Thread(target=swapping)
    thread.start()
    directory, outcomes, end = confined(lake), set(), monotonic() + 2
    while monotonic() < end:
        for name in ("open_output", "read", "files_below", "delete", "write", "delete_tree"):
            outcomes.add(outcome(name, directory))
    ended.set()
    thread.join()
    assert {"done", UnsafePathError} <= outcomes


# ----------------------------------------------------------------------------- listing, removing


def test_listing_does_not_descend_into_links(lake: Path) -> None:
    """Names of links are there to be seen; what they lead to is not."""
    (lake / "a/link").symlink_to(lake.parent / "victim")
    (lake / "a/b/link").symlink_to(lake.parent / "victim/file")
    directory = confined(lake)
    assert directory.files_below() == [("a/b/c/file", 6), ("file", 6)]
    assert directory.child("a").files_below("b") == [("b/c/file", 6)]
    assert directory.names("a") == ["b", "link"]
    assert directory.names("gone") == directory.files_below("gone") == []


def test_listing_has_an_end(lake: Path) -> None:
    """Directories in directories in directories are refused, not descended into for ever."""
    (lake / "/".join("d" * (confinement.DEEPEST + 2))).mkdir(parents=True)
    with pytest.raises(UnsafePathError, match="more than 100 directories"):
        confined(lake).files_below()


def test_a_tree_with_a_link_stays_whole(lake: Path) -> None:
    """What was not listed as ours is not removed, nor is anything beside it."""
    link = lake / "a/b/link"
    for target in (lake.parent / "victim", lake.parent / "victim/file", Path("gone")):
        link.symlink_to(target)
        before = _content(lake / "a/b/c")
        with pytest.raises(UnsafePathError, match="no regular file"):
            confined(lake).delete_tree("a")
        assert _content(lake / "a/b/c") == before
        link.unlink()
    confined(lake).delete_tree("a")
    assert not (lake / "a").exists()
    confined(lake).delete_tree("a")
    confined(lake).delete_tree()
    assert not lake.exists()


def test_what_came_after_the_listing_stays(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was put into a tree while it is removed is not removed with it."""
    swapped(monkeypatch, "unlink", "file", lambda: (lake / "a/b/late").write_bytes(b"late"))
    with pytest.raises(SnapshotError, match="can't be removed"):
        confined(lake).delete_tree("a")
    assert (lake / "a/b/late").read_bytes() == b"late"


def test_only_files_are_removed(lake: Path) -> None:
    """No directory by the way that is for files, no link, no pipe."""
    os.mkfifo(lake / "pipe")
    (lake / "link").symlink_to(lake.parent / "victim/file")
    for path in ("a", "pipe", "link"):
        with pytest.raises(UnsafePathError):
            confined(lake).delete(path)
        assert (lake / path).lstat()
    confined(lake).delete("file")
    confined(lake).delete("file")
    confined(lake).delete("gone/file")
    assert confined(lake).names() == ["a", "link", "pipe"]


def test_pipes_are_no_files(lake: Path) -> None:
    """They are neither waited for nor replaced."""
    os.mkfifo(lake / "pipe")
    directory = confined(lake)
    assert directory.exists("pipe")
    assert not directory.is_file("pipe")
    for name in ("read", "read_into", "open_input", "moved_from"):
        with pytest.raises(StateError):
            OPERATIONS[name](directory, "pipe")
    for name in ("write", "open_output", "moved_to"):
        with pytest.raises(UnsafePathError):
            OPERATIONS[name](directory, "pipe")


def test_files_linked_from_elsewhere_are_replaced(lake: Path) -> None:
    """A hard link is a file like any other, but nothing is written into it."""
    for name in ("open_output", "write"):
        (lake / "hard").hardlink_to(lake.parent / "victim/file")
        OPERATIONS[name](confined(lake), "hard")
        assert (lake / "hard").read_bytes() == b"changed"
        (lake / "hard").unlink()
    (lake / "hard").hardlink_to(lake.parent / "victim/file")
    with pytest.raises(UnsafePathError, match="linked from elsewhere"):
        moved_to(confined(lake), "hard")
    with pytest.raises(UnsafePathError, match="linked from elsewhere"):
        confined(lake).resize("hard", 0)
    before = (lake.parent / "victim/file").read_bytes()
    moved_from(confined(lake), "hard")
    assert (lake / "hard").read_bytes() == b""
    assert (lake.parent / "victim/file").read_bytes() == before


# ----------------------------------------------------------------------------- honest use


def test_a_confined_directory_does_what_a_directory_does(tmp_path: Path) -> None:
    """Files are written, read, listed and removed as ever."""
    directory = confined(tmp_path / "new/lake").child("table")
    directory.create()
    directory.write("a/note", b"one")
    directory.write("a/note", b"two")
    with directory.open_output("a/b/data") as file:
        file.write(b"1234")
    with directory.open_input("a/b/data") as file:
        assert (file.size(), file.read_at(2, 1)) == (4, b"23")
    out = np.empty(2, np.uint8)
    directory.source("a/b/data").read_into(2, out)
    assert out.tobytes() == b"34"
    plain = Directory(tmp_path / "new/lake/table")
    for tree in (directory, plain):
        assert tree.read("a/note") == b"two"
        assert tree.files_below() == [("a/b/data", 4), ("a/note", 3)]
        assert tree.files_below("a/b") == [("a/b/data", 4)]
        assert tree.names("a") == ["b", "note"]
        assert (tree.exists("a"), tree.is_file("a"), tree.is_file("a/note")) == (True, False, True)
        assert (tree.exists(), tree.exists("gone/x"), tree.is_file("a/note/x")) == (
            True,
            False,
            False,
        )
        assert tree.size("a/note") == 3
        assert tree.full("a/note") == tree.checked_path("a/note") == f"{plain.root}/a/note"
        with pytest.raises(MissingFileError):
            tree.read("gone")
        with pytest.raises(MissingFileError):
            tree.size("a")
    assert directory.modified("a/note") == pytest.approx(plain.modified("a/note"))
    assert stat.S_IMODE((tmp_path / "new/lake/table/a/note").stat().st_mode) == 0o666 & ~_umask()
    directory.delete("a/note")
    directory.delete_tree("a")
    assert plain.names() == []


def test_files_are_synced_before_each_directory_above_them_and_each_once(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the directory that was confined; a file that was made by then is synced, too."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    directory = confined(lake).child("a")
    with directory.open_output("new/one") as file:
        file.write(b"1")
    with directory.open_output("new/two") as file:
        file.write(b"2")
    directory.sync_files(["new/one", "new/two", "new/two"])
    inodes = [(lake / name).stat().st_ino for name in ("a/new/one", "a/new/two", "", "a", "a/new")]
    assert (sorted(synced[:2]), sorted(synced[2:])) == (sorted(inodes[:2]), sorted(inodes[2:]))


def test_a_file_is_written_with_every_directory_that_was_made_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the one above the confined directory, which is made, too, to its own."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    confined(tmp_path / "new/lake").write("a/b/file", b"1")
    paths = (tmp_path, *(tmp_path / name for name in ("new", "new/lake", "new/lake/a")))
    file, folder = tmp_path / "new/lake/a/b/file", tmp_path / "new/lake/a/b"
    assert synced == [path.stat().st_ino for path in (*paths, file, folder)]


def test_what_a_task_writes_is_synced_at_its_end(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not what it has removed again, nor what is written afterwards."""
    synced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda file: synced.add(os.fstat(file).st_ino))
    with written_is_synced():
        for name in ("a/stays", "a/goes"):
            confined(lake).open_output(name).close()
        confined(lake).delete("a/goes")
        confined(lake).resize("file", 3)
        assert not synced
    confined(lake).open_output("a/later").close()
    names = ("", "a", "a/stays", "file")
    assert synced == {(lake / name).stat().st_ino for name in names}


def _descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


def test_what_the_system_refuses_is_our_error(lake: Path) -> None:
    """Names that are too long, and files where a directory should be."""
    directory = confined(lake)
    for path in ("x" * 300, f"a/{'x' * 300}/y"):
        for operation in OPERATIONS.values():
            with pytest.raises(StateError, match="too long"):
                operation(directory, path)
    for name in ("write", "open_output", "moved_to", "create"):
        with pytest.raises(StateError):
            OPERATIONS[name](directory, "file/below")


def test_a_failed_write_leaves_nothing(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the file nor a part of it; what was there stays."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SnapshotError, match="can't be written"):
        confined(lake).write("file", b"changed")
    assert confined(lake).read("file") == b"honest"
    assert confined(lake).names() == ["a", "file"]


def test_no_descriptor_is_left_open(lake: Path) -> None:
    """Whether an operation is done or refused."""
    (lake / "link").symlink_to(lake.parent / "victim")
    directory = confined(lake)
    before = _descriptors()
    for _ in range(3):
        for operation in OPERATIONS.values():
            for path in ("a/b/c/file", "link/file", "file/x", "gone/x", "a/b", "link"):
                try:
                    found = operation(directory, path)
                except (StateError, OSError):
                    continue
                del found
    assert _descriptors() == before


def test_a_tree_gives_files_a_second_path(lake: Path) -> None:
    """Hard links, from one tree into another; never of a link."""
    other = ConfinedTree(str(lake.parent / "other"))
    other.link(ConfinedTree(str(lake)), "a/b/c/file", "x/y")
    assert (lake.parent / "other/x/y").samefile(lake / "a/b/c/file")
    (lake / "link").symlink_to(lake.parent / "victim/file")
    with pytest.raises(UnsafePathError):
        other.link(ConfinedTree(str(lake)), "link", "z")
    assert other.files() == [("x/y", 6)]
    (lake.parent / "other/out").symlink_to(lake.parent / "victim")
    with pytest.raises(UnsafePathError):
        other.link(ConfinedTree(str(lake)), "file", "out/z")


def test_a_confined_directory_travels(lake: Path) -> None:
    """To another process, where it is as confined, from the same directory on."""
    (lake / "link").symlink_to("a")
    child = pickle.loads(pickle.dumps(confined(lake).child("a").child("b")))  # noqa: S301
    assert child.read("c/file") == b"honest"
    (lake / "a").rename(lake / "away")
    (lake / "a").symlink_to("away")
    with pytest.raises(UnsafePathError):
        child.read("c/file")
    paths_alone = Directory(lake).confined(follow_links=True).child("link")
    for tree in (paths_alone, pickle.loads(pickle.dumps(paths_alone))):  # noqa: S301 - our own
        assert tree.child("b").read("c/file") == b"honest"
        with pytest.raises(UnsafePathError):
            tree.read("../file")


# ----------------------------------------------------------------------------- object stores


@pytest.mark.parametrize("path", [path for path in REFUSED if path])
def test_keys_of_object_stores_hold_to_the_rule(lake: Path, path: str) -> None:
    """There are no links there, and keys that look like paths are paths to the next reader."""
    remote = Directory("anything")
    remote.filesystem = fs.SubTreeFileSystem(str(lake.parent), fs.LocalFileSystem())
    remote.root, remote.scheme, remote.local = "lake", "s3", False
    for name in OPERATIONS.keys() - {
        "moved_from",
        "moved_to",
        "resize",
    }:  # nothing is written into there
        operation = OPERATIONS[name]
        with pytest.raises(UnsafePathError):
            operation(remote.confined(), path)
        if name in {"read", "source", "size", "followed"}:
            assert operation(remote.confined().child("a"), "b/c/file")


@pytest.mark.parametrize("write", ["write", "write_new"])
@pytest.mark.parametrize("when", ["before", "while"])
def test_a_sweep_takes_no_file_that_its_writer_is_about_to_lock(
    write: str, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the writer begins another: what it writes gets its name."""
    tree, real, calls = ConfinedTree(str(tmp_path)), fcntl.flock, count()
    sweeps: list[int] = []

    def lock(file: int, operation: int) -> None:
        if next(calls) == 0:
            (part,) = tmp_path.glob("*.part")
            if when == "before":
                assert tree.remove_left_part(part.name)
            else:
                sweeps.append(os.open(part, os.O_RDONLY))
                real(sweeps[0], fcntl.LOCK_EX)
        real(file, operation)
        if sweeps:
            os.close(sweeps.pop())

    monkeypatch.setattr(confinement.fcntl, "flock", lock)
    if write == "write":
        tree.write("entry", [b"content"])
    else:
        assert tree.write_new("entry", b"content")
    assert (tmp_path / "entry").read_bytes() == b"content"
