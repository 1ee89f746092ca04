"""The golden verdicts and bytes of serializers are what Flink's own classes say today."""

from __future__ import annotations

import base64
import json
import subprocess
import zlib
from collections.abc import Iterable
from typing import Any

import pytest

from tests.integration.flink.distribution import JAVA_SOURCES, compiled, flink_jars
from tests.support.java import java
from tests.support.savepoints.golden_cases import GOLDEN

pytestmark = [pytest.mark.flink, pytest.mark.full]

MODULES = ("flink-avro", "flink-table-runtime")
SNAPSHOTS = ("old", "new", "restored", "written_with", "reconfigured")
# what PojoVectors.java leaves out where it is the same as another
REPEATS = {
    "restored": "old",
    "written_with": "new",
    "reconfigured": "written_with",
    "migrated": "values",
}


def printed(programs: Iterable[str], modules: Iterable[str]) -> str:
    """What the first program prints, compiled with the others."""
    jars = flink_jars("2.3.0", modules)
    main, *others = programs
    sources = [JAVA_SOURCES / f"{name}.java" for name in (main, *others)]
    classes = compiled(sources, jars, "vectors-2.3.0")
    done = subprocess.run(
        java("1g", [classes, *jars], main),
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.decode()


def golden(name: str) -> str:
    """What is kept of it."""
    return (GOLDEN / "vectors" / name).read_text("utf-8")


def test_pairs_of_serializers() -> None:
    """The program that wrote the pairs of serializers writes them again, byte by byte."""
    programs = ("CompatibilityVectors", "CompatibilityTypes")
    assert printed(programs, MODULES) == golden("compatibility.jsonl")


def test_sql_types() -> None:
    """And so does that of Flink SQL's types."""
    assert printed(["TableVectors"], MODULES) == golden("table.jsonl")


def test_pojos() -> None:
    """And that of POJOs, but for the order of subclasses, which Flink keeps in hash maps."""
    again = printed(["PojoVectors"], ()).splitlines()
    kept = golden("pojo.jsonl").splitlines()
    for ours, theirs in zip(kept, again, strict=True):
        assert unordered(json.loads(ours)) == unordered(json.loads(theirs))


def unordered(pair: dict[str, Any]) -> dict[str, Any]:
    """A pair with all that is left out as a repetition, and the bytes of its snapshots sorted."""
    whole = dict(pair)
    for key, repeated in REPEATS.items():
        whole.setdefault(key, whole.get(repeated))
    for key in SNAPSHOTS:
        if whole[key] is not None:
            whole[key] = sorted(zlib.decompress(base64.b64decode(whole[key])))
    return whole
