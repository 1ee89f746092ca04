"""Hostile checkpoint logs and blob stores: what they name is in them, or is not there."""

from __future__ import annotations

import json
from typing import Any

from tests.adversary.makers.checkpoint import (
    blob_marker,
    changelog_marker,
    committed,
    committed_link,
    index,
    last_index,
    raw_record,
    record,
    torn_record,
)
from tests.adversary.makers.scene import Maker, Scene
from tests.adversary.playing import Case, over

__all__ = ["CHECKPOINT_CASES"]

LIST = {"list": "checkpoints list --log {committed}/log"}
VERIFY = {"verify": "checkpoints verify --log {committed}/log --blobs {committed}/blobs"}
VERIFY_CHANGELOGS = {
    "verify-changelogs": "checkpoints verify --log {committed}/log"
    " --changelogs {committed}/changelogs"
}
DROP = {"drop": "checkpoints drop --log {committed}/log --blobs {committed}/blobs --keep 1"}
FAULTY = 1
KEY = (
    b'{"systemstreampartition-grouper-factory":"g","taskName":"Partition 0","type":"checkpoint-v2"}'
)

# where a blob may be said to be; `{index}` is a sound snapshot index at the victim's
BLOBS = {
    "parent": "../../../victim/committed/blobs/blobs/{index}",
    "absolute": "{victim}/committed/blobs/blobs/{index}",
    "uri": "file://{victim}/committed/blobs/blobs/{index}",
    "through": "job=orders-1/../../../../victim/committed/blobs/blobs/{index}",
    "dot": "./{index}",
    "double-slash": "/{index}",
    "encoded": "%2e%2e/%2e%2e/%2e%2e/victim/committed/blobs/blobs/{index}",
    "empty": "",
    "dot-alone": ".",
    "dot-dot": "..",
    "root": "/",
    "backslash": "..\\..\\victim\\secret.txt",
    "null-byte": "{index}\0",
    "too-long": "a" * 5000,
    "object-store": "s3://bucket/{index}",
    "no-folder": "secret.txt",
}
NAMES = {
    "parent": "../../../victim/planted",
    "absolute": "{victim}/planted",
    "through": "a/../../../../victim/planted",
    "below": "sub/planted",
    "empty": "",
    "dot": ".",
    "dot-dot": "..",
    "null-byte": "a\0b",
    "backslash": "..\\planted",
    "too-long": "n" * 5000,
}


def first_file(**said: Any) -> Maker:
    """An index whose first file has other values."""

    def change(content: dict[str, Any], scene: Scene) -> None:
        places = {"victim": scene.victim}
        file = content["dir-index"]["files-present"][0]
        for name, value in said.items():
            text = value.format(**places) if isinstance(value, str) else value
            file[name.replace("_", "-")] = text

    return index(change)


def first_blob(**said: Any) -> Maker:
    """An index the first of whose blobs has other values."""

    def change(content: dict[str, Any], scene: Scene) -> None:
        below = {"victim": scene.victim, "index": "job=orders-1/none"}
        blob = content["dir-index"]["files-present"][0]["blobs"][0]
        for name, value in said.items():
            blob[name.replace("_", "-")] = (
                value.format(**below) if isinstance(value, str) else value
            )

    return index(change)


def removed(name: str) -> Maker:
    """An index which says that a blob elsewhere is to be removed."""

    def change(content: dict[str, Any], scene: Scene) -> None:
        gone = dict(content["dir-index"]["files-present"][0])
        places = {"victim": scene.victim, "index": "../../secret.txt"}
        gone["blobs"] = [{"blob-id": name.format(**places), "offset": 0}]
        content["dir-index"]["files-removed"].append(gone)

    return index(change)


def inside(name: str) -> Maker:
    """An index with a directory of that name, which has all the files."""

    def change(content: dict[str, Any], scene: Scene) -> None:
        top = content["dir-index"]
        below = {**top, "dir-name": name.format(victim=scene.victim)}
        content["dir-index"] = {**top, "files-present": [], "sub-dirs-present": [below]}

    return index(change)


