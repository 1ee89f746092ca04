"""Imports go one way: a table of six strata, held against every import there is.

Within a stratum, and within each folder, packages import each other in no ring, and nowhere do
files. Imports inside functions count.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import combinations, pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("state_core", "pipelines")
ROOT_PACKAGE = "statelake."  # by which both are imported
FOLDERS = (*PACKAGES, "benchmarks", "docs", "examples", "statelake", "tests")

# From the bottom up: each stratum may import those before it, and itself. A package stands for all
# that is in it, unless that is named apart.
STRATA = {
    "files and kernels": (
        "state_core.printable", "state_core.errors", "state_core.bounds", "state_core.extras",
        "state_core.nested", "state_core.nested",
        "state_core.files", "state_core.kernels",
    ),
    "types": ("state_core.serializers", "state_core.model"),
    "snapshots": (
        "state_core", "state_core.formats", "state_core.connectors", "state_core.plans",
        "state_core.integrity",
    ),
    "runtime": ("state_core.runtime",),
    "lake": ("pipelines", "pipelines.requests", "pipelines.lake"),
    "faces": (
        "pipelines.api", "pipelines.bootstrap", "pipelines.find", "pipelines.spark",
        "pipelines.sql_jobs", "pipelines.live", "pipelines.runtime", "pipelines.report",
        "pipelines.ui", "pipelines.orchestration", "pipelines.cli",
    ),
}  # fmt: skip
STRATUM_OF = {unit: stratum for stratum, units in STRATA.items() for unit in units}
# what imports against that order or in a ring, inside a function, and why
LATE = {
    ("state_core.formats", "state_core.plans"): "a snapshot is opened with the names of its plan",
    ("pipelines.engine_choice", "pipelines.spark"): "Spark is loaded where it is chosen",
    ("pipelines.bootstrap", "pipelines.spark"): "or where a source needs it",
    ("pipelines.requests", "pipelines.lake"): "types of fields, and what reads a share",
    ("pipelines.cli.demo", "pipelines.cli.commands"): "the demo runs commands as a user would",
}
# Classes that stand for an object of the same name to those who call them.
FACES = {
    "Erasure": ["pipelines.api.plans", "pipelines.lake.erase.erasing"],
    "Operator": ["state_core.formats.reader", "state_core.model.snapshot"],
    "Snapshot": ["state_core.formats.reader", "state_core.model.snapshot"],
}
# What the command may import when it runs, and why; imports for types alone do not count.
COMMAND_IMPORTS = {
    "statelake": "the Python interface",
    "pipelines.api": "the Python interface",
    "pipelines.requests": "what can be asked of it",
    "pipelines.cli": "its own modules",
    "state_core.files.toml": "how settings are read",
    "pipelines.engine": "the variables that Spark's session reads",
    "pipelines.keys": "keys as text",
    "pipelines.sql_jobs.requests": "plans and scripts are named as in Dagster's settings",
    "pipelines.sql_jobs.sql_scripts": "the same",
    "pipelines.shown": "values as text",
    "pipelines.yaml_lines": "the file of --kryo",
    "state_core.errors": "errors, which become exit codes",
    "state_core.printable": "names of untrusted files, escaped",
    "state_core.extras": "which extra is missing",
    "state_core.serializers.framework.plugins": "a user's own serializers, before a file is read",
    "pipelines.find.path_map": "paths of a cluster, an option",
    "pipelines.live": "a live cluster: `statelake.FlinkCluster` and its options",
    "pipelines.lake.share.mask_file": "an invalid mask is refused before a savepoint is read",
    "pipelines.ui": "the pages in the browser, which only a command serves",
    "pipelines.spark": "`spark pack` packs this program, and the demo starts Spark once",
    "pipelines.orchestration.definitions": "the demo runs Dagster",
}
# The same of Dagster's definitions.
DAGSTER_IMPORTS = {
    "statelake": "the Python interface",
    "pipelines.api": "the Python interface",
    "pipelines.requests": "what can be asked of it",
    "pipelines.orchestration": "its own modules",
    "pipelines.engine": "progress, and the address of Spark's UI",
    "pipelines.find.path_map": "paths of a cluster, in its settings",
    "pipelines.live": "a live cluster, as in its settings",
    "pipelines.report.drawing": "pictures of metadata are those of a report",
    "pipelines.shown": "values as text",
    "pipelines.lake.catalog": "a partition is the exact id of a snapshot, and no other name of it",
    "pipelines.runtime.commit_measures": "costs of commits, which no command shows",
    "pipelines.lake.erase": "requests in files, approved by people: a way of its own",
    "pipelines.lake.ingest.import_targets": "tables of a job before its first import",
    "pipelines.lake.query.session": "errors of DuckDB, which repeat the words of a request",
    "pipelines.lake.share.sampling": "a share is parsed as on the command line",
    "pipelines.lake.tables": "tables are assets, with counts and a preview of each",
    "pipelines.lake.verify": "counts alone are compared; a declared job is loaded",
    "pipelines.live.live_rescaling": "the name of an outcome",
    "pipelines.lake.catalog.retention": "a policy in the settings",
    "pipelines.sql_jobs.requests": "plans and scripts are named as on the command line",
    "pipelines.sql_jobs.sql_scripts": "the same",
    "pipelines.lake.verify.verified_savepoints": "restored elsewhere; no command does that",
    "state_core.runtime.legality.rules": "declarations of process functions, before they run",
    "state_core.runtime.commit.records.clocks": "milliseconds of reports",
    "state_core.errors": "errors, which become failures",
    "state_core.extras": "which extra is missing",
    "state_core.files": "locations below others",
    "state_core.formats": "savepoints, opened and found",
    "state_core.model": "kinds of state",
    "state_core.printable": "names of untrusted files, escaped",
}
# neighbours that are apart, though no order of theirs says so
APART = (
    ("state_core.runtime.backends.heap", "state_core.runtime.backends.rocksdb"),
    ("state_core.connectors", "state_core.integrity"),
    ("pipelines.live", "pipelines.spark"),
    *(
        (f"state_core.formats.keyed.{one}", f"state_core.formats.keyed.{other}")
        for one, other in combinations(("unified_file", "heap", "rocksdb", "changelog"), 2)
    ),
)
FORBIDDEN = {
    "state_core": ("pyspark", "delta", "deltalake", "dagster", "pipelines"),
    "pipelines.lake": ("pyspark", "dagster"),
    "pipelines.live": ("pyspark", "dagster"),
    "pipelines.report": ("pyspark", "dagster"),
    "pipelines.ui": ("pyspark", "dagster"),
    "pipelines.spark": ("dagster",),
    "pipelines.orchestration": ("pyspark",),
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
PATH_CALLS = {f"os.{system_call}" for system_call in SYSTEM_CALLS} | {
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
OWN_WORKING = "a directory of its own, made by this process, and names held against a pattern"
PATHS_BY_HAND = {
    # what a module may do with paths itself, and why no path out of data gets there
    "state_core.runtime.backends.rocksdb": ({"pathlib", "shutil"}, OWN_WORKING),
    "state_core.runtime.commit.stores.local_disk": (
        {"pathlib"}, "it says where its directory is; no more",
    ),
    "state_core.files.held_directories": (
        {"pathlib", "shutil", ".mkdir", "os.open", "os.scandir"}, OWN_WORKING,
    ),
    "state_core.files.hdfs": (
        {".get_file_info", ".open_input_stream", ".open_input_file", ".open_output_stream"},
        "it is a file system",
    ),
    "state_core.files.storage_options": (
        {"pathlib", ".read_text"}, "files that the environment names, and AWS's own",
    ),
    "state_core.formats.reader": ({"Directory"}, USERS_OWN),
    "state_core.formats.keyed.rocksdb.rocksdb_native": (
        {"pathlib", ".symlink_to", ".write_text"}, OWN_WORKING,
    ),
    "state_core.formats.metadata.state_files": (
        {"os.path.exists"}, "for the words of an error: it opens nothing there",
    ),
    "state_core.formats.writing.writer": ({"Directory", "os.replace"}, USERS_OWN),
    "state_core.kernels.machine_code": (
        {"pathlib", ".mkdir"}, "the user's cache: no part of a name comes from data",
    ),
    "state_core.serializers.framework.plugins": ({"pathlib"}, USERS_OWN),
    "pipelines.engine": ({"pathlib", ".read_text"}, USERS_OWN),
    "pipelines.lake.query.limits": ({"pathlib", ".read_text"}, "files of the kernel"),
    "pipelines.ui.process": ({"pathlib", ".read_text"}, "a file of the kernel"),
    "pipelines.bootstrap.bootstrapping": ({"pathlib", "Directory"}, USERS_OWN),
    "pipelines.live.connection": ({"pathlib"}, USERS_OWN),
    "pipelines.find.path_map": ({"Directory"}, USERS_OWN),
    "pipelines.cli.main": ({"os.open"}, "the null device"),
    "pipelines.cli.settings": (
        {"pathlib", "os.open"}, USERS_OWN,
    ),
    "pipelines.cli.commands.checks.legality": ({"pathlib"}, USERS_OWN),
    "pipelines.cli.commands.demo": ({"pathlib"}, USERS_OWN),
    "pipelines.cli.commands.queries.query_output": ({"pathlib"}, USERS_OWN),
    "pipelines.cli.commands.run": ({"pathlib"}, USERS_OWN),
    "pipelines.cli.commands.queries.shell": ({"pathlib", ".mkdir"}, USERS_OWN),
    "pipelines.cli.commands.spark": ({"pathlib"}, USERS_OWN),
    "pipelines.runtime.metrics": ({"pathlib", ".write_text"}, USERS_OWN),
    "pipelines.spark.packing": ({"pathlib", "os.walk"}, "files of what is installed here"),
    "pipelines.cli.demo.run": ({"pathlib", "shutil"}, USERS_OWN),
    "pipelines.cli.demo.dagster_step": ({"pathlib", ".mkdir", ".write_text"}, USERS_OWN),
    "pipelines.bootstrap.bootstrap_spec": ({"pathlib"}, USERS_OWN),
    "pipelines.lake.catalog.recorded_sources": ({"pathlib"}, USERS_OWN),
    "pipelines.lake.edit.keeping": ({"pathlib"}, USERS_OWN),
    "pipelines.lake.share.mask_file": ({"pathlib"}, USERS_OWN),
    "state_core.runtime.commit.logs.checkpoint_records": ({"Directory"}, USERS_OWN),
    "pipelines.lake.verify.legality": ({"pathlib", ".read_text"}, USERS_OWN),
    "pipelines.lake.verify.lake_checking": ({"pathlib", ".read_text"}, USERS_OWN),
    "pipelines.lake.tables.names": ({"Directory"}, "the last name of a path of its user's"),
    "pipelines.bootstrap.sources": (
        {"pathlib", "Directory", "DeltaTable", ".filesystem", ".get_file_info",
         ".open_input_stream"}, USERS_OWN,
    ),
    "pipelines.sql_jobs.job_types": ({"pathlib"}, USERS_OWN),
    "pipelines.sql_jobs.java_programs": (
        {"pathlib"}, "the user's own Flink, and classes in the cache",
    ),
    "pipelines.sql_jobs.sql_scripts": ({"pathlib", ".write_text"}, USERS_OWN),
    "state_core.plans.plan": ({"open"}, USERS_OWN),
    "state_core.formats.contents": ({"open"}, USERS_OWN),
    "pipelines.yaml_lines": ({"pathlib", ".read_text"}, USERS_OWN),
    "pipelines.lake.catalog.processes": (
        {"pathlib", ".read_text"}, "what the kernel says of processes",
    ),
    "pipelines.lake.tables.table_log": (
        {"DeltaTable", "os.scandir", "pathlib", ".mkdir", ".symlink_to", ".rmdir"},
        "a directory of its own, where the log is that the resolver opened",
    ),
    "pipelines.lake.query.table_datasets": (
        {".filesystem"}, "an object store's, for keys that were checked; of none on a disk",
    ),
    "pipelines.orchestration.component": (
        {"pathlib", ".read_text", ".write_text"}, "the file that Dagster keeps its state in",
    ),
    "pipelines.report.page": (
        {".read_text", "Directory"}, "files of the package itself, and the path of its user's",
    ),
    "pipelines.ui.audit": ({"os.open"}, USERS_OWN),
    **dict.fromkeys(
        ("pipelines.ui.server", "pipelines.ui.pages"),
        ({".read_text"}, "files of the package itself"),
    ),
    "pipelines.runtime.sources": ({"Directory", "DeltaTable"}, USERS_OWN),
    "pipelines.find.orphans": (
        {"Directory", "os.path.realpath"},
        "paths of a cluster, by a map that refuses what names a server",
    ),
    "pipelines.live.rescale_steps": ({"Directory"}, USERS_OWN),
    "pipelines.find.copying": ({"Directory", "os.path.realpath"}, USERS_OWN),
    "pipelines.find.scanning": ({"Directory", "os.path.realpath"}, USERS_OWN),
    "pipelines.lake.verify.verified_savepoints": ({"Directory"}, USERS_OWN),
    "pipelines.java": ({"pathlib", "shutil", ".mkdir"}, USERS_OWN),
    "pipelines.spark.class_archive": ({"pathlib"}, USERS_OWN),
    "pipelines.spark.class_archiving": ({"pathlib", ".mkdir"}, USERS_OWN),
    "pipelines.spark.frames": ({"Directory"}, USERS_OWN),
    "pipelines.spark.jars": ({"pathlib", "shutil", ".write_text"}, USERS_OWN),
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


def run_time_imports(tree: ast.AST) -> Iterator[str]:
    """What is imported when a module runs, without what is imported for types alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name.removeprefix(ROOT_PACKAGE) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = str(node.module).removeprefix(ROOT_PACKAGE)
            wholes = (f"{module}.{alias.name}" for alias in node.names)
            yield from (whole if whole in MODULES else module for whole in wholes)
        yield from run_time_imports(node)


