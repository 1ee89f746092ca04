"""`copy` to and from a store that fails, and whose objects change meanwhile.

What has its `_metadata` is whole, whatever happens; exit code 0 is the truth; an error names its
place, and is gone with the fault. Sources stay as they are.
"""

from __future__ import annotations

import os
import posixpath
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import obstore.store
import pytest

from statelake.pipelines.find.copying import COPYING
from statelake.state_core.files import object_stores
from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata
from statelake.state_core.formats.metadata.stream_map import streams_of
from statelake.state_core.model.handles import FileHandle, RelativeHandle, SegmentHandle
from tests.integration.s3 import relay as relays
from tests.integration.s3.faults import seeded_by_request
from tests.integration.s3.proxy import ENVIRONMENT
from tests.integration.s3.relay import Fault, Plan, Relay, Request
from tests.pipelines.find.test_copying import held, without_places
from tests.support.command import Ran, run
from tests.support.fake_store import FakeStore
from tests.support.savepoints.checkpoint_trees import FAMILIES, made_tree

ATTEMPTS = 3
METADATA = "/_metadata"
LARGE_BYTES = 18 << 20  # two parts of an upload
FROM_STORE, TO_STORE, BOTH = "from a store", "to a store", "from store to store"
Files = dict[str, bytes]


@dataclass(frozen=True)
class Scene:
    """What is copied where.

    Attributes:
        family: Of the job.
        way: Which of both places is in the store.
        every: Whether all checkpoints of the job are copied, or its newest.
        large: Whether a file of each checkpoint is written in parts.
    """

    family: str
    way: str
    every: bool
    large: bool = False


class Stage:
    """A job's checkpoints, and where their copies go, each in a directory or in a store.

    Args:
        scene: What is copied where.
        store: The store.
        relay: Before it.
        root: An empty directory.
    """

    def __init__(self, scene: Scene, store: FakeStore, relay: Relay, root: Path) -> None:
        self.scene, self.relay = scene, relay
        self._store, self._root = store, root
        at = f"file:{root}/flink" if scene.way == TO_STORE else "s3://flink"
        tree = made_tree(at, 1, 2, families=(scene.family,), savepoints=0)
        self.job = tree.snapshots[0].job
        self.files = {path: data for path, (data, _) in tree.files.items()}
        self.padded = set()
        if scene.large:
            path = max((path for path in self.files if METADATA not in path), key=self._length)
            self.files[path] += random.Random(1).randbytes(LARGE_BYTES)
            self.padded.add(path)
        self.one = "" if scene.every else "/chk-2"
        self.source = "flink" if at.startswith("s3:") else f"{root}/flink"
        self.dest = f"{root}/region" if scene.way == FROM_STORE else "region"
        self.versions: dict[str, list[bytes]] = {}
        self.put()

    def _length(self, path: str) -> int:
        return len(self.files[path])

    def put(self) -> None:
        """Put the sources where they are, and nothing where they go."""
        self._store.objects.clear()
        self._store.uploads.clear()
        shutil.rmtree(self._root, ignore_errors=True)
        self.versions = {path: [data] for path, data in self.files.items()}
        self.now: Files = {}
        for path, data in self.files.items():
            self.change(path, data)

    def change(self, path: str, data: bytes | None) -> None:
        """Replace a file of the source, or remove it."""
        name = f"{self.source}/{path}"
        if data is None:
            self.now.pop(path, None)
        else:
            self.now[path] = data
        if self.source == "flink":
            if data is None:
                self._store.objects.pop(name, None)
            else:
                self._store.objects[name] = data
        elif data is None:
            Path(name).unlink(missing_ok=True)
        else:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(f"{name}.new").write_bytes(data)
            Path(f"{name}.new").replace(name)

    def set_page(self, names: int) -> None:
        """Have answers to listings end after so many names, and say that there are more."""
        self._store.page = names

    def held(self, place: str) -> Files:
        """What is in one of both places."""
        if place.startswith("/"):
            return held(Path(place))
        return dict(self._store.files(place))

    def run(self, threads: int) -> Ran:
        """Copy it."""
        words = ["copy", *["--all"] * self.scene.every, "--json"]
        where = (self._location(place) for place in (self.source, self.dest))
        return run(*words, *where, "--threads", threads)

    def _location(self, place: str) -> str:
        path = f"{place}/{self.job}{self.one}"
        return path if place.startswith("/") else self._in_store(path)

    def _in_store(self, path: str) -> str:
        options = f"endpoint_override=127.0.0.1:{self.relay.port}&scheme=http&region=us-east-1"
        return f"s3://{path}?{options}"

    @cached_property
    def requests(self) -> list[Request]:
        """What is asked if nothing goes wrong."""
        self.put()
        asked: list[Request] = []

        def note(request: Request) -> None:
            asked.append(request)

        self.relay.plan = note
        ran = self.run(1)
        assert ran.code == 0, ran.err
        assert self.copies() == self.wanted()
        return asked

    def wanted(self) -> set[str]:
        """The checkpoints that are to be copied, of those that are there."""
        there = {posixpath.dirname(path) for path in self.now if path.endswith(METADATA)}
        return {path for path in there if self.scene.every or path.endswith(self.one)}

    def copies(self) -> set[str]:
        """The checkpoints that have a copy with a `_metadata`: each is whole."""
        there = self.held(self.dest)
        found = {posixpath.dirname(path) for path in there if path.endswith(METADATA)}
        for checkpoint in found:
            self._assert_whole(checkpoint, there)
        return found

    def _assert_whole(self, checkpoint: str, there: Files) -> None:
        original = read_metadata(self.files[f"{checkpoint}{METADATA}"])
        copied = read_metadata(there[f"{checkpoint}{METADATA}"])
        assert without_places(copied) == without_places(original)
        uris = {self.source: self._uri(self.source), self.dest: self._uri(self.dest)}
        for one, other in zip(streams_of(original), streams_of(copied), strict=True):
            if not isinstance(one, RelativeHandle | FileHandle | SegmentHandle):
                continue
            path = _path(one, checkpoint, uris[self.source])
            own = _path(other, checkpoint, uris[self.dest])
            assert own in there, f"{checkpoint} needs {own}"
            if isinstance(one, SegmentHandle):
                end = one.start + one.size
                allowed = {data[:end] for data in self.versions[path]}
                assert there[own][:end] in allowed, f"{own} has other bytes"
            else:
                assert there[own] in self.versions[path], f"{own} has other bytes"

    def _uri(self, place: str) -> str:
        return f"file:{place}" if place.startswith("/") else f"s3://{place}"

    def assert_restorable(self) -> None:
        """Assert that `scan` says so of all copies."""
        place = f"{self.dest}/{self.job}"
        location = place if place.startswith("/") else self._in_store(place)
        found = run("scan", location, "--json").json["snapshots"]
        assert {each["state"] for each in found} <= {"restorable"}
        assert len(found) >= len(self.wanted())


