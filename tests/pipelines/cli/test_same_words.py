"""The command and the lake's objects have the same words: what one lacks, the other lacks."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import click
import pytest

import statelake as sl
from statelake.pipelines.api import Erasure, LiveRescale, SnapshotEditor
from statelake.pipelines.cli.main import COMMANDS
from statelake.pipelines.requests.request import options_of

EVERYWHERE = {
    "lake": "the object is of one",
    "job": "so is `Job`",
    "engine": "`Lake.job` has it once for all",
    "master": "a setting of Spark's: an engine is given",
    "spark_pack": "the same",
    "spark_conf": "the same",
    "plugins": "a program imports its own",
    "kryo": "a program calls `declare_classes`",
    "json": "how results are printed",
    "yes": "`plan_drop` and its like say what would be done",
    "snapshot": "the object is one, or it is given as `name`",
}
NAME = {"name": "what is made: --snapshot"}
SAVEPOINTS = {
    "savepoint": "`open_snapshot` opens it",
    "uid": "the same",
    "allow_external": "the same",
}
TYPED = SAVEPOINTS | {"plan": "the same", "decode": "the same"}
PROGRESS = {"progress": "no `Job` has it"}
SCRIPTS = {
    "old_sql": "given as `sql`",
    "new_sql": "the same",
    "old_flink": "given as `flink_home` or `flink_version`",
    "keep_plan": "given as `to`",
    "no_old_uids": "given as `no_uids`",
}
FLINK_OF_SCRIPTS = dict.fromkeys(("flink_home", "flink_version", "classpath"), "`SqlScript` has it")
LOG = sl.Checkpoints.__init__
PROGRAM = dict.fromkeys(
    ("jar", "jar_id", "entry_class", "arg", "allow_non_restored_state"), "`JarRun` has it"
)
PROBLEMS = {"problems": "the command ends with the first"}

# what does what a command does; words that only the command has, and only the methods
METHODS: dict[str, tuple[tuple[Callable[..., Any] | type, ...], dict[str, str], dict[str, str]]] = {
    "import": ((sl.Job.import_snapshot,), {}, {}),
    "commit": ((sl.Job.commit,), {}, NAME),
    "snapshots": (
        (sl.Job.snapshots, sl.Lake.snapshots), {}, {"errors": "the command ends with the first"},
    ),
    "drop": ((sl.Job.drop, sl.Job.plan_drop), {}, {}),
    "retain": ((sl.Job.retain, sl.Job.plan_retain), {}, {}),
    "history": ((sl.Job.history,), {}, {}),
    "hold": ((sl.LakeSnapshot.hold,), {}, {}),
    "release": ((sl.LakeSnapshot.release,), {}, {}),
    "get": ((sl.Snapshot.get, sl.LakeSnapshot.key_rows), TYPED, {}),
    "diff": (
        (sl.LakeSnapshot.diff, sl.diff), {"fail_on_diff": "an exit code"}, {},
    ),
    "find": ((sl.Snapshot.find, sl.LakeSnapshot.find), TYPED, {}),
    "expired": ((sl.Snapshot.expired,), TYPED, PROBLEMS),
    "top": ((sl.Snapshot.top, sl.LakeSnapshot.top), TYPED, PROBLEMS),
    "inspect": (
        (sl.open_snapshot, sl.Snapshot.describe),
        {"savepoint": "given as `location`"},
        {
            "location": "the SAVEPOINT",
            "key_groups": "the command always looks at them",
            "filesystem": "an object of Python's",
            "storage_options": "taken from the environment",
            "partial": "the command always does so",
        },
    ),
    "types": (
        (sl.Snapshot.types, sl.LakeSnapshot.types, sl.diff_types, sl.job_types, sl.sql_types),
        SAVEPOINTS | {"diff": "given as `old`", "arg": "given as `arguments`"},
        {"old": "--diff", "new": "the SAVEPOINT", "jar": "the same", "arguments": "--arg"},
    ),
    "report": (
        (sl.LakeSnapshot.report, sl.report), {}, {},
    ),
    "scan": ((sl.scan,), {"print_path": "how it is printed"}, {}),
    "orphans": (
        (sl.orphans,), {"flink": "given as `cluster`"}, {},
    ),
    "copy": (
        (sl.copy_snapshot, sl.copy_checkpoints),
        {"all": "`copy_checkpoints`"},
        {},
    ),
    "growth": (
        (sl.Job.growth, sl.growth), {}, {},
    ),
    "plan-rescale": ((sl.LakeSnapshot.plan_rescale,), {}, {}),
    "export": (
        (sl.LakeSnapshot.export, sl.in_temporary_lake), {}, {},
    ),
    "offsets": (
        (sl.LakeSnapshot.sources, sl.LakeSnapshot.sinks),
        SAVEPOINTS | {"operator": "each says whose it is", "look": "`Sink.looked_up`"},
        {},
    ),
    "channels": (
        (sl.LakeSnapshot.read_channels, sl.LakeSnapshot.record_serializer),
        SAVEPOINTS | {"records": "what is printed", "limit": "how much is printed"},
        PROBLEMS,
    ),
    "sql": (
        (sl.Lake.sql, sl.LakeSnapshot.edit_sql),
        {
            "edit": "the object is it",
            "as": "given as `name`",
            "csv": "how rows are printed",
            "to": "the same",
            "queries": "`query` to read, `statements` to edit",
        },
        NAME | {"query": "one of the command's queries", "statements": "all of them"},
    ),
    "edit": (
        (sl.LakeSnapshot.edit, SnapshotEditor, SnapshotEditor.merge,
         SnapshotEditor.offsets_from_timestamp, SnapshotEditor.save),
        {"parent": "the object is it"},
        {"save": "makes the snapshot", "time": "of --offsets-from-timestamp"},
    ),
    "migrate": (
        (sl.LakeSnapshot, sl.Job.migrate, sl.LakeSnapshot.migrate),
        {"all": "no snapshot is named"},
        {},
    ),
    "upgrade": (
        (sl.LakeSnapshot.upgrade, sl.upgrade), {"all": "each is upgraded by itself"}, {},
    ),
    "sql-upgrade": (
        (sl.LakeSnapshot.sql_upgrade, sl.sql_upgrade, sl.compile_sql), SCRIPTS, {},
    ),
    "check sql": (
        (sl.LakeSnapshot.check_sql, sl.check_sql, sl.compile_sql),
        SCRIPTS,
        {},
    ),
    "check compatibility": ((sl.LakeSnapshot.check_compatibility,), {}, {}),
    "check legality": (
        (sl.LakeSnapshot.check_legality, sl.check_legality), {}, {},
    ),
    "check integrity": (
        (sl.LakeSnapshot.check_integrity, sl.check_integrity, sl.salvage),
        {"salvage": "given as `to`"},
        PROGRESS | {"to": "--salvage", "threads": "as many as the machine has cores"},
    ),
    "erase": (
        (sl.Lake.erase, Erasure.execute),
        {"secret_file": "given as `secret`", "all": "given as `whole`"},
        {"secret": "what is in --secret-file", "whole": "--all"},
    ),
    "audit erase": (
        (sl.Lake.erase, Erasure.audit),
        {"secret_file": "given as `secret`"},
        {"secret": "what is in --secret-file"}
        | dict.fromkeys(("jobs", "snapshots", "carried", "blobs", "changelogs"), "what was erased"),
    ),
    "audit records": ((sl.Lake.audit_records,), {}, {}),
    "lake check": ((sl.Lake.check,), {}, PROGRESS),
    "lake clean": ((sl.Lake.clean, sl.Lake.plan_clean), {}, {}),
    "lake upgrade": ((sl.Lake.upgrade, sl.Lake.plan_upgrade), {}, {}),
    "bootstrap": (
        (sl.Job.bootstrap, sl.bootstrap),
        {},
        {},
    ),
    "compress": ((sl.compress,), {}, {}),
    "run": ((sl.Lake.run,), {"runnable": "given as `job`"}, {}),
    "warm": ((sl.warm,), {}, PROGRESS),
    "checkpoints list": ((LOG, sl.Checkpoints.list), {}, {}),
    "checkpoints show": ((LOG, sl.Checkpoints.show), {}, {}),
    "checkpoints verify": ((LOG, sl.Checkpoints.verify), {}, {}),
    "checkpoints drop": ((LOG, sl.Checkpoints.drop), {}, {}),
    "checkpoints migrate": ((LOG, sl.Checkpoints.migrate), {}, {}),
    "flink drill": (
        (sl.drill,), PROGRAM | {"flink": "given as `cluster`"}, {},
    ),
    "flink canary": (
        (sl.LakeSnapshot.canary,), PROGRAM | {"flink": "given as `cluster`"}, {},
    ),
    "flink rescale": (
        (sl.Job.live_rescale, LiveRescale.plan, LiveRescale.execute),
        PROGRAM
        | dict.fromkeys(("old_jar", "old_jar_id", "old_entry_class", "old_arg"), "given as `old`")
        | {"flink": "given as `cluster`", "dry_run": "`LiveRescale.plan`"}
        | SCRIPTS
        | FLINK_OF_SCRIPTS,
        {"report": "shown while it is waited for"},
    ),
}  # fmt: skip
OTHERS = {
    "dump": "a state's `to_batch_reader`",
    "flink jobs": "`FlinkCluster.jobs`",
    "flink checkpoints": "`FlinkCluster.checkpoints`",
    "flink savepoint": "`FlinkCluster.take_savepoint`, and `Job.import_snapshot`",
    "flink stop": "`FlinkCluster.stop_with_savepoint`, and `Job.import_snapshot`",
    "flink run": "`Jars.run`",
    "flink cancel": "`FlinkCluster.cancel`",
    "flink dispose": "`FlinkCluster.dispose_savepoint`",
    "spark": "packs this program",
    "shell": "a prompt",
    "ui": "pages in a browser",
    "mcp": "answers for assistants",
    "demo": "a show",
}


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command, those in groups by both names."""
    for name, (place, _) in COMMANDS.items():
        module, _, attribute = place.partition(":")
        found = importlib.import_module(f"statelake.pipelines.cli.commands.{module}")
        command = getattr(found, attribute)
        if isinstance(command, click.Group) and name not in OTHERS:
            yield from ((f"{name} {inner}", each) for inner, each in command.commands.items())
        else:
            yield name, command