@cache
def tree_of(path: Path) -> ast.Module:
    """What a module is made of: several tests look at each."""
    return ast.parse(path.read_text("utf-8"))


def is_package(name: str) -> bool:
    """Whether a module is a folder's `__init__`."""
    return MODULES[name].name == "__init__.py"


def is_in(name: str, unit: str) -> bool:
    """Whether a module is a unit, or in it."""
    return name == unit or name.startswith(f"{unit}.")


@cache
def unit_of(name: str) -> str:
    """The unit that a module belongs to: the longest known prefix of its name."""
    return max((unit for unit in STRATUM_OF if is_in(name, unit)), key=len, default="")


def is_late(name: str, imported: str) -> bool:
    """Whether an import is one of the exceptions."""
    return any(is_in(name, importer) and is_in(imported, unit) for importer, unit in LATE)


@cache
def imports_of(path: Path) -> tuple[tuple[str, int], ...]:
    """Every imported module, wherever it is imported, with the line."""
    return tuple(_imports_of(path))


def _imports_of(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.removeprefix(ROOT_PACKAGE), node.lineno
        elif isinstance(node, ast.ImportFrom):
            module = f"{'.' * node.level}{node.module or ''}".removeprefix(ROOT_PACKAGE)
            for alias in node.names:
                whole = f"{module}.{alias.name}"
                yield whole if whole in MODULES else module, node.lineno


def all_imports(unit: str = "") -> Iterator[tuple[str, str, int]]:
    """Every import in a unit, or anywhere: by which module, of what, and in which line."""
    for name, path in MODULES.items():
        if not unit or is_in(name, unit):
            yield from ((name, imported, line) for imported, line in imports_of(path))


def test_imports_go_down() -> None:
    """Nothing imports what is in a higher stratum, or relatively."""
    order = list(STRATA)
    wrong = []
    for name, imported, line in all_imports():
        own, other = STRATUM_OF[unit_of(name)], STRATUM_OF.get(unit_of(imported), order[0])
        if imported.startswith("."):
            wrong.append(f"{name}:{line} imports {imported} relatively")
        elif order.index(other) > order.index(own) and not is_late(name, imported):
            wrong.append(f"{name}:{line} ({own}) imports {imported} ({other})")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("face", "may_import"),
    [("pipelines.cli", COMMAND_IMPORTS), ("pipelines.orchestration", DAGSTER_IMPORTS)],
)
def test_a_face_calls_only_the_python_interface(face: str, may_import: dict[str, str]) -> None:
    """So that Python can do what the command and Dagster do; no exception is out of use."""
    ours = ("statelake", *PACKAGES)
    used = set()
    wrong = []
    for name in (name for name in MODULES if is_in(name, face)):
        for imported in run_time_imports(tree_of(MODULES[name])):
            allowed = [unit for unit in may_import if is_in(imported, unit)]
            if not allowed and imported.split(".")[0] in ours:
                wrong.append(f"{name} imports {imported}")
            used.update(allowed)
    assert not wrong, "\n".join(wrong)
    assert used == may_import.keys()


