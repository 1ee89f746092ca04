"""Hostile savepoints and checkpoints: what one says of a place leads nowhere outside it."""

from __future__ import annotations

import os
from pathlib import Path

from tests.adversary.makers.lake import in_turn
from tests.adversary.makers.savepoint import (
    absolute,
    checkpoint_link,
    handle,
    merged,
    nested,
    relative,
    replaced,
    savepoint_link,
)
from tests.adversary.makers.scene import Scene
from tests.adversary.playing import Case, over

__all__ = ["SAVEPOINT_CASES"]

IMPORT = {"import": "import {savepoint} --lake {lake} --job j --snapshot s"}
INSPECT = {"inspect": "inspect {savepoint}"}
COMPRESS = {"compress": "compress {savepoint} --to {out}"}
READING = IMPORT | {
    "dump": "dump {savepoint} --state name",
    "compatibility": "check compatibility --lake {seed}/lake --job orders --snapshot good"
    " --against {savepoint}",
    "legality": "check legality {seed}/job.json --savepoint {savepoint}",
}
KEYS = {
    "get": "get {savepoint} --key key-3",
    "top": "top {savepoint}",
    "find": "find key-3 {savepoint}",
    "expired": "expired {savepoint} --ttl 1h",
    "growth": "growth {savepoint} {savepoint}",
    "diff": "diff {savepoint} {savepoint}",
    "copy": "copy {savepoint} {out}",
    "upgrade": "upgrade {savepoint} --to {out}",
    "report": "report {savepoint} --to {out}",
}
CHECK = {"integrity": "check integrity {savepoint}"}
SALVAGE = {"salvage": "check integrity {savepoint} --salvage {out}"}
OF_CHECKPOINT = {
    "import": "import {checkpoint} --lake {lake} --job j --snapshot s",
    "inspect": "inspect {checkpoint}",
    "dump": "dump {checkpoint} --state name",
    "get": "get {checkpoint} --key key-3",
}
FAULTY = 1

# a state file that is named relative to `_metadata`
RELATIVE = {
    "parent": "../victim/keyed-0",
    "absolute": "{victim}/keyed-0",
    "uri": "file://{victim}/keyed-0",
    "short-uri": "file:{victim}/keyed-0",
    "object-store": "s3://bucket/keyed-0",
    "through": "sub/../../victim/keyed-0",
    "dot": "./../victim/keyed-0",
    "dot-alone": ".",
    "dot-dot": "..",
    "empty": "",
    "root": "/",
    "encoded": "%2e%2e/victim/keyed-0",
    "encoded-twice": "%252e%252e/victim/keyed-0",
    "encoded-slash": "..%2Fvictim%2Fkeyed-0",
    "backslash": "..\\victim\\keyed-0",
    "double-slash": "//{victim}/keyed-0",
    "back-and-forth": "../savepoint/../victim/keyed-0",
    "null-byte": "keyed-0\0",
    "null-byte-before": "\0/../victim/keyed-0",
    "line-break": "keyed\n-0",
    "escape": "\x1b[31mkeyed-0",
    "right-to-left": "\u202ekeyed-0",
    "too-long": "k" * 4000,
    "too-deep": "k/" * 2000 + "k",
    "home": "~/victim/keyed-0",
    "device": "/dev/zero",
    "own-memory": "/proc/self/mem",
}

# a state file that is named by where it lay
ABSOLUTE = {
    "path": "{victim}/keyed-0",
    "uri": "file://{victim}/keyed-0",
    "short-uri": "file:{victim}/keyed-0",
    "capitals": "FILE:{victim}/keyed-0",
    "host": "file://localhost{victim}/keyed-0",
    "parent": "../victim/keyed-0",
    "shared": "file:/old/shared/../../victim/keyed-0",
    "shared-name": "file:/old/shared/..",
    "above-shared": "file:/old/shared/../keyed-0/../../victim/keyed-0",
    "checkpoint": "file:/old/chk-1/../../victim/keyed-0",
    "encoded": "file:/old/shared/%2e%2e%2f%2e%2e%2fvictim%2fkeyed-0",
    "dot-dot": "..",
    "root": "file:///",
    "empty": "",
    "scheme-alone": "file:",
    "object-store": "s3://bucket/keyed-0",
    "hdfs": "hdfs://127.0.0.1:9/keyed-0",
    "http": "http://127.0.0.1:9/keyed-0",
    "device": "file:/dev/zero",
    "null-byte": "file:{victim}/keyed-0\0",
    "escape": "file:/old/shared/\x1b]0;evil\x07",
}

# what stands where a state file was
INSTEAD = {
    "directory": Path.mkdir,
    "pipe": os.mkfifo,
    "nothing": lambda _: None,
    "dangling-link": lambda path: path.symlink_to("gone"),
    "link-to-itself": lambda path: path.symlink_to(path.name),
    "link-to-device": lambda path: path.symlink_to("/dev/zero"),
    "link-to-memory": lambda path: path.symlink_to("/proc/self/mem"),
    "link-to-directory": lambda path: path.symlink_to("."),
}


