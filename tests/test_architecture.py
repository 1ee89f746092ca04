"""Imports go one way: a table of ranks, held against every import there is.

A unit is a module, or a folder that stands for one thing in several forms. It may import units of a
lower rank, and itself; never a higher one, nor a sibling. Imports inside functions count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("state_core", "pipelines")
MAX_LINES = 475
LONGER = {
    # Flink SQL's binary format: one grammar each, which would not read better in two places
    "state_core.kernels.binary_rows": 590,
    "state_core.serializers.sql.binary.sections": 500,
    "state_core.serializers.sql.binary.slots": 530,
    "state_core.serializers.sql.table_data": 540,
    "state_core.serializers.sql.table_structures": 650,
}

RANKS = {
    "state_core.printable": -1,
    "state_core.errors": 0,
    "state_core.bounds": 1,
    "state_core.files.wire": 2,
    "state_core.model.operator_ids": 1,
    "state_core.files.byte_sources": 1,
    "state_core.files.confinement": 1,
    "state_core.files.filesystem": 2,
    "state_core.kernels": 1,
    "state_core.model.handles": 1,
    "state_core.files.java_stream": 3,
    "state_core.files.compression": 3,
    "state_core.model.key_groups": 2,
    "state_core.serializers": 4,
    "state_core.model.operator_state": 3,
    "state_core.model.snapshot": 4,
    "state_core.model.redistribution": 4,
    "state_core.model.measure": 5,
    "state_core.commit": 5,
    "state_core.declarations": 5,
    "state_core.checks.legality": 6,
    "state_core.checks.legality_document": 7,
    "state_core.formats": 6,
    "state_core.checks.integrity": 7,
    "state_core.checks.held_states": 7,
    "state_core.checks.restore_checks": 8,
    "state_core.backends": 7,
    "state_core.process": 8,
    "state_core": 9,
    "pipelines.engine": 10,
    "pipelines.flink_conf": 10,
    "pipelines.shown": 10,
    "pipelines.lake": 11,
    "pipelines.spark": 12,
    "pipelines.runtime": 12,
    "pipelines.orchestration.pictures": 12,
    "pipelines.orchestration.partitions": 12,
    "pipelines.operations.bootstrap": 13,
    "pipelines.operations.migrations": 13,
    "pipelines.operations.verified_savepoints": 13,
    "pipelines.orchestration.metadata": 14,
    "pipelines.orchestration.resources": 14,
    "pipelines.orchestration.assets": 15,
    "pipelines.orchestration.checks": 16,
    "pipelines.orchestration.ops": 15,
    "pipelines.orchestration.jobs": 16,
    "pipelines.orchestration.sensors": 17,
    "pipelines.orchestration.schedules": 18,
    "pipelines.orchestration.definitions": 19,
    "pipelines.cli.demo": 20,
    "pipelines.cli.commands": 21,
    "pipelines.cli.main": 22,
    "pipelines": 10,
}
LATE = {
    # functions that start something heavy, and commands that the demo runs as a user would
    ("pipelines.engine", "pipelines.spark"),
    ("pipelines.cli.demo", "pipelines.cli.commands"),
}
FORBIDDEN = {
    "state_core": ("pyspark", "delta", "deltalake", "dagster", "pipelines"),
    "pipelines.lake": ("pyspark", "dagster"),
    "pipelines.spark": ("dagster",),
    "pipelines.orchestration.assets": ("pyspark",),
    "pipelines.orchestration.checks": ("pyspark",),
    "pipelines.orchestration.definitions": ("pyspark",),
    "pipelines.orchestration.jobs": ("pyspark",),
    "pipelines.orchestration.ops": ("pyspark",),
    "pipelines.orchestration.partitions": ("pyspark",),
    "pipelines.orchestration.resources": ("pyspark",),
    "pipelines.orchestration.schedules": ("pyspark",),
    "pipelines.orchestration.sensors": ("pyspark",),
}

RESOLVER = {"state_core.files.confinement", "state_core.files.filesystem"}
PATH_MODULES = {"pathlib", "shutil", "glob"}
SYSTEM_CALLS = {
    "chmod", "chown", "link", "listdir", "lstat", "makedirs", "mkdir", "mkfifo", "open",
    "path.abspath", "path.commonpath", "path.exists", "path.getmtime", "path.getsize",
    "path.isdir", "path.isfile", "path.islink", "path.join", "path.realpath", "path.samefile",
    "remove", "removedirs", "rename", "renames", "replace", "rmdir", "scandir", "stat", "symlink",
    "truncate", "unlink", "utime", "walk",
}  # fmt: skip
PATH_CALLS = {f"os.{one}" for one in SYSTEM_CALLS} | {
    "open", "io.open", "posixpath.join", "Directory", "DeltaTable",
    "create_table_with_add_actions",
}  # fmt: skip
PATH_METHODS = {
    ".joinpath", ".mkdir", ".rmdir", ".touch", ".rglob", ".iterdir", ".read_text", ".write_text",
    ".symlink_to", ".hardlink_to", ".delete_dir", ".delete_dir_contents", ".delete_file",
    ".create_dir", ".copy_file", ".get_file_info", ".open_input_file", ".open_input_stream",
    ".open_output_stream", ".open_append_stream",
}  # fmt: skip
USERS_OWN = "its paths are a user's: of the command line, a spec in Python or YAML, or settings"
OF_TABLES = "delta-rs opens a table by its path, once `checked_path` or its user let it pass"
OWN_WORKING = "a directory of its own, made by this process, and names held against a pattern"
PATHS_BY_HAND = {
    # what a module may do with paths itself, and why no path out of data gets there
    "state_core.backends.rocksdb.rocksdb_backend": ({"pathlib", "shutil", ".mkdir"}, OWN_WORKING),
    "state_core.backends.rocksdb.checkpoints": (
        {"pathlib", "shutil", ".iterdir"}, OWN_WORKING,
    ),
    "state_core.commit.stores.local_disk": ({"pathlib"}, "it says where its directory is; no more"),
    "state_core.commit.stores.rocksdb_store": ({".mkdir"}, "above what `PosixDisk.path` let pass"),
    "state_core.formats.reader": ({"Directory"}, USERS_OWN),
    "state_core.formats.keyed.rocksdb_native": (
        {"pathlib", ".symlink_to", ".write_text", "os.path.realpath"}, OWN_WORKING,
    ),
    "state_core.formats.metadata.state_files": (
        {"os.path.exists"}, "for the words of an error: it opens nothing there",
    ),
    "state_core.formats.writing.writer": ({"Directory", "os.replace", "os.rmdir"}, USERS_OWN),
    "state_core.serializers.framework.plugins": ({"pathlib"}, USERS_OWN),
    "pipelines.operations.bootstrap": ({"pathlib", "Directory"}, USERS_OWN),
    "pipelines.cli.main": ({"os.open"}, "the null device"),
    "pipelines.cli.commands.check_legality": ({"pathlib"}, USERS_OWN),
    "pipelines.cli.commands.demo": ({"pathlib"}, USERS_OWN),
    "pipelines.cli.commands.run": ({"pathlib"}, USERS_OWN),
    "pipelines.cli.demo.run": ({"pathlib", "shutil", ".mkdir", ".write_text"}, USERS_OWN),
    "pipelines.lake.bootstrap.bootstrap_spec": ({"pathlib"}, USERS_OWN),
    "pipelines.lake.edit.changes": ({"pathlib", ".read_text"}, USERS_OWN),
    "pipelines.lake.commits.checkpoint_records": ({"Directory"}, USERS_OWN),
    "pipelines.lake.verify.legality": ({"pathlib", ".read_text"}, USERS_OWN),
    "pipelines.lake.tables.names": ({"Directory"}, "the last name of a path of its user's"),
    "pipelines.lake.bootstrap.sources": (
        {"pathlib", "Directory", "DeltaTable", ".filesystem", ".get_file_info",
         ".open_input_stream"}, USERS_OWN,
    ),
    "pipelines.lake.bootstrap.spec_lines": ({"pathlib", ".read_text"}, USERS_OWN),
    "pipelines.lake.tables.tables": ({"DeltaTable", "create_table_with_add_actions"}, OF_TABLES),
    "pipelines.runtime.sinks": ({"create_table_with_add_actions"}, OF_TABLES),
    "pipelines.runtime.sources": ({"Directory", "DeltaTable"}, USERS_OWN),
    "pipelines.operations.verified_savepoints": ({"Directory"}, USERS_OWN),
    "pipelines.spark.frames": ({"Directory"}, USERS_OWN),
    "pipelines.spark.jars": ({"pathlib", "shutil", ".mkdir", ".write_text"}, USERS_OWN),
    "pipelines.spark.session": ({"pathlib", ".mkdir"}, USERS_OWN),
}  # fmt: skip


def modules() -> dict[str, Path]:
    """Every module of the packages, by its dotted name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def unit_of(name: str) -> str:
    """The unit that a module belongs to: the longest known prefix of its name."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        unit = ".".join(parts[:count])
        if unit in RANKS:
            return unit
    return ""


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    """Every imported module, wherever it is imported, with the line."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else str(node.module), node.lineno


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_go_down(name: str) -> None:
    """Nothing imports its own rank or a higher one."""
    unit = unit_of(name)
    for imported, line in imports_of(MODULES[name]):
        target = unit_of(imported)
        if not target or target == unit or (unit, target) in LATE:
            continue
        assert RANKS[target] < RANKS[unit], (
            f"{name}:{line} (rank {RANKS[unit]}) imports {imported} (rank {RANKS[target]})"
        )