def imports_below(folder: str) -> dict[str, set[str]]:
    """What imports what in a folder, a package beside others or a module; two modules may."""
    found: dict[str, set[str]] = {}
    depth = folder.count(".") + 2
    for name, imported, _ in all_imports(folder):
        own = ".".join(name.split(".")[:depth])
        other = ".".join(imported.split(".")[:depth])
        inside = is_in(imported, folder) and folder not in (own, other)
        are_packages = inside and (is_package(own) or is_package(other))
        if are_packages and own != other and not is_late(name, imported):
            found.setdefault(own, set()).add(other)
    return found


def rings_of(imports: dict[str, set[str]]) -> Iterator[list[str]]:
    """Packages that import each other in a ring, ring after ring; none shares an import."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        ring = error.args[1][::-1]
        yield ring
        for own, other in pairwise(ring):
            imports[own].remove(other)
        yield from rings_of(imports)


def test_no_packages_import_each_other() -> None:
    """Of a folder's packages, each has its place before or behind each other one."""
    wrong = []
    for folder in filter(is_package, MODULES):
        for ring in rings_of(imports_below(folder)):
            places = {
                (own, other): f"{name}:{line} imports {imported}"
                for own, other in pairwise(ring)
                for name, imported, line in all_imports(own)
                if is_in(imported, other) and not is_late(name, imported)
            }
            wrong.append("a ring: " + ", ".join(places.values()))
    assert not wrong, "\n".join(wrong)


