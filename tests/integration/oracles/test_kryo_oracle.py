"""Kryo, judged by both versions of Flink: their values, and what of Flink 1 Flink 2 restores."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

import statelake as sl
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.change.kryo_upgrading import upgrade_kryo
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.state_core.errors import StateError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.serializers.framework.plugins import forget_declarations
from statelake.state_core.serializers.framework.registry import read_serializer_snapshot
from statelake.state_core.serializers.kryo.decoding import declare_classes
from statelake.state_core.serializers.kryo.forms import TIMES
from statelake.state_core.serializers.kryo.graph import is_by_fields
from statelake.state_core.serializers.kryo.objects import KNOWN_FORMS, RenewedForm, classes_of
from statelake.state_core.serializers.kryo.snapshot import KryoSerializerSnapshot
from statelake.state_core.serializers.kryo.wire import KryoVersion
from tests.integration.flink.distribution import JAVA_SOURCES, compiled, flink_jars
from tests.integration.flink.oracle import FlinkError, FlinkOracle, sorted_lines
from tests.support.java import java
from tests.support.savepoints.kryo_jobs import (
    BASKET,
    KRYO_KEYS,
    POJO_KEYS,
    jdk_savepoint,
    kryo_classes,
    kryo_lines,
    kryo_vectors,
)

pytestmark = [pytest.mark.flink, pytest.mark.usefixtures("own_registry"), pytest.mark.full]


# of `java.base`, for the fields that a Flink on Java 8 writes
PACKAGES = (
    "io", "lang", "lang.invoke", "lang.ref", "lang.reflect", "math", "net", "nio", "nio.charset",
    "security", "text", "time", "time.chrono", "time.format", "time.zone", "util",
    "util.concurrent", "util.concurrent.atomic", "util.concurrent.locks", "util.jar", "util.regex",
    "util.stream", "util.zip",
)  # fmt: skip
OPEN = [
    *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in PACKAGES),
    "--add-opens=java.base/sun.nio.cs=ALL-UNNAMED",
    "--add-opens=java.base/sun.util.calendar=ALL-UNNAMED",
    "--add-opens=java.sql/java.sql=ALL-UNNAMED",
]
# what Kryo 5 reads as another class where it is shared, as it does of what Flink 2 itself wrote
OTHER_WHERE_SHARED = re.compile(r"((List|Set|Map)\.of|an array of nothing).* in a list")
BY_IDENTITY = re.compile(r"IdentityHashMap.*")  # whose keys are equal only to themselves


def said_by(version: str, program: str, *words: str, given: str = "") -> list[str]:
    """The lines that a program of Kryo prints in that Flink."""
    jars = flink_jars(version)
    classes = compiled([JAVA_SOURCES / f"{program}.java"], jars, f"kryo-{version}")
    done = subprocess.run(
        java("2g", [classes, *jars], *OPEN, program, *words),
        input=given.encode(),
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.decode().splitlines()


@pytest.mark.parametrize(("version", "flink"), [("1.20.0", 1), ("2.3.0", 2)])
def test_vectors(version: str, flink: int) -> None:
    """The program that wrote them writes them again, byte by byte."""
    vectors = {row["name"]: row for row in map(json.loads, said_by(version, "KryoVectors"))}
    assert vectors == kryo_vectors(flink)


def test_what_flink_1_wrote_is_equal_in_flink_2() -> None:
    """By Java's `equals` and class, of all values that are translated."""
    vectors, made, declared = kryo_vectors(1), {}, {}
    for name, vector in vectors.items():
        if kryo_classes(name, 1) != declared:
            forget_declarations()
            declared = kryo_classes(name, 1)
            declare_classes(declared)
        snapshot = read_serializer_snapshot(DataInput(bytes.fromhex(vector["snapshot"])))
        assert isinstance(snapshot, KryoSerializerSnapshot)
        older, newer = (snapshot.values(version) for version in KryoVersion)
        try:
            item = older.read(bytes.fromhex(vector["value"]))
            made[name] = newer.write(item, KryoVersion.FLINK_2).hex()
        except StateError:
            continue  # `test_kryo_vectors.py` has the reasons
    assert len(made) == 348
    given = "".join(f"{name}\t{data}\n" for name, data in made.items())
    lines = said_by("2.3.0", "KryoVectors", "compare", given=given)
    said = [line.split("\t") for line in lines]
    assert [name for name, _ in said] == list(made)
    assert {name for name, found in said if found != "equal"} == {
        name for name in made if OTHER_WHERE_SHARED.fullmatch(name) or BY_IDENTITY.fullmatch(name)
    }


