"""Names that obey a terminal, lead elsewhere, or are no text; and what contradicts itself."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.state_core.model.handles import IncrementalHandle, RelativeHandle
from tests.adversary.makers.lake import filled
from tests.adversary.makers.scene import Maker, Scene
from tests.adversary.makers.seed import edit_metadata
from tests.adversary.playing import Case, over
from tests.support.lakes import golden
from tests.support.savepoints.contradicting import (
    CONTRADICTIONS,
    Contradiction,
    contradict,
    subtask_twice,
)

__all__ = ["CONTRADICTION_CASES", "NAME_CASES", "ROCKSDB_CASES"]

SHOWN = {
    "import": "import {savepoint} --lake {lake} --job j --snapshot s",
    "inspect": "inspect {savepoint}",
    "inspect-json": "inspect {savepoint} --json",
    "dump": "dump {savepoint}",
    "get": "get {savepoint} --key key-3",
    "top": "top {savepoint}",
    "report": "report {savepoint} --to {out}",
    "integrity": "check integrity {savepoint}",
    "find": "find key-3 {savepoint}",
    "expired": "expired {savepoint} --ttl 1h",
    "growth": "growth {savepoint} {savepoint}",
    "diff": "diff {savepoint} {savepoint}",
    "types": "inspect {savepoint} --types",
    "copy": "copy {savepoint} {out}",
    "upgrade": "upgrade {savepoint} --to {out}",
}
IMPORT_INSPECT = {name: SHOWN[name] for name in ("import", "inspect")}
READ = IMPORT_INSPECT | {
    "dump": "dump {savepoint} --state session",
    "compress": "compress {savepoint} --to {out}",
    "find": "find x {savepoint} --contains",
    "upgrade": SHOWN["upgrade"],
    "legality": "check legality {seed}/job.json --savepoint {savepoint}",
}
IN_LAKE = {
    "export": "export --lake {lake} --job j --snapshot s --to {out} --engine local",
    "diff": "diff --lake {lake} --job j s s",
    "get": "get --lake {lake} --job j --key key-3",
    "history": "history --lake {lake} --job j --key key-3",
    "top": "top --lake {lake} --job j",
    "find": "find key-3 --lake {lake} --job j",
    "expired": "expired --lake {lake} --job j --ttl 1h",
    "growth": "growth --lake {lake} --job j",
    "types": "types --lake {lake} --job j",
    "upgrade": "upgrade --lake {lake} --job j --snapshot s",
    "report": "report --lake {lake} --job j --to {out}",
    "plan-rescale": "plan-rescale --lake {lake} --job j --snapshot s --parallelism 2",
    "integrity": "check integrity --lake {lake} --job j --snapshot s",
    "drop": "drop --lake {lake} --job j --keep 0 --yes",
    "drop-unknown": "drop --lake {lake} --job j --snapshot none",
    "migrate-unknown": "migrate --lake {lake} --job j --all --state counter/none --to {seed}/wider.json",
}
FAULTY = 1

# seven bytes each, in the UTF-8 that Java writes, in place of `session` or `counter`
NAMES = {
    "escape": b"\x1b[31mab",
    "title": b"\x1b]0;x\x07a",
    "null": b"\xc0\x80abcde",
    "backspace": b"ab\b\b\bcd",
    "line-breaks": b"a\nb\rc\td",
    "right-to-left": "\u202eabcd".encode(),
    "isolate": "\u2066abcd".encode(),
    "zero-width": "\u200babcd".encode(),
    "next-line": "a\x85bcde".encode(),
    "line-separator": "\u2028abcd".encode(),
    "one-byte-escape": "\x9b31mab".encode(),
    "byte-order-mark": "\ufeffabcd".encode(),
    "private-use": "\ue000abcd".encode(),
    "path": b"../../x",
    "inner-path": b"a/../..",
    "absolute": b"/tmp/ab",
    "dot-dot": b"a/..//b",
    "hidden": b".hidden",
    "underscore": b"_delta_",
    "markup": b"[red]ab",
    "quotes": b"'\"`;--x",
    "percent": b"%2e%2e/",
    "tilde": b"~2E~2Ea",
    "home": b"~/abcde",
    "glob": b"*?[a-z]",
}
HALVES = {
    "first-half": b"\xed\xa0\x80abcd",
    "second-half": b"abcd\xed\xb0\x80",
    "halves-turned": b"\xed\xb0\x80\xed\xa0\x80a",
}
# bytes that are no text at all
BROKEN = {
    "cut-off": b"abcde\xe2\x82",
    "continuation": b"\x80abcdef",
    "four-bytes": b"\xf0\x9f\x98\x80abc",
}


def renamed(old: bytes, new: bytes) -> Maker:
    """A savepoint in which whatever is called so is called otherwise."""

    def make(scene: Scene) -> None:
        assert len(new) == len(old) == 7
        for path in scene.with_savepoint().iterdir():
            data = path.read_bytes()
            path.write_bytes(data.replace(b"\0\x07" + old, b"\0\x07" + new))

    return make


def imported(make: Maker) -> Maker:
    """The same, in a lake of its own."""

    def made(scene: Scene) -> None:
        make(scene)
        import_snapshot(
            Catalog(scene.lake), str(scene.savepoint), "j", snapshot_id="s", engine="local"
        )

    return made


NAME_CASES: list[Case] = [
    *(
        case
        for name, text in NAMES.items()
        for case in over(
            SHOWN if name in ("escape", "right-to-left", "path") else IMPORT_INSPECT,
            f"name/state/{name}", renamed(b"session", text), 0,
        )
    ),
    *(
        case
        for name, text in NAMES.items()
        for case in over(IMPORT_INSPECT, f"name/operator/{name}", renamed(b"counter", text), 0)
    ),
    *(
        case
        for name in ("escape", "right-to-left", "path", "next-line")
        for case in over(
            IN_LAKE, f"name/lake/{name}", imported(renamed(b"session", NAMES[name])),
            {"drop-unknown": 3, "migrate-unknown": 3, "growth": 3} | dict.fromkeys(
                set(IN_LAKE) - {"drop-unknown", "migrate-unknown", "growth"}, 0),
            honest=False, changes=True,
        )
    ),
    *(
        case
        for name, text in (HALVES | BROKEN).items()
        for case in over(READ, f"name/state/{name}", renamed(b"session", text))
    ),
    *(
        case
        for name, text in (HALVES | BROKEN).items()
        for case in over(IMPORT_INSPECT, f"name/operator/{name}", renamed(b"counter", text))
    ),
]  # fmt: skip


def contradicting(contradiction: Contradiction) -> Maker:
    """The snapshot that contradicts itself."""
    return lambda scene: contradict(contradiction, scene.savepoint)


CONTRADICTION_CASES: list[Case] = [
    *(
        case
        for contradiction in CONTRADICTIONS
        for case in over(
            IMPORT_INSPECT | {"compress": READ["compress"], "integrity": SHOWN["integrity"]},
            contradiction.name.replace(" ", "-").replace(",", ""), contradicting(contradiction), {"integrity": FAULTY},
            says=contradiction.says[0],
        )
    ),
    *over(READ | {"integrity": SHOWN["integrity"]}, "a-subtask-twice",
          lambda scene: subtask_twice(scene.savepoint), {"integrity": FAULTY}, says="a second time"),
]  # fmt: skip

# --------------------------------------------------------------------------- files of RocksDB

ROCKSDB = "kinds-rocksdb-native-p2-m128-flink2.3.0"
Files = tuple[tuple[str, Any], ...]


def rocksdb(change: Callable[[Files, Scene], Files]) -> Maker:
    """A native savepoint whose first subtask's database has other files."""

    def make(scene: Scene) -> None:
        shutil.copytree(golden(ROCKSDB).snapshot, scene.savepoint)

        def edit(metadata: Any) -> None:
            operator = next(
                operator for operator in metadata.operators
                if any(s.managed_keyed for s in (operator.subtasks or {}).values())
            )  # fmt: skip
            handle: IncrementalHandle = operator.subtasks[0].managed_keyed
            operator.subtasks[0].managed_keyed = replace(
                handle, private=change(handle.private, scene)
            )

        edit_metadata(scene.savepoint, edit)

    return make