def test_no_files_import_each_other() -> None:
    """Of any two files one is the lower one, which does without the other."""
    imports = {
        name: {other for other in run_time_imports(tree_of(path)) if other in MODULES} - {name}
        for name, path in MODULES.items()
    }
    wrong = [f"a ring: {', which imports '.join(ring)}" for ring in rings_of(imports)]
    assert not wrong, "\n".join(wrong)


def test_no_module_is_longer_than_a_thousand_lines() -> None:
    """It would be read by nobody to its end."""
    sizes = {name: len(path.read_text("utf-8").splitlines()) for name, path in MODULES.items()}
    assert not {name: size for name, size in sizes.items() if size > 1_000}


def test_a_class_name_is_one_class() -> None:
    """No two modules have a class of one name, but for the faces of what they are named after."""
    places: dict[str, list[str]] = {}
    for name, path in MODULES.items():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(name)
    wrong = {name: where for name, where in places.items() if len(where) > 1}
    assert {name: sorted(where) for name, where in wrong.items()} == FACES


@pytest.mark.parametrize("pair", APART, ids=" and ".join)
def test_neighbours_that_are_apart(pair: tuple[str, str]) -> None:
    """Neither imports the other."""
    assert set(pair) <= set(MODULES)
    wrong = [
        f"{name}:{line} imports {imported}"
        for own, other in (pair, pair[::-1])
        for name, imported, line in all_imports(own)
        if is_in(imported, other)
    ]
    assert not wrong, "\n".join(wrong)


