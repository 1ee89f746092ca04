"""The small lake that commands are tried on, and each command that writes or reads it.

A world is a directory with a lake, exports and temporary files; what commands read from outside
(savepoints, keys, specs) stands beside all worlds. Commands are called in their world.
"""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import pyarrow as pa
from deltalake import DeltaTable

from statelake import NewKeyedState, NewOperator, NewOperatorState, write_snapshot
from statelake.pipelines.cli.main import COMMANDS as STATELAKE
from statelake.pipelines.lake.catalog.lake_format import FORMAT_KEY
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    SubtaskState,
    read_metadata,
    write_metadata,
)
from statelake.state_core.model.handles import OperatorHandle, RelativeHandle
from tests.support.lakes import forge_claim
from tests.support.people import ALICE, NEW_PROFILE, PROFILE
from tests.support.savepoints.kryo_jobs import BASKET, jdk_savepoint

__all__ = [
    "COMMANDS",
    "ERASED",
    "FIRST",
    "SECOND",
    "Command",
    "clean_up",
    "copy",
    "import_of",
    "prepare_sources",
]

JOBS = ("baskets", "orders", "returns", "shop")
ERASED = ALICE
KEPT = "bob-11d2"
# one name begins the other: what drops the first twice must not drop the second
FIRST, SECOND = "run-1", "run-10"
EDITED = f"--job orders --parent {FIRST}"
STATE = "users/profile"
DELETE = f"DELETE FROM users.profile WHERE key = '{KEPT}'"
SPEC = """
parallelism: 1
max_parallelism: 128
operators:
  customers:
    key_type: String
    key: customer
    source: customers.csv
    states:
      orders: {kind: value, type: Long, value: orders}
"""
KRYO = ("--kryo", "../sources/kryo.yaml")
WITH_UIDS = 5
TAKEN = 1_700_000_000  # when the first savepoint was


@dataclass(frozen=True)
class Command:
    """A command on the small lake.

    Attributes:
        words: What stands behind `statelake`.
        after: The commands that were done before, beside those of every lake.
        fresh: Whether there is no lake yet.
        done: Exit codes of doing it again where it is done.
        edits: What else was done to the lake before.
        prunes: Whether it drops what it finds, and not what it is told by name.
        steps: Whether it does two things, of which one may be done and the other not.
        slow: Whether it is tried only if it is asked for.
    """

    words: tuple[str, ...]
    after: tuple[str, ...] = ()
    fresh: bool = False
    done: tuple[int, ...] = (0,)
    edits: Callable[[Path], None] | None = None
    prunes: bool = False
    steps: bool = False
    slow: bool = False


def _command(line: str, *more: str) -> tuple[str, ...]:
    """Words with the lake's; --yes where a command of that name wants it."""
    words = (*line.split(), *more)
    module, _, name = STATELAKE[words[0]][0].partition(":")
    command = getattr(importlib.import_module(f"statelake.pipelines.cli.commands.{module}"), name)
    while isinstance(command, click.Group):
        command = command.commands[words[1]]
    asks = any("--yes" in parameter.opts for parameter in command.params)
    takes_lake = words[0] != "compress" and not (words[0] == "upgrade" and "--to" in words)
    return words + ("--lake", "lake") * takes_lake + ("--yes",) * asks


def import_of(name: str, job: str = "orders", snapshot: str = "") -> tuple[str, ...]:
    """The words that import a savepoint."""
    return _command(f"import ../sources/{name} --job {job} --snapshot {snapshot or name}")


def clean_up() -> list[tuple[str, ...]]:
    """The words that remove what nothing names."""
    if "lake" in STATELAKE:
        return [_command("lake clean --exports exports")]
    return [_command(f"drop --job {job} --keep 99") for job in JOBS]


def _delete_rows(world: Path) -> None:
    """What a tool of Delta's does to a table before it is committed."""
    DeltaTable(str(world / "lake/orders/keyed/users/profile")).delete(f"key = '{KEPT}'")


def _of_format_0(world: Path) -> None:
    """A lake as statelake wrote it before there were formats."""
    forge_claim(world / "lake", FORMAT_KEY, None)