def called(name: str) -> Maker:
    """The first file is called otherwise in the database."""
    return rocksdb(lambda files, scene: ((filled(name, scene), files[0][1]), *files[1:]))


def lies_at(path: str) -> Maker:
    """The first file lies elsewhere."""

    def change(files: Files, scene: Scene) -> Files:
        size = files[0][1].size
        return ((files[0][0], RelativeHandle(filled(path, scene), size)), *files[1:])

    return rocksdb(change)


LOCAL_NAMES: Mapping[str, str] = {
    "parent": "../planted.sst", "absolute": "{victim}/planted.sst", "through": "a/../../planted",
    "empty": "", "dot": ".", "dot-dot": "..", "null-byte": "a\0.sst", "directory": "a/b.sst",
    "manifest": "MANIFEST-000001", "too-long": "n" * 3000,
}  # fmt: skip
ROCKSDB_CASES: list[Case] = [
    *(
        case
        for name, text in LOCAL_NAMES.items()
        for case in over({verb: SHOWN[verb] for verb in ("import", "integrity")},
                         f"rocksdb/name/{name}", called(text), {"integrity": FAULTY})
    ),
    *(
        Case(f"rocksdb/place/{name}", lies_at(path), SHOWN["import"])
        for name, path in (
            ("parent", "../victim/secret.txt"), ("absolute", "{victim}/secret.txt"), ("empty", ""),
            ("metadata", "_metadata"), ("dot-dot", ".."),
        )
    ),
]  # fmt: skip