def nested(depth: int) -> Maker:
    """An index of directories in directories."""

    def make(scene: Scene) -> None:
        path = last_index(committed(scene))
        above = '{"dir-name":"d","files-present":[],"files-removed":[],"sub-dirs-removed":[],'
        head, tail = above + '"sub-dirs-present":[', "]}"
        content = json.loads(path.read_bytes()) | {"dir-index": "HERE"}
        text = json.dumps(content).replace('"HERE"', head * depth + tail * depth)
        path.write_text(text, "utf-8")

    return make


def set_in(place: str, value: Any) -> Maker:
    """An index with another value at a place such as `dir-index/files-present`."""

    def change(content: dict[str, Any], _: Scene) -> None:
        *above, last = place.split("/")
        at: Any = content
        for part in above:
            at = at[int(part) if part.isdecimal() else part]
        at[last] = value

    return index(change)


def message(place: str, value: Any) -> Maker:
    """A record with another value in its message."""

    def change(_: dict[str, Any], content: dict[str, Any], __: Scene) -> None:
        content[place] = value

    return record(change)


def keyed(place: str, value: Any) -> Maker:
    """A record with another value in its key."""

    def change(content: dict[str, Any], _: dict[str, Any], __: Scene) -> None:
        content[place] = value

    return record(change)