def test_each_class_of_the_jdk_that_the_two_write_differently_has_a_form_or_is_refused() -> None:
    """Of all in `java.base` and `java.sql`, by both JARs; fields of all others can be declared."""
    tables = []
    for version in ("1.20.0", "2.3.0"):
        rows = (line.split() for line in said_by(version, "KryoClasses"))
        tables.append({name: (final, by.rpartition(".")[2]) for name, final, by in rows})
    assert len(tables[0]) > 2000
    assert tables[0].keys() == tables[1].keys()
    known = classes_of((), {})
    by_fields = ("FieldSerializer", "none")  # none: what no option of Java opens
    for name, (final, older) in tables[0].items():
        newer = tables[1][name][1]
        form = KNOWN_FORMS.get(name)
        if form is not None:
            if "$" not in name:  # whose name no field has
                assert (name in known.final) == (final == "true"), name
            renewed = isinstance(form, RenewedForm) or name in TIMES or name == "java.util.Optional"
            assert renewed == (older in by_fields and newer not in by_fields), name
        elif older not in by_fields or newer not in by_fields:
            enum = older.endswith("EnumSerializer") and newer.endswith("EnumSerializer")
            assert not is_by_fields(name) or enum or name == "java.lang.Void", name
    of_java = {name for name in KNOWN_FORMS if not name.startswith(("[", "org.", "com."))}
    assert of_java <= tables[0].keys()


def upgraded(savepoint: Path, work: Path, parallelism: int = 3) -> Path:
    """The savepoint for Flink 2."""
    declare_classes(yaml.safe_load(BASKET))
    lake = Catalog(work / "lake")
    import_snapshot(lake, str(savepoint), "job", snapshot_id="s", engine="local")
    _, plan = upgrade_kryo(ChildSnapshot(lake, "job", "s", "s2", engine="local"))
    assert [upgrade.left for upgrade in plan] == [""] * 8
    export_snapshot(lake, "job", "s2", work / "out", engine="local", parallelism=parallelism)
    return work / "out"


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_restored(backend: str, flink: FlinkOracle, tmp_path: Path) -> None:
    """Every value is equal, and what was one object twice still is."""
    out = upgraded(jdk_savepoint(tmp_path / "sp"), tmp_path)
    lines = flink.restore("kryo", out, keys=KRYO_KEYS, parallelism=3, backend=backend)
    assert sorted_lines(lines) == sorted_lines(kryo_lines())


def test_flink_itself_can_not(flink: FlinkOracle, tmp_path: Path) -> None:
    """The savepoint as it is fails in Flink 2's Kryo."""
    with pytest.raises(FlinkError, match="KryoException"):
        flink.restore("kryo", jdk_savepoint(tmp_path / "sp"), keys=KRYO_KEYS)


def test_flink_2_writes_on(flink: FlinkOracle, tmp_path: Path) -> None:
    """A savepoint of Flink 2's own is read as what it is."""
    savepoint = flink.generate("kryo", tmp_path / "sp", keys=KRYO_KEYS, inline=1_000_000)
    declare_classes(yaml.safe_load(BASKET.replace("flink: 1", "flink: 2")))
    lake = Catalog(tmp_path / "lake")
    import_snapshot(lake, str(savepoint), "job", snapshot_id="s", engine="local")
    export_snapshot(lake, "job", "s", tmp_path / "out", engine="local", parallelism=3)
    lines = flink.restore("kryo", tmp_path / "out", keys=KRYO_KEYS, parallelism=3)
    assert sorted_lines(lines) == sorted_lines(kryo_lines())