def test_what_must_not_know_spark_or_dagster_does_not() -> None:
    """The library is free of both, Spark's half of Dagster, and Dagster's half of Spark."""
    wrong = [
        f"{name}:{line} imports {imported}"
        for unit, forbidden in FORBIDDEN.items()
        for name, imported, line in all_imports(unit)
        if imported.split(".")[0] in forbidden
    ]
    assert not wrong, "\n".join(wrong)


def test_all_is_imported_below_one_root() -> None:
    """What is installed is `statelake`: `pipelines` at the top may be another's."""
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(files) > len(MODULES)
    wrong = [
        f"{path.relative_to(ROOT)}:{number} has {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if re.match(r"\s*(?:from|import) (state_core|pipelines)\b", line)
    ]
    assert not wrong, "\n".join(wrong)


def test_modules_of_tests_have_names_of_their_own() -> None:
    """Folders of tests are no packages: pytest imports each module by its name alone."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert {name: times for name, times in names.items() if times > 1} == {}


def test_packages_say_what_lives_in_them() -> None:
    """The docstring of a package names every module and package in it."""
    wrong = []
    for package, _, child in (name.rpartition(".") for name in MODULES):
        if package and child not in (ast.get_docstring(tree_of(MODULES[package])) or ""):
            wrong.append(f"{package}:1 says nothing of {child}")
    assert not wrong, "\n".join(wrong)


def test_the_page_of_the_design_names_every_package() -> None:
    """Its folders are there, and all packages of library, pipelines and lake are among them."""
    page = (ROOT / "docs" / "design.md").read_text("utf-8")
    named = {name.rstrip("/") for name in re.findall(r"^\| `([\w/]+)` \|", page, re.MULTILINE)}
    assert {name for name in named if not (ROOT / name).is_dir()} == set()
    parents = ("state_core", "pipelines", "pipelines.lake")
    packages = {name for name in MODULES if is_package(name) and name.rpartition(".")[0] in parents}
    assert {name for name in packages if name.replace(".", "/") not in named} == set()


def test_every_module_is_in_a_stratum() -> None:
    """And what is in the tables is there: something that is gone would hide a mistake."""
    assert {unit_of(name) for name in MODULES} == set(STRATUM_OF)
    packages = {name for name in MODULES if is_package(name) and name.count(".") == 1}
    assert packages <= set(STRATUM_OF)
    for importer, imported in LATE:
        found = {
            other
            for name in MODULES
            if is_in(name, importer)
            for other, _ in imports_of(MODULES[name])
        }
        assert any(is_in(other, imported) for other in found)


def unknown_public_names(name: str) -> Iterator[str]:
    """What is in a module's `__all__` and not in the module, with the line of `__all__`."""
    listed: list[str] = []
    place = 0
    defined: set[str] = set()
    for node in tree_of(MODULES[name]).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            late = {
                alias.name for statement in node.body for alias in getattr(statement, "names", ())
            }
            defined |= {
                part
                for part in late
                if hasattr(importlib.import_module(f"{ROOT_PACKAGE}{name}"), part)
            }
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [child for target in targets for child in ast.walk(target)]
            defined |= {child.id for child in names if isinstance(child, ast.Name)}
            if "__all__" in {child.id for child in names if isinstance(child, ast.Name)}:
                assert node.value is not None
                listed, place = ast.literal_eval(node.value), node.lineno
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            defined |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
    yield from (f"{name}:{place} lists {part}" for part in listed if part not in defined)