def _path(stream: Any, checkpoint: str, uri: str) -> str:
    if isinstance(stream, RelativeHandle):
        return f"{checkpoint}/{stream.path}"
    assert stream.uri.startswith(f"{uri}/")
    return str(stream.uri[len(uri) + 1 :])


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[Callable[[Scene], Stage]]:
    """Makes each scene once; clients give up sooner than with others."""
    made: dict[Scene, Stage] = {}
    from_url = obstore.store.from_url

    def hurried(*words: Any, **given: Any) -> Any:
        wait = {name: timedelta(milliseconds=ms) for name, ms in
                {"init_backoff": 5, "max_backoff": 20}.items()}  # fmt: skip
        retry = {"max_retries": ATTEMPTS, "backoff": {**wait, "base": 2}}
        return from_url(*words, **given, retry_config=retry)

    with pytest.MonkeyPatch.context() as patch, FakeStore() as store, Relay(store.port) as relay:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setattr(obstore.store, "from_url", hurried)
        patch.setattr(object_stores, "ATTEMPTS", ATTEMPTS)
        patch.setattr(object_stores, "ANSWER_SECONDS", 1)
        patch.setattr(relays, "DELAY_SECONDS", 0.01)

        def stage(scene: Scene) -> Stage:
            if scene not in made:
                made[scene] = Stage(scene, store, relay, tmp_path / f"{len(made)}")
            return made[scene]

        yield stage


SMALL, LARGE = (
    [
        Scene(family, way, every, large)
        for family in FAMILIES
        for way in (BOTH, FROM_STORE, TO_STORE)
        for every in (True, False)
    ]
    for large in (False, True)
)
LASTING = {
    "GET": (Fault.ERROR, Fault.RESET, Fault.CUT, Fault.FORBIDDEN, Fault.OTHER_ETAG),
    "LIST": (Fault.UNAVAILABLE, Fault.RESET, Fault.CUT, Fault.FORBIDDEN),
    "HEAD": (Fault.ERROR, Fault.RESET, Fault.FORBIDDEN, Fault.OTHER_ETAG),
}
LASTING_WRITES = (
    Fault.SLOW_DOWN, Fault.RESET, Fault.LOST, Fault.LOST_ERROR, Fault.FORBIDDEN, Fault.OTHER_ETAG,
)  # fmt: skip
CHANGES = ("other bytes", "cut off", "gone", "checkpoint gone")