@pytest.mark.parametrize("name", sorted(MODULES))
def test_what_must_not_know_spark_or_dagster_does_not(name: str) -> None:
    """The library is free of both, Spark's half of Dagster, and Dagster's half of Spark."""
    for unit, forbidden in FORBIDDEN.items():
        if name == unit or name.startswith(f"{unit}."):
            found = {imported.split(".")[0] for imported, _ in imports_of(MODULES[name])}
            if "deltalake" in found and unit == "pipelines.lake":
                found.discard("deltalake")
            assert not found & set(forbidden)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_files_can_be_read_in_one_go(name: str) -> None:
    """No file is longer than it should be."""
    lines = MODULES[name].read_text("utf-8").splitlines()
    assert len(lines) <= LONGER.get(name, MAX_LINES), f"{name} has {len(lines)} lines"


def test_every_unit_of_the_table_is_there() -> None:
    """A rank of something that is gone would hide a mistake."""
    assert {unit_of(name) for name in MODULES} == set(RANKS)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_public_names_are_there(name: str) -> None:
    """`__all__` names what the module defines."""
    tree = ast.parse(MODULES[name].read_text("utf-8"))
    listed: list[str] = []
    defined: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [one for target in targets for one in ast.walk(target)]
            defined |= {one.id for one in names if isinstance(one, ast.Name)}
            if "__all__" in {one.id for one in names if isinstance(one, ast.Name)}:
                assert node.value is not None
                listed = ast.literal_eval(node.value)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            defined |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
    assert set(listed) <= defined