def words_of(command: click.Command) -> dict[str, bool]:
    """The words of a command's options and arguments, and whether each may be given again."""
    words = {}
    for parameter in command.params:
        if getattr(parameter, "hidden", False) and parameter.name == "help":
            continue
        longest = max(parameter.opts, key=len).lstrip("-").replace("-", "_")
        again = parameter.nargs == -1 or bool(getattr(parameter, "multiple", False))
        words[longest.lower()] = again
    return words


def names_of(methods: tuple[Callable[..., Any] | type, ...]) -> set[str]:
    """The parameters of methods; of a class, the names of its methods."""
    names: set[str] = set()
    for method in methods:
        if isinstance(method, type):
            names |= {name for name in vars(method) if not name.startswith("_")}
        else:
            names |= set(inspect.signature(method).parameters) - {"self"}
    return names


def given_to(methods: tuple[Callable[..., Any] | type, ...]) -> set[str]:
    """The fields of methods' requests that no words say."""
    names = set()
    for method in methods:
        if hasattr(method, "request"):  # whose fields it takes
            names |= {each.name for each in options_of(method.request) if each.given}
    return names


def test_every_command_has_methods_or_a_reason() -> None:
    """None is forgotten, and none is named that is gone."""
    assert {name for name, _ in commands()} == METHODS.keys() | OTHERS.keys()


@pytest.mark.parametrize("name", METHODS)
def test_options_and_parameters_are_called_alike(name: str) -> None:
    """But for those in the table, each of which has a reason, and is in use."""
    methods, of_command, of_methods = METHODS[name]
    words = words_of(dict(commands())[name])
    names = names_of(methods) - (given_to(methods) - words.keys())
    if sl.LakeSnapshot in methods:
        names -= {each for each in vars(sl.LakeSnapshot) if each not in words}
    alike = {
        word: word if word in names else f"{word}s"
        for word, again in words.items()
        if word in names or (again and f"{word}s" in names)
    }
    assert words.keys() - alike.keys() - EVERYWHERE.keys() == of_command.keys()
    assert names - set(alike.values()) == of_methods.keys()