def _alike(one: Request, other: Request) -> bool:
    return (one.operation, one.path) == (other.operation, other.path)


class Spoiling:
    """What goes wrong in one run.

    Args:
        seed: By which it is chosen.
        stage: Where.
        silent: Whether some requests are never answered, which takes a second.
    """

    def __init__(self, seed: int, stage: Stage, *, silent: bool) -> None:
        self._chance = random.Random(seed)
        self._stage = stage
        self.lasting: Request | None = None
        self.fault: Fault | None = None
        self.changed: list[str] = []
        self.what = ""
        mode = self._chance.randrange(4)
        share = (0.1, 0, 0.03, 0.05)[mode]
        self._plan: Plan = seeded_by_request(seed, share, silent=silent)
        asked = stage.requests
        stage.set_page(self._chance.choice((1, 7, 1000)))
        stage.put()
        self._at = self._chance.randrange(len(asked)) if mode == 2 else -1
        if mode in {1, 3}:
            self.lasting = self._chance.choice(asked)
            kinds = LASTING.get(self.lasting.operation, LASTING_WRITES)
            self.fault = self._chance.choice(kinds)
        self.says_where = mode == 1
        self._count = 0

    def __call__(self, request: Request) -> Fault | None:
        """Change what is to be changed, and say what happens to a request."""
        if self._count == self._at:
            self._change()
        self._count += 1
        lasting = self.lasting
        if lasting is not None and _alike(request, lasting):
            return self.fault
        return self._plan(request)

    def _change(self) -> None:
        stage = self._stage
        self.what = self._chance.choice(CHANGES)
        if self.what == "checkpoint gone":
            gone = self._chance.choice(sorted(stage.wanted()))
            for path in [f"{gone}{METADATA}", *stage.now]:
                if path.startswith(f"{gone}/") and path in stage.now:
                    self.changed.append(path)
                    stage.change(path, None)
            return
        path = self._chance.choice(sorted(path for path in stage.now if METADATA not in path))
        self.changed.append(path)
        data = stage.now[path]
        if self.what == "gone":
            stage.change(path, None)
        elif self.what == "other bytes":
            stage.versions[path].append(data[:1] + self._chance.randbytes(len(data) - 1))
            stage.change(path, stage.versions[path][-1])
        else:
            stage.change(path, data[:-1])
            if path in stage.padded or "/dstl/" in path:  # as good as whole, by its handles
                stage.versions[path].append(data[:-1])

    def mend(self) -> None:
        """Put back what a copy needs."""
        if self.what == "other bytes" or (self.what == "checkpoint gone" and self._stage.one == ""):
            return
        for path in self.changed:
            self._stage.change(path, self._stage.files[path])


def try_seed(seed: int, stage: Stage, *, silent: bool = False) -> tuple[int, str]:
    """Copy with what goes wrong by a seed, then without; return how the first one ended."""
    spoiling = Spoiling(seed, stage, silent=silent)
    stage.relay.plan = spoiling
    threads = random.Random(seed).choice((1, 3, 16))
    ran = stage.run(threads)
    stage.relay.plan = lambda _: None
    assert stage.held(stage.source) == stage.now
    assert ran.code in {0, 3}, ran.err
    copies = stage.copies()
    if ran.code == 0:
        missing = stage.wanted() - copies
        assert not missing
        assert stage.scene.every or copies
        assert not any(path.endswith(COPYING) for path in stage.held(stage.dest))
    else:
        assert f"{stage.source}/" in ran.err or f"{stage.dest}/" in ran.err, ran.err
        if spoiling.says_where and spoiling.lasting is not None:
            path = spoiling.lasting.path.lstrip("/")
            assert path in ran.err, f"{spoiling.fault}, {spoiling.lasting}: {ran.err}"
    spoiling.mend()
    again = stage.run(threads)
    assert again.code == 0, again.err
    assert stage.wanted() <= stage.copies()
    assert not any(path.endswith(COPYING) for path in stage.held(stage.dest))
    stage.assert_restorable()
    return ran.code, ran.err