@pytest.mark.full
def test_from_rocksdb(flink: FlinkOracle, old_flink: FlinkOracle, tmp_path: Path) -> None:
    """A native savepoint of Flink 1.20's RocksDB."""
    savepoint = old_flink.generate(
        "kryo", tmp_path / "sp", keys=KRYO_KEYS, backend="rocksdb", format="native",
        compression="true",
    )  # fmt: skip
    lines = flink.restore("kryo", upgraded(savepoint, tmp_path), keys=KRYO_KEYS, parallelism=3)
    assert sorted_lines(lines) == sorted_lines(kryo_lines())


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_pojos_are_upgraded(backend: str, flink: FlinkOracle, tmp_path: Path) -> None:
    """Kryo's fields in values, lists and maps; lists, sets and maps by Flink 2's own serializers.

    Flink 2 makes an `ArrayList` of each list, and a `HashSet` of each set, which are equal.
    """
    declare_classes({"flink": 1, "classes": {"PojoJobs$Own": {"fields": {"number": "long"}}}})
    job = sl.Lake(tmp_path / "lake").job("job", engine="local")
    savepoint = jdk_savepoint(tmp_path / "sp", "pojos-1.20")
    job.import_snapshot(savepoint, "s", uids=["customers", "places"])
    job["s"].edit("values").drop_operator("places").save()  # keyed by a POJO with Kryo in it
    upgraded = job["values"].upgrade("2.3")
    types = {state.state: state.types for state in upgraded.states}
    collections = {"scores": "Map<String, Integer>", "seen": "Set<Long>", "tags": "List<String>"}
    assert types == {
        "customer": collections, "listed": collections, "mapped": collections, "odd": {},
        "pair": {},
    }  # fmt: skip
    job[upgraded.made].export(tmp_path / "out", parallelism=3)
    keys = {"keys": POJO_KEYS, "parallelism": 3, "backend": backend}
    lines = [line for line in flink.restore("pojos", tmp_path / "out", **keys) if "odd" in line]
    expected = [line for line in kryo_lines("pojos") if "odd" in line]
    assert len(expected) == POJO_KEYS
    assert [equal(line) for line in sorted_lines(lines)] == [
        equal(line) for line in sorted_lines(expected)
    ]
    with pytest.raises(FlinkError, match=r"Buffer underflow|must not be incompatible"):
        flink.restore("pojos", savepoint, **keys)


def equal(line: str) -> str:
    """A line without the classes of lists, and with the elements of sets in order."""
    line = re.sub(r"(?<=\])(ArrayList|LinkedList)", "", line)
    return re.sub(r"\}\[([-\d, ]*)\]", lambda found: str(sorted(found[1].split(", "))), line)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_pojos_are_restored(backend: str, old_flink: FlinkOracle, tmp_path: Path) -> None:
    """With Kryo's fields in values, lists, maps and keys, typed in the lake; all values equal."""
    lake = Catalog(tmp_path / "lake")
    savepoint = jdk_savepoint(tmp_path / "sp", "pojos-1.20")
    import_snapshot(lake, str(savepoint), "job", snapshot_id="s", engine="local")
    export_snapshot(lake, "job", "s", tmp_path / "out", engine="local", parallelism=3)
    lines = old_flink.restore(
        "pojos", tmp_path / "out", keys=POJO_KEYS, parallelism=3, backend=backend
    )
    assert sorted_lines(lines) == sorted_lines(kryo_lines("pojos"))


@pytest.mark.parametrize("form", ["canonical", "native"])
@pytest.mark.parametrize("version", ["1.20", "2.3"])
def test_keys_are_restored(
    version: str, form: str, flink: FlinkOracle, old_flink: FlinkOracle, tmp_path: Path
) -> None:
    """Kryo's keys of maps and of a stream, from the heap's formats by way of a lake."""
    lake = Catalog(tmp_path / "lake")
    savepoint = jdk_savepoint(tmp_path / "sp", f"keys-{form}-{version}")
    import_snapshot(lake, str(savepoint), "job", snapshot_id="s", engine="local")
    export_snapshot(lake, "job", "s", tmp_path / "out", engine="local", parallelism=3)
    same = flink if version == "2.3" else old_flink
    lines = same.restore("kryo-keys", tmp_path / "out", keys=12, parallelism=3)
    assert sorted_lines(lines) == sorted_lines(kryo_lines("keys"))


@pytest.mark.parametrize("form", ["canonical", "native"])
def test_keys_of_maps_are_upgraded(form: str, flink: FlinkOracle, tmp_path: Path) -> None:
    """Flink 2.3 restores what 1.20 had; a stream that is keyed by UUIDs is left out."""
    job = sl.Lake(tmp_path / "lake").job("job", engine="local")
    savepoint = jdk_savepoint(tmp_path / "sp", f"keys-{form}-1.20")
    job.import_snapshot(savepoint, "s", uids=["mapped", "counted"])
    job["s"].edit("maps").drop_operator("counted").save()
    upgraded = job["maps"].upgrade("2.3")
    job[upgraded.made].export(tmp_path / "out", parallelism=3)
    lines = flink.restore("kryo-keys", tmp_path / "out", keys=12, parallelism=3)
    mapped = [line for line in kryo_lines("keys") if "counts" in line]
    assert sorted_lines(line for line in lines if "counts" in line) == sorted_lines(mapped)