def paths_by_hand(tree: ast.AST) -> dict[str, int]:
    """What a module does with paths without the resolver, each with a line of it."""
    nodes = list(ast.walk(tree))
    confined = {
        id(one.value) for one in nodes if isinstance(one, ast.Attribute) and one.attr == "confined"
    }
    found = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in PATH_MODULES:
                    found[alias.name] = node.lineno
                if alias.asname and alias.name in {"os", "os.path", "io", "posixpath"}:
                    found[f"{alias.name} as {alias.asname}"] = node.lineno
        elif isinstance(node, ast.ImportFrom):
            named = {alias.name for alias in node.names}
            if node.module in PATH_MODULES:
                found[str(node.module)] = node.lineno
            for name in {f"{node.module}.{one}" for one in named} & PATH_CALLS:
                found[name] = node.lineno
        elif isinstance(node, ast.Attribute) and node.attr == "filesystem":
            found[".filesystem"] = node.lineno
        elif isinstance(node, ast.Call) and id(node) not in confined:
            name = ast.unparse(node.func)
            if name in PATH_CALLS:
                found[name] = node.lineno
            elif isinstance(node.func, ast.Attribute) and f".{node.func.attr}" in PATH_METHODS:
                found[f".{node.func.attr}"] = node.lineno
    return found


@pytest.mark.parametrize("name", sorted(set(MODULES) - RESOLVER))
def test_no_path_is_joined_by_hand(name: str) -> None:
    """Paths go through `state_core.files.confinement`; exceptions have a reason, and are in use."""
    found = paths_by_hand(ast.parse(MODULES[name].read_text("utf-8")))
    allowed, _ = PATHS_BY_HAND.get(name, (set(), ""))
    for what, line in found.items():
        assert what in allowed, (
            f"{name}:{line} uses {what}: a path that came from data goes through a confined"
            " directory (`Directory(...).confined()`) or `relative_path`"
        )
    assert allowed <= set(found), f"{name} no longer uses {allowed - set(found)}: forbid it"


def test_exceptions_are_of_modules_that_are_there() -> None:
    """An exception for what is gone would hide a mistake."""
    assert set(PATHS_BY_HAND) <= set(MODULES) - RESOLVER


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("os.path.join(lake, row.path)", "os.path.join"),
        ("posixpath.join(root, name)", "posixpath.join"),
        ("from os.path import join", "os.path.join"),
        ("from posixpath import join", "posixpath.join"),
        ("import os as system", "os as system"),
        ("from pathlib import Path", "pathlib"),
        ("import shutil", "shutil"),
        ("from shutil import rmtree", "shutil"),
        ("import glob", "glob"),
        ("open(path)", "open"),
        ("os.open(path, os.O_RDONLY)", "os.open"),
        ("os.remove(path)", "os.remove"),
        ("os.unlink(path)", "os.unlink"),
        ("os.rename(old, new)", "os.rename"),
        ("from os import unlink", "os.unlink"),
        ("directory.filesystem.delete_dir(path)", ".filesystem"),
        ("fs.LocalFileSystem().delete_dir(path)", ".delete_dir"),
        ("store.delete_file(path)", ".delete_file"),
        ("store.open_input_file(path)", ".open_input_file"),
        ("root.joinpath(name)", ".joinpath"),
        ("Directory(task.lake).child(row.path)", "Directory"),
        ("DeltaTable(row.path)", "DeltaTable"),
    ],
)
def test_joining_by_hand_is_seen(line: str, what: str) -> None:
    """The check finds what it is for, and lets the resolver pass."""
    assert what in paths_by_hand(ast.parse(line))
    assert not paths_by_hand(ast.parse("Directory(lake).confined().child(row.path).read(name)"))