def linked_below(scene: Scene) -> None:
    """A directory of the savepoint is a link, and a handle leads through it."""
    handle("below/keyed-0")(scene)
    (scene.savepoint / "below").symlink_to(scene.victim)


def chained(scene: Scene) -> None:
    """A link to a link to a file elsewhere."""
    scene.with_savepoint()
    (scene.savepoint / "keyed-0").unlink()
    (scene.savepoint / "keyed-0").symlink_to("between")
    (scene.savepoint / "between").symlink_to(scene.victim / "keyed-0")


SAVEPOINT_CASES: list[Case] = [
    *(
        case
        for name, path in RELATIVE.items()
        for case in over(IMPORT | INSPECT, f"relative/keyed/{name}", handle(path))
    ),
    *(
        case
        for name, path in ABSOLUTE.items()
        for case in over(IMPORT | INSPECT, f"absolute/keyed/{name}", handle(path, stream=absolute))
    ),
    *(
        case
        for name, path in RELATIVE.items()
        if name in ("parent", "absolute", "through")
        for case in over(
            COMPRESS | KEYS | {verb: READING[verb] for verb in ("dump", "compatibility")},
            f"relative/keyed/{name}", handle(path),
        )
    ),
    *(
        Case(f"handle/{role}/{name}", handle(path, role, stream), IMPORT["import"])
        for role in ("operator", "raw", "raw-keyed", "input")
        for name, path, stream in (
            ("parent", "../victim/opaque", relative),
            ("absolute", "{victim}/opaque", absolute),
            ("segment", "{victim}/opaque", merged),
        )
    ),
    Case("handle/keyed/segment", handle("{victim}/keyed-0", stream=merged), IMPORT["import"]),
    Case("handle/keyed/nested", handle("{victim}/keyed-0", stream=nested), IMPORT["import"]),
    *(
        case
        for name, path in RELATIVE.items()
        if name in ("parent", "absolute", "through", "device")
        for case in over(CHECK, f"relative/keyed/{name}", handle(path), code=FAULTY)
    ),
    *(
        case
        for name, by in INSTEAD.items()
        for case in over(IMPORT | INSPECT, f"instead-of-state/{name}", replaced("keyed-0", by))
    ),
    *(
        case
        for name, by in INSTEAD.items()
        for case in over(IMPORT | INSPECT, f"instead-of-metadata/{name}", replaced("_metadata", by))
    ),
    *over(IMPORT | INSPECT, "link/file", savepoint_link("keyed-0", "{victim}/keyed-0")),
    *over(IMPORT | INSPECT, "link/file-relative", savepoint_link("keyed-0", "../victim/keyed-0")),
    *over(IMPORT | INSPECT, "link/directory", linked_below),
    *over(IMPORT | INSPECT, "link/chain", chained),
    *over(IMPORT, "link/operator", savepoint_link("operator-0", "{victim}/operator-0")),
    *over(IMPORT, "link/raw", savepoint_link("opaque", "{victim}/opaque")),
    *over(IMPORT | INSPECT, "link/metadata", savepoint_link("_metadata", "{victim}/savepoint/_metadata")),
    *over(
        IMPORT | INSPECT,
        "link/own-shared",
        in_turn(handle("file:/old/shared/keyed-0", stream=absolute),
                savepoint_link("shared", "{victim}/checkpoints/shared")),
    ),
    *over(
        IMPORT | INSPECT,
        "link/own-task-owned",
        in_turn(handle("file:/old/taskowned/keyed-0", stream=absolute),
                savepoint_link("taskowned", "{victim}")),
    ),
    *over(OF_CHECKPOINT, "link/shared", checkpoint_link("shared", "{victim}/checkpoints/shared")),
    *over(
        OF_CHECKPOINT, "link/shared-relative", checkpoint_link("shared", "../victim/checkpoints/shared")
    ),
    *over(
        {"import": OF_CHECKPOINT["import"]},
        "link/task-owned",
        checkpoint_link("taskowned", "{victim}/checkpoints/taskowned"),
    ),
    *over(
        {"import": OF_CHECKPOINT["import"]},
        "link/other-checkpoint",
        checkpoint_link("chk-6", "{victim}/checkpoints/chk-6"),
    ),
    *over(
        OF_CHECKPOINT,
        "link/shared-file",
        checkpoint_link("shared/keyed-0", "{victim}/checkpoints/shared/keyed-0"),
    ),
    *over(OF_CHECKPOINT, "link/whole", checkpoint_link("chk-7/keyed-1", "{victim}/checkpoints/chk-7/keyed-1")),
    # what is not hostile goes on as ever
    *over(IMPORT | INSPECT | COMPRESS | CHECK | READING | KEYS, "honest/savepoint", Scene.with_savepoint, code=0),
    *over(OF_CHECKPOINT, "honest/checkpoint", Scene.with_checkpoint, code=0),
]  # fmt: skip