def test_public_names_are_there() -> None:
    """`__all__` names what the module defines, or imports when it is first used."""
    wrong = [line for name in MODULES for line in unknown_public_names(name)]
    assert not wrong, "\n".join(wrong)


def paths_by_hand(tree: ast.AST) -> dict[str, int]:
    """What a module does with paths without the resolver, each with a line of it."""
    nodes = list(ast.walk(tree))
    confined = {
        id(node.value)
        for node in nodes
        if isinstance(node, ast.Attribute) and node.attr == "confined"
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
            for name in {f"{node.module}.{alias}" for alias in named} & PATH_CALLS:
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


@pytest.mark.full
def test_no_path_is_joined_by_hand() -> None:
    """Paths go through `state_core.files.confinement`; exceptions have a reason, and are in use."""
    wrong = []
    for name in sorted(set(MODULES) - RESOLVER):
        found = paths_by_hand(tree_of(MODULES[name]))
        allowed, _ = PATHS_BY_HAND.get(name, (set(), ""))
        wrong += [
            f"{name}:{line} uses {what}: a path that came from data goes through a confined"
            " directory (`Directory(...).confined()`) or `relative_path`"
            for what, line in found.items()
            if what not in allowed
        ]
        wrong += [f"{name} no longer uses {what}: forbid it" for what in allowed - set(found)]
    assert not wrong, "\n".join(wrong)


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