CHECKPOINT_CASES: list[Case] = [
    *over(LIST | VERIFY | VERIFY_CHANGELOGS | DROP, "honest/files", committed, code=0),
    *(
        case
        for name, blob in BLOBS.items()
        for case in over(VERIFY, f"marker/{name}", blob_marker(blob), code=FAULTY)
    ),
    *(
        case
        for name, blob in BLOBS.items()
        if name in ("parent", "absolute", "dot-dot", "empty", "root")
        for case in over(DROP, f"marker/{name}", blob_marker(blob), changes=True)
    ),
    *(
        Case(f"store/{name}", blob_marker("{index}", store.format(victim="/victim")),
             VERIFY["verify"], FAULTY)
        for name, store in NAMES.items()
    ),
    *(
        case
        for name, task in NAMES.items()
        for case in over(DROP | LIST, f"task/{name}", keyed("taskName", task), code=0)
    ),
    *(
        case
        for name, said in (
            ("stream-parent", {"stream": "../../../../victim"}), ("stream-dots", {"stream": ".."}),
            ("stream-absolute", {"stream": "{victim}"}), ("stream-null", {"stream": "a\0b"}),
            ("system-through", {"system": "a/../../../victim"}), ("system-list", {"system": []}),
            ("partition-text", {"partition": "../0"}), ("partition-negative", {"partition": -1}),
            ("offset-beyond", {"offset": "999"}), ("offset-text", {"offset": "../victim"}),
            ("offset-huge", {"offset": "9" * 40}), ("offset-fraction", {"offset": "1.5"}),
        )
        for case in over(VERIFY_CHANGELOGS, f"changelog/{name}", changelog_marker(**said),
                         code=FAULTY)
    ),
    *(
        case
        for name, file in NAMES.items()
        for case in over(VERIFY, f"index/file/{name}", first_file(file_name=file),
                         code=FAULTY * (name != "below"))
    ),
    *(
        case
        for name, file in NAMES.items()
        for case in over(VERIFY, f"index/directory/{name}", inside(file),
                         code=FAULTY * (name != "below"))
    ),
    *(
        case
        for name, blob in BLOBS.items()
        for case in over(VERIFY, f"index/blob/{name}", first_blob(blob_id=blob), code=FAULTY)
    ),
    *(
        Case(f"index/removed/{name}", removed(blob), DROP["drop"], 0)
        for name, blob in BLOBS.items()
        if name in ("parent", "absolute", "dot-dot", "through")
    ),
    *(
        Case(f"index/value/{name}", set_in(place, value), VERIFY["verify"], FAULTY)
        for name, place, value in (
            ("no-files", "dir-index/files-present", None),
            ("files-number", "dir-index/files-present", 5),
            ("files-twice", "dir-index/files-present", [{}]),
            ("blobs-text", "dir-index/files-present/0/blobs", "x"),
            ("no-blobs", "dir-index/files-present/0/blobs", []),
            ("checksum-text", "dir-index/files-present/0/checksum", "x"),
            ("checksum-huge", "dir-index/files-present/0/checksum", 2**70),
            ("size-negative", "dir-index/files-present/0/file-metadata/size", -1),
            ("size-huge", "dir-index/files-present/0/file-metadata/size", 2**62),
            ("offset-negative", "dir-index/files-present/0/blobs/0/offset", -1),
            ("offset-huge", "dir-index/files-present/0/blobs/0/offset", 2**62),
            ("directories-list", "dir-index/sub-dirs-present", [[]]),
            ("no-metadata", "snapshot-metadata", None),
            ("no-directory", "dir-index", None),
            ("name-surrogate", "dir-index/files-present/0/file-name", "\ud800"),
        )
    ),
    Case("index/nested", nested(2000), VERIFY["verify"], FAULTY),
    *(
        case
        for name, text in (
            ("nothing", b""), ("no-json", b"{"), ("list", b"[]"), ("number", b"5"),
            ("null", b"null"), ("nested", b"[" * 100_000), ("not-utf-8", b"\xff{}"),
            ("digits", b'{"version":' + b"9" * 100_000 + b"}"), ("no-keys", b"{}"),
        )
        for case in over(LIST, f"record/message/{name}", raw_record(KEY, text))
    ),
    *(
        case
        for name, text in (
            ("nothing", b""), ("no-json", b"{"), ("list", b"[]"), ("nested", b"[" * 100_000),
            ("no-keys", b"{}"), ("number", b'{"taskName":5,"type":7}'),
        )
        for case in over(LIST, f"record/key/{name}", raw_record(text, b"{}"))
    ),
    *(
        Case(f"record/torn/{name}", torn_record(change), LIST["list"])
        for name, change in (
            ("empty", lambda _: b""), ("head", lambda data: data[:10]),
            ("tail", lambda data: data[:-1]),
            ("key-length", lambda data: data[:12] + b"\x7f\xff\xff\xff" + data[16:]),
            ("checksum", lambda data: b"\0\0\0\0" + data[4:]),
        )
    ),
    *(
        case
        for name, place, value in (
            ("markers-list", "state-checkpoint-markers", []),
            ("markers-text", "state-checkpoint-markers", {"f": "x"}),
            ("markers-number", "state-checkpoint-markers", {"f": {"s": 5}}),
            ("id", "checkpoint-id", "../victim"), ("id-huge", "checkpoint-id", "9" * 30 + "-1"),
            ("offsets", "input-offsets", 5), ("offset-name", "input-offsets", {"x": "1"}),
        )
        for case in over(LIST, f"record/value/{name}", message(place, value))
    ),
    *over(VERIFY | DROP, "link/record",
          committed_link("log/*.record", "{victim}/00000000000000000000-writer.record")),
    *over(LIST, "link/log", committed_link("log", "{victim}/committed/log"), code=0),
    *over(VERIFY, "link/index", committed_link("blobs/blobs/*/task=*200/*/*/*-snapshot-index",
                                              "{victim}/secret.txt"), code=FAULTY),
    *over(VERIFY, "link/blob",
          committed_link("blobs/blobs/*/task=*200/*/*/*000002.seg", "{victim}/secret.txt"),
          code=FAULTY),
    *over(VERIFY, "link/folder",
          committed_link("blobs/blobs/job=orders-1", "{victim}/committed/blobs/blobs/job=orders-1"),
          code=FAULTY),
    *over(VERIFY, "link/blobs", committed_link("blobs/blobs", "{victim}/committed/blobs/blobs"),
          code=FAULTY),
    *over(DROP, "link/folder",
          committed_link("blobs/blobs/job=orders-1", "{victim}/committed/blobs/blobs/job=orders-1"), changes=True),
    *over(DROP, "link/blobs", committed_link("blobs/blobs", "{victim}/committed/blobs/blobs"),
          changes=True),
    *over(DROP, "link/expiring", committed_link("blobs/expiring", "{victim}/blobs"), changes=True),
    *over(VERIFY_CHANGELOGS, "link/stream",
          committed_link("changelogs/system=kafka/stream=counts-log",
                         "{victim}/committed/changelogs/system=kafka/stream=counts-log"),
          code=FAULTY),
    *over(VERIFY_CHANGELOGS, "link/segment",
          committed_link("changelogs/*/*/0/*.log", "{victim}/secret.txt"), code=FAULTY),
]  # fmt: skip