COMMANDS: dict[str, Command] = {
    "first": Command(import_of("monday", snapshot=FIRST), fresh=True),
    "import": Command(import_of("wednesday")),
    "same": Command(import_of("tuesday", snapshot=SECOND)),
    "edit": Command(
        _command(f"edit {EDITED} --snapshot fewer --keep-keys users ../sources/keys"),
        done=(3,),
    ),
    "rename": Command(
        _command(f"edit {EDITED} --snapshot renamed --rename-uid users people"),
        done=(3,),
    ),
    "sql-edit": Command(
        _command(f"sql --job orders --edit {FIRST} --as smaller", DELETE),
        done=(3,),
    ),
    "migrate": Command(
        _command(f"migrate --job orders --snapshot {FIRST} --to ../sources/new --state", STATE),
        done=(0, 3),
    ),
    "merge": Command(
        _command(f"edit {EDITED} --snapshot both --merge returns:friday"),
        done=(3,),
    ),
    "commit": Command(
        _command(f"commit --job orders --parent {SECOND} --snapshot by-hand"),
        done=(3,), edits=_delete_rows,
    ),
    "drop": Command(_command(f"drop --job orders --snapshot {FIRST}"), done=(3,)),
    "drop-newest": Command(_command(f"drop --job orders --snapshot {SECOND}"), done=(3,)),
    "drop-all": Command(_command("drop --job orders --keep 0"), done=(0, 3), prunes=True),
    "keep-one": Command(_command("drop --job orders --keep 1"), prunes=True),
    "retain": Command(_command("retain --job orders", "--policy", "1 all"), prunes=True),
    "hold": Command(_command(f"hold --job orders {FIRST} --reason case-1")),
    "release": Command(_command(f"release --job orders {FIRST}"), after=("hold",), done=(1,)),
    "erase": Command(
        _command(f"erase --key {ERASED} --request gdpr-1 --carried keep"), done=(0, 1)
    ),
    "audit": Command(
        _command(f"audit erase --key {ERASED} --request gdpr-1"), after=("erase",)
    ),
    "export": Command(
        _command(f"export --job orders --snapshot {FIRST} --to exports/monday"), done=(3,)
    ),
    "compress": Command(_command("compress ../sources/monday --to exports/compressed"), done=(3,)),
    "bootstrap": Command(
        _command("bootstrap ../sources/spec.yaml --to exports/first --job shop --snapshot first"),
        done=(0, 3), steps=True,
    ),
    "upgrade": Command(_command("lake upgrade"), edits=_of_format_0),
    "baskets": Command(_command("import ../sources/baskets --job baskets --snapshot old", *KRYO)),
    "flink-2": Command(
        _command("upgrade --job baskets --snapshot old", *KRYO), after=("baskets",), done=(0, 3)
    ),
    "flink-2-savepoint": Command(
        _command("upgrade ../sources/baskets --to exports/flink-2", *KRYO), done=(3,)
    ),
    "sql": Command(
        _command(f"sql --as-of {FIRST} --json", "SELECT * FROM orders.users.profile ORDER BY key"),
    ),
    "dagster": Command(("dagster", "wednesday"), done=(0, 3), steps=True, slow=True),
}  # fmt: skip


def prepare_sources(to: Path) -> None:
    """Write what commands read: savepoints of some days, keys, a new type, a spec."""
    to.mkdir()
    for day, name in enumerate(("monday", "tuesday", "wednesday")):
        _savepoint(to / name, day, "users")
    _savepoint(to / "friday", 4, "visitors")
    jdk_savepoint(to / "baskets")
    (to / "kryo.yaml").write_text(BASKET, "utf-8")
    (to / "keys").write_text(f"{ERASED}\n{KEPT}\n", "utf-8")
    fields = "".join(f"        {name}: {kind}\n" for name, kind in NEW_PROFILE["fields"].items())
    type_of = f"      pojo: {NEW_PROFILE['pojo']}\n      fields:\n{fields}"
    text = f"states:\n  users/profile:\n    type:\n{type_of}"
    (to / "new").write_text(text, "utf-8")
    (to / "spec.yaml").write_text(SPEC, "utf-8")
    (to / "customers.csv").write_text("customer,orders\nann,3\nben,4\n", "utf-8")


def _savepoint(to: Path, day: int, uid: str) -> None:
    """A savepoint of one operator with keyed state, operator state and raw state.

    Its keyed state changes after the first day alone: later imports keep its files.
    """
    names = [ERASED, KEPT, *(f"person-{at}" for at in range(4))]
    values = [{"age": 20 + at + min(day, 1), "city": f"city-{at}"} for at in range(len(names))]
    profile = NewKeyedState("profile", pa.table({"key": names, "value": values}), value=PROFILE)
    pending = NewOperatorState(
        "pending",
        pa.table({"subtask": [0, 0], "position": [0, 1], "value": ["bob", f"day-{day}"]}),
        "split", "String",
    )  # fmt: skip
    operator = NewOperator(uid, "String", (profile,), (pending,))
    write_snapshot(to, [operator], metadata_version=WITH_UIDS)
    (to / "opaque").write_bytes(b"only the job can read this")
    path = to / "_metadata"
    metadata = read_metadata(path.read_bytes())
    subtasks = metadata.operators[0].subtasks
    assert subtasks is not None
    size = (to / "opaque").stat().st_size
    raw = OperatorHandle({}, RelativeHandle("opaque", size))
    subtasks.setdefault(0, SubtaskState()).raw_operator = raw
    path.write_bytes(write_metadata(metadata))
    os.utime(path, (TAKEN + day * 86_400,) * 2)


def copy(world: Path, to: Path) -> None:
    """A world as it is, elsewhere."""
    shutil.copytree(world, to, symlinks=True)
