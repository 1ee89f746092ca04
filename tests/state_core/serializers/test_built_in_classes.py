"""Built-in snapshot classes are imported when their name is met: seen in processes that are new."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


def run_new(program: str) -> Any:
    """What a program prints as JSON, run by a Python that has imported nothing of ours yet."""
    ran = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT
    )
    return json.loads(ran.stdout)


def test_the_table_is_what_modules_register() -> None:
    """Each module registers what stands in the table behind its name, and no other one anything."""
    wrong, strangers = run_new("""
import importlib, json, pkgutil, sys
import statelake.state_core.serializers
from statelake.state_core.serializers.framework import registry
from statelake.state_core.serializers.framework.built_in import BUILT_IN

wrong = []
for module, names in BUILT_IN.items():
    known, before = module in sys.modules, set(registry._classes)
    importlib.import_module(module)
    new = before & set(names) if known else set(registry._classes) - before
    wrong += [(module, name) for name in new ^ set(names)]
expected = set(registry._classes)
folder = statelake.state_core.serializers
for module in pkgutil.walk_packages(folder.__path__, folder.__name__ + "."):
    importlib.import_module(module.name)
print(json.dumps([wrong, sorted(set(registry._classes) - expected)]))
""")
    assert (wrong, strangers) == ([], [])


def test_only_what_is_met_is_imported() -> None:
    """A snapshot of numbers needs nothing of Flink SQL's types, and no machine code."""
    found, imported = run_new("""
import json, sys
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.framework import registry

out = DataOutput()
out.write_utf(
    "org.apache.flink.api.common.typeutils.base.LongSerializer$LongSerializerSnapshot"
)
out.write_int(3)
found = registry.read_serializer_snapshot(DataInput(out.to_bytes(), "here")).type_name
rooms = ("statelake.state_core.serializers.sql", "statelake.state_core.serializers.avro", "numba")
print(json.dumps([found, [name for name in rooms if name in sys.modules]]))
""")
    assert (found, imported) == ("Long", [])


def test_a_users_class_comes_behind_what_is_built_in() -> None:
    """It must not take a built-in class's place unasked, though that is not imported yet."""
    problem, replaced, kept = run_new("""
import json
from statelake.state_core.errors import EncodeError
from statelake.state_core.serializers import (
    SimpleTypeSerializerSnapshot, TypeSerializer, register, registered_classes,
)
from statelake.state_core.serializers.framework.registry import registered_class

class Own(TypeSerializer):
    name = "Own"
    arrow_type = __import__("pyarrow").int64()
    def read(self, source):
        return source.read_long()
    def write(self, value, out):
        out.write_long(value)

class OwnDate(SimpleTypeSerializerSnapshot):
    java_class = "org.apache.flink.api.common.typeutils.base.DateSerializer$DateSerializerSnapshot"
    serializer_class = Own

try:
    register(OwnDate)
except EncodeError as error:
    problem = str(error)
register(OwnDate, replace=True)
replaced = registered_class(OwnDate.java_class).__name__
print(json.dumps([problem, replaced, registered_classes()[OwnDate.java_class].__name__]))
""")
    assert "which is built in; to replace it pass replace=True" in problem
    assert (replaced, kept) == ("OwnDate", "OwnDate")
