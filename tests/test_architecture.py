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
    "state_core.serializers.binary_sections": 500,
    "state_core.serializers.binary_slots": 530,
    "state_core.serializers.table_data": 540,
    "state_core.serializers.table_structures": 650,
}

RANKS = {
    "state_core.printable": -1,
    "state_core.errors": 0,
    "state_core.bounds": 1,
    "state_core.wire": 2,
    "state_core.operator_ids": 1,
    "state_core.byte_sources": 1,
    "state_core.confinement": 1,
    "state_core.filesystem": 2,
    "state_core.kernels": 1,
    "state_core.handles": 1,
    "state_core.java_stream": 3,
    "state_core.compression": 3,
    "state_core.key_groups": 2,
    "state_core.serializers": 4,
    "state_core.non_keyed": 3,
    "state_core.snapshot": 4,
    "state_core.redistribution": 4,
    "state_core.measure": 5,
    "state_core.commit": 5,
    "state_core.declarations": 5,
    "state_core.legality": 6,
    "state_core.legality_document": 7,
    "state_core.formats": 6,
    "state_core.integrity": 7,
    "state_core.held_states": 7,
    "state_core.restore_checks": 8,
    "state_core.backends": 7,
    "state_core.process": 8,
    "state_core": 9,
    "pipelines.engine": 10,
    "pipelines.flink_conf": 10,
    "pipelines.shown": 10,
    "pipelines.lake": 11,
    "pipelines.spark": 12,
    "pipelines.runtime": 12,
    "pipelines.pictures": 12,
    "pipelines.partitions": 12,
    "pipelines.bootstrap": 13,
    "pipelines.migrations": 13,
    "pipelines.savepoints": 13,
    "pipelines.metadata": 14,
    "pipelines.resources": 14,
    "pipelines.assets": 15,
    "pipelines.checks": 16,
    "pipelines.ops": 15,
    "pipelines.jobs": 16,
    "pipelines.sensors": 17,
    "pipelines.schedules": 18,
    "pipelines.definitions": 19,
    "pipelines.demo": 20,
    "pipelines.commands": 21,
    "pipelines.cli": 22,
    "pipelines": 10,
}
LATE = {
    # functions that start something heavy, and commands that the demo runs as a user would
    ("pipelines.engine", "pipelines.spark"),
    ("pipelines.demo", "pipelines.commands"),
}
FORBIDDEN = {
    "state_core": ("pyspark", "delta", "deltalake", "dagster", "pipelines"),
    "pipelines.lake": ("pyspark", "dagster"),
    "pipelines.spark": ("dagster",),
    "pipelines.assets": ("pyspark",),
    "pipelines.checks": ("pyspark",),
    "pipelines.definitions": ("pyspark",),
    "pipelines.jobs": ("pyspark",),
    "pipelines.ops": ("pyspark",),
    "pipelines.partitions": ("pyspark",),
    "pipelines.resources": ("pyspark",),
    "pipelines.schedules": ("pyspark",),
    "pipelines.sensors": ("pyspark",),
}


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