def sweep(staged: Callable[[Scene], Stage], seeds: range, *, long: bool = False) -> Counter[int]:
    """Try seeds; return how often each exit code was there."""
    told = bool(os.environ.get("STATELAKE_FAULTS"))
    codes, errors, wrong = Counter[int](), Counter[str](), []
    for seed in seeds:
        scene = random.Random(seed).choice(LARGE if long and seed % 10 == 0 else SMALL)
        try:
            code, error = try_seed(seed, staged(scene), silent=long and seed % 4 == 0)
        except AssertionError as found:
            wrong.append(f"seed {seed}, {scene}: {found}")
            if told:
                print(wrong[-1], flush=True)  # noqa: T201
        else:
            codes[code] += 1
            errors[error] += 1
    if told:
        print(codes, *errors.most_common(), sep="\n")  # noqa: T201
    assert not wrong, "\n".join(wrong)
    return codes


@pytest.mark.parametrize("operation", ["HEAD", "GET"])
@pytest.mark.parametrize("name", ["_metadata", "a file"])
def test_an_object_that_can_not_be_read_keeps_no_other_checkpoint_from_being_copied(
    operation: str, name: str, staged: Callable[[Scene], Stage]
) -> None:
    """Where a policy or an archive's tier denies one, that one is named at the end."""
    stage = staged(Scene("hashmap", BOTH, every=True))
    stage.put()
    own = [path for path in sorted(stage.now) if "/chk-2/" in path]
    denied = next(path for path in own if path.endswith(METADATA) == (name == "_metadata"))

    def deny(request: Request) -> Fault | None:
        is_denied = (request.operation, request.path) == (operation, f"/flink/{denied}")
        return Fault.FORBIDDEN if is_denied else None

    for _ in range(2):
        stage.relay.plan = deny
        ran = stage.run(1)
        assert (ran.code, "all others are copied" in ran.err) == (3, True), ran.err
        assert f"flink/{denied}: can't be read" in ran.err
        assert stage.copies() == {f"{stage.job}/chk-1"}
    stage.relay.plan = lambda _: None
    assert stage.run(1).code == 0
    assert stage.copies() == stage.wanted()


@pytest.mark.parametrize("family", ["incremental", "merged", "forst"])
def test_a_file_that_is_not_where_its_handle_leads_is_missing(
    family: str, staged: Callable[[Scene], Stage]
) -> None:
    """It is not said to be outside, and to be allowed."""
    stage = staged(Scene(family, FROM_STORE, every=False))
    stage.put()
    stage.relay.plan = lambda _: None
    for path in [path for path in stage.now if "/shared/" in path]:
        stage.change(path, None)
    ran = stage.run(1)
    assert (ran.code, "outside" in ran.err) == (3, False), ran.err
    assert f"(it was written to 's3://flink/{stage.job}/shared/" in ran.err


@pytest.mark.parametrize("operation", ["LIST", "DELETE", "POST"])
def test_what_can_not_be_removed_of_a_checkpoint_that_is_gone_is_said(
    operation: str, staged: Callable[[Scene], Stage]
) -> None:
    """With its place; the next copy goes on."""
    stage = staged(Scene("hashmap", BOTH, every=True))
    stage.put()
    gone = [path for path in stage.now if "/chk-2/" in path]

    def vanish(request: Request) -> Fault | None:
        if request.operation == "PUT" and "/chk-2/" in request.path and gone[-1] in stage.now:
            for path in gone:
                stage.change(path, None)
        is_gone = gone[-1] not in stage.now
        return Fault.FORBIDDEN if is_gone and request.operation == operation else None

    stage.relay.plan = vanish
    ran = stage.run(1)
    assert ran.code in {0, 3}, ran.err
    assert ran.code == 0 or f"{stage.job}/chk-2" in ran.err, ran.err
    stage.relay.plan = lambda _: None
    assert stage.run(1).code == 0
    assert stage.copies() == stage.wanted() == {f"{stage.job}/chk-1"}


@pytest.mark.full
def test_a_copy_with_faults_is_whole_or_says_that_it_is_not(
    staged: Callable[[Scene], Stage],
) -> None:
    """And is completed by the next one without."""
    codes = sweep(staged, range(12))
    assert set(codes) == {0, 3}


@pytest.mark.full
@pytest.mark.nightly
def test_many_copies_with_faults_are_whole_or_say_that_they_are_not(
    staged: Callable[[Scene], Stage],
) -> None:
    """The same of other seeds, with large files, and with answers that never come."""
    sweep(staged, range(1000, 1400), long=True)
