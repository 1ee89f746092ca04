"""Links that are put there between the check and the use: what is checked is what is used."""

from __future__ import annotations

from tests.adversary.makers.checkpoint import committed
from tests.adversary.makers.lake import filled, lake_of
from tests.adversary.makers.savepoint import handle
from tests.adversary.makers.scene import Maker, Scene
from tests.adversary.playing import Case

__all__ = ["SWAP_CASES"]

SWAPPING = "tests.adversary.makers.swapping:main"
TABLE = "orders/keyed/counter/name"
LINK = "{root}/hidden/link"


def hidden(make: Maker, to: str) -> Maker:
    """The same, and a link to the victim's that waits beside it."""

    def made(scene: Scene) -> None:
        make(scene)
        link = scene.root / "hidden" / "link"
        link.parent.mkdir()
        link.symlink_to(filled(to, scene))

    return made


def below(scene: Scene) -> None:
    """A savepoint with a state file in a directory of its own."""
    scene.with_savepoint()
    own = scene.savepoint / "keyed-0"
    (scene.savepoint / "sub").mkdir()
    own.rename(scene.savepoint / "sub" / "keyed-0")
    own.write_bytes((scene.savepoint / "sub" / "keyed-0").read_bytes())
    handle("sub/keyed-0")(scene)


def swap(name: str, make: Maker, path: str, to: str, command: str) -> Case:
    """A case in which a path is a link half of the time."""
    words = f"{path} {LINK} {command}"
    return Case(name, hidden(make, to), words, 0, honest=False, entry=SWAPPING)


READ = {
    "import": "import {savepoint} --lake {work}/lake-ROUND --job j --snapshot s",
    "dump": "dump {savepoint} --state name",
    "integrity": "check integrity {savepoint}",
    "compress": "compress {savepoint} --to {work}/out-ROUND",
}
EXPORT = "export --lake {lake} --job orders --snapshot bad --to {work}/out-ROUND --engine local"
DROP = "drop --lake {lake} --job orders --keep 2 --yes"
IMPORT = "import {seed}/savepoint --lake {lake} --job orders --snapshot next-ROUND"
VERIFY = "checkpoints verify --log {committed}/log --blobs {committed}/blobs"

SWAP_CASES: list[Case] = [
    *(swap(f"savepoint/file/{verb}", Scene.with_savepoint, "{savepoint}/keyed-0",
           "{victim}/keyed-0", words) for verb, words in READ.items()),
    *(swap(f"savepoint/directory/{verb}", below, "{savepoint}/sub", "{victim}", words)
      for verb, words in READ.items()),
    swap("savepoint/metadata", Scene.with_savepoint, "{savepoint}/_metadata",
         "{victim}/savepoint/_metadata", READ["import"]),
    swap("checkpoint/shared", Scene.with_checkpoint, "{root}/checkpoint/shared",
         "{victim}/checkpoints/shared",
         "import {checkpoint} --lake {work}/lake-ROUND --job j --snapshot s"),
    *(swap(f"lake/{name}/{verb}", lake_of, f"{{lake}}/{path}", to, words)
      for name, path, to in (
          ("data", f"{TABLE}/_data", f"{{victim}}/lake/{TABLE}/_data"),
          ("table", TABLE, f"{{victim}}/lake/{TABLE}"),
          ("job", "orders", "{victim}/lake/orders"),
          ("carried", "_statelake/carried", "{victim}/_statelake/carried"),
          ("signs", "_statelake/alive", "{victim}/_statelake/alive"),
      )
      for verb, words in (("export", EXPORT), ("drop", DROP), ("import", IMPORT))
      if (name, verb) != ("signs", "export")),
    swap("blobs/verify", committed, "{committed}/blobs/blobs",
         "{victim}/committed/blobs/blobs", VERIFY),
    swap("blobs/drop", committed, "{committed}/blobs/blobs",
         "{victim}/committed/blobs/blobs",
         "checkpoints drop --log {committed}/log --blobs {committed}/blobs --keep 1"),
]  # fmt: skip
