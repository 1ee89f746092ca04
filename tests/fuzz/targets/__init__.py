"""What is fuzzed: one module a kind of input, and `TARGETS`, the module of each target.

To add one: write a function that takes a directory of its own and returns a `Fuzzing`, and name its
module in `TARGETS`. Nothing of statelake is imported here, so that what is fuzzed can be
instrumented before it is.

The first bytes of an input choose among several forms of it where there are some (`chosen`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

__all__ = ["INTERPRETED", "TARGETS", "Fuzzing", "chosen", "prepare", "seeded"]

TARGETS = {
    "metadata": "snapshots",
    "keyed": "snapshots",
    "operator_state": "snapshots",
    "integrity": "snapshots",
    "keys": "snapshots",
    "changelog": "snapshots",
    "rocksdb": "tables",
    "sst": "tables",
    "snappy": "streams",
    "java": "streams",
    "kryo": "values",
    "serializers": "values",
    "sources": "connectors",
    "delta_log": "lakes",
    "catalog": "lakes",
    "yaml": "texts",
    "json": "texts",
    "types": "texts",
}

# those whose kernels Python can run on inputs of this size, too
INTERPRETED = {"operator_state", "serializers", "snappy", "sst"}


@dataclass(frozen=True)
class Fuzzing:
    """A target that is ready.

    Attributes:
        seeds: Inputs to begin with, none of which may fail otherwise than by a `StateError`.
        run: Gives the code an input. Raises a `StateError`, or nothing.
    """

    seeds: list[bytes]
    run: Callable[[bytes], None]


def prepare(name: str, directory: Path) -> Fuzzing:
    """Prepare the target of that name, which may write into the directory."""
    function = getattr(import_module(f"tests.fuzz.targets.{TARGETS[name]}"), f"fuzz_{name}")
    fuzzing = function(directory)
    assert isinstance(fuzzing, Fuzzing)
    return fuzzing


def chosen(data: bytes, forms: int) -> tuple[int, bytes]:
    """Which form an input is for, by its first two bytes, and the rest of it."""
    return int.from_bytes(data[:2], "big") % forms, data[2:]


def seeded(seeds: Iterable[tuple[int, bytes]]) -> list[bytes]:
    """Inputs of forms."""
    return [form.to_bytes(2, "big") + data for form, data in seeds]
